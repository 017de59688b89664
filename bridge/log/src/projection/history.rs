//! What a model is sent: the conversation, repaired so that every request is valid.
//!
//! The rules are `Terret spec §1.5`, and beyond it (G26, R044, R057): a call whose
//! result never came gets an error result, a result without its call is left out, a
//! tool name that no provider accepts is replaced, and blank text parts are left out.

use std::sync::Arc;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::FieldHasher;
use crate::event::{Event, ImageRef, Part, Payload, TurnStatus};

/// A 256-bit digest over rendered messages.
pub type Digest = [u8; 32];

/// The error that a call without a result is given.
pub const INTERRUPTED: &str = "the call was interrupted and has no result; it may have run in part";

/// What a call is named whose own name no provider accepts (R057).
const BAD_NAME: &str = "invalid_tool_name";

/// Who a message is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HistoryRole {
    User,
    Assistant,
    /// One tool result.
    Tool,
}

/// One message of the conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct HistoryMessage {
    /// The event that it comes from.
    pub seq: u64,
    pub role: HistoryRole,
    pub parts: Vec<Part>,
    digest: Digest,
}

/// The messages of the next request, with a rolling digest.
///
/// The digest of no messages is 32 zero bytes; a message makes it
/// `SHA-256(old digest ‖ SHA-256(rendered message))`. The rendering is a sequence of
/// fields, each as its length (u64, little endian) and its bytes: role (`user`,
/// `assistant`, `tool`); then per part its tag and fields: `text` text · `thinking`
/// text, signature or nothing, provider · `image` mime type, blob id · `call` id, name,
/// arguments as compact JSON · `result` call id, `ok` or `err`, text, then each image
/// as an `image` part. The conversation of a request renders alike (`Terret spec §1.6`).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    messages: Vec<Arc<HistoryMessage>>,
    digest: Digest,
    generation: u64,
    /// The latest compaction: its own event, and up to where it goes.
    compacted: Option<(u64, u64)>,
    /// Calls of the last assistant message without a result.
    owed: Vec<String>,
    /// Input that came while results were owed; it stands behind them.
    waiting: Vec<Arc<HistoryMessage>>,
    /// Where the open turn began. What is settled there belongs to the turn before.
    turn_start: Option<u64>,
}

impl History {
    /// Takes the next event of the log.
    pub fn apply(&mut self, event: &Event) {
        match &event.payload {
            Payload::UserMessage { text, images, .. } => {
                self.settle(event.seq);
                self.push_input(event.seq, text, images);
            }
            Payload::ContextInjected { text, images, .. } => {
                self.push_input(event.seq, text, images)
            }
            Payload::AssistantMessage { parts, .. } => {
                self.settle(event.seq);
                self.push_assistant(event.seq, parts);
            }
            Payload::ToolResult {
                id,
                content,
                error,
                images,
            } => {
                let Some(place) = self.owed.iter().position(|owed| owed == id) else {
                    return;
                };
                self.owed.remove(place);
                let part = Part::ToolResult {
                    id: id.clone(),
                    content: content.clone(),
                    error: error.clone(),
                    images: images.clone(),
                };
                self.push(HistoryMessage::new(
                    event.seq,
                    HistoryRole::Tool,
                    vec![part],
                ));
                if self.owed.is_empty() {
                    self.settle(event.seq);
                }
            }
            Payload::TurnStart { .. } => {
                self.settle(event.seq);
                self.turn_start = Some(event.seq);
            }
            // Sent again, what the model refused would be refused again.
            Payload::TurnEnd {
                status: TurnStatus::Refused,
                ..
            } => self.drop_turn(event.seq),
            Payload::TurnEnd { .. } => {
                self.settle(event.seq);
                self.turn_start = None;
            }
            Payload::SessionCompacted { upto_seq, summary } => {
                self.compact(event.seq, *upto_seq, summary)
            }
            _ => {}
        }
    }

    /// All messages, oldest first.
    pub fn messages(&self) -> &[Arc<HistoryMessage>] {
        &self.messages
    }

    /// The rolling digest of all messages.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Grows when messages were replaced rather than added, so that who keeps a copy
    /// knows when to take it anew.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Gives each owed call an error result, then lets in what waited behind them.
    fn settle(&mut self, seq: u64) {
        for id in std::mem::take(&mut self.owed) {
            let error = Some(INTERRUPTED.to_owned());
            let part = Part::ToolResult {
                id,
                content: None,
                error,
                images: Vec::new(),
            };
            self.push(HistoryMessage::new(seq, HistoryRole::Tool, vec![part]));
        }
        for message in std::mem::take(&mut self.waiting) {
            self.push(message);
        }
    }

    fn push_input(&mut self, seq: u64, text: &str, images: &[ImageRef]) {
        let mut parts = Vec::with_capacity(1 + images.len());
        if !text.trim().is_empty() {
            parts.push(Part::Text {
                text: text.to_owned(),
            });
        }
        parts.extend(images.iter().cloned().map(|image| Part::Image { image }));
        if parts.is_empty() {
            return;
        }
        let message = HistoryMessage::new(seq, HistoryRole::User, parts);
        if self.owed.is_empty() {
            self.push(message);
        } else {
            self.waiting.push(message);
        }
    }

    fn push_assistant(&mut self, seq: u64, parts: &[Part]) {
        let parts: Vec<Part> = parts.iter().filter_map(repaired).collect();
        if parts.is_empty() {
            return;
        }
        self.owed = calls_of(&parts).cloned().collect();
        self.push(HistoryMessage::new(seq, HistoryRole::Assistant, parts));
    }

