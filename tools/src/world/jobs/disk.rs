//! A session's folder of jobs as it is on the disk: what is found there, pieces of a job's
//! output in whole characters, and the removal of a job. Blocks.

use std::path::Path;
use std::sync::Arc;

use tokio::sync::mpsc;

use crate::world::jobs::folder::{Folder, LOCK, is_held};
use crate::world::jobs::record::RecordError;
use crate::world::jobs::row::Row;
use crate::world::jobs::start::{MAKING, Point, REMOVING, reached};
use crate::world::jobs::wire::Request;
use crate::world::jobs::{Job, JobId, JobOutput, spool};

/// A piece of what is there now.
pub(crate) fn output(
    folder: &Folder,
    mut job: Job,
    from: u64,
    most: usize,
) -> std::io::Result<JobOutput> {
    let piece = piece(folder, from, most, !job.state.is_running(), job.written)?;
    job.written = job.written.max(piece.upto);
    Ok(JobOutput {
        job,
        bytes: piece.bytes,
        missing: piece.missing,
        upto: piece.upto,
    })
}

pub(super) struct Piece {
    pub(super) bytes: Vec<u8>,
    pub(super) missing: u64,
    pub(super) upto: u64,
    /// Where the output ends that was seen, a held-back part included.
    pub(super) seen: u64,
}

/// What is there from a place on, in whole characters (R097).
pub(super) fn piece(
    folder: &Folder,
    from: u64,
    most: usize,
    is_over: bool,
    known: u64,
) -> std::io::Result<Piece> {
    let most = most.max(4);
    let mut start = from;
    loop {
        let found = spool::read(folder, start, most)?;
        let mut bytes = found.bytes;
        let at = found.at;
        let seen = at + bytes.len() as u64;
        if bytes.is_empty() {
            // What was told and is in no file is gone.
            let upto = known.max(start);
            return Ok(Piece {
                bytes,
                missing: upto - from,
                upto,
                seen: upto,
            });
        }
        // After a gap the rest of a character means nothing.
        let rest = if at > from {
            bytes
                .iter()
                .take(3)
                .take_while(|byte| matches!(byte, 0x80..=0xbf))
                .count()
        } else {
            0
        };
        bytes.drain(..rest);
        let at = at + rest as u64;
        let unfinished = spool::unfinished(&bytes);
        let is_cut = unfinished > 0
            && (found.gap_follows || bytes.len() + rest >= most || !is_over || seen < known);
        if is_cut {
            bytes.truncate(bytes.len() - unfinished);
            if bytes.is_empty() && (found.gap_follows || (is_over && seen < known)) {
                start = seen;
                continue;
            }
        }
        return Ok(Piece {
            missing: at - from,
            upto: at + bytes.len() as u64,
            bytes,
            seen,
        });
    }
}

pub(super) type Found = (Arc<Row>, mpsc::Receiver<Request>);

/// The first look of an engine also clears away what an earlier one did not finish: the
/// session has one engine, and this one has not begun anything yet.
pub(super) fn scan(
    place: &Path,
    session: &str,
    known: &[JobId],
    is_first: bool,
) -> std::io::Result<Vec<Found>> {
    let parent = match Folder::open(place) {
        Ok(parent) => parent,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for name in parent.names()? {
        if is_first
            && (name.starts_with(REMOVING)
                || (name.starts_with(MAKING) && is_abandoned(&parent, &name)))
        {
            let _ = parent.remove_folder(&name);
            continue;
        }
        let Some(id) = JobId::parse(&name).filter(|id| !known.contains(id)) else {
            continue;
        };
        match parent
            .open_in(&name)
            .map_err(RecordError::from)
            .and_then(|folder| Row::open(folder, &id, session))
        {
            Ok(row) => found.push(row),
            Err(error) => {
                tracing::warn!(job = %id, %error, "a job's folder is left alone");
            }
        }
    }
    Ok(found)
}

/// A folder that nobody is making any more.
fn is_abandoned(parent: &Folder, name: &str) -> bool {
    let Ok(folder) = parent.open_in(name) else {
        return false;
    };
    match folder.file(LOCK) {
        Ok(lock) => is_held(&lock).is_ok_and(|held| !held),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

/// Under another name first, so that a crash in between leaves no job that is half there.
pub(super) fn remove(place: &Path, id: &JobId) -> std::io::Result<()> {
    let parent = Folder::open(place)?;
    let removing = format!("{REMOVING}{id}");
    match parent.rename(id.as_str(), &removing) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    }
    reached(Point::Forgetting);
    parent.remove_folder(&removing)
}
