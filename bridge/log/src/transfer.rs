//! A session as one file, to be kept, sent or moved.
//!
//! The file is lines of JSON: a head with the session's id, the log's own lines as
//! they are, each blob that they refer to, and an end that counts both, so that a cut
//! file is noticed:
//!
//! ```text
//! {"terret_export":1,"session":"<id>"}
//! {"v":1,"seq":0,…,"chain":"…"}
//! {"blob":"<sha256>","base64":"…"}          or {"blob":"<sha256>","missing":true}
//!                                           or {"blob":"<sha256>","withheld":true}
//! {"end":{"events":1,"blobs":1}}
//! ```
//!
//! An export holds no secret that is known. An event from before one was known is scrubbed
//! on its way out, and the lines from there on get hashes of their own, so the chain holds.
//! A blob is the exact bytes of a file, which undo needs; one with a secret in it is left
//! out and says so. What comes in is scrubbed alike.
//!
//! What comes in is from a stranger. It is read strictly, and nothing in it grants
//! anything here: its rules are taken back, a mode that asks less is reset, and an open
//! turn is closed, since resuming it would run calls that somebody else approved.

#![expect(
    clippy::disallowed_methods,
    reason = "the file that an import is collected in"
)]

use std::collections::BTreeSet;
use std::io::{self, BufRead, Seek as _, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};

use crate::blob::{BlobId, MAX_BLOB_BYTES};
use crate::error::{BlobError, StoreError};
use crate::event::{Event, Payload};
use crate::fork::{CreateError, closing_events};
use crate::id::SessionId;
use crate::line::{self, MAX_LINE_BYTES};
use crate::platform;
use crate::projection::SessionState;
use crate::reader::{Found, LineReader, open_log};
use crate::scrub::Scrubber;
use crate::session_log::Position;
use crate::store::Store;
use crate::strict_json;

/// The number of the export's own format.
const EXPORT_VERSION: u64 = 1;
/// A blob's line: its content in base64, and room for the rest.
const MAX_BLOB_LINE: usize = MAX_BLOB_BYTES as usize / 3 * 4 + 1024;
/// How each line of a log begins.
const EVENT_LINE: &[u8] = br#"{"v":"#;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    terret_export: u64,
    session: SessionId,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum Line {
    Blob { blob: BlobId, base64: String },
    Missing { blob: BlobId, missing: bool },
    Withheld { blob: BlobId, withheld: bool },
    End { end: End },
}

#[derive(Serialize, Deserialize, PartialEq, Eq, Default)]
#[serde(deny_unknown_fields)]
struct End {
    events: u64,
    blobs: u64,
}

/// What an export left out of what the session holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Exported {
    /// Events that held a secret and were scrubbed on their way out.
    pub scrubbed: u64,
    /// Blobs, which are contents of files, that held a secret and are not in it.
    pub withheld: u64,
}

/// A session that was taken in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    pub id: SessionId,
    /// Contents of files that the export does not have since they held a secret: diffs that
    /// show them, and going back to them, will not work.
    pub withheld: u64,
}

/// Hands on lines of a log, scrubbed.
struct Outgoing {
    scrubber: Scrubber,
    /// The hash of the line before, and how many bytes are out.
    chain: line::Chain,
    length: u64,
    /// Events that were changed; from the first on, lines get new hashes.
    changed: u64,
}

impl Outgoing {
    fn new(scrubber: Scrubber) -> Self {
        Self {
            scrubber,
            chain: Position::START.chain,
            length: 0,
            changed: 0,
        }
    }

