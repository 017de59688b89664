//! From the log's history to a model request, and the proof that they are the same.
//!
//! The log's projection and the outbound conversation keep rolling digests of their
//! own, over the same rendering. They are compared before every request, after the
//! last hook, so a message, a system prompt or a tool schema that the log does not
//! hold never reaches a model (`Terret spec §1.6`, checks 26, 29).

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use terret_log::{Blobs, HistoryMessage, HistoryPart, HistoryRole, ImageRef, SessionState};
use terret_models::{
    Conversation, Image, Message, Part, Request, Role, ToolCall, ToolResult, ToolSpec,
};

/// The conversation as models are sent it, grown with the history and never rebuilt
/// but after a compaction.
#[derive(Default)]
pub(crate) struct Outbound {
    conversation: Conversation,
    generation: u64,
}

/// The request differs from what the log holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "log invariant violated: the request's {0} differ from what the log holds, so it was not sent"
)]
pub(crate) struct InvariantViolation(&'static str);

impl Outbound {
    /// Brings the conversation up to the history and gives a copy of it: pointers alone.
    pub(crate) fn conversation(&mut self, state: &SessionState, blobs: &Blobs) -> Conversation {
        let history = &state.history;
        if self.generation != history.generation()
            || self.conversation.messages().len() > history.messages().len()
        {
            self.conversation = Conversation::default();
            self.generation = history.generation();
        }
        let known = self.conversation.messages().len();
        for message in history.messages().iter().skip(known) {
            self.conversation
                .push(Arc::new(outbound_message(message, blobs)));
        }
        self.conversation.clone()
    }
}

/// Compares a request, as it is about to be sent, with the log's projection.
pub(crate) fn check_invariant(
    request: &Request,
    state: &SessionState,
) -> Result<(), InvariantViolation> {
    if request.conversation.digest() != state.history.digest() {
        return Err(InvariantViolation("messages"));
    }
    let frame = terret_models::frame_digest(&request.system, &request.tools);
    if state.frame.as_ref().map(|held| held.digest) != Some(frame) {
        return Err(InvariantViolation("system prompt or tools"));
    }
    Ok(())
}

fn outbound_message(message: &HistoryMessage, blobs: &Blobs) -> Message {
    Message {
        role: match message.role {
            HistoryRole::User => Role::User,
            HistoryRole::Assistant => Role::Assistant,
            HistoryRole::Tool => Role::Tool,
        },
        parts: message
            .parts
            .iter()
            .map(|part| outbound_part(part, blobs))
            .collect(),
    }
}

fn outbound_part(part: &HistoryPart, blobs: &Blobs) -> Part {
    match part {
        HistoryPart::Text { text } => Part::Text(text.clone()),
        HistoryPart::Thinking {
            text,
            signature,
            provider,
        } => Part::Thinking {
            text: text.clone(),
            signature: signature.clone(),
            provider: provider.clone(),
        },
        HistoryPart::ToolCall { id, name, args } => Part::ToolCall(ToolCall {
            id: id.clone(),
            name: name.clone(),
            args: args.clone(),
        }),
        HistoryPart::ToolResult {
            id,
            content,
            error,
            images,
        } => Part::ToolResult(ToolResult {
            call_id: id.clone(),
            content: match (content, error) {
                (_, Some(error)) => Err(error.clone()),
                (Some(content), None) => Ok(content.clone()),
                (None, None) => Ok(String::new()),
            },
            images: images
                .iter()
                .map(|image| outbound_image(image, blobs))
                .collect(),
        }),
        HistoryPart::Image { image } => Part::Image(outbound_image(image, blobs)),
    }
}

fn outbound_image(image: &ImageRef, blobs: &Blobs) -> Image {
    let bytes = blobs.get(&image.blob).unwrap_or_else(|error| {
        tracing::warn!(%error, "an image of the history is missing");
        Vec::new()
    });
    Image {
        mime_type: image.mime_type.clone(),
        base64: BASE64.encode(bytes).into(),
        digest: image.blob.as_str().to_owned(),
    }
}

/// The specs of a frame as the log keeps them.
pub(crate) fn logged_schemas(tools: &[ToolSpec]) -> Vec<terret_log::ToolSchema> {
    tools
        .iter()
        .map(|tool| terret_log::ToolSchema {
            name: tool.name.clone(),
            description: tool.description.clone(),
            parameters: tool.parameters.clone(),
        })
        .collect()
}
