//! Follows one job: stays connected to its keeper as the job's owner, passes on what is
//! asked of it, and finds out what became of the job when the keeper is gone.

use std::os::unix::net::UnixStream as Blocking;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::sync::{broadcast, mpsc};
use tokio_util::sync::CancellationToken;

use crate::helper::link::{Lines, line_of};
use crate::world::jobs::folder::CONTROL;
use crate::world::jobs::row::{Fate, Row};
use crate::world::jobs::wire::{Report, Request};
use crate::world::jobs::{Job, JobChange};

/// The pauses between tries to reach a keeper that lives and does not answer.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LAST_PAUSE: Duration = Duration::from_secs(10);
/// Listeners hear of one job's output at most this often.
const NEWS: Duration = Duration::from_secs(1);

/// What following a job needs.
pub(crate) struct Watcher {
    pub(crate) row: Arc<Row>,
    pub(crate) requests: mpsc::Receiver<Request>,
    pub(crate) changes: broadcast::Sender<JobChange>,
    /// Lets go of the job.
    pub(crate) leave: CancellationToken,
    /// When output was last told, and how much.
    pub(crate) told: Option<(Instant, u64)>,
}

/// Why a connection is over.
enum Parting {
    Left,
    Ended,
    Broken,
}

impl Watcher {
    /// To the job's end, or until we let go of it.
    pub(crate) async fn follow(mut self) {
        let mut pause = FIRST_PAUSE;
        loop {
            let row = Arc::clone(&self.row);
            let connected = blocking(move || Blocking::connect(row.folder.socket(CONTROL))).await;
            if let Ok(stream) = connected {
                match self.speak(stream).await {
                    Ok(Parting::Left) => return,
                    Ok(Parting::Ended) => {
                        self.tell_end();
                        return;
                    }
                    Ok(Parting::Broken) => pause = FIRST_PAUSE,
                    Err(error) => {
                        tracing::debug!(job = %self.row.id(), %error, "a job's keeper cannot be talked to");
                    }
                }
            }
            let row = Arc::clone(&self.row);
            match blocking(move || row.fate()).await {
                Ok(Fate::Over(report)) => {
                    self.update(*report).await;
                    self.tell_end();
                    return;
                }
                Ok(Fate::Void) => {
                    self.row.make_void();
                    return;
                }
                Ok(Fate::Kept) => {}
                Err(error) => {
                    tracing::warn!(job = %self.row.id(), %error, "a job's lock cannot be asked");
                }
            }
            tokio::select! {
                () = self.leave.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }

    async fn speak(&mut self, stream: Blocking) -> std::io::Result<Parting> {
        stream.set_nonblocking(true)?;
        let mut stream = UnixStream::from_std(stream)?;
        stream.write_all(&line_of(&Request::Own)?).await?;
        let mut lines = Lines::default();
        let mut chunk = vec![0; 4096];
        loop {
            let leave = self.leave.clone();
            let news = self.news();
            tokio::select! {
                () = leave.cancelled() => return Ok(Parting::Left),
                () = news => self.tell_output(),
                Some(request) = self.requests.recv() => {
                    let line = line_of(&request)?;
                    tokio::select! {
                        () = leave.cancelled() => return Ok(Parting::Left),
                        sent = stream.write_all(&line) => sent?,
                    }
                }
                ready = stream.readable() => {
                    ready?;
                    match stream.try_read(&mut chunk) {
                        Ok(0) => return Ok(Parting::Broken),
                        Ok(count) => lines.push(chunk.get(..count).unwrap_or_default())?,
                        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
                        // Unread requests make the end of a keeper look like this.
                        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                            return Ok(Parting::Broken);
                        }
                        Err(error) => return Err(error),
                    }
                    let mut last = None;
                    while let Some(report) = lines.next::<Report>()? {
                        last = Some(report);
                    }
                    if let Some(report) = last {
                        let is_final = report.phase.is_final();
                        self.update(report).await;
                        if is_final {
                            return Ok(Parting::Ended);
                        }
                    }
                }
            }
        }
    }

    /// Waits until output is to be told; for ever when there is none.
    fn news(&self) -> impl Future<Output = ()> + use<> {
        let written = self.row.watch().borrow().report.written;
        let left = match self.told {
            None if written > 0 => Some(Duration::ZERO),
            Some((at, told)) if written != told => Some(NEWS.saturating_sub(at.elapsed())),
            _ => None,
        };
        async move {
            match left {
                Some(left) => tokio::time::sleep(left).await,
                None => std::future::pending().await,
            }
        }
    }

    async fn update(&self, report: Report) {
        let row = Arc::clone(&self.row);
        let _ = tokio::task::spawn_blocking(move || row.update(report)).await;
    }

    fn tell_output(&mut self) {
        let job = self.row.job();
        self.told = Some((Instant::now(), job.written));
        self.tell(JobChange::Output, job);
    }

    fn tell_end(&self) {
        self.tell(JobChange::Ended, self.row.job());
    }

    fn tell(&self, change: fn(Job) -> JobChange, job: Job) {
        // Nobody may be listening.
        let _ = self.changes.send(change(job));
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> std::io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(std::io::Error::other)?
}
