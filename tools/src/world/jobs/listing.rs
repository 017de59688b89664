//! Jobs of all sessions, from their files and without a live engine: for a person at a
//! command line, for the end of a session that was never opened, and against old files.
//!
//! Nothing here owns a job: looking at one does not lengthen its life. All of it blocks.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::helper::link::{Lines, line_of};
use crate::world::jobs::folder::{CONTROL, Folder};
use crate::world::jobs::record::{Record, millis, unix_millis};
use crate::world::jobs::row::{Fate, Row};
use crate::world::jobs::wire::{Report, Request};
use crate::world::jobs::{Job, JobError, JobId, JobOutput, disk, files};

/// A job that ended so long ago is removed when nobody opened its session since.
const OLD: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Folders that are looked at in one go.
const LOOKS: usize = 512;
/// A keeper answers at once.
const ANSWER: Duration = Duration::from_secs(2);
/// Beyond the grace of a stop.
const BEYOND: Duration = Duration::from_secs(5);

/// A job and the session that it is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub session: String,
    pub job: Job,
}

/// All jobs below the folder that holds those of all sessions, oldest first. What cannot
/// be read is left out, with a warning in the log.
///
/// # Errors
/// When that folder cannot be read; one that is not there has none.
pub fn list(root: &Path) -> Result<Vec<Listed>, JobError> {
    let mut found = Vec::new();
    for session in names(root)? {
        for name in names(&root.join(&session))? {
            let Some(id) = JobId::parse(&name) else {
                continue;
            };
            match look(root, &session, &id) {
                Ok(Some(job)) => found.push(Listed {
                    session: session.clone(),
                    job,
                }),
                Ok(None) => {}
                Err(error) => tracing::warn!(job = %id, %error, "a job cannot be looked at"),
            }
        }
    }
    found.sort_by(|one, other| {
        (one.job.started_at, &one.job.id).cmp(&(other.job.started_at, &other.job.id))
    });
    Ok(found)
}

/// The session that a job is of.
///
/// # Errors
/// [`JobError::NoSuchJob`].
pub fn session_of(root: &Path, id: &JobId) -> Result<String, JobError> {
    names(root)?
        .into_iter()
        .find(|session| root.join(session).join(id.as_str()).is_dir())
        .ok_or_else(|| JobError::NoSuchJob(id.to_string()))
}

/// Output from byte `from` on, as [`crate::world::jobs::Jobs::read`] gives it without
/// waiting.
///
/// # Errors
/// [`JobError::NoSuchJob`], or what the system says.
pub fn read(root: &Path, id: &JobId, from: u64, most: usize) -> Result<JobOutput, JobError> {
    let session = session_of(root, id)?;
    let job = look(root, &session, id)?.ok_or_else(|| JobError::NoSuchJob(id.to_string()))?;
    let place = root.join(&session).join(id.as_str());
    let folder = Folder::open(&place).map_err(files(&place))?;
    disk::output(&folder, job, from, most).map_err(files(&place))
}

