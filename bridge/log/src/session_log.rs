//! The one writer of a session.
//!
//! An append is one `write` of one or more whole lines. Before it, the file at the
//! path is compared with the one that is held: its identity and its length must be
//! what this writer left, so that a replaced file or a second writer shows at once and
//! nothing is ever written into the void (design §4 "Log"). Before all that the event is
//! scrubbed of secrets; this is the only way into a log.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::clock::Clock;
use crate::error::AppendError;
use crate::event::{Event, Payload};
use crate::id::SessionId;
use crate::layer::FileLayer;
use crate::line::{self, Chain};
use crate::lock::Holder;
use crate::platform::FileIdentity;
use crate::scrub::Scrubber;
use crate::sync::{self, Syncer};

/// Buffers larger than this are given back after an append.
const KEPT_BUFFER: usize = 1024 * 1024;

/// The right to append to a session. Dropping it gives the session free.
pub struct SessionLog {
    id: SessionId,
    path: PathBuf,
    file: Arc<File>,
    layer: Arc<dyn FileLayer>,
    clock: Arc<dyn Clock>,
    scrubber: Scrubber,
    sync: Arc<sync::Shared>,
    holder: Option<Holder>,
    identity: FileIdentity,
    position: Position,
    /// A failed write that could not be taken back.
    stuck: Option<String>,
    buffer: Vec<u8>,
}

/// Where the next line goes and what it must fit to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Position {
    pub(crate) length: u64,
    pub(crate) next_seq: u64,
    pub(crate) chain: Chain,
    /// Up to where the latest compaction goes.
    pub(crate) compacted: Option<u64>,
}

impl Position {
    pub(crate) const START: Self = Self {
        length: 0,
        next_seq: 0,
        chain: line::GENESIS,
        compacted: None,
    };

    /// Adds an event's line to `buffer` and moves on.
    fn push(&mut self, buffer: &mut Vec<u8>, event: &Event) -> Result<(), AppendError> {
        let before = buffer.len();
        if let Payload::SessionCompacted { upto_seq, .. } = event.payload {
            let last = self.compacted.unwrap_or(0);
            if upto_seq >= event.seq || upto_seq < last {
                return Err(AppendError::Compaction {
                    upto: upto_seq,
                    next: event.seq,
                    last,
                });
            }
            self.compacted = Some(upto_seq);
        }
        self.chain = line::encode(buffer, event, &self.chain)?;
        self.length += (buffer.len() - before) as u64;
        self.next_seq += 1;
        Ok(())
    }
}

/// What a [`SessionLog`] is made of.
pub(crate) struct Opened {
    pub(crate) id: SessionId,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<File>,
    pub(crate) layer: Arc<dyn FileLayer>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) scrubber: Scrubber,
    pub(crate) sync: Arc<sync::Shared>,
    pub(crate) holder: Holder,
    pub(crate) identity: FileIdentity,
    pub(crate) position: Position,
}

impl SessionLog {
    pub(crate) fn new(opened: Opened) -> Self {
        let Opened {
            id,
            path,
            file,
            layer,
            clock,
            scrubber,
            sync,
            holder,
            identity,
            position,
        } = opened;
        Self {
            id,
            path,
            file,
            layer,
            clock,
            scrubber,
            sync,
            holder: Some(holder),
            identity,
            position,
            stuck: None,
            buffer: Vec::new(),
        }
    }

    /// The session's id.
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// The number that the next event gets.
    pub fn next_seq(&self) -> u64 {
        self.position.next_seq
    }

    /// How many bytes the log has.
    pub fn length(&self) -> u64 {
        self.position.length
    }

    /// The file, for people and messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A handle that waits for the disk.
    pub fn syncer(&self) -> Syncer {
        self.sync.syncer()
    }

    /// Adds one event, scrubbed of secrets: what it returns is what was written. When this returns the event is in the file and outlives the
    /// process; [`Syncer::sync`] makes it outlive a power loss.
    ///
    /// # Errors
    /// [`AppendError`]: nothing of the event is in the log then, and the next append
    /// gets the same number (check 6).
    pub fn append(&mut self, payload: Payload) -> Result<Arc<Event>, AppendError> {
        let at = self.clock.now_ms();
        self.append_at(payload, at)
    }

