//! The file itself: read with a bound, and replaced in one step under a lock.

#![expect(
    clippy::disallowed_methods,
    reason = "the files of rules belong to this module, as they are the person's own"
)]

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::{RuleFileError, Stamp};

/// Ten thousand rules are about one of these; more is no file of rules.
const MOST: u64 = 16 * 1024 * 1024;

/// Whether a link in the file's place is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Links {
    /// A person's own file may be a link into a folder of settings.
    Follow,
    Refuse,
}

/// The file that is meant, without links.
pub(super) fn resolved(path: &Path, links: Links) -> Result<PathBuf, RuleFileError> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() && links == Links::Refuse => Err(RuleFileError::Link {
            path: path.to_owned(),
        }),
        Ok(found) if found.is_symlink() => path
            .canonicalize()
            .map_err(RuleFileError::io("followed", path)),
        Ok(_) => Ok(path.to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(path.to_owned()),
        Err(error) => Err(RuleFileError::io("looked at", path)(error)),
    }
}

/// The text of a file of ours; none when it is not there.
pub(super) fn read(path: &Path, links: Links) -> Result<Option<String>, RuleFileError> {
    let path = &resolved(path, links)?;
    let file = match OpenOptions::new()
        .read(true)
        // A pipe in its place would be waited for without end.
        .custom_flags(libc_nonblock())
        .open(path)
    {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(RuleFileError::io("read", path)(error)),
    };
    let found = file
        .metadata()
        .map_err(RuleFileError::io("looked at", path))?;
    if !found.is_file() {
        return Err(RuleFileError::NoFile { path: path.clone() });
    }
    let us = rustix::process::geteuid().as_raw();
    // What root wrote here is the system's own; what another user wrote is not ours.
    if found.uid() != us && found.uid() != 0 {
        return Err(RuleFileError::Owner {
            path: path.clone(),
            owner: found.uid(),
        });
    }
    if found.len() > MOST {
        return Err(RuleFileError::TooLarge {
            path: path.clone(),
            most: MOST,
        });
    }
    let mut bytes = Vec::new();
    file.take(MOST)
        .read_to_end(&mut bytes)
        .map_err(RuleFileError::io("read", path))?;
    String::from_utf8(bytes)
        .map(Some)
        .map_err(|_| RuleFileError::Malformed {
            path: path.clone(),
            problem: "it is not UTF-8".to_owned(),
        })
}

fn libc_nonblock() -> i32 {
    i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default()
}

/// Holds off all others that change the same file, in any process, until it is dropped.
pub(super) struct Held {
    _lock: File,
}

/// Takes the lock, with the folder made before.
pub(super) fn hold(path: &Path) -> Result<Held, RuleFileError> {
    if let Some(folder) = path.parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(RuleFileError::io("given a folder", path))?;
    }
    // Not the file itself, which the change replaces.
    let lock = path.with_extension("lock");
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .custom_flags(i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or_default())
        .open(&lock)
        .and_then(|lock| lock.lock().map(|()| lock))
        .map(|lock| Held { _lock: lock })
        .map_err(RuleFileError::io("locked", &lock))
}

/// Puts a new text in the file's place, on the disk when this returns. A file that is there
/// keeps its mode; a new one is its owner's alone.
pub(super) fn replace(path: &Path, text: &str, _held: &Held) -> Result<(), RuleFileError> {
    let failed = || RuleFileError::io("written", path);
    let mode = match fs::metadata(path) {
        Ok(found) if found.permissions().readonly() => {
            // A rename would pass over what its owner has closed.
            return Err(RuleFileError::ReadOnly {
                path: path.to_owned(),
            });
        }
        Ok(found) => Some(found.permissions()),
        Err(_) => None,
    };
    let temporary = path.with_extension(format!("new-{}", std::process::id()));
    // Left behind by a process that died and had our number.
    let _ = fs::remove_file(&temporary);
    let written = OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(&temporary)
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            if let Some(mode) = mode {
                file.set_permissions(mode)?;
            }
            file.sync_all()
        })
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written.map_err(failed())?;
    match path.parent() {
        Some(folder) => File::open(folder)
            .and_then(|folder| folder.sync_all())
            .map_err(failed()),
        None => Ok(()),
    }
}

/// Of the file as it is now; none when it is not there.
pub(super) fn stamp(path: &Path) -> Option<Stamp> {
    let found = fs::metadata(path).ok()?;
    Some(Stamp {
        file: (found.dev(), found.ino()),
        changed: (found.ctime(), found.ctime_nsec()),
        length: found.len(),
    })
}
