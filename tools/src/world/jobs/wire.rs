//! What an engine and a keeper say to each other.
//!
//! At the keeper's start one [`Order`] and one [`Started`] over its link, with the job's
//! folder, its lock and perhaps a standard input as descriptors. From then on lines of
//! JSON over the socket in the folder: any number of [`Request`]s and [`Report`]s.

use serde::{Deserialize, Serialize};

use crate::helper::link;
use crate::world::jobs::JobNote;
use crate::world::jobs::record::Phase;

/// What a keeper shall do; what the job is stands in its state file.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) leader: link::Order,
    /// Running time without an owner until the job is ended, in milliseconds.
    pub(crate) orphan_grace_ms: u64,
    /// Between the request to end and the kill when nobody says otherwise.
    pub(crate) grace_ms: u64,
}

/// A keeper's answer to its order.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Started {
    /// The program runs, the state file says so, and the socket listens.
    Running,
    /// The job's files cannot be kept. Nothing runs.
    Unkept { text: String },
    /// The program cannot be started. Nothing runs.
    Failed { step: link::Step, errno: i32 },
}

/// From an engine to a keeper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "do")]
pub(crate) enum Request {
    /// As long as this connection stands, the job has an owner.
    Own,
    /// Ends the job.
    Stop { grace_ms: u64 },
    /// Whether the job outlives its owners.
    Release { keep: bool },
    /// Tell at once when more than `beyond` bytes are written.
    Await { beyond: u64 },
}

/// From a keeper to an engine: how the job stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) phase: Phase,
    pub(crate) keep: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ended_at: Option<u64>,
    pub(crate) ran_for: u64,
    pub(crate) written: u64,
    pub(crate) dropped: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<JobNote>,
}
