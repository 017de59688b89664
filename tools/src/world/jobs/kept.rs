//! The provider of [`Jobs`]: each job has a keeper, a folder with its output and its
//! state, and here a task that follows it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Child;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::unix::AsyncFd;
use tokio::sync::{OnceCell, broadcast, mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::world::jobs::disk::{piece, remove, scan};
use crate::world::jobs::listing;
use crate::world::jobs::record::{FORMAT, Phase, Record, boot_id, millis, unix_millis};
use crate::world::jobs::row::Row;
use crate::world::jobs::start::{Begun, Start};
use crate::world::jobs::sweep::sweep;
use crate::world::jobs::watch::Watcher;
use crate::world::jobs::wire::Request;
use crate::world::jobs::{Job, JobChange, JobError, JobId, JobOutput, JobRequest, Jobs, files};
use crate::world::process::{CLOSE_GRACE, GRACE, Processes};

/// Jobs of a session, those that ended and were not forgotten included (check 150).
pub const LIMIT: usize = 8;
/// Bytes of one job's output on the disk.
pub const SPOOL: u64 = 64 * 1024 * 1024;
/// Bytes of all jobs' output of a session on the disk (R022).
pub const TOTAL: u64 = LIMIT as u64 * SPOOL;
/// Running time that a job goes on without an owner.
pub const ORPHAN_GRACE: Duration = Duration::from_secs(600);
/// How long a job may take beyond its grace until its keeper is given up.
const BEYOND: Duration = Duration::from_secs(5);
/// The same when the session closes: all is over within 5 s (R018).
const BEYOND_CLOSE: Duration = Duration::from_secs(2);
/// How long jobs of an earlier engine may take to tell how they stand.
const SETTLING: Duration = Duration::from_secs(10);
/// Changes that a slow listener may be behind.
const CHANGES: usize = 256;

/// What [`KeptJobs`] start with.
#[derive(Debug, Clone)]
pub struct JobsSettings {
    /// The session's own folder of jobs; its parent holds those of all sessions, in
    /// folders named as the sessions. Made when it is needed. Must be out of reach of
    /// what runs.
    pub folder: PathBuf,
    /// [`LIMIT`].
    pub limit: usize,
    /// [`SPOOL`].
    pub spool: u64,
    /// [`TOTAL`]; shared among as many jobs as there may be.
    pub total: u64,
    /// [`ORPHAN_GRACE`].
    pub orphan_grace: Duration,
    /// Between the request to end and the kill.
    pub grace: Duration,
}

/// The jobs of one session. Dropping it lets go of them, and each has its orphan grace.
pub struct KeptJobs {
    inner: Arc<Inner>,
    _leave: DropGuard,
}

struct Inner {
    settings: Arc<JobsSettings>,
    session: String,
    processes: Arc<Processes>,
    rows: Mutex<Rows>,
    changes: broadcast::Sender<JobChange>,
    tasks: TaskTracker,
    /// Lets go of all jobs.
    leave: CancellationToken,
    scanned: OnceCell<()>,
}

#[derive(Default)]
struct Rows {
    by_id: BTreeMap<JobId, Arc<Row>>,
    /// Starts that are under way, with the bytes that are promised to them.
    starting: BTreeMap<JobId, u64>,
    is_closed: bool,
}

impl JobsSettings {
    /// The usual ones.
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            limit: LIMIT,
            spool: SPOOL,
            total: TOTAL,
            orphan_grace: ORPHAN_GRACE,
            grace: GRACE,
        }
    }
}

impl KeptJobs {
    /// Touches nothing before its first use.
    pub fn new(settings: JobsSettings, processes: Arc<Processes>) -> Self {
        let leave = CancellationToken::new();
        let session = settings
            .folder
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        Self {
            inner: Arc::new(Inner {
                settings: Arc::new(settings),
                session,
                processes,
                rows: Mutex::default(),
                changes: broadcast::Sender::new(CHANGES),
                tasks: TaskTracker::new(),
                leave: leave.clone(),
                scanned: OnceCell::new(),
            }),
            _leave: leave.drop_guard(),
        }
    }
}

#[cfg(test)]
impl KeptJobs {
    /// Whether no start is under way and no job is known.
    pub(crate) fn is_idle(&self) -> bool {
        let rows = self.inner.rows();
        rows.starting.is_empty() && rows.by_id.is_empty()
    }
}

