//! From config and environment to an engine's parts.

use secrecy::SecretString;
use terret_engine::room::log::SystemClock;
use terret_engine::room::models::{Kind, ModelName, ProviderSettings, Registry, ThinkingLevel};
use terret_engine::room::tools::floor::Floor;
use terret_engine::room::tools::mode::Mode;
use terret_engine::room::tools::rules::{Effect, Rule, Scope};
use terret_engine::room::tools::table::Table;
use terret_engine::{EngineParts, Limits, Places, Settings};

use crate::config::{self, Config, ConfigError, Origin};
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
    pub config: Config,
    /// Of the file that `config` came from, taken before it was read, so that a change
    /// in between is seen as one.
    pub stamp: Option<Stamp>,
}

/// A provider as it stands, without its key.
pub(crate) struct KnownProvider {
    pub name: String,
    pub kind: Kind,
    pub base_url: String,
    /// The variable that holds its key; none when it needs none.
    pub variable: Option<String>,
    pub has_key: bool,
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
                .filter(|mode| terret_engine::OFFERED_MODES.contains(mode))
                .ok_or_else(|| {
                    self.wrong(
                        origin,
                        format!("`{name}` is none of `plan`, `ask`, `edits`"),
                    )
                })?,
            None => Mode::Ask,
        };
        let defaults = Limits::default();
        let loops = &config.turn_loop;
        Ok(Settings {
            model,
            offered_models: offered,
            thinking,
            mode,
            floor: match &config.policy.floor {
                Some(patterns) => patterns.clone(),
                None => Floor::default().patterns().to_vec(),
            },
            rules: self.rules()?,
            limits: Limits {
                max_agents: loops.max_agents.unwrap_or(defaults.max_agents),
                max_steps: loops.max_steps.unwrap_or(defaults.max_steps),
                ask_after_steps: loops.ask_after_steps.unwrap_or(defaults.ask_after_steps),
                max_output: loops.max_output,
            },
            environment_allow: config.environment.allow.clone(),
            instructions: config.instructions.clone(),
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
        let has = |name: &str| {
            environment
                .var(name)
                .is_some_and(|value| !value.trim().is_empty())
        };
        if let Some(model) = &self.model {
            return Some((Origin::Flag("--model"), model.clone()));
        }
        if let Some(model) = &self.config.model {
            return Some((Origin::Key("model"), model.clone()));
        }
        if has("ANTHROPIC_API_KEY") {
            let origin = Origin::Variable("ANTHROPIC_API_KEY");
            return Some((origin, DEFAULT_ANTHROPIC.to_owned()));
        }
        has("OPENAI_API_KEY").then(|| {
            let origin = Origin::Variable("OPENAI_API_KEY");
            (origin, DEFAULT_OPENAI.to_owned())
        })
    }

    fn rules(&self) -> Result<Vec<Rule>, ConfigError> {
        let policy = &self.config.policy;
        let kinds = [
            ("policy.deny", &policy.deny, Effect::Deny),
            ("policy.ask", &policy.ask, Effect::Ask),
            ("policy.allow", &policy.allow, Effect::Allow),
        ];
        let mut rules = Vec::new();
        for (key, texts, effect) in kinds {
            for text in texts {
                rules.push(self.value(
                    Origin::Key(key),
                    Rule::parse(text, effect, Scope::Everywhere),
                )?);
            }
        }
        Ok(rules)
    }

    /// The registry over [`Self::providers`].
    pub(crate) fn registry(&self, environment: &dyn Environment) -> Registry {
        let providers = self.providers(environment).into_iter().map(|provider| {
            let key = provider
                .variable
                .as_ref()
                .and_then(|variable| environment.var(variable))
                .map(|key| key.trim().to_owned())
                .filter(|key| !key.is_empty())
                .map(SecretString::from);
            ProviderSettings {
                name: provider.name,
                kind: provider.kind,
                base_url: Some(provider.base_url),
                key,
                key_hint: provider.variable.map_or_else(String::new, |variable| {
                    format!("set {variable} in the environment that your editor starts Terret with")
                }),
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
        let known = |name: &str, kind, base_url, variable: Option<&str>| KnownProvider {
            name: name.to_owned(),
            kind,
            base_url,
            has_key: variable.is_some_and(|variable| {
                environment
                    .var(variable)
                    .is_some_and(|key| !key.trim().is_empty())
            }),
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
