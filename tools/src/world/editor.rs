//! The open buffers of an editor. They win over the disk when they differ from it.

use std::path::Path;

use async_trait::async_trait;

/// Files as the editor has them. The face that speaks to the editor implements it.
#[async_trait]
pub trait EditorFiles: Send + Sync {
    /// The text of the file as the editor has it, unsaved changes included; none when the
    /// editor knows no such file.
    async fn read_text(&self, path: &Path) -> Result<Option<String>, EditorError>;

    /// Replaces the buffer's text; the editor saves it.
    async fn write_text(&self, path: &Path, content: &str) -> Result<(), EditorError>;
}

/// Why the editor did not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditorError {
    /// It never offers this.
    #[error("the editor does not offer it")]
    Unsupported,
    #[error("{0}")]
    Failed(String),
}
