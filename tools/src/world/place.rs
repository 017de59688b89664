//! One file's place below a root, and what is done there on the blocking threads.

use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::files::{FileError, MAX_WHOLE};
use super::open;
use super::text::{self, Document, LineEnd};

/// How many files beside a new one are asked for their line ends.
const NEIGHBOURS: usize = 20;
/// How much of each is read.
const NEIGHBOUR_HEAD: u64 = 8 * 1024;

/// A file's place: the root it is opened below, and the way from there.
pub(super) struct Place {
    pub(super) path: PathBuf,
    pub(super) root: PathBuf,
    pub(super) relative: PathBuf,
}

impl Place {
    /// Opens it when it is a regular file, and tells its size.
    pub(super) fn read(&self) -> Result<(std::fs::File, u64), FileError> {
        let file =
            open::reading(&self.root, &self.relative).map_err(|source| match source.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => FileError::Missing {
                    path: self.path.clone(),
                },
                // A socket cannot be opened at all.
                _ if source.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error()) => {
                    FileError::Special {
                        path: self.path.clone(),
                        kind: "socket",
                    }
                }
                _ => self.system(source),
            })?;
        let metadata = file.metadata().map_err(|source| self.system(source))?;
        let kind = metadata.file_type();
        let special = |kind| {
            Err(FileError::Special {
                path: self.path.clone(),
                kind,
            })
        };
        if kind.is_dir() {
            return Err(FileError::Folder {
                path: self.path.clone(),
            });
        }
        if kind.is_fifo() {
            return special("FIFO");
        }
        if kind.is_socket() {
            return special("socket");
        }
        if kind.is_char_device() || kind.is_block_device() {
            return special("device");
        }
        if !kind.is_file() {
            return special("special file");
        }
        Ok((file, metadata.len()))
    }

    pub(super) fn system(&self, source: io::Error) -> FileError {
        FileError::System {
            path: self.path.clone(),
            source,
        }
    }
}

/// Runs file work where it may wait.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, FileError> + Send + 'static,
) -> Result<T, FileError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| {
            Err(FileError::System {
                path: PathBuf::new(),
                source: io::Error::other(error.to_string()),
            })
        })
}

/// All bytes, and an error when there turn out to be more than can be edited.
pub(super) fn whole(file: &mut std::fs::File, path: &Path) -> Result<Vec<u8>, FileError> {
    let mut bytes = Vec::new();
    file.take(MAX_WHOLE + 1)
        .read_to_end(&mut bytes)
        .map_err(|source| FileError::System {
            path: path.to_owned(),
            source,
        })?;
    if bytes.len() as u64 > MAX_WHOLE {
        return Err(FileError::TooLarge {
            path: path.to_owned(),
            size: bytes.len() as u64,
        });
    }
    Ok(bytes)
}

/// Bytes as text, with the path in the refusal.
pub(super) fn as_document(path: &Path, bytes: Vec<u8>) -> Result<Document, FileError> {
    Document::decode(bytes).map_err(|reason| FileError::NotText {
        path: path.to_owned(),
        reason,
    })
}

/// What most lines of the files beside this one end with.
#[expect(
    clippy::disallowed_methods,
    reason = "the folder of a place that was resolved inside the roots"
)]
pub(super) fn neighbours(place: &Place) -> LineEnd {
    let Some(folder) = place.path.parent() else {
        return LineEnd::Lf;
    };
    let extension = place.path.extension();
    let Ok(entries) = std::fs::read_dir(folder) else {
        return LineEnd::Lf;
    };
    let mut files: Vec<PathBuf> = entries
        .take(NEIGHBOURS * 50)
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
        .map(|entry| entry.path())
        .collect();
    // Files of the same kind speak first; the names make the choice repeatable.
    files.sort_by_key(|path| (path.extension() != extension, path.clone()));
    let (mut pairs, mut plain) = (0_usize, 0_usize);
    for path in files.iter().take(NEIGHBOURS) {
        let relative = path.strip_prefix(&place.root).unwrap_or(path);
        let Ok(file) = open::reading(&place.root, relative) else {
            continue;
        };
        let mut head = Vec::new();
        if file.take(NEIGHBOUR_HEAD).read_to_end(&mut head).is_err() || text::looks_binary(&head) {
            continue;
        }
        let lines = head.iter().filter(|byte| **byte == b'\n').count();
        let paired = head.windows(2).filter(|pair| *pair == b"\r\n").count();
        // One file, one vote.
        match (paired * 2 > lines, lines) {
            (_, 0) => {}
            (true, _) => pairs += 1,
            (false, _) => plain += 1,
        }
    }
    if pairs > plain {
        LineEnd::CrLf
    } else {
        LineEnd::Lf
    }
}
