//! What is typed into a terminal, from text with names of keys in it.
//!
//! Text is typed as it stands, and a line end is the Enter key. Only the names below, in
//! this spelling, are keys; backslashes are never read, because a model that types
//! `printf 'a\n'` means them.

use std::fmt::Write;

/// What one call may type, in bytes of text.
pub const LONGEST: usize = 16 * 1024;

/// What the system keeps of one line, its end aside, while a program reads whole lines.
pub const LINE: usize = 4095;

/// How the terminal stands, as far as keys depend on it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Keyboard {
    /// The program asked for the second meaning of cursor keys (`DECCKM`).
    pub application: bool,
    /// The system turns no carriage return into a line end, and hands on whole lines: only
    /// a line feed ends one.
    pub line_feed: bool,
}

/// The bytes of a text, and the keys that were read in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Typed {
    pub bytes: Vec<u8>,
    /// The names, in order, each once.
    pub keys: Vec<String>,
}

/// The bytes that a keyboard would send for this text.
pub fn typed(text: &str, keyboard: Keyboard) -> Typed {
    let mut typed = Typed::default();
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        if let Some((name, bytes, after)) = key(rest, keyboard) {
            typed.bytes.extend_from_slice(&bytes);
            if !typed.keys.iter().any(|known| known == name) {
                typed.keys.push(name.to_owned());
            }
            rest = after;
            continue;
        }
        let (length, bytes) = match character {
            '\r' if rest.starts_with("\r\n") => (2, enter(keyboard).to_vec()),
            '\n' => (1, enter(keyboard).to_vec()),
            other => (other.len_utf8(), other.to_string().into_bytes()),
        };
        typed.bytes.extend_from_slice(&bytes);
        rest = rest.get(length..).unwrap_or_default();
    }
    typed
}

/// The text as one line that a person reads, controls by name.
pub fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' => shown.push('⏎'),
            '\u{1b}' => shown.push_str("<Esc>"),
            '\u{7f}' => shown.push_str("<Backspace>"),
            '\t' => shown.push_str("<Tab>"),
            '\r' => shown.push_str("<Enter>"),
            control @ '\u{1}'..='\u{1a}' => {
                let letter = char::from_u32(u32::from(control) + 0x60).unwrap_or('?');
                let _ = write!(shown, "<C-{letter}>");
            }
            other if other.is_control() || reorders(other) => {
                shown.extend(other.escape_unicode());
            }
            other => shown.push(other),
        }
    }
    shown
}

/// A character that changes the order of what is around it, or hides in it.
pub(super) fn reorders(character: char) -> bool {
    matches!(
        character,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{061c}'
    )
}

fn enter(keyboard: Keyboard) -> &'static [u8] {
    if keyboard.line_feed { b"\n" } else { b"\r" }
}

/// A key's name at the start of the text, what it sends, and what follows it.
fn key(text: &str, keyboard: Keyboard) -> Option<(&str, Vec<u8>, &str)> {
    let inner = text.strip_prefix('<')?;
    let end = inner.bytes().take(10).position(|byte| byte == b'>')?;
    let name = inner.get(..end)?;
    let bytes = bytes(name, keyboard)?;
    let after = inner.get(end + 1..)?;
    Some((text.get(..end + 2)?, bytes, after))
}

