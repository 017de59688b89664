//! From config and environment to an engine's parts.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use terret_engine::Unattended;
use terret_engine::external_hooks::{ExternalHook, HookEntry};
use terret_engine::grants::{RuleFile, StoredRule};
use terret_engine::room::log::{Clock as _, Scrubber, SystemClock};
use terret_engine::room::models::{
    KeySource, Kind, ModelName, ProviderSettings, Registry, ThinkingLevel,
};
use terret_engine::room::tools::floor::Floor;
use terret_engine::room::tools::mode::Mode;
use terret_engine::room::tools::rules::{self, Effect, Rule, RuleSet, Scope};
use terret_engine::room::tools::table::Table;
use terret_engine::room::tools::world::sandbox::choice::{Choice, SandboxSettings};
use terret_engine::room::tools::world::sandbox::docker::{DockerSettings, DockerUser};
use terret_engine::room::tools::world::sandbox::ground::Ground;
use terret_engine::room::tools::world::web::WebSettings;
use terret_engine::room::tools::world::web::address::Addresses;
use terret_engine::room::tools::world::web::host::HostPattern;
use terret_engine::trust::Source;
use terret_engine::{
    EngineParts, HookSettings, JobSettings, JobsTurn, Limits, NOTIFY_AFTER, Notify, Places,
    Settings,
};

use crate::claude;
use crate::config::{self, Config, ConfigError, Origin};
use crate::credentials::{self, Asking, CredentialsFile, Keyring, Lock, MASTER, Place, StoredKey};
use crate::paths::{Environment, Paths};
use crate::reload::Stamp;

/// This program's version.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

const ANTHROPIC: &str = "https://api.anthropic.com";
const OPENAI: &str = "https://api.openai.com/v1";
const OLLAMA: &str = "http://127.0.0.1:11434/v1";
const OPENROUTER: &str = "https://openrouter.ai/api/v1";

/// The model that is taken when a key is there and nothing else is said.
const DEFAULT_ANTHROPIC: &str = "anthropic:claude-sonnet-4-5";
const DEFAULT_OPENAI: &str = "openai:gpt-5.1";

/// What a run is made of: folders, the file, and what the command line said.
pub(crate) struct Setup {
    pub paths: Paths,
    /// `--model`, which wins over everything.
    pub model: Option<String>,
    /// `--mode`, which wins over the file.
    pub mode: Option<String>,
    /// `--allow-bypass`: without it nobody can choose the mode that asks nothing.
    pub allow_bypass: bool,
    /// `--permission-policy`.
    pub unattended: Unattended,
    pub config: Config,
    /// Of the file that `config` came from, taken before it was read, so that a change
    /// in between is seen as one.
    pub stamp: Option<Stamp>,
    /// Told every key that is resolved.
    pub scrubber: Scrubber,
}

/// A provider as it stands, without its key.
pub(crate) struct KnownProvider {
    pub name: String,
    pub kind: Kind,
    pub base_url: String,
    /// The variable that holds its key; none when it needs none.
    pub variable: Option<String>,
    /// Where its key comes from.
    pub origin: credentials::Origin,
}

impl Setup {
    /// The parts of an engine for this setup.
    pub(crate) fn engine_parts(
        &self,
        environment: &dyn Environment,
    ) -> Result<EngineParts, ConfigError> {
        Ok(EngineParts {
            places: self.places(),
            settings: self.settings(environment)?,
            registry: self.registry(environment),
            clock: std::sync::Arc::new(SystemClock),
            scrubber: self.scrubber.clone(),
            table: Table::standard(),
            call_hooks: Vec::new(),
            turn_hooks: Vec::new(),
        })
    }

    /// Where the engine keeps its state.
    pub(crate) fn places(&self) -> Places {
        Places {
            state: self.paths.state.clone(),
            scratch: self.paths.cache.join("outputs"),
            denied: self.paths.denied(),
        }
    }

