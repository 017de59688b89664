//! The parameters of a message: raw until a method's own type is asked for.
//!
//! Raw first, because the wire must route, answer and cancel a message whose parameters nobody
//! has looked at yet, and because the schema's types are stricter than real clients are (R116).
//! [`parse`] tries the type as it is; only when that fails does it look for the loose spellings
//! that are known to be harmless, so an ordinary message pays nothing for them.

use bytes::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{RpcError, is_plain_name};

mod repair;

/// The parameters of a message, or the result of a response: JSON in UTF-8, checked to be well
/// formed, not yet read. Cheap to clone.
#[derive(Debug, Clone)]
pub struct RawParams {
    text: Bytes,
}

impl RawParams {
    /// What a message without parameters has.
    pub const NULL: Self = Self {
        text: Bytes::from_static(b"null"),
    };

    /// `text` must be one JSON value in UTF-8.
    pub(crate) const fn from_checked(text: Bytes) -> Self {
        Self { text }
    }

    /// Writes a value as JSON.
    ///
    /// # Errors
    /// When the value has no JSON form, such as a map whose keys are not strings.
    pub fn from_value(value: &(impl serde::Serialize + ?Sized)) -> Result<Self, serde_json::Error> {
        Ok(Self {
            text: Bytes::from(serde_json::to_vec(value)?),
        })
    }

    /// The JSON text.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.text
    }

    /// Whether the parameters are missing or null.
    #[must_use]
    pub fn is_null(&self) -> bool {
        self.text.trim_ascii() == b"null"
    }

    /// The top-level `sessionId`, without reading the rest into memory; `None` when it is
    /// missing or not a string.
    #[must_use]
    pub fn session_id(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct OnlySession {
            #[serde(rename = "sessionId")]
            session_id: Option<String>,
        }
        let only: OnlySession = serde_json::from_slice(&self.text).ok()?;
        only.session_id
    }

    /// See [`parse`].
    ///
    /// # Errors
    /// As [`parse`].
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, RpcError> {
        parse(self)
    }

    /// The whole as a tree; for vendor methods and for updates whose variants are not known.
    ///
    /// # Errors
    /// -32602 when it is nested too deep to be read.
    pub fn to_value(&self) -> Result<Value, RpcError> {
        serde_json::from_slice(&self.text).map_err(|_| too_deep())
    }
}

/// Reads parameters as the type of their method.
///
/// Missing or null parameters are an empty object; unknown fields are ignored; null stands for
/// a missing optional field; a missing `mcpServers` is an empty list; a `protocolVersion` is any
/// number (R116).
///
/// # Errors
/// -32602 that names the field at fault and what was expected there, and repeats nothing of
/// what was sent.
pub fn parse<T: DeserializeOwned>(raw: &RawParams) -> Result<T, RpcError> {
    if let Ok(parsed) = serde_json::from_slice(&raw.text) {
        return Ok(parsed);
    }
    let value = if raw.is_null() {
        Value::Object(serde_json::Map::new())
    } else {
        raw.to_value()?
    };
    if !value.is_object() {
        return Err(RpcError::invalid_params("the parameters must be an object"));
    }
    repair::parse_loosely(value)
        .map_err(|fault| RpcError::invalid_params(fault.in_words("the parameters")))
}

/// Reads the result of a response. `null` and `{}` stand for each other (some clients answer a
/// write with the one, some with the other).
pub(crate) fn parse_result<T: DeserializeOwned>(raw: &RawParams) -> Result<T, String> {
    if let Ok(parsed) = serde_json::from_slice(&raw.text) {
        return Ok(parsed);
    }
    let value = raw.to_value().map_err(|error| error.message.into_owned())?;
    if value.is_object()
        && let Ok(parsed) = T::deserialize(Value::Null)
    {
        return Ok(parsed);
    }
    let value = if value.is_null() {
        Value::Object(serde_json::Map::new())
    } else {
        value
    };
    repair::parse_loosely(value).map_err(|fault| fault.in_words("the result"))
}

/// The `protocolVersion` of an `initialize`, whatever number it is: a fraction is cut, a
/// negative one is 0, one too large is the largest. It is read before the rest, because the
/// version says what shape the rest has.
///
/// # Errors
/// -32602 when it is missing or not a number.
pub fn protocol_version(raw: &RawParams) -> Result<u64, RpcError> {
    #[derive(Deserialize)]
    struct OnlyVersion {
        #[serde(rename = "protocolVersion")]
        version: Value,
    }
    let only: Result<OnlyVersion, _> = serde_json::from_slice(&raw.text);
    only.ok()
        .and_then(|only| version_number(&only.version))
        .ok_or_else(|| RpcError::invalid_params("`protocolVersion` is missing or not a number"))
}

/// Rounds any JSON number to the version it can only mean.
fn version_number(value: &Value) -> Option<u64> {
    let Value::Number(number) = value else {
        return None;
    };
    if let Some(whole) = number.as_u64() {
        return Some(whole);
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float cast saturates, which is the rounding that is wanted"
    )]
    number.as_f64().map(|fraction| fraction as u64)
}

fn too_deep() -> RpcError {
    RpcError::invalid_params("the parameters are nested too deep to be read")
}

/// Where a value did not fit, and what should be there.
struct Fault {
    path: String,
    kind: FaultKind,
}

enum FaultKind {
    /// A field the type needs.
    Missing(String),
    /// The value at the path is of another kind than this.
    Expected(String),
    /// The value at the path is refused for a reason that cannot be told without content.
    Refused,
}

impl Fault {
    fn in_words(&self, whole: &str) -> String {
        let at = if self.path.is_empty() {
            whole.to_owned()
        } else {
            format!("`{}`", self.path)
        };
        match &self.kind {
            FaultKind::Missing(field) if self.path.is_empty() => format!("`{field}` is missing"),
            FaultKind::Missing(field) => format!("`{}.{field}` is missing", self.path),
            FaultKind::Expected(what) => format!("{at} must be {what}"),
            FaultKind::Refused => format!("{at} has a value that cannot be used"),
        }
    }
}

/// A path segment that may be shown.
fn shown(key: &str) -> &str {
    if is_plain_name(key) { key } else { "…" }
}

#[cfg(test)]
mod tests;