#[async_trait]
impl Jobs for KeptJobs {
    async fn start(&self, request: JobRequest) -> Result<Job, JobError> {
        self.inner.scan_once().await?;
        let promise = Promise::new(&self.inner)?;
        let (tell, told) = oneshot::channel();
        let inner = Arc::clone(&self.inner);
        // A task of its own, so that a start whose call is cancelled is still brought to an
        // end, and what it started is ended.
        self.inner.tasks.spawn(async move {
            let begun = inner.begin(request, promise).await;
            if let Err(Ok(job)) = tell.send(begun) {
                inner.end_unwanted(&job.id).await;
            }
        });
        told.await
            .map_err(|_| JobError::Keeper("its start was lost".to_owned()))?
    }

    async fn started_by(&self, call_id: &str) -> Result<Option<Job>, JobError> {
        self.inner.scan_once().await?;
        let found = self
            .inner
            .rows()
            .by_id
            .values()
            .find(|row| !call_id.is_empty() && row.record.call_id == call_id)
            .map(Arc::clone);
        let Some(row) = found else {
            return Ok(None);
        };
        self.inner.settle(std::slice::from_ref(&row)).await;
        Ok(self.inner.rows().by_id.get(row.id()).map(|row| row.job()))
    }

    async fn list(&self) -> Result<Vec<Job>, JobError> {
        self.inner.scan_once().await?;
        Ok(self.inner.list())
    }

    async fn read(
        &self,
        id: &JobId,
        from: u64,
        most: usize,
        wait: Duration,
        cancel: &CancellationToken,
    ) -> Result<JobOutput, JobError> {
        self.inner.scan_once().await?;
        let row = self.inner.row(id)?;
        let deadline = Instant::now().checked_add(wait);
        let mut watch = row.watch();
        loop {
            // The state is older than what is read: when it says that the job is over,
            // nothing can have come after that.
            let snapshot = watch.borrow_and_update().clone();
            let is_over = snapshot.report.phase.is_final();
            let known = snapshot.report.written;
            let reader = Arc::clone(&row);
            let piece = tokio::task::spawn_blocking(move || {
                piece(&reader.folder, from, most, is_over, known)
            })
            .await
            .map_err(|error| files(&self.inner.settings.folder)(std::io::Error::other(error)))?
            .map_err(files(&self.inner.settings.folder))?;
            let is_late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if piece.upto > from || is_over || is_late || cancel.is_cancelled() {
                let mut job = row.job_of(&snapshot);
                job.written = job.written.max(piece.upto);
                return Ok(JobOutput {
                    job,
                    bytes: piece.bytes,
                    missing: piece.missing,
                    upto: piece.upto,
                });
            }
            row.ask(Request::Await { beyond: piece.seen });
            let timeout = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = watch.changed() => {}
                () = cancel.cancelled() => {}
                () = timeout => {}
            }
        }
    }

    async fn stop(&self, id: &JobId) -> Result<Job, JobError> {
        self.inner.scan_once().await?;
        let row = self.inner.row(id)?;
        let grace = self.inner.settings.grace;
        if self.inner.end(&row, grace, BEYOND).await {
            Ok(row.job())
        } else {
            Err(JobError::Keeper(
                "it was asked to end the job and did not; what is left of the job was killed"
                    .to_owned(),
            ))
        }
    }

    async fn forget(&self, id: &JobId) {
        self.inner.forget(id).await;
    }

    async fn adopt(&self) -> Result<Vec<Job>, JobError> {
        // The first time this is the scan itself.
        if self.inner.scanned.initialized() {
            self.inner.scan(false).await?;
        } else {
            self.inner.scan_once().await?;
        }
        let rows: Vec<_> = self.inner.rows().by_id.values().cloned().collect();
        self.inner.settle(&rows).await;
        Ok(self.inner.list())
    }

    fn changes(&self) -> broadcast::Receiver<JobChange> {
        self.inner.changes.subscribe()
    }

    async fn close(&self) {
        let rows: Vec<_> = {
            let mut rows = self.inner.rows();
            rows.is_closed = true;
            rows.by_id.values().cloned().collect()
        };
        let ends = rows
            .iter()
            .filter(|row| !row.watch().borrow().report.keep)
            .map(|row| self.inner.end(row, CLOSE_GRACE, BEYOND_CLOSE));
        futures::future::join_all(ends).await;
        self.inner.leave.cancel();
    }
}

impl Inner {
    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn row(&self, id: &JobId) -> Result<Arc<Row>, JobError> {
        self.rows()
            .by_id
            .get(id)
            .cloned()
            .ok_or_else(|| JobError::NoSuchJob(id.to_string()))
    }

