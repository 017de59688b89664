//! Rules: grants and denials for kinds of calls, in the text form that people read and
//! write: `Tool`, `mcp__server__*`, `Bash(cargo test)`, `Bash(cargo test:*)`,
//! `Edit(src/**)`, `Read(/etc/hosts)`.
//!
//! This is the first form. A command is judged by its text, so an allow rule matches only
//! a single plain command: anything that could make it more (a second command, an
//! expansion, an assignment, a wrapper) is left to be asked. Ask and deny rules err to the
//! other side: they match when any piece of the command might be what they name.

pub mod builtin;
pub mod claude;
mod set;
mod shown;

use std::path::Path;
use std::sync::Arc;

use globset::{GlobBuilder, GlobMatcher};

use crate::floor::glob_matches;
use crate::world::web::host::{HostPattern, HostPatternError};

pub use set::RuleSet;
pub use shown::shown;

/// What a rule does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    Allow,
    Ask,
    Deny,
}

impl Effect {
    /// The word for people and on the wire: `allow`, `ask` or `deny`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

/// The layer that a rule stands in, and so how far it reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// Comes with Terret. Its allow rules hold only while commands are isolated.
    BuiltIn,
    /// The user's, for every project.
    User,
    /// One project's. What a repository brings only narrows until it is trusted: see
    /// [`narrowing_only`].
    Project,
    /// One session's.
    Session,
    /// One call's.
    Call,
}

impl Scope {
    /// The word for people: `built in`, `user`, `project`, `session` or `call`.
    pub fn name(self) -> &'static str {
        match self {
            Self::BuiltIn => "built in",
            Self::User => "user",
            Self::Project => "project",
            Self::Session => "session",
            Self::Call => "call",
        }
    }
}

/// One rule. Its text is what people see and what is stored. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Rule {
    pub effect: Effect,
    pub scope: Scope,
    parsed: Arc<Parsed>,
    id: Option<Arc<str>>,
}

#[derive(Debug)]
struct Parsed {
    text: String,
    tool: String,
    subject: Pattern,
}

impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        (self.effect, self.scope, self.text()) == (other.effect, other.scope, other.text())
    }
}

impl Eq for Rule {}

/// What a rule text got wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    #[error("a rule is empty; write a tool's name, for example `Bash(cargo test)`")]
    Empty,
    #[error("the rule `{0}` has a `(` and does not end with `)`")]
    Unclosed(String),
    #[error(
        "the rule `{0}` has nothing between its parentheses; write `{1}` for every call of that tool"
    )]
    NoSubject(String, String),
    #[error("the rule `{text}` has a path pattern that cannot be read: {reason}")]
    Pattern { text: String, reason: String },
    #[error(
        "the rule `{0}` has a `*` in a program's name; write `Bash(cargo test)` for one command, `Bash(cargo test:*)` for all that begin so"
    )]
    Wildcard(String),
    #[error("the rule `{0}` says nothing of a host; write `WebFetch(domain:example.com)`")]
    NoDomain(String),
    #[error("the rule `{text}` names no host: {reason}")]
    Host {
        text: String,
        reason: HostPatternError,
    },
    #[error("the rule `{0}` names a tool with a character that no tool name has")]
    Name(String),
    #[error(
        "the rule `{text}` does not match its example `{example}`; correct the rule, or take the example out of `match`"
    )]
    Unmatched { text: String, example: String },
    #[error(
        "the rule `{text}` matches `{example}`, which stands in its `not_match`; narrow the rule, or take the example out"
    )]
    Matched { text: String, example: String },
}

/// What a call is about, as rules match it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subject<'a> {
    /// The text inside `Tool(…)`: a command, a path, a host.
    pub text: &'a str,
    /// The session's folder, for relative path patterns.
    pub cwd: &'a Path,
}

#[derive(Debug, Clone)]
enum Pattern {
    /// Every call of the tool.
    Any,
    Command(String),
    CommandPrefix(String),
    Path(GlobMatcher),
    Host(HostPattern),
    Text(String),
}

