//! A hook as it is configured: when it runs, for which tools, and what.

use std::time::Duration;

use regex::Regex;
use serde::Deserialize;

/// What a hook may take unless it says otherwise.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The longest that may be configured, in seconds.
const LONGEST: u64 = 600;

/// Tools that can do what a command does. A pattern that means `Bash` means them as well,
/// since whoever wrote it for another agent could not know of them.
const LIKE_BASH: &[&str] = &["job_start", "terminal_open", "terminal_input"];

/// A `[[hooks]]` table as it is written.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HookEntry {
    pub event: HookEvent,
    /// A pattern over tool names; all tools without it.
    #[serde(default)]
    pub matcher: Option<String>,
    pub command: HookCommand,
    /// Seconds.
    #[serde(default)]
    pub timeout: Option<u64>,
    #[serde(default)]
    pub on_failure: Option<OnFailure>,
}

/// When a hook runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
pub enum HookEvent {
    /// Before a call: it may refuse, rewrite, ask for or allow it.
    PreToolUse,
    /// After a call: it may say something of its result.
    PostToolUse,
}

/// What runs.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(
    untagged,
    expecting = "a command line, or a list of a program and its arguments"
)]
pub enum HookCommand {
    /// For the shell.
    Line(String),
    /// A program with its arguments.
    Program(Vec<String>),
}

/// What becomes of a call whose hook fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnFailure {
    Deny,
    Run,
}

/// A hook that can run.
#[derive(Debug, Clone)]
pub struct ExternalHook {
    pub event: HookEvent,
    pub matcher: Matcher,
    /// The program and its arguments; never empty.
    pub argv: Vec<String>,
    pub timeout: Duration,
    pub on_failure: OnFailure,
    pub origin: HookOrigin,
}

/// Whose hook it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookOrigin {
    /// The user's own configuration names it.
    User,
    /// The project brings it. The agent may write what it runs, so it runs confined as
    /// commands do, and what it allows counts for nothing.
    Project,
}

/// Which tools a hook is about: their names joined by `|`, or a regular expression, which
/// may match any part of a name, so that it rather runs too often than not at all.
#[derive(Debug, Clone)]
pub enum Matcher {
    All,
    Names(Vec<String>),
    Expression(Regex),
}

/// A hook that is not right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HookError {
    #[error("`matcher` is no pattern: {0}")]
    Matcher(String),
    #[error("`command` is empty; name a program")]
    Empty,
    #[error("`timeout` is {0}; it must be from 1 to {LONGEST} seconds")]
    Timeout(u64),
}

impl HookEntry {
    /// The hook that it describes.
    ///
    /// # Errors
    /// [`HookError`] names the key.
    pub fn hook(&self) -> Result<ExternalHook, HookError> {
        let argv = match &self.command {
            HookCommand::Line(line) if line.trim().is_empty() => return Err(HookError::Empty),
            HookCommand::Line(line) => vec!["/bin/sh".to_owned(), "-c".to_owned(), line.clone()],
            HookCommand::Program(argv) => argv.clone(),
        };
        if argv.first().is_none_or(String::is_empty) {
            return Err(HookError::Empty);
        }
        let timeout = match self.timeout {
            None => TIMEOUT,
            Some(seconds @ 1..=LONGEST) => Duration::from_secs(seconds),
            Some(seconds) => return Err(HookError::Timeout(seconds)),
        };
        Ok(ExternalHook {
            event: self.event,
            matcher: Matcher::parse(self.matcher.as_deref().unwrap_or_default())?,
            argv,
            timeout,
            // What looks at calls before they run is there to keep some from running.
            on_failure: self.on_failure.unwrap_or(match self.event {
                HookEvent::PreToolUse => OnFailure::Deny,
                HookEvent::PostToolUse => OnFailure::Run,
            }),
            origin: HookOrigin::User,
        })
    }

    /// What it would run, in one line for a person.
    pub fn in_words(&self) -> String {
        let when = match self.event {
            HookEvent::PreToolUse => "before",
            HookEvent::PostToolUse => "after",
        };
        let tools = match self.matcher.as_deref() {
            None | Some("" | "*") => "every call".to_owned(),
            Some(pattern) => format!("calls of `{pattern}`"),
        };
        let command = match &self.command {
            HookCommand::Line(line) => line.clone(),
            HookCommand::Program(argv) => argv.join(" "),
        };
        format!("run {when} {tools}: {command}")
    }
}

