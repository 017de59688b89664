//! One job as this engine knows it.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{mpsc, watch};

use crate::world::jobs::folder::{Folder, LOCK, is_held};
use crate::world::jobs::record::{Phase, Record, RecordError, boot_id, millis, unix_millis};
use crate::world::jobs::sweep::sweep;
use crate::world::jobs::wire::{Report, Request};
use crate::world::jobs::{Job, JobId, spool, tail};

/// What may wait for a keeper that cannot be reached at the moment.
const REQUESTS: usize = 32;

/// A job's folder and what is known of the job.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) folder: Folder,
    /// Opened by us, to ask whether the keeper holds it; none when it cannot be opened.
    lock: Option<File>,
    /// What does not change of the state file, and what it held first.
    pub(crate) record: Record,
    /// The state file cannot be read; why.
    damage: Option<String>,
    snapshot: watch::Sender<Snapshot>,
    requests: mpsc::Sender<Request>,
}

/// What changes of a job.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    pub(crate) report: Report,
    /// When `report` was true.
    at: Instant,
    pub(crate) tail: String,
    /// The keeper answered, or the job is known to be over.
    pub(crate) is_settled: bool,
    /// Nothing was ever started: there is no such job.
    pub(crate) is_void: bool,
}

/// How a job stands whose keeper does not answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The keeper lives.
    Kept,
    /// It is over.
    Over(Box<Report>),
    /// Nothing was ever started.
    Void,
}

impl Row {
    /// Opens the folder of a job, and says what its keeper is to be asked. Blocks.
    ///
    /// # Errors
    /// When the folder is none of a job, or one that only another version can use.
    pub(crate) fn open(
        folder: Folder,
        id: &JobId,
        session: &str,
    ) -> Result<(Arc<Self>, mpsc::Receiver<Request>), RecordError> {
        let (record, damage) = match Record::read(&folder) {
            Ok(record) if record.session == session && record.id == *id => (record, None),
            Ok(_) => return Err(RecordError::Damaged("it belongs to another job".to_owned())),
            Err(error @ RecordError::Format(_)) => return Err(error),
            Err(error) => (
                Record::unknown(id.clone(), session.to_owned()),
                Some(error.to_string()),
            ),
        };
        Ok(Self::new(folder, record, damage))
    }

    /// With a state file that was just read or written. Blocks.
    pub(crate) fn new(
        folder: Folder,
        record: Record,
        damage: Option<String>,
    ) -> (Arc<Self>, mpsc::Receiver<Request>) {
        let (requests, receiver) = mpsc::channel(REQUESTS);
        let snapshot = Snapshot {
            report: record.report(),
            at: Instant::now(),
            tail: tail::of(&folder),
            is_settled: record.phase.is_final(),
            is_void: false,
        };
        let row = Self {
            lock: folder.file(LOCK).ok(),
            folder,
            record,
            damage,
            snapshot: watch::Sender::new(snapshot),
            requests,
        };
        (Arc::new(row), receiver)
    }

    pub(crate) fn id(&self) -> &JobId {
        &self.record.id
    }

    /// Looks at the state from now on.
    pub(crate) fn watch(&self) -> watch::Receiver<Snapshot> {
        self.snapshot.subscribe()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.snapshot.borrow().report.phase.is_final()
    }

    /// The job as it stands.
    pub(crate) fn job(&self) -> Job {
        let snapshot = self.snapshot.borrow().clone();
        self.job_of(&snapshot)
    }

    pub(crate) fn job_of(&self, snapshot: &Snapshot) -> Job {
        let report = &snapshot.report;
        let record = Record {
            phase: report.phase.clone(),
            keep: report.keep,
            ended_at: report.ended_at,
            ran_for: if report.phase.is_final() {
                report.ran_for
            } else {
                report.ran_for + millis(snapshot.at.elapsed())
            },
            written: report.written,
            dropped: report.dropped,
            notes: report.notes.clone(),
            ..self.record.clone()
        };
        record.job(snapshot.tail.clone())
    }

    /// Asks the keeper for something, when there is one. What it was not yet asked and
    /// has no room any more is given up: it does not answer.
    pub(crate) fn ask(&self, request: Request) {
        let _ = self.requests.try_send(request);
    }

    /// Takes over what the keeper said. Blocks.
    pub(crate) fn update(&self, report: Report) {
        let is_more = self.snapshot.borrow().report.written != report.written;
        let tail = (is_more || report.phase.is_final())
            .then(|| tail::of(&self.folder))
            // Of a spool that somebody removed the last that was seen is kept.
            .filter(|tail| !tail.is_empty());
        self.snapshot.send_modify(|snapshot| {
            snapshot.report = report;
            snapshot.at = Instant::now();
            snapshot.is_settled = true;
            if let Some(tail) = tail {
                snapshot.tail = tail;
            }
        });
    }

