//! Our own binary as a file that can be shown inside a mount namespace.
//!
//! `/proc/self/exe` cannot be mounted once the file was replaced, as an update does, so
//! its bytes are copied then, once, to our private folder.

#![expect(
    clippy::disallowed_methods,
    reason = "looks at our own binary, and copies it into our own folder"
)]

use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Where our binary is, or a copy of it.
#[derive(Debug, Default)]
pub(super) struct HelperFile {
    /// For a copy; private, and made when it is needed.
    folder: PathBuf,
    copy: Mutex<Option<PathBuf>>,
}

const RUNNING: &str = "/proc/self/exe";

impl HelperFile {
    /// `folder` is where a copy may be put.
    pub(super) fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            copy: Mutex::default(),
        }
    }

    /// A file with the bytes of the running binary.
    ///
    /// # Errors
    /// In words, when it was replaced and cannot be copied.
    pub(super) fn path(&self) -> Result<PathBuf, String> {
        let running = std::fs::metadata(RUNNING)
            .map_err(|error| format!("our own program cannot be looked at: {error}"))?;
        if let Ok(path) = std::fs::read_link(RUNNING)
            && is_same(&path, &running)
        {
            return Ok(path);
        }
        let mut copy = self.copy.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(path) = copy.as_ref().filter(|path| path.is_file()) {
            return Ok(path.clone());
        }
        let path = self.make(&running).map_err(|error| {
            format!(
                "Terret's program file was replaced while it runs, and cannot be copied to {}: {error}; \
                 start Terret again",
                self.folder.display()
            )
        })?;
        *copy = Some(path.clone());
        Ok(path)
    }

    fn make(&self, running: &std::fs::Metadata) -> std::io::Result<PathBuf> {
        if self.folder.as_os_str().is_empty() {
            return Err(std::io::Error::other("no folder was named for it"));
        }
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.folder)?;
        let name = format!("terret-{}-{}", running.dev(), running.ino());
        let path = self.folder.join(&name);
        let half = self.folder.join(format!("{name}.{}", std::process::id()));
        let mut from = std::fs::File::open(RUNNING)?;
        let mut to = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o700)
            .open(&half)?;
        std::io::copy(&mut from, &mut to)?;
        to.flush()?;
        drop(to);
        std::fs::rename(&half, &path)?;
        Ok(path)
    }
}

impl Drop for HelperFile {
    fn drop(&mut self) {
        let copy = self.copy.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(path) = copy.take() {
            // Another engine may use the same copy; it makes its own again when it is gone.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn is_same(path: &Path, running: &std::fs::Metadata) -> bool {
    std::fs::metadata(path)
        .is_ok_and(|found| found.dev() == running.dev() && found.ino() == running.ino())
}