/// Tools whose subject is a command line.
const COMMAND_TOOLS: &[&str] = &["Bash", "job_start"];
/// Tools that can do what a command does. A `Bash` rule that denies or asks is about them,
/// too; one that allows never is: what typed text does is up to the program that reads it.
const TERMINAL_TOOLS: &[&str] = &["terminal_open", "terminal_input"];
/// Tools whose subject is a host, as `domain:example.com`.
const HOST_TOOLS: &[&str] = &["WebFetch"];
/// What stands before a host.
const DOMAIN: &str = "domain:";
/// Tools that `Edit` rules are about.
const EDIT_TOOLS: &[&str] = &["Edit", "Write", "MultiEdit"];
/// Tools that `Read` rules are about.
const READ_TOOLS: &[&str] = &["Read", "Glob", "Grep"];

impl Rule {
    /// Reads a rule's text.
    ///
    /// # Errors
    /// [`RuleError`] says what is wrong with it.
    pub fn parse(text: &str, effect: Effect, scope: Scope) -> Result<Self, RuleError> {
        let text = text.trim();
        let (tool, subject) = match text.split_once('(') {
            None => (text, None),
            Some((tool, rest)) => {
                let inner = rest
                    .strip_suffix(')')
                    .ok_or_else(|| RuleError::Unclosed(text.to_owned()))?;
                (tool.trim(), Some(inner))
            }
        };
        if tool.is_empty() {
            return Err(RuleError::Empty);
        }
        let fits = |character: char| {
            character.is_ascii_alphanumeric() || "_-.*?[]!^\\".contains(character)
        };
        if !tool.chars().all(fits) {
            return Err(RuleError::Name(text.to_owned()));
        }
        let subject = match subject {
            None => Pattern::Any,
            Some(inner) if inner.trim().is_empty() => {
                return Err(RuleError::NoSubject(text.to_owned(), tool.to_owned()));
            }
            Some("*") => Pattern::Any,
            Some(inner) if COMMAND_TOOLS.contains(&tool) => command_pattern(text, inner)?,
            Some(inner) if EDIT_TOOLS.contains(&tool) || READ_TOOLS.contains(&tool) => {
                Pattern::Path(path_matcher(text, inner)?)
            }
            Some(inner) if HOST_TOOLS.contains(&tool) || inner.starts_with(DOMAIN) => {
                Pattern::Host(host_pattern(text, inner)?)
            }
            Some(inner) => Pattern::Text(inner.to_owned()),
        };
        Ok(Self {
            effect,
            scope,
            parsed: Arc::new(Parsed {
                text: text.to_owned(),
                tool: tool.to_owned(),
                subject,
            }),
            id: None,
        })
    }

