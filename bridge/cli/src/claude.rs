//! Settings files of Claude Code that are the user's own, whose permissions count as rules
//! where `config.toml` names them with `/` or `~/`. Any other name there is one that
//! repositories bring, which the engine puts behind its question of trust.

use std::path::PathBuf;

use terret_engine::room::tools::rules::Scope;
use terret_engine::room::tools::rules::claude::{Imported, import};

use crate::paths::Environment;

/// The key that names them.
pub(crate) const KEY: &str = "policy.claude_settings";

/// The most that a file may hold; settings are a page or two.
const MOST: u64 = 1024 * 1024;

/// One of them.
pub(crate) struct SettingsFile {
    pub path: PathBuf,
}

/// A settings file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingsError {
    #[error("`{}` could not be read: {source}", path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("`{}` is not right: {why}", path.display())]
    Malformed { path: PathBuf, why: String },
}

/// Those that are the user's own.
pub(crate) fn users(names: &[String], environment: &dyn Environment) -> Vec<SettingsFile> {
    let home = environment.var("HOME").map(PathBuf::from);
    let own = names.iter().filter_map(|name| {
        let path = match (name.strip_prefix("~/"), &home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => PathBuf::from(name),
        };
        path.is_absolute().then_some(SettingsFile { path })
    });
    own.collect()
}

impl SettingsFile {
    /// Its permissions as rules of the user, and what could not be taken over.
    ///
    /// # Errors
    /// [`SettingsError`].
    pub(crate) fn read(&self) -> Result<Imported, SettingsError> {
        let text = self.text().map_err(|source| SettingsError::Read {
            path: self.path.clone(),
            source,
        })?;
        let value = serde_json::from_str(&text).map_err(|error| SettingsError::Malformed {
            path: self.path.clone(),
            why: error.to_string(),
        })?;
        Ok(import(&value, Scope::User))
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "a settings file that the person names in their configuration"
    )]
    fn text(&self) -> std::io::Result<String> {
        use std::io::Read as _;
        let file = std::fs::File::open(&self.path)?;
        if !file.metadata()?.is_file() {
            return Err(std::io::Error::other("it is no file"));
        }
        let mut text = String::new();
        file.take(MOST + 1).read_to_string(&mut text)?;
        if text.len() as u64 > MOST {
            return Err(std::io::Error::other("it is larger than 1 MiB"));
        }
        Ok(text)
    }
}
