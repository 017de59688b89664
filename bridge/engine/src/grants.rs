//! Standing rules in files: those of a person in the `[policy]` table of `config.toml`, and
//! those that were granted for one project in a file of the state folder, which no
//! repository brings and no tool reaches (`design: Permissions`).
//!
//! A change is made under a lock that all processes take, in one step, and leaves every
//! byte alone that is not part of the rule. Calls block: make them by `spawn_blocking`.

mod date;
mod disk;
mod entry;
mod project;
pub mod replay;
mod splice;
pub mod standing;
mod suggest;

use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use terret_tools::rules::{Effect, Rule, RuleError, Scope};
use toml::Spanned;

pub use date::{parse_duration, parse_expiry};
pub use entry::RuleEntry;
pub use project::project_root;
pub use suggest::Suggestion;

use disk::Links;
use splice::{Place, SpliceError};

/// One file of rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleFile {
    path: PathBuf,
    owner: Owner,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Owner {
    User,
    /// The project's real path.
    Project(PathBuf),
}

/// A rule as it is kept, with what is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRule {
    pub effect: Effect,
    /// As `Tool` or `Tool(…)`.
    pub text: String,
    /// Unix milliseconds.
    pub added: Option<u64>,
    /// What it came from, for people: `approval a12 of session …`.
    pub origin: Option<String>,
    /// Unix milliseconds after which it counts for nothing.
    pub expires: Option<u64>,
    /// Subjects that it must cover.
    pub matches: Vec<String>,
    /// Subjects that it must not cover.
    pub not_matches: Vec<String>,
}

/// Tells a changed file from the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Device and number.
    file: (u64, u64),
    /// Seconds and nanoseconds.
    changed: (i64, i64),
    length: u64,
}

/// A file of rules cannot be used or changed. The message names the file, the cause and the
/// way out.
#[derive(Debug, thiserror::Error)]
pub enum RuleFileError {
    #[error("the rules in `{}` could not be {what}: {source}", path.display())]
    Io {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("`{}` is a link, which could lead to rules of another; remove it", path.display())]
    Link { path: PathBuf },
    #[error("`{}` is no file; remove it", path.display())]
    NoFile { path: PathBuf },
    #[error(
        "`{}` belongs to the user {owner} and could hold rules that are not yours; make it your \
         own with `chown`, or remove it",
        path.display()
    )]
    Owner { path: PathBuf, owner: u32 },
    #[error("`{}` is read-only; `chmod u+w` opens it", path.display())]
    ReadOnly { path: PathBuf },
    #[error("`{}` is larger than {most} bytes, which no file of rules is", path.display())]
    TooLarge { path: PathBuf, most: u64 },
    /// The parser's text names line, column and key.
    #[error("`{}` is not right: {problem}", path.display())]
    Malformed { path: PathBuf, problem: String },
    #[error("the rule `{text}` in line {line} of `{}` is not right: {problem}", path.display())]
    Rule {
        path: PathBuf,
        line: usize,
        text: String,
        problem: RuleError,
    },
    #[error(
        "`{}` holds the rules of `{found}` and not of `{wanted}`; remove it, and grant anew what \
         is still wanted",
        path.display()
    )]
    OtherProject {
        path: PathBuf,
        found: String,
        wanted: String,
    },
    #[error(
        "`policy` in `{}` is not written as a table of its own; write it as `[policy]` with a key \
         a line, so that rules can be added",
        path.display()
    )]
    Form { path: PathBuf },
}

impl RuleFileError {
    fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source }
    }
}

/// The arrays of rules in a file of either kind.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Arrays {
    allow: Vec<Spanned<RuleEntry>>,
    ask: Vec<Spanned<RuleEntry>>,
    deny: Vec<Spanned<RuleEntry>>,
}

/// Of `config.toml`, whose other keys are the configuration's to judge.
#[derive(Default, Deserialize)]
#[serde(default)]
struct UserContent {
    policy: Arrays,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ProjectContent {
    path: Option<String>,
    allow: Vec<Spanned<RuleEntry>>,
    ask: Vec<Spanned<RuleEntry>>,
    deny: Vec<Spanned<RuleEntry>>,
}

impl StoredRule {
    /// A rule of which nothing more is known.
    pub fn new(effect: Effect, text: impl Into<String>) -> Self {
        RuleEntry {
            text: text.into(),
            ..RuleEntry::default()
        }
        .stored(effect)
    }

