//! The seam to a model: one request in, one stream of events out.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;

use crate::message::{Conversation, ToolCall, ToolSpec};

/// `provider:model`, as config, `--model` and the editor name it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ModelName {
    pub provider: String,
    pub model: String,
}

/// A model name without a provider.
#[derive(Debug, thiserror::Error)]
#[error(
    "`{0}` names no model: write it as `provider:model`, for example `anthropic:claude-sonnet-4-5`"
)]
pub struct BadModelName(String);

impl FromStr for ModelName {
    type Err = BadModelName;

    fn from_str(text: &str) -> Result<Self, BadModelName> {
        match text.split_once(':') {
            Some((provider, model)) if !provider.is_empty() && !model.is_empty() => Ok(Self {
                provider: provider.to_owned(),
                model: model.to_owned(),
            }),
            _ => Err(BadModelName(text.to_owned())),
        }
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.provider, self.model)
    }
}

/// How much a model is asked to think before it answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ThinkingLevel {
    #[default]
    Off,
    Low,
    Medium,
    High,
}

impl ThinkingLevel {
    /// All levels, weakest first.
    pub const ALL: [Self; 4] = [Self::Off, Self::Low, Self::Medium, Self::High];

    /// The name in config and in the editor.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }

    /// The level of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name() == name)
    }
}

/// One request. What it holds is what the model sees, nothing is added later
/// but the provider's own framing.
#[derive(Debug, Clone)]
pub struct Request {
    /// The model's name at its provider, without the provider.
    pub model: String,
    pub system: Arc<str>,
    pub tools: Arc<[ToolSpec]>,
    pub conversation: Conversation,
    pub thinking: ThinkingLevel,
    /// Output limit in tokens; the provider's default when absent.
    pub max_output: Option<u32>,
}

/// What a provider can do with a model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Capabilities {
    pub images: bool,
    pub thinking: bool,
    /// Tokens; absent when unknown.
    pub context_window: Option<u64>,
}

/// One event of a stream. Order: any number of deltas and calls, usage at any place,
/// and `Stop` as the last event. A stream that ends without `Stop` yields
/// [`ModelError::Cut`] instead.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamEvent {
    Text(String),
    Thinking(String),
    /// Closes the thinking part that the deltas before built.
    ThinkingEnd {
        signature: Option<String>,
    },
    ToolCallStart {
        id: String,
        name: String,
    },
    /// A piece of the arguments' JSON, for display alone.
    ToolCallDelta {
        id: String,
        json: String,
    },
    /// A whole call. `Err` carries what was wrong with its arguments, for the model;
    /// such a call is never executed.
    ToolCallEnd(Result<ToolCall, BadToolCall>),
    /// The last one counts.
    Usage(Usage),
    /// A try failed before its first byte and another follows.
    Retry {
        attempt: u32,
        delay: Duration,
        reason: String,
    },
    Stop(StopReason),
}

/// A call whose arguments are not strict JSON of an object.
#[derive(Debug, Clone, PartialEq)]
pub struct BadToolCall {
    pub id: String,
    pub name: String,
    /// What was wrong, to be read by the model.
    pub problem: String,
}

/// Tokens of one request, as the provider reported them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Usage {
    /// All input tokens, cached ones included.
    pub input: u64,
    pub output: u64,
    pub cached_read: u64,
    pub cached_write: u64,
    pub thinking: u64,
    /// In US dollars, when the provider says.
    pub cost: Option<f64>,
}

/// Why a model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    End,
    ToolUse,
    Length,
    Refusal,
}

/// Why a request failed. Messages are for people and hold no secret.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ModelError {
    #[error("no provider is named `{provider}`: {way_out}")]
    UnknownProvider { provider: String, way_out: String },
    #[error("no key for `{provider}`: {way_out}")]
    NoKey { provider: String, way_out: String },
    /// Nothing says which model to ask.
    #[error("no model is set up: {way_out}")]
    NoModel { way_out: String },
    #[error("`{provider}` refused the key ({status}): {message}")]
    Auth {
        provider: String,
        status: u16,
        message: String,
    },
    #[error("`{provider}` answered {status}: {message}")]
    Status {
        provider: String,
        status: u16,
        message: String,
    },
    #[error("the conversation is larger than the model's context: {message}")]
    ContextOverflow { message: String },
    #[error("could not reach `{provider}`: {message}")]
    Connect { provider: String, message: String },
    #[error("the stream of `{provider}` broke off: {message}")]
    Cut { provider: String, message: String },
    #[error("`{provider}` sent what is not its protocol: {message}")]
    Protocol { provider: String, message: String },
    #[error("{0}")]
    Script(String),
}

/// The stream of one request. Dropping it ends the request at once.
pub type ModelStream = BoxStream<'static, Result<StreamEvent, ModelError>>;

/// One source of models.
pub trait Provider: Send + Sync {
    /// The name before the colon.
    fn name(&self) -> &str;

    /// What `model` can do, as far as it is known.
    fn capabilities(&self, model: &str) -> Capabilities;

    /// Whether a request could be made at all: a key is there, a script opens.
    /// Makes no network request.
    fn ready(&self) -> Result<(), ModelError>;

    /// Starts a request. Every failure comes as an item of the stream.
    fn stream(&self, request: Request) -> ModelStream;
}
