//! The Secret Service on the session's bus. Each use is a connection of its own: keys are
//! fetched seldom, and a desktop that ends takes its bus along.
//!
//! Secrets go over the bus as they are. It is a socket of this user alone, and who can listen
//! on it can ask the keyring itself.

use std::collections::HashMap;
use std::path::Path;

use dbus_secret_service::{EncryptionType, Error, Item, SecretService};

use super::{Asking, ItemName, Items, Refusal};
use crate::paths::Environment;

/// How long a person has to open the keyring, as a command that gives a key has.
const PATIENCE_SECONDS: u64 = 60;

pub(super) struct SecretItems {
    has_bus: bool,
}

impl SecretItems {
    pub(super) fn of(environment: &dyn Environment) -> Self {
        let named = environment.var("DBUS_SESSION_BUS_ADDRESS");
        let has_bus = named.is_some_and(|address| !address.is_empty())
            || environment
                .var("XDG_RUNTIME_DIR")
                .is_some_and(|folder| is_there(&Path::new(&folder).join("bus")));
        Self { has_bus }
    }

    fn connect(&self, asking: Asking) -> Result<SecretService, Refusal> {
        // The library would start a bus of its own, which nobody ends.
        if !self.has_bus {
            return Err(Refusal::Because(
                "there is no session bus, as DBUS_SESSION_BUS_ADDRESS would name it".to_owned(),
            ));
        }
        let seconds = match asking {
            Asking::Allowed => PATIENCE_SECONDS,
            Asking::Never => 0,
        };
        SecretService::connect_with_max_prompt_timeout(EncryptionType::Plain, seconds)
            .map_err(refusal)
    }
}

impl Items for SecretItems {
    fn get(&self, name: &ItemName, asking: Asking) -> Result<Option<Vec<u8>>, Refusal> {
        let service = self.connect(asking)?;
        match find(&service, name).map_err(refusal)?.first() {
            Some(item) => item.get_secret().map(Some).map_err(refusal),
            None => Ok(None),
        }
    }

    fn set(&self, name: &ItemName, key: &[u8]) -> Result<(), Refusal> {
        let service = self.connect(Asking::Allowed)?;
        // What cannot be opened is kept: the new one must not come beside it.
        find(&service, name).map_err(refusal)?;
        let collection = service.get_default_collection().map_err(refusal)?;
        collection.ensure_unlocked().map_err(refusal)?;
        collection
            .create_item(
                &format!("Terret: key for {}", name.provider),
                attributes(name),
                key,
                true,
                "text/plain",
            )
            .map(|_| ())
            .map_err(refusal)
    }

    fn remove(&self, name: &ItemName) -> Result<(), Refusal> {
        let service = self.connect(Asking::Allowed)?;
        for item in find(&service, name).map_err(refusal)? {
            item.delete().map_err(refusal)?;
        }
        Ok(())
    }
}

/// The items of this name, opened.
fn find<'a>(service: &'a SecretService, name: &ItemName) -> Result<Vec<Item<'a>>, Error> {
    let found = service.search_items(attributes(name))?;
    if !found.locked.is_empty() {
        service.unlock_all(&found.locked.iter().collect::<Vec<_>>())?;
    }
    Ok(found.unlocked.into_iter().chain(found.locked).collect())
}

fn attributes(name: &ItemName) -> HashMap<&str, &str> {
    HashMap::from([
        ("application", "terret"),
        ("provider", name.provider.as_str()),
        ("config", name.folder.as_str()),
    ])
}

/// No error of the library holds a secret: they are about the bus and the locks.
fn refusal(error: Error) -> Refusal {
    Refusal::Because(match error {
        Error::Prompt => "it is locked, and nobody opened it".to_owned(),
        Error::Locked => "it is locked".to_owned(),
        Error::Unavailable => "no keyring answers on the session bus".to_owned(),
        Error::NoResult => "it has no default collection".to_owned(),
        error => error.to_string(),
    })
}

#[expect(clippy::disallowed_methods, reason = "the desktop's own socket")]
fn is_there(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}
