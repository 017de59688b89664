//! Where the keys of providers come from: the environment, a command, what was stored, in
//! this order (`Terret spec §5.7`). What was stored is in an encrypted file or in the
//! system keyring.
//!
//! The first source that has something to say decides. When it fails the request fails, with
//! the reason: another source is never taken in its place, since a key that quietly comes
//! from elsewhere is not the one that the person meant. A key is fetched when a request
//! needs it, off the runtime, and joins the scrubber before anyone sees it.

mod command;
mod file;
mod identity;
mod keyring;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use secrecy::{ExposeSecret as _, SecretString};
use terret_engine::room::log::Scrubber;
use terret_engine::room::models::{KeyFuture, KeySource};

pub(crate) use file::{CredentialsFile, FileError, Place};
pub(crate) use identity::{Lock, LockError, make_identity};
pub(crate) use keyring::{Asking, Keyring, KeyringError};

/// The variable that holds the key to the encrypted file.
pub(crate) const MASTER: &str = "TERRET_CREDENTIALS_KEY";

/// Where the key of a provider comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    Environment {
        variable: String,
    },
    /// A program with its arguments.
    Command(Vec<String>),
    File,
    Keyring,
    /// The encrypted file is there, but what is in it cannot be told.
    BrokenFile {
        why: String,
    },
    /// There is none, and the provider needs one.
    Missing,
    /// There is none, and the provider may do without.
    Unneeded,
}

impl Origin {
    /// Whether a key can be expected from here.
    pub(crate) fn has_key(&self) -> bool {
        !matches!(
            self,
            Self::Missing | Self::Unneeded | Self::BrokenFile { .. }
        )
    }

    /// For people: where from, never what.
    pub(crate) fn describe(&self, file: &CredentialsFile, variable: Option<&str>) -> String {
        match self {
            Self::Environment { variable } => format!("{variable} is set"),
            // Its arguments may hold what is private.
            Self::Command(command) => format!(
                "key from the command `{}`",
                command.first().map_or("", String::as_str)
            ),
            Self::File => format!("key from {}", file.path().display()),
            Self::Keyring if Keyring::BUILT => "key from the system keyring".to_owned(),
            Self::Keyring => "key in the system keyring, which this build cannot use".to_owned(),
            Self::BrokenFile { why } => why.clone(),
            Self::Missing => match variable {
                Some(variable) => format!("{variable} is not set"),
                None => "no key".to_owned(),
            },
            Self::Unneeded => "no key needed".to_owned(),
        }
    }
}

/// A source that is asked at each request. Remembers what a command or the keyring said until
/// the provider refuses it; what is stored is read anew when the file changed.
pub(crate) struct StoredKey {
    pub provider: String,
    pub origin: Origin,
    pub file: CredentialsFile,
    pub keyring: Keyring,
    pub lock: Lock,
    pub scrubber: Scrubber,
    /// Variables that a command of ours must not see.
    pub hidden: Vec<String>,
    pub remembered: Arc<Mutex<Option<Remembered>>>,
}

/// A key that was fetched, and from which state of the file.
pub(crate) struct Remembered {
    key: SecretString,
    stamp: Option<file::Stamp>,
}

impl KeySource for StoredKey {
    fn ready(&self) -> Result<(), String> {
        match &self.origin {
            Origin::BrokenFile { why } => Err(why.clone()),
            Origin::Keyring if !Keyring::BUILT => {
                let provider = self.provider.clone();
                Err(KeyringError::NotBuilt { provider }.to_string())
            }
            _ => Ok(()),
        }
    }

    fn key(&self) -> KeyFuture<'_> {
        let fetch = Fetch {
            provider: self.provider.clone(),
            origin: self.origin.clone(),
            file: self.file.clone(),
            keyring: self.keyring.clone(),
            lock: self.lock.clone(),
            hidden: self.hidden.clone(),
            remembered: Arc::clone(&self.remembered),
        };
        let scrubber = self.scrubber.clone();
        Box::pin(async move {
            let key = tokio::task::spawn_blocking(move || fetch.run())
                .await
                .map_err(|_| "it could not be fetched: an internal error".to_owned())??;
            scrubber.add_secret(key.expose_secret());
            Ok(key)
        })
    }

    fn refused(&self) {
        *self
            .remembered
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl std::fmt::Debug for StoredKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoredKey")
            .field("provider", &self.provider)
            .finish_non_exhaustive()
    }
}

