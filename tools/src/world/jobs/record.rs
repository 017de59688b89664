//! A job's state file: what is known of it when nobody of ours is left.

use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::world::jobs::folder::Folder;
use crate::world::jobs::{Job, JobId, JobNote, JobState};

/// The file in a job's folder.
pub(crate) const RECORD: &str = "job.json";
/// The newest format that is understood. A folder of another one is left alone.
pub(crate) const FORMAT: u32 = 1;
/// A state file is never longer: it holds one command.
const LONGEST: u64 = 4 * 1024 * 1024;

/// What the state file holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) format: u32,
    pub(crate) id: JobId,
    pub(crate) session: String,
    pub(crate) call_id: String,
    pub(crate) command: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<String>,
    pub(crate) keep: bool,
    /// What every process of the job carries in its environment. Nobody can guess it.
    pub(crate) mark: String,
    /// The boot that it was started in: after another one nothing of it can be left.
    pub(crate) boot: String,
    /// Unix time in milliseconds.
    pub(crate) started_at: u64,
    /// Most bytes of output on the disk.
    pub(crate) room: u64,
    pub(crate) phase: Phase,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ended_at: Option<u64>,
    /// In milliseconds, without the time that the machine slept; known at the end.
    #[serde(default)]
    pub(crate) ran_for: u64,
    #[serde(default)]
    pub(crate) written: u64,
    #[serde(default)]
    pub(crate) dropped: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<JobNote>,
}

/// Where the job is in its life, as far as the file knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "is")]
pub(crate) enum Phase {
    /// The engine made the folder. Nothing was started.
    Starting,
    /// The keeper is about to start the program.
    Spawning,
    Running {
        leader: Option<i32>,
    },
    Exited {
        status: i32,
    },
    Signalled {
        signal: i32,
    },
    Stopped,
    Lost {
        why: String,
    },
}

/// Why a state file is of no use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    #[error("{0}")]
    Files(#[from] io::Error),
    #[error(
        "it was written by another version of Terret (format {0}); only that version can use it"
    )]
    Format(u32),
    #[error("it is damaged: {0}")]
    Damaged(String),
}

impl Phase {
    /// Whether the job is over.
    pub(crate) fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Exited { .. } | Self::Signalled { .. } | Self::Stopped | Self::Lost { .. }
        )
    }

    fn state(&self) -> JobState {
        match self {
            Self::Starting | Self::Spawning => JobState::Running { leader: None },
            Self::Running { leader } => JobState::Running { leader: *leader },
            Self::Exited { status } => JobState::Exited(*status),
            Self::Signalled { signal } => JobState::Signalled(*signal),
            Self::Stopped => JobState::Stopped,
            Self::Lost { why } => JobState::Lost(why.clone()),
        }
    }
}

impl Record {
    /// Reads the state file of a folder.
    pub(crate) fn read(folder: &Folder) -> Result<Self, RecordError> {
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let bytes = folder.read(RECORD, LONGEST)?;
        // The number is read first: what follows it may be anything in another format.
        let version: Version = serde_json::from_slice(&bytes).map_err(damaged)?;
        if version.format != FORMAT {
            return Err(RecordError::Format(version.format));
        }
        serde_json::from_slice(&bytes).map_err(damaged)
    }

    /// Writes it, so that it outlives a power cut.
    pub(crate) fn write(&self, folder: &Folder) -> io::Result<()> {
        let mut bytes = serde_json::to_vec_pretty(self).map_err(io::Error::other)?;
        bytes.push(b'\n');
        folder.replace(RECORD, &bytes)
    }

    /// For those who ask.
    pub(crate) fn job(&self, tail: String) -> Job {
        Job {
            id: self.id.clone(),
            call_id: self.call_id.clone(),
            command: self.command.clone(),
            description: self.description.clone(),
            keep: self.keep,
            state: self.phase.state(),
            started_at: self.started_at,
            ended_at: self.ended_at,
            ran_for: self.ran_for,
            written: self.written,
            dropped: self.dropped,
            notes: self.notes.clone(),
            tail,
        }
    }
}

/// The id of this boot; empty where the system does not tell, which then equals no other.
#[expect(
    clippy::disallowed_methods,
    reason = "the system's own file, which no model names"
)]
pub(crate) fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|id| id.trim().to_owned())
        .unwrap_or_default()
}

/// Unix time in milliseconds.
#[expect(
    clippy::disallowed_methods,
    reason = "a keeper has nobody who could hand it a clock, and no replay makes a job again"
)]
pub(crate) fn unix_millis() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, millis)
}

/// A duration in whole milliseconds.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn damaged(error: serde_json::Error) -> RecordError {
    RecordError::Damaged(error.to_string())
}
