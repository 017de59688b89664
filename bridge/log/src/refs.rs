//! Which blobs an event refers to: what an export takes along and a sweep keeps.

use crate::blob::BlobId;
use crate::event::{FileChange, ImageRef, Part, Payload, PromptBlock};

impl Payload {
    /// Calls `visit` with each blob that this event refers to.
    pub fn for_each_blob(&self, visit: &mut impl FnMut(&BlobId)) {
        match self {
            Self::UserMessage { images, blocks, .. }
            | Self::ContextInjected { images, blocks, .. } => {
                visit_images(images, visit);
                for block in blocks {
                    if let PromptBlock::Image { image } = block {
                        visit(&image.blob);
                    }
                }
            }
            Self::AssistantMessage { parts, .. } => {
                for part in parts {
                    match part {
                        Part::Image { image } => visit(&image.blob),
                        Part::ToolResult { images, .. } => visit_images(images, visit),
                        Part::Text { .. } | Part::Thinking { .. } | Part::ToolCall { .. } => {}
                    }
                }
            }
            Self::ToolResult { images, .. } => visit_images(images, visit),
            Self::FileChanged { change, .. } => visit_change(change, visit),
            Self::ApprovalRequested { preview, .. } => preview
                .iter()
                .for_each(|change| visit_change(change, visit)),
            Self::SessionCreated { .. }
            | Self::SessionForked { .. }
            | Self::SessionTitled { .. }
            | Self::SessionCompacted { .. }
            | Self::TurnStart { .. }
            | Self::TurnEnd { .. }
            | Self::StepStart { .. }
            | Self::StepEnd { .. }
            | Self::AssistantChunk { .. }
            | Self::AssistantThought { .. }
            | Self::ToolCall { .. }
            | Self::ToolStarted { .. }
            | Self::ToolOutput { .. }
            | Self::FileSeen { .. }
            | Self::JobStarted { .. }
            | Self::JobProgress { .. }
            | Self::JobCollected { .. }
            | Self::JobEnded { .. }
            | Self::ApprovalResolved { .. }
            | Self::PolicyUpdated { .. }
            | Self::RuleAdded { .. }
            | Self::RuleRemoved { .. }
            | Self::RequestFrame { .. }
            | Self::OptionSet { .. }
            | Self::RootsSet { .. }
            | Self::CommandRun { .. }
            | Self::PlanCleared { .. }
            | Self::NoticeShown { .. }
            | Self::LogRepaired { .. } => {}
        }
    }
}

fn visit_images(images: &[ImageRef], visit: &mut impl FnMut(&BlobId)) {
    images.iter().for_each(|image| visit(&image.blob));
}

fn visit_change(change: &FileChange, visit: &mut impl FnMut(&BlobId)) {
    change.before.iter().chain(&change.after).for_each(visit);
}