    /// The same with the time of an event that is copied from another log.
    pub(crate) fn append_at(
        &mut self,
        payload: Payload,
        at: u64,
    ) -> Result<Arc<Event>, AppendError> {
        let event = Event {
            seq: self.position.next_seq,
            at,
            payload: self.scrubber.payload(payload),
        };
        let mut position = self.position;
        self.buffer.clear();
        position.push(&mut self.buffer, &event)?;
        self.write(position, 1)?;
        Ok(Arc::new(event))
    }

    /// Adds all of the events with one write, or none of them.
    ///
    /// # Errors
    /// As [`SessionLog::append`].
    pub fn append_all(&mut self, payloads: Vec<Payload>) -> Result<Vec<Arc<Event>>, AppendError> {
        if payloads.is_empty() {
            return Ok(Vec::new());
        }
        let at = self.clock.now_ms();
        let mut position = self.position;
        self.buffer.clear();
        let mut events = Vec::with_capacity(payloads.len());
        for payload in payloads {
            let event = Event {
                seq: position.next_seq,
                at,
                payload: self.scrubber.payload(payload),
            };
            position.push(&mut self.buffer, &event)?;
            events.push(Arc::new(event));
        }
        self.write(position, events.len() as u64)?;
        Ok(events)
    }

    /// Writes the buffer, and takes `after` as the new position once all of it is in.
    fn write(&mut self, after: Position, events: u64) -> Result<(), AppendError> {
        if let Some(why) = &self.stuck {
            return Err(AppendError::Stuck {
                path: self.path.clone(),
                why: why.clone(),
            });
        }
        self.check_file()?;
        let result = match self.layer.append(&self.file, &self.path, &self.buffer) {
            Ok(taken) if taken == self.buffer.len() => Ok(()),
            Ok(taken) => {
                let text = format!("the disk took {taken} of {} bytes", self.buffer.len());
                Err(io::Error::new(io::ErrorKind::StorageFull, text))
            }
            Err(error) => Err(error),
        };
        if self.buffer.capacity() > KEPT_BUFFER {
            self.buffer = Vec::new();
        }
        if let Err(source) = result {
            if let Err(error) = self
                .layer
                .truncate(&self.file, &self.path, self.position.length)
            {
                let why = error.to_string();
                self.stuck = Some(why.clone());
                return Err(AppendError::Stuck {
                    path: self.path.clone(),
                    why,
                });
            }
            let path = self.path.clone();
            return Err(match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    AppendError::Full { path, source }
                }
                _ => AppendError::Io { path, source },
            });
        }
        self.position = after;
        self.sync.count_appended(events);
        Ok(())
    }

    /// One `stat` by path: it is the file that we hold, with the length that we left.
    #[expect(clippy::disallowed_methods, reason = "a session's own log file")]
    fn check_file(&self) -> Result<(), AppendError> {
        let found = match fs::symlink_metadata(&self.path) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(AppendError::Replaced {
                    path: self.path.clone(),
                });
            }
            Err(source) => {
                return Err(AppendError::Io {
                    path: self.path.clone(),
                    source,
                });
            }
        };
        if FileIdentity::of(&found) != self.identity {
            return Err(AppendError::Replaced {
                path: self.path.clone(),
            });
        }
        if found.len() != self.position.length {
            let (expected, found) = (self.position.length, found.len());
            return Err(AppendError::Foreign {
                path: self.path.clone(),
                expected,
                found,
            });
        }
        Ok(())
    }
}

impl Drop for SessionLog {
    fn drop(&mut self) {
        // The note goes first: behind the lock it could be the next writer's.
        self.holder = None;
        // A syncer may keep the file open; the session is free all the same.
        if let Err(error) = self.file.unlock() {
            tracing::warn!(session = %self.id, %error, "the session's lock could not be given free");
        }
    }
}

impl std::fmt::Debug for SessionLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionLog")
            .field("id", &self.id)
            .field("next_seq", &self.next_seq())
            .finish_non_exhaustive()
    }
}