/// Ends a job, by its keeper and without owning it, and gives its state afterwards.
///
/// # Errors
/// [`JobError::NoSuchJob`], or [`JobError::Keeper`] when it does not do it.
pub fn stop(root: &Path, id: &JobId, grace: Duration) -> Result<Job, JobError> {
    let session = session_of(root, id)?;
    let place = root.join(&session).join(id.as_str());
    let unknown = || JobError::NoSuchJob(id.to_string());
    let folder = Folder::open(&place).map_err(files(&place))?;
    let begun = Instant::now();
    let mut asked = false;
    loop {
        if let Ok(mut stream) = UnixStream::connect(folder.socket(CONTROL)) {
            asked = true;
            // What it says counts only when it is in the file.
            let _ = ask_to_stop(&mut stream, grace);
        }
        let (row, _) = open(&folder, &session, id)?;
        match row.fate().map_err(files(&place))? {
            Fate::Over(report) => {
                row.update(*report);
                return Ok(row.job());
            }
            Fate::Void => return Err(unknown()),
            Fate::Kept if begun.elapsed() > grace + BEYOND => {
                return Err(JobError::Keeper(
                    if asked {
                        "it was asked to end the job, and the job is still there"
                    } else {
                        "its socket cannot be reached"
                    }
                    .to_owned(),
                ));
            }
            Fate::Kept => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Ends all jobs of a session, those that were to be kept included, and removes its
/// folder: the session was deleted.
///
/// # Errors
/// What is still there, and why.
pub fn discard(folder: &Path) -> Result<(), JobError> {
    let (Some(root), Some(session)) = (folder.parent(), folder.file_name()) else {
        return Ok(());
    };
    let ids: Vec<JobId> = names(folder)?
        .iter()
        .filter_map(|name| JobId::parse(name))
        .collect();
    // All at once: each may take its grace.
    std::thread::scope(|scope| {
        let stops: Vec<_> = ids
            .iter()
            .map(|id| scope.spawn(|| stop(root, id, crate::world::process::CLOSE_GRACE)))
            .collect();
        for stop in stops {
            let _ = stop.join();
        }
    });
    let parent = match Folder::open(folder) {
        Ok(parent) => parent,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(files(folder)(error)),
    };
    let session = session.to_string_lossy();
    for name in parent.names().map_err(files(folder))? {
        if JobId::parse(&name).is_some()
            && let Ok(job) = parent.open_in(&name)
            && let Ok((row, _)) = Row::open(
                job,
                &JobId::parse(&name).unwrap_or_else(|| JobId::from_bytes([0; 8])),
                &session,
            )
            && matches!(row.fate(), Ok(Fate::Kept))
        {
            return Err(JobError::Keeper(format!(
                "the job `{name}` does not end; its files stay"
            )));
        }
        parent.remove_folder(&name).map_err(files(folder))?;
    }
    let above = Folder::open(root).map_err(files(root))?;
    above.remove_folder(&session).map_err(files(folder))
}

/// Removes what ended long ago in other sessions than that of `folder`. Looks at a bounded
/// number of folders, and never touches what may run.
pub(crate) fn collect_garbage(folder: &Path) {
    collect(folder, OLD);
}

pub(crate) fn collect(folder: &Path, old: Duration) {
    let (Some(root), Some(own)) = (folder.parent(), folder.file_name()) else {
        return;
    };
    let mut looks = 0;
    for session in names(root).unwrap_or_default() {
        if *session == *own {
            continue;
        }
        let Ok(parent) = Folder::open(&root.join(&session)) else {
            continue;
        };
        let jobs = parent.names().unwrap_or_default();
        // One that was just made waits for its first job.
        let is_stale = parent.unchanged_for().is_some_and(|time| time >= old);
        let mut left = jobs.len();
        for name in jobs {
            looks += 1;
            if looks > LOOKS {
                return;
            }
            if is_old(&parent, &name, old) && parent.remove_folder(&name).is_ok() {
                left -= 1;
            }
        }
        if left == 0
            && is_stale
            && let Ok(above) = Folder::open(root)
        {
            // Fails when something came in meanwhile, which is right.
            let _ = above.remove_empty(&session);
        }
    }
}

fn is_old(parent: &Folder, name: &str, old: Duration) -> bool {
    let Ok(folder) = parent.open_in(name) else {
        return false;
    };
    // A job that lives, and one of another version, have no end that could be read.
    let Ok(record) = Record::read(&folder) else {
        return false;
    };
    record.phase.is_final()
        && record
            .ended_at
            .is_some_and(|at| unix_millis().saturating_sub(at) >= millis(old))
}

/// How a job stands; none when there is none.
fn look(root: &Path, session: &str, id: &JobId) -> Result<Option<Job>, JobError> {
    let place = root.join(session).join(id.as_str());
    let folder = Folder::open(&place).map_err(files(&place))?;
    let (row, _) = open(&folder, session, id)?;
    if !row.is_over() {
        if let Some(report) = hear(&folder) {
            row.update(report);
        } else {
            match row.look().map_err(files(&place))? {
                Fate::Over(report) => row.update(*report),
                Fate::Void => return Ok(None),
                Fate::Kept => {}
            }
        }
    }
    Ok(Some(row.job()))
}

fn open(
    folder: &Folder,
    session: &str,
    id: &JobId,
) -> Result<(std::sync::Arc<Row>, tokio::sync::mpsc::Receiver<Request>), JobError> {
    let unusable = |error: &dyn std::fmt::Display| {
        JobError::Unavailable(format!("the job `{id}` cannot be used: {error}"))
    };
    let folder = folder.try_clone().map_err(|error| unusable(&error))?;
    Row::open(folder, id, session).map_err(|error| unusable(&error))
}

/// What a keeper says first to whoever connects.
fn hear(folder: &Folder) -> Option<Report> {
    let mut stream = UnixStream::connect(folder.socket(CONTROL)).ok()?;
    stream.set_read_timeout(Some(ANSWER)).ok()?;
    let mut lines = Lines::default();
    let begun = Instant::now();
    while begun.elapsed() < ANSWER {
        if let Some(report) = lines.next::<Report>().ok()? {
            return Some(report);
        }
        if !lines.fill(&mut stream).ok()? {
            return None;
        }
    }
    None
}

fn ask_to_stop(stream: &mut UnixStream, grace: Duration) -> std::io::Result<()> {
    stream.set_read_timeout(Some(grace + BEYOND))?;
    stream.write_all(&line_of(&Request::Stop {
        grace_ms: millis(grace),
    })?)?;
    let begun = Instant::now();
    let mut lines = Lines::default();
    while begun.elapsed() < grace + BEYOND && lines.fill(stream)? {
        while let Some(report) = lines.next::<Report>()? {
            if report.phase.is_final() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Names in a folder; one that is not there has none.
fn names(folder: &Path) -> Result<Vec<String>, JobError> {
    match Folder::open(folder).and_then(|folder| folder.names()) {
        Ok(names) => Ok(names),
        Err(error)
            if matches!(
                error.kind(),
                std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(Vec::new())
        }
        Err(error) => Err(files(folder)(error)),
    }
}
