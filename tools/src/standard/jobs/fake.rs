//! Jobs in memory, which write and end as a test says.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{Notify, broadcast};
use tokio_util::sync::CancellationToken;

use crate::world::jobs::{
    Job, JobChange, JobError, JobId, JobNote, JobOutput, JobRequest, JobState, Jobs,
};
use crate::world::process::Program;

const LIMIT: usize = 8;

/// The jobs of one session.
pub(crate) struct FakeJobs {
    rows: Mutex<BTreeMap<JobId, Row>>,
    programs: Mutex<Vec<Program>>,
    count: AtomicU64,
    changed: Notify,
    changes: broadcast::Sender<JobChange>,
}

struct Row {
    job: Job,
    output: Vec<u8>,
    /// Bytes from the start that the spool has lost.
    lost: u64,
}

impl FakeJobs {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            rows: Mutex::default(),
            programs: Mutex::default(),
            count: AtomicU64::new(0),
            changed: Notify::new(),
            changes: broadcast::channel(16).0,
        })
    }

    fn rows(&self) -> MutexGuard<'_, BTreeMap<JobId, Row>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, id: &JobId, change: impl FnOnce(&mut Row)) {
        if let Some(row) = self.rows().get_mut(id) {
            change(row);
            row.job.written = row.output.len() as u64;
        }
        self.changed.notify_waiters();
    }

    pub(crate) fn write(&self, id: &JobId, bytes: &[u8]) {
        self.change(id, |row| row.output.extend_from_slice(bytes));
    }

    /// The spool lost its first bytes.
    pub(crate) fn lose(&self, id: &JobId, bytes: u64) {
        self.change(id, |row| {
            row.lost = bytes;
            row.job.dropped = bytes;
        });
    }

    pub(crate) fn note(&self, id: &JobId, note: JobNote) {
        self.change(id, |row| row.job.notes.push(note));
    }

    pub(crate) fn end(&self, id: &JobId, state: JobState) {
        self.change(id, |row| row.job.state = state);
    }

    /// What the last job would have run.
    pub(crate) fn program(&self) -> Option<Program> {
        self.programs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop()
    }

    pub(crate) fn all(&self) -> Vec<Job> {
        self.rows().values().map(|row| row.job.clone()).collect()
    }

    fn job(&self, id: &JobId) -> Result<Job, JobError> {
        self.rows()
            .get(id)
            .map(|row| row.job.clone())
            .ok_or_else(|| JobError::NoSuchJob(id.to_string()))
    }
}

#[async_trait]
impl Jobs for FakeJobs {
    async fn start(&self, request: JobRequest) -> Result<Job, JobError> {
        let mut rows = self.rows();
        if rows.len() >= LIMIT {
            return Err(JobError::Limit { limit: LIMIT });
        }
        let id = JobId::from_bytes(self.count.fetch_add(1, Ordering::SeqCst).to_be_bytes());
        let job = Job {
            id: id.clone(),
            call_id: request.call_id,
            command: request.command,
            description: request.description,
            keep: request.keep,
            state: JobState::Running { leader: None },
            started_at: 0,
            ended_at: None,
            ran_for: 1500,
            written: 0,
            dropped: 0,
            notes: Vec::new(),
            tail: String::new(),
        };
        let row = Row {
            job: job.clone(),
            output: Vec::new(),
            lost: 0,
        };
        rows.insert(id, row);
        self.programs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(request.program);
        Ok(job)
    }

    async fn started_by(&self, call_id: &str) -> Result<Option<Job>, JobError> {
        Ok(self.all().into_iter().find(|job| job.call_id == call_id))
    }

    async fn list(&self) -> Result<Vec<Job>, JobError> {
        Ok(self.all())
    }

    async fn read(
        &self,
        id: &JobId,
        from: u64,
        most: usize,
        wait: Duration,
        cancel: &CancellationToken,
    ) -> Result<JobOutput, JobError> {
        let news = async {
            loop {
                let mut changed = std::pin::pin!(self.changed.notified());
                changed.as_mut().enable();
                let job = self.job(id)?;
                if job.written > from || !job.state.is_running() {
                    return Ok::<(), JobError>(());
                }
                changed.await;
            }
        };
        if !wait.is_zero() {
            tokio::select! {
                waited = tokio::time::timeout(wait, news) => if let Ok(found) = waited { found? },
                () = cancel.cancelled() => {}
            }
        }
        let job = self.job(id)?;
        let rows = self.rows();
        let row = rows
            .get(id)
            .ok_or_else(|| JobError::NoSuchJob(id.to_string()))?;
        let missing = row.lost.saturating_sub(from);
        let begin = usize::try_from(from + missing).unwrap_or(usize::MAX);
        let bytes: Vec<u8> = row.output.iter().skip(begin).take(most).copied().collect();
        Ok(JobOutput {
            upto: begin as u64 + bytes.len() as u64,
            job,
            bytes,
            missing,
        })
    }

    async fn stop(&self, id: &JobId) -> Result<Job, JobError> {
        let job = self.job(id)?;
        if job.state.is_running() {
            self.end(id, JobState::Stopped);
        }
        self.job(id)
    }

    async fn forget(&self, id: &JobId) {
        self.rows()
            .retain(|known, row| known != id || row.job.state.is_running());
    }

    async fn adopt(&self) -> Result<Vec<Job>, JobError> {
        Ok(self.all())
    }

    fn changes(&self) -> broadcast::Receiver<JobChange> {
        self.changes.subscribe()
    }

    async fn close(&self) {}
}
