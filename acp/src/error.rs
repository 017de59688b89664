//! What can go wrong on the wire, for both audiences: [`RpcError`] is what the peer is told,
//! [`RequestError`] is what the caller of a request of ours is told.
//!
//! Error texts made here never repeat what the peer sent: a line that failed to parse may well
//! hold a key or the text of a private file, and errors end up in logs and issue trackers.

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::schema;

/// The error codes that JSON-RPC and the Agent Client Protocol name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// -32700: the line is not JSON.
    ParseError,
    /// -32600: JSON, but not a message.
    InvalidRequest,
    /// -32601: a method that this side does not have.
    MethodNotFound,
    /// -32602: the parameters do not fit the method.
    InvalidParams,
    /// -32603: the fault is on the answering side.
    Internal,
    /// -32000: log in first.
    AuthRequired,
    /// -32002: no such session or resource.
    NotFound,
    /// -32800: given up because the asking side asked for that.
    Cancelled,
    /// Any other number. A peer is free to invent codes.
    Other(i64),
}

impl ErrorCode {
    /// The number on the wire.
    #[must_use]
    pub const fn number(self) -> i64 {
        match self {
            Self::ParseError => -32700,
            Self::InvalidRequest => -32600,
            Self::MethodNotFound => -32601,
            Self::InvalidParams => -32602,
            Self::Internal => -32603,
            Self::AuthRequired => -32000,
            Self::NotFound => -32002,
            Self::Cancelled => -32800,
            Self::Other(number) => number,
        }
    }
}

impl From<i64> for ErrorCode {
    fn from(number: i64) -> Self {
        match number {
            -32700 => Self::ParseError,
            -32600 => Self::InvalidRequest,
            -32601 => Self::MethodNotFound,
            -32602 => Self::InvalidParams,
            -32603 => Self::Internal,
            -32000 => Self::AuthRequired,
            -32002 => Self::NotFound,
            -32800 => Self::Cancelled,
            other => Self::Other(other),
        }
    }
}

impl Serialize for ErrorCode {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i64(self.number())
    }
}

/// The `error` member of a response.
#[derive(Debug, Clone, PartialEq, Serialize, thiserror::Error)]
#[error("{message} (code {})", .code.number())]
pub struct RpcError {
    /// What kind of error.
    pub code: ErrorCode,
    /// One sentence for a person.
    pub message: Cow<'static, str>,
    /// More for a program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

impl RpcError {
    /// An error with no data.
    pub fn new(code: ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    /// The same error with data for a program.
    #[must_use]
    pub fn with_data(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }

    /// -32700.
    #[must_use]
    pub fn parse_error() -> Self {
        Self::new(
            ErrorCode::ParseError,
            "the line is not valid JSON in UTF-8; send one JSON object a line",
        )
    }

    /// -32600, with the reason.
    pub fn invalid_request(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorCode::InvalidRequest, reason)
    }

    /// -32601. The name is shown only when it is short and plain: a peer that slips may put
    /// anything where the method belongs.
    #[must_use]
    pub fn method_not_found(method: &str) -> Self {
        let message = if is_plain_name(method) {
            Cow::Owned(format!("there is no method `{method}` here"))
        } else {
            Cow::Borrowed("there is no such method here")
        };
        Self::new(ErrorCode::MethodNotFound, message)
    }

    /// -32602, with the reason.
    pub fn invalid_params(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorCode::InvalidParams, reason)
    }

    /// -32603, with the reason.
    pub fn internal(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorCode::Internal, reason)
    }

    /// -32000: the user must log in first.
    pub fn auth_required(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorCode::AuthRequired, reason)
    }

    /// -32002 with `data.sessionId` (ACP: the answer to any request for an unknown session).
    #[must_use]
    pub fn session_not_found(session_id: &str) -> Self {
        Self::new(
            ErrorCode::NotFound,
            "there is no such session; list them or start a new one",
        )
        .with_data(serde_json::json!({ "sessionId": session_id }))
    }

    /// -32800.
    #[must_use]
    pub fn cancelled() -> Self {
        Self::new(ErrorCode::Cancelled, "the request was cancelled")
    }

    /// -32603 with `data.reason` = `busy`: too much of the same lane is already waiting.
    #[must_use]
    pub fn busy() -> Self {
        Self::internal(
            "too many messages are waiting here already; wait for answers and send it again",
        )
        .with_data(serde_json::json!({ "reason": "busy" }))
    }

    /// Whether this is the refusal that [`RpcError::busy`] makes.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.data
            .as_ref()
            .and_then(|data| data.get("reason"))
            .and_then(Value::as_str)
            == Some("busy")
    }
}

