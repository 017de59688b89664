//! Text as a person can judge it: nothing in it moves the cursor, hides or reorders what
//! stands beside it (`design: Permissions`).

/// The text with every control, invisible and bidirectional character escaped, line breaks
/// and tabs too. What is shown is longer than the text, never shorter.
pub fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if deceives(character) {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Whether a character is not seen, or changes how others are seen.
pub(super) fn deceives(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{115f}' | '\u{1160}'
                | '\u{17b4}' | '\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{2800}'
                | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
        // Blanks that are none to a shell, though they look so.
        || (character.is_whitespace() && character != ' ')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{deceives, shown};

    #[test]
    fn what_hides_is_written_out_and_the_rest_stands() {
        assert_eq!(shown("ls -l 'grün' 漢字"), "ls -l 'grün' 漢字");
        assert_eq!(
            shown("a\u{202e}b\u{1b}[2K\nc\td\u{a0}e"),
            "a\\u{202e}b\\u{1b}[2K\\nc\\td\\u{a0}e"
        );
        assert_eq!(shown("x\u{200b}y\u{e0041}"), "x\\u{200b}y\\u{e0041}");
    }

    proptest! {
        #[test]
        fn nothing_shown_deceives(text in any::<String>()) {
            prop_assert!(!shown(&text).chars().any(deceives));
        }
    }
}
