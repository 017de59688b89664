//! Commands that wait for a person: there is no terminal, and the input is empty.
//!
//! Most of them fail at once by themselves; what they say of it is often misread, so the
//! likely cause and the way out are told in a remark. Editors that would draw on a pipe
//! for ever are not started at all.

use crate::call::Failure;
use crate::world::process::End;

/// Editors that do not notice that nobody can type; the name by itself or with files.
const EDITORS: &[&str] = &[
    "vi", "vim", "nvim", "view", "vimdiff", "nano", "pico", "emacs", "joe", "mc",
];

/// Programs that read a program or a text from an empty input and end in silence.
const READERS: &[&str] = &[
    "python", "python3", "node", "irb", "ruby", "perl", "php", "lua", "ghci", "R", "bash", "sh",
    "zsh", "cat", "sqlite3", "psql", "mysql", "bc", "read",
];

const TERMINAL: &str = "it seems to want a terminal, and a command has none: use the options that it has for scripts, \
    or terminal_open where a live program is needed";
const PASSWORD: &str = "it seems to want a password or a confirmed key, and nobody can type one here: let the person \
    set up access without a question, or run it in their own terminal";
const QUESTION: &str = "it seems to have asked a question, and its input is empty: give the answer by an option, such \
    as `-y` or `--yes`, or pipe it in";
const EDITOR: &str = "it wanted to open an editor: give the text on the command line, such as `git commit -m`, or \
    choose by options, such as `git rebase --onto`; GIT_SEQUENCE_EDITOR and GIT_EDITOR may name a script";
const SILENT: &str = "it reads its input, which is empty, so it ended at once: give the text as an argument, with \
    `-c` or `-e`, or pipe it in";

/// What programs print, in lower case, when nobody is there, and what is to be said of it.
/// The first that fits is told.
const SIGNS: &[(&str, &str)] = &[
    ("no editor can be opened here", EDITOR),
    ("terminal is dumb, but editor unset", EDITOR),
    ("problem with the editor", EDITOR),
    ("a terminal is required to read the password", PASSWORD),
    ("a password is required", PASSWORD),
    ("password is required", PASSWORD),
    ("no password supplied", PASSWORD),
    ("no password was provided", PASSWORD),
    ("terminal prompts disabled", PASSWORD),
    ("could not read username", PASSWORD),
    ("could not read password", PASSWORD),
    ("authentication token manipulation error", PASSWORD),
    ("host key verification failed", PASSWORD),
    ("permission denied (publickey", PASSWORD),
    ("no askpass program", PASSWORD),
    ("enter passphrase", PASSWORD),
    ("enter password", PASSWORD),
    ("gpg: cannot open '/dev/tty'", PASSWORD),
    ("inappropriate ioctl for device", TERMINAL),
    ("not a tty", TERMINAL),
    ("not a terminal", TERMINAL),
    ("no tty present", TERMINAL),
    ("/dev/tty", TERMINAL),
    ("failed tty get", TERMINAL),
    ("error opening terminal", TERMINAL),
    ("output is not to a terminal", TERMINAL),
    ("requires a terminal", TERMINAL),
    ("must be run from a terminal", TERMINAL),
    ("open terminal failed", TERMINAL),
    ("eof when reading a line", QUESTION),
    ("end of file on stdin", QUESTION),
    ("not running interactively", QUESTION),
    ("prompts can not be meaningfully asked", QUESTION),
    ("user force closed the prompt", QUESTION),
    ("do you want to continue?", QUESTION),
    ("[y/n]", QUESTION),
    ("(y/n)", QUESTION),
    ("(yes/no", QUESTION),
    ("(y/n/", QUESTION),
    ("press ^c at any time to quit", QUESTION),
];

/// Refuses what would only draw on a pipe until its timeout.
pub(super) fn refused(command: &str) -> Result<(), Failure> {
    let editor = simple_commands(command)
        .into_iter()
        .flatten()
        .find(|simple| EDITORS.contains(&simple.name()) && simple.options() == 0);
    match editor {
        Some(simple) => Err(Failure::new(format!(
            "nothing was run: `{}` opens an editor, and nobody can type here; change files with Edit and Write, or by \
             a command that needs no keyboard",
            simple.name()
        ))),
        None => Ok(()),
    }
}