impl From<schema::v1::Error> for RpcError {
    fn from(error: schema::v1::Error) -> Self {
        Self {
            code: ErrorCode::from(i64::from(i32::from(error.code))),
            message: Cow::Owned(error.message),
            data: error.data,
        }
    }
}

/// Reads the `error` member of a response, however loosely it is made: peers exist that send a
/// bare string, a code in quotes or no message.
impl<'de> Deserialize<'de> for RpcError {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let Value::Object(mut fields) = value else {
            let message = match value {
                Value::String(text) => Cow::Owned(text),
                _ => Cow::Borrowed("the peer refused and gave no reason"),
            };
            return Ok(Self::new(ErrorCode::Internal, message));
        };
        let code = match fields.get("code") {
            Some(Value::Number(number)) => number.as_i64(),
            Some(Value::String(text)) => text.trim().parse().ok(),
            _ => None,
        };
        let message = match fields.remove("message") {
            Some(Value::String(text)) => Cow::Owned(text),
            _ => Cow::Borrowed("the peer refused and gave no reason"),
        };
        Ok(Self {
            code: code.map_or(ErrorCode::Internal, ErrorCode::from),
            message,
            data: fields.remove("data").filter(|data| !data.is_null()),
        })
    }
}

/// The connection has ended; nothing can be sent any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the connection has ended")]
pub struct Closed;

/// Why a message could not be queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotifyError {
    /// The connection has ended.
    #[error(transparent)]
    Closed(#[from] Closed),
    /// The peer does not read fast enough: wait, or merge and try again. Only `try_notify`
    /// answers so.
    #[error(
        "the peer is not reading as fast as messages are made; wait for room and send it again"
    )]
    Full,
    /// The parameters cannot be written as JSON (a map whose keys are not strings).
    #[error("the parameters of the message cannot be written as JSON")]
    Encode,
}

/// Why a request of ours has no result.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The peer is gone.
    #[error("`{method}` was not answered: {Closed}")]
    Closed {
        /// What was asked.
        method: String,
    },
    /// The peer took too long; it was told that the answer is no longer wanted.
    #[error("`{method}` was not answered within {after:?}{}", last_words(.noise.as_deref()))]
    TimedOut {
        /// What was asked.
        method: String,
        /// How long it had.
        after: Duration,
        /// The last line the peer wrote that was not a message (R115): usually the true reason.
        noise: Option<String>,
    },
    /// The peer refused.
    #[error("`{method}` was refused: {error}")]
    Rpc {
        /// What was asked.
        method: String,
        /// What the peer said.
        #[source]
        error: Box<RpcError>,
    },
    /// The answer breaks JSON-RPC: it has neither a result nor an error.
    #[error("the answer to `{method}` has neither a result nor an error; the peer breaks JSON-RPC")]
    Protocol {
        /// What was asked.
        method: String,
    },
    /// The result does not have the shape it should.
    #[error("the result of `{method}` does not fit: {detail}")]
    Decode {
        /// What was asked.
        method: String,
        /// Which part is wrong; holds nothing of the answer's content.
        detail: String,
    },
    /// Our own parameters cannot be written as JSON.
    #[error("the parameters of `{method}` cannot be written as JSON")]
    Encode {
        /// What was asked.
        method: String,
    },
}

impl RequestError {
    /// The refusal of the peer, when it is one.
    #[must_use]
    pub fn rpc(&self) -> Option<&RpcError> {
        match self {
            Self::Rpc { error, .. } => Some(error),
            _ => None,
        }
    }

    /// Whether the peer is gone.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Closed { .. })
    }
}

/// Whether a name can be shown in an error without giving content away.
pub(crate) fn is_plain_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 64
        && name.bytes().all(|byte| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'/' | b'$' | b'.' | b'-')
        })
}

fn last_words(noise: Option<&str>) -> String {
    match noise {
        Some(line) => format!("; the last thing it wrote that is not a message: {line}"),
        None => String::new(),
    }
}
