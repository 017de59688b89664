//! Text on its way to a person: bounded, cut at character boundaries, and safe to decide by.
//!
//! Frames stay small because clients exist whose line buffer holds 64 KiB
//! (`ACP stdio`, gotchas on size), and JSON writes some characters as six bytes, so all
//! bounds here count encoded bytes.

/// Bytes that a JSON string needs for one character, by the writer of `terret-acp`.
pub(crate) fn encoded_char(character: char) -> usize {
    match character {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\u{0}'..='\u{1f}' | '\u{85}' | '\u{2028}' | '\u{2029}' => 6,
        other => other.len_utf8(),
    }
}

/// Bytes that a JSON string needs for a text, quotes aside.
pub(crate) fn encoded_len(text: &str) -> usize {
    text.chars().map(encoded_char).sum()
}

/// The longest front of a text that needs at most `limit` encoded bytes.
pub(crate) fn front(text: &str, limit: usize) -> &str {
    if text.len() * 6 <= limit {
        return text;
    }
    let mut used = 0;
    for (at, character) in text.char_indices() {
        used += encoded_char(character);
        if used > limit {
            return text.get(..at).unwrap_or_default();
        }
    }
    text
}

/// The longest end of a text that needs at most `limit` encoded bytes.
pub(crate) fn back(text: &str, limit: usize) -> &str {
    if text.len() * 6 <= limit {
        return text;
    }
    let mut used = 0;
    for (at, character) in text.char_indices().rev() {
        used += encoded_char(character);
        if used > limit {
            return text.get(at + character.len_utf8()..).unwrap_or_default();
        }
    }
    text
}

/// A text in pieces of at most `limit` encoded bytes each.
pub(crate) fn pieces(text: &str, limit: usize) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let piece = front(rest, limit.max(6));
        rest = rest.get(piece.len()..).unwrap_or_default();
        Some(piece)
    })
}

/// A text within `limit` encoded bytes: whole, or its two ends with a note of what is
/// missing between them, since the end of a command or an output tells as much as its start.
pub(crate) fn ends(text: &str, limit: usize) -> String {
    if encoded_len(text) <= limit {
        return text.to_owned();
    }
    const NOTE: usize = 80;
    let share = limit.saturating_sub(NOTE) / 2;
    let (head, tail) = (front(text, share), back(text, share));
    let hidden = text.len().saturating_sub(head.len() + tail.len());
    format!(
        "{head}\n[… {hidden} of {} bytes are not shown here …]\n{tail}",
        text.len()
    )
}

/// Text to decide by: what moves the cursor, hides or reorders text is written out, so
/// that a command cannot look like another one. Line ends and tabs stay.
pub(crate) fn plain(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if matches!(character, '\n' | '\t') || !is_deceptive(character) {
            shown.push(character);
        } else {
            shown.extend(character.escape_unicode());
        }
    }
    shown
}

/// One line of at most `limit` characters to name a thing by.
pub(crate) fn line(text: &str, limit: usize) -> String {
    let mut shown = String::new();
    let words = plain(text);
    let mut count = 0;
    let mut blank = false;
    for character in words.trim().chars() {
        if character.is_whitespace() {
            blank = true;
            continue;
        }
        if blank {
            shown.push(' ');
            count += 1;
            blank = false;
        }
        if count >= limit {
            shown.push('…');
            return shown;
        }
        shown.push(character);
        count += 1;
    }
    shown
}

/// Text as a Markdown block that shows it as it is, whatever fences it holds.
pub(crate) fn fenced(text: &str, language: &str) -> String {
    let mut longest = 0;
    let mut run = 0;
    for character in text.chars() {
        run = if character == '`' { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    let fence = "`".repeat((longest + 1).max(3));
    let end = if text.ends_with('\n') { "" } else { "\n" };
    format!("{fence}{language}\n{text}{end}{fence}")
}

/// Whether a text holds characters that hide or reorder what stands beside them.
pub(crate) fn hides(text: &str) -> bool {
    text.chars()
        .any(|character| !character.is_control() && is_deceptive(character))
}

fn is_deceptive(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{2069}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_join_to_the_text_and_keep_their_bound(text in any::<String>(), limit in 6_usize..64) {
            let all: Vec<&str> = pieces(&text, limit).collect();
            prop_assert_eq!(&all.concat(), &text);
            for piece in all {
                prop_assert!(!piece.is_empty() && encoded_len(piece) <= limit);
            }
        }

        #[test]
        fn the_encoded_length_is_never_short(text in any::<String>()) {
            let written = serde_json::to_string(&text).unwrap_or_default();
            prop_assert!(encoded_len(&text) + 2 >= written.len());
        }

        #[test]
        fn ends_keep_both_ends(text in "[a-z]{0,600}") {
            let shown = ends(&text, 200);
            prop_assert!(encoded_len(&shown) <= 200);
            prop_assert!(text.starts_with(shown.split('\n').next().unwrap_or_default()));
            prop_assert!(text.ends_with(shown.split('\n').next_back().unwrap_or_default()));
        }

        #[test]
        fn nothing_deceptive_is_left(text in any::<String>()) {
            prop_assert!(!plain(&text).chars().any(|c| is_deceptive(c) && c != '\n' && c != '\t'));
        }
    }

    #[test]
    fn a_reversed_command_reads_as_it_runs() {
        assert_eq!(plain("rm \u{202e}x\u{7}\n"), "rm \\u{202e}x\\u{7}\n");
    }

    #[test]
    fn a_line_is_one_line() {
        assert_eq!(line("  a\n\n b\tc ", 80), "a b c");
        assert_eq!(line("abcdef", 3), "abc…");
    }

    #[test]
    fn a_fence_is_longer_than_those_inside() {
        assert_eq!(fenced("a\n````\n", "sh"), "`````sh\na\n````\n`````");
        assert_eq!(fenced("a", ""), "```\na\n```");
    }
}
