//! Content kept by its hash: pre-images of edited files, images, large payloads.
//!
//! A blob's name is the SHA-256 of its bytes, so the log can refer to it in one word,
//! equal content is stored once, and damage shows when it is read.

#![expect(
    clippy::disallowed_methods,
    reason = "the folder of blobs belongs to this module"
)]

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::error::BlobError;
use crate::layer::FileLayer;
use crate::{hex, platform};

/// The largest blob, in bytes.
pub const MAX_BLOB_BYTES: u64 = 64 * 1024 * 1024;

/// The lower-case hexadecimal SHA-256 of a blob's bytes. It names a file, so it is
/// checked where it enters.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BlobId(String);

/// A text that is no hash.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no blob id: it must be 64 lower-case hexadecimal digits")]
pub struct BadBlobId(String);

impl BlobId {
    /// The id that these bytes have.
    pub fn of(bytes: &[u8]) -> Self {
        Self(hex::text(&Sha256::digest(bytes).into()))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for BlobId {
    type Error = BadBlobId;

    fn try_from(text: String) -> Result<Self, BadBlobId> {
        if hex::is_hash(text.as_bytes()) {
            Ok(Self(text))
        } else {
            Err(BadBlobId(text.chars().take(64).collect()))
        }
    }
}

impl std::str::FromStr for BlobId {
    type Err = BadBlobId;

    fn from_str(text: &str) -> Result<Self, BadBlobId> {
        Self::try_from(text.to_owned())
    }
}

impl From<BlobId> for String {
    fn from(id: BlobId) -> Self {
        id.0
    }
}

impl fmt::Display for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// All blobs of a store. Cheap to clone.
///
/// Calls block on the disk: use `spawn_blocking` for more than a few kilobytes.
#[derive(Clone)]
pub struct Blobs {
    shared: Arc<Shared>,
}

struct Shared {
    folder: PathBuf,
    layer: Arc<dyn FileLayer>,
    /// Written, but not yet confirmed by the disk; see [`Blobs::flush`].
    unsynced: Mutex<Vec<PathBuf>>,
    /// Held for a whole flush, so that a second one does not overtake the first.
    flushing: Mutex<()>,
    next_temporary: AtomicU64,
}

impl Blobs {
    pub(crate) fn new(folder: PathBuf, layer: Arc<dyn FileLayer>) -> Self {
        Self {
            shared: Arc::new(Shared {
                folder,
                layer,
                unsynced: Mutex::default(),
                flushing: Mutex::default(),
                next_temporary: AtomicU64::new(0),
            }),
        }
    }

    /// Keeps bytes and says under which name. Equal bytes are stored once. The blob
    /// outlives the process at once, and a power loss after the next sync of a log.
    ///
    /// # Errors
    /// [`BlobError::TooLarge`] over [`MAX_BLOB_BYTES`]; [`BlobError::Io`].
    pub fn put(&self, bytes: &[u8]) -> Result<BlobId, BlobError> {
        let size = bytes.len() as u64;
        if size > MAX_BLOB_BYTES {
            return Err(BlobError::TooLarge {
                bytes: size,
                limit: MAX_BLOB_BYTES,
            });
        }
        let id = BlobId::of(bytes);
        let path = self.path(&id);
        // A shorter file of that name is what a power loss left of one: write it anew.
        if fs::metadata(&path).is_ok_and(|found| found.len() == size) {
            return Ok(id);
        }
        let folder = path.parent().unwrap_or(&self.shared.folder);
        platform::private_folder(folder).map_err(BlobError::io("make the folder", folder))?;
        let number = self.shared.next_temporary.fetch_add(1, Ordering::Relaxed);
        let temporary = folder.join(format!(".new-{}-{number}", std::process::id()));
        if let Err(error) =
            write_new(&temporary, bytes).and_then(|()| fs::rename(&temporary, &path))
        {
            // The half-written file is of no use, and nobody else knows its name.
            let _ = fs::remove_file(&temporary);
            return Err(BlobError::io("write the blob", &path)(error));
        }
        lock(&self.shared.unsynced).push(path);
        Ok(id)
    }

    /// The bytes of a blob.
    ///
    /// # Errors
    /// [`BlobError::Missing`], [`BlobError::Damaged`] when the bytes do not
    /// have the hash, [`BlobError::TooLarge`], [`BlobError::Io`].
    pub fn get(&self, id: &BlobId) -> Result<Vec<u8>, BlobError> {
        let path = self.path(id);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(BlobError::Missing { id: id.clone() });
            }
            Err(error) => return Err(BlobError::io("open the blob", &path)(error)),
        };
        let mut bytes = Vec::new();
        file.take(MAX_BLOB_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(BlobError::io("read the blob", &path))?;
        if bytes.len() as u64 > MAX_BLOB_BYTES {
            return Err(BlobError::TooLarge {
                bytes: bytes.len() as u64,
                limit: MAX_BLOB_BYTES,
            });
        }
        if BlobId::of(&bytes) != *id {
            return Err(BlobError::Damaged { id: id.clone() });
        }
        Ok(bytes)
    }

    /// True when a blob of that name is there.
    pub fn contains(&self, id: &BlobId) -> bool {
        self.path(id).is_file()
    }

    /// Removes the blobs that `keep` does not want and that are older than `age`: a
    /// younger one may belong to an event that is about to be written. Says how many.
    ///
    /// # Errors
    /// [`BlobError::Io`] when a folder cannot be read or a file not be removed.
    pub fn sweep(
        &self,
        age: std::time::Duration,
        mut keep: impl FnMut(&BlobId) -> bool,
    ) -> Result<u64, BlobError> {
        let mut removed = 0;
        for folder in entries(&self.shared.folder)? {
            for path in entries(&folder)? {
                let name = path
                    .file_name()
                    .and_then(|name| name.to_str())
                    .unwrap_or_default();
                let old = fs::metadata(&path)
                    .and_then(|found| found.modified())
                    .is_ok_and(|time| time.elapsed().is_ok_and(|passed| passed >= age));
                let unwanted = match name.parse::<BlobId>() {
                    Ok(id) => !keep(&id),
                    Err(_) => name.starts_with(".new-"),
                };
                if old && unwanted {
                    fs::remove_file(&path).map_err(BlobError::io("remove the blob", &path))?;
                    removed += 1;
                }
            }
        }
        Ok(removed)
    }

    /// Waits until the disk has all blobs put before the call. Blocks.
    pub(crate) fn flush(&self) -> io::Result<()> {
        let _one_at_a_time = lock(&self.shared.flushing);
        let paths = std::mem::take(&mut *lock(&self.shared.unsynced));
        let mut folders: Vec<&Path> = Vec::new();
        let result = paths.iter().try_for_each(|path| {
            let file = match File::open(path) {
                Ok(file) => file,
                // Swept before it was ever synced: nothing is left to keep.
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(error),
            };
            self.shared.layer.sync_data(&file, path)?;
            if let Some(folder) = path.parent().filter(|folder| !folders.contains(folder)) {
                folders.push(folder);
            }
            Ok(())
        });
        let result = result.and_then(|()| {
            folders
                .iter()
                .try_for_each(|folder| self.shared.layer.sync_folder(folder))
        });
        if result.is_err() {
            lock(&self.shared.unsynced).extend(paths);
        }
        result
    }

    fn path(&self, id: &BlobId) -> PathBuf {
        let shard = id.0.get(..2).unwrap_or_default();
        self.shared.folder.join(shard).join(&id.0)
    }
}

impl fmt::Debug for Blobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blobs")
            .field("folder", &self.shared.folder)
            .finish_non_exhaustive()
    }
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    platform::private_file()
        .write(true)
        .create_new(true)
        .open(path)?
        .write_all(bytes)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, BlobError> {
    match fs::read_dir(folder) {
        Ok(found) => found
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<io::Result<_>>()
            .map_err(BlobError::io("list the folder", folder)),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(Vec::new())
        }
        Err(error) => Err(BlobError::io("list the folder", folder)(error)),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // The guarded values stay whole at every point where a panic could come.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
