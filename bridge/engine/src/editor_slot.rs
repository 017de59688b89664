//! The editor's open buffers, for as long as an editor is attached.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;
use terret_tools::world::editor::{EditorError, EditorFiles};
use terret_tools::world::editor_terminal::{EditorProgram, EditorTerminal, EditorTerminals};

/// Stands in a session's world and passes on to whichever editor is attached.
#[derive(Default)]
pub(crate) struct EditorSlot(
    RwLock<Option<Arc<dyn EditorFiles>>>,
    RwLock<Option<Arc<dyn EditorTerminals>>>,
);

impl EditorSlot {
    pub(crate) fn set(&self, editor: Option<Arc<dyn EditorFiles>>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = editor;
    }

    pub(crate) fn set_terminals(&self, terminals: Option<Arc<dyn EditorTerminals>>) {
        *self.1.write().unwrap_or_else(PoisonError::into_inner) = terminals;
    }

    fn terminals(&self) -> Option<Arc<dyn EditorTerminals>> {
        self.1
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
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

#[async_trait]
impl EditorTerminals for EditorSlot {
    fn are_wanted(&self) -> bool {
        self.terminals()
            .is_some_and(|terminals| terminals.are_wanted())
    }

    async fn open(&self, program: EditorProgram) -> Result<EditorTerminal, EditorError> {
        match self.terminals() {
            Some(terminals) => terminals.open(program).await,
            None => Err(EditorError::Unsupported),
        }
    }
}
