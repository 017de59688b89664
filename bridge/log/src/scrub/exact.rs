//! Secrets that are known by their bytes.

use std::borrow::Cow;
use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

use super::SHORTEST_SECRET;

/// A search for all forms of all known secrets.
pub(super) struct Exact {
    search: AhoCorasick,
    needles: Vec<Vec<u8>>,
    longest: usize,
}

impl Exact {
    /// None when there is nothing to look for.
    pub(super) fn new(secrets: &[String]) -> Option<Self> {
        let mut needles: Vec<Vec<u8>> = secrets.iter().flat_map(|secret| forms(secret)).collect();
        needles.sort_unstable();
        needles.dedup();
        // Overlapping matches are asked for, since secrets may overlap in a text.
        let search = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            .build(&needles)
            .ok()?;
        let longest = needles.iter().map(Vec::len).max()?;
        Some(Self {
            search,
            needles,
            longest,
        })
    }

    pub(super) fn is_match(&self, bytes: &[u8]) -> bool {
        self.search.is_match(bytes)
    }

    pub(super) fn scrub<'a>(&self, text: &'a str, replacement: &str) -> Cow<'a, str> {
        if !self.search.is_match(text) {
            return Cow::Borrowed(text);
        }
        without(text, &self.matches(text), replacement)
    }

    /// The same for a text that was cut off: a secret that had begun is gone too.
    pub(super) fn scrub_end<'a>(&self, text: &'a str, replacement: &str) -> Cow<'a, str> {
        let mut found = self.matches(text);
        found.extend(self.begun(text));
        without(text, &merged(found), replacement)
    }

    /// The same for a piece from the middle of a text.
    pub(super) fn scrub_excerpt<'a>(&self, text: &'a str, replacement: &str) -> Cow<'a, str> {
        let mut found = self.matches(text);
        found.extend(self.begun(text));
        let bytes = text.as_bytes();
        let head = self
            .needles
            .iter()
            .flat_map(|needle| (1..needle.len()).filter_map(move |from| needle.get(from..)))
            .filter(|end| end.len() >= SHORTEST_SECRET && bytes.starts_with(end))
            .map(<[u8]>::len)
            .max();
        found.extend(head.map(|end| 0..text.ceil_char_boundary(end)));
        without(text, &merged(found), replacement)
    }

    /// Where secrets are, in order; those that overlap are one.
    pub(super) fn matches(&self, text: &str) -> Vec<Range<usize>> {
        let found: Vec<_> = self
            .search
            .find_overlapping_iter(text)
            .map(|found| found.start()..found.end())
            .collect();
        merged(found)
    }

    /// The beginning of a secret that the text ends with, when there is enough of it.
    fn begun(&self, text: &str) -> Option<Range<usize>> {
        let start = self.unfinished(text);
        (text.len() - start >= SHORTEST_SECRET).then_some(start..text.len())
    }

    /// Where the end of the text begins that may yet become a secret; the length of the
    /// text when none may.
    pub(super) fn unfinished(&self, text: &str) -> usize {
        let bytes = text.as_bytes();
        let first = bytes.len().saturating_sub(self.longest - 1);
        (first..bytes.len())
            .find(|start| {
                let tail = bytes.get(*start..).unwrap_or_default();
                self.needles
                    .iter()
                    .any(|needle| needle.len() > tail.len() && needle.starts_with(tail))
            })
            .map_or(bytes.len(), |start| text.floor_char_boundary(start))
    }
}

/// Ranges in order; those that overlap are one.
fn merged(mut found: Vec<Range<usize>>) -> Vec<Range<usize>> {
    found.sort_unstable_by_key(|range| range.start);
    let mut merged: Vec<Range<usize>> = Vec::new();
    for range in found {
        match merged.last_mut() {
            Some(last) if range.start < last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

fn without<'a>(text: &'a str, found: &[Range<usize>], replacement: &str) -> Cow<'a, str> {
    if found.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for range in found {
        out.push_str(text.get(from..range.start).unwrap_or_default());
        out.push_str(replacement);
        from = range.end;
    }
    out.push_str(text.get(from..).unwrap_or_default());
    Cow::Owned(out)
}

/// The forms in which a secret gets about.
fn forms(secret: &str) -> Vec<Vec<u8>> {
    let mut forms = vec![secret.as_bytes().to_vec()];
    let json = serde_json::Value::from(secret).to_string();
    let inner = json.get(1..json.len().saturating_sub(1));
    forms.push(inner.unwrap_or_default().as_bytes().to_vec());
    for upper in [true, false] {
        forms.push(percent_encoded(secret, upper));
    }
    for offset in 0..3 {
        let mut bytes = vec![0; offset];
        bytes.extend_from_slice(secret.as_bytes());
        // Only the digits that no byte before or behind has a part in.
        let (from, to) = ((offset * 8).div_ceil(6), bytes.len() * 8 / 6);
        for text in [
            STANDARD_NO_PAD.encode(&bytes),
            URL_SAFE_NO_PAD.encode(&bytes),
        ] {
            forms.push(text.as_bytes().get(from..to).unwrap_or_default().to_vec());
        }
    }
    forms.retain(|form| form.len() >= SHORTEST_SECRET);
    forms
}

fn percent_encoded(text: &str, upper: bool) -> Vec<u8> {
    text.bytes()
        .flat_map(|byte| match byte {
            byte if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => vec![byte],
            byte if upper => format!("%{byte:02X}").into_bytes(),
            byte => format!("%{byte:02x}").into_bytes(),
        })
        .collect()
}
