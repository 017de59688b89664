//! Text that arrives in pieces.
//!
//! Two stages in a row, in the order in which a whole text is scrubbed. Each keeps back the
//! end of what it has from the first place on where more text could still make a secret, and
//! lets go of all before it. An ordinary word is let go as soon as it cannot begin one.

use std::sync::Arc;

use regex_automata::hybrid::dfa::Cache;

use super::Rules;

/// The most bytes that are kept back for a pattern. A key file of the largest kind in use
/// has fewer; what has more is judged as if it ended here.
const MOST_HELD: usize = 16 * 1024;

/// Scrubs a text that arrives in pieces. What [`TextStream::push`] and
/// [`TextStream::finish`] give is, joined, the scrubbed whole.
pub struct TextStream {
    rules: Arc<Rules>,
    exact: String,
    shaped: Shaped,
}

struct Shaped {
    cache: Option<Cache>,
    /// The last character that was let go, since a pattern may look back at it, then what
    /// is kept back.
    text: String,
    /// Where what is kept back begins.
    from: usize,
    redacted: bool,
}

impl TextStream {
    pub(super) fn new(rules: Arc<Rules>) -> Self {
        Self {
            shaped: Shaped {
                cache: None,
                text: String::new(),
                from: 0,
                redacted: false,
            },
            rules,
            exact: String::new(),
        }
    }

    /// Takes a piece and gives what may be seen by now, which may be nothing.
    pub fn push(&mut self, piece: &str) -> String {
        let certain = self.push_exact(piece);
        self.shaped.push(&self.rules, &certain, false)
    }

    /// The text has ended: gives the rest. A secret that began is taken for one when at
    /// least [`super::SHORTEST_SECRET`] bytes of it are there. The stream can take another text.
    pub fn finish(&mut self) -> String {
        let held = std::mem::take(&mut self.exact);
        let rest = match &self.rules.exact {
            Some(exact) => exact.scrub_end(&held, &self.rules.replacement),
            None => held.as_str().into(),
        };
        self.shaped.redacted |= *rest != *held;
        self.shaped.push(&self.rules, &rest, true)
    }

    /// Whether anything was redacted since this was asked last.
    pub fn take_redacted(&mut self) -> bool {
        std::mem::take(&mut self.shaped.redacted)
    }

    fn push_exact(&mut self, piece: &str) -> String {
        self.exact.push_str(piece);
        let Some(exact) = &self.rules.exact else {
            return std::mem::take(&mut self.exact);
        };
        let mut certain = exact.unfinished(&self.exact);
        let found = exact.matches(&self.exact);
        // A secret that overlaps with one that may come is one with it.
        for range in found.iter().rev() {
            if range.start < certain && range.end > certain {
                certain = range.start;
            }
        }
        let mut out = String::with_capacity(certain);
        let mut from = 0;
        for range in found.iter().take_while(|range| range.end <= certain) {
            self.shaped.redacted = true;
            out.push_str(self.exact.get(from..range.start).unwrap_or_default());
            out.push_str(&self.rules.replacement);
            from = range.end;
        }
        out.push_str(self.exact.get(from..certain).unwrap_or_default());
        self.exact.drain(..certain);
        out
    }
}

impl Shaped {
    fn push(&mut self, rules: &Rules, piece: &str, last: bool) -> String {
        let patterns = &rules.patterns;
        self.text.push_str(piece);
        if self.cache.is_none() {
            self.cache = patterns.cache();
        }
        let Some(cache) = &mut self.cache else {
            return std::mem::take(&mut self.text);
        };
        let mut out = String::new();
        loop {
            let last = last || self.text.len() - self.from > MOST_HELD;
            let certain = if last {
                self.text.len()
            } else {
                patterns.unfinished(cache, &self.text, self.from)
            };
            let found = if certain > self.from {
                patterns
                    .find(&self.text, self.from)
                    .filter(|found| found.whole.start < certain)
            } else {
                None
            };
            let Some(found) = found else {
                out.push_str(self.text.get(self.from..certain).unwrap_or_default());
                self.from = certain;
                break;
            };
            let (before, after) = match found.secret {
                Some(secret) => (secret.start, secret.end),
                None => (found.whole.end, found.whole.end),
            };
            out.push_str(self.text.get(self.from..before).unwrap_or_default());
            if after > before {
                self.redacted = true;
                out.push_str(&rules.replacement);
            }
            out.push_str(self.text.get(after..found.whole.end).unwrap_or_default());
            self.from = found.whole.end;
            // As in a whole text: the letters of a redacted word are not looked back at.
            if after > before && after == self.from {
                self.text.drain(..after);
                self.from = 0;
            }
        }
        let kept = self.text.floor_char_boundary(self.from.saturating_sub(1));
        self.text.drain(..kept);
        self.from -= kept;
        if last {
            self.text.clear();
            self.from = 0;
        }
        out
    }
}

impl std::fmt::Debug for TextStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TextStream").finish_non_exhaustive()
    }
}
