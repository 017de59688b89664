//! What is said to a model and what a model says: the provider-neutral vocabulary.

use std::sync::Arc;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// A 256-bit digest over rendered messages.
pub type Digest = [u8; 32];

/// Who a message is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    User,
    Assistant,
    /// One tool result.
    Tool,
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    pub role: Role,
    pub parts: Vec<Part>,
}

/// A piece of a message.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    Text(String),
    /// Replayed only to the provider that made it; others leave it out.
    Thinking {
        text: String,
        signature: Option<String>,
        provider: String,
    },
    Image(Image),
    ToolCall(ToolCall),
    ToolResult(ToolResult),
}

/// An image by value. `digest` is the lower-case SHA-256 of the decoded bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    pub mime_type: String,
    pub base64: Arc<str>,
    pub digest: String,
}

/// What stands in the place of an image that cannot be sent.
pub(crate) const NOT_SHOWN: &str = "[an image that cannot be shown to this model]";

impl Image {
    /// Types that providers take; others are refused together with the whole request.
    const TYPES: [&'static str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
    /// The most that the strictest of them takes, in bytes of base64.
    const LARGEST: usize = 5 * 1024 * 1024;

    /// Whether a provider takes it. One that it does not would make it refuse every later
    /// request of the session as well.
    pub(crate) fn can_be_sent(&self) -> bool {
        !self.base64.is_empty()
            && self.base64.len() <= Self::LARGEST
            && Self::TYPES.contains(&self.mime_type.as_str())
    }
}

/// A call that a model made. Arguments are always a JSON object that parsed strictly.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    pub args: Value,
}

/// The one result of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolResult {
    pub call_id: String,
    /// `Err` is an error that the model is to read.
    pub content: Result<String, String>,
    pub images: Vec<Image>,
}

/// A tool as the model is shown it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    pub name: String,
    pub description: String,
    pub parameters: Value,
}

/// The messages of a request with a rolling digest, so that comparing a request with
/// the log's own projection costs nothing per message (`Terret spec §1.6`).
///
/// The digest of an empty conversation is 32 zero bytes; a push makes it
/// `SHA-256(old digest ‖ SHA-256(rendered message))`. The rendering is a sequence of
/// fields, each as its length (u64, little endian) and its bytes:
/// role (`user`, `assistant`, `tool`); then per part its tag and fields:
/// `text` text · `thinking` text, signature or nothing, provider · `image` mime type,
/// digest · `call` id, name, arguments as compact JSON · `result` call id, `ok` or
/// `err`, text, then each image as an `image` part. The log's projection renders alike.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conversation {
    messages: Vec<Arc<Message>>,
    digest: Digest,
}

impl Conversation {
    /// Adds a message at the end.
    pub fn push(&mut self, message: Arc<Message>) {
        self.digest = extend_digest(self.digest, message.digest());
        self.messages.push(message);
    }

    /// All messages, oldest first.
    pub fn messages(&self) -> &[Arc<Message>] {
        &self.messages
    }

    /// The rolling digest of all messages.
    pub fn digest(&self) -> Digest {
        self.digest
    }
}

impl FromIterator<Arc<Message>> for Conversation {
    fn from_iter<I: IntoIterator<Item = Arc<Message>>>(messages: I) -> Self {
        let mut conversation = Self::default();
        for message in messages {
            conversation.push(message);
        }
        conversation
    }
}

impl Message {
    /// A user message of one text.
    pub fn user(text: impl Into<String>) -> Self {
        Self {
            role: Role::User,
            parts: vec![Part::Text(text.into())],
        }
    }

    /// The digest of this message alone.
    pub fn digest(&self) -> Digest {
        let mut hasher = FieldHasher::default();
        hasher.field(match self.role {
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        });
        for part in &self.parts {
            part.render(&mut hasher);
        }
        hasher.0.finalize().into()
    }

    /// All text parts, joined by nothing.
    pub fn text(&self) -> String {
        self.parts
            .iter()
            .filter_map(|part| match part {
                Part::Text(text) => Some(text.as_str()),
                _ => None,
            })
            .collect()
    }
}

impl Part {
    fn render(&self, hasher: &mut FieldHasher) {
        match self {
            Part::Text(text) => {
                hasher.field("text");
                hasher.field(text);
            }
            Part::Thinking {
                text,
                signature,
                provider,
            } => {
                hasher.field("thinking");
                hasher.field(text);
                hasher.field(signature.as_deref().unwrap_or_default());
                hasher.field(provider);
            }
            Part::Image(image) => image.render(hasher),
            Part::ToolCall(call) => {
                hasher.field("call");
                hasher.field(&call.id);
                hasher.field(&call.name);
                hasher.field(&call.args.to_string());
            }
            Part::ToolResult(result) => {
                hasher.field("result");
                hasher.field(&result.call_id);
                let (tag, text) = match &result.content {
                    Ok(text) => ("ok", text),
                    Err(text) => ("err", text),
                };
                hasher.field(tag);
                hasher.field(text);
                for image in &result.images {
                    image.render(hasher);
                }
            }
        }
    }
}

impl Image {
    fn render(&self, hasher: &mut FieldHasher) {
        hasher.field("image");
        hasher.field(&self.mime_type);
        hasher.field(&self.digest);
    }
}

/// The digest of the frame of a request: the system prompt, then each tool's name,
/// description and parameters as compact JSON, as fields like a message's.
pub fn frame_digest(system: &str, tools: &[ToolSpec]) -> Digest {
    let mut hasher = FieldHasher::default();
    hasher.field(system);
    for tool in tools {
        hasher.field(&tool.name);
        hasher.field(&tool.description);
        hasher.field(&tool.parameters.to_string());
    }
    hasher.0.finalize().into()
}

/// `SHA-256(digest ‖ message digest)`.
pub fn extend_digest(digest: Digest, message: Digest) -> Digest {
    Sha256::new()
        .chain_update(digest)
        .chain_update(message)
        .finalize()
        .into()
}

#[derive(Default)]
struct FieldHasher(Sha256);

impl FieldHasher {
    fn field(&mut self, text: &str) {
        self.0.update((text.len() as u64).to_le_bytes());
        self.0.update(text.as_bytes());
    }
}
