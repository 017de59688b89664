//! Where a path really leads, and whether that is inside the granted folders
//! (`Terret spec §5.5`).
//!
//! The decision is made on the real path of the deepest part that exists. A dangling link
//! is followed one hop at a time, so that writing through it cannot create a file outside.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

/// Hops through dangling links before a path is taken for a loop.
pub const MAX_HOPS: usize = 40;

/// A granted folder: as it was named, and where it really is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    pub given: PathBuf,
    pub real: PathBuf,
}

/// Why a path has no real place.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// Links that lead in a circle, or too many of them.
    #[error("links lead in a circle")]
    Loop,
    #[error(transparent)]
    System(#[from] std::io::Error),
}

/// The path without `.` and `..`, seen from `base`; looks at names only.
pub fn absolute(base: &Path, path: &Path) -> PathBuf {
    let mut result = PathBuf::new();
    for component in base.join(path).components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                result.pop();
            }
            other => result.push(other),
        }
    }
    result
}

/// The real path behind an absolute one; parts that do not exist are kept as they are.
///
/// # Errors
/// [`PathError::Loop`] for circles and chains over [`MAX_HOPS`].
pub fn real(path: &Path) -> Result<PathBuf, PathError> {
    let mut path = absolute(Path::new("/"), path);
    for _ in 0..=MAX_HOPS {
        let (existing, tail) = deepest(&path)?;
        match existing.canonicalize() {
            Ok(mut found) => {
                found.extend(tail.iter().rev());
                return Ok(found);
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let target = existing.read_link()?;
                let folder = existing.parent().unwrap_or(Path::new("/")).canonicalize()?;
                let mut next = absolute(&folder, &target);
                next.extend(tail.iter().rev());
                path = next;
            }
            Err(error) if is_loop(&error) => return Err(PathError::Loop),
            Err(error) => return Err(error.into()),
        }
    }
    Err(PathError::Loop)
}

/// The deepest part of the path that exists or is a link, and the names after it, last first.
fn deepest(path: &Path) -> Result<(PathBuf, Vec<OsString>), PathError> {
    let mut existing = path.to_owned();
    let mut tail = Vec::new();
    loop {
        match existing.symlink_metadata() {
            Ok(_) => return Ok((existing, tail)),
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                let Some(name) = existing.file_name().map(ToOwned::to_owned) else {
                    return Err(error.into());
                };
                tail.push(name);
                existing.pop();
            }
            Err(error) if is_loop(&error) => return Err(PathError::Loop),
            Err(error) => return Err(error.into()),
        }
    }
}

fn is_loop(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}