    fn list(&self) -> Vec<Job> {
        let mut jobs: Vec<_> = self.rows().by_id.values().map(|row| row.job()).collect();
        jobs.sort_by(|one, other| (one.started_at, &one.id).cmp(&(other.started_at, &other.id)));
        jobs
    }

    async fn scan_once(self: &Arc<Self>) -> Result<(), JobError> {
        self.scanned
            .get_or_try_init(|| async {
                self.scan(true).await?;
                let folder = self.settings.folder.clone();
                // Nobody waits for it, and a failure costs nothing but disk.
                self.tasks
                    .spawn_blocking(move || listing::collect_garbage(&folder));
                Ok(())
            })
            .await
            .map(|_| ())
    }

    /// Takes in the folders that are not known yet.
    async fn scan(self: &Arc<Self>, is_first: bool) -> Result<(), JobError> {
        let place = self.settings.folder.clone();
        let session = self.session.clone();
        let known: Vec<JobId> = self.rows().by_id.keys().cloned().collect();
        let found = tokio::task::spawn_blocking(move || scan(&place, &session, &known, is_first))
            .await
            .map_err(|error| files(&self.settings.folder)(std::io::Error::other(error)))?
            .map_err(files(&self.settings.folder))?;
        for (row, requests) in found {
            self.take_in(row, requests, None);
        }
        Ok(())
    }

    /// `promise` is that of a start of ours; others find the folder of one, too.
    fn take_in(
        self: &Arc<Self>,
        row: Arc<Row>,
        requests: mpsc::Receiver<Request>,
        promise: Option<Promise>,
    ) {
        let mut rows = self.rows();
        if rows.by_id.contains_key(row.id())
            || (promise.is_none() && rows.starting.contains_key(row.id()))
        {
            return;
        }
        rows.by_id.insert(row.id().clone(), Arc::clone(&row));
        drop(rows);
        drop(promise);
        if row.is_over() {
            return;
        }
        let watcher = Watcher {
            row: Arc::clone(&row),
            requests,
            changes: self.changes.clone(),
            leave: self.leave.clone(),
            told: None,
        };
        let inner = Arc::downgrade(self);
        self.tasks.spawn(async move {
            watcher.follow().await;
            if row.watch().borrow().is_void
                && let Some(inner) = inner.upgrade()
            {
                inner.remove(row.id()).await;
            }
        });
    }

    /// Waits until keepers answered or are known to be gone.
    async fn settle(&self, rows: &[Arc<Row>]) {
        let settled = rows.iter().map(|row| async {
            let mut watch = row.watch();
            let _ = watch.wait_for(|snapshot| snapshot.is_settled).await;
            if watch.borrow().is_void {
                self.remove(row.id()).await;
            }
        });
        // Whoever does not answer until then counts as running.
        let _ = tokio::time::timeout(SETTLING, futures::future::join_all(settled)).await;
    }

    async fn begin(
        self: &Arc<Self>,
        request: JobRequest,
        promise: Promise,
    ) -> Result<Job, JobError> {
        let prepared = self.processes.prepare(request.program, false).await?;
        let start = Start {
            settings: Arc::clone(&self.settings),
            record: Record {
                format: FORMAT,
                id: promise.id.clone(),
                session: self.session.clone(),
                call_id: request.call_id,
                command: request.command,
                description: request.description,
                keep: request.keep,
                mark: prepared.mark,
                boot: boot_id(),
                started_at: unix_millis(),
                room: promise.room,
                phase: Phase::Starting,
                ended_at: None,
                ran_for: 0,
                written: 0,
                dropped: 0,
                notes: Vec::new(),
            },
            helper: self.processes.helper().clone(),
            order: prepared.order,
            input: prepared.input,
        };
        let Begun {
            row,
            requests,
            keeper,
        } = tokio::task::spawn_blocking(move || start.run())
            .await
            .map_err(|error| JobError::Keeper(error.to_string()))??;
        self.tasks.spawn(reap(keeper));
        let job = row.job();
        self.take_in(Arc::clone(&row), requests, Some(promise));
        if self.rows().is_closed {
            // The session ended meanwhile, and its end did not see this one.
            self.end(&row, CLOSE_GRACE, BEYOND_CLOSE).await;
            return Err(closed());
        }
        Ok(job)
    }

