//! Providers of models: one stream vocabulary over Anthropic, OpenAI-compatible and
//! scripted models. This room alone speaks to a provider; it knows neither tools nor
//! the log.

mod anthropic;
mod calls;
mod emit;
mod failure;
mod http;
mod key;
mod message;
mod openai_chat;
mod provider;
mod registry;
mod retry;
mod retry_after;
mod scripted;
mod sse;
mod strict;
#[cfg(test)]
mod testing;
mod wire_id;

pub use http::{HttpOptions, Kind, ProviderSettings};
pub use key::{KeyFuture, KeySource};
pub use message::{
    Conversation, Digest, Image, Message, Part, Role, ToolCall, ToolResult, ToolSpec,
    extend_digest, frame_digest,
};
pub use provider::{
    BadModelName, BadToolCall, Capabilities, ModelError, ModelName, ModelStream, Provider, Request,
    StopReason, StreamEvent, ThinkingLevel, Usage,
};
pub use registry::Registry;
pub use retry::{Jitter, RetryPolicy};
pub use scripted::Scripted;
pub use sse::{EventTooLarge, MAX_EVENT_BYTES, SseEvent, SseParser};
