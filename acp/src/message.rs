//! Telling what a line is: request, notification, response, or a mistake.
//!
//! Only the envelope is read; parameters and results stay raw slices of the line. What is wrong
//! is answered by kind and never by content.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::error::RpcError;
use crate::id::RequestId;
use crate::noise;
use crate::params::RawParams;

/// One line, understood.
#[derive(Debug, Clone)]
pub enum Message {
    /// The peer wants an answer.
    Request {
        /// To be echoed.
        id: RequestId,
        /// What is asked.
        method: String,
        /// Not read yet.
        params: RawParams,
    },
    /// The peer wants no answer.
    Notification {
        /// What is told.
        method: String,
        /// Not read yet.
        params: RawParams,
    },
    /// An answer to a request of ours.
    Response {
        /// Our id; `None` when it is not one that we could have sent, so nobody waits for it.
        id: Option<u64>,
        /// What it says.
        outcome: Outcome,
    },
    /// Not a message. It is answered with this error.
    Invalid {
        /// Of the request that it looks like.
        id: Option<RequestId>,
        /// What to answer.
        error: RpcError,
    },
    /// A line of something else, such as a banner; only where [`Noise::Skip`] is asked for.
    Noise,
}

/// What a response says.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// The result.
    Result(RawParams),
    /// The refusal.
    Error(RpcError),
    /// Neither: the peer breaks JSON-RPC, for this one request.
    Neither,
}

/// What to make of a line that is not JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Noise {
    /// Answer it with -32700: an agent's input holds messages alone.
    #[default]
    Refuse,
    /// Pass over it: programs that are driven as agents write banners, warnings and terminal
    /// titles into their output (R115). Escape sequences around a message are taken off.
    Skip,
}

/// Reads one line.
#[must_use]
pub fn parse(line: &Bytes, noise: Noise) -> Message {
    let Ok(text) = std::str::from_utf8(line) else {
        return match noise {
            Noise::Refuse => Message::Invalid {
                id: None,
                error: RpcError::parse_error(),
            },
            Noise::Skip => Message::Noise,
        };
    };
    match (serde_json::from_str::<Envelope<'_>>(text), noise) {
        (Ok(envelope), Noise::Refuse) => envelope.classify(line),
        (Ok(envelope), Noise::Skip) => envelope.classify_among_noise(line),
        (Err(_), Noise::Refuse) => refusal(text),
        (Err(_), Noise::Skip) => match noise::find_message(text) {
            // What is around it is gone now, so the second look ends here.
            Some(inner) if inner.len() < text.len() => {
                parse(&line.slice_ref(inner.as_bytes()), noise)
            }
            _ if matches!(text.trim_start().as_bytes().first(), Some(b'[')) && is_json(text) => {
                refusal(text)
            }
            _ => Message::Noise,
        },
    }
}

/// Says what is wrong with a line that is no envelope.
fn refusal(text: &str) -> Message {
    let first = text.trim_ascii_start().as_bytes().first().copied();
    let error = if !is_json(text) {
        RpcError::parse_error()
    } else if first == Some(b'[') {
        RpcError::invalid_request("batches are not spoken here; send one JSON object a line")
    } else if first == Some(b'{') {
        RpcError::invalid_request(
            "the message names one of its members twice or in a way that cannot be read",
        )
    } else {
        RpcError::invalid_request("a message must be a JSON object")
    };
    Message::Invalid { id: None, error }
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<&RawValue>(text).is_ok()
}

/// The members of a message that matter, as raw slices of the line. Absent and null are not
/// the same for an id or a result.
#[derive(Default)]
struct Envelope<'line> {
    marked: bool,
    id: Option<&'line RawValue>,
    method: Option<&'line RawValue>,
    params: Option<&'line RawValue>,
    result: Option<&'line RawValue>,
    error: Option<&'line RawValue>,
}

