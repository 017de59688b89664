//! The proof that a log is as it was written: nothing changed, nothing lost.

use crate::error::StoreError;
use crate::id::SessionId;
use crate::reader::open_log;
use crate::store::Store;

/// What a check of a session's file found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Whole events that could be read.
    pub events: u64,
    /// Size of the file.
    pub bytes: u64,
    /// Bytes behind the last event that are no event: a torn write, cut off when the
    /// session is next opened for writing.
    pub torn_bytes: u64,
    /// Hash of the last event. Kept elsewhere, it proves later that nothing before it
    /// was changed.
    pub head: Option<String>,
    /// What is wrong, in the order of the file; empty for a sound log.
    pub problems: Vec<Problem>,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The number of the event that should be there.
    pub seq: u64,
    pub why: String,
}

impl Report {
    /// True when every event is as it was written. A torn tail alone is sound: what is
    /// torn was never acknowledged.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}

impl Store {
    /// Checks a session's chain, numbers and contents. Changes nothing and needs no lock.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Newer`], [`StoreError::Io`]; what is
    /// wrong with the log itself is in the report.
    pub fn verify(&self, id: &SessionId) -> Result<Report, StoreError> {
        let path = self.log_path(id);
        let mut reader = self.read(id, 0)?;
        let (mut events, mut problems) = (0, Vec::new());
        for event in reader.by_ref() {
            match event {
                Ok(_) => events += 1,
                Err(StoreError::Broken { seq, why, .. }) => problems.push(Problem { seq, why }),
                Err(other) => return Err(other),
            }
        }
        let size = open_log(id, &path)?
            .metadata()
            .map_err(StoreError::io("look at", &path))?
            .len();
        let head = reader
            .last_chain()
            .filter(|_| events > 0)
            .map(|chain| String::from_utf8_lossy(&chain).into_owned());
        Ok(Report {
            events,
            bytes: size,
            torn_bytes: size.saturating_sub(reader.offset()),
            head,
            problems,
        })
    }
}
