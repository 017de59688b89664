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
use terret_tools::call::Fault;

use crate::core::Core;

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

/// More messages than this are rendered off the runtime.
const MANY: usize = 64;

/// Brings the conversation up to the history and gives a copy of it: pointers alone.
/// Images are read from the disk, so nothing is locked meanwhile.
pub(crate) async fn conversation(core: &Core) -> Result<Conversation, Fault> {
    let missing = core.outbound(Outbound::missing);
    let blobs = core.store().blobs().clone();
    let slow = missing_is_slow(&missing);
    let render = move || -> Vec<Arc<Message>> {
        missing
            .iter()
            .map(|message| Arc::new(outbound_message(message, &blobs)))
            .collect()
    };
    let rendered = if slow {
        tokio::task::spawn_blocking(render)
            .await
            .map_err(|error| Fault(format!("reading the history was interrupted: {error}")))?
    } else {
        render()
    };
    Ok(core.outbound(|outbound, _| {
        for message in rendered {
            outbound.conversation.push(message);
        }
        outbound.conversation.clone()
    }))
}

fn missing_is_slow(missing: &[Arc<HistoryMessage>]) -> bool {
    let has_image = |part: &HistoryPart| match part {
        HistoryPart::Image { .. } => true,
        HistoryPart::ToolResult { images, .. } => !images.is_empty(),
        _ => false,
    };
    missing.len() > MANY
        || missing
            .iter()
            .any(|message| message.parts.iter().any(has_image))
}

impl Outbound {
    /// The messages of the history that the conversation lacks.
    fn missing(&mut self, state: &SessionState) -> Vec<Arc<HistoryMessage>> {
        let history = &state.history;
        if self.generation != history.generation()
            || self.conversation.messages().len() > history.messages().len()
        {
            self.conversation = Conversation::default();
            self.generation = history.generation();
        }
        let known = self.conversation.messages().len();
        history.messages().iter().skip(known).cloned().collect()
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

#[cfg(test)]
mod tests;
