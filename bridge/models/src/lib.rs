//! Providers of models: one stream vocabulary over Anthropic, OpenAI-compatible and
//! scripted models. This room alone speaks to a provider; it knows neither tools nor
//! the log.

mod message;
mod provider;

pub use message::{
    Conversation, Digest, Image, Message, Part, Role, ToolCall, ToolResult, ToolSpec,
    extend_digest, frame_digest,
};
pub use provider::{
    BadModelName, BadToolCall, Capabilities, ModelError, ModelName, ModelStream, Provider, Request,
    StopReason, StreamEvent, ThinkingLevel, Usage,
};
