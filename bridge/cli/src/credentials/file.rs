//! The encrypted file: each provider's key by itself, so that names can be listed, and a
//! provider be removed, without the key to the file. It also names the providers whose key
//! is in the system keyring.

#![expect(
    clippy::disallowed_methods,
    reason = "the operator's own file of credentials"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};

use super::as_key;
use super::identity::{Holder, Lock, LockError};

/// The number of the format.
const VERSION: u32 = 1;

/// `credentials.json` of a configuration folder.
#[derive(Debug, Clone)]
pub(crate) struct CredentialsFile {
    path: PathBuf,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    version: u32,
    /// A provider's name to an age file in base64.
    keys: BTreeMap<String, String>,
    /// Providers whose key is in the system keyring; none of them is in `keys`. Versions
    /// before the keyring refuse a file that has some.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    keyring: BTreeSet<String>,
}

/// Where a stored key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    File,
    Keyring,
}

/// What is encrypted. The name is in it, so that an entry cannot be put under another one,
/// whose server would be sent the key.
#[derive(Serialize, Deserialize)]
struct Entry {
    provider: String,
    key: String,
}

/// Tells a changed file from the same one.
pub(crate) type Stamp = (u64, i64, i64, u64);

/// The file cannot be used. No message holds a piece of a key.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    #[error("`{}` could not be {what}: {source}", path.display())]
    Io {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("`{}` is not right: {why}; restore it, or remove it and store the keys again", path.display())]
    Malformed { path: PathBuf, why: String },
    #[error("`{}` holds no key for `{provider}`", path.display())]
    NoEntry { path: PathBuf, provider: String },
    #[error(
        "the key for `{provider}` in `{}` was not encrypted for {with}: give the right key to the \
         file, or remove the entry with `terret auth remove {provider}`",
        path.display()
    )]
    WrongKey {
        path: PathBuf,
        provider: String,
        with: String,
    },
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error("the key could not be encrypted: {0}")]
    Encrypt(#[from] age::EncryptError),
}

