//! The floor: the deny-by-default list of tools that can run at all (`Terret spec §2.2`).
//!
//! Patterns are shell globs as fnmatch has them without flags, save that a `*`, `?` or
//! `[…]` does not match a leading dot: case counts, `\` escapes.

/// A list of patterns. An empty one admits nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Floor {
    patterns: Vec<String>,
}

/// The names of the standard tools, as the default floor lists them.
pub const STANDARD: &[&str] = &[
    "Read",
    "Write",
    "Edit",
    "MultiEdit",
    "Glob",
    "Grep",
    "Bash",
    "WebFetch",
    "TodoWrite",
    "ExitPlanMode",
    "Task",
    "job_start",
    "job_collect",
    "job_stop",
    "job_list",
    "terminal_open",
    "terminal_input",
    "terminal_read",
    "terminal_close",
];

impl Default for Floor {
    /// The standard tools and all tools of tool servers.
    fn default() -> Self {
        Self::new(STANDARD.iter().copied().chain(["mcp__*"]))
    }
}

impl Floor {
    pub fn new<S: Into<String>>(patterns: impl IntoIterator<Item = S>) -> Self {
        Self {
            patterns: patterns.into_iter().map(Into::into).collect(),
        }
    }

    pub fn patterns(&self) -> &[String] {
        &self.patterns
    }

    /// Whether any pattern admits this tool.
    pub fn admits(&self, tool: &str) -> bool {
        self.patterns
            .iter()
            .any(|pattern| glob_matches(pattern, tool))
    }
}

/// The words of the floor's refusal.
pub fn refusal(tool: &str) -> String {
    format!("{tool} is not on the allow list")
}

/// Whether a shell glob matches the whole name.
pub fn glob_matches(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    // One place to come back to is enough: a later star takes over from an earlier one.
    let (mut at, mut position) = (0, 0);
    let mut back: Option<(usize, usize)> = None;
    loop {
        let leading_dot = position == 0 && name.first() == Some(&'.');
        let step = match (pattern.get(at), name.get(position)) {
            (None, None) => return true,
            (Some('*'), _) if !leading_dot => {
                back = Some((at, position));
                at += 1;
                continue;
            }
            (Some(_), Some(character)) => one(
                pattern.get(at..).unwrap_or_default(),
                *character,
                leading_dot,
            ),
            _ => None,
        };
        match (step, back) {
            (Some(length), _) => {
                at += length;
                position += 1;
            }
            (None, Some((star, from))) if from < name.len() => {
                at = star + 1;
                position = from + 1;
                back = Some((star, from + 1));
            }
            _ => return false,
        }
    }
}

/// How much of the pattern matched this one character.
fn one(pattern: &[char], character: char, leading_dot: bool) -> Option<usize> {
    match pattern {
        ['*', ..] | [] => None,
        ['?', ..] => (!leading_dot).then_some(1),
        ['\\', escaped, ..] => (*escaped == character).then_some(2),
        ['[', rest @ ..] => match set(rest, character) {
            Some((matched, length)) => (matched && !leading_dot).then_some(length + 1),
            // A bracket that nothing closes is a plain character.
            None => (character == '[').then_some(1),
        },
        [plain, ..] => (*plain == character).then_some(1),
    }
}

/// Reads a set after its `[`: whether it holds the character, and its length with the `]`.
fn set(pattern: &[char], character: char) -> Option<(bool, usize)> {
    let negated = matches!(pattern.first(), Some('!' | '^'));
    let mut at = usize::from(negated);
    let mut matched = false;
    let mut first = true;
    loop {
        let (low, after) = set_member(pattern, at, first)?;
        let Some(low) = low else {
            return Some((matched != negated, after));
        };
        first = false;
        at = after;
        if pattern.get(at) == Some(&'-')
            && let Some((Some(high), after)) = set_member(pattern, at + 1, false)
        {
            matched |= (low..=high).contains(&character);
            at = after;
        } else {
            matched |= low == character;
        }
    }
}

/// One member of a set and where the next begins; no member at the closing `]`.
fn set_member(pattern: &[char], at: usize, first: bool) -> Option<(Option<char>, usize)> {
    match pattern.get(at)? {
        ']' if !first => Some((None, at + 1)),
        '\\' => Some((Some(*pattern.get(at + 1)?), at + 2)),
        plain => Some((Some(*plain), at + 1)),
    }
}

#[cfg(test)]
mod tests;
