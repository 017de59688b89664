//! Server-sent events, pushed in as bytes come. The parser is our own because an event
//! must have a size limit, which the crates at hand do not offer; the property that
//! any split of the bytes gives the same events is held by a test and a fuzz target.

/// What one event may weigh. A whole answer in one event stays far below it.
pub const MAX_EVENT_BYTES: usize = 16 * 1024 * 1024;

/// One event. `event` is empty when the stream did not name one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SseEvent {
    pub event: String,
    /// The data lines, joined by line feeds.
    pub data: String,
    /// The last id that the stream set, this event's own or an earlier one's.
    pub id: String,
}

/// An event that is larger than [`MAX_EVENT_BYTES`] or the limit given instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event is larger than {limit} bytes")]
pub struct EventTooLarge {
    limit: usize,
}

/// A push parser. Fields as the HTML standard has them; lines end with LF, CR or CRLF;
/// comments and unknown fields are passed over; bytes that are not UTF-8 become
/// replacement characters; an event that the end of the stream leaves open is dropped,
/// because nobody knows whether its data is whole.
#[derive(Debug)]
pub struct SseParser {
    limit: usize,
    /// The bytes of the line that is not at its end.
    line: Vec<u8>,
    event: String,
    data: String,
    has_data: bool,
    id: String,
    /// The last byte was a CR: an LF that follows belongs to it.
    after_cr: bool,
    first_line: bool,
}

impl Default for SseParser {
    fn default() -> Self {
        Self::with_limit(MAX_EVENT_BYTES)
    }
}

impl SseParser {
    /// A parser whose events weigh at most `limit` bytes.
    pub fn with_limit(limit: usize) -> Self {
        Self {
            limit,
            line: Vec::new(),
            event: String::new(),
            data: String::new(),
            has_data: false,
            id: String::new(),
            after_cr: false,
            first_line: true,
        }
    }

    /// Takes the next bytes and adds each event that they complete to `events`.
    ///
    /// # Errors
    /// When an event outgrows the limit; the parser is of no use afterwards.
    pub fn push(
        &mut self,
        mut bytes: &[u8],
        events: &mut Vec<SseEvent>,
    ) -> Result<(), EventTooLarge> {
        while let Some(&first) = bytes.first() {
            if std::mem::take(&mut self.after_cr) && first == b'\n' {
                bytes = bytes.get(1..).unwrap_or_default();
                continue;
            }
            let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
                self.buffer(bytes)?;
                return Ok(());
            };
            let (head, rest) = bytes.split_at(end);
            self.buffer(head)?;
            self.after_cr = rest.first() == Some(&b'\r');
            bytes = rest.get(1..).unwrap_or_default();
            let line = std::mem::take(&mut self.line);
            self.take_line(&line, events);
            // The allocation is kept for the next line.
            self.line = line;
            self.line.clear();
        }
        Ok(())
    }

    fn buffer(&mut self, bytes: &[u8]) -> Result<(), EventTooLarge> {
        if self.line.len() + self.data.len() + bytes.len() > self.limit {
            return Err(EventTooLarge { limit: self.limit });
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn take_line(&mut self, line: &[u8], events: &mut Vec<SseEvent>) {
        let line = if std::mem::take(&mut self.first_line) {
            line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line)
        } else {
            line
        };
        if line.is_empty() {
            self.dispatch(events);
            return;
        }
        let (name, value) = match line.iter().position(|&byte| byte == b':') {
            Some(at) => {
                let (name, value) = line.split_at(at);
                let value = value.get(1..).unwrap_or_default();
                (name, value.strip_prefix(b" ").unwrap_or(value))
            }
            None => (line, [].as_slice()),
        };
        match name {
            b"data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.push('\n');
                }
                self.data.push_str(&String::from_utf8_lossy(value));
            }
            b"event" => self.event = String::from_utf8_lossy(value).into_owned(),
            b"id" if !value.contains(&0) => self.id = String::from_utf8_lossy(value).into_owned(),
            _ => {}
        }
    }

    fn dispatch(&mut self, events: &mut Vec<SseEvent>) {
        let event = std::mem::take(&mut self.event);
        let data = std::mem::take(&mut self.data);
        if std::mem::take(&mut self.has_data) {
            events.push(SseEvent {
                event,
                data,
                id: self.id.clone(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use proptest::prelude::*;

    use super::*;

    fn events_of<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<SseEvent> {
        let mut parser = SseParser::default();
        let mut events = Vec::new();
        for piece in pieces {
            parser.push(piece, &mut events).unwrap();
        }
        events
    }

    fn event(event: &str, data: &str, id: &str) -> SseEvent {
        SseEvent {
            event: event.to_owned(),
            data: data.to_owned(),
            id: id.to_owned(),
        }
    }

    #[test]
    fn fields_comments_and_line_ends() {
        let text = "\u{feff}data: one\n\n: a comment\r\nevent: ping\rid: 7\r\ndata: two\r\rdata:three\r\ndata\ndata:  four\nretry: 3\nnonsense: 1\n\r\nevent: lost\n\ndata: ü\n\ndata: open";
        assert_eq!(
            events_of([text.as_bytes()]),
            [
                event("", "one", ""),
                event("ping", "two", "7"),
                event("", "three\n\n four", "7"),
                event("", "ü", "7"),
            ]
        );
    }

    #[test]
    fn one_event_has_a_size_limit_in_one_line_and_over_lines() {
        let mut parser = SseParser::with_limit(64);
        let mut events = Vec::new();
        assert!(parser.push(&[b'x'; 65], &mut events).is_err());
        let mut parser = SseParser::with_limit(64);
        let lines = b"data: 0123456789\n".repeat(8);
        assert!(parser.push(&lines, &mut events).is_err());
        let mut parser = SseParser::with_limit(64);
        let many = b"data: 0123456789\n\n".repeat(100);
        assert!(parser.push(&many, &mut events).is_ok());
        assert_eq!(events.len(), 100);
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_events(
            lines in prop::collection::vec(
                prop_oneof![
                    "data: ?[a-zü€😀 :]{0,12}",
                    "event: ?[a-z]{0,4}",
                    "id: ?[a-z0-9]{0,3}",
                    ":[a-z ]{0,5}",
                    "",
                    "",
                ],
                0..20,
            ),
            ends in prop::collection::vec(prop::sample::select(vec!["\n", "\r", "\r\n"]), 20),
            bom: bool,
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let mut bytes = if bom { b"\xEF\xBB\xBF".to_vec() } else { Vec::new() };
            for (line, end) in lines.iter().zip(&ends) {
                bytes.extend_from_slice(line.as_bytes());
                bytes.extend_from_slice(end.as_bytes());
            }
            let whole = events_of([bytes.as_slice()]);
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            prop_assert_eq!(&events_of(single), &whole);
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            at.sort_unstable();
            let mut pieces = Vec::new();
            let mut rest = bytes.as_slice();
            let mut taken = 0;
            for cut in at {
                let (head, tail) = rest.split_at(cut - taken);
                pieces.push(head);
                rest = tail;
                taken = cut;
            }
            pieces.push(rest);
            prop_assert_eq!(events_of(pieces), whole);
        }

        #[test]
        fn any_bytes_are_taken_alike_however_split(
            bytes in prop::collection::vec(any::<u8>(), 0..200), size in 1usize..20,
        ) {
            let whole = events_of([bytes.as_slice()]);
            let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
            prop_assert_eq!(events_of(pieces), whole);
        }
    }
}
