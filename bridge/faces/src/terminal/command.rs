//! What a terminal shows of a command: its text, the end of its output, and how it ended.

use terret_engine::room::tools::call::LEDGER_SEPARATOR;

use crate::text::{front, plain};

/// Lines of a command's output. The last ones say how it went.
const OUTPUT_LINES: usize = 10;
/// Bytes of one such line.
const LINE: usize = 400;

/// A result's text, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ran<'a> {
    output: &'a str,
    /// What is to be said beside the command, when it did not end well.
    pub(super) trouble: Option<String>,
    /// The text has a ledger, so the command was started.
    pub(super) has_ledger: bool,
}

impl<'a> Ran<'a> {
    /// Reads a result as the engine renders it: output, separator, remarks.
    pub(super) fn of(text: &'a str) -> Self {
        let text = unfenced(text).map_or(text, |(_, inner)| inner);
        let Some((output, ledger)) = text
            .rsplit_once(LEDGER_SEPARATOR)
            .filter(|(output, _)| output.is_empty() || output.ends_with('\n'))
        else {
            return Self {
                output: text,
                trouble: None,
                has_ledger: false,
            };
        };
        Self {
            output,
            trouble: ledger.lines().find_map(trouble),
            has_ledger: true,
        }
    }

    /// The last lines of the output, and a mark when there are more.
    pub(super) fn tail(&self) -> String {
        let output = self.output.trim_end();
        let mut lines: Vec<String> = output
            .lines()
            .rev()
            .take(OUTPUT_LINES)
            .map(|line| {
                let start = front(line, LINE);
                let mark = if start.len() < line.len() { "…" } else { "" };
                format!("{}{mark}", plain(start))
            })
            .collect();
        let left_out = output.lines().count() - lines.len();
        if left_out > 0 {
            let noun = if left_out == 1 { "line" } else { "lines" };
            lines.push(format!("… {left_out} more {noun} above"));
        }
        lines.reverse();
        lines.join("\n")
    }
}

fn trouble(remark: &str) -> Option<String> {
    let remark = remark.trim();
    if let Some(status) = remark.strip_prefix("exit status ") {
        return Some(format!("exit {}", plain(status)));
    }
    if remark.starts_with("ended by ") {
        return Some(plain(front(remark, LINE)));
    }
    // What was stopped did not run to its end, whatever it printed until then.
    if remark.starts_with("notice: the command was still running")
        || remark.starts_with("cancelled: the command was stopped")
    {
        return Some("stopped".to_owned());
    }
    None
}

/// The language and the text of what is one fenced block and nothing else.
pub(super) fn unfenced(text: &str) -> Option<(&str, &str)> {
    let (open, rest) = text.split_once('\n')?;
    let language = open.trim_start_matches('`');
    let fence = open.strip_suffix(language)?;
    let inner = rest.strip_suffix(fence)?;
    (fence.len() >= 3 && (inner.is_empty() || inner.ends_with('\n'))).then_some((language, inner))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::fenced;

    #[test]
    fn a_fence_comes_off_again() {
        for text in ["sh check.sh\n", "echo '```'\nls\n", "\n"] {
            let block = fenced(text, "sh");
            assert_eq!(unfenced(&block), Some(("sh", text)), "{block}");
        }
        for text in ["", "ls", "```", "``\nls\n``", "```sh\nls\n```\nmore"] {
            assert_eq!(unfenced(text), None, "{text}");
        }
    }

    #[test]
    fn how_a_command_ended_comes_from_the_ledger_alone() {
        let trouble = |text: &str| Ran::of(&fenced(text, "")).trouble;
        assert_eq!(trouble("fine"), None);
        assert_eq!(trouble("exit status 1"), None);
        assert_eq!(trouble("x --- terret ---\nexit status 1"), None);
        assert_eq!(
            trouble("x\n--- terret ---\na remark\nexit status 3"),
            Some("exit 3".to_owned())
        );
        assert_eq!(
            trouble("--- terret ---\nended by SIGKILL"),
            Some("ended by SIGKILL".to_owned())
        );
        let late =
            "--- terret ---\nnotice: the command was still running after 5 ms and was stopped";
        assert_eq!(trouble(late), Some("stopped".to_owned()));
    }

    #[test]
    fn the_last_lines_of_output_are_kept() {
        let text: String = (1..=12).map(|n| format!("line {n}\n")).collect();
        let tail = Ran::of(&fenced(&text, "")).tail();
        assert!(tail.starts_with("… 2 more lines above\nline 3\n"), "{tail}");
        assert!(tail.ends_with("\nline 12"), "{tail}");
        let wide = Ran::of(&"x".repeat(5000)).tail();
        assert_eq!(wide.chars().count(), LINE + 1);
    }
}
