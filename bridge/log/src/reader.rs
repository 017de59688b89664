//! Reading a log from its file, also while another writer appends to it.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use crate::error::StoreError;
use crate::event::Event;
use crate::id::SessionId;
use crate::line::{self, BadLine, Chain, GENESIS, MAX_LINE_BYTES};

/// The events of a session, in order.
///
/// It ends before a line that is not finished yet, and goes on from there when it is
/// asked again, so a reader can follow a writer. A line that is not what was written
/// gives one [`StoreError::Broken`]; after it the reader takes up at the next line that
/// has the form of one, so that a person can still see the rest (`R042`). Junk with
/// nothing behind it is a torn tail, which ends the events like an unfinished line.
pub struct EventReader {
    id: SessionId,
    path: PathBuf,
    lines: LineReader<BufReader<File>>,
    next_seq: u64,
    /// The hash of the line before; nothing after a bad line.
    chain: Option<Chain>,
    /// Events below this are passed over.
    from_seq: u64,
    /// Junk that nothing has followed yet.
    junk: Option<Junk>,
    /// An event that was read behind junk, for the call after the error.
    held: Option<Event>,
    /// A newer format: the file is read no further.
    done: bool,
}

/// A place between two lines of a log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) offset: u64,
    pub(crate) next_seq: u64,
    pub(crate) chain: Chain,
}

struct Junk {
    offset: u64,
    why: String,
    chain_before: Option<Chain>,
}

impl EventReader {
    pub(crate) fn open(id: &SessionId, path: &Path, from_seq: u64) -> Result<Self, StoreError> {
        let file = open_log(id, path)?;
        Ok(Self {
            id: id.clone(),
            path: path.to_owned(),
            lines: LineReader::new(BufReader::with_capacity(64 * 1024, file), 0),
            next_seq: 0,
            chain: Some(GENESIS),
            from_seq,
            junk: None,
            held: None,
            done: false,
        })
    }

    /// Goes on where an earlier reader of the same file ended.
    pub(crate) fn resume(id: &SessionId, path: &Path, place: &Place) -> Result<Self, StoreError> {
        let mut reader = Self::open(id, path, 0)?;
        reader
            .lines
            .go_to(place.offset)
            .map_err(StoreError::io("read", path))?;
        reader.next_seq = place.next_seq;
        reader.chain = Some(place.chain);
        Ok(reader)
    }

    /// Where the next event begins; nothing behind a damaged one.
    pub(crate) fn place(&self) -> Option<Place> {
        Some(Place {
            offset: self.lines.offset,
            next_seq: self.next_seq,
            chain: self.chain?,
        })
    }

    /// Events below `seq` are of no interest any more: they are passed over unparsed.
    pub fn pass_over(&mut self, seq: u64) {
        self.from_seq = self.from_seq.max(seq);
    }

    /// How many bytes of the file were read as whole lines.
    pub fn offset(&self) -> u64 {
        self.lines.offset
    }

    /// The hash of the last line that was read.
    pub(crate) fn last_chain(&self) -> Option<Chain> {
        self.chain
    }

    fn next_event(&mut self) -> Result<Option<Event>, StoreError> {
        if let Some(event) = self.held.take() {
            return Ok(Some(event));
        }
        while !self.done {
            let offset = self.lines.offset;
            let line = match self
                .lines
                .next_line()
                .map_err(StoreError::io("read", &self.path))?
            {
                Found::Line(line) => line,
                Found::TooLong => {
                    self.note_junk(offset, "the line is longer than any that is written".into());
                    continue;
                }
                Found::End | Found::Unfinished => {
                    // The file may be cut back and written anew from here.
                    let begin = self.junk.take().map_or(self.lines.offset, |junk| {
                        self.chain = junk.chain_before;
                        junk.offset
                    });
                    self.lines
                        .go_to(begin)
                        .map_err(StoreError::io("read", &self.path))?;
                    return Ok(None);
                }
            };
            let (claimed, claimed_chain) = (line::claimed_seq(line), line::claimed_chain(line));
            if self.junk.is_none()
                && self.next_seq < self.from_seq
                && claimed == Some(self.next_seq)
            {
                // Skipping needs no parsing: line k is event k, its hash at its end.
                self.chain = claimed_chain;
                self.next_seq += 1;
                continue;
            }
            let seq = match claimed {
                // Behind a gap a line is taken at its word.
                Some(claimed) if self.chain.is_none() => claimed.max(self.next_seq),
                _ => self.next_seq,
            };
            match line::decode(line, seq, self.chain.as_ref()) {
                Ok((event, chain)) => {
                    let broken = self.junk.take().map(|junk| self.broken(junk.why));
                    self.chain = Some(chain);
                    self.next_seq = seq + 1;
                    let wanted = (seq >= self.from_seq).then_some(event);
                    match (broken, wanted) {
                        (Some(error), wanted) => {
                            self.held = wanted;
                            return Err(error);
                        }
                        (None, Some(event)) => return Ok(Some(event)),
                        (None, None) => {}
                    }
                }
                Err(BadLine::Newer(found)) => {
                    self.done = true;
                    return Err(StoreError::Newer {
                        id: self.id.clone(),
                        found,
                    });
                }
                Err(BadLine::Junk(why)) => self.note_junk(offset, why),
                Err(BadLine::Wrong(why)) => {
                    let why = self.junk.take().map_or(why, |junk| junk.why);
                    let error = self.broken(why);
                    self.chain = claimed_chain;
                    self.next_seq =
                        claimed.map_or(self.next_seq, |claimed| claimed.max(self.next_seq)) + 1;
                    return Err(error);
                }
            }
        }
        Ok(None)
    }

