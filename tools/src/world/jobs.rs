//! Jobs: processes that outlive the call that started them, and the engine too
//! (`Terret seed §6`, `design: Jobs`).
//!
//! The seam. Its provider keeps each job under a keeper of ours, with its output in a
//! bounded spool and its state in a file, so that any engine on the same home finds it
//! again. What was collected of a job is not kept here: the session's log knows
//! ([`crate::call::CallJournal::job_cursor`]), so that a crash between a read and its
//! result loses nothing.

mod disk;
pub(crate) mod folder;
mod kept;
pub mod listing;
pub(crate) mod record;
mod row;
pub(crate) mod spool;
mod start;
mod sweep;
mod tail;
pub mod unavailable;
mod watch;
pub(crate) mod wire;

pub use kept::{JobsSettings, KeptJobs, LIMIT, ORPHAN_GRACE, SPOOL, TOTAL};

use std::fmt;
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use crate::world::process::{ProcessError, Program};

/// The jobs of one session.
#[async_trait]
pub trait Jobs: Send + Sync {
    /// Starts a job and returns at once.
    ///
    /// # Errors
    /// [`JobError`]; then nothing runs.
    async fn start(&self, request: JobRequest) -> Result<Job, JobError>;

    /// The job that a call started, also before a crash: whoever repeats a call finds its
    /// job and starts none.
    ///
    /// # Errors
    /// When the folder of jobs cannot be read.
    async fn started_by(&self, call_id: &str) -> Result<Option<Job>, JobError>;

    /// All jobs of the session that were not forgotten, oldest first.
    ///
    /// # Errors
    /// When the folder of jobs cannot be read.
    async fn list(&self) -> Result<Vec<Job>, JobError>;

    /// Output from byte `from` on, at most `most` bytes of it; waits up to `wait` while
    /// there is none and the job runs. Reads and changes nothing.
    ///
    /// # Errors
    /// [`JobError::NoSuchJob`] for an id that is unknown, of another session or forgotten.
    async fn read(
        &self,
        id: &JobId,
        from: u64,
        most: usize,
        wait: Duration,
        cancel: &CancellationToken,
    ) -> Result<JobOutput, JobError>;

    /// Ends a job with all that came from it: asked first, killed after the grace. Gives
    /// its state afterwards; stopping twice is fine.
    ///
    /// # Errors
    /// [`JobError::NoSuchJob`] as for [`Self::read`].
    async fn stop(&self, id: &JobId) -> Result<Job, JobError>;

    /// Drops a job that has ended, with its files. One that runs or is unknown is left.
    async fn forget(&self, id: &JobId);

    /// Takes over what earlier engines left of this session's jobs, and gives all of them.
    ///
    /// # Errors
    /// When the folder of jobs cannot be read.
    async fn adopt(&self) -> Result<Vec<Job>, JobError>;

    /// Tells of output and ends from now on. Who lags misses output and finds the rest by
    /// [`Self::list`].
    fn changes(&self) -> broadcast::Receiver<JobChange>;

    /// The session is over: stops every job that was not started to be kept, and lets go
    /// of those that were.
    async fn close(&self);
}

/// A job's name: `job-` and 16 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JobId(String);

/// What to start.
pub struct JobRequest {
    /// The call that starts it.
    pub call_id: String,
    /// The command, for people.
    pub command: String,
    /// What it is for, for people.
    pub description: Option<String>,
    /// It outlives a clean end of the session; a person approved that.
    pub keep: bool,
    pub program: Program,
}

/// A job as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    pub id: JobId,
    pub call_id: String,
    pub command: String,
    pub description: Option<String>,
    pub keep: bool,
    pub state: JobState,
    /// Unix time in milliseconds.
    pub started_at: u64,
    /// Unix time in milliseconds; none while it runs.
    pub ended_at: Option<u64>,
    /// Running time in milliseconds, as far as it is known.
    pub ran_for: u64,
    /// Bytes that it wrote.
    pub written: u64,
    /// Bytes of these that the spool had no room for.
    pub dropped: u64,
    /// What should be known of it besides, such as that its spool is nearly full (R022).
    pub notes: Vec<JobNote>,
    /// The last lines of its output, cleaned; at most 2 KiB.
    pub tail: String,
}