    /// Writes an event as it is in `line`, or as it is without secrets.
    fn pass(
        &mut self,
        line: &[u8],
        event: &Event,
        chain: line::Chain,
        write: &mut dyn FnMut(&[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let payload = self.scrubber.payload(event.payload.clone());
        self.changed += u64::from(payload != event.payload);
        if self.changed == 0 {
            self.chain = chain;
            self.length += line.len() as u64 + 1;
            write(line)?;
            return write(b"\n");
        }
        let clean = Event {
            seq: event.seq,
            at: event.at,
            payload,
        };
        let mut bytes = Vec::new();
        self.chain = line::encode(&mut bytes, &clean, &self.chain)?;
        self.length += bytes.len() as u64;
        write(&bytes)
    }
}

impl Store {
    /// Writes a session and all that it refers to. It may have a writer; a torn tail is
    /// left out.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Broken`], [`StoreError::Io`].
    pub fn export(&self, id: &SessionId, to: &mut dyn Write) -> Result<Exported, StoreError> {
        let path = self.log_path(id);
        let writing = || StoreError::io("write the export of", &path);
        let mut lines = LineReader::new(io::BufReader::new(open_log(id, &path)?), 0);
        let mut position = Position::START;
        let mut outgoing = Outgoing::new(self.scrubber().clone());
        let mut blobs = BTreeSet::new();
        write_line(
            to,
            &Head {
                terret_export: EXPORT_VERSION,
                session: id.clone(),
            },
        )
        .map_err(writing())?;
        while let Found::Line(line) = lines.next_line().map_err(StoreError::io("read", &path))? {
            let raw = line.to_vec();
            let (event, chain) = line::decode(line, position.next_seq, Some(&position.chain))
                .map_err(|bad| bad.into_error(id, position.next_seq))?;
            event.payload.for_each_blob(&mut |blob| {
                blobs.insert(blob.clone());
            });
            outgoing.pass(&raw, &event, chain, &mut |bytes| {
                to.write_all(bytes).map_err(writing())
            })?;
            position.follow(&event, chain, lines.offset);
        }
        let mut withheld = 0;
        let end = End {
            events: position.next_seq,
            blobs: blobs.len() as u64,
        };
        for blob in blobs {
            let line = match self.blobs().get(&blob) {
                Ok(bytes) if self.scrubber().finds(&bytes) => {
                    withheld += 1;
                    Line::Withheld {
                        blob,
                        withheld: true,
                    }
                }
                Ok(bytes) => Line::Blob {
                    blob,
                    base64: BASE64.encode(bytes),
                },
                Err(BlobError::Missing { .. } | BlobError::Damaged { .. }) => Line::Missing {
                    blob,
                    missing: true,
                },
                Err(error) => return Err(error.into()),
            };
            write_line(to, &line).map_err(writing())?;
        }
        write_line(to, &Line::End { end })
            .and_then(|()| to.flush())
            .map_err(writing())?;
        Ok(Exported {
            scrubbed: outgoing.changed,
            withheld,
        })
    }

    /// Takes in an export as a session at rest. It keeps its id, or gets a new one when
    /// that is taken.
    ///
    /// # Errors
    /// [`StoreError::Import`] names the line that is refused; no session is made then.
    pub fn import(&self, from: &mut dyn BufRead) -> Result<SessionId, StoreError> {
        self.import_report(from).map(|imported| imported.id)
    }

    /// As [`Store::import`], and says what the export did not have.
    ///
    /// # Errors
    /// As there.
    pub fn import_report(&self, from: &mut dyn BufRead) -> Result<Imported, StoreError> {
        let mut import = Import::new(self, from)?;
        import.read_lines()?;
        let withheld = import.withheld;
        let id = import.finish()?;
        Ok(Imported { id, withheld })
    }
}

struct Import<'a> {
    store: &'a Store,
    lines: LineReader<&'a mut dyn BufRead>,
    line: u64,
    id: SessionId,
    /// The log's lines, until all of them proved good.
    spool: std::fs::File,
    spool_path: std::path::PathBuf,
    position: Position,
    state: SessionState,
    wanted: BTreeSet<BlobId>,
    seen: End,
    withheld: u64,
    ended: bool,
}

impl<'a> Import<'a> {
    fn new(store: &'a Store, from: &'a mut dyn BufRead) -> Result<Self, StoreError> {
        let mut lines = LineReader::new(from, 0).with_limit(MAX_LINE_BYTES.max(MAX_BLOB_LINE));
        let head: Head = match next(&mut lines, 1)? {
            Some(line) => parse(line, 1)?,
            None => return Err(refused(1, "the file is empty".to_owned())),
        };
        if head.terret_export != EXPORT_VERSION {
            let found = format!("export format {}", head.terret_export);
            return Err(StoreError::Newer {
                id: head.session,
                found,
            });
        }
        platform::private_folder(store.root())
            .map_err(StoreError::io("make the folder", store.root()))?;
        let spool_path = store.root().join(format!(
            "import-{}-{}",
            std::process::id(),
            SessionId::generate()
        ));
        let spool = platform::private_file()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&spool_path)
            .map_err(StoreError::io("make", &spool_path))?;
        Ok(Self {
            store,
            lines,
            line: 1,
            id: head.session,
            spool,
            spool_path,
            position: Position::START,
            state: SessionState::default(),
            wanted: BTreeSet::new(),
            seen: End::default(),
            withheld: 0,
            ended: false,
        })
    }

