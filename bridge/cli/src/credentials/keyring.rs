//! The desktop's keyring: GNOME Keyring, KWallet, KeePassXC or whatever answers to the
//! Secret Service on the session's bus. A sandboxed command cannot reach it, since its Unix
//! sockets are closed, which is more than can be said of a file with its key beside it.
//!
//! Which providers have their key there stands in `credentials.json`, so that no start and no
//! list has to ask the keyring, which may have to ask the person.
//!
//! It is a feature of the build, since it needs the system's D-Bus library.

#[cfg(feature = "keyring")]
mod secret_service;

use std::path::Path;
use std::sync::Arc;

use secrecy::{ExposeSecret as _, SecretString};

use super::as_key;
use crate::paths::Environment;

/// Whether a person may be asked to open the keyring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asking {
    /// For as long as a command that gives a key may run.
    Allowed,
    Never,
}

/// The keyring cannot be used. No message holds a piece of a key.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyringError {
    #[error(
        "this build cannot use the system keyring: build it with `cargo install --path bridge/cli \
         --features keyring`, or store the key in the encrypted file with `terret auth set \
         {provider}`"
    )]
    NotBuilt { provider: String },
    #[error(
        "the system keyring could not be {what}: {why}; unlock it or start it, or store the key \
         in the encrypted file with `terret auth set {provider}`"
    )]
    Failed {
        what: &'static str,
        why: String,
        provider: String,
    },
    #[error(
        "the system keyring holds no key for `{provider}` of this configuration: store it again \
         with `terret auth set --keyring {provider}`"
    )]
    NoEntry { provider: String },
    #[error("the key of `{provider}` in the system keyring cannot be one: {why}")]
    NotAKey { provider: String, why: &'static str },
}

/// Where the keys of one configuration folder are in a keyring.
#[derive(Clone)]
pub(crate) struct Keyring {
    items: Arc<dyn Items>,
    /// Part of each item's name, so that a home of its own has keys of its own.
    folder: String,
}

/// One item of a keyring by its names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ItemName {
    pub provider: String,
    pub folder: String,
}

/// Why a keyring did not do what it was asked for.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// This build has none.
    #[cfg(not(feature = "keyring"))]
    NotBuilt,
    /// In words for people.
    #[cfg_attr(
        not(any(feature = "keyring", test)),
        expect(dead_code, reason = "a build without a keyring refuses for that alone")
    )]
    Because(String),
}

/// What a keyring can do.
pub(crate) trait Items: Send + Sync {
    fn get(&self, name: &ItemName, asking: Asking) -> Result<Option<Vec<u8>>, Refusal>;

    /// Puts it in the place of one that is there.
    fn set(&self, name: &ItemName, key: &[u8]) -> Result<(), Refusal>;

    /// One that is not there is removed already.
    fn remove(&self, name: &ItemName) -> Result<(), Refusal>;
}

impl Keyring {
    /// Whether this build has one.
    pub(crate) const BUILT: bool = cfg!(feature = "keyring");

    /// The one of this desktop session. Nothing is asked of it yet.
    pub(crate) fn of_session(environment: &dyn Environment, config: &Path) -> Self {
        #[cfg(feature = "keyring")]
        let items = Arc::new(secret_service::SecretItems::of(environment));
        #[cfg(not(feature = "keyring"))]
        let items = {
            let _ = environment;
            Arc::new(NotBuilt)
        };
        Self::new(items, config)
    }

    pub(crate) fn new(items: Arc<dyn Items>, config: &Path) -> Self {
        Self {
            items,
            folder: config.display().to_string(),
        }
    }

    /// A provider's key. Blocks: for a minute when a person has to open the keyring.
    pub(crate) fn read(
        &self,
        provider: &str,
        asking: Asking,
    ) -> Result<SecretString, KeyringError> {
        let found = self
            .items
            .get(&self.name(provider), asking)
            .map_err(failed("read", provider))?;
        let bytes = found.ok_or_else(|| KeyringError::NoEntry {
            provider: provider.to_owned(),
        })?;
        let not_a_key = |why| KeyringError::NotAKey {
            provider: provider.to_owned(),
            why,
        };
        let text = String::from_utf8(bytes).map_err(|_| not_a_key("it is no text"))?;
        as_key(&text).map_err(not_a_key)
    }

    /// Whether it can be used at all, opened where it has to be.
    pub(crate) fn try_out(&self, provider: &str) -> Result<(), KeyringError> {
        let found = self.items.get(&self.name(provider), Asking::Allowed);
        found.map(|_| ()).map_err(failed("used", provider))
    }

    pub(crate) fn set(&self, provider: &str, key: &SecretString) -> Result<(), KeyringError> {
        self.items
            .set(&self.name(provider), key.expose_secret().as_bytes())
            .map_err(failed("written", provider))
    }

    pub(crate) fn remove(&self, provider: &str) -> Result<(), KeyringError> {
        self.items
            .remove(&self.name(provider))
            .map_err(failed("written", provider))
    }

    #[cfg(test)]
    pub(super) fn items(&self) -> Arc<dyn Items> {
        Arc::clone(&self.items)
    }

    fn name(&self, provider: &str) -> ItemName {
        ItemName {
            provider: provider.to_owned(),
            folder: self.folder.clone(),
        }
    }
}

fn failed(what: &'static str, provider: &str) -> impl FnOnce(Refusal) -> KeyringError {
    let provider = provider.to_owned();
    move |refusal| match refusal {
        #[cfg(not(feature = "keyring"))]
        Refusal::NotBuilt => KeyringError::NotBuilt { provider },
        Refusal::Because(why) => KeyringError::Failed {
            what,
            why,
            provider,
        },
    }
}

/// What stands in for a keyring in a build without one.
#[cfg(not(feature = "keyring"))]
struct NotBuilt;

#[cfg(not(feature = "keyring"))]
impl Items for NotBuilt {
    fn get(&self, _: &ItemName, _: Asking) -> Result<Option<Vec<u8>>, Refusal> {
        Err(Refusal::NotBuilt)
    }

    fn set(&self, _: &ItemName, _: &[u8]) -> Result<(), Refusal> {
        Err(Refusal::NotBuilt)
    }

    fn remove(&self, _: &ItemName) -> Result<(), Refusal> {
        Err(Refusal::NotBuilt)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;
    use std::sync::{Mutex, PoisonError};

    use super::*;

    /// A keyring in memory.
    #[derive(Default)]
    pub(in crate::credentials) struct Memory(
        pub(in crate::credentials) Mutex<BTreeMap<ItemName, Vec<u8>>>,
    );

    impl Items for Memory {
        fn get(&self, name: &ItemName, asking: Asking) -> Result<Option<Vec<u8>>, Refusal> {
            if asking == Asking::Never {
                return Err(Refusal::Because("it is locked".to_owned()));
            }
            let items = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(items.get(name).cloned())
        }

        fn set(&self, name: &ItemName, key: &[u8]) -> Result<(), Refusal> {
            let mut items = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            items.insert(name.clone(), key.to_owned());
            Ok(())
        }

        fn remove(&self, name: &ItemName) -> Result<(), Refusal> {
            let mut items = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            items.remove(name);
            Ok(())
        }
    }
}