/// Something to know of a job; its text is for people and models.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "note")]
pub enum JobNote {
    /// More than 80 % of the room for its output is used.
    Filling { held: u64, room: u64 },
    /// The room for its output is used up; the middle of the output goes.
    Full { room: u64 },
    /// Output could not be kept; why, in the system's words.
    Unkept { why: String },
    /// Nobody of ours was there for it any more, so its keeper ended it.
    Orphaned { after_ms: u64 },
}

/// Where a job is in its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobState {
    /// Its first process runs, or, with a status, something that this one left behind.
    Running { leader: Option<i32> },
    /// All of it is gone; the status of its first process.
    Exited(i32),
    /// Its first process was killed by this signal, not by us.
    Signalled(i32),
    /// We ended it: a person or a model stopped it, or its session ended.
    Stopped,
    /// Nobody saw its end; why, in words: the machine was restarted, its keeper was killed.
    Lost(String),
}

/// A piece of a job's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobOutput {
    pub job: Job,
    /// Raw bytes.
    pub bytes: Vec<u8>,
    /// Bytes between the asked place and the first of `bytes` that are gone for good.
    pub missing: u64,
    /// Where the next read goes on.
    pub upto: u64,
}

/// Something new about a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobChange {
    /// It wrote something. Not more often than once a second for one job.
    Output(Job),
    /// It is over.
    Ended(Job),
}

/// Why a job cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    #[error("there is no job `{0}` in this session")]
    NoSuchJob(String),
    #[error(
        "{limit} jobs are there already, and that is the most; collect one that has ended or stop one with `job_stop`"
    )]
    Limit { limit: usize },
    #[error("the job's files cannot be kept in {place}: {source}")]
    Files {
        place: String,
        #[source]
        source: std::io::Error,
    },
    #[error("the job's keeper does not answer: {0}")]
    Keeper(String),
    #[error("jobs are not available here: {0}")]
    Unavailable(String),
    #[error(transparent)]
    Process(#[from] ProcessError),
}

impl JobId {
    /// From 8 bytes that nobody can guess.
    pub fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(format!("job-{:016x}", u64::from_be_bytes(bytes)))
    }

    /// A name as a model or a person wrote it; none when it is none of ours.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("job-")?;
        (digits.len() == 16
            && digits
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')))
        .then(|| Self(text.to_owned()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl TryFrom<String> for JobId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).ok_or_else(|| format!("`{text}` is no job's name"))
    }
}

impl From<JobId> for String {
    fn from(id: JobId) -> Self {
        id.0
    }
}

impl fmt::Display for JobNote {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Filling { held, room } => write!(
                formatter,
                "its output fills {held} of the {room} bytes that are kept; after that the beginning and the end stay"
            ),
            Self::Full { room } => write!(
                formatter,
                "its output is longer than the {room} bytes that are kept; the beginning and the end stay"
            ),
            Self::Unkept { why } => {
                write!(formatter, "some of its output could not be kept: {why}")
            }
            Self::Orphaned { after_ms } => write!(
                formatter,
                "it was ended because no Terret had been there for it for {} s",
                after_ms.div_ceil(1000)
            ),
        }
    }
}

impl JobState {
    /// Whether anything of it may still run.
    pub fn is_running(&self) -> bool {
        matches!(self, Self::Running { .. })
    }
}

fn files(place: &Path) -> impl FnOnce(std::io::Error) -> JobError + use<> {
    let place = place.display().to_string();
    move |source| JobError::Files { place, source }
}

#[cfg(test)]
mod tests;
