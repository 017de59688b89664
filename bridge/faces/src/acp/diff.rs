//! Both sides of a file as a diff that fits a frame: whole texts when they are small,
//! else the changed region with a little around it, said so beside it.

use std::borrow::Cow;
use std::path::Path;

use terret_acp::schema::v1;
use terret_engine::room::tools::world::text::Document;

use crate::text::{encoded_len, ends};

/// Unchanged lines shown around a change.
const CONTEXT: usize = 3;

/// One change, as contents of a tool call that need about `budget` encoded bytes.
pub(crate) fn render(
    path: &str,
    before: Option<&[u8]>,
    after: Option<&[u8]>,
    budget: usize,
) -> Vec<v1::ToolCallContent> {
    let Some((whole_old, whole_new)) = texts(before, after) else {
        return vec![binary_note(path, before, after)];
    };
    let is_new = before.is_none();
    let (mut old, mut new) = (whole_old.as_ref(), whole_new.as_ref());
    let mut note = after.is_none().then(|| "The file is deleted.".to_owned());
    let (shown_old, shown_new);
    if encoded_len(old) + encoded_len(new) > budget {
        let region = Region::of(old, new, CONTEXT);
        let (first, last) = region.lines;
        note = Some(format!(
            "Lines {first} to {last} of a file that is too large to be shown whole."
        ));
        (old, new) = (region.old, region.new);
        if encoded_len(old) + encoded_len(new) > budget {
            note = Some(format!(
                "A change of {} bytes to {} bytes from line {first} on, too large to be shown whole.",
                old.len(),
                new.len()
            ));
            (shown_old, shown_new) = (ends(old, budget / 2), ends(new, budget / 2));
            old = &shown_old;
            new = &shown_new;
        }
    }
    let diff = v1::Diff::new(Path::new(path), new).old_text((!is_new).then(|| old.to_owned()));
    let mut contents = vec![v1::ToolCallContent::Diff(diff)];
    contents.extend(note.map(|note| text_content(&note)));
    contents
}

/// A text as the content of a tool call.
pub(crate) fn text_content(text: &str) -> v1::ToolCallContent {
    let block = v1::ContentBlock::Text(v1::TextContent::new(text));
    v1::ToolCallContent::Content(v1::Content::new(block))
}

/// The lines that differ, with no context: the number of the first, the old and the new.
pub(crate) fn region<'a>(old: &'a str, new: &'a str) -> (usize, &'a str, &'a str) {
    let region = Region::of(old, new, 0);
    (region.lines.0, region.old, region.new)
}

/// Both sides as text; a missing one is empty. `None` is content that is no text. A person
/// decides by this, so a file in another encoding than UTF-8 is shown as well, both sides
/// read in the encoding that the old one has.
fn texts<'a>(
    before: Option<&'a [u8]>,
    after: Option<&'a [u8]>,
) -> Option<(Cow<'a, str>, Cow<'a, str>)> {
    if let (Some(old), Some(new)) = (plain_text(before), plain_text(after)) {
        return Some((old.into(), new.into()));
    }
    let old = Document::decode(before?).ok()?;
    let new = match after {
        Some(after) => Document::with_encoding(after, old.encoding())
            .ok()?
            .view()
            .to_owned(),
        None => String::new(),
    };
    Some((old.view().to_owned().into(), new.into()))
}

fn plain_text(side: Option<&[u8]>) -> Option<&str> {
    let Some(bytes) = side else { return Some("") };
    if bytes.contains(&0) {
        None
    } else {
        std::str::from_utf8(bytes).ok()
    }
}

fn binary_note(path: &str, before: Option<&[u8]>, after: Option<&[u8]>) -> v1::ToolCallContent {
    let size = |side: Option<&[u8]>| {
        side.map_or_else(
            || "nothing".to_owned(),
            |bytes| format!("{} bytes", bytes.len()),
        )
    };
    text_content(&format!(
        "{path} is not shown as text: {} become {}.",
        size(before),
        size(after)
    ))
}

struct Region<'a> {
    old: &'a str,
    new: &'a str,
    /// Of the new text, counted from 1, both shown.
    lines: (usize, usize),
}

impl<'a> Region<'a> {
    fn of(old: &'a str, new: &'a str, context: usize) -> Self {
        let same = old
            .bytes()
            .zip(new.bytes())
            .take_while(|(a, b)| a == b)
            .count();
        let from = line_start(old, same);
        let rest = old.len().min(new.len()) - from;
        let same_end = old
            .bytes()
            .rev()
            .zip(new.bytes().rev())
            .take(rest)
            .take_while(|(a, b)| a == b)
            .count();
        let tail = next_line(old, old.len() - same_end);
        let (old_end, new_end) = (tail, new.len() - (old.len() - tail));
        let from = (0..context).fold(
            from,
            |at, _| if at == 0 { 0 } else { line_start(old, at - 1) },
        );
        let more =
            (0..context).fold(old_end, |at, _| next_line(old, (at + 1).min(old.len()))) - old_end;
        let new_end = (new_end + more).min(new.len());
        let old = old.get(from..old_end + more).unwrap_or(old);
        let shown = new.get(from..new_end).unwrap_or(new);
        let first = new.get(..from).unwrap_or_default().matches('\n').count() + 1;
        let last = first + shown.trim_end_matches('\n').matches('\n').count();
        Self {
            old,
            new: shown,
            lines: (first, last),
        }
    }
}

