//! Waiting for the disk, many for the price of one.
//!
//! A sync covers everything that was appended when it began, so those who ask while
//! one runs share the next. It runs to its end on a blocking thread even when all who
//! wait for it give up, so a cancelled wait harms nobody else.

use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use crate::blob::Blobs;
use crate::error::AppendError;
use crate::layer::FileLayer;

/// Makes a session's events outlive a power loss. Cheap to clone, and usable while
/// the log is appended to.
#[derive(Clone)]
pub struct Syncer {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    path: PathBuf,
    file: Arc<File>,
    layer: Arc<dyn FileLayer>,
    blobs: Blobs,
    /// How many events were appended by this writer.
    appended: AtomicU64,
    running: Mutex<bool>,
    progress: watch::Sender<Progress>,
}

#[derive(Debug, Clone, Default)]
struct Progress {
    /// How many of the appended events the disk has confirmed.
    synced: u64,
    /// The folder that holds the file's name is confirmed too.
    named: bool,
    /// Why a sync failed. It stays: after a failed sync the system may have dropped
    /// the pages, and a later success would be a lie.
    failed: Option<Arc<str>>,
}

impl Shared {
    pub(crate) fn new(
        path: PathBuf,
        file: Arc<File>,
        layer: Arc<dyn FileLayer>,
        blobs: Blobs,
    ) -> Arc<Self> {
        Arc::new(Self {
            path,
            file,
            layer,
            blobs,
            appended: AtomicU64::new(0),
            running: Mutex::new(false),
            progress: watch::Sender::new(Progress::default()),
        })
    }

    pub(crate) fn count_appended(&self, events: u64) {
        self.appended.fetch_add(events, Ordering::Release);
    }

    pub(crate) fn syncer(self: &Arc<Self>) -> Syncer {
        Syncer {
            shared: Arc::clone(self),
        }
    }

    fn run(&self) {
        let covers = self.appended.load(Ordering::Acquire);
        let named = self.progress.borrow().named;
        // The log refers to blobs, so they come first.
        let result = self
            .blobs
            .flush()
            .and_then(|()| self.layer.sync_data(&self.file, &self.path))
            .and_then(|()| match self.path.parent() {
                Some(folder) if !named => self.layer.sync_folder(folder),
                _ => Ok(()),
            });
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.progress.send_modify(|progress| match result {
            Ok(()) => {
                progress.synced = progress.synced.max(covers);
                progress.named = true;
            }
            Err(error) => progress.failed = Some(error.to_string().into()),
        });
    }
}

impl Syncer {
    /// Returns once everything that was appended before the call is on the disk, the
    /// blobs put before it included. A first sync also covers the file's name.
    ///
    /// # Errors
    /// [`AppendError::Sync`] when the disk refuses; from then on always.
    pub async fn sync(&self) -> Result<(), AppendError> {
        let target = self.shared.appended.load(Ordering::Acquire);
        let mut progress = self.shared.progress.subscribe();
        loop {
            {
                let now = progress.borrow_and_update();
                if let Some(why) = &now.failed {
                    return Err(AppendError::Sync {
                        path: self.shared.path.clone(),
                        why: Arc::clone(why),
                    });
                }
                if now.named && now.synced >= target {
                    return Ok(());
                }
            }
            self.start_if_none_runs();
            // The sender lives in `self.shared`, so this cannot end early.
            if progress.changed().await.is_err() {
                let why = "the log was closed".into();
                return Err(AppendError::Sync {
                    path: self.shared.path.clone(),
                    why,
                });
            }
        }
    }

    fn start_if_none_runs(&self) {
        {
            let mut running = self
                .shared
                .running
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            if std::mem::replace(&mut *running, true) {
                return;
            }
        }
        let shared = Arc::clone(&self.shared);
        tokio::task::spawn_blocking(move || shared.run());
    }
}

impl std::fmt::Debug for Syncer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Syncer")
            .field("path", &self.shared.path)
            .finish_non_exhaustive()
    }
}
