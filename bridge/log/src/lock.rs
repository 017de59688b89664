//! One writer a session among all processes: the OS lock on the log file itself.
//!
//! The lock is the file's, so it ends with the process however that ends, and no
//! stale lock is ever left. The small file beside the log only tells people who has it.

#![expect(
    clippy::disallowed_methods,
    reason = "the log file and the note beside it belong to this module"
)]

use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::clock::moment;
use crate::error::StoreError;
use crate::id::SessionId;
use crate::platform::{self, FileIdentity};

/// The note that says who has the session, removed when the writer is dropped.
pub(crate) struct Holder {
    path: PathBuf,
}

impl Drop for Holder {
    fn drop(&mut self) {
        // Only people read it, and the next writer replaces it.
        let _ = fs::remove_file(&self.path);
    }
}

/// Takes the lock of an open log, and says which file it is.
///
/// # Errors
/// [`StoreError::Held`] when another writer has it.
pub(crate) fn take(
    id: &SessionId,
    file: &File,
    path: &Path,
    since_ms: u64,
) -> Result<(Holder, FileIdentity), StoreError> {
    let note = note_path(path);
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(StoreError::Held {
                id: id.clone(),
                by: holder(&note),
            });
        }
        Err(TryLockError::Error(error)) => return Err(StoreError::io("lock", path)(error)),
    }
    let identity = FileIdentity::of(&file.metadata().map_err(StoreError::io("look at", path))?);
    if let Err(error) = write_note(&note, since_ms) {
        tracing::warn!(session = %id, %error, "the note of who writes to the session could not be left");
    }
    Ok((Holder { path: note }, identity))
}

/// True when the file at `path` is still the one that was locked: it may have been
/// removed or replaced between the open and the lock.
pub(crate) fn is_current(path: &Path, identity: FileIdentity) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| FileIdentity::of(&found) == identity)
}

pub(crate) fn note_path(log: &Path) -> PathBuf {
    log.with_extension("holder")
}

fn holder(note: &Path) -> String {
    match fs::read_to_string(note) {
        Ok(text) if !text.trim().is_empty() => text.trim().chars().take(200).collect(),
        _ => "another terret".to_owned(),
    }
}

fn write_note(note: &Path, since_ms: u64) -> io::Result<()> {
    let program = std::env::current_exe().ok();
    let name = program
        .as_deref()
        .and_then(Path::file_name)
        .and_then(|name| name.to_str())
        .unwrap_or("terret");
    let mut file = platform::private_file()
        .write(true)
        .create(true)
        .truncate(true)
        .open(note)?;
    writeln!(
        file,
        "process {} ({name}) since {} UTC",
        std::process::id(),
        moment(since_ms)
    )
}
