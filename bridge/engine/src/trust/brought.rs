//! What a repository brings: each kind of file, what in it holds at once because it only
//! narrows, and what waits until a person trusts it.

#![expect(
    clippy::disallowed_methods,
    reason = "reads files of the project by their fixed names"
)]

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use terret_tools::rules::{Effect, Rule, RuleError, Scope, claude, narrowing_only, shown};

use crate::external_hooks::{ExternalHook, HookEntry, HookOrigin};
use crate::grants::{RuleEntry, StoredRule};

use super::store::FileStamp;

/// The most that such a file may hold, in bytes. A person is to read it.
const MOST_BYTES: u64 = 256 * 1024;
/// Files that the hooks of one file may name.
const MOST_NAMED: usize = 32;

/// A kind of file that a repository may bring. A kind that runs code or redirects keys is
/// added here, with what it would do in words, and is behind the one gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// `.terret/config.toml`, of which only `[policy]` and `[[hooks]]` are known.
    Config,
    /// A settings file of Claude Code that the user's own configuration names.
    ClaudeSettings(String),
}

/// One file that is there.
#[derive(Debug, Clone)]
pub struct Brought {
    /// Relative to the project's root.
    pub file: String,
    /// Of its bytes, and of the files of the project that its hooks name.
    pub hash: String,
    /// What it would do once it is trusted, a line each; nothing when it only narrows.
    pub would: Vec<String>,
    /// What in it counts for nothing, and why.
    pub problems: Vec<String>,
    pub(crate) rules: Vec<StoredRule>,
    pub(crate) hooks: Vec<ExternalHook>,
}

/// A file that is there and cannot be used at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unusable {
    pub file: String,
    pub why: String,
}

/// What the file says.
#[derive(Default)]
struct Understood {
    rules: Vec<StoredRule>,
    hooks: Vec<ExternalHook>,
    would: Vec<String>,
    problems: Vec<String>,
    /// Words of commands that may name files of the project.
    words: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Config {
    policy: Policy,
    hooks: Vec<HookEntry>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Policy {
    allow: Vec<RuleEntry>,
    ask: Vec<RuleEntry>,
    deny: Vec<RuleEntry>,
}

impl Source {
    /// The file's name, relative to the project's root.
    pub fn file(&self) -> &str {
        match self {
            Self::Config => ".terret/config.toml",
            Self::ClaudeSettings(name) => name,
        }
    }

    /// Reads the file; none when there is none. Blocks.
    ///
    /// # Errors
    /// [`Unusable`] says why nothing of it counts.
    pub fn look(&self, root: &Path) -> Result<Option<Brought>, Unusable> {
        let unusable = |why: String| Unusable {
            file: self.file().to_owned(),
            why,
        };
        let Some(bytes) = read(root, self.file()).map_err(unusable)? else {
            return Ok(None);
        };
        let text = std::str::from_utf8(&bytes).map_err(|_| unusable("it is not UTF-8".into()))?;
        let understood = match self {
            Self::Config => config(text),
            Self::ClaudeSettings(_) => claude_settings(text),
        }
        .map_err(unusable)?;
        let hash = hash(root, &bytes, &understood.words);
        Ok(Some(Brought {
            file: self.file().to_owned(),
            hash,
            would: understood.would,
            problems: understood.problems,
            rules: understood.rules,
            hooks: understood.hooks,
        }))
    }

    /// What tells a changed file from the same one; the files that hooks name, too.
    pub(crate) fn stamps(&self, root: &Path, brought: Option<&Brought>) -> Vec<Option<FileStamp>> {
        let named = brought
            .iter()
            .flat_map(|brought| named(root, &words(&brought.hooks)))
            .collect::<Vec<_>>();
        std::iter::once(root.join(self.file()))
            .chain(named)
            .map(|path| FileStamp::of(&path))
            .collect()
    }
}

impl Brought {
    /// Whether it does more than narrow.
    pub fn widens(&self) -> bool {
        !self.would.is_empty()
    }

    /// The rules that hold: those that narrow at once, those that allow once it is trusted.
    pub(crate) fn rules(&self, is_trusted: bool, now: u64) -> Vec<Rule> {
        let standing = self.rules.iter().filter(|rule| !rule.is_expired(now));
        // What cannot be read was told as a problem.
        let rules = standing.filter_map(|rule| rule.rule(Scope::Project).ok());
        if is_trusted {
            rules.collect()
        } else {
            narrowing_only(rules)
        }
    }
}

fn config(text: &str) -> Result<Understood, String> {
    let wrong =
        |error: toml::de::Error| format!("it is not right: {}", error.to_string().trim_end());
    let table: toml::Table = text.parse().map_err(wrong)?;
    let mut understood = Understood::default();
    for (key, value) in &table {
        match (key.as_str(), value) {
            ("hooks", _) => {}
            ("policy", toml::Value::Table(policy)) => {
                for key in policy.keys() {
                    if !["allow", "ask", "deny"].contains(&key.as_str()) {
                        understood.problems.push(foreign(&format!("policy.{key}")));
                    }
                }
            }
            ("policy", _) => {}
            (other, _) => understood.problems.push(foreign(other)),
        }
    }
    let config: Config = toml::from_str(text).map_err(wrong)?;
    for (effect, entries) in [
        (Effect::Deny, config.policy.deny),
        (Effect::Ask, config.policy.ask),
        (Effect::Allow, config.policy.allow),
    ] {
        for entry in entries {
            understood.rule(entry.stored(effect));
        }
    }
    for entry in config.hooks {
        match entry.hook() {
            Ok(hook) => {
                understood.would.push(shown(&entry.in_words()));
                understood.hooks.push(ExternalHook {
                    origin: HookOrigin::Project,
                    ..hook
                });
            }
            Err(error) => understood.problems.push(format!("a hook of it: {error}")),
        }
    }
    understood.words = words(&understood.hooks);
    Ok(understood)
}

fn claude_settings(text: &str) -> Result<Understood, String> {
    let value = serde_json::from_str(text).map_err(|error| format!("it is not right: {error}"))?;
    let imported = claude::import(&value, Scope::Project);
    let mut understood = Understood::default();
    for rule in imported.rules {
        understood.rule(StoredRule::new(rule.effect, rule.text()));
    }
    for left_out in imported.left_out {
        let text = shown(&left_out.text);
        understood
            .problems
            .push(format!("its rule `{text}`: {}", left_out.why));
    }
    Ok(understood)
}

impl Understood {
    fn rule(&mut self, rule: StoredRule) {
        let checked: Result<Rule, RuleError> = rule.rule(Scope::Project);
        if let Err(error) = checked {
            self.problems.push(format!("a rule of it: {error}"));
            return;
        }
        if rule.effect == Effect::Allow {
            let text = shown(&rule.text);
            self.would.push(format!("allow `{text}` without asking"));
        }
        self.rules.push(rule);
    }
}

fn foreign(key: &str) -> String {
    format!(
        "`{}` is not taken from a repository; it may say `policy.allow`, `policy.ask`, \
         `policy.deny` and `[[hooks]]`",
        shown(key)
    )
}

/// A file of the project; none when it is not there.
fn read(root: &Path, file: &str) -> Result<Option<Vec<u8>>, String> {
    let path = root.join(file);
    let real = match path.canonicalize() {
        Ok(real) => real,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("it could not be read: {error}")),
    };
    // What a link leads to elsewhere is not the project's to bring.
    if !real.starts_with(root) {
        return Err("it leads out of the project".to_owned());
    }
    let read = |error: std::io::Error| format!("it could not be read: {error}");
    // Looked at before it is opened: a pipe would be waited for.
    let found = std::fs::metadata(&real).map_err(read)?;
    if !found.is_file() {
        return Err("it is no file".to_owned());
    }
    let mut bytes = Vec::new();
    File::open(&real)
        .and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut bytes))
        .map_err(read)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(format!("it is larger than {MOST_BYTES} bytes"));
    }
    Ok(Some(bytes))
}