    /// The same rule with a name of its own, for whoever keeps rules and has to find this
    /// one again. It is no part of what makes two rules equal.
    #[must_use]
    pub fn with_id(mut self, id: impl Into<Arc<str>>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// The name that [`Self::with_id`] gave it.
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// Checks the rule on examples of what it is to match and what not: for a rule
    /// `Tool(…)` or a command the text that would stand inside the parentheses, for a rule
    /// about tools their names. Relative paths are relative to the session's folder.
    ///
    /// # Errors
    /// The first example that is not as it should be.
    pub fn with_examples<S: AsRef<str>>(
        self,
        matching: &[S],
        not_matching: &[S],
    ) -> Result<Self, RuleError> {
        for example in matching {
            if !self.matches_example(example.as_ref()) {
                return Err(RuleError::Unmatched {
                    text: self.text().to_owned(),
                    example: example.as_ref().to_owned(),
                });
            }
        }
        for example in not_matching {
            if self.matches_example(example.as_ref()) {
                return Err(RuleError::Matched {
                    text: self.text().to_owned(),
                    example: example.as_ref().to_owned(),
                });
            }
        }
        Ok(self)
    }

    fn matches_example(&self, example: &str) -> bool {
        if matches!(self.parsed.subject, Pattern::Any) && !COMMAND_TOOLS.contains(&self.tool()) {
            return self.matches(example, None);
        }
        // A rule for several tools is tried on one that it names.
        self.matches(
            self.tool(),
            Some(Subject {
                text: example,
                cwd: Path::new("/"),
            }),
        )
    }

    /// The text as it was written.
    pub fn text(&self) -> &str {
        &self.parsed.text
    }

    /// The name or the pattern of names before the parentheses.
    pub fn tool(&self) -> &str {
        &self.parsed.tool
    }

    /// Whether the rule says something of what a call is about, and not only of its tool.
    pub fn has_subject(&self) -> bool {
        !matches!(self.parsed.subject, Pattern::Any)
    }

    /// Whether the rule speaks about a call.
    pub fn matches(&self, tool: &str, subject: Option<Subject<'_>>) -> bool {
        if !self.names(tool) {
            return false;
        }
        let strict = self.effect == Effect::Allow;
        let subject = subject.map(|subject| self.about(tool, subject));
        match (&self.parsed.subject, subject) {
            (Pattern::Any, _) => true,
            (_, None) => false,
            (Pattern::Command(wanted), Some(subject)) => {
                command_matches(subject.text, strict, |command| command == wanted)
            }
            (Pattern::CommandPrefix(prefix), Some(subject)) => {
                command_matches(subject.text, strict, |command| has_prefix(command, prefix))
            }
            (Pattern::Path(pattern), Some(subject)) => path_matches(pattern, &subject),
            (Pattern::Host(pattern), Some(subject)) => subject
                .text
                .strip_prefix(DOMAIN)
                .is_some_and(|host| pattern.matches_text(host)),
            (Pattern::Text(pattern), Some(subject)) => glob_matches(pattern, subject.text),
        }
    }

    /// For a command, what is typed and not where.
    fn about<'a>(&self, tool: &str, subject: Subject<'a>) -> Subject<'a> {
        match subject.text.split_once(": ") {
            Some((_, text)) if tool == "terminal_input" && self.tool() == "Bash" => {
                Subject { text, ..subject }
            }
            _ => subject,
        }
    }

    fn names(&self, tool: &str) -> bool {
        if glob_matches(self.tool(), tool) {
            return true;
        }
        match self.tool() {
            "Edit" => EDIT_TOOLS.contains(&tool),
            "Bash" => {
                COMMAND_TOOLS.contains(&tool)
                    || (self.effect != Effect::Allow && TERMINAL_TOOLS.contains(&tool))
            }
            // A bare `Read` is the tool; with a path it is what may be looked at.
            "Read" => !matches!(self.parsed.subject, Pattern::Any) && READ_TOOLS.contains(&tool),
            _ => false,
        }
    }
}

/// The rules of a repository that nobody has trusted yet: those that ask and deny, for they
/// only narrow. What it would allow is dropped.
pub fn narrowing_only(rules: impl IntoIterator<Item = Rule>) -> Vec<Rule> {
    rules
        .into_iter()
        .filter(|rule| rule.effect != Effect::Allow)
        .collect()
}

/// `cargo test` is that command alone; `cargo test:*` and `cargo test *` are any that begins
/// so. A `*` in the program's name would match nothing that runs, so it is refused.
fn command_pattern(text: &str, inner: &str) -> Result<Pattern, RuleError> {
    let prefix = inner
        .strip_suffix(":*")
        .or_else(|| inner.trim_end().strip_suffix(" *"));
    let pattern = match prefix {
        Some(prefix) => Pattern::CommandPrefix(prefix.trim().to_owned()),
        None => Pattern::Command(inner.trim().to_owned()),
    };
    let program = inner.split_whitespace().next().unwrap_or_default();
    if program.strip_suffix(":*").unwrap_or(program).contains('*') {
        return Err(RuleError::Wildcard(text.to_owned()));
    }
    Ok(pattern)
}

