//! The folder that holds all sessions: one append-only file each, and their blobs.
//!
//! ```text
//! <root>/sessions/<id>.jsonl       the log
//! <root>/sessions/<id>.holder      who writes to it, for people
//! <root>/sessions/<id>.torn-<seq>  bytes that a repair cut off
//! <root>/blobs/ab/<sha256>         content by hash
//! ```
//!
//! Folders and files are made when they are first needed, for their owner alone.

#![expect(
    clippy::disallowed_methods,
    reason = "the store's folder belongs to this module"
)]

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::blob::Blobs;
use crate::clock::Clock;
use crate::error::StoreError;
use crate::event::Payload;
use crate::fork::CreateError;
use crate::id::SessionId;
use crate::layer::{FileLayer, RealFiles};
use crate::lock;
use crate::open;
use crate::platform;
use crate::projection::SessionState;
use crate::reader::EventReader;
use crate::scrub::Scrubber;
use crate::session_log::{Opened, Position, SessionLog};
use crate::sync;

/// All sessions below one folder. Cheap to clone. Its calls block on the disk.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
    scrubber: Scrubber,
}

struct Shared {
    root: PathBuf,
    sessions: PathBuf,
    blobs: Blobs,
    clock: Arc<dyn Clock>,
    layer: Arc<dyn FileLayer>,
}

impl Store {
    /// Opens the store below `root`. Makes nothing yet.
    ///
    /// # Errors
    /// [`StoreError::NetworkFs`] where locks and syncs cannot be trusted;
    /// [`StoreError::Io`].
    pub fn open(root: impl Into<PathBuf>, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        Self::with_layer(root, clock, Arc::new(RealFiles))
    }