impl<'line> Envelope<'line> {
    fn classify(self, line: &Bytes) -> Message {
        let id = self.id.map(|raw| RequestId::from_token(raw.get()));
        // Some write out every member and leave null in those that do not apply.
        let Some(method) = self.method.filter(|raw| !is_null(raw)) else {
            return self.classify_answer(line, id);
        };
        let id = match id {
            Some(None) => {
                return invalid(None, "`id` must be a string, an integer or null");
            }
            Some(Some(id)) => Some(id),
            None => None,
        };
        let Ok(method) = serde_json::from_str::<String>(method.get()) else {
            return invalid(id, "`method` must be a string");
        };
        let params = self.params.map_or(RawParams::NULL, |raw| slice(line, raw));
        match id {
            Some(id) => Message::Request { id, method, params },
            None => Message::Notification { method, params },
        }
    }

    fn classify_answer(self, line: &Bytes, id: Option<Option<RequestId>>) -> Message {
        let result = self.result.filter(|_| self.error.is_none_or(is_null));
        let outcome = match (result, self.error.filter(|raw| !is_null(raw))) {
            (Some(result), _) => Outcome::Result(slice(line, result)),
            (None, Some(error)) => match serde_json::from_str(error.get()) {
                Ok(error) => Outcome::Error(error),
                Err(_) => Outcome::Error(RpcError::internal(
                    "the peer refused in a way that cannot be read",
                )),
            },
            (None, None) => Outcome::Neither,
        };
        let own = self.id.and_then(|raw| RequestId::own_from_token(raw.get()));
        let answers = match outcome {
            // An error without an id is what some clients say to a notification they do not know
            // (Toad does). It answers nothing.
            Outcome::Error(_) => true,
            Outcome::Result(_) => self.id.is_some(),
            Outcome::Neither => own.is_some(),
        };
        if answers {
            return Message::Response { id: own, outcome };
        }
        invalid(
            id.flatten(),
            "a message must have a `method`, or be an answer with an `id`",
        )
    }

    /// A program's log may be JSON, too: what bears no mark of a message is none.
    fn classify_among_noise(self, line: &Bytes) -> Message {
        let speaks = self.marked || self.method.is_some() && self.params.is_some();
        let answers = self.id.is_some() && (self.result.is_some() || self.error.is_some());
        if speaks || answers {
            self.classify(line)
        } else {
            Message::Noise
        }
    }
}

fn invalid(id: Option<RequestId>, reason: &'static str) -> Message {
    Message::Invalid {
        id,
        error: RpcError::invalid_request(reason),
    }
}

fn is_null(raw: &RawValue) -> bool {
    raw.get() == "null"
}

fn slice(line: &Bytes, raw: &RawValue) -> RawParams {
    RawParams::from_checked(line.slice_ref(raw.get().as_bytes()))
}

impl<'de> Deserialize<'de> for Envelope<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EnvelopeVisitor)
    }
}

struct EnvelopeVisitor;

impl<'de> Visitor<'de> for EnvelopeVisitor {
    type Value = Envelope<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Envelope<'de>, A::Error> {
        use serde::de::Error;
        let mut envelope = Envelope::default();
        while let Some(Key(key)) = map.next_key()? {
            let value: &'de RawValue = map.next_value()?;
            let member = match key.as_ref() {
                "jsonrpc" => {
                    envelope.marked = true;
                    continue;
                }
                "id" => &mut envelope.id,
                "method" => &mut envelope.method,
                "params" => &mut envelope.params,
                "result" => &mut envelope.result,
                "error" => &mut envelope.error,
                _ => continue,
            };
            // Two ids or two methods: whichever were taken, the other side may mean the other.
            if member.replace(value).is_some() {
                return Err(A::Error::custom("a member is named twice"));
            }
        }
        Ok(envelope)
    }
}

/// A key, borrowed unless it has escapes.
struct Key<'de>(Cow<'de, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl<'de> Visitor<'de> for KeyVisitor {
            type Value = Key<'de>;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a key")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(KeyVisitor)
    }
}

#[cfg(test)]
mod tests;
