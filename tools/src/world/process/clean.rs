//! Turns what a program writes into text that is safe and short to read: escape sequences
//! and control characters go, a line that was overwritten with `\r` keeps its last state,
//! bytes that are no UTF-8 become U+FFFD.
//!
//! Works on pieces as they come: any split of the bytes gives the same text, lines over
//! the limit aside. Text without
//! anything special takes a fast path, since a command may write hundreds of megabytes.

use crate::world::utf8::Utf8Stream;

/// A line longer than this is given out before its end, and can no longer be overwritten.
const LINE_LIMIT: usize = 8 * 1024;
/// An escape string that has not ended by then was none; hiding text must not be this easy.
const STRING_LIMIT: usize = 1024;

/// The cleaner of one stream.
pub struct Cleaner {
    decoder: Utf8Stream,
    lines: Lines,
}

/// What is made of the characters.
struct Lines {
    state: State,
    /// The line so far: it may still be overwritten.
    line: String,
    /// A `\r` came; the next character decides whether the line is overwritten.
    returned: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Text,
    Escape,
    /// `ESC (` and its like: one more character belongs to it.
    EscapeOne,
    /// `ESC [`, until a final character.
    Sequence,
    /// Titles, links and the like, until BEL or `ESC \`; with the length so far.
    Text7 {
        length: usize,
        escape: bool,
    },
}

impl Cleaner {
    /// A cleaner at the start of a stream.
    pub fn new() -> Self {
        Self {
            decoder: Utf8Stream::new(),
            lines: Lines {
                state: State::Text,
                line: String::new(),
                returned: false,
            },
        }
    }

    /// Takes the next bytes; whole lines are appended to `out`.
    pub fn push(&mut self, bytes: &[u8], out: &mut String) {
        if self.is_plain(bytes)
            && let Ok(text) = std::str::from_utf8(bytes)
        {
            self.lines.plain(text, out);
            return;
        }
        let Self { decoder, lines } = self;
        decoder.push(bytes, |text| lines.characters(text, out));
    }

    /// Ends the stream; the last, unfinished line is appended to `out`.
    pub fn finish(mut self, out: &mut String) {
        self.lines.characters(&self.decoder.finish(), out);
        out.push_str(&self.lines.line);
    }

    /// The line that has not ended yet, unless it is one that overwrites itself.
    pub fn unfinished(&self) -> &str {
        if self.lines.returned {
            ""
        } else {
            &self.lines.line
        }
    }

    fn is_plain(&self, bytes: &[u8]) -> bool {
        // A fold without an early exit is what the compiler makes wide instructions of.
        self.lines.state == State::Text
            && !self.lines.returned
            && !bytes.iter().fold(false, |special, byte| {
                special | ((*byte < 0x20) & (*byte != b'\n') & (*byte != b'\t')) | (*byte >= 0x7f)
            })
            // A character that was cut by the last piece must be finished by the decoder.
            && self.decoder.is_ascii_next(bytes)
    }
}

impl Lines {
    fn plain(&mut self, text: &str, out: &mut String) {
        match text.rfind('\n') {
            Some(at) => {
                let (lines, rest) = text.split_at(at + 1);
                out.push_str(&self.line);
                out.push_str(lines);
                self.line.clear();
                self.line.push_str(rest);
            }
            None => self.line.push_str(text),
        }
        self.bound(out);
    }

    fn characters(&mut self, text: &str, out: &mut String) {
        for character in text.chars() {
            self.character(character, out);
        }
        self.bound(out);
    }

