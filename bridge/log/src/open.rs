//! The one pass over a log that is opened for writing: check, fold, and repair the tail.

#![expect(
    clippy::disallowed_methods,
    reason = "the log file and its torn tails belong to this module"
)]

use std::fs::{self, File};
use std::io::{self, BufReader, Seek as _, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use crate::error::StoreError;
use crate::id::SessionId;
use crate::layer::FileLayer;
use crate::line::{self, BadLine};
use crate::platform;
use crate::projection::SessionState;
use crate::reader::{Found, LineReader};
use crate::session_log::Position;

/// What the pass found.
pub(crate) struct Scan {
    /// Behind the last good line.
    pub(crate) position: Position,
    pub(crate) state: SessionState,
    /// Bytes behind it that are no lines.
    pub(crate) torn: Option<u64>,
}

/// Reads the whole log.
///
/// # Errors
/// [`StoreError::Broken`] when a good line follows a bad one, or a whole line is not
/// the one that was written; [`StoreError::Newer`]; [`StoreError::Io`].
pub(crate) fn scan(id: &SessionId, file: &File, path: &Path) -> Result<Scan, StoreError> {
    let mut source = file;
    source
        .seek(SeekFrom::Start(0))
        .map_err(StoreError::io("read", path))?;
    let mut lines = LineReader::new(BufReader::with_capacity(64 * 1024, source), 0);
    let mut position = Position::START;
    let mut state = SessionState::default();
    let mut junk: Option<String> = None;
    loop {
        let found = lines.next_line().map_err(StoreError::io("read", path))?;
        let line = match found {
            Found::Line(line) => line,
            Found::TooLong => {
                junk.get_or_insert_with(|| "a line is longer than any that is written".to_owned());
                continue;
            }
            Found::Unfinished | Found::End => break,
        };
        let broken = |why: String| StoreError::Broken {
            id: id.clone(),
            seq: position.next_seq,
            why,
        };
        if let Some(why) = &junk {
            if line::claimed_seq(line).is_some() {
                return Err(broken(why.clone()));
            }
            continue;
        }
        match line::decode(line, position.next_seq, Some(&position.chain)) {
            Ok((event, chain)) => {
                position.follow(&event, chain, lines.offset);
                state.apply(&event);
            }
            Err(BadLine::Junk(why)) => junk = Some(why),
            Err(BadLine::Wrong(why)) => return Err(broken(why)),
            Err(BadLine::Newer(found)) => {
                return Err(StoreError::Newer {
                    id: id.clone(),
                    found,
                });
            }
        }
    }
    let size = file
        .metadata()
        .map_err(StoreError::io("look at", path))?
        .len();
    let torn = size.checked_sub(position.length).filter(|bytes| *bytes > 0);
    Ok(Scan {
        position,
        state,
        torn,
    })
}

/// Copies the torn tail to a file beside the log, then cuts it off. Gives the name of
/// that file.
pub(crate) fn set_aside(
    layer: &Arc<dyn FileLayer>,
    file: &File,
    path: &Path,
    scan: &Scan,
) -> Result<String, StoreError> {
    let seq = scan.position.next_seq;
    let mut tries = 0_u32;
    let (aside, mut kept) = loop {
        let suffix = if tries == 0 {
            format!("torn-{seq}")
        } else {
            format!("torn-{seq}-{tries}")
        };
        let aside = path.with_extension(suffix);
        match platform::private_file()
            .write(true)
            .create_new(true)
            .open(&aside)
        {
            Ok(kept) => break (aside, kept),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => tries += 1,
            Err(error) => return Err(StoreError::io("make", &aside)(error)),
        }
    };
    let mut source = file;
    let result = source
        .seek(SeekFrom::Start(scan.position.length))
        .and_then(|_| io::copy(&mut source, &mut kept))
        .and_then(|_| layer.sync_data(&kept, &aside));
    if let Err(error) = result {
        // Half a copy would only mislead; the log still has the bytes.
        let _ = fs::remove_file(&aside);
        return Err(StoreError::io("write", &aside)(error));
    }
    layer
        .truncate(file, path, scan.position.length)
        .map_err(StoreError::io("cut", path))?;
    Ok(aside
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned())
}