    /// The same on other file operations, for tests of failing disks.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn with_layer(
        root: impl Into<PathBuf>,
        clock: Arc<dyn Clock>,
        layer: Arc<dyn FileLayer>,
    ) -> Result<Self, StoreError> {
        let root = root.into();
        let found =
            platform::network_filesystem(&root).map_err(StoreError::io("look at", &root))?;
        if let Some(kind) = found {
            return Err(StoreError::NetworkFs { path: root, kind });
        }
        let shared = Shared {
            sessions: root.join("sessions"),
            blobs: Blobs::new(root.join("blobs"), Arc::clone(&layer)),
            root,
            clock,
            layer,
        };
        Ok(Self {
            shared: Arc::new(shared),
            scrubber: Scrubber::default(),
        })
    }

    /// The same store with another scrubber than the default, for all that is written and
    /// exported from now on.
    #[must_use]
    pub fn with_scrubber(self, scrubber: Scrubber) -> Self {
        Self { scrubber, ..self }
    }

    /// What keeps secrets out of everything that is written here.
    pub fn scrubber(&self) -> &Scrubber {
        &self.scrubber
    }

    /// The folder that everything is in.
    pub fn root(&self) -> &Path {
        &self.shared.root
    }

    /// Content by hash.
    pub fn blobs(&self) -> &Blobs {
        &self.shared.blobs
    }

    /// The file of a session, whether it is there or not.
    pub fn log_path(&self, id: &SessionId) -> PathBuf {
        self.shared.sessions.join(format!("{id}.jsonl"))
    }

    /// Starts an empty log. The caller appends `session/created` (check 1).
    ///
    /// # Errors
    /// [`StoreError::Exists`], [`StoreError::Io`].
    pub fn create(&self, id: SessionId) -> Result<SessionLog, StoreError> {
        platform::private_folder(&self.shared.sessions)
            .map_err(StoreError::io("make the folder", &self.shared.sessions))?;
        let path = self.log_path(&id);
        let file = match platform::private_file()
            .read(true)
            .append(true)
            .create_new(true)
            .open(&path)
        {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(StoreError::Exists { id });
            }
            Err(error) => return Err(StoreError::io("make", &path)(error)),
        };
        let (holder, identity) = lock::take(&id, &file, &path, self.shared.clock.now_ms())?;
        Ok(self.writer(id, path, file, holder, identity, Position::START))
    }

    /// Makes a session whose log begins with `content`. The name appears only once all
    /// of it is there, and with the lock held.
    pub(crate) fn create_with(
        &self,
        id: SessionId,
        mut content: impl io::Read,
        position: Position,
    ) -> Result<SessionLog, CreateError> {
        let folder = &self.shared.sessions;
        let store = CreateError::Store;
        platform::private_folder(folder)
            .map_err(StoreError::io("make the folder", folder))
            .map_err(store)?;
        let path = self.log_path(&id);
        let temporary = path.with_extension(format!(
            "new-{}-{}",
            std::process::id(),
            SessionId::generate()
        ));
        let file = platform::private_file()
            .read(true)
            .append(true)
            .create_new(true)
            .open(&temporary)
            .map_err(StoreError::io("make", &temporary))
            .map_err(store)?;
        let result = copy(&mut content, &file, &temporary).and_then(|()| {
            let locked = lock::take(&id, &file, &path, self.shared.clock.now_ms());
            let (holder, identity) = locked.map_err(store)?;
            match fs::hard_link(&temporary, &path) {
                Ok(()) => Ok((holder, identity)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    Err(store(StoreError::Exists { id: id.clone() }))
                }
                Err(error) => Err(store(StoreError::io("make", &path)(error))),
            }
        });
        // The log has its own name by now, or is not wanted.
        let _ = fs::remove_file(&temporary);
        let (holder, identity) = result?;
        Ok(self.writer(id, path, file, holder, identity, position))
    }

    /// Opens a session for writing: takes its lock, then in one pass checks the chain
    /// and folds the state. A torn tail is cut off, kept beside the log and told in a
    /// `log/repaired` event (check 17).
    ///
    /// # Errors
    /// [`StoreError::NotFound`] (check 11), [`StoreError::Held`] (check 20),
    /// [`StoreError::Broken`] when something before the tail was changed or lost,
    /// [`StoreError::Newer`], [`StoreError::Io`].
    pub fn open_writer(&self, id: &SessionId) -> Result<(SessionLog, SessionState), StoreError> {
        let path = self.log_path(id);
        let (file, holder, identity) = self.lock_log(id, &path)?;
        let mut scan = open::scan(id, &file, &path)?;
        let torn = scan.torn;
        let kept_aside = match torn {
            Some(bytes) => Some((
                open::set_aside(&self.shared.layer, &file, &path, &scan)?,
                bytes,
            )),
            None => None,
        };
        let mut log = self.writer(id.clone(), path, file, holder, identity, scan.position);
        if let Some((kept_aside, dropped_bytes)) = kept_aside {
            tracing::warn!(session = %id, dropped_bytes, "a torn tail was cut off the log and kept beside it");
            let event = log.append(Payload::LogRepaired {
                kept_aside,
                dropped_bytes,
            })?;
            scan.state.apply(&event);
        }
        Ok((log, scan.state))
    }

    /// Reads a session's events from `from_seq` on (check 10). Needs no lock.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Io`].
    pub fn read(&self, id: &SessionId, from_seq: u64) -> Result<EventReader, StoreError> {
        EventReader::open(id, &self.log_path(id), from_seq)
    }

    /// Folds a session's state without the right to write: for lists, and for what a
    /// second process shows.
    ///
    /// # Errors
    /// As [`Store::open_writer`], but for the lock.
    pub fn load(&self, id: &SessionId) -> Result<SessionState, StoreError> {
        let mut state = SessionState::default();
        for event in self.read(id, 0)? {
            state.apply(&event?);
        }
        Ok(state)
    }

    /// True when there is a session of that id.
    pub fn exists(&self, id: &SessionId) -> bool {
        self.log_path(id).is_file()
    }

    /// The ids of all sessions, in no order.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn ids(&self) -> Result<Vec<SessionId>, StoreError> {
        let folder = &self.shared.sessions;
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(StoreError::io("list", folder)(error)),
        };
        let mut ids = Vec::new();
        for entry in entries {
            let name = entry.map_err(StoreError::io("list", folder))?.file_name();
            let id = name
                .to_str()
                .and_then(|name| name.strip_suffix(".jsonl"))
                .and_then(|id| id.parse().ok());
            ids.extend(id);
        }
        Ok(ids)
    }

    /// Removes a session and what lies beside its log. One that is not there is fine.
    /// Its blobs stay until [`Store::sweep_blobs`], since others may share them.
    ///
    /// # Errors
    /// [`StoreError::Held`] while it has a writer, [`StoreError::Io`].
    pub fn delete(&self, id: &SessionId) -> Result<(), StoreError> {
        let path = self.log_path(id);
        let (_file, _holder, _identity) = match self.lock_log(id, &path) {
            Ok(locked) => locked,
            Err(StoreError::NotFound { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        fs::remove_file(&path).map_err(StoreError::io("remove", &path))?;
        let beside = format!("{id}.torn-");
        if let Ok(entries) = fs::read_dir(&self.shared.sessions) {
            for entry in entries.flatten() {
                if entry
                    .file_name()
                    .to_str()
                    .is_some_and(|name| name.starts_with(&beside))
                {
                    fs::remove_file(entry.path())
                        .map_err(StoreError::io("remove", &entry.path()))?;
                }
            }
        }
        Ok(())
    }

    /// Removes blobs that no session refers to and that are older than a day: their
    /// sessions were deleted. Says how many. Reads all logs, so call it seldom.
    ///
    /// # Errors
    /// [`StoreError`] when a log cannot be read: then nothing is removed, since what it
    /// refers to is not known.
    pub fn sweep_blobs(&self) -> Result<u64, StoreError> {
        const AGE: std::time::Duration = std::time::Duration::from_secs(24 * 60 * 60);
        let mut kept = std::collections::HashSet::new();
        for id in self.ids()? {
            for event in self.read(&id, 0)? {
                match event {
                    Ok(event) => event.payload.for_each_blob(&mut |blob| {
                        kept.insert(blob.clone());
                    }),
                    // What is lost there cannot be shown any more.
                    Err(StoreError::Broken { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(self.blobs().sweep(AGE, |blob| kept.contains(blob))?)
    }

    /// Opens an existing log and takes its lock.
    fn lock_log(
        &self,
        id: &SessionId,
        path: &Path,
    ) -> Result<(File, lock::Holder, platform::FileIdentity), StoreError> {
        const TRIES: u32 = 8;
        for _ in 0..TRIES {
            let file = match fs::OpenOptions::new().read(true).append(true).open(path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(StoreError::NotFound { id: id.clone() });
                }
                Err(error) => return Err(StoreError::io("open", path)(error)),
            };
            let (holder, identity) = lock::take(id, &file, path, self.shared.clock.now_ms())?;
            if lock::is_current(path, identity) {
                return Ok((file, holder, identity));
            }
        }
        Err(StoreError::Held {
            id: id.clone(),
            by: "something that keeps replacing the file".to_owned(),
        })
    }

    fn writer(
        &self,
        id: SessionId,
        path: PathBuf,
        file: File,
        holder: lock::Holder,
        identity: platform::FileIdentity,
        position: Position,
    ) -> SessionLog {
        let file = Arc::new(file);
        let layer = Arc::clone(&self.shared.layer);
        let sync = sync::Shared::new(
            path.clone(),
            Arc::clone(&file),
            Arc::clone(&layer),
            self.shared.blobs.clone(),
        );
        let clock = Arc::clone(&self.shared.clock);
        SessionLog::new(Opened {
            id,
            path,
            file,
            layer,
            clock,
            scrubber: self.scrubber.clone(),
            sync,
            holder,
            identity,
            position,
        })
    }
}

fn copy(content: &mut impl io::Read, mut file: &File, path: &Path) -> Result<(), CreateError> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = match content.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(CreateError::Read(error)),
        };
        let bytes = buffer.get(..read).unwrap_or_default();
        io::Write::write_all(&mut file, bytes)
            .map_err(|error| CreateError::Store(StoreError::io("write", path)(error)))?;
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("root", &self.shared.root)
            .finish_non_exhaustive()
    }
}