    fn note_junk(&mut self, offset: u64, why: String) {
        let chain_before = self.chain.take();
        self.junk.get_or_insert(Junk {
            offset,
            why,
            chain_before,
        });
    }

    fn broken(&self, why: String) -> StoreError {
        StoreError::Broken {
            id: self.id.clone(),
            seq: self.next_seq,
            why,
        }
    }
}

impl Iterator for EventReader {
    type Item = Result<Event, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_event().transpose()
    }
}

impl std::fmt::Debug for EventReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventReader")
            .field("id", &self.id)
            .field("next_seq", &self.next_seq)
            .finish_non_exhaustive()
    }
}

#[expect(clippy::disallowed_methods, reason = "a session's own log file")]
pub(crate) fn open_log(id: &SessionId, path: &Path) -> Result<File, StoreError> {
    match File::open(path) {
        Ok(file) => Ok(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(StoreError::NotFound { id: id.clone() })
        }
        Err(error) => Err(StoreError::io("open", path)(error)),
    }
}

/// Lines of bounded length with their places.
pub(crate) struct LineReader<R> {
    source: R,
    buffer: Vec<u8>,
    /// Where the next line begins.
    pub(crate) offset: u64,
    limit: usize,
}

pub(crate) enum Found<'a> {
    /// A whole line, without its newline.
    Line(&'a mut [u8]),
    /// A whole line over the limit; its bytes are not kept.
    TooLong,
    /// Bytes at the end without a newline.
    Unfinished,
    End,
}

impl<R: BufRead> LineReader<R> {
    pub(crate) fn new(source: R, offset: u64) -> Self {
        Self {
            source,
            buffer: Vec::new(),
            offset,
            limit: MAX_LINE_BYTES,
        }
    }

    pub(crate) fn with_limit(self, limit: usize) -> Self {
        Self { limit, ..self }
    }

    pub(crate) fn next_line(&mut self) -> io::Result<Found<'_>> {
        self.buffer.clear();
        let mut length = 0_u64;
        loop {
            let chunk = match self.source.fill_buf() {
                Ok(chunk) => chunk,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if chunk.is_empty() {
                return Ok(if length == 0 {
                    Found::End
                } else {
                    Found::Unfinished
                });
            }
            let (part, ended) = match memchr(chunk) {
                Some(at) => (chunk.get(..at).unwrap_or_default(), true),
                None => (chunk, false),
            };
            if length as usize + part.len() <= self.limit {
                self.buffer.extend_from_slice(part);
            }
            let taken = part.len() + usize::from(ended);
            length += taken as u64;
            self.source.consume(taken);
            if ended {
                self.offset += length;
                let whole = length as usize - 1;
                return Ok(if whole > self.limit {
                    Found::TooLong
                } else {
                    Found::Line(&mut self.buffer)
                });
            }
        }
    }
}

impl LineReader<BufReader<File>> {
    /// Goes on from another place in the file.
    fn go_to(&mut self, offset: u64) -> io::Result<()> {
        self.offset = offset;
        self.source.seek(SeekFrom::Start(offset)).map(drop)
    }
}

/// The place of the next newline.
fn memchr(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| *byte == b'\n')
}
