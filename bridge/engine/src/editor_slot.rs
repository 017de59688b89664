//! The editor's open buffers, for as long as an editor is attached.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;
use terret_tools::world::editor::{EditorError, EditorFiles};

/// Stands in a session's world and passes on to whichever editor is attached.
#[derive(Default)]
pub(crate) struct EditorSlot(RwLock<Option<Arc<dyn EditorFiles>>>);

impl EditorSlot {
    pub(crate) fn set(&self, editor: Option<Arc<dyn EditorFiles>>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = editor;
    }

    fn get(&self) -> Option<Arc<dyn EditorFiles>> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

#[async_trait]
impl EditorFiles for EditorSlot {
    async fn read_text(&self, path: &Path) -> Result<Option<String>, EditorError> {
        match self.get() {
            Some(editor) => editor.read_text(path).await,
            None => Ok(None),
        }
    }

    async fn write_text(&self, path: &Path, content: &str) -> Result<(), EditorError> {
        match self.get() {
            Some(editor) => editor.write_text(path, content).await,
            None => Err(EditorError::Unsupported),
        }
    }
}
