//! What opens the encrypted file: an age identity or a passphrase.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use age::x25519;
use secrecy::{ExposeSecret as _, SecretString};

use super::MASTER;
use super::file::{warn_when_wide, write_private};

/// How an identity begins, and nothing else that a person would choose.
const IDENTITY: &str = "AGE-SECRET-KEY-";

/// The logarithm of scrypt's cost for a passphrase: 128 MiB and some tenths of a second.
const WORK_FACTOR: u8 = 17;

/// The most that a file may ask of us.
const MOST_WORK: u8 = 20;

/// Where the key to the file is looked for.
#[derive(Clone)]
pub(crate) struct Lock {
    /// The value of [`MASTER`].
    pub master: Option<Arc<SecretString>>,
    /// The identity file, and whether config names it.
    pub identity: PathBuf,
    pub named: bool,
}

/// What opens the file.
pub(crate) enum Holder {
    Identity(Box<x25519::Identity>),
    Passphrase(SecretString),
}

/// The file cannot be opened. No message holds a piece of a key.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LockError {
    #[error(
        "the key to the stored keys is not there: set {MASTER}, or make an identity with \
         `terret auth init`"
    )]
    Nothing,
    #[error("{MASTER} begins like an age identity but is none; was it cut?")]
    BadMaster,
    #[error("the identity file `{}` holds no age identity", path.display())]
    BadIdentity { path: PathBuf },
    #[error("the identity file `{}` could not be read: {source}", path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("`{}` is there already; it is left as it is", path.display())]
    Exists { path: PathBuf },
    #[error("the identity file `{}` could not be written: {source}", path.display())]
    Write {
        path: PathBuf,
        source: std::io::Error,
    },
}

impl Lock {
    /// The key to the file: the variable, else the identity file.
    pub(crate) fn holder(&self) -> Result<Holder, LockError> {
        if let Some(master) = &self.master {
            let master = master.expose_secret().trim();
            return if master.starts_with(IDENTITY) {
                let identity = master.parse().map_err(|_| LockError::BadMaster)?;
                Ok(Holder::Identity(Box::new(identity)))
            } else {
                Ok(Holder::Passphrase(SecretString::from(master)))
            };
        }
        let path = &self.identity;
        let text = match read(path) {
            Ok(text) => {
                warn_when_wide(path);
                SecretString::from(text)
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !self.named => {
                return Err(LockError::Nothing);
            }
            Err(source) => {
                return Err(LockError::Read {
                    path: path.clone(),
                    source,
                });
            }
        };
        text.expose_secret()
            .lines()
            .map(str::trim)
            .find(|line| line.starts_with(IDENTITY))
            .and_then(|line| line.parse().ok())
            .map(|identity| Holder::Identity(Box::new(identity)))
            .ok_or_else(|| LockError::BadIdentity { path: path.clone() })
    }

    /// For people: where the key to the file comes from.
    pub(crate) fn describe(&self) -> String {
        if self.master.is_some() {
            MASTER.to_owned()
        } else {
            self.identity.display().to_string()
        }
    }
}

impl Holder {
    pub(crate) fn encrypt(&self, plain: &[u8]) -> Result<Vec<u8>, age::EncryptError> {
        match self {
            Self::Identity(identity) => age::encrypt(&identity.to_public(), plain),
            Self::Passphrase(word) => {
                let mut recipient = age::scrypt::Recipient::new(word.clone());
                recipient.set_work_factor(WORK_FACTOR);
                age::encrypt(&recipient, plain)
            }
        }
    }

    /// The bytes, or nothing when this does not open them.
    pub(crate) fn decrypt(&self, sealed: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Identity(identity) => age::decrypt(identity.as_ref(), sealed).ok(),
            Self::Passphrase(word) => {
                let mut identity = age::scrypt::Identity::new(word.clone());
                identity.set_max_work_factor(MOST_WORK);
                age::decrypt(&identity, sealed).ok()
            }
        }
    }
}

/// Makes a new identity file, readable by its owner alone. One that is there is left alone.
pub(crate) fn make_identity(path: &Path) -> Result<(), LockError> {
    let identity = x25519::Identity::generate();
    let text = format!(
        "# Opens the keys in credentials.json. Who has this file has them.\n{}\n",
        identity.to_string().expose_secret()
    );
    write_private(path, true, |file| file.write_all(text.as_bytes())).map_err(|source| {
        let path = path.to_owned();
        if source.kind() == std::io::ErrorKind::AlreadyExists {
            LockError::Exists { path }
        } else {
            LockError::Write { path, source }
        }
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "the operator's own identity file"
)]
fn read(path: &Path) -> std::io::Result<String> {
    std::fs::read_to_string(path)
}