    /// The engine's settings.
    ///
    /// # Errors
    /// When a value names no model, mode, level or rule; the error names its key.
    pub(crate) fn settings(&self, environment: &dyn Environment) -> Result<Settings, ConfigError> {
        let config = &self.config;
        self.redaction()?;
        let model = match self.model_text(environment) {
            Some((origin, text)) => Some(self.value(origin, text.parse::<ModelName>())?),
            None => None,
        };
        let mut offered = Vec::from_iter(model.clone());
        for text in &config.models {
            let name: ModelName = self.value(Origin::Key("models"), text.parse())?;
            if !offered.contains(&name) {
                offered.push(name);
            }
        }
        let thinking = match &config.thinking {
            Some(level) => ThinkingLevel::named(level).ok_or_else(|| {
                self.wrong(
                    Origin::Key("thinking"),
                    format!("`{level}` is none of `off`, `low`, `medium`, `high`"),
                )
            })?,
            None => ThinkingLevel::Off,
        };
        let mode = match self.mode_text() {
            Some((origin, name)) => Mode::named(name)
                .filter(|mode| *mode != Mode::Bypass || self.allow_bypass)
                .ok_or_else(|| {
                    self.wrong(
                        origin,
                        match Mode::named(name) {
                            Some(_) => format!(
                                "`{name}` asks for nothing at all; it needs the flag `--allow-bypass`"
                            ),
                            None => format!("`{name}` is none of `plan`, `ask`, `edits`, `auto`"),
                        },
                    )
                })?,
            None => Mode::Ask,
        };
        let defaults = Limits::default();
        let jobs = JobSettings::default();
        let loops = &config.turn_loop;
        Ok(Settings {
            model,
            offered_models: offered,
            thinking,
            mode,
            bypass: self.allow_bypass,
            unattended: self.unattended,
            floor: match &config.policy.floor {
                Some(patterns) => patterns.clone(),
                None => Floor::default().patterns().to_vec(),
            },
            rules: self.rules(environment)?,
            user_rules: Some(RuleFile::user(self.paths.config_file())),
            limits: Limits {
                max_agents: loops.max_agents.unwrap_or(defaults.max_agents),
                max_steps: loops.max_steps.unwrap_or(defaults.max_steps),
                ask_after_steps: loops.ask_after_steps.unwrap_or(defaults.ask_after_steps),
                max_output: loops.max_output,
            },
            jobs: JobSettings {
                turn: match config.jobs.turn {
                    Some(config::TurnConfig::Hold) => JobsTurn::Hold,
                    Some(config::TurnConfig::End) | None => JobsTurn::End,
                },
                max: config.jobs.max.unwrap_or(jobs.max),
                spool: config.jobs.spool.unwrap_or(jobs.spool),
                orphan_grace: config
                    .jobs
                    .orphan_grace
                    .map_or(jobs.orphan_grace, Duration::from_secs),
            },
            web: self.web()?,
            environment_allow: config.environment.allow.clone(),
            environment_hide: self.key_variables(environment),
            sandbox: self.sandbox(environment)?,
            project_sources: self.project_sources(),
            hooks: HookSettings {
                calls: self.hooks()?,
                notify: self.notify()?,
            },
            instructions: config.instructions.clone(),
        })
    }

