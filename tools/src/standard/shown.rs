//! The changed lines of a file as a result shows them: with numbers, and a little around.

use std::fmt::Write as _;
use std::time::Duration;

use similar::{Algorithm, DiffTag, capture_diff_slices_deadline};

/// Lines shown around a change.
const AROUND: usize = 2;
/// Lines shown in all.
const MOST_LINES: usize = 80;
/// Characters shown of a line.
const MOST_CHARACTERS: usize = 400;
/// How long the difference may be looked for; after that it is coarser.
const PATIENCE: Duration = Duration::from_millis(200);

/// The lines of `after` that are not as in `before`, numbered as Read does, and how many
/// were left out.
pub(super) fn changed_lines(before: &str, after: &str) -> (String, usize) {
    let old: Vec<&str> = before.split('\n').collect();
    let new: Vec<&str> = after.split('\n').collect();
    // Most of a file is as it was; what is shared at both ends needs no comparing.
    let head = old
        .iter()
        .zip(&new)
        .take_while(|(left, right)| left == right)
        .count();
    let most = old.len().min(new.len()) - head;
    let tail = old
        .iter()
        .rev()
        .zip(new.iter().rev())
        .take(most)
        .take_while(|(left, right)| left == right)
        .count();
    let old_middle = old.get(head..old.len() - tail).unwrap_or_default();
    let new_middle = new.get(head..new.len() - tail).unwrap_or_default();
    let deadline = std::time::Instant::now().checked_add(PATIENCE);
    let operations =
        capture_diff_slices_deadline(Algorithm::Myers, old_middle, new_middle, deadline);
    let mut wanted: Vec<std::ops::Range<usize>> = Vec::new();
    for operation in operations
        .iter()
        .filter(|operation| operation.tag() != DiffTag::Equal)
    {
        let range = operation.new_range();
        let from = (range.start + head).saturating_sub(AROUND);
        let to = (range.end + head + AROUND).min(new.len());
        match wanted.last_mut() {
            Some(last) if last.end >= from => last.end = to,
            _ => wanted.push(from..to),
        }
    }
    // The empty piece after a final newline is no line.
    let lines = if after.ends_with('\n') {
        new.len() - 1
    } else {
        new.len()
    };
    let mut text = String::new();
    let (mut shown, mut left_out) = (0, 0);
    for (index, range) in wanted.into_iter().enumerate() {
        let range = range.start.min(lines)..range.end.min(lines);
        if index > 0 && shown < MOST_LINES {
            text.push_str("   ...\n");
        }
        for number in range {
            if shown == MOST_LINES {
                left_out += 1;
                continue;
            }
            shown += 1;
            let line = new.get(number).copied().unwrap_or_default();
            let cut: String = line.chars().take(MOST_CHARACTERS).collect();
            let more = if cut.len() < line.len() { " …" } else { "" };
            let _ = writeln!(text, "{:>6}\t{cut}{more}", number + 1);
        }
    }
    text.truncate(text.trim_end_matches('\n').len());
    (text, left_out)
}

#[cfg(test)]
mod tests {
    use super::changed_lines;

    #[test]
    fn the_changed_lines_come_with_numbers_and_a_little_around() {
        let before = "a\nb\nc\nd\ne\nf\n";
        let after = "a\nb\nc\nD\ne\nf\n";
        assert_eq!(
            changed_lines(before, after).0,
            "     2\tb\n     3\tc\n     4\tD\n     5\te\n     6\tf"
        );
    }

    #[test]
    fn a_large_change_is_cut_and_counted() {
        let after: String = (0..200).map(|number| format!("{number}\n")).collect();
        let (text, left_out) = changed_lines("", &after);
        assert_eq!(text.lines().count(), 80);
        assert_eq!(left_out, 120);
    }

    #[test]
    fn a_removal_shows_what_is_around_it() {
        assert_eq!(
            changed_lines("a\nb\nc\n", "a\nc\n").0,
            "     1\ta\n     2\tc"
        );
    }
}
