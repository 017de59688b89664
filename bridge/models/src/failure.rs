//! What a provider says when it fails, made into an error for people: what happened, why
//! and what to do, without a key and without the prompt (`R059`).

#![expect(
    clippy::disallowed_types,
    reason = "constant tables of patterns, compiled once"
)]

use std::sync::LazyLock;

use regex::Regex;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use crate::message::{Part, ToolResult};
use crate::provider::{ModelError, Request};

/// Characters of a provider's own words that are shown.
const EXCERPT: usize = 500;
/// A repeated piece of the prompt is found when it has at least twice this many characters.
const ECHO_WINDOW: usize = 24;

/// What an error body says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ErrorBody {
    pub(crate) message: String,
    /// `type` and `code`, lower case, with a space between.
    pub(crate) codes: String,
    /// A numeric code, where a stream carries one in the place of a status.
    pub(crate) status: Option<u16>,
}

impl ErrorBody {
    /// Reads any of the shapes that are in use; a body that is no JSON is its own message.
    pub(crate) fn read(bytes: &[u8]) -> Self {
        match serde_json::from_slice::<Value>(bytes) {
            Ok(value) => Self::of(&value).unwrap_or_else(|| Self {
                message: value.to_string(),
                ..Self::default()
            }),
            Err(_) => Self {
                message: String::from_utf8_lossy(bytes).trim().to_owned(),
                ..Self::default()
            },
        }
    }

    /// The error in a JSON value, when there is one.
    pub(crate) fn of(value: &Value) -> Option<Self> {
        let error = match value.get("error") {
            Some(Value::Null) | None => value,
            Some(error) => error,
        };
        if let Value::String(message) = error {
            return Some(Self {
                message: message.clone(),
                ..Self::default()
            });
        }
        let message = ["message", "detail", "msg"]
            .iter()
            .find_map(|key| error.get(key).and_then(Value::as_str));
        // A list of errors, as one large provider wraps its own.
        if message.is_none() {
            return value.get(0).and_then(Self::of);
        }
        let mut message = message.unwrap_or_default().to_owned();
        // A router puts what the provider behind it said here.
        if let Some(raw) = error.pointer("/metadata/raw").and_then(Value::as_str) {
            message = format!("{message}: {raw}");
        }
        let mut codes = String::new();
        let mut status = None;
        for key in ["type", "code", "status"] {
            match error.get(key) {
                Some(Value::String(code)) => {
                    codes.push_str(&code.to_lowercase());
                    codes.push(' ');
                    status = status.or_else(|| code.parse().ok());
                }
                Some(Value::Number(code)) => {
                    status = status.or_else(|| code.as_u64().and_then(|code| code.try_into().ok()));
                }
                _ => {}
            }
        }
        Some(Self {
            message,
            codes,
            status: status.filter(|status| (400..600).contains(status)),
        })
    }

    /// The status that an error inside a stream stands for.
    pub(crate) fn stream_status(&self) -> u16 {
        const BY_CODE: [(&str, u16); 12] = [
            ("overloaded", 529),
            ("rate_limit", 429),
            ("authentication", 401),
            ("invalid_api_key", 401),
            ("permission", 403),
            ("billing", 402),
            ("not_found", 404),
            ("too_large", 413),
            ("timeout", 504),
            ("invalid_request", 400),
            ("exceed", 400),
            ("context_length", 400),
        ];
        self.status.unwrap_or_else(|| {
            BY_CODE
                .iter()
                .find(|(code, _)| self.codes.contains(code))
                .map_or(500, |(_, status)| *status)
        })
    }

    /// Whether waiting cannot help, though the status says so.
    pub(crate) fn is_spent(&self) -> bool {
        self.codes.contains("insufficient_quota") || self.codes.contains("billing")
    }

    fn is_overflow(&self, status: u16) -> bool {
        const PATTERNS: [&str; 14] = [
            "context_length_exceeded",
            "exceed_context_size",
            "prompt is too long",
            "input is too long",
            "maximum context length",
            "maximum prompt length",
            "exceeds the context",
            "exceed context limit",
            "context window",
            "context size",
            "context length",
            "too many input tokens",
            "input token count",
            "reduce the length of the messages",
        ];
        match status {
            413 => true,
            400 | 422 | 500 => {
                let text = format!("{} {}", self.codes, self.message.to_lowercase());
                PATTERNS.iter().any(|pattern| text.contains(pattern))
            }
            _ => false,
        }
    }
}