    /// Says that there never was such a job.
    pub(crate) fn make_void(&self) {
        self.snapshot.send_modify(|snapshot| {
            snapshot.is_settled = true;
            snapshot.is_void = true;
        });
    }

    /// What became of the job, when its keeper cannot be reached: when that is gone
    /// without having written the end, what is left of the job is killed. Blocks.
    ///
    /// # Errors
    /// When the lock cannot be asked.
    pub(crate) fn fate(&self) -> io::Result<Fate> {
        let fate = self.judge(sweep)?;
        if let Fate::Over(report) = &fate
            && self.damage.is_none()
            && matches!(report.phase, Phase::Lost { .. })
        {
            let mut record = self.record.clone();
            record.take_over(report);
            if let Err(error) = record.write(&self.folder) {
                tracing::warn!(job = %self.id(), %error, "the end of a job cannot be written down");
            }
        }
        Ok(fate)
    }

    /// As [`Self::fate`], and changes nothing.
    ///
    /// # Errors
    /// When the lock cannot be asked.
    pub(crate) fn look(&self) -> io::Result<Fate> {
        self.judge(|_| true)
    }

    fn judge(&self, sweep: impl Fn(&str) -> bool) -> io::Result<Fate> {
        if let Some(lock) = &self.lock
            && is_held(lock)?
        {
            return Ok(Fate::Kept);
        }
        // Asked after the lock: what the keeper wrote last is there now.
        let record = match &self.damage {
            None => Record::read(&self.folder),
            Some(why) => Err(RecordError::Damaged(why.clone())),
        };
        let (why, record) = match record {
            Ok(record) if record.phase.is_final() => {
                return Ok(Fate::Over(Box::new(record.report())));
            }
            Ok(record) if record.phase == Phase::Starting => return Ok(Fate::Void),
            Ok(record) if record.boot != boot_id() => {
                ("the machine was restarted".to_owned(), record)
            }
            Ok(record) => {
                let why = match record.phase {
                    Phase::Spawning => "its keeper was killed while it started the job",
                    _ => "its keeper was killed, and the job with it",
                };
                let why = if sweep(&record.mark) {
                    why.to_owned()
                } else {
                    tracing::warn!(job = %record.id, "processes of a job do not end, although they were killed");
                    "its keeper was killed, and some of the job's processes do not end although they were killed, too"
                        .to_owned()
                };
                (why, record)
            }
            Err(error) => {
                sweep(&self.record.mark);
                let why = if self.folder.is_removed() {
                    "its folder was removed".to_owned()
                } else {
                    format!("its state file is of no use: {error}")
                };
                (why, self.record.clone())
            }
        };
        let mut report = record.report();
        let last = self.snapshot.borrow().report.clone();
        report.phase = Phase::Lost { why };
        report.ended_at = Some(unix_millis());
        report.ran_for = report.ran_for.max(last.ran_for);
        report.written = report
            .written
            .max(last.written)
            .max(spool::end(&self.folder).unwrap_or_default());
        report.dropped = report
            .written
            .saturating_sub(spool::held(&self.folder).unwrap_or_default());
        Ok(Fate::Over(Box::new(report)))
    }
}

impl Record {
    /// Of a job whose state file tells nothing.
    fn unknown(id: JobId, session: String) -> Self {
        Self {
            format: super::record::FORMAT,
            id,
            session,
            call_id: String::new(),
            command: "(unknown)".to_owned(),
            description: None,
            keep: false,
            mark: String::new(),
            boot: String::new(),
            started_at: 0,
            room: 0,
            phase: Phase::Running { leader: None },
            ended_at: None,
            ran_for: 0,
            written: 0,
            dropped: 0,
            notes: Vec::new(),
        }
    }

    /// The part that changes.
    pub(crate) fn report(&self) -> Report {
        Report {
            phase: self.phase.clone(),
            keep: self.keep,
            ended_at: self.ended_at,
            ran_for: self.ran_for,
            written: self.written,
            dropped: self.dropped,
            notes: self.notes.clone(),
        }
    }

    fn take_over(&mut self, report: &Report) {
        self.phase = report.phase.clone();
        self.ended_at = report.ended_at;
        self.ran_for = report.ran_for;
        self.written = report.written;
        self.dropped = report.dropped;
    }
}