    fn push(&mut self, message: Arc<HistoryMessage>) {
        self.digest = Sha256::new()
            .chain_update(self.digest)
            .chain_update(message.digest)
            .finalize()
            .into();
        self.messages.push(message);
    }

    /// Takes back what the open turn added. A summary made meanwhile stays.
    fn drop_turn(&mut self, seq: u64) {
        let Some(start) = self.turn_start.take() else {
            return self.settle(seq);
        };
        self.owed.clear();
        self.waiting.clear();
        let summary = self.compacted.map(|(seq, _)| seq);
        let old = std::mem::take(&mut self.messages);
        let before = old.len();
        self.digest = Digest::default();
        for message in old {
            if message.seq <= start
                || (message.role == HistoryRole::User && Some(message.seq) == summary)
            {
                self.push(message);
            }
        }
        if self.messages.len() != before {
            self.generation += 1;
        }
    }

    /// The summary first, then what came after `upto`: messages of the latest
    /// compaction that are no summary themselves (checks 24 and 25). A compaction never
    /// reaches less far than one before it; the writer refuses that.
    fn compact(&mut self, seq: u64, upto: u64, summary: &str) {
        let upto = self.compacted.map_or(upto, |(_, before)| before.max(upto));
        let before = self.compacted.replace((seq, upto)).map(|(seq, _)| seq);
        let old = std::mem::take(&mut self.messages);
        self.digest = Digest::default();
        self.generation += 1;
        if !summary.trim().is_empty() {
            let parts = vec![Part::Text {
                text: summary.to_owned(),
            }];
            self.push(HistoryMessage::new(seq, HistoryRole::User, parts));
        }
        // A call that was summed up takes its result along.
        let mut answerable: Vec<String> = Vec::new();
        for message in old {
            let is_old_summary = message.role == HistoryRole::User && Some(message.seq) == before;
            if message.seq <= upto || is_old_summary {
                continue;
            }
            match message.role {
                HistoryRole::Assistant => answerable = calls_of(&message.parts).cloned().collect(),
                HistoryRole::Tool => {
                    let Some(Part::ToolResult { id: call_id, .. }) = message.parts.first() else {
                        continue;
                    };
                    let Some(place) = answerable.iter().position(|id| id == call_id) else {
                        continue;
                    };
                    answerable.remove(place);
                }
                HistoryRole::User => {}
            }
            self.push(message);
        }
        // What is still owed belongs to the last assistant message; if that is gone,
        // so is the debt.
        self.owed.retain(|id| answerable.contains(id));
        self.waiting.retain(|message| message.seq > upto);
        if self.owed.is_empty() {
            self.settle(seq);
        }
    }
}

impl HistoryMessage {
    fn new(seq: u64, role: HistoryRole, parts: Vec<Part>) -> Arc<Self> {
        let mut fields = FieldHasher::default();
        fields.add(match role {
            HistoryRole::User => "user",
            HistoryRole::Assistant => "assistant",
            HistoryRole::Tool => "tool",
        });
        for part in &parts {
            render(part, &mut fields);
        }
        Arc::new(Self {
            seq,
            role,
            parts,
            digest: fields.finish(),
        })
    }

    /// The digest of this message alone.
    pub fn digest(&self) -> Digest {
        self.digest
    }
}

/// A part of an answer as it can be sent again, or nothing.
fn repaired(part: &Part) -> Option<Part> {
    match part {
        Part::Text { text } if text.trim().is_empty() => None,
        // A result is a message of its own; inside an answer no provider takes it.
        Part::ToolResult { .. } => None,
        Part::ToolCall { id, name, args } if !is_tool_name(name) || !args.is_object() => {
            Some(Part::ToolCall {
                id: id.clone(),
                name: if is_tool_name(name) {
                    name.clone()
                } else {
                    BAD_NAME.to_owned()
                },
                args: if args.is_object() {
                    args.clone()
                } else {
                    Value::Object(serde_json::Map::new())
                },
            })
        }
        Part::Text { .. } | Part::Thinking { .. } | Part::ToolCall { .. } | Part::Image { .. } => {
            Some(part.clone())
        }
    }
}

fn render(part: &Part, fields: &mut FieldHasher) {
    match part {
        Part::Text { text } => {
            fields.add("text");
            fields.add(text);
        }
        Part::Thinking {
            text,
            signature,
            provider,
        } => {
            fields.add("thinking");
            fields.add(text);
            fields.add(signature.as_deref().unwrap_or_default());
            fields.add(provider);
        }
        Part::Image { image } => render_image(image, fields),
        Part::ToolCall { id, name, args } => {
            fields.add("call");
            fields.add(id);
            fields.add(name);
            fields.add(&args.to_string());
        }
        Part::ToolResult {
            id,
            content,
            error,
            images,
        } => {
            fields.add("result");
            fields.add(id);
            match error {
                Some(error) => {
                    fields.add("err");
                    fields.add(error);
                }
                None => {
                    fields.add("ok");
                    fields.add(content.as_deref().unwrap_or_default());
                }
            }
            for image in images {
                render_image(image, fields);
            }
        }
    }
}

/// True for a name that every provider accepts: `^[A-Za-z0-9_-]{1,64}$` (R057).
pub fn is_tool_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

fn calls_of(parts: &[Part]) -> impl Iterator<Item = &String> {
    parts.iter().filter_map(|part| match part {
        Part::ToolCall { id, .. } => Some(id),
        _ => None,
    })
}

fn render_image(image: &ImageRef, fields: &mut FieldHasher) {
    fields.add("image");
    fields.add(&image.mime_type);
    fields.add(image.blob.as_str());
}