/// The error for a status and what came with it.
pub(crate) fn status_error(
    provider: &str,
    status: u16,
    body: &ErrorBody,
    censor: &Censor<'_>,
) -> ModelError {
    let mut said = censor.clean(&body.message);
    if said.is_empty() {
        said = reason_phrase(status).to_owned();
    }
    if body.is_overflow(status) {
        return ModelError::ContextOverflow { message: said };
    }
    let provider = provider.to_owned();
    if matches!(status, 401 | 403) {
        return ModelError::Auth {
            provider,
            status,
            message: format!("{said}; check that the key is right, valid and may use this model"),
        };
    }
    let advice = match status {
        300..=399 => "it moved: set `base_url` to the address it has now",
        402 => "add credit there, or choose another provider",
        404 => "check the model's name and the provider's `base_url`",
        408 | 504 => "try again",
        429 if body.is_spent() => {
            "the account has no quota left: add credit, or choose another provider"
        }
        429 => "wait a little, or choose another model",
        500..=599 => {
            "the fault is on the provider's side: try again later, or choose another model"
        }
        _ => "the request does not suit this provider or model: try another model",
    };
    ModelError::Status {
        provider,
        status,
        message: format!("{said}; {advice}"),
    }
}

fn reason_phrase(status: u16) -> &'static str {
    match status {
        400 => "bad request",
        401 => "not authorised",
        403 => "forbidden",
        404 => "not found",
        413 => "the request is too large",
        429 => "too many requests",
        500 => "internal error",
        502 => "bad gateway",
        503 => "service unavailable",
        504 => "gateway timeout",
        529 => "overloaded",
        _ => "no reason given",
    }
}

/// Makes foreign text fit to be shown: bounded, in one line, with neither keys nor pieces
/// of the request in it.
pub(crate) struct Censor<'a> {
    secrets: Vec<&'a SecretString>,
    request: Option<&'a Request>,
}

impl<'a> Censor<'a> {
    pub(crate) fn new(
        secrets: impl IntoIterator<Item = &'a SecretString>,
        request: Option<&'a Request>,
    ) -> Self {
        Self {
            secrets: secrets.into_iter().collect(),
            request,
        }
    }

    pub(crate) fn clean(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.secrets {
            let secret = secret.expose_secret();
            if secret.len() >= 4 {
                text = text.replace(secret, "[key]");
            }
        }
        let text = KEY_LIKE.replace_all(&text, "[key]");
        // What comes after these words is the request, in the words of common servers.
        let text = ECHO_START
            .find(&text)
            .and_then(|found| text.get(..found.start()))
            .map_or_else(|| text.to_string(), |head| format!("{head}[…]"));
        let text = self.without_echo(&text);
        let mut shown = String::new();
        let mut count = 0;
        for word in text
            .split(|character: char| character.is_whitespace() || is_unshowable(character))
            .filter(|word| !word.is_empty())
        {
            if !shown.is_empty() {
                shown.push(' ');
                count += 1;
            }
            for character in word.chars() {
                if count >= EXCERPT {
                    shown.push('…');
                    return shown;
                }
                shown.push(character);
                count += 1;
            }
        }
        shown
    }

    /// Cuts the text where it begins to repeat what the request holds.
    fn without_echo(&self, text: &str) -> String {
        let Some(request) = self.request else {
            return text.to_owned();
        };
        // Looked at only as far as it could be shown, at steps of one window.
        let starts: Vec<usize> = text
            .char_indices()
            .map(|(at, _)| at)
            .chain([text.len()])
            .take(EXCERPT * 4)
            .step_by(ECHO_WINDOW)
            .collect();
        for pair in starts.windows(2) {
            let &[from, to] = pair else { continue };
            let window = text.get(from..to).unwrap_or_default();
            if window.trim().len() >= ECHO_WINDOW / 2 && holds(request, window) {
                // The repeat began up to one window earlier.
                let head = starts
                    .iter()
                    .rev()
                    .find(|at| **at < from)
                    .and_then(|at| text.get(..*at))
                    .unwrap_or_default();
                return format!("{head}[…]");
            }
        }
        text.to_owned()
    }
}

fn holds(request: &Request, window: &str) -> bool {
    request.system.contains(window)
        || request.conversation.messages().iter().any(|message| {
            message.parts.iter().any(|part| match part {
                Part::Text(text) | Part::Thinking { text, .. } => text.contains(window),
                Part::ToolResult(ToolResult {
                    content: Ok(text) | Err(text),
                    ..
                }) => text.contains(window),
                Part::ToolCall(call) => call.args.to_string().contains(window),
                Part::Image(image) => image.base64.contains(window),
            })
        })
}

/// Characters that would change how the rest is shown, or whether it is.
fn is_unshowable(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

static KEY_LIKE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?:sk-|gsk_|xai-|hf_|AIza|Bearer )[A-Za-z0-9_*.\-]{6,}"));

static ECHO_START: LazyLock<Regex> =
    LazyLock::new(|| pattern(r#"(?i)"?\binput(?:_value)?"?\s*[=:]\s*['"\[{]"#));

#[expect(
    clippy::expect_used,
    reason = "the patterns are constants that a test compiles"
)]
fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a constant pattern is valid")
}

#[cfg(test)]
mod tests;