    fn read_lines(&mut self) -> Result<(), StoreError> {
        let mut spool = io::BufWriter::new(&self.spool);
        let mut outgoing = Outgoing::new(self.store.scrubber().clone());
        while let Some(bytes) = next(&mut self.lines, self.line + 1)? {
            self.line += 1;
            let number = self.line;
            if self.ended {
                return Err(refused(number, "there is more behind the end".to_owned()));
            }
            if bytes.starts_with(EVENT_LINE) {
                if self.seen.blobs > 0 {
                    return Err(refused(
                        number,
                        "an event stands behind the blobs".to_owned(),
                    ));
                }
                // Reading it scratches the line.
                let raw = bytes.to_vec();
                let length = self.position.length + bytes.len() as u64 + 1;
                let event = strict_event(bytes, number, &mut self.position, length)?;
                event.payload.for_each_blob(&mut |blob| {
                    self.wanted.insert(blob.clone());
                });
                outgoing.pass(&raw, &event, self.position.chain, &mut |bytes| {
                    spool
                        .write_all(bytes)
                        .map_err(StoreError::io("write", &self.spool_path))
                })?;
                self.seen.events += 1;
                self.state.apply(&event);
                continue;
            }
            match parse::<Line>(bytes, number)? {
                Line::Blob { blob, base64 } => {
                    take_wanted(&mut self.wanted, &blob, number)?;
                    let bytes = BASE64.decode(base64).map_err(|error| {
                        refused(number, format!("the blob is no base64: {error}"))
                    })?;
                    if BlobId::of(&bytes) != blob {
                        return Err(refused(
                            number,
                            format!("the content is not that of blob `{blob}`"),
                        ));
                    }
                    self.store.blobs().put(&bytes)?;
                    self.seen.blobs += 1;
                }
                Line::Missing {
                    blob,
                    missing: true,
                } => {
                    take_wanted(&mut self.wanted, &blob, number)?;
                    self.seen.blobs += 1;
                }
                Line::Missing { .. } => {
                    return Err(refused(number, "`missing` must be true".to_owned()));
                }
                Line::Withheld {
                    blob,
                    withheld: true,
                } => {
                    take_wanted(&mut self.wanted, &blob, number)?;
                    self.seen.blobs += 1;
                    self.withheld += 1;
                }
                Line::Withheld { .. } => {
                    return Err(refused(number, "`withheld` must be true".to_owned()));
                }
                Line::End { end } if end == self.seen && self.wanted.is_empty() => {
                    self.ended = true
                }
                Line::End { .. } => {
                    return Err(refused(
                        number,
                        "the end does not count what is there".to_owned(),
                    ));
                }
            }
        }
        self.position.chain = outgoing.chain;
        self.position.length = outgoing.length;
        spool
            .flush()
            .map_err(StoreError::io("write", &self.spool_path))
    }

    fn finish(mut self) -> Result<SessionId, StoreError> {
        if !self.ended {
            return Err(refused(self.line + 1, "the file ends too early".to_owned()));
        }
        if self.state.created.is_none() {
            return Err(refused(
                2,
                "the first event must be `session/created`".to_owned(),
            ));
        }
        if self.store.exists(&self.id) {
            self.id = SessionId::generate();
        }
        self.spool
            .rewind()
            .map_err(StoreError::io("read", &self.spool_path))?;
        let mut log = self
            .store
            .create_with(self.id.clone(), &self.spool, self.position)
            .map_err(|error| match error {
                CreateError::Store(error) => error,
                CreateError::Read(error) => StoreError::io("read", &self.spool_path)(error),
            })?;
        if let Err(error) = log.append_all(disarming_events(&self.state)) {
            drop(log);
            self.store.delete(&self.id)?;
            return Err(error.into());
        }
        Ok(self.id.clone())
    }
}

