//! Opening a file below a root without following any link on the way.
//!
//! Containment was decided on the real path, which has no links. Walking it again one
//! folder at a time, refusing links, means that a folder swapped for a link in between
//! cannot lead outside.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// A new folder's mode before the umask.
const FOLDER_MODE: u32 = 0o777;

/// Opens the folder `relative` below `root`, making missing ones when `create` is set.
pub(super) fn folder(root: &Path, relative: &Path, create: bool) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let mut here = rustix::fs::open(root, flags, Mode::empty())?;
    for name in relative {
        let next = rustix::fs::openat(&here, name, flags | OFlags::NOFOLLOW, Mode::empty());
        here = match next {
            Err(rustix::io::Errno::NOENT) if create => {
                match rustix::fs::mkdirat(&here, name, Mode::from_raw_mode(FOLDER_MODE)) {
                    // Somebody else may have made it just now.
                    Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
                rustix::fs::openat(&here, name, flags | OFlags::NOFOLLOW, Mode::empty())?
            }
            other => other?,
        };
    }
    Ok(here)
}

/// Opens what lies at `relative` below `root` for reading. Never waits for a FIFO's writer.
pub(super) fn reading(root: &Path, relative: &Path) -> io::Result<File> {
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let Some(name) = relative.file_name() else {
        return Ok(File::from(rustix::fs::open(root, flags, Mode::empty())?));
    };
    let folder = folder(root, relative.parent().unwrap_or(Path::new("")), false)?;
    reading_in(&folder, name)
}

/// Opens what has this name in an open folder for reading.
pub(super) fn reading_in(folder: &OwnedFd, name: &OsStr) -> io::Result<File> {
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::openat(
        folder,
        name,
        flags,
        Mode::empty(),
    )?))
}

/// Opens a file in an open folder for writing, as it stands.
pub(super) fn writing(folder: &OwnedFd, name: &OsStr) -> io::Result<File> {
    let flags =
        OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::openat(
        folder,
        name,
        flags,
        Mode::empty(),
    )?))
}

/// Makes a file that must not exist yet.
pub(super) fn creating(folder: &OwnedFd, name: &OsStr, mode: u32) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::openat(
        folder,
        name,
        flags,
        Mode::from_raw_mode(mode),
    )?))
}