/// `domain:example.com` is that host alone, `domain:*.example.com` all below it.
fn host_pattern(text: &str, inner: &str) -> Result<HostPattern, RuleError> {
    let host = inner
        .trim()
        .strip_prefix(DOMAIN)
        .ok_or_else(|| RuleError::NoDomain(text.to_owned()))?;
    HostPattern::parse(host).map_err(|reason| RuleError::Host {
        text: text.to_owned(),
        reason,
    })
}

/// The rule that "always in this session" would add for a call; none when no rule could
/// match it again.
pub fn offer(tool: &str, subject: Option<&str>) -> Option<String> {
    if COMMAND_TOOLS.contains(&tool) {
        let command = trimmed(subject?);
        let prefix_form = command.ends_with(":*") || command.ends_with(" *") || command == "*";
        let safe = is_plain(command) && !prefix_form;
        return safe.then(|| format!("{tool}({command})"));
    }
    if EDIT_TOOLS.contains(&tool) {
        let path = subject?;
        // Blanks at the edges and controls would not survive being shown and read again.
        let safe = path.trim() == path && !path.chars().any(char::is_control);
        return safe.then(|| format!("Edit({})", escape_glob(path)));
    }
    match tool {
        // This command line, and no other.
        "terminal_open" => return text_rule(tool, subject?, ""),
        // Whatever is typed, and into this terminal alone.
        "terminal_input" => return text_rule(tool, subject?.split_once(": ")?.0, ": *"),
        _ => {}
    }
    if HOST_TOOLS.contains(&tool) {
        // A call without a host must not be what opens all of them.
        let text = format!("{tool}({})", subject?);
        return Rule::parse(&text, Effect::Allow, Scope::Session)
            .is_ok()
            .then_some(text);
    }
    tool.chars()
        .all(|character| character.is_ascii_alphanumeric() || "_-.".contains(character))
        .then(|| tool.to_owned())
}

/// A rule about this text, as a person reads it and a parser reads it again.
fn text_rule(tool: &str, text: &str, rest: &str) -> Option<String> {
    let safe = !text.is_empty() && text.trim() == text && !text.chars().any(char::is_control);
    safe.then(|| format!("{tool}({}{rest})", escape_glob(text)))
}

fn escape_glob(path: &str) -> String {
    let mut escaped = String::with_capacity(path.len());
    for character in path.chars() {
        if "*?[]{}\\!".contains(character) {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

fn path_matcher(text: &str, pattern: &str) -> Result<GlobMatcher, RuleError> {
    let bare = pattern.strip_prefix("./").unwrap_or(pattern);
    GlobBuilder::new(bare)
        .literal_separator(true)
        .backslash_escape(true)
        .build()
        .map(|glob| glob.compile_matcher())
        .map_err(|error| RuleError::Pattern {
            text: text.to_owned(),
            reason: error.kind().to_string(),
        })
}

/// A pattern may be relative to the session's folder or absolute; so is the subject.
fn path_matches(pattern: &GlobMatcher, subject: &Subject<'_>) -> bool {
    let path = Path::new(subject.text);
    if pattern.glob().glob().starts_with('/') {
        return pattern.is_match(subject.cwd.join(path));
    }
    path.is_relative() && pattern.is_match(path)
}

fn command_matches(command: &str, strict: bool, test: impl Fn(&str) -> bool) -> bool {
    let command = trimmed(command);
    if strict {
        return is_plain(command) && test(command);
    }
    let bare = bare(command);
    pieces(command).chain(pieces(&bare)).any(test)
}

/// Without what the shell passes over around a command. Other blanks, such as a no-break
/// space or a carriage return, are letters to it, and name another program.
fn trimmed(command: &str) -> &str {
    command.trim_matches([' ', '\t', '\n'])
}

/// The command as the shell reads its words: without quotes and escapes, and with one
/// blank where there are several, so that `r'm'` and `rm  -rf` are what they are.
fn bare(command: &str) -> String {
    let mut bare = String::with_capacity(command.len());
    let mut characters = command.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\\' => {
                let _joined = characters.next_if_eq(&'\n');
            }
            '\'' | '"' => {}
            ' ' | '\t' if bare.ends_with(' ') => {}
            '\t' => bare.push(' '),
            other => bare.push(other),
        }
    }
    bare
}