impl Drop for Import<'_> {
    fn drop(&mut self) {
        // Its content is in the session by now, or was refused.
        let _ = std::fs::remove_file(&self.spool_path);
    }
}

/// What takes away from a session all that it would grant.
fn disarming_events(state: &SessionState) -> Vec<Payload> {
    const BY: &str = "import";
    let mut events = closing_events(state, "the session was imported");
    for rule in state.rules.iter() {
        events.push(Payload::RuleRemoved {
            id: rule.id.clone(),
            by: BY.to_owned(),
        });
    }
    if state
        .options
        .get("mode")
        .is_some_and(|mode| !matches!(mode.as_str(), "ask" | "plan"))
    {
        let (option, value) = ("mode".to_owned(), "ask".to_owned());
        events.push(Payload::OptionSet {
            option,
            value,
            by: BY.to_owned(),
        });
    }
    events
}

fn strict_event(
    bytes: &mut [u8],
    number: u64,
    position: &mut Position,
    length: u64,
) -> Result<crate::event::Event, StoreError> {
    if bytes.len() >= MAX_LINE_BYTES {
        return Err(refused(
            number,
            "the event is longer than any that is written".to_owned(),
        ));
    }
    let strict = line::raw_payload(bytes)
        .ok_or_else(|| refused(number, "it does not have the form of an event".to_owned()))
        .and_then(|(name, json)| {
            Payload::from_json(name, json).map_err(|error| refused(number, error.to_string()))
        })?;
    line::check(&strict).map_err(|error| refused(number, error.to_string()))?;
    let (event, chain) = line::decode(bytes, position.next_seq, Some(&position.chain))
        .map_err(|bad| refused(number, bad.why().to_owned()))?;
    let created = matches!(event.payload, Payload::SessionCreated { .. });
    if created != (event.seq == 0) {
        return Err(refused(
            number,
            "`session/created` must be the first event, and only that".to_owned(),
        ));
    }
    if event.payload != strict {
        return Err(refused(
            number,
            "the event can be read in two ways".to_owned(),
        ));
    }
    if let Payload::SessionCompacted { upto_seq, .. } = event.payload
        && (upto_seq >= event.seq || position.compacted.is_some_and(|last| upto_seq < last))
    {
        return Err(refused(
            number,
            "the compaction does not reach to a place before it".to_owned(),
        ));
    }
    position.follow(&event, chain, length);
    Ok(event)
}

fn take_wanted(wanted: &mut BTreeSet<BlobId>, blob: &BlobId, line: u64) -> Result<(), StoreError> {
    if wanted.remove(blob) {
        Ok(())
    } else {
        Err(refused(
            line,
            format!("no event refers to the blob `{blob}`"),
        ))
    }
}

fn next<R: BufRead>(
    lines: &mut LineReader<R>,
    number: u64,
) -> Result<Option<&mut [u8]>, StoreError> {
    match lines.next_line() {
        Ok(Found::Line(line)) => Ok(Some(line)),
        Ok(Found::End) => Ok(None),
        Ok(Found::Unfinished) => Err(refused(number, "the last line is cut".to_owned())),
        Ok(Found::TooLong) => Err(refused(number, "the line is too long".to_owned())),
        Err(error) => Err(refused(number, format!("it cannot be read: {error}"))),
    }
}

fn parse<T: for<'de> Deserialize<'de>>(bytes: &[u8], number: u64) -> Result<T, StoreError> {
    let value = strict_json::parse(bytes).map_err(|error| refused(number, error.to_string()))?;
    serde_json::from_value(value)
        .map_err(|error| refused(number, format!("it is no line of an export: {error}")))
}

fn refused(line: u64, why: String) -> StoreError {
    StoreError::Import { line, why }
}

fn write_line(to: &mut dyn Write, line: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *to, line)?;
    to.write_all(b"\n")
}