/// One fetching, off the runtime.
struct Fetch {
    provider: String,
    origin: Origin,
    file: CredentialsFile,
    keyring: Keyring,
    lock: Lock,
    hidden: Vec<String>,
    remembered: Arc<Mutex<Option<Remembered>>>,
}

impl Fetch {
    fn run(self) -> Result<SecretString, String> {
        // Held while a command runs, so that many sessions do not start it many times.
        let mut remembered = self
            .remembered
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let stamp = match self.origin {
            // Storing a key in the keyring writes the file, too.
            Origin::File | Origin::Keyring => self.file.stamp(),
            _ => None,
        };
        if let Some(known) = &*remembered
            && known.stamp == stamp
        {
            return Ok(known.key.clone());
        }
        let key = match &self.origin {
            Origin::Command(command) => command::run(command, &self.hidden)?,
            Origin::File => self
                .file
                .read(&self.provider, &self.lock)
                .map_err(|error| error.to_string())?,
            Origin::Keyring => self
                .keyring
                .read(&self.provider, Asking::Allowed)
                .map_err(|error| error.to_string())?,
            Origin::BrokenFile { why } => return Err(why.clone()),
            Origin::Environment { .. } | Origin::Missing | Origin::Unneeded => {
                return Err("it has no source".to_owned());
            }
        };
        *remembered = Some(Remembered {
            key: key.clone(),
            stamp,
        });
        Ok(key)
    }
}

/// Text that can be a key: one line without spaces in it.
///
/// # Errors
/// What is wrong with it, without a piece of it.
pub(crate) fn as_key(text: &str) -> Result<SecretString, &'static str> {
    const LONGEST: usize = 16 * 1024;
    let text = text.trim();
    if text.is_empty() {
        return Err("it is empty");
    }
    if text.len() > LONGEST {
        return Err("it is longer than any key");
    }
    if text
        .chars()
        .any(|found| found.is_whitespace() || found.is_control())
    {
        return Err("it has a space or a control character in it");
    }
    Ok(SecretString::from(text))
}

/// The encrypted file of a configuration folder.
pub(crate) fn file_in(config: &std::path::Path) -> CredentialsFile {
    CredentialsFile::new(config.join("credentials.json"))
}

/// The identity of a configuration folder, unless config names another.
pub(crate) fn identity_in(config: &std::path::Path) -> PathBuf {
    config.join("identity.txt")
}

#[cfg(test)]
#[expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and moves an entry in the file by hand"
)]
mod tests {
    use super::*;

    fn stored(folder: &std::path::Path, origin: Origin) -> StoredKey {
        StoredKey {
            provider: "p".to_owned(),
            origin,
            file: file_in(folder),
            keyring: Keyring::new(Arc::new(keyring::tests::Memory::default()), folder),
            lock: Lock {
                master: None,
                identity: identity_in(folder),
                named: false,
            },
            scrubber: Scrubber::without_patterns(),
            hidden: Vec::new(),
            remembered: Arc::default(),
        }
    }

    async fn text(source: &StoredKey) -> Result<String, String> {
        source.key().await.map(|key| key.expose_secret().to_owned())
    }

    #[tokio::test]
    async fn a_key_that_changes_in_the_file_is_taken_up_and_scrubbed() {
        let folder = tempfile::tempdir().unwrap();
        let source = stored(folder.path(), Origin::File);
        assert!(text(&source).await.unwrap_err().contains("no key for `p`"));
        make_identity(&source.lock.identity).unwrap();
        for key in ["first-of-all", "second-and-last"] {
            let sealed = as_key(key).unwrap();
            source.file.set("p", &sealed, &source.lock).unwrap();
            assert_eq!(text(&source).await.unwrap(), key);
            assert_eq!(source.scrubber.text(key), "[REDACTED]");
        }
    }