/// The likely reason of an end that nobody's absence explains.
pub(super) fn hint(command: &str, end: End, text: &str) -> Option<String> {
    if end == End::Cancelled {
        return None;
    }
    if end != End::Exited(0) {
        // What is said last is said of the end.
        let lower = tail(text).to_lowercase();
        if let Some((_, words)) = SIGNS.iter().find(|(sign, _)| lower.contains(sign)) {
            return Some((*words).to_owned());
        }
    }
    if !text.trim().is_empty() || !matches!(end, End::Exited(0 | 1)) {
        return None;
    }
    let commands = simple_commands(command)?;
    let last = commands.last()?;
    let is_reader = READERS.contains(&last.name())
        && !last.redirected
        && (last.words.len() == 1 || last.name() == "read");
    is_reader.then(|| format!("`{}`: {SILENT}", last.name()))
}

/// Bytes from the end that are looked at.
const TAIL: usize = 4096;

fn tail(text: &str) -> &str {
    text.get(text.ceil_char_boundary(text.len().saturating_sub(TAIL))..)
        .unwrap_or_default()
}

/// A command without operators.
#[derive(Debug, Default, PartialEq, Eq)]
struct Simple {
    words: Vec<String>,
    /// Its input comes from somewhere, or its output goes to a file.
    redirected: bool,
}

impl Simple {
    /// The program, without the folder that it may be named with.
    fn name(&self) -> &str {
        let word = self.words.first().map_or("", String::as_str);
        word.rsplit('/').next().unwrap_or(word)
    }

    fn options(&self) -> usize {
        let is_option = |word: &&String| word.starts_with('-') || word.starts_with('+');
        self.words.iter().skip(1).filter(is_option).count() + usize::from(self.redirected)
    }
}

/// The simple commands of a line, without assignments before them. None for what is not
/// plain enough to be sure: substitutions, here-documents, groups, unclosed quotes.
fn simple_commands(command: &str) -> Option<Vec<Simple>> {
    let mut all = Vec::new();
    let mut simple = Simple::default();
    let mut word: Option<String> = None;
    let mut rest = command.chars().peekable();
    while let Some(character) = rest.next() {
        match character {
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match rest.next()? {
                        '\'' => break,
                        inner => word.push(inner),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match rest.next()? {
                        '"' => break,
                        '\\' => word.push(rest.next()?),
                        '$' | '`' => return None,
                        inner => word.push(inner),
                    }
                }
            }
            '\\' => match rest.next()? {
                '\n' => {}
                escaped => word.get_or_insert_default().push(escaped),
            },
            '$' if rest.peek() == Some(&'(') => return None,
            '`' | '(' | ')' | '{' | '}' => return None,
            '#' if word.is_none() => while rest.next_if(|next| *next != '\n').is_some() {},
            '<' | '>' => {
                if rest.peek() == Some(&character) && character == '<' {
                    return None;
                }
                simple.redirected |= true;
                word.get_or_insert_default().push(character);
            }
            '&' if word.as_deref().is_some_and(|word| word.ends_with('>'))
                || rest.peek() == Some(&'>') =>
            {
                word.get_or_insert_default().push(character);
            }
            ';' | '\n' | '|' | '&' => {
                simple.words.extend(word.take());
                finish(&mut simple, &mut all);
                if rest.peek() == Some(&character) {
                    rest.next();
                } else if character == '|' {
                    // What comes next reads what this one writes.
                    simple.redirected = true;
                }
            }
            blank if blank.is_whitespace() => simple.words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    simple.words.extend(word);
    finish(&mut simple, &mut all);
    Some(all)
}

fn finish(simple: &mut Simple, all: &mut Vec<Simple>) {
    let mut simple = std::mem::take(simple);
    let assignments = simple
        .words
        .iter()
        .take_while(|word| {
            word.split_once('=').is_some_and(|(name, _)| {
                !name.is_empty()
                    && name
                        .chars()
                        .all(|character| character.is_ascii_alphanumeric() || character == '_')
            })
        })
        .count();
    simple.words.drain(..assignments);
    if !simple.words.is_empty() {
        all.push(simple);
    }
}

#[cfg(test)]
mod tests;