    /// Whether it counts for nothing any more at a moment in Unix milliseconds.
    pub fn is_expired(&self, now: u64) -> bool {
        self.expires.is_some_and(|expires| expires < now)
    }

    /// The rule that it is in a layer, with its examples checked.
    ///
    /// # Errors
    /// [`RuleError`] says what is wrong with the text or which example does not hold.
    pub fn rule(&self, scope: Scope) -> Result<Rule, RuleError> {
        Rule::parse(&self.text, self.effect, scope)?.with_examples(&self.matches, &self.not_matches)
    }
}

impl RuleFile {
    /// The rules of a person, in the `[policy]` table of `config.toml`.
    pub fn user(config: PathBuf) -> Self {
        Self {
            path: config,
            owner: Owner::User,
        }
    }

    /// The rules of a person for one project, whose root is its real path
    /// ([`project_root`]); `state` is the state folder.
    pub fn project(state: &Path, root: &Path) -> Self {
        use std::os::unix::ffi::OsStrExt as _;
        let digest = Sha256::digest(root.as_os_str().as_bytes());
        let name: String = digest
            .iter()
            .take(16)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Self {
            path: state.join("projects").join(name).join("rules.toml"),
            owner: Owner::Project(root.to_owned()),
        }
    }

    /// Where it is, or would be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The root of the project that it is for; empty for the rules of a person, which are for
    /// all.
    pub fn root(&self) -> &Path {
        match &self.owner {
            Owner::User => Path::new(""),
            Owner::Project(root) => root,
        }
    }

    /// All rules in it, those that deny first, then those that ask, each kind in the file's
    /// order. A file that is not there has none. Expired rules are among them
    /// ([`StoredRule::is_expired`]).
    ///
    /// # Errors
    /// [`RuleFileError`]; one wrong rule makes the whole file wrong, since a rule that denies
    /// must not be passed over.
    pub fn read(&self) -> Result<Vec<StoredRule>, RuleFileError> {
        match disk::read(&self.path, self.links())? {
            None => Ok(Vec::new()),
            Some(text) => self.rules_in(&text),
        }
    }

    /// Adds a rule. One with the same effect and text is replaced; its examples are kept when
    /// the new one has none.
    ///
    /// # Errors
    /// [`RuleFileError`]; the file is as it was then.
    pub fn add(&self, rule: &StoredRule) -> Result<(), RuleFileError> {
        self.change(|text, rules| {
            let mut rule = rule.clone();
            let same = |known: &&StoredRule| known.effect == rule.effect && known.text == rule.text;
            if let Some(known) = rules.iter().find(same)
                && rule.matches.is_empty()
                && rule.not_matches.is_empty()
            {
                rule.matches.clone_from(&known.matches);
                rule.not_matches.clone_from(&known.not_matches);
            }
            let changed = splice::add(text, self.place(), &rule).map_err(self.spliced())?;
            let mut expected = rules.to_vec();
            match expected
                .iter_mut()
                .find(|known| known.effect == rule.effect && known.text == rule.text)
            {
                Some(known) => *known = rule,
                None => expected.push(rule),
            }
            Ok(Some((changed, expected)))
        })
        .map(drop)
    }

    /// Removes a rule; false when it is not there.
    ///
    /// # Errors
    /// [`RuleFileError`]; the file is as it was then.
    pub fn remove(&self, effect: Effect, text: &str) -> Result<bool, RuleFileError> {
        if disk::read(&self.path, self.links())?.is_none() {
            return Ok(false);
        }
        self.change(|before, rules| {
            let changed =
                splice::remove(before, self.place(), effect, text).map_err(self.spliced())?;
            let mut expected = rules.to_vec();
            expected.retain(|known| known.effect != effect || known.text != text);
            Ok(changed.map(|changed| (changed, expected)))
        })
    }

    /// Of the file as it is now; none when it is not there. Costs one look at its metadata.
    pub fn stamp(&self) -> Option<Stamp> {
        disk::stamp(&self.path)
    }

    fn links(&self) -> Links {
        match self.owner {
            Owner::User => Links::Follow,
            Owner::Project(_) => Links::Refuse,
        }
    }

    fn place(&self) -> Place {
        match self.owner {
            Owner::User => Place::Policy,
            Owner::Project(_) => Place::Top,
        }
    }

