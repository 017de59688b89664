//! The task that owns one program from the order to the last report: it asks for the end
//! on a stop, a timeout and the engine's end, and knows what to do without a supervisor.

use std::time::Duration;

use rustix::fd::OwnedFd;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::helper::charge::KILL_WAIT;
use crate::helper::link::{Order, Report, Status};
use crate::helper::{HelperProgram, Role};
use crate::world::process::failure::spawn_failure;
use crate::world::process::supervised::Supervised;
use crate::world::process::tree::{Leftover, Strays};
use crate::world::process::{CLOSE_GRACE, End, ProcessError};

/// How long a program may take to be executed: a file on a share that hangs.
const START_WAIT: Duration = Duration::from_secs(30);
/// How much longer than it should a supervisor may take for an end, before it is lost.
const PATIENCE: Duration = Duration::from_secs(1);

/// All that a start needs.
pub(super) struct Launch {
    pub(super) helper: HelperProgram,
    pub(super) order: Order,
    pub(super) descriptors: Vec<OwnedFd>,
    pub(super) strays: Strays,
    pub(super) stop: CancellationToken,
    pub(super) closing: CancellationToken,
    pub(super) grace: Duration,
}

/// A program that runs.
pub(super) struct Owner {
    supervised: Supervised,
    pid: i32,
    strays: Strays,
    stop: CancellationToken,
    closing: CancellationToken,
    grace: Duration,
}

/// How it went.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) end: End,
    pub(super) leftovers: Vec<Leftover>,
    /// False when something does not end although it was killed.
    pub(super) gone: bool,
}

impl Launch {
    /// Starts the program and waits until it runs.
    ///
    /// # Errors
    /// [`ProcessError`]; then nothing runs.
    pub(super) async fn start(self) -> Result<Owner, ProcessError> {
        let Self {
            helper,
            order,
            descriptors,
            strays,
            stop,
            closing,
            grace,
        } = self;
        if stop.is_cancelled() {
            return Err(ProcessError::Closed);
        }
        // Taken in there, so that nothing is left when nobody waits for this any more.
        let started = tokio::task::spawn_blocking(move || {
            let borrowed: Vec<_> = descriptors.iter().map(std::os::fd::AsFd::as_fd).collect();
            let supervised = helper
                .start(Role::Supervisor, &order, &borrowed)
                .and_then(Supervised::new);
            (supervised, order)
        })
        .await;
        let (supervised, order) = started.map_err(|_| ProcessError::Lost)?;
        let mut supervised = supervised.map_err(|source| ProcessError::Supervisor { source })?;
        let report = tokio::select! {
            biased;
            report = supervised.report() => report,
            () = stop.cancelled() => {
                supervised.end(Duration::ZERO);
                abandon(supervised, &strays).await;
                return Err(ProcessError::Closed);
            }
            () = tokio::time::sleep(START_WAIT) => None,
        };
        match report {
            Some(Report::Started { pid }) => Ok(Owner {
                supervised,
                pid,
                strays,
                stop,
                closing,
                grace,
            }),
            Some(Report::Failed { step, errno }) => {
                supervised.reap().await;
                Err(
                    tokio::task::spawn_blocking(move || spawn_failure(&order, step, errno))
                        .await
                        .unwrap_or(ProcessError::Lost),
                )
            }
            _ => {
                supervised.kill();
                abandon(supervised, &strays).await;
                Err(ProcessError::Lost)
            }
        }
    }
}

