//! Finding the old text of an edit and putting the new one in its place. Pure: bytes in,
//! bytes out.
//!
//! The old text must be there literally, and once. Nothing is guessed: a near miss is
//! shown with its line, never applied. Occurrences are counted with overlap, so that two
//! places that share a line are still two (R123).

use std::fmt::Write as _;

use crate::world::text::{Document, NotText, Splice, Unencodable};

/// How many occurrences are counted before it does not matter any more.
const MAX_COUNTED: usize = 100;
/// How many line numbers a refusal names.
const NAMED_LINES: usize = 10;
/// Lines compared when looking for the nearest place.
const SEARCHED_LINES: usize = 20_000;
/// Characters of a line that are compared.
const COMPARED: usize = 200;
/// How alike a line must be to be shown.
const ALIKE: f64 = 0.6;
/// Lines of the nearest place that are shown.
const SHOWN_LINES: usize = 12;

/// One replacement, as a model asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replacement {
    pub old: String,
    pub new: String,
    pub all: bool,
}

/// A document with the replacements made.
#[derive(Debug, Clone)]
pub struct Applied {
    pub document: Document,
    /// How many places each replacement changed.
    pub counts: Vec<usize>,
}

/// Why a replacement was not made, in words for the model.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum MatchError {
    #[error(
        "`old_string` is empty; give the text to be replaced, with enough lines around it to be found once"
    )]
    Empty,
    #[error("`old_string` and `new_string` are the same, so there is nothing to change")]
    Same,
    #[error("`old_string` matches 0 times, and exactly 1 is wanted; nothing was changed{nearest}")]
    Missing { nearest: String },
    #[error(
        "`old_string` matches {count} times, at {lines}, and exactly 1 is wanted; nothing was changed. Add lines around it to make it unique, or set `replace_all`"
    )]
    Ambiguous { count: String, lines: String },
    #[error(transparent)]
    Unencodable(#[from] Unencodable),
    #[error("the result would not be text any more: {0}")]
    NotText(#[from] NotText),
}

/// Makes all replacements, each on the result of the one before, or none.
///
/// # Errors
/// The number of the replacement that failed, from 1, and why.
pub fn apply(
    document: &Document,
    replacements: &[Replacement],
) -> Result<Applied, (usize, MatchError)> {
    let mut current = document.clone();
    let mut counts = Vec::with_capacity(replacements.len());
    for (index, replacement) in replacements.iter().enumerate() {
        let (next, count) = replace(&current, replacement).map_err(|error| (index + 1, error))?;
        current = next;
        counts.push(count);
    }
    Ok(Applied {
        document: current,
        counts,
    })
}

fn replace(
    document: &Document,
    replacement: &Replacement,
) -> Result<(Document, usize), MatchError> {
    let view = document.view();
    if replacement.old.is_empty() {
        return Err(MatchError::Empty);
    }
    if replacement.old == replacement.new {
        return Err(MatchError::Same);
    }
    // The view has no `\r\n`, so an old text copied from elsewhere is matched without it.
    let old = replacement.old.replace("\r\n", "\n");
    // A model that writes `\r\n` on both sides means the file's own line ends.
    let new = if replacement.old.contains("\r\n") {
        replacement.new.replace("\r\n", "\n")
    } else {
        replacement.new.clone()
    };
    let places: Vec<usize> = if replacement.all {
        view.match_indices(&old).map(|(at, _)| at).collect()
    } else {
        overlapping(view, &old, MAX_COUNTED + 1)
    };
    match places.as_slice() {
        [] => {
            return Err(MatchError::Missing {
                nearest: nearest(view, &old),
            });
        }
        [_] => {}
        [_, ..] if replacement.all => {}
        several => return Err(ambiguous(view, several)),
    }
    let (head, tail) = shared(&old, &new);
    let middle = new.get(head..new.len() - tail).unwrap_or_default();
    let splices: Vec<Splice> = places
        .iter()
        .map(|at| Splice {
            range: at + head..at + old.len() - tail,
            text: middle.to_owned(),
        })
        .collect();
    let bytes = document.splice(&splices)?;
    let next = Document::with_encoding(bytes, document.encoding())?;
    Ok((next, places.len()))
}

/// Where `needle` begins, overlaps included, at most `most` places.
fn overlapping(text: &str, needle: &str, most: usize) -> Vec<usize> {
    let mut places = Vec::new();
    let mut from = 0;
    while places.len() < most
        && let Some(found) = text.get(from..).and_then(|rest| rest.find(needle))
    {
        let at = from + found;
        places.push(at);
        let step = text
            .get(at..)
            .and_then(|rest| rest.chars().next())
            .map_or(1, char::len_utf8);
        from = at + step;
    }
    places
}

/// What both sides begin and end with is not touched, so its bytes stay as they are.
fn shared(old: &str, new: &str) -> (usize, usize) {
    let head: usize = old
        .chars()
        .zip(new.chars())
        .take_while(|(left, right)| left == right)
        .map(|(left, _)| left.len_utf8())
        .sum();
    let (old, new) = (
        old.get(head..).unwrap_or_default(),
        new.get(head..).unwrap_or_default(),
    );
    let tail: usize = old
        .chars()
        .rev()
        .zip(new.chars().rev())
        .take_while(|(left, right)| left == right)
        .map(|(left, _)| left.len_utf8())
        .sum();
    (head, tail)
}

fn ambiguous(view: &str, places: &[usize]) -> MatchError {
    let count = if places.len() > MAX_COUNTED {
        format!("more than {MAX_COUNTED}")
    } else {
        places.len().to_string()
    };
    let mut numbers: Vec<String> = Vec::new();
    let (mut line, mut from) = (1, 0);
    for at in places.iter().take(NAMED_LINES) {
        line += view
            .get(from..*at)
            .unwrap_or_default()
            .matches('\n')
            .count();
        from = *at;
        numbers.push(line.to_string());
    }
    let more = if places.len() > NAMED_LINES {
        " and further on"
    } else {
        ""
    };
    MatchError::Ambiguous {
        count,
        lines: format!("lines {}{more}", numbers.join(", ")),
    }
}

/// The place that was probably meant, in words with its lines; empty when none is near.
fn nearest(view: &str, old: &str) -> String {
    let lines: Vec<&str> = view.split('\n').take(SEARCHED_LINES).collect();
    let wanted: Vec<&str> = old.trim_matches('\n').split('\n').collect();
    if let Some((at, why)) = blank_difference(&lines, &wanted) {
        return place(&lines, at, wanted.len(), why);
    }
    let Some((offset, key)) = wanted
        .iter()
        .enumerate()
        .find(|(_, line)| !line.trim().is_empty())
    else {
        return String::new();
    };
    let key = head(key.trim());
    let mut best: Option<(f64, usize)> = None;
    for (at, line) in lines.iter().enumerate() {
        let line = head(line.trim());
        let (short, long) = (key.len().min(line.len()), key.len().max(line.len()));
        // Too different in length to be alike.
        if long == 0 || (short as f64) < ALIKE * (long as f64) {
            continue;
        }
        let score = strsim::normalized_levenshtein(key, line);
        if score >= ALIKE && best.is_none_or(|(most, _)| score > most) {
            best = Some((score, at));
        }
    }
    match best {
        Some((_, at)) => place(
            &lines,
            at.saturating_sub(offset),
            wanted.len(),
            "its text is not quite the same",
        ),
        None => String::new(),
    }
}

fn head(line: &str) -> &str {
    line.char_indices()
        .nth(COMPARED)
        .map_or(line, |(at, _)| line.get(..at).unwrap_or(line))
}

/// Whether a found line is as good as a wanted one.
type SameLine<'a> = &'a dyn Fn(&str, &str) -> bool;

/// A place that differs from the wanted lines in blanks alone.
fn blank_difference(lines: &[&str], wanted: &[&str]) -> Option<(usize, &'static str)> {
    let same = |at: usize, test: SameLine<'_>| {
        lines.get(at..at + wanted.len()).is_some_and(|found| {
            found
                .iter()
                .zip(wanted)
                .all(|(found, wanted)| test(found, wanted))
        })
    };
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let tests: [(SameLine<'_>, &str); 3] = [
        (
            &|found, wanted| found.trim_end() == wanted.trim_end(),
            "it differs in blanks at line ends",
        ),
        (
            &|found, wanted| found.trim() == wanted.trim(),
            "it differs in indentation",
        ),
        (
            &|found, wanted| squeezed(found) == squeezed(wanted),
            "it differs in blanks within lines",
        ),
    ];
    if wanted.iter().all(|line| line.trim().is_empty()) {
        return None;
    }
    tests.iter().find_map(|(test, why)| {
        (0..lines.len())
            .find(|at| same(*at, test))
            .map(|at| (at, *why))
    })
}

fn place(lines: &[&str], at: usize, count: usize, why: &str) -> String {
    let mut text = format!(". The nearest place is at line {}; {why}:", at + 1);
    for (number, line) in lines
        .iter()
        .enumerate()
        .skip(at)
        .take(count.clamp(1, SHOWN_LINES))
    {
        let _ = write!(text, "\n{:>6}\t{}", number + 1, head(line));
    }
    text
}

#[cfg(test)]
mod tests;
