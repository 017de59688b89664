//! Request ids as the peer wrote them.
//!
//! An id is kept as its raw JSON token and echoed as it came: going through a number type loses
//! ids above 2^53 or refuses them (R106), and going through a string type changes `1` to `"1"`
//! (R029).

use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Longer ids are refused: an id is kept for as long as its request runs.
pub const MAX_ID_BYTES: usize = 4096;

/// The id of a request that came in: a string, an integer of any size, or null.
#[derive(Debug, Clone)]
pub struct RequestId {
    raw: Arc<str>,
    /// The text of a string id with escapes, so that `"\u00e9"` and `"é"` are the same id.
    decoded: Option<Arc<str>>,
}

impl RequestId {
    /// Reads a raw JSON token. `None` for what cannot be an id: fractions and exponents,
    /// booleans, arrays, objects, and tokens over [`MAX_ID_BYTES`].
    #[must_use]
    pub fn from_token(token: &str) -> Option<Self> {
        if token.len() > MAX_ID_BYTES {
            return None;
        }
        let first = *token.as_bytes().first()?;
        let decoded = match first {
            b'"' => {
                let text: String = serde_json::from_str(token).ok()?;
                token.contains('\\').then(|| Arc::from(text))
            }
            b'n' if token == "null" => None,
            b'-' | b'0'..=b'9' => {
                let digits = token.strip_prefix('-').unwrap_or(token);
                if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                    return None;
                }
                None
            }
            _ => return None,
        };
        Some(Self {
            raw: Arc::from(token),
            decoded,
        })
    }

    /// The token as it came.
    #[must_use]
    pub fn as_token(&self) -> &str {
        &self.raw
    }

    /// Our own ids are small integers. Peers exist that answer with `"5"` or `5.0`; what we
    /// sent is never a string, so there is nothing to mix up.
    pub(crate) fn own_from_token(token: &str) -> Option<u64> {
        let inner = token
            .strip_prefix('"')
            .and_then(|rest| rest.strip_suffix('"'))
            .unwrap_or(token);
        let whole = inner.strip_suffix(".0").unwrap_or(inner);
        whole.parse().ok()
    }

    fn key(&self) -> (bool, &str) {
        match &self.decoded {
            Some(text) => (true, text),
            None => match self
                .raw
                .strip_prefix('"')
                .and_then(|rest| rest.strip_suffix('"'))
            {
                Some(text) => (true, text),
                None => (false, &self.raw),
            },
        }
    }
}

impl PartialEq for RequestId {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for RequestId {}

impl Hash for RequestId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}
