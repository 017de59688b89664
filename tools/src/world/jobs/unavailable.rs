//! A session without jobs: everything is answered, and nothing starts.

use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use crate::world::jobs::{Job, JobChange, JobError, JobId, JobOutput, JobRequest, Jobs};

/// Starts nothing and says why.
pub struct NoJobs {
    reason: String,
    changes: broadcast::Sender<JobChange>,
}

impl NoJobs {
    /// `reason` is for whoever asks for a job.
    pub fn new(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            changes: broadcast::channel(1).0,
        }
    }
}

#[async_trait]
impl Jobs for NoJobs {
    async fn start(&self, _request: JobRequest) -> Result<Job, JobError> {
        Err(JobError::Unavailable(self.reason.clone()))
    }

    async fn started_by(&self, _call_id: &str) -> Result<Option<Job>, JobError> {
        Ok(None)
    }

    async fn list(&self) -> Result<Vec<Job>, JobError> {
        Ok(Vec::new())
    }

    async fn read(
        &self,
        id: &JobId,
        _from: u64,
        _most: usize,
        _wait: Duration,
        _cancel: &CancellationToken,
    ) -> Result<JobOutput, JobError> {
        Err(JobError::NoSuchJob(id.to_string()))
    }

    async fn stop(&self, id: &JobId) -> Result<Job, JobError> {
        Err(JobError::NoSuchJob(id.to_string()))
    }

    async fn forget(&self, _id: &JobId) {}

    async fn adopt(&self) -> Result<Vec<Job>, JobError> {
        Ok(Vec::new())
    }

    fn changes(&self) -> broadcast::Receiver<JobChange> {
        self.changes.subscribe()
    }

    async fn close(&self) {}
}
