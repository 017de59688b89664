//! The few file operations that decide whether an event is kept, as a seam: tests
//! put a layer here that fails the nth write or forgets what was not synced.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

use crate::platform;

/// The operations of the log that can lose data.
pub trait FileLayer: Send + Sync {
    /// One `write` to a file that is open for appending; says how many bytes it took.
    ///
    /// # Errors
    /// Whatever the system says; nothing was taken then.
    fn append(&self, file: &File, path: &Path, bytes: &[u8]) -> io::Result<usize>;

    /// Cuts the file to `length` bytes.
    ///
    /// # Errors
    /// Whatever the system says.
    fn truncate(&self, file: &File, path: &Path, length: u64) -> io::Result<()>;

    /// Makes the file's content outlive a power loss.
    ///
    /// # Errors
    /// Whatever the system says.
    fn sync_data(&self, file: &File, path: &Path) -> io::Result<()>;

    /// Makes the names in a folder outlive a power loss.
    ///
    /// # Errors
    /// Whatever the system says.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
}

/// The machine's files.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealFiles;

impl FileLayer for RealFiles {
    fn append(&self, file: &File, _path: &Path, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match (&*file).write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    fn truncate(&self, file: &File, _path: &Path, length: u64) -> io::Result<()> {
        file.set_len(length)
    }

    fn sync_data(&self, file: &File, _path: &Path) -> io::Result<()> {
        file.sync_data()
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        platform::sync_folder(folder)
    }
}
