//! The providers by name. Built from config at start and cheap to build: a provider sets
//! up its client at its first request.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use crate::anthropic::Anthropic;
use crate::http::{HttpOptions, Kind, ProviderSettings};
use crate::openai_chat::OpenAiChat;
use crate::provider::{ModelError, ModelName, Provider};
use crate::scripted::Scripted;

/// The name that is built in.
const SCRIPTED: &str = "scripted";

/// Named providers, and `scripted:FILE`.
#[derive(Default)]
pub struct Registry {
    providers: BTreeMap<String, Arc<dyn Provider>>,
    /// One instance a file, since it counts the failures that the file tells.
    scripts: Mutex<HashMap<PathBuf, Arc<Scripted>>>,
    options: HttpOptions,
}

impl Registry {
    /// A registry of these providers. Of two with one name the later stays.
    pub fn new(settings: impl IntoIterator<Item = ProviderSettings>) -> Self {
        Self::with_options(settings, HttpOptions::default())
    }

    /// As [`Registry::new`], with other waits and tries.
    pub fn with_options(
        settings: impl IntoIterator<Item = ProviderSettings>,
        options: HttpOptions,
    ) -> Self {
        let mut registry = Self {
            options: options.clone(),
            ..Self::default()
        };
        for settings in settings {
            let options = options.clone();
            registry.insert(match settings.kind {
                Kind::Anthropic => Arc::new(Anthropic::new(settings, options)),
                Kind::OpenAiChat => Arc::new(OpenAiChat::new(settings, options)),
            });
        }
        registry
    }

    /// Adds a provider under its own name, in the place of one that has it.
    pub fn insert(&mut self, provider: Arc<dyn Provider>) {
        self.providers.insert(provider.name().to_owned(), provider);
    }

    /// All names, `scripted` included, in order.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.providers.keys().map(String::as_str).collect();
        if let Err(place) = names.binary_search(&SCRIPTED) {
            names.insert(place, SCRIPTED);
        }
        names
    }

    /// The provider of a model. For `scripted` the file is read here, once.
    ///
    /// # Errors
    /// When no provider has that name; the message lists those that are known. When a
    /// script cannot be read.
    pub fn resolve(&self, name: &ModelName) -> Result<Arc<dyn Provider>, ModelError> {
        if let Some(provider) = self.providers.get(&name.provider) {
            return Ok(provider.clone());
        }
        if name.provider == SCRIPTED {
            return self.script(&name.model);
        }
        let known: Vec<String> = self
            .names()
            .iter()
            .map(|name| format!("`{name}`"))
            .collect();
        Err(ModelError::UnknownProvider {
            provider: name.provider.escape_debug().to_string(),
            way_out: format!(
                "known are {}; name a model as `provider:model`, or add the provider to the \
                 config under `[providers.NAME]`",
                known.join(", ")
            ),
        })
    }

    fn script(&self, file: &str) -> Result<Arc<dyn Provider>, ModelError> {
        let path = PathBuf::from(file);
        let mut scripts = self.scripts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(script) = scripts.get(&path) {
            return Ok(script.clone());
        }
        let script = Arc::new(Scripted::open_with(&path, self.options.retry.clone())?);
        scripts.insert(path, script.clone());
        Ok(script)
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry")
            .field("providers", &self.names())
            .finish_non_exhaustive()
    }
}
