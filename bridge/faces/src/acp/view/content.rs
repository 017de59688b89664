//! What a card or a message shows that the log keeps by reference, or that a client does
//! not show by itself: diffs, images, and the plan as text.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use terret_acp::schema::v1;
use terret_engine::room::log::{FileChange, ImageRef};

use super::super::diff::{self, text_content};
use super::{Phase, View};
use crate::text::line;

/// Bytes of an image that is sent as one; it cannot be cut, and base64 adds a third.
const IMAGE: usize = 24 * 1024;

impl View {
    /// The changes as diffs; read off the runtime.
    pub(super) async fn diffs(
        &self,
        changes: Vec<FileChange>,
        budget: usize,
    ) -> Vec<v1::ToolCallContent> {
        if self.phase == Phase::Silent || changes.is_empty() {
            return Vec::new();
        }
        let blobs = self.session.blobs().clone();
        let share = budget / changes.len().max(1);
        let work = move || {
            let mut contents = Vec::new();
            for change in &changes {
                let side = |id: &Option<_>| id.as_ref().map(|id| blobs.get(id)).transpose();
                match (side(&change.before), side(&change.after)) {
                    (Ok(before), Ok(after)) => {
                        contents.extend(diff::render(
                            &change.path,
                            before.as_deref(),
                            after.as_deref(),
                            share,
                        ));
                    }
                    (Err(error), _) | (_, Err(error)) => {
                        contents.push(text_content(&format!(
                            "{} was changed; its content is not kept: {error}",
                            change.path
                        )));
                    }
                }
            }
            contents
        };
        tokio::task::spawn_blocking(work).await.unwrap_or_default()
    }

    /// An image that fits a frame, or its description.
    pub(super) async fn image(&self, image: &ImageRef) -> v1::ContentBlock {
        let (blobs, id) = (self.session.blobs().clone(), image.blob.clone());
        let bytes = tokio::task::spawn_blocking(move || blobs.get(&id)).await;
        match bytes {
            Ok(Ok(bytes)) if bytes.len() <= IMAGE => v1::ContentBlock::Image(
                v1::ImageContent::new(STANDARD.encode(bytes), image.mime_type.clone()),
            ),
            Ok(Ok(bytes)) => {
                let text = format!(
                    "[an image ({}, {} bytes)]",
                    line(&image.mime_type, 100),
                    bytes.len()
                );
                v1::ContentBlock::Text(v1::TextContent::new(text))
            }
            _ => {
                v1::ContentBlock::Text(v1::TextContent::new("[an image that is not kept any more]"))
            }
        }
    }
}

/// The list as text, for a client that drops plans.
pub(super) fn plan_text(args: &Value) -> String {
    let todos = args
        .get("todos")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    if todos.is_empty() {
        return "The task list is empty.".to_owned();
    }
    let mut text = String::new();
    for todo in todos {
        let field = |key: &str| todo.get(key).and_then(Value::as_str).unwrap_or_default();
        let mark = match field("status") {
            "completed" => "[x]",
            "in_progress" => "[~]",
            _ => "[ ]",
        };
        text.push_str(&format!("- {mark} {}\n", line(field("content"), 500)));
    }
    text
}
