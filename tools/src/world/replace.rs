//! Putting new bytes in the place of a file so that a crash leaves the old or the new
//! content, never a torn one (check 135), and the file stays what it was: mode bits,
//! owner, extended attributes, hard links (R124).

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, Gid, Mode, Uid, XattrFlags};

use super::open;

/// What tells one state of a file from another without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// The stamp of an open file.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn of(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self {
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

/// Why a file was not written.
#[derive(Debug, thiserror::Error)]
pub enum ReplaceError {
    /// It is not in the state that the new content was made from.
    #[error("it changed while it was being edited")]
    Changed,
    #[error("it is not a regular file")]
    NotRegular,
    #[error(transparent)]
    System(#[from] io::Error),
}

/// Writes `bytes` to `relative` below `root`, making folders that are missing. `expected`
/// is the stamp of the file that is replaced; none when it must not exist.
///
/// # Errors
/// [`ReplaceError`]; the file is then as it was, save for an error while writing in place.
pub fn replace(
    root: &Path,
    relative: &Path,
    bytes: &[u8],
    expected: Option<Stamp>,
) -> Result<(), ReplaceError> {
    let Some(name) = relative.file_name() else {
        return Err(ReplaceError::NotRegular);
    };
    let folder = open::folder(root, relative.parent().unwrap_or(Path::new("")), true)?;
    let Some(expected) = expected else {
        return create(&folder, name, bytes);
    };
    let old = open::reading(root, relative).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => ReplaceError::Changed,
        _ => error.into(),
    })?;
    let metadata = old.metadata()?;
    if !metadata.is_file() {
        return Err(ReplaceError::NotRegular);
    }
    if Stamp::of(&old)? != expected {
        return Err(ReplaceError::Changed);
    }
    // A file that cannot be opened for writing is not to be replaced behind its mode bits.
    let in_place = open::writing(&folder, name)?;
    if metadata.nlink() > 1 {
        return write_in_place(in_place, &old, bytes);
    }
    match exchange(&folder, name, &old, bytes, expected) {
        Ok(true) => Ok(()),
        // The folder takes no new file, or the owner cannot be kept.
        Ok(false) => write_in_place(in_place, &old, bytes),
        Err(error) => Err(error),
    }
}

fn create(folder: &OwnedFd, name: &OsStr, bytes: &[u8]) -> Result<(), ReplaceError> {
    let temporary = temporary_name();
    let mut file = open::creating(folder, &temporary, 0o666)?;
    let done = fill(&mut file, bytes).and_then(|()| {
        // Linking, unlike renaming, refuses when the name was taken meanwhile.
        match rustix::fs::linkat(folder, &temporary, folder, name, AtFlags::empty()) {
            Ok(()) => {
                rustix::fs::unlinkat(folder, &temporary, AtFlags::empty()).map_err(io::Error::from)
            }
            Err(rustix::io::Errno::EXIST) => Err(rustix::io::Errno::EXIST.into()),
            // File systems without hard links.
            Err(_) => {
                rustix::fs::renameat(folder, &temporary, folder, name).map_err(io::Error::from)
            }
        }
    });
    done.map_err(|error| {
        discard(folder, &temporary);
        if error.kind() == io::ErrorKind::AlreadyExists {
            ReplaceError::Changed
        } else {
            error.into()
        }
    })
}

/// Replaces by rename; false when that cannot keep what the file is.
fn exchange(
    folder: &OwnedFd,
    name: &OsStr,
    old: &File,
    bytes: &[u8],
    expected: Stamp,
) -> Result<bool, ReplaceError> {
    let temporary = temporary_name();
    let mut file = match open::creating(folder, &temporary, 0o600) {
        Ok(file) => file,
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
            ) =>
        {
            return Ok(false);
        }
        Err(error) => return Err(error.into()),
    };
    let done = (|| -> Result<bool, ReplaceError> {
        if !carry_over(old, &file)? {
            return Ok(false);
        }
        fill(&mut file, bytes)?;
        // Waiting for the disk may take long, and what somebody saved meanwhile must stay.
        let now = open::reading_in(folder, name).map_err(|_| ReplaceError::Changed)?;
        if Stamp::of(&now)? != expected {
            return Err(ReplaceError::Changed);
        }
        rustix::fs::renameat(folder, &temporary, folder, name).map_err(io::Error::from)?;
        Ok(true)
    })();
    if !matches!(done, Ok(true)) {
        discard(folder, &temporary);
    }
    done
}

/// Gives the new file the old one's owner, extended attributes and mode; false when the
/// owner cannot be given.
fn carry_over(old: &File, new: &File) -> io::Result<bool> {
    let (from, to) = (old.metadata()?, new.metadata()?);
    if (from.uid(), from.gid()) != (to.uid(), to.gid())
        && rustix::fs::fchown(
            new,
            Some(Uid::from_raw(from.uid())),
            Some(Gid::from_raw(from.gid())),
        )
        .is_err()
    {
        return Ok(false);
    }
    copy_attributes(old, new);
    // Last, because a change of owner clears the set-id bits.
    rustix::fs::fchmod(new, Mode::from_raw_mode(from.mode() & 0o7777))?;
    Ok(true)
}

/// Extended attributes are carried over where the system lets us; a label that only the
/// system may set is its own concern.
fn copy_attributes(old: &File, new: &File) {
    let mut names = vec![0_u8; 4096];
    let Ok(length) = rustix::fs::flistxattr(old, names.as_mut_slice()) else {
        return;
    };
    names.truncate(length);
    for name in names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        let mut value = vec![0_u8; 64 * 1024];
        if let Ok(length) = rustix::fs::fgetxattr(old, name, value.as_mut_slice()) {
            value.truncate(length);
            let _ = rustix::fs::fsetxattr(new, name, &value, XattrFlags::empty());
        }
    }
}

/// Writes over the old content, which is put back when the disk turns out to be full.
fn write_in_place(mut file: File, old: &File, bytes: &[u8]) -> Result<(), ReplaceError> {
    let mut before = Vec::new();
    let mut from = old;
    from.rewind()?;
    from.read_to_end(&mut before)?;
    overwrite(&mut file, bytes).map_err(|error| {
        // The old bytes had their place on the disk, so they fit.
        if let Err(lost) = file.rewind().and_then(|()| overwrite(&mut file, &before)) {
            tracing::error!(%lost, "a file that could not be written could not be put back");
        }
        error.into()
    })
}

fn overwrite(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)?;
    file.set_len(bytes.len() as u64)?;
    file.sync_data()
}

fn fill(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)?;
    // Without this a power loss after the rename can leave an empty file.
    file.sync_data()
}

#[expect(
    clippy::disallowed_methods,
    reason = "a name that nobody can guess and no replay needs"
)]
fn temporary_name() -> OsString {
    format!(".terret-{}.tmp", uuid::Uuid::new_v4().simple()).into()
}

fn discard(folder: &OwnedFd, name: &OsStr) {
    let _ = rustix::fs::unlinkat(folder, name, AtFlags::empty());
}

#[cfg(test)]
mod tests;
