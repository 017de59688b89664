//! Where commands print. A broken pipe, as of `terret sessions list | head`, ends the
//! command quietly.

use std::io::{self, Write};

use crate::paths::Environment;

/// Standard output for a command that is no protocol.
pub(crate) struct Output {
    stdout: io::BufWriter<io::Stdout>,
}

impl Output {
    pub(crate) fn new() -> Self {
        Self {
            stdout: io::BufWriter::new(io::stdout()),
        }
    }

    /// Prints a line.
    pub(crate) fn line(&mut self, text: impl AsRef<str>) -> io::Result<()> {
        writeln!(self.stdout, "{}", text.as_ref())
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stdout.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stdout.flush()
    }
}

/// Makes text from a log safe to print: no control characters but line ends and tabs,
/// and none that turn the direction of writing.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .map(|character| match character {
            '\n' | '\t' => character,
            c if c.is_control() => '\u{fffd}',
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' => {
                '\u{fffd}'
            }
            c => c,
        })
        .collect()
}

/// Whether to print colours: on a terminal, unless `NO_COLOR` is set to anything.
pub(crate) fn colour(terminal: bool, environment: &dyn Environment) -> bool {
    terminal
        && environment
            .var("NO_COLOR")
            .is_none_or(|value| value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct NoColour(Option<&'static str>);

    impl Environment for NoColour {
        fn var(&self, name: &str) -> Option<String> {
            self.0.filter(|_| name == "NO_COLOR").map(str::to_owned)
        }
    }

    #[test]
    fn colours_are_for_terminals_of_people_who_want_them() {
        for (terminal, value, expected) in [
            (true, None, true),
            (true, Some("1"), false),
            (true, Some("0"), false),
            (true, Some(""), true),
            (false, None, false),
        ] {
            assert_eq!(colour(terminal, &NoColour(value)), expected, "{value:?}");
        }
    }

    #[test]
    fn what_is_printed_cannot_move_the_cursor() {
        assert_eq!(
            printable("a\x1b[2Jb\nc\u{202e}d"),
            "a\u{fffd}[2Jb\nc\u{fffd}d"
        );
    }
}