fn has_prefix(command: &str, prefix: &str) -> bool {
    command.strip_prefix(prefix).is_some_and(|rest| {
        prefix.is_empty() || rest.is_empty() || rest.starts_with(char::is_whitespace)
    })
}

/// Programs that run the command in their arguments.
const WRAPPERS: &[&str] = &[
    "sudo", "doas", "env", "nohup", "timeout", "time", "nice", "ionice", "setsid", "stdbuf",
    "exec", "command", "builtin", "eval", "source", ".", "xargs", "watch", "chroot", "strace",
    "script", "unshare", "nsenter", "su", "runuser", "parallel", "busybox", "coproc", "trap", "!",
    "if", "then", "else", "elif", "while", "until", "for", "do", "case", "select", "function",
    "bash", "sh", "dash", "zsh", "ksh", "fish",
];

/// Whether a command is one simple command whose words are what they seem: no operator,
/// expansion, escape, comment, assignment or wrapper, and quotes only around plain text.
pub fn is_plain(command: &str) -> bool {
    let command = trimmed(command);
    let mut quote = None;
    for character in command.chars() {
        match (quote, character) {
            (_, '\n' | '\r' | '\0' | '\\') => return false,
            (_, other) if other.is_control() && other != '\t' => return false,
            (Some(open), other) if open == other => quote = None,
            (Some('\''), _) => {}
            (Some(_), '$' | '`' | '!') => return false,
            (Some(_), _) => {}
            (None, ' ' | '\t') => {}
            // A blank that separates no words for the shell, though it looks so.
            (None, other) if other.is_whitespace() => return false,
            (None, '\'' | '"') => quote = Some(character),
            (None, ';' | '&' | '|' | '<' | '>' | '$' | '`' | '(' | ')' | '{' | '}' | '#' | '!') => {
                return false;
            }
            (None, _) => {}
        }
    }
    if quote.is_some() {
        return false;
    }
    let Some(first) = command.split_whitespace().next() else {
        return false;
    };
    // The program's name must be literal, or it is not known what runs.
    let literal = !first.contains(['*', '?', '[', ']', '=', '~', '\'', '"']);
    literal && !WRAPPERS.contains(&program(first))
}

fn program(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// The pieces of a command line that may each be a command, for rules that must not miss
/// one: split at every operator, and once more behind wrappers and assignments.
fn pieces(command: &str) -> impl Iterator<Item = &str> {
    let split = |character: char| ";&|<>$`(){}\n\r\"'".contains(character);
    std::iter::once(command)
        .chain(command.split(split))
        .flat_map(|piece| {
            let piece = piece.trim();
            let mut inner = Vec::new();
            if !piece.is_empty() {
                inner.extend(named(piece));
            }
            let mut rest = piece;
            // Each word after a wrapper or an assignment might be the command.
            let mut wrapped = false;
            while let Some((word, after)) = rest.split_once(char::is_whitespace) {
                wrapped |= word.contains('=') || WRAPPERS.contains(&program(word));
                rest = after.trim_start();
                if wrapped && !rest.is_empty() {
                    inner.extend(named(rest));
                }
            }
            inner
        })
}

/// A piece, and the same with its program named without the path.
fn named(piece: &str) -> impl Iterator<Item = &str> {
    let first = piece.split(char::is_whitespace).next().unwrap_or_default();
    let bare = first
        .rfind('/')
        .and_then(|at| piece.get(at + 1..))
        .filter(|bare| !bare.is_empty());
    std::iter::once(piece).chain(bare)
}

#[cfg(test)]
mod tests;