impl ExternalHook {
    /// A short name for messages: the program's, never its arguments.
    pub fn name(&self) -> &str {
        let word = match self.argv.as_slice() {
            [shell, flag, line, ..] if shell == "/bin/sh" && flag == "-c" => {
                line.split_whitespace().next().unwrap_or(line)
            }
            [program, ..] => program,
            [] => "",
        };
        let word = word.trim_matches(['"', '\'']);
        word.rsplit('/').next().unwrap_or(word)
    }
}

impl Matcher {
    /// Reads a pattern.
    ///
    /// # Errors
    /// [`HookError::Matcher`] for an expression that is none.
    pub fn parse(pattern: &str) -> Result<Self, HookError> {
        let pattern = pattern.trim();
        if pattern.is_empty() || pattern == "*" {
            return Ok(Self::All);
        }
        let plain =
            |character: char| character.is_ascii_alphanumeric() || "_-|, ".contains(character);
        if pattern.chars().all(plain) {
            let names = pattern.split(['|', ',']).map(str::trim);
            let names = names.filter(|name| !name.is_empty()).map(str::to_owned);
            return Ok(Self::Names(names.collect()));
        }
        regex::RegexBuilder::new(pattern)
            .size_limit(1 << 20)
            .build()
            .map(Self::Expression)
            .map_err(|error| HookError::Matcher(error.to_string()))
    }

    /// Whether calls of a tool are meant.
    pub fn matches(&self, tool: &str) -> bool {
        self.means(tool) || (LIKE_BASH.contains(&tool) && self.means("Bash"))
    }

    fn means(&self, tool: &str) -> bool {
        match self {
            Self::All => true,
            Self::Names(names) => names.iter().any(|name| name == tool),
            Self::Expression(expression) => expression.is_match(tool),
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_names_or_an_expression() {
        for (pattern, tool, expected) in [
            ("", "Read", true),
            ("*", "mcp__a__b", true),
            ("Bash", "Bash", true),
            ("Bash", "Read", false),
            ("Edit", "MultiEdit", false),
            ("Edit|Write", "Write", true),
            ("Edit, Write", "Write", true),
            ("Bash|Edit|mcp__.*", "mcp__memory__add", true),
            ("mcp__memory__.*", "mcp__other__add", false),
            ("^(Edit|Write)$", "MultiEdit", false),
            (".*Edit", "MultiEdit", true),
            // What can do what Bash does is meant with it.
            ("Bash", "job_start", true),
            ("^Bash$", "terminal_input", true),
            ("Edit", "job_start", false),
            ("job_start", "Bash", false),
        ] {
            let matcher = Matcher::parse(pattern).unwrap();
            assert_eq!(matcher.matches(tool), expected, "{pattern} and {tool}");
        }
    }

    fn entry(text: &str) -> Result<ExternalHook, String> {
        toml::from_str::<HookEntry>(text)
            .map_err(|error| error.to_string())?
            .hook()
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_hook_is_fail_closed_before_a_call_and_open_after_it() {
        let before = entry("event = \"PreToolUse\"\ncommand = \"/opt/check.sh --all\"").unwrap();
        assert_eq!(before.on_failure, OnFailure::Deny);
        assert_eq!(before.timeout, Duration::from_secs(60));
        assert_eq!(before.argv, ["/bin/sh", "-c", "/opt/check.sh --all"]);
        assert_eq!(before.name(), "check.sh");
        let after = entry("event = \"PostToolUse\"\ncommand = [\"/bin/fmt\", \"a b\"]").unwrap();
        assert_eq!(after.on_failure, OnFailure::Run);
        assert_eq!(after.name(), "fmt");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, named) in [
            ("event = \"Stop\"\ncommand = \"x\"", "PreToolUse"),
            ("event = \"PreToolUse\"", "command"),
            ("event = \"PreToolUse\"\ncommand = \" \"", "command"),
            ("event = \"PreToolUse\"\ncommand = []", "command"),
            ("event = \"PreToolUse\"\ncommand = 3", "command line"),
            (
                "event = \"PreToolUse\"\ncommand = \"x\"\ntimeout = 0",
                "timeout",
            ),
            (
                "event = \"PreToolUse\"\ncommand = \"x\"\nmatcher = \"(\"",
                "matcher",
            ),
            (
                "event = \"PreToolUse\"\ncommand = \"x\"\non_failure = \"ask\"",
                "deny",
            ),
            (
                "event = \"PreToolUse\"\ncommand = \"x\"\nmatchr = \"a\"",
                "matchr",
            ),
        ] {
            let error = entry(text).unwrap_err();
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
