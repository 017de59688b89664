//! One job's folder, held open: every file in it is reached through the descriptor, so
//! that a folder which was moved or removed is never mixed up with another one.
//!
//! The folder is 0700 and its files are 0600 whatever the umask (R137). `lock` is locked by
//! the engine before the folder can be seen under its name, and the keeper inherits that
//! lock; whether a keeper lives is asked of the lock alone, and no process id is trusted.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::world::jobs::record::unix_millis;

/// The keeper's life.
pub(crate) const LOCK: &str = "lock";
/// The keeper's ear.
pub(crate) const CONTROL: &str = "control";

const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// An open folder.
#[derive(Debug)]
pub(crate) struct Folder {
    descriptor: OwnedFd,
}

impl Folder {
    /// Opens one by its path, which must not be a link.
    pub(crate) fn open(path: &std::path::Path) -> io::Result<Self> {
        Ok(Self {
            descriptor: rustix::fs::open(path, folder_flags(), Mode::empty())?,
        })
    }

    /// Takes one that is open already.
    pub(crate) fn from_descriptor(descriptor: OwnedFd) -> Self {
        Self { descriptor }
    }

    /// Makes a path of private folders and opens the last.
    pub(crate) fn make(path: &std::path::Path) -> io::Result<Self> {
        let mut missing = Vec::new();
        let mut at = path;
        while !at.is_dir() {
            missing.push(at);
            let Some(parent) = at.parent().filter(|parent| *parent != at) else {
                break;
            };
            at = parent;
        }
        for folder in missing.into_iter().rev() {
            match rustix::fs::mkdir(folder, Mode::from_raw_mode(FOLDER_MODE)) {
                Ok(()) => {
                    let made = rustix::fs::open(folder, folder_flags(), Mode::empty())?;
                    rustix::fs::fchmod(made, Mode::from_raw_mode(FOLDER_MODE))?;
                }
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Self::open(path)
    }

    /// Makes a private folder in this one, which must not be there yet.
    pub(crate) fn make_in(&self, name: &str) -> io::Result<Self> {
        rustix::fs::mkdirat(&self.descriptor, name, Mode::from_raw_mode(FOLDER_MODE))?;
        let made = self.open_in(name)?;
        rustix::fs::fchmod(&made.descriptor, Mode::from_raw_mode(FOLDER_MODE))?;
        Ok(made)
    }

    /// Opens a folder in this one.
    pub(crate) fn open_in(&self, name: &str) -> io::Result<Self> {
        Ok(Self {
            descriptor: rustix::fs::openat(&self.descriptor, name, folder_flags(), Mode::empty())?,
        })
    }

    /// The same folder once more.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            descriptor: self.descriptor.try_clone()?,
        })
    }

    pub(crate) fn descriptor(&self) -> &OwnedFd {
        &self.descriptor
    }

    /// Opens a file for reading. A link or a pipe in its place is refused or does no harm.
    pub(crate) fn file(&self, name: &str) -> io::Result<File> {
        let file = rustix::fs::openat(
            &self.descriptor,
            name,
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        Ok(file.into())
    }

    /// Makes a private file, empty.
    pub(crate) fn make_file(&self, name: &str) -> io::Result<File> {
        let file = rustix::fs::openat(
            &self.descriptor,
            name,
            OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::from_raw_mode(FILE_MODE),
        )?;
        rustix::fs::fchmod(&file, Mode::from_raw_mode(FILE_MODE))?;
        Ok(file.into())
    }

    /// Reads a small file; one that is longer than `most` is an error.
    pub(crate) fn read(&self, name: &str, most: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.file(name)?.take(most + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > most {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("it is longer than {most} bytes"),
            ));
        }
        Ok(bytes)
    }

    /// Puts a file in place of another, so that a crash leaves the old or the new one.
    /// Only the holder of the lock does that.
    pub(crate) fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let temporary = format!("{name}.new");
        let done = (|| {
            let mut file = self.make_file(&temporary)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            rustix::fs::renameat(&self.descriptor, &temporary, &self.descriptor, name)?;
            self.sync()
        })();
        if done.is_err() {
            let _ = self.remove(&temporary);
        }
        done
    }

    /// Waits until names in it are on the disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        // Some file systems do not sync folders; their names are safe or nothing helps.
        match rustix::fs::fsync(&self.descriptor) {
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives a folder or file in it another name, which nothing has yet.
    pub(crate) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        rustix::fs::renameat(&self.descriptor, from, &self.descriptor, to)?;
        self.sync()
    }

    /// Removes a file.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(
            &self.descriptor,
            name,
            AtFlags::empty(),
        )?)
    }

    /// Removes a job's folder with its files; a job's folder has no folders in it. One
    /// that is not there is fine.
    pub(crate) fn remove_folder(&self, name: &str) -> io::Result<()> {
        match self.open_in(name) {
            Ok(folder) => {
                for name in folder.names()? {
                    match folder.remove(&name) {
                        // A keeper that ends takes its own socket away meanwhile.
                        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                        removed => removed?,
                    }
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        }
        self.remove_empty(name)
    }

    /// Removes a folder that has nothing in it. One that is not there is fine.
    pub(crate) fn remove_empty(&self, name: &str) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.descriptor, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The names in it, in no order; a folder that was removed has none. A name that is
    /// no UTF-8 is none of ours.
    pub(crate) fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        let entries = match rustix::fs::Dir::read_from(&self.descriptor) {
            Err(Errno::NOENT) => return Ok(names),
            entries => entries?,
        };
        for entry in entries {
            let entry = match entry {
                Err(Errno::NOENT) => break,
                entry => entry?,
            };
            if let Ok(name) = entry.file_name().to_str()
                && name != "."
                && name != ".."
            {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// What the system knows of a file in it; a link is not followed.
    pub(crate) fn stat(&self, name: &str) -> io::Result<Stat> {
        Ok(rustix::fs::statat(
            &self.descriptor,
            name,
            AtFlags::SYMLINK_NOFOLLOW,
        )?)
    }

    /// How long ago a name in it came or went; none when the clock was set back since.
    pub(crate) fn unchanged_for(&self) -> Option<Duration> {
        let changed = rustix::fs::fstat(&self.descriptor).ok()?.st_mtime;
        let changed = Duration::from_secs(u64::try_from(changed).ok()?);
        Duration::from_millis(unix_millis()).checked_sub(changed)
    }

    /// Whether the folder itself was removed.
    pub(crate) fn is_removed(&self) -> bool {
        rustix::fs::fstat(&self.descriptor).is_ok_and(|stat| stat.st_nlink == 0)
    }

    /// Where a socket in it is bound and reached: the length of a socket's path is bounded
    /// by the system, and that of a home is not.
    pub(crate) fn socket(&self, name: &str) -> PathBuf {
        PathBuf::from(format!(
            "/proc/self/fd/{}/{name}",
            self.descriptor.as_raw_fd()
        ))
    }

    /// Makes the socket that was just bound private.
    pub(crate) fn make_private(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::chmodat(
            &self.descriptor,
            name,
            Mode::from_raw_mode(FILE_MODE),
            AtFlags::empty(),
        )?)
    }

    /// Makes the lock and takes it.
    pub(crate) fn take_lock(&self) -> io::Result<File> {
        let lock = self.make_file(LOCK)?;
        // Whoever asks whether it is held holds it for a moment.
        rustix::io::retry_on_intr(|| rustix::fs::flock(&lock, FlockOperation::LockExclusive))?;
        Ok(lock)
    }
}

/// Whether somebody holds the lock. `lock` must be opened by whoever asks.
pub(crate) fn is_held(lock: &File) -> io::Result<bool> {
    match rustix::fs::flock(lock, FlockOperation::NonBlockingLockShared) {
        Ok(()) => {
            rustix::fs::flock(lock, FlockOperation::Unlock)?;
            Ok(false)
        }
        Err(Errno::WOULDBLOCK) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

fn folder_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}
