//! The standard tools, one file each; [`crate::table::Table::standard`] lists them.

pub mod bash;
pub mod edit;
pub mod glob;
pub mod grep;
pub mod matching;
pub mod multi_edit;
pub mod read;
pub mod shown;
pub mod todo_write;
pub mod write;

use std::sync::Arc;

use crate::call::Tool;

/// The standard tools in the order a model reads them.
pub(crate) fn all() -> Vec<Arc<dyn Tool>> {
    Vec::new()
}
