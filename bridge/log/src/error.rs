//! What can go wrong with the files of a log: the thing, the cause and the way out.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::blob::BlobId;
use crate::id::SessionId;

/// Why a session could not be opened, read, copied or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    #[error("there is no session `{id}` here; `terret sessions list` shows those that are")]
    NotFound { id: SessionId },
    #[error("a session `{id}` is there already; use another id")]
    Exists { id: SessionId },
    /// Another writer, here or in another process, has the session.
    #[error("session `{id}` is open for writing by {by}; close it there, or read it only")]
    Held { id: SessionId, by: String },
    /// Written by a newer version: a format number or an event type unknown here.
    #[error("session `{id}` was written by a newer terret ({found}); update terret to open it")]
    Newer { id: SessionId, found: String },
    /// Something before the last line is not as it was written: the session can be
    /// read but not continued.
    #[error(
        "the log of session `{id}` is damaged at event {seq}: {why}; what comes before it can \
         still be read, but the session cannot go on: start a new one"
    )]
    Broken {
        id: SessionId,
        seq: u64,
        why: String,
    },
    #[error(
        "`{}` is on a network filesystem ({kind}), where file locks and durable writes cannot be trusted; \
         set TERRET_HOME to a folder on a local disk",
        path.display()
    )]
    NetworkFs { path: PathBuf, kind: String },
    #[error("cannot {what} `{}`: {source}", path.display())]
    Io {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// A fork may not cut here.
    #[error("cannot fork session `{id}` after {boundary} events: {why}")]
    Boundary {
        id: SessionId,
        boundary: u64,
        why: String,
    },
    #[error("line {line} of the import is refused: {why}; nothing was imported")]
    Import { line: u64, why: String },
    #[error(transparent)]
    Append(#[from] AppendError),
    /// The list index failed; it can always be removed and is built anew.
    #[error("the session index `{}` failed: {source}; remove the file and it is built anew", path.display())]
    Index {
        path: PathBuf,
        source: rusqlite::Error,
    },
    #[error("`{0}` is no cursor of this list; start again without one")]
    BadCursor(String),
    #[error("`{0}` cannot be searched for: use at least one letter or digit")]
    BadQuery(String),
}

impl StoreError {
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source }
    }
}

/// Why content could not be kept or had again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BlobError {
    #[error(
        "content of {bytes} bytes is over the limit of {limit} bytes a blob; keep it in a file instead"
    )]
    TooLarge { bytes: u64, limit: u64 },
    #[error(
        "the blob `{id}` is not in the store; it was removed, or a power loss came before it was on disk"
    )]
    Missing { id: BlobId },
    #[error("the blob `{id}` does not have the content that its name says; it was changed or torn")]
    Damaged { id: BlobId },
    #[error("cannot {what} `{}`: {source}", path.display())]
    Io {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

impl BlobError {
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source }
    }
}

/// Why an event was not appended, or not made durable. Nothing of it is in the log,
/// except for [`AppendError::Sync`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    #[error(
        "an event of {bytes} bytes is over the limit of {limit} bytes; keep large content as a blob"
    )]
    TooLarge { bytes: u64, limit: u64 },
    #[error("`{field}` of `{event}` is not a finite number, which JSON cannot hold (check 4)")]
    NotFinite {
        event: &'static str,
        field: &'static str,
    },
    #[error("`{event}` nests deeper than {limit} levels, so it could not be read back")]
    TooDeep { event: &'static str, limit: usize },
    #[error(
        "a compaction up to event {upto} does not fit: it must lie before event {next} and not before {last}"
    )]
    Compaction { upto: u64, next: u64, last: u64 },
    #[error("the event could not be written as JSON: {0}")]
    Encode(#[from] serde_json::Error),
    /// Someone moved, replaced or removed the file under us.
    #[error("`{}` was replaced or removed while it was open; this session cannot go on, open it again", path.display())]
    Replaced { path: PathBuf },
    /// Someone wrote to the file beside us.
    #[error(
        "`{}` has {found} bytes where {expected} were written; something else writes to it, open the session again",
        path.display()
    )]
    Foreign {
        path: PathBuf,
        expected: u64,
        found: u64,
    },
    #[error("the disk is full: nothing was added to `{}`; free some space and try again", path.display())]
    Full { path: PathBuf, source: io::Error },
    #[error("cannot write to `{}`: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    /// A write failed half-way and could not be taken back.
    #[error("`{}` could not be cut back after a failed write ({why}); open the session again to repair it", path.display())]
    Stuck { path: PathBuf, why: String },
    /// The event is in the file, but the disk did not confirm it.
    #[error("the disk did not confirm `{}`: {why}; what was written last may be lost at a power failure", path.display())]
    Sync { path: PathBuf, why: Arc<str> },
}