/// Words of commands, as far as a look at them tells; not those that are written to, or a
/// hook that keeps a record would make itself another one.
fn words(hooks: &[ExternalHook]) -> Vec<String> {
    let separators =
        |character: char| character.is_whitespace() || "'\"`;|&()<${}=".contains(character);
    let mut words = Vec::new();
    for text in hooks.iter().flat_map(|hook| &hook.argv) {
        let mut is_written = false;
        for word in text.replace('>', " > ").split(separators) {
            let bare = word
                .strip_prefix("CLAUDE_PROJECT_DIR/")
                .or_else(|| word.strip_prefix("TERRET_PROJECT_DIR/"));
            match bare.unwrap_or(word) {
                "" => {}
                ">" => is_written = true,
                word if !std::mem::take(&mut is_written) => words.push(word.to_owned()),
                _ => {}
            }
        }
    }
    words
}

/// The files of the project that words name.
fn named(root: &Path, words: &[String]) -> Vec<PathBuf> {
    let mut named: Vec<PathBuf> = words
        .iter()
        .filter_map(|word| root.join(word).canonicalize().ok())
        .filter(|path| path.starts_with(root) && path.is_file())
        .collect();
    named.sort();
    named.dedup();
    named.truncate(MOST_NAMED);
    named
}

/// A script of the project is as much of a hook as the line that names it.
fn hash(root: &Path, bytes: &[u8], words: &[String]) -> String {
    let named = named(root, words);
    let mut digest = Sha256::new();
    digest.update(bytes);
    for path in named {
        let inner = File::open(&path).and_then(|mut file| {
            let mut inner = Sha256::new();
            std::io::copy(&mut file, &mut inner)?;
            Ok(inner.finalize())
        });
        digest.update(path.as_os_str().as_encoded_bytes());
        // One that cannot be read cannot be run either.
        digest.update(inner.unwrap_or_default());
    }
    hex(&digest.finalize())
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
#[expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]
mod tests;