    /// Changes the text under the lock; true when there was something to change.
    fn change(
        &self,
        change: impl FnOnce(
            &str,
            &[StoredRule],
        ) -> Result<Option<(String, Vec<StoredRule>)>, RuleFileError>,
    ) -> Result<bool, RuleFileError> {
        let target = disk::resolved(&self.path, self.links())?;
        let held = disk::hold(&target)?;
        let text = match disk::read(&self.path, self.links())? {
            Some(text) => text,
            None => self.beginning(),
        };
        let rules = self.rules_in(&text)?;
        let Some((changed, mut expected)) = change(&text, &rules)? else {
            return Ok(false);
        };
        // The parser has the last word on what was made: the rules as they should be, and
        // everything else as it was.
        let mut there = self.rules_in(&changed)?;
        let order = |rule: &StoredRule| (key(rule.effect), rule.text.clone());
        there.sort_by_key(order);
        expected.sort_by_key(order);
        if there != expected || rest_of(&changed) != rest_of(&text) {
            return Err(RuleFileError::Form {
                path: self.path.clone(),
            });
        }
        disk::replace(&target, &changed, &held)?;
        Ok(true)
    }

    /// The text of a file that is not there yet.
    fn beginning(&self) -> String {
        match &self.owner {
            Owner::User => String::new(),
            Owner::Project(root) => format!(
                "# Rules for one project; `terret rules` lists them and takes them back.\npath = {}\n",
                entry::quoted(&root.to_string_lossy())
            ),
        }
    }

    fn rules_in(&self, text: &str) -> Result<Vec<StoredRule>, RuleFileError> {
        let arrays = match &self.owner {
            Owner::User => self.parsed::<UserContent>(text)?.policy,
            Owner::Project(root) => {
                let content = self.parsed::<ProjectContent>(text)?;
                let wanted = root.to_string_lossy();
                let found = content.path.unwrap_or_default();
                if found != wanted {
                    return Err(RuleFileError::OtherProject {
                        path: self.path.clone(),
                        found,
                        wanted: wanted.into_owned(),
                    });
                }
                Arrays {
                    allow: content.allow,
                    ask: content.ask,
                    deny: content.deny,
                }
            }
        };
        let mut rules = Vec::new();
        for (effect, entries) in [
            (Effect::Deny, arrays.deny),
            (Effect::Ask, arrays.ask),
            (Effect::Allow, arrays.allow),
        ] {
            for entry in entries {
                let start = entry.span().start;
                let stored = entry.into_inner().stored(effect);
                stored
                    .rule(Scope::Project)
                    .map_err(|problem| RuleFileError::Rule {
                        path: self.path.clone(),
                        line: line_of(text, start),
                        text: stored.text.clone(),
                        problem,
                    })?;
                rules.push(stored);
            }
        }
        Ok(rules)
    }

    fn parsed<T: for<'de> Deserialize<'de>>(&self, text: &str) -> Result<T, RuleFileError> {
        toml::from_str(text).map_err(|error| RuleFileError::Malformed {
            path: self.path.clone(),
            problem: error.to_string().trim_end().to_owned(),
        })
    }

    fn spliced(&self) -> impl FnOnce(SpliceError) -> RuleFileError + use<> {
        let path = self.path.clone();
        move |error| match error {
            SpliceError::Parse(problem) => RuleFileError::Malformed { path, problem },
            SpliceError::Form => RuleFileError::Form { path },
        }
    }
}

/// The array's name.
fn key(effect: Effect) -> &'static str {
    match effect {
        Effect::Allow => "allow",
        Effect::Ask => "ask",
        Effect::Deny => "deny",
    }
}

/// All that is said beside rules.
fn rest_of(text: &str) -> Option<toml::Table> {
    let mut rest: toml::Table = text.parse().ok()?;
    let names = [Effect::Allow, Effect::Ask, Effect::Deny].map(key);
    for name in names {
        rest.remove(name);
    }
    if let Some(toml::Value::Table(policy)) = rest.get_mut("policy") {
        for name in names {
            policy.remove(name);
        }
        if policy.is_empty() {
            rest.remove("policy");
        }
    }
    Some(rest)
}

fn line_of(text: &str, at: usize) -> usize {
    let before = text.get(..at).unwrap_or_default();
    before.matches('\n').count() + 1
}

#[cfg(test)]
mod tests;