    #[tokio::test]
    async fn a_key_of_the_keyring_is_fetched_scrubbed_and_each_folder_has_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let source = stored(folder.path(), Origin::Keyring);
        let error = text(&source).await.unwrap_err();
        assert!(error.contains("terret auth set --keyring p"), "{error}");
        for key in ["first-of-all", "second-and-last"] {
            source.keyring.set("p", &as_key(key).unwrap()).unwrap();
            source.file.set_in_keyring("p").unwrap();
            assert_eq!(text(&source).await.unwrap(), key);
            assert_eq!(source.scrubber.text(key), "[REDACTED]");
        }
        let other = Keyring::new(source.keyring.items(), std::path::Path::new("/other"));
        let error = other.read("p", Asking::Allowed).unwrap_err();
        assert!(matches!(error, KeyringError::NoEntry { .. }), "{error}");
        // What refuses says why, with the provider's way out, and not the key.
        let error = source.keyring.read("p", Asking::Never).unwrap_err();
        let said = error.to_string();
        assert!(said.contains("it is locked"), "{said}");
        assert!(!said.contains("second-and-last"), "{said}");
        source.keyring.remove("p").unwrap();
        source.refused();
        assert!(text(&source).await.is_err());
    }

    #[test]
    fn a_key_is_in_the_file_or_in_the_keyring_and_never_in_both() {
        let folder = tempfile::tempdir().unwrap();
        let source = stored(folder.path(), Origin::File);
        make_identity(&source.lock.identity).unwrap();
        let key = as_key("first-of-all").unwrap();
        let place = || source.file.providers().unwrap().get("p").copied();
        source.file.set("p", &key, &source.lock).unwrap();
        assert_eq!(place(), Some(Place::File));
        source.file.set_in_keyring("p").unwrap();
        assert_eq!(place(), Some(Place::Keyring));
        assert!(source.file.read("p", &source.lock).is_err());
        source.file.set("p", &key, &source.lock).unwrap();
        assert_eq!(place(), Some(Place::File));
        source.file.set_in_keyring("p").unwrap();
        source.file.remove("p").unwrap();
        assert_eq!(place(), None);
        assert!(source.file.remove("p").is_err());
    }

    #[tokio::test]
    async fn a_command_is_asked_again_once_its_key_was_refused() {
        let folder = tempfile::tempdir().unwrap();
        let count = folder.path().join("count").display().to_string();
        let script = "echo x >> \"$0\"; echo key-number-$(wc -l < \"$0\")";
        let command = ["sh", "-c", script, &count].map(str::to_owned);
        let source = stored(folder.path(), Origin::Command(command.into()));
        assert_eq!(text(&source).await.unwrap(), "key-number-1");
        assert_eq!(text(&source).await.unwrap(), "key-number-1");
        source.refused();
        assert_eq!(text(&source).await.unwrap(), "key-number-2");
    }

    #[tokio::test]
    async fn an_entry_under_another_name_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let source = stored(folder.path(), Origin::File);
        make_identity(&source.lock.identity).unwrap();
        let key = as_key("first-of-all").unwrap();
        source.file.set("q", &key, &source.lock).unwrap();
        let moved = std::fs::read_to_string(source.file.path())
            .unwrap()
            .replace("\"q\"", "\"p\"");
        std::fs::write(source.file.path(), moved).unwrap();
        let error = text(&source).await.unwrap_err();
        assert!(error.contains("another provider"), "{error}");
        assert!(!error.contains("first-of-all"), "{error}");
    }

    #[test]
    fn a_passphrase_opens_what_it_closed_and_nothing_else_does() {
        let folder = tempfile::tempdir().unwrap();
        let mut source = stored(folder.path(), Origin::File);
        let master = |word: &str| Some(Arc::new(SecretString::from(word)));
        source.lock.master = master("a phrase of words");
        let key = as_key("first-of-all").unwrap();
        source.file.set("p", &key, &source.lock).unwrap();
        let read = source.file.read("p", &source.lock).unwrap();
        assert_eq!(read.expose_secret(), "first-of-all");
        source.lock.master = master("another phrase");
        let error = source.file.read("p", &source.lock).unwrap_err();
        assert!(error.to_string().contains("not encrypted for"), "{error}");
        source.lock.master = master("AGE-SECRET-KEY-1CUT");
        let error = source.file.read("p", &source.lock).unwrap_err();
        assert!(error.to_string().contains("was it cut"), "{error}");
    }
}