/// The start of the line that holds this byte.
fn line_start(text: &str, at: usize) -> usize {
    let head = text.as_bytes().get(..at).unwrap_or_default();
    head.iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |found| found + 1)
}

/// The start of a line at or after this byte, or the end.
fn next_line(text: &str, at: usize) -> usize {
    if at == 0 {
        return 0;
    }
    let tail = text.as_bytes().get(at - 1..).unwrap_or_default();
    tail.iter()
        .position(|byte| *byte == b'\n')
        .map_or(text.len(), |found| at + found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn diff(
        old: Option<&str>,
        new: Option<&str>,
        budget: usize,
    ) -> (Option<String>, String, usize) {
        let contents = render("/f", old.map(str::as_bytes), new.map(str::as_bytes), budget);
        match contents.first() {
            Some(v1::ToolCallContent::Diff(diff)) => {
                (diff.old_text.clone(), diff.new_text.clone(), contents.len())
            }
            _ => (None, String::new(), 0),
        }
    }

    #[test]
    fn small_files_are_whole_and_new_ones_have_no_old_text() {
        assert_eq!(
            diff(Some("a\n"), Some("b\n"), 1000),
            (Some("a\n".into()), "b\n".into(), 1)
        );
        assert_eq!(diff(None, Some("b\n"), 1000), (None, "b\n".into(), 1));
        assert_eq!(
            diff(Some("a"), None, 1000),
            (Some("a".into()), String::new(), 2)
        );
    }

    #[test]
    fn a_large_file_is_shown_around_its_change() {
        let old: String = (1..=5000).map(|n| format!("line {n}\n")).collect();
        let new = old.replace("line 2500\n", "changed\n");
        let (shown_old, shown_new, parts) = diff(Some(&old), Some(&new), 2000);
        assert_eq!(
            shown_new,
            "line 2497\nline 2498\nline 2499\nchanged\nline 2501\nline 2502\nline 2503\n"
        );
        assert_eq!(
            shown_old.as_deref(),
            Some("line 2497\nline 2498\nline 2499\nline 2500\nline 2501\nline 2502\nline 2503\n")
        );
        assert_eq!(parts, 2);
    }

    /// A person who is asked about a change must see it, whatever the file is encoded in.
    #[test]
    fn a_change_in_another_encoding_is_shown() {
        let latin = |word: &str| {
            let mut bytes = b"caf\xE9 \xFCber alles\nna\xEFve r\xE9sum\xE9\n".to_vec();
            bytes.extend_from_slice(word.as_bytes());
            bytes
        };
        let wide = |text: &str| -> Vec<u8> {
            std::iter::once(0xFEFF)
                .chain(text.encode_utf16())
                .flat_map(u16::to_le_bytes)
                .collect()
        };
        for (before, after) in [
            (latin("one\n"), latin("two\n")),
            (wide("one\n"), wide("two\n")),
        ] {
            let contents = render("/f", Some(&before), Some(&after), 1000);
            assert!(
                matches!(contents.first(), Some(v1::ToolCallContent::Diff(diff))
                    if diff.new_text.ends_with("two\n")
                        && diff.old_text.as_deref().is_some_and(|old| old.ends_with("one\n"))),
                "{contents:?}"
            );
        }
    }

    #[test]
    fn what_is_no_text_is_named() {
        let contents = render("/f.png", None, Some(&[0, 1, 2]), 1000);
        assert_eq!(
            contents,
            vec![text_content(
                "/f.png is not shown as text: nothing become 3 bytes."
            )]
        );
    }

    proptest! {
        #[test]
        fn a_region_holds_the_whole_change(old in "[ab\né]{0,60}", new in "[ab\né]{0,60}") {
            let region = Region::of(&old, &new, CONTEXT);
            // Putting the new region in the place of the old one gives the new text.
            let at = region.old.as_ptr() as usize - old.as_ptr() as usize;
            let (head, tail) = (&old[..at], &old[at + region.old.len()..]);
            prop_assert_eq!(format!("{head}{}{tail}", region.new), new);
        }

        #[test]
        fn a_diff_keeps_its_bound(old in any::<String>(), new in any::<String>(), budget in 400_usize..900) {
            let contents = render("/f", Some(old.as_bytes()), Some(new.as_bytes()), budget);
            let size = serde_json::to_string(&contents).unwrap_or_default().len();
            prop_assert!(size <= budget + 400, "{size}");
        }
    }
}