    fn character(&mut self, character: char, out: &mut String) {
        match self.state {
            State::Text => self.text(character, out),
            State::Escape => {
                self.state = match character {
                    '[' => State::Sequence,
                    ']' | 'P' | 'X' | '^' | '_' => State::Text7 {
                        length: 0,
                        escape: false,
                    },
                    ' '..='/' => State::EscapeOne,
                    '\u{1b}' => State::Escape,
                    _ => State::Text,
                };
                if character == '\n' {
                    self.text(character, out);
                }
            }
            State::EscapeOne => self.state = State::Text,
            State::Sequence => match character {
                ' '..='?' => {}
                '\u{1b}' => self.state = State::Escape,
                '@'..='~' => self.state = State::Text,
                // No sequence goes on like this.
                _ => {
                    self.state = State::Text;
                    self.text(character, out);
                }
            },
            State::Text7 { length, escape } => {
                if character == '\u{7}' || character == '\u{9c}' || (escape && character == '\\') {
                    self.state = State::Text;
                } else if character == '\n' || length >= STRING_LIMIT {
                    self.state = State::Text;
                    self.text(character, out);
                } else {
                    self.state = State::Text7 {
                        length: length + 1,
                        escape: character == '\u{1b}',
                    };
                }
            }
        }
    }

    fn text(&mut self, character: char, out: &mut String) {
        match character {
            '\n' => {
                self.returned = false;
                self.line.push('\n');
                out.push_str(&self.line);
                self.line.clear();
            }
            '\r' => self.returned = true,
            '\u{1b}' => self.state = State::Escape,
            '\u{8}' => {
                self.line.pop();
            }
            '\t' => self.keep('\t'),
            control if control.is_control() => {}
            // These reorder or hide what is around them; shown as what they are.
            '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{061c}' => {
                for escaped in character.escape_unicode() {
                    self.keep(escaped);
                }
            }
            other => self.keep(other),
        }
        if self.line.len() > LINE_LIMIT {
            self.bound(out);
        }
    }

    fn keep(&mut self, character: char) {
        if self.returned {
            self.line.clear();
            self.returned = false;
        }
        self.line.push(character);
    }

    fn bound(&mut self, out: &mut String) {
        if self.line.len() > LINE_LIMIT {
            out.push_str(&self.line);
            self.line.clear();
        }
    }
}

impl Default for Cleaner {
    fn default() -> Self {
        Self::new()
    }
}

/// How many bytes from the start end outside of a character and of an escape sequence;
/// what follows may become whole when more comes. A `\r` at the end counts as begun: what
/// comes next decides whether it ends a line. What is too long to be a sequence is none,
/// so never more than a few kilobytes are held back.
pub fn whole(bytes: &[u8]) -> usize {
    /// Longer than any sequence that a cleaner hides, were all of it four bytes a character.
    const MOST: usize = 4 * STRING_LIMIT + 16;
    let mut state = State::Text;
    let mut begun = 0;
    for (at, byte) in bytes.iter().enumerate() {
        let next = match (state, byte) {
            (State::Text, 0x1b) => {
                begun = at;
                State::Escape
            }
            (State::Text, _) => State::Text,
            (State::Escape, b'[') => State::Sequence,
            (State::Escape, b']' | b'P' | b'X' | b'^' | b'_') => State::Text7 {
                length: 0,
                escape: false,
            },
            (State::Escape, b' '..=b'/') => State::EscapeOne,
            (State::Sequence, b' '..=b'?') => State::Sequence,
            (State::Escape | State::Sequence, 0x1b) => {
                begun = at;
                State::Escape
            }
            (State::Text7 { .. }, 0x07 | b'\n') => State::Text,
            (State::Text7 { escape: true, .. }, b'\\') => State::Text,
            (State::Text7 { length, .. }, byte) if length < 4 * STRING_LIMIT => State::Text7 {
                length: length + 1,
                escape: *byte == 0x1b,
            },
            _ => State::Text,
        };
        state = next;
    }
    let inside = state != State::Text && bytes.len() - begun <= MOST;
    let end = if inside { begun } else { bytes.len() };
    let end = end - bytes.get(..end).map_or(0, unfinished_character);
    end - usize::from(bytes.get(..end).is_some_and(|text| text.ends_with(b"\r")))
}

/// The length of a character at the end whose last bytes have not come.
fn unfinished_character(bytes: &[u8]) -> usize {
    for length in 1..=3.min(bytes.len()) {
        let Some(byte) = bytes.get(bytes.len() - length) else {
            return 0;
        };
        let whole = match byte {
            0x80..=0xbf => continue,
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => 1,
        };
        return if whole > length { length } else { 0 };
    }
    0
}

#[cfg(test)]
mod tests;