    async fn end_unwanted(&self, id: &JobId) {
        if let Ok(row) = self.row(id) {
            self.end(&row, self.settings.grace, BEYOND).await;
            self.forget(id).await;
        }
    }

    /// Ends a job and waits for that. False when its keeper did not do it; then what
    /// carries the job's mark was killed.
    async fn end(&self, row: &Arc<Row>, grace: Duration, beyond: Duration) -> bool {
        let mut watch = row.watch();
        if watch.borrow().report.phase.is_final() {
            return true;
        }
        row.ask(Request::Stop {
            grace_ms: millis(grace),
        });
        let over = |watch: &mut tokio::sync::watch::Receiver<_>| {
            let mut watch = watch.clone();
            async move {
                watch
                    .wait_for(|snapshot: &crate::world::jobs::row::Snapshot| {
                        snapshot.report.phase.is_final() || snapshot.is_void
                    })
                    .await
                    .is_ok()
            }
        };
        if tokio::time::timeout(grace + beyond, over(&mut watch))
            .await
            .unwrap_or(false)
        {
            return true;
        }
        let mark = row.record.mark.clone();
        let _ = tokio::task::spawn_blocking(move || sweep(&mark)).await;
        // A keeper that lives, and only could not be reached, sees that.
        tokio::time::timeout(BEYOND_CLOSE, over(&mut watch))
            .await
            .unwrap_or(false)
    }

    async fn forget(&self, id: &JobId) {
        let is_over = self.row(id).is_ok_and(|row| row.is_over());
        if is_over {
            self.remove(id).await;
        }
    }

    async fn remove(&self, id: &JobId) {
        if self.rows().by_id.remove(id).is_none() {
            return;
        }
        let place = self.settings.folder.clone();
        let id = id.clone();
        let removed = tokio::task::spawn_blocking(move || remove(&place, &id)).await;
        if let Ok(Err(error)) = removed {
            tracing::warn!(%error, "the files of a job cannot be removed");
        }
    }
}

/// A place among the jobs and on the disk, from before a start to its end.
struct Promise {
    inner: Arc<Inner>,
    id: JobId,
    room: u64,
}

impl Promise {
    #[expect(
        clippy::disallowed_methods,
        reason = "an id that nobody can guess; no replay starts a job"
    )]
    fn new(inner: &Arc<Inner>) -> Result<Self, JobError> {
        let settings = &inner.settings;
        let mut rows = inner.rows();
        if rows.is_closed {
            return Err(closed());
        }
        let taken = rows.by_id.len() + rows.starting.len();
        let Some(left) = settings.limit.checked_sub(taken).filter(|left| *left > 0) else {
            return Err(JobError::Limit {
                limit: settings.limit,
            });
        };
        // What ended holds what it wrote; what runs may yet write all that it may.
        let held: u64 = rows
            .by_id
            .values()
            .map(|row| {
                let snapshot = row.watch().borrow().clone();
                if snapshot.report.phase.is_final() {
                    snapshot
                        .report
                        .written
                        .saturating_sub(snapshot.report.dropped)
                } else {
                    row.record.room
                }
            })
            .chain(rows.starting.values().copied())
            .sum();
        let share = settings.total.saturating_sub(held) / left as u64;
        let room = settings.spool.min(share);
        let (id, _) = uuid::Uuid::new_v4().as_u64_pair();
        // Six bits of it are the same in all; the other half has enough.
        let id = JobId::from_bytes((id ^ uuid::Uuid::new_v4().as_u64_pair().1).to_be_bytes());
        rows.starting.insert(id.clone(), room);
        Ok(Self {
            inner: Arc::clone(inner),
            id,
            room,
        })
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.inner.rows().starting.remove(&self.id);
    }
}

/// Waits for a keeper that is a child of ours (R092), however long that takes, and also
/// after the session's end: a job that is kept has one, too.
async fn reap(mut keeper: Child) {
    let watched = i32::try_from(keeper.id())
        .ok()
        .and_then(Pid::from_raw)
        .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok())
        .and_then(|descriptor| {
            #[expect(
                deprecated,
                reason = "deprecated for descriptors that may be closed meanwhile, which an owned one cannot be"
            )]
            AsyncFd::new(descriptor).ok()
        });
    if let Some(watched) = watched {
        let _ = watched.readable().await;
    }
    let _ = tokio::task::spawn_blocking(move || keeper.wait()).await;
}

fn closed() -> JobError {
    JobError::Unavailable("the session has ended".to_owned())
}
