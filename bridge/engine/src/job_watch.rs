//! Follows a session's jobs into its log: what they say, ever more seldom, and their ends
//! at once, also between turns (R096). Owned by the session; nothing wakes it while jobs
//! are silent (R068).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use terret_tools::world::jobs::{Job, JobChange, JobId, Jobs};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use crate::core::Core;
use crate::jobs::{ended_event, lost_event, progress_event, started_event};

/// Between the first two times that a job's output is logged. It doubles each time, so
/// that a noisy job of many hours adds few events.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LAST_PAUSE: Duration = Duration::from_secs(60);

/// Ends of jobs that the log does not know yet; more than a session can have.
const EARLY: usize = 64;

/// Of a job whose folder is gone.
const NOTHING_LEFT: &str = "nothing of it was found when its session was opened again";

/// Follows one session's jobs.
pub(crate) struct JobWatch {
    core: Arc<Core>,
    jobs: Arc<dyn Jobs>,
    changes: broadcast::Receiver<JobChange>,
    paces: HashMap<JobId, Pace>,
    /// Jobs that ended before their start was logged: the call is about to do that.
    early: Vec<Job>,
}

/// How often a job's output is logged.
struct Pace {
    pause: Duration,
    /// Before that nothing is.
    next: Instant,
    /// What is to be logged then.
    waits: Option<Job>,
}

impl JobWatch {
    /// Listens from now on.
    pub(crate) fn new(core: Arc<Core>, jobs: Arc<dyn Jobs>) -> Self {
        let changes = jobs.changes();
        Self {
            core,
            jobs,
            changes,
            paces: HashMap::new(),
            early: Vec::new(),
        }
    }

    /// Takes over what earlier engines left, and logs what became of it meanwhile: jobs
    /// that ended, that were lost, and that a crash kept from being logged (R099).
    pub(crate) async fn adopt(&self) {
        let found = match self.jobs.adopt().await {
            Ok(found) => found,
            Err(error) => {
                // What runs is still there, and an end that was seen is told by the changes.
                tracing::warn!(session = %self.core.id(), %error, "jobs could not be taken over");
                return;
            }
        };
        for job in &found {
            let id = job.id.as_str();
            let (known, collected_out) = self
                .core
                .state(|state| (state.jobs.get(id).is_some(), state.jobs.collected_out(id)));
            let unwanted = !known && outcome_is_ours(job);
            if collected_out || unwanted {
                self.ended(job);
                self.jobs.forget(&job.id).await;
                continue;
            }
            if !known {
                let start = started_event(&job.call_id, job);
                self.append(|state| state.jobs.get(id).is_none().then_some(start));
            }
            self.ended(job);
        }
        let missing: Vec<String> = self.core.state(|state| {
            state
                .jobs
                .running()
                .filter(|record| !found.iter().any(|job| job.id.as_str() == record.id))
                .map(|record| record.id.clone())
                .collect()
        });
        for id in missing {
            self.append(|state| lost_event(state, &id, NOTHING_LEFT));
        }
    }

    /// Follows until it is dropped.
    pub(crate) async fn run(mut self) {
        let mut seq = self.core.watch_seq();
        loop {
            let due = self.due();
            let early = !self.early.is_empty();
            tokio::select! {
                biased;
                change = self.changes.recv() => match change {
                    Ok(JobChange::Output(job)) => self.output(job, Instant::now()),
                    Ok(JobChange::Ended(job)) => self.over(job),
                    Err(RecvError::Lagged(_)) => self.catch_up().await,
                    Err(RecvError::Closed) => return,
                },
                () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    self.show_due(Instant::now());
                }
                changed = seq.changed(), if early => {
                    if changed.is_err() {
                        return;
                    }
                    self.retry_early();
                }
            }
        }
    }

    /// Logs the ends of all jobs that are over; for the end of a session, when nobody
    /// waits for changes any more.
    pub(crate) async fn settle(core: &Core, jobs: &dyn Jobs) {
        match jobs.list().await {
            Ok(all) => {
                for job in &all {
                    append(core, |state| ended_event(state, job));
                }
            }
            Err(error) => tracing::warn!(session = %core.id(), %error, "jobs cannot be listed"),
        }
    }

    fn output(&mut self, job: Job, now: Instant) {
        let pace = self.paces.entry(job.id.clone()).or_insert(Pace {
            pause: FIRST_PAUSE,
            next: now,
            waits: None,
        });
        pace.waits = Some(job);
        if pace.next <= now {
            self.show_due(now);
        }
    }

    fn due(&self) -> Option<Instant> {
        self.paces
            .values()
            .filter(|pace| pace.waits.is_some())
            .map(|pace| pace.next)
            .min()
    }

    fn show_due(&mut self, now: Instant) {
        for pace in self.paces.values_mut().filter(|pace| pace.next <= now) {
            if let Some(job) = pace.waits.take() {
                append(&self.core, |state| progress_event(state, &job));
                pace.next = now + pace.pause;
                pace.pause = (pace.pause * 2).min(LAST_PAUSE);
            }
        }
    }

    fn over(&mut self, job: Job) {
        self.paces.remove(&job.id);
        let known = self
            .core
            .state(|state| state.jobs.get(job.id.as_str()).is_some());
        if known {
            self.ended(&job);
        } else if self.early.len() < EARLY {
            self.early.push(job);
        }
    }

    fn retry_early(&mut self) {
        let (known, open) = self.core.state(|state| {
            let known: Vec<bool> = self
                .early
                .iter()
                .map(|job| state.jobs.get(job.id.as_str()).is_some())
                .collect();
            (known, state.turn.is_open())
        });
        let early = std::mem::take(&mut self.early);
        for (job, known) in early.into_iter().zip(known) {
            if known {
                self.ended(&job);
            } else if open {
                // Its call has not come that far. Without a turn no call is under way.
                self.early.push(job);
            }
        }
    }

    /// Some changes went by unheard.
    async fn catch_up(&mut self) {
        let all = match self.jobs.list().await {
            Ok(all) => all,
            Err(error) => {
                tracing::warn!(session = %self.core.id(), %error, "jobs cannot be listed");
                return;
            }
        };
        for job in all {
            if job.state.is_running() {
                self.output(job, Instant::now());
            } else {
                self.over(job);
            }
        }
    }

    fn ended(&self, job: &Job) {
        self.append(|state| ended_event(state, job));
    }

    fn append(&self, make: impl FnOnce(&terret_log::SessionState) -> Option<terret_log::Payload>) {
        append(&self.core, make);
    }
}

/// A job that nobody knows and that was ended by us: its call was given up.
fn outcome_is_ours(job: &Job) -> bool {
    job.state == terret_tools::world::jobs::JobState::Stopped
}

fn append(
    core: &Core,
    make: impl FnOnce(&terret_log::SessionState) -> Option<terret_log::Payload>,
) {
    if let Err(fault) = core.append_if(make) {
        // The next opening finds what became of the job.
        tracing::warn!(session = %core.id(), %fault, "a job's state was not logged");
    }
}

#[cfg(test)]
mod tests;
