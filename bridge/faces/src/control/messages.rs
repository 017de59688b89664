//! What is said on the control socket.

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(super) const PING: &str = "_terret/ping";
pub(super) const LIVE: &str = "_terret/sessions/live";
pub(super) const INBOX: &str = "_terret/inbox/list";
pub(super) const DECIDE: &str = "_terret/inbox/decide";

/// The answer to a ping.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pong {
    pub pid: u32,
    pub version: String,
}

/// A session that the engine holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LiveSession {
    pub session_id: String,
    pub cwd: String,
    pub title: Option<String>,
    /// `idle`, `running`, `waiting_approval`, …
    pub status: String,
    /// How many approvals wait.
    pub pending: usize,
}

/// All that waits for a person.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Inbox {
    pub items: Vec<PendingItem>,
}

/// One approval that waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingItem {
    pub session_id: String,
    /// The approval's id, unique in its session.
    pub id: String,
    /// The tool that is to run.
    pub name: String,
    /// What is asked for, in one line.
    pub title: String,
    /// Why it is asked.
    pub reason: String,
    pub args: Value,
    /// The rule that "allow for this session" would add.
    pub offered_rule: Option<String>,
}

/// A verdict on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerdictWord {
    AllowOnce,
    AllowForSession,
    AllowForProject,
    Reject,
    /// Refuses and ends the turn; the next prompt says why.
    RejectAndWait,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Decide {
    pub session_id: String,
    pub id: String,
    pub verdict: VerdictWord,
    #[serde(default)]
    pub reason: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Live {
    pub sessions: Vec<LiveSession>,
}
