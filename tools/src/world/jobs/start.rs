//! Starts a job: its folder first, then its keeper, then the program.
//!
//! The folder appears under its name with the lock held and a state file that says
//! `starting`. An engine that dies here leaves a folder whose lock is free, of which is
//! known that nothing was started.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::helper::link::{self, Lines, Step};
use crate::helper::{HelperProgram, Role};
use crate::world::jobs::folder::Folder;
use crate::world::jobs::record::{Phase, Record};
use crate::world::jobs::row::Row;
use crate::world::jobs::wire::{Order, Request, Started};
use crate::world::jobs::{JobError, JobsSettings, files};
use crate::world::process::ProcessError;

/// Names of folders that are being made.
pub(crate) const MAKING: &str = ".making-";
/// Names of folders that are being removed.
pub(crate) const REMOVING: &str = ".removing-";
/// Tries to make a folder that somebody clears away each time.
const MAKING_TRIES: usize = 100;
/// A keeper answers in milliseconds; the machine may be slow.
const ANSWER: Duration = Duration::from_secs(20);

/// All that a start needs, for the blocking pool.
pub(crate) struct Start {
    pub(crate) settings: Arc<JobsSettings>,
    pub(crate) record: Record,
    pub(crate) helper: HelperProgram,
    pub(crate) order: link::Order,
    pub(crate) input: Option<OwnedFd>,
}

/// A job that was started.
pub(crate) struct Begun {
    pub(crate) row: Arc<Row>,
    pub(crate) requests: mpsc::Receiver<Request>,
    /// Has to be waited for.
    pub(crate) keeper: Child,
}

/// The points of a start where a test lets the engine die.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Point {
    Folder,
    Lock,
    Record,
    Keeper,
    Running,
    Forgetting,
}

impl Start {
    /// Blocks until the program runs.
    pub(crate) fn run(self) -> Result<Begun, JobError> {
        let place = self.settings.folder.clone();
        let name = self.record.id.to_string();
        let making = format!("{MAKING}{name}");
        let (parent, folder) = make(&place, &making).map_err(files(&place))?;
        reached(Point::Folder);
        let made = (|| {
            let lock = folder.take_lock()?;
            reached(Point::Lock);
            self.record.write(&folder)?;
            parent.rename(&making, &name)?;
            Ok(lock)
        })();
        let lock = match made {
            Ok(lock) => lock,
            Err(error) => {
                let _ = parent.remove_folder(&making);
                let _ = parent.remove_folder(&name);
                return Err(files(&place)(error));
            }
        };
        reached(Point::Record);
        let begun = self.keeper(folder, &lock);
        // From here on the keeper alone holds it.
        drop(lock);
        if begun.is_err() {
            let _ = parent.remove_folder(&name);
        }
        begun
    }

    fn keeper(self, folder: Folder, lock: &std::fs::File) -> Result<Begun, JobError> {
        let cwd = PathBuf::from(OsString::from(self.order.cwd.clone()));
        let program = self
            .order
            .argv
            .first()
            .cloned()
            .ok_or(ProcessError::Empty)?;
        let failed = |source| ProcessError::Spawn {
            program: program.into(),
            cwd,
            source,
        };
        let order = Order {
            leader: self.order,
            orphan_grace_ms: super::record::millis(self.settings.orphan_grace),
            grace_ms: super::record::millis(self.settings.grace),
        };
        let mut descriptors = vec![folder.descriptor().as_fd(), lock.as_fd()];
        descriptors.extend(self.input.as_ref().map(AsFd::as_fd));
        let helper = self
            .helper
            .start(Role::Keeper, &order, &descriptors)
            .map_err(|error| JobError::Keeper(format!("it cannot be started: {error}")))?;
        reached(Point::Keeper);
        let mut keeper = helper.child;
        match answer(helper.link) {
            Ok(Some(Started::Running)) => {}
            Ok(Some(Started::Unkept { text })) => {
                let _ = keeper.wait();
                return Err(files(&self.settings.folder)(io::Error::other(text)));
            }
            Ok(Some(Started::Failed { step, errno })) => {
                let _ = keeper.wait();
                let error = io::Error::from_raw_os_error(errno);
                let error = match step {
                    Step::Folder => io::Error::new(error.kind(), format!("its folder: {error}")),
                    Step::Program => error,
                };
                return Err(failed(error).into());
            }
            Ok(None) | Err(_) => {
                // Its death takes the program with it, and the mark finds the rest.
                let _ = keeper.kill();
                let _ = keeper.wait();
                super::sweep::sweep(&self.record.mark);
                return Err(JobError::Keeper("it ended while it started".to_owned()));
            }
        }
        reached(Point::Running);
        let record = Record {
            phase: Phase::Running { leader: None },
            ..self.record
        };
        let (row, requests) = Row::new(folder, record, None);
        Ok(Begun {
            row,
            requests,
            keeper,
        })
    }
}

/// The session's folder and in it that of a job. Whoever clears away empty folders may take
/// the session's between its making and its first use; then it is made once more.
fn make(place: &Path, making: &str) -> io::Result<(Folder, Folder)> {
    let mut tries = 0;
    loop {
        let made = Folder::make(place).and_then(|parent| {
            let folder = parent.make_in(making)?;
            Ok((parent, folder))
        });
        match made {
            Err(error) if error.kind() == io::ErrorKind::NotFound && tries < MAKING_TRIES => {
                tries += 1;
            }
            made => return made,
        }
    }
}

fn answer(mut link: UnixStream) -> io::Result<Option<Started>> {
    link.set_read_timeout(Some(ANSWER))?;
    let mut lines = Lines::default();
    loop {
        if let Some(started) = lines.next()? {
            return Ok(Some(started));
        }
        let before = std::time::Instant::now();
        if !lines.fill(&mut link)? {
            return Ok(None);
        }
        if before.elapsed() >= ANSWER {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}

/// Nothing, but in a test whose engine dies at this point.
#[cfg(not(test))]
pub(crate) fn reached(_point: Point) {}

#[cfg(test)]
pub(crate) use crate::world::jobs::tests::reached;