    /// What commands run in, as the file says; nothing is looked for yet.
    pub(crate) fn sandbox(
        &self,
        environment: &dyn Environment,
    ) -> Result<SandboxSettings, ConfigError> {
        let config = &self.config.sandbox;
        let provider = match config.provider.as_deref() {
            None => Choice::Auto,
            Some(name) => Choice::named(name).ok_or_else(|| {
                self.wrong(
                    Origin::Key("sandbox.provider"),
                    format!("`{name}` is none of `auto`, `bwrap`, `landlock`, `docker`, `none`"),
                )
            })?,
        };
        let mut ground = Ground::of(|name| environment.var(name).map(Into::into));
        let home = ground.home.clone();
        let paths = |key: &'static str, texts: &[String]| {
            texts
                .iter()
                .map(|text| {
                    let path = match (text.strip_prefix("~/"), &home) {
                        (Some(rest), Some(home)) => home.join(rest),
                        _ => PathBuf::from(text),
                    };
                    if path.is_absolute() {
                        Ok(path)
                    } else {
                        Err(self.wrong(
                            Origin::Key(key),
                            format!("`{text}` begins with neither `/` nor `~/`"),
                        ))
                    }
                })
                .collect::<Result<Vec<_>, _>>()
        };
        ground.read = paths("sandbox.read", &config.read)?;
        ground.write = paths("sandbox.write", &config.write)?;
        ground.hidden = self.paths.denied();
        ground.hidden.push(self.paths.cache.clone());
        ground.hidden.push(self.lock(environment).identity);
        let docker = &config.docker;
        let default = DockerSettings::default();
        Ok(SandboxSettings {
            provider,
            ground,
            folder: self.paths.cache.join("sandbox"),
            docker: DockerSettings {
                bin: docker.bin.clone().unwrap_or(default.bin),
                image: docker.image.clone().unwrap_or(default.image),
                network: docker.network.clone().unwrap_or(default.network),
                memory: docker.memory.clone(),
                cpus: docker.cpus.clone(),
                pids: docker.pids,
                user: match docker.user.as_deref() {
                    None => DockerUser::Ours,
                    Some("") => DockerUser::Image,
                    Some(user) => DockerUser::Named(user.to_owned()),
                },
            },
        })
    }

    /// The mode that is in force and what names it.
    fn mode_text(&self) -> Option<(Origin, &str)> {
        let flag = self
            .mode
            .as_deref()
            .map(|mode| (Origin::Flag("--mode"), mode));
        flag.or_else(|| Some((Origin::Key("mode"), self.config.mode.as_deref()?)))
    }

    /// The model that is in force and what names it.
    pub(crate) fn model_text(&self, environment: &dyn Environment) -> Option<(Origin, String)> {
        if let Some(model) = &self.model {
            return Some((Origin::Flag("--model"), model.clone()));
        }
        if let Some(model) = &self.config.model {
            return Some((Origin::Key("model"), model.clone()));
        }
        let providers = self.providers(environment);
        [
            ("anthropic", "ANTHROPIC_API_KEY", DEFAULT_ANTHROPIC),
            ("openai", "OPENAI_API_KEY", DEFAULT_OPENAI),
        ]
        .into_iter()
        .find(|(name, _, _)| {
            providers
                .iter()
                .any(|known| known.name == *name && known.origin.has_key())
        })
        .map(|(_, variable, model)| (Origin::Variable(variable), model.to_owned()))
    }

    /// Puts what config says of redaction in force.
    pub(crate) fn redaction(&self) -> Result<(), ConfigError> {
        let redact = &self.config.redact;
        self.value(
            Origin::Key("redact.patterns"),
            self.scrubber
                .configure(&redact.patterns, redact.replacement.as_deref()),
        )
    }

    /// The encrypted file of keys.
    pub(crate) fn credentials(&self) -> CredentialsFile {
        credentials::file_in(&self.paths.config)
    }

    /// The system keyring, where the file says that a key is in it.
    pub(crate) fn keyring(&self, environment: &dyn Environment) -> Keyring {
        Keyring::of_session(environment, &self.paths.config)
    }

    /// What opens the file.
    pub(crate) fn lock(&self, environment: &dyn Environment) -> Lock {
        let named = self.config.credentials.identity.as_ref();
        let master = given(environment, MASTER).map(|master| {
            self.scrubber.add_secret(&master);
            std::sync::Arc::new(SecretString::from(master))
        });
        Lock {
            master,
            named: named.is_some(),
            identity: named.map_or_else(
                || credentials::identity_in(&self.paths.config),
                |path| self.paths.config.join(path),
            ),
        }
    }

    /// The variables that hold a key, or the key to the stored ones.
    fn key_variables(&self, environment: &dyn Environment) -> Vec<String> {
        let providers = self.providers(environment).into_iter();
        providers
            .filter_map(|provider| provider.variable)
            .chain([MASTER.to_owned()])
            .collect()
    }

    /// Tells the scrubber every key that can be had without running anything, so that an
    /// export holds none of them. One that cannot be had is left to who needs it.
    pub(crate) fn learn_keys(&self, environment: &dyn Environment) {
        let lock = self.lock(environment);
        for provider in self.providers(environment) {
            let variable = provider.variable.as_deref();
            if let Some(key) = variable.and_then(|name| given(environment, name)) {
                self.scrubber.add_secret(&key);
            }
            let stored = match provider.origin {
                credentials::Origin::File => self.credentials().read(&provider.name, &lock).ok(),
                credentials::Origin::Keyring => {
                    let keyring = self.keyring(environment);
                    keyring.read(&provider.name, Asking::Never).ok()
                }
                _ => None,
            };
            if let Some(key) = stored {
                self.scrubber.add_secret(key.expose_secret());
            }
        }
    }

    /// The rules that hold in every folder: those that come with us, those of the file, and
    /// those of the settings files that it names. Expired ones are left out.
    fn rules(&self, environment: &dyn Environment) -> Result<RuleSet, ConfigError> {
        let now = SystemClock.now_ms();
        let mut rules = rules::builtin::rules();
        for (stored, rule) in self.stored_rules()? {
            if !stored.is_expired(now) {
                rules.push(rule);
            }
        }
        for file in claude::users(&self.config.policy.claude_settings, environment) {
            match file.read() {
                Ok(imported) => rules.extend(imported.rules),
                Err(error) => return Err(self.wrong(Origin::Key(claude::KEY), error.to_string())),
            }
        }
        Ok(rules.into())
    }

    /// When the next rule of the file stops to count, in Unix milliseconds.
    pub(crate) fn next_expiry(&self, now: u64) -> Option<u64> {
        let policy = &self.config.policy;
        let entries = [&policy.allow, &policy.ask, &policy.deny];
        let expires = entries
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.expires);
        expires.filter(|at| *at >= now).min()
    }

    /// The rules of the file, each as it is kept and as it is parsed.
    pub(crate) fn stored_rules(&self) -> Result<Vec<(StoredRule, Rule)>, ConfigError> {
        let policy = &self.config.policy;
        let kinds = [
            ("policy.deny", &policy.deny, Effect::Deny),
            ("policy.ask", &policy.ask, Effect::Ask),
            ("policy.allow", &policy.allow, Effect::Allow),
        ];
        let mut rules = Vec::new();
        for (key, entries, effect) in kinds {
            for entry in entries {
                let stored = entry.clone().stored(effect);
                let rule = self.value(Origin::Key(key), stored.rule(Scope::User))?;
                rules.push((stored, rule));
            }
        }
        Ok(rules)
    }

    /// What of a project's files counts once it is trusted.
    pub(crate) fn project_sources(&self) -> Vec<Source> {
        let settings = &self.config.policy.claude_settings;
        let brought = settings
            .iter()
            .filter(|name| !name.starts_with("~/") && std::path::Path::new(name).is_relative())
            .map(|name| Source::ClaudeSettings(name.clone()));
        std::iter::once(Source::Config).chain(brought).collect()
    }

    fn notify(&self) -> Result<Option<Notify>, ConfigError> {
        let inbox = &self.config.inbox;
        let after = match inbox.notify_after {
            None => NOTIFY_AFTER,
            Some(seconds @ 1..=86_400) => Duration::from_secs(seconds),
            Some(_) => {
                let problem = "it must be from 1 to 86400 seconds".to_owned();
                return Err(self.wrong(Origin::Key("inbox.notify_after"), problem));
            }
        };
        match inbox.notify.as_deref() {
            None => Ok(None),
            Some([program, ..]) if !program.is_empty() => Ok(Some(Notify {
                argv: inbox.notify.clone().unwrap_or_default(),
                after,
            })),
            Some(_) => {
                let problem = "it names no program".to_owned();
                Err(self.wrong(Origin::Key("inbox.notify"), problem))
            }
        }
    }

    fn hooks(&self) -> Result<std::sync::Arc<[ExternalHook]>, ConfigError> {
        let hooks = self.config.hooks.iter().map(HookEntry::hook);
        let hooks = self.value(Origin::Key("hooks"), hooks.collect::<Result<Vec<_>, _>>())?;
        Ok(hooks.into())
    }

    fn web(&self) -> Result<WebSettings, ConfigError> {
        let web = &self.config.web;
        let patterns = |key, texts: &[String]| {
            let parsed = texts.iter().map(|text| HostPattern::parse(text));
            self.value(Origin::Key(key), parsed.collect::<Result<Vec<_>, _>>())
        };
        let defaults = WebSettings::default();
        let deadline = match web.deadline {
            None => defaults.deadline,
            Some(seconds @ 1..=600) => Duration::from_secs(seconds),
            Some(_) => {
                let problem = "it must be from 1 to 600 seconds".to_owned();
                return Err(self.wrong(Origin::Key("web.deadline"), problem));
            }
        };
        Ok(WebSettings {
            allow: match &web.allow {
                Some(texts) => Some(patterns("web.allow", texts)?),
                None => None,
            },
            deny: patterns("web.deny", &web.deny)?,
            addresses: if web.private {
                Addresses::Private
            } else {
                Addresses::Public
            },
            deadline,
            max_bytes: web.max_bytes.unwrap_or(defaults.max_bytes),
            ..defaults
        })
    }

    /// The registry over [`Self::providers`].
    pub(crate) fn registry(&self, environment: &dyn Environment) -> Registry {
        let lock = self.lock(environment);
        let hidden = self.key_variables(environment);
        let providers = self.providers(environment).into_iter().map(|provider| {
            let key = match &provider.origin {
                credentials::Origin::Environment { variable } => given(environment, variable),
                _ => None,
            };
            if let Some(key) = &key {
                self.scrubber.add_secret(key);
            }
            let source: Option<std::sync::Arc<dyn KeySource>> = match &provider.origin {
                credentials::Origin::Environment { .. }
                | credentials::Origin::Missing
                | credentials::Origin::Unneeded => None,
                origin => Some(std::sync::Arc::new(StoredKey {
                    provider: provider.name.clone(),
                    origin: origin.clone(),
                    file: self.credentials(),
                    keyring: self.keyring(environment),
                    lock: lock.clone(),
                    scrubber: self.scrubber.clone(),
                    hidden: hidden.clone(),
                    remembered: std::sync::Arc::default(),
                })),
            };
            ProviderSettings {
                key_hint: match (&provider.origin, provider.variable) {
                    (credentials::Origin::Missing, Some(variable)) => format!(
                        "set {variable} in the environment that your editor starts Terret with, \
                         or store the key with `terret auth set {}`",
                        provider.name
                    ),
                    _ => String::new(),
                },
                name: provider.name,
                kind: provider.kind,
                base_url: Some(provider.base_url),
                key: key.map(SecretString::from),
                source,
                headers: Vec::new(),
            }
        });
        Registry::new(providers)
    }

    /// All providers: the built-in ones and those of the file, which win.
    pub(crate) fn providers(&self, environment: &dyn Environment) -> Vec<KnownProvider> {
        let base = |name: &str, default: &str| {
            environment
                .var(name)
                .filter(|url| !url.trim().is_empty())
                .unwrap_or_else(|| default.to_owned())
        };
        let stored = self.credentials().providers();
        let known = |name: &str, kind, base_url, variable: Option<&str>| KnownProvider {
            name: name.to_owned(),
            kind,
            base_url,
            origin: self.origin(name, variable, environment, &stored),
            variable: variable.map(str::to_owned),
        };
        use Kind::{Anthropic, OpenAiChat};
        let mut providers = vec![
            known(
                "anthropic",
                Anthropic,
                base("ANTHROPIC_BASE_URL", ANTHROPIC),
                Some("ANTHROPIC_API_KEY"),
            ),
            known(
                "openai",
                OpenAiChat,
                base("OPENAI_BASE_URL", OPENAI),
                Some("OPENAI_API_KEY"),
            ),
            known(
                "openrouter",
                OpenAiChat,
                OPENROUTER.to_owned(),
                Some("OPENROUTER_API_KEY"),
            ),
            known("ollama", OpenAiChat, base("OLLAMA_BASE_URL", OLLAMA), None),
        ];
        for (name, provider) in &self.config.providers {
            providers.retain(|known| known.name != *name);
            let kind = match provider.kind {
                config::ProviderKind::Anthropic => Anthropic,
                config::ProviderKind::Openai => OpenAiChat,
            };
            providers.push(known(
                name,
                kind,
                provider.base_url.clone(),
                provider.key_env.as_deref(),
            ));
        }
        providers
    }

    /// The first source of a provider's key that has something to say.
    fn origin(
        &self,
        name: &str,
        variable: Option<&str>,
        environment: &dyn Environment,
        stored: &Result<BTreeMap<String, Place>, credentials::FileError>,
    ) -> credentials::Origin {
        if let Some(variable) = variable.filter(|name| given(environment, name).is_some()) {
            let variable = variable.to_owned();
            return credentials::Origin::Environment { variable };
        }
        let configured = self.config.providers.get(name);
        if let Some(command) = configured.and_then(|provider| provider.key_command.clone()) {
            return credentials::Origin::Command(command);
        }
        let place = stored.as_ref().map(|places| places.get(name));
        match place {
            Ok(Some(Place::File)) => credentials::Origin::File,
            Ok(Some(Place::Keyring)) => credentials::Origin::Keyring,
            // Whether it has a key for a provider that needs one cannot be told.
            Err(error) if variable.is_some() => credentials::Origin::BrokenFile {
                why: error.to_string(),
            },
            _ if variable.is_some() => credentials::Origin::Missing,
            _ => credentials::Origin::Unneeded,
        }
    }

    fn value<T, E: std::fmt::Display>(
        &self,
        origin: Origin,
        value: Result<T, E>,
    ) -> Result<T, ConfigError> {
        value.map_err(|error| self.wrong(origin, error.to_string()))
    }

    fn wrong(&self, origin: Origin, problem: String) -> ConfigError {
        origin.wrong(&self.paths.config_file(), problem)
    }
}

/// A variable's value without the spaces around it; none when there is nothing in it.
fn given(environment: &dyn Environment, name: &str) -> Option<String> {
    let value = environment.var(name)?.trim().to_owned();
    (!value.is_empty()).then_some(value)
}
