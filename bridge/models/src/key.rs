//! Where a provider's key comes from, when it is not there from the start: a command
//! or an encrypted file. It is asked for at the first request and not before.

use futures::future::BoxFuture;
use secrecy::SecretString;

/// A key on its way.
pub type KeyFuture<'a> = BoxFuture<'a, Result<SecretString, String>>;

/// A source of one provider's key.
pub trait KeySource: std::fmt::Debug + Send + Sync {
    /// Whether a key can be expected. Takes no time: nothing is run or decrypted.
    ///
    /// # Errors
    /// What to do about it, as the end of the sentence "no key for `name`: …".
    fn ready(&self) -> Result<(), String>;

    /// The key of this moment.
    ///
    /// # Errors
    /// As [`KeySource::ready`]; never with a secret in it.
    fn key(&self) -> KeyFuture<'_>;

    /// The provider refused the key: one that is remembered may have been replaced.
    fn refused(&self);
}
