//! `config.toml`: what a person may set. Unknown keys are refused by name and place,
//! since a misspelt limit that is silently ignored is no limit.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use terret_engine::external_hooks::HookEntry;
use terret_engine::grants::RuleEntry;
use tracing::level_filters::LevelFilter;

/// The file as it is written. Every key has a default.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// `provider:model` for the main role.
    pub model: Option<String>,
    /// Further models that the editor offers.
    pub models: Vec<String>,
    /// `off`, `low`, `medium` or `high`.
    pub thinking: Option<String>,
    /// `plan`, `ask`, `edits` or `auto`; `bypass` needs its flag as well.
    pub mode: Option<String>,
    /// Added to the system prompt.
    pub instructions: Option<String>,
    #[serde(rename = "loop")]
    pub turn_loop: LoopConfig,
    pub jobs: JobsConfig,
    pub policy: PolicyConfig,
    pub environment: EnvironmentConfig,
    pub redact: RedactConfig,
    pub credentials: CredentialsConfig,
    pub sandbox: SandboxConfig,
    pub bash: BashConfig,
    pub web: WebConfig,
    pub log: LogConfig,
    pub inbox: InboxConfig,
    /// Programs of the user's own that are told of calls.
    pub hooks: Vec<HookEntry>,
    pub providers: BTreeMap<String, ProviderConfig>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LoopConfig {
    pub max_agents: Option<usize>,
    pub max_steps: Option<u32>,
    pub ask_after_steps: Option<u32>,
    pub max_output: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct JobsConfig {
    /// `end` or `hold`: whether a turn waits for a job that the model's answer names.
    pub turn: Option<TurnConfig>,
    /// Jobs of a session at once.
    pub max: Option<usize>,
    /// Bytes of one job's output that are kept.
    pub spool: Option<u64>,
    /// Seconds that a job goes on while no Terret is there for it.
    pub orphan_grace: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TurnConfig {
    End,
    Hold,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PolicyConfig {
    /// Tool name patterns; the ceiling of what can run at all. An empty list denies all.
    pub floor: Option<Vec<String>>,
    /// Rules, each a string or a table with what is known of it.
    pub allow: Vec<RuleEntry>,
    pub ask: Vec<RuleEntry>,
    pub deny: Vec<RuleEntry>,
    /// Settings files of Claude Code whose permissions count as rules: of the user with `/`
    /// or `~/`, of each project without.
    pub claude_settings: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EnvironmentConfig {
    /// Variables that commands may see though they look like secrets.
    pub allow: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RedactConfig {
    /// Regular expressions of further secrets, beside the built-in ones.
    pub patterns: Vec<String>,
    /// What stands in the place of a secret.
    pub replacement: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SandboxConfig {
    /// `auto`, `bwrap`, `landlock`, `docker` or `none`.
    pub provider: Option<String>,
    /// Further files and folders that commands may read; `~/` is the home folder.
    pub read: Vec<String>,
    /// Further files and folders that commands may write.
    pub write: Vec<String>,
    pub docker: DockerConfig,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CredentialsConfig {
    /// An age identity that opens the stored keys; `identity.txt` beside this file
    /// without it.
    pub identity: Option<PathBuf>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct DockerConfig {
    pub image: Option<String>,
    pub memory: Option<String>,
    pub cpus: Option<String>,
    pub pids: Option<u32>,
    /// What programs run as; our own ids without it, the image's own when empty.
    pub user: Option<String>,
    pub bin: Option<PathBuf>,
    pub network: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct BashConfig {
    /// Show commands in the editor's terminal, where it has one.
    pub editor_terminal: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct WebConfig {
    /// Host patterns; the ceiling of what can be fetched. An empty list fetches nothing.
    pub allow: Option<Vec<String>>,
    /// Host patterns that are never fetched from.
    pub deny: Vec<String>,
    /// Whether private networks are reached, too.
    pub private: bool,
    /// Seconds for a page with all its redirects.
    pub deadline: Option<u64>,
    /// The most of a page's text that a model sees, in bytes.
    pub max_bytes: Option<usize>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct InboxConfig {
    /// Seconds that an approval waits before `notify` is run.
    pub notify_after: Option<u64>,
    /// A program with its arguments that tells a person of it.
    pub notify: Option<Vec<String>>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LogConfig {
    /// `error`, `warn`, `info`, `debug` or `trace`.
    pub level: Option<String>,
    /// Write there instead of to stderr.
    pub file: Option<PathBuf>,
}

impl LogConfig {
    /// The level in force without `--verbose`; `file` is the configuration file.
    pub(crate) fn level(&self, file: &Path) -> Result<LevelFilter, ConfigError> {
        match self.level.as_deref() {
            None => Ok(LevelFilter::WARN),
            Some(level) => level.parse().map_err(|_| {
                let problem = format!("`{level}` is none of error, warn, info, debug and trace");
                Origin::Key("log.level").wrong(file, problem)
            }),
        }
    }
}

/// A provider beside the built-in ones, or a change to one of them.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProviderConfig {
    /// `anthropic` or `openai`: the protocol that it speaks.
    pub kind: ProviderKind,
    pub base_url: String,
    /// The environment variable that holds the key; none for servers without keys.
    #[serde(default)]
    pub key_env: Option<String>,
    /// A program with its arguments that prints the key.
    #[serde(default)]
    pub key_command: Option<Vec<String>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ProviderKind {
    Anthropic,
    Openai,
}

/// The file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("`{}` could not be read: {source}", path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    /// The parser's text names line, column and key.
    #[error("`{}` is not right: {problem}", path.display())]
    Parse { path: PathBuf, problem: String },
    #[error("`{key}` in `{}` is not right: {problem}", path.display())]
    Value {
        path: PathBuf,
        key: String,
        problem: String,
    },
    /// A flag or a variable, which the file has no part in.
    #[error("`{name}` is not right: {problem}")]
    Given { name: &'static str, problem: String },
}

/// Where a value was written, so that a wrong one is looked for there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A key of the file.
    Key(&'static str),
    Flag(&'static str),
    Variable(&'static str),
}

impl Origin {
    /// A value of this origin is not right; `file` is the configuration file.
    pub(crate) fn wrong(self, file: &Path, problem: String) -> ConfigError {
        match self {
            Self::Key(key) => ConfigError::Value {
                path: file.to_owned(),
                key: key.to_owned(),
                problem,
            },
            Self::Flag(name) | Self::Variable(name) => ConfigError::Given { name, problem },
        }
    }
}

impl Config {
    /// Reads the file; a missing one is an empty one.
    #[expect(clippy::disallowed_methods, reason = "the operator's own file")]
    pub(crate) fn read(path: &Path) -> Result<Self, ConfigError> {
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(path, &text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(source) => Err(ConfigError::Read {
                path: path.to_owned(),
                source,
            }),
        }
    }

    /// Parses the file's text; `path` is for messages alone.
    pub(crate) fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        toml::from_str(text).map_err(|error| ConfigError::Parse {
            path: path.to_owned(),
            problem: error.to_string().trim_end().to_owned(),
        })
    }
}

#[cfg(test)]
#[expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, ConfigError> {
        Config::parse(Path::new("config.toml"), text)
    }

    #[test]
    fn an_empty_file_is_all_defaults() {
        assert_eq!(parse("").unwrap(), Config::default());
    }

    #[test]
    fn an_unknown_key_is_refused_by_name_and_place() {
        let error = parse("model = \"a:b\"\n[loop]\nmax_stepz = 3\n")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("max_stepz") && error.contains("line 3"),
            "{error}"
        );
    }

    #[test]
    fn a_wrong_type_is_refused_by_place() {
        let error = parse("[loop]\nmax_steps = \"many\"\n")
            .unwrap_err()
            .to_string();
        assert!(error.contains("line 2"), "{error}");
    }

    #[test]
    fn an_empty_floor_is_not_a_missing_one() {
        assert_eq!(
            parse("[policy]\nfloor = []").unwrap().policy.floor,
            Some(Vec::new())
        );
        assert_eq!(parse("[policy]").unwrap().policy.floor, None);
    }

    #[test]
    fn a_rule_is_a_text_or_a_table_and_what_is_wrong_in_one_is_named() {
        let policy = parse(
            "[policy]\nallow = ['Bash(ls)', { rule = 'Bash(make:*)', match = ['make x'], expires = 2027-01-31 }]\n",
        )
        .unwrap()
        .policy;
        assert_eq!(policy.allow[0].text, "Bash(ls)");
        assert_eq!(policy.allow[1].matches, ["make x"]);
        assert!(policy.allow[1].expires.is_some());
        let error = parse("[policy]\ndeny = [\n  { rule = 'Bash(ls)', note = 'x' },\n]\n")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("note") && error.contains("line 3"),
            "{error}"
        );
    }

    #[test]
    fn a_missing_file_is_an_empty_one() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(
            Config::read(&folder.path().join("config.toml")).unwrap(),
            Config::default()
        );
    }
}
