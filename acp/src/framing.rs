//! Cutting a byte stream into lines, without IO.
//!
//! A frame ends at LF and nowhere else (R112). Each byte is looked at once, however it arrives:
//! a line of 64 MB in small pieces costs as much as in one. A line over the limit is not kept
//! (R111): it is announced once and its bytes are dropped until the next LF.

use bytes::{BufMut, Bytes, buf::Limit};

/// How much is read at once.
pub(crate) const READ_CHUNK: usize = 64 * 1024;

/// The longest line that is kept unless told otherwise: 64 MiB, which holds a prompt with
/// several large images.
pub const DEFAULT_LINE_LIMIT: usize = 64 * 1024 * 1024;

/// What the stream holds next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// A line without its end; never blank.
    Whole(Bytes),
    /// A line over the limit begins; said once for each, and its bytes are gone.
    TooLong,
}

/// Collects bytes and gives lines.
#[derive(Debug)]
pub struct LineBuffer {
    bytes: Vec<u8>,
    /// Everything before this was given out.
    start: usize,
    /// No line end stands between `start` and this.
    scanned: usize,
    limit: usize,
    /// The bytes up to the next line end belong to a line over the limit.
    dropping: bool,
    /// No line was given yet, so a byte order mark may stand here (R032).
    first: bool,
}

impl LineBuffer {
    /// A buffer that keeps lines of at most `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            bytes: Vec::new(),
            start: 0,
            scanned: 0,
            limit,
            dropping: false,
            first: true,
        }
    }

    /// Adds bytes that were read elsewhere.
    pub fn push(&mut self, bytes: &[u8]) {
        self.make_room(bytes.len());
        self.bytes.extend_from_slice(bytes);
    }

    /// Room to read the next bytes into; call [`LineBuffer::next_line`] until it has nothing
    /// before asking again.
    pub(crate) fn room(&mut self) -> Limit<&mut Vec<u8>> {
        self.make_room(READ_CHUNK);
        (&mut self.bytes).limit(READ_CHUNK)
    }

    /// The next line that is whole, skipping blank ones; `None` until more bytes come.
    pub fn next_line(&mut self) -> Option<Line> {
        loop {
            let fresh = self.bytes.get(self.scanned..).unwrap_or_default();
            let Some(offset) = memchr::memchr(b'\n', fresh) else {
                self.scanned = self.bytes.len();
                return self.without_end();
            };
            let end = self.scanned + offset;
            let (from, dropping) = (self.start, self.dropping);
            self.start = end + 1;
            self.scanned = self.start;
            self.dropping = false;
            if dropping {
                continue;
            }
            if end - from > self.limit {
                self.first = false;
                return Some(Line::TooLong);
            }
            if let Some(line) = self.take(from, end) {
                return Some(Line::Whole(line));
            }
        }
    }

    /// The bytes after the last line end, once no more will come. A script that forgets its last
    /// line end is served all the same.
    pub fn finish(&mut self) -> Option<Line> {
        if self.dropping {
            return None;
        }
        let (from, end) = (self.start, self.bytes.len());
        self.start = end;
        self.scanned = end;
        self.take(from, end).map(Line::Whole)
    }

    /// No line end is in sight: starts to drop when the line is over the limit.
    fn without_end(&mut self) -> Option<Line> {
        if self.dropping {
            self.forget();
            return None;
        }
        if self.bytes.len() - self.start <= self.limit {
            return None;
        }
        self.forget();
        self.dropping = true;
        self.first = false;
        Some(Line::TooLong)
    }

    fn forget(&mut self) {
        if self.bytes.capacity() > 4 * READ_CHUNK {
            self.bytes = Vec::new();
        }
        self.bytes.clear();
        self.start = 0;
        self.scanned = 0;
    }

    /// Gives out one line, or nothing when it is blank.
    fn take(&mut self, from: usize, end: usize) -> Option<Bytes> {
        let mut from = from;
        let raw = self.bytes.get(from..end)?;
        if self.first && raw.starts_with(b"\xEF\xBB\xBF") {
            from += 3;
        }
        self.first = false;
        let raw = self.bytes.get(from..end)?;
        if raw.trim_ascii().is_empty() {
            return None;
        }
        let kept = raw.strip_suffix(b"\r").unwrap_or(raw).len();
        if kept < READ_CHUNK {
            // A copy, so that a small message never holds on to a large buffer.
            return self
                .bytes
                .get(from..from + kept)
                .map(Bytes::copy_from_slice);
        }
        // A large line leaves with the buffer it grew; what follows it is at most one read.
        let rest = self.bytes.split_off(self.start.min(self.bytes.len()));
        let line = Bytes::from(std::mem::replace(&mut self.bytes, rest));
        self.start = 0;
        self.scanned = 0;
        Some(line.slice(from..from + kept))
    }

    /// Moves what is left to the front, so that each byte is moved at most once, and grows by
    /// doubling, but never beyond what a line may need.
    fn make_room(&mut self, more: usize) {
        if self.start == self.bytes.len() {
            self.forget();
        } else if self.start > 0 {
            self.bytes.drain(..self.start);
            self.scanned -= self.start;
            self.start = 0;
        }
        let needed = self.bytes.len() + more;
        if needed > self.bytes.capacity() {
            let doubled = self
                .bytes
                .capacity()
                .saturating_mul(2)
                .min(self.limit.saturating_add(READ_CHUNK));
            let target = needed.max(doubled);
            self.bytes.reserve_exact(target - self.bytes.len());
        }
    }
}

#[cfg(test)]
mod tests;