fn bytes(name: &str, keyboard: Keyboard) -> Option<Vec<u8>> {
    let cursor = |last: u8| {
        let lead = if keyboard.application { b'O' } else { b'[' };
        Some(vec![0x1b, lead, last])
    };
    let fixed = |text: &str| Some(text.as_bytes().to_vec());
    if let Some(letter) = name.strip_prefix("C-") {
        return control(letter);
    }
    match name {
        "lt" => fixed("<"),
        "Enter" => Some(enter(keyboard).to_vec()),
        "Tab" => fixed("\t"),
        "S-Tab" => fixed("\u{1b}[Z"),
        "Esc" => fixed("\u{1b}"),
        "Space" => fixed(" "),
        "Backspace" => fixed("\u{7f}"),
        "Delete" => fixed("\u{1b}[3~"),
        "Insert" => fixed("\u{1b}[2~"),
        "Up" => cursor(b'A'),
        "Down" => cursor(b'B'),
        "Right" => cursor(b'C'),
        "Left" => cursor(b'D'),
        "Home" => cursor(b'H'),
        "End" => cursor(b'F'),
        "PageUp" => fixed("\u{1b}[5~"),
        "PageDown" => fixed("\u{1b}[6~"),
        "F1" => fixed("\u{1b}OP"),
        "F2" => fixed("\u{1b}OQ"),
        "F3" => fixed("\u{1b}OR"),
        "F4" => fixed("\u{1b}OS"),
        "F5" => fixed("\u{1b}[15~"),
        "F6" => fixed("\u{1b}[17~"),
        "F7" => fixed("\u{1b}[18~"),
        "F8" => fixed("\u{1b}[19~"),
        "F9" => fixed("\u{1b}[20~"),
        "F10" => fixed("\u{1b}[21~"),
        "F11" => fixed("\u{1b}[23~"),
        "F12" => fixed("\u{1b}[24~"),
        _ => None,
    }
}

/// `a` to `z` and the five signs that have a control.
fn control(name: &str) -> Option<Vec<u8>> {
    let mut characters = name.chars();
    let letter = characters.next()?;
    if characters.next().is_some() {
        return None;
    }
    let byte = match letter {
        'a'..='z' | 'A'..='Z' | '@' | '[' | '\\' | ']' | '^' | '_' => {
            u8::try_from(u32::from(letter) & 0x1f).ok()?
        }
        _ => return None,
    };
    Some(vec![byte])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(text: &str) -> Vec<u8> {
        typed(text, Keyboard::default()).bytes
    }

    #[test]
    fn text_is_typed_as_it_stands_and_a_line_end_is_enter() {
        assert_eq!(bytes_of("ls -l\n"), b"ls -l\r");
        assert_eq!(bytes_of("a\r\nb\r"), b"a\rb\r");
        assert_eq!(bytes_of("printf 'a\\n\\x03'"), b"printf 'a\\n\\x03'");
        assert_eq!(bytes_of("grün"), "grün".as_bytes());
        assert_eq!(bytes_of("\u{3}"), b"\x03");
    }

    #[test]
    fn keys_are_read_by_name_and_only_by_name() {
        let read = typed("<C-c>:q!<Enter><Up><C-c>", Keyboard::default());
        assert_eq!(read.bytes, b"\x03:q!\r\x1b[A\x03");
        assert_eq!(read.keys, ["<C-c>", "<Enter>", "<Up>"]);
        for plain in [
            "<br>",
            "a < b > c",
            "<up>",
            "<C-cc>",
            "<",
            "<Enter",
            "<ü>",
            "Vec<Up",
        ] {
            let read = typed(plain, Keyboard::default());
            assert_eq!(read.bytes, plain.as_bytes(), "{plain}");
            assert_eq!(read.keys, Vec::<String>::new());
        }
        assert_eq!(bytes_of("<lt>Up>"), b"<Up>");
        assert_eq!(bytes_of("<C-[><C-@><C-Z>"), b"\x1b\x00\x1a");
    }

    #[test]
    fn keys_follow_what_the_program_asked_for() {
        let keyboard = Keyboard {
            application: true,
            line_feed: true,
        };
        assert_eq!(typed("<Up>\n", keyboard).bytes, b"\x1bOA\n");
    }

    #[test]
    fn what_is_shown_hides_nothing() {
        assert_eq!(shown("y\n"), "y⏎");
        assert_eq!(shown("\u{3}\u{1b}\t"), "<C-c><Esc><Tab>");
        assert_eq!(shown("a\u{202e}b\0"), "a\\u{202e}b\\u{0}");
    }
}
