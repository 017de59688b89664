//! Words and lines about jobs, and the jobs that the engine's unit tests play with.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on should stop at the place"
)]

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use terret_log::Event;
use terret_tools::world::jobs::{JobChange, JobError, JobId, JobOutput, JobRequest, Jobs};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use super::*;

/// Jobs without processes: they are in the state that a test gives them.
pub(crate) struct FakeJobs {
    there: Mutex<Vec<Job>>,
    changes: broadcast::Sender<JobChange>,
}

impl FakeJobs {
    pub(crate) fn new() -> Self {
        Self::with_room(64)
    }

    /// With room for so many changes that a slow listener is behind.
    pub(crate) fn with_room(changes: usize) -> Self {
        Self {
            there: Mutex::default(),
            changes: broadcast::Sender::new(changes),
        }
    }

    /// Puts a job there, or in the place of the one with its id, and tells nobody.
    pub(crate) fn put(&self, job: Job) {
        let mut there = self.there.lock().unwrap_or_else(PoisonError::into_inner);
        there.retain(|known| known.id != job.id);
        there.push(job);
    }

    /// As [`Self::put`], and tells of it.
    pub(crate) fn change(&self, job: Job) {
        self.put(job.clone());
        let change = if job.state.is_running() {
            JobChange::Output(job)
        } else {
            JobChange::Ended(job)
        };
        let _nobody = self.changes.send(change);
    }

    pub(crate) fn ids(&self) -> Vec<JobId> {
        self.there
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .map(|job| job.id.clone())
            .collect()
    }
}

#[async_trait]
impl Jobs for FakeJobs {
    async fn start(&self, _request: JobRequest) -> Result<Job, JobError> {
        Err(JobError::Unavailable("these are put".to_owned()))
    }

    async fn started_by(&self, call_id: &str) -> Result<Option<Job>, JobError> {
        let all = self.list().await?;
        Ok(all.into_iter().find(|job| job.call_id == call_id))
    }

    async fn list(&self) -> Result<Vec<Job>, JobError> {
        Ok(self
            .there
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone())
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
        let all = self.list().await?;
        let mut job = all
            .into_iter()
            .find(|job| job.id == *id)
            .ok_or_else(|| JobError::NoSuchJob(id.to_string()))?;
        job.state = JobState::Stopped;
        self.change(job.clone());
        Ok(job)
    }

    async fn forget(&self, id: &JobId) {
        self.there
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|job| job.id != *id || job.state.is_running());
    }

    async fn adopt(&self) -> Result<Vec<Job>, JobError> {
        self.list().await
    }

    fn changes(&self) -> broadcast::Receiver<JobChange> {
        self.changes.subscribe()
    }

    async fn close(&self) {}
}

/// The n-th job, started by the call `c<n>`.
pub(crate) fn job(n: u8, state: JobState) -> Job {
    Job {
        id: JobId::from_bytes([0, 0, 0, 0, 0, 0, 0, n]),
        call_id: format!("c{n}"),
        command: format!("make part{n}"),
        description: None,
        keep: false,
        state,
        started_at: 1,
        ended_at: None,
        ran_for: 3_200,
        written: 10,
        dropped: 0,
        notes: Vec::new(),
        tail: format!("line of {n}"),
    }
}

pub(crate) const RUNNING: JobState = JobState::Running { leader: None };

fn state(payloads: Vec<Payload>) -> SessionState {
    let mut state = SessionState::default();
    for (seq, payload) in (0..).zip(payloads) {
        state.apply(&Event {
            seq,
            at: 1,
            payload,
        });
    }
    state
}

#[test]
fn r023_one_line_names_all_that_ended() {
    let ends = [
        (1, JobState::Exited(0)),
        (2, JobState::Signalled(9)),
        (3, JobState::Lost("the machine\nwas restarted".to_owned())),
    ];
    let mut known = state(
        (1..=4)
            .map(|n| started_event(&format!("c{n}"), &job(n, RUNNING)))
            .collect(),
    );
    assert_eq!(told_event(&known), None);
    for (n, end) in ends {
        let payload = ended_event(&known, &job(n, end)).unwrap();
        known.apply(&Event {
            seq: 9,
            at: 1,
            payload,
        });
    }
    let Some(Payload::ContextInjected { text, source, .. }) = told_event(&known) else {
        panic!("there is a line");
    };
    assert_eq!(source, InjectedBy::Jobs);
    assert_eq!(text.lines().count(), 1, "{text}");
    for part in [
        "job-0000000000000001 (`make part1`) exited with status 0 after 3.2 s",
        "job-0000000000000002 (`make part2`) was ended by SIGKILL",
        "job-0000000000000003 (`make part3`) was lost: the machine was restarted",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!text.contains("part4"));
}

#[test]
fn a_command_is_named_on_one_line_and_within_a_bound() {
    assert_eq!(command_words("make  all\n  && `id`"), "make all && 'id'");
    assert_eq!(command_words("a\u{1b}[31mb"), "a?[31mb");
    let long = command_words(&"x".repeat(5_000));
    assert!(long.chars().count() <= COMMAND + 2 && long.ends_with('…'));
    let many = command_words(&"word ".repeat(5_000));
    assert!(many.chars().count() <= COMMAND + 2);
}

#[test]
fn a_running_time_is_said_as_people_say_it() {
    assert_eq!(duration_words(420), "0.4 s");
    assert_eq!(duration_words(200_000), "3 min 20 s");
    assert_eq!(duration_words(18_120_000), "5 h 2 min");
}
