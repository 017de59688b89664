//! Identifiers that name files, so they are checked where they enter.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The name of a session: 1 to 64 of `A-Z a-z 0-9 _ -`, so that it can never leave
/// the folder it names a file in (check 19).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SessionId(String);

/// A session id that could not name a file safely.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no session id: use 1 to 64 letters, digits, `_` or `-`")]
pub struct BadSessionId(String);

impl SessionId {
    /// A new id that sorts by the time it was made.
    #[expect(clippy::disallowed_methods, reason = "the one place that makes them")]
    pub fn generate() -> Self {
        Self(uuid::Uuid::now_v7().simple().to_string())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for SessionId {
    type Error = BadSessionId;

    fn try_from(text: String) -> Result<Self, BadSessionId> {
        let fits = (1..=64).contains(&text.len())
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        if fits {
            Ok(Self(text))
        } else {
            Err(BadSessionId(text.chars().take(64).collect()))
        }
    }
}

impl std::str::FromStr for SessionId {
    type Err = BadSessionId;

    fn from_str(text: &str) -> Result<Self, BadSessionId> {
        Self::try_from(text.to_owned())
    }
}

impl From<SessionId> for String {
    fn from(id: SessionId) -> Self {
        id.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
