//! The last lines of a job's output, for a card or a list.

use crate::world::jobs::folder::Folder;
use crate::world::jobs::spool;
use crate::world::process::clean::Cleaner;

/// Bytes of cleaned text (design: cards show the last lines).
pub(crate) const TAIL: usize = 2 * 1024;
/// Bytes of output that it is made from: escape sequences take their part.
const SOURCE: usize = 8 * 1024;

/// The tail of what the spool holds; empty when that cannot be read.
pub(crate) fn of(folder: &Folder) -> String {
    let Ok(end) = spool::end(folder) else {
        return String::new();
    };
    let from = end.saturating_sub(SOURCE as u64);
    let Ok(found) = spool::read(folder, from, SOURCE) else {
        return String::new();
    };
    clean(&found.bytes, found.at > 0)
}

fn clean(bytes: &[u8], is_cut: bool) -> String {
    // The first line is not whole and may begin within a sequence or a character.
    let start = match bytes.iter().position(|byte| *byte == b'\n') {
        Some(at) if is_cut && at + 1 < bytes.len() => at + 1,
        _ if is_cut => bytes
            .iter()
            .take_while(|byte| matches!(byte, 0x80..=0xbf))
            .count()
            .min(3),
        _ => 0,
    };
    let bytes = bytes.get(start..).unwrap_or_default();
    let bytes = bytes
        .get(..bytes.len() - spool::unfinished(bytes))
        .unwrap_or_default();
    let mut cleaner = Cleaner::new();
    let mut text = String::new();
    cleaner.push(bytes, &mut text);
    cleaner.finish(&mut text);
    let text = text.trim_end();
    let Some(over) = text.len().checked_sub(TAIL).filter(|over| *over > 0) else {
        return text.to_owned();
    };
    let start = (over..text.len())
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(text.len());
    let last = text.get(start..).unwrap_or_default();
    match last.split_once('\n') {
        Some((_, lines)) if !lines.is_empty() => lines.to_owned(),
        _ => last.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::indexing_slicing, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn a_tail_has_whole_lines_and_characters_and_no_sequences() {
        let mut output = String::new();
        for line in 0..2000 {
            output.push_str(&format!("\u{1b}[32m漢字 {line}\u{1b}[0m\r\n"));
        }
        let bytes = output.as_bytes();
        for cut in 0..40 {
            let tail = clean(&bytes[bytes.len() - SOURCE - cut..], true);
            assert!(tail.len() <= TAIL);
            assert!(tail.ends_with("漢字 1999"), "{tail}");
            assert!(tail.lines().all(|line| line.starts_with("漢字 ")), "{tail}");
        }
    }

    #[test]
    fn one_line_without_an_end_is_cut_at_a_character() {
        let output = "漢".repeat(5000);
        let bytes = output.as_bytes();
        for cut in 0..4 {
            let tail = clean(&bytes[bytes.len() - SOURCE + cut..], true);
            assert!(tail.len() <= TAIL && tail.len() > TAIL - 3);
            assert!(tail.chars().all(|character| character == '漢'));
        }
        // The rest of the last character is still to come.
        assert_eq!(clean(&"ab漢".as_bytes()[..4], false), "ab");
    }
}