impl CredentialsFile {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Of the file as it is now; none when it is not there.
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        let found = fs::metadata(&self.path).ok()?;
        Some((found.ino(), found.mtime(), found.mtime_nsec(), found.len()))
    }

    /// The providers with a stored key, and where it is; none when there is no file.
    pub(crate) fn providers(&self) -> Result<BTreeMap<String, Place>, FileError> {
        let Content { keys, keyring, .. } = self.load()?;
        let in_file = keys.into_keys().map(|name| (name, Place::File));
        let in_keyring = keyring.into_iter().map(|name| (name, Place::Keyring));
        Ok(in_file.chain(in_keyring).collect())
    }

    /// A provider's key. Blocks, for a passphrase some tenths of a second.
    pub(crate) fn read(&self, provider: &str, lock: &Lock) -> Result<SecretString, FileError> {
        let content = self.load()?;
        let sealed = content
            .keys
            .get(provider)
            .ok_or_else(|| FileError::NoEntry {
                path: self.path.clone(),
                provider: provider.to_owned(),
            })?;
        self.open_entry(provider, sealed, lock, &lock.holder()?)
    }

    /// Stores a provider's key in the place of one that is there.
    pub(crate) fn set(
        &self,
        provider: &str,
        key: &SecretString,
        lock: &Lock,
    ) -> Result<(), FileError> {
        let holder = lock.holder()?;
        self.change(|content| {
            // A file that two keys open in part would surprise at the next request.
            if let Some((other, sealed)) = content.keys.iter().find(|(name, _)| *name != provider) {
                self.open_entry(other, sealed, lock, &holder)?;
            }
            let entry = Entry {
                provider: provider.to_owned(),
                key: key.expose_secret().to_owned(),
            };
            let plain = SecretString::from(
                serde_json::to_string(&entry).map_err(|error| self.malformed(&error))?,
            );
            let sealed = holder.encrypt(plain.expose_secret().as_bytes())?;
            content
                .keys
                .insert(provider.to_owned(), BASE64.encode(sealed));
            content.keyring.remove(provider);
            Ok(())
        })
    }

    /// Notes that a provider's key is in the system keyring, and forgets one that is here.
    pub(crate) fn set_in_keyring(&self, provider: &str) -> Result<(), FileError> {
        self.change(|content| {
            content.keys.remove(provider);
            content.keyring.insert(provider.to_owned());
            Ok(())
        })
    }

    /// Removes a provider's key, or what says that it is in the system keyring.
    pub(crate) fn remove(&self, provider: &str) -> Result<(), FileError> {
        self.change(|content| {
            let sealed = content.keys.remove(provider).is_some();
            if content.keyring.remove(provider) || sealed {
                return Ok(());
            }
            Err(FileError::NoEntry {
                path: self.path.clone(),
                provider: provider.to_owned(),
            })
        })
    }

    fn open_entry(
        &self,
        provider: &str,
        sealed: &str,
        lock: &Lock,
        holder: &Holder,
    ) -> Result<SecretString, FileError> {
        let sealed = BASE64
            .decode(sealed)
            .map_err(|_| self.malformed(&format!("the entry of `{provider}` is no base64")))?;
        let plain = holder.decrypt(&sealed).ok_or_else(|| FileError::WrongKey {
            path: self.path.clone(),
            provider: provider.to_owned(),
            with: lock.describe(),
        })?;
        // Errors of the parser could quote the key.
        let entry: Entry = serde_json::from_slice(&plain)
            .map_err(|_| self.malformed(&format!("the entry of `{provider}` holds no key")))?;
        if entry.provider != provider {
            return Err(self.malformed(&format!(
                "the entry of `{provider}` was made for another provider"
            )));
        }
        as_key(&entry.key)
            .map_err(|why| self.malformed(&format!("the key of `{provider}` cannot be one: {why}")))
    }

    fn load(&self) -> Result<Content, FileError> {
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => {
                warn_when_wide(&self.path);
                text
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Content {
                    version: VERSION,
                    keys: BTreeMap::new(),
                    keyring: BTreeSet::new(),
                });
            }
            Err(source) => return Err(self.io("read")(source)),
        };
        let content: Content =
            serde_json::from_str(&text).map_err(|error| self.malformed(&error))?;
        if content.version != VERSION {
            return Err(self.malformed(&format!(
                "its format {} is not known to this version",
                content.version
            )));
        }
        Ok(content)
    }

    /// Changes the file under a lock, in one step.
    fn change(
        &self,
        change: impl FnOnce(&mut Content) -> Result<(), FileError>,
    ) -> Result<(), FileError> {
        private_folder(&self.path).map_err(self.io("made room for"))?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(self.path.with_extension("lock"))
            .and_then(|lock| lock.lock().map(|()| lock))
            .map_err(self.io("locked"))?;
        let mut content = self.load()?;
        change(&mut content)?;
        write_private(&self.path, false, |file| {
            serde_json::to_writer_pretty(&mut *file, &content)?;
            io::Write::write_all(file, b"\n")
        })
        .map_err(self.io("written"))?;
        drop(lock);
        Ok(())
    }

    fn malformed(&self, why: &dyn std::fmt::Display) -> FileError {
        FileError::Malformed {
            path: self.path.clone(),
            why: why.to_string(),
        }
    }

    fn io(&self, what: &'static str) -> impl FnOnce(io::Error) -> FileError + use<> {
        let path = self.path.clone();
        move |source| FileError::Io { what, path, source }
    }
}

/// A file of secrets that others may read is told, and used all the same (R137).
pub(super) fn warn_when_wide(path: &Path) {
    if fs::metadata(path).is_ok_and(|found| found.mode() & 0o077 != 0) {
        tracing::warn!(
            path = %path.display(),
            "others can read this file of keys; `chmod go-rwx` closes it"
        );
    }
}

/// Writes a file in one step, readable by its owner alone whatever the umask, and on the
/// disk when this returns. With `new`, one that is there is an error.
pub(super) fn write_private(
    path: &Path,
    new: bool,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    private_folder(path)?;
    let temporary = path.with_extension(format!("new-{}", std::process::id()));
    // Left behind by a process that died and had our number.
    let _ = fs::remove_file(&temporary);
    let written = OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(&temporary)
        .and_then(|mut file| {
            write(&mut file)?;
            file.sync_all()
        })
        .and_then(|()| {
            if new {
                fs::hard_link(&temporary, path)
            } else {
                fs::rename(&temporary, path)
            }
        });
    if new || written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written?;
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

fn private_folder(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) => fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder),
        None => Ok(()),
    }
}