impl Owner {
    /// The leader's process id.
    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    /// Waits for the end of all of it, and sees to that end. Then [`Self::rest`] is due.
    ///
    /// # Errors
    /// [`ProcessError::Lost`] when the supervisor was killed; what it had is gone then.
    /// [`ProcessError::Loose`] when it is not.
    pub(super) async fn watch(
        &mut self,
        timeout: Option<Duration>,
        mut leader_ended: impl FnMut(End),
    ) -> Result<Outcome, ProcessError> {
        let due = timeout.map(|timeout| Instant::now() + timeout);
        let mut status: Option<Status> = None;
        let mut stopped: Option<End> = None;
        let mut leftovers = Vec::new();
        let mut lost_at: Option<Instant> = None;
        let mut is_closing = false;
        let gone = loop {
            tokio::select! {
                biased;
                report = self.supervised.report() => match report {
                    Some(Report::Ended { status: ended }) => {
                        status = Some(ended);
                        leader_ended(stopped.unwrap_or_else(|| end_of(ended)));
                    }
                    Some(Report::Left { members }) => {
                        leftovers = members;
                        self.end(self.grace, &mut lost_at);
                    }
                    Some(Report::Gone) => break true,
                    Some(Report::Stuck) => break false,
                    Some(Report::Started { .. } | Report::Failed { .. }) => {}
                    None => return Err(self.lost().await),
                },
                () = self.closing.cancelled(), if !is_closing => {
                    is_closing = true;
                    stopped = stopped.or(status.is_none().then_some(End::Cancelled));
                    self.end(self.grace.min(CLOSE_GRACE), &mut lost_at);
                }
                () = self.stop.cancelled(), if stopped.is_none() && status.is_none() => {
                    stopped = Some(End::Cancelled);
                    self.end(self.grace, &mut lost_at);
                }
                () = until(due), if stopped.is_none() && status.is_none() => {
                    stopped = Some(End::TimedOut);
                    self.end(self.grace, &mut lost_at);
                }
                () = until(lost_at) => {
                    if self.press().await {
                        break true;
                    }
                    return Err(self.lost().await);
                }
            }
        };
        let end = stopped.or(status.map(end_of)).unwrap_or(End::Signalled(9));
        Ok(Outcome {
            end,
            leftovers,
            gone,
        })
    }

    /// Waits for the supervisor itself, which has nothing to do any more, or does not get
    /// rid of something that waits for a device.
    pub(super) async fn rest(mut self) {
        tokio::select! {
            () = self.supervised.reap() => {}
            () = self.closing.cancelled() => abandon(self.supervised, &self.strays).await,
        }
    }

    fn end(&self, grace: Duration, lost_at: &mut Option<Instant>) {
        self.supervised.end(grace);
        let late = Instant::now() + grace + KILL_WAIT + PATIENCE;
        *lost_at = Some(lost_at.map_or(late, |at| at.min(late)));
    }

    /// A supervisor that is late was stopped, or has more in its charge than it can follow
    /// on a machine that hardly gets to it. Nobody else has all of the tree, so it is not
    /// given up before what holds it up is killed. True when all is gone.
    async fn press(&mut self) -> bool {
        tracing::warn!("the supervisor of a program is late; what it started is killed");
        self.supervised.resume();
        end_strays(&self.strays).await;
        let gone = async {
            while let Some(report) = self.supervised.report().await {
                if matches!(report, Report::Gone) {
                    return true;
                }
            }
            false
        };
        tokio::time::timeout(PATIENCE, gone).await.unwrap_or(false)
    }

    async fn lost(&mut self) -> ProcessError {
        tracing::warn!("the supervisor of a program was lost; what it started is killed");
        self.supervised.kill();
        self.supervised.reap().await;
        if end_strays(&self.strays).await {
            ProcessError::Lost
        } else {
            ProcessError::Loose {
                mark: self.strays.mark.clone(),
            }
        }
    }
}

/// Ends a supervisor that nobody listens to, off the runtime.
async fn abandon(supervised: Supervised, strays: &Strays) {
    let _ = tokio::task::spawn_blocking(move || drop(supervised)).await;
    end_strays(strays).await;
}

/// True when nothing is left.
async fn end_strays(strays: &Strays) -> bool {
    let strays = strays.clone();
    tokio::task::spawn_blocking(move || strays.kill())
        .await
        .unwrap_or(false)
}

fn end_of(status: Status) -> End {
    match status {
        Status::Exited(code) => End::Exited(code),
        Status::Signalled(signal) => End::Signalled(signal),
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
