//! Edit: one literal replacement in a file.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::arguments;
use crate::call::{CallContext, Failure, FileChange, Location, Output, Tool};
use crate::definition::{Approval, Concurrency, Definition, Kind, Replay};
use crate::standard::change::{self, Change};
use crate::standard::matching::Replacement;
use crate::standard::{file_location, file_subject, file_title};
use crate::world::World;

/// Replaces text in a file. The file must have been read in this session and not changed
/// since. `old_string` must be exactly what the file has, with its indentation and without
/// line numbers, and occur once, unless `replace_all` is set. Everything else in the file
/// stays as it is, byte for byte.
#[derive(Debug, Deserialize, JsonSchema)]
struct EditInput {
    /// The file's path, absolute or from the session's folder.
    file_path: String,
    /// The text to replace. Empty only to make a new file.
    old_string: String,
    /// The text to put in its place, taken literally.
    new_string: String,
    /// Replace every occurrence.
    #[serde(default)]
    replace_all: bool,
}

/// The tool.
pub struct Edit {
    definition: Definition,
}

impl Default for Edit {
    fn default() -> Self {
        Self::new()
    }
}

impl Edit {
    pub fn new() -> Self {
        let (description, parameters) = arguments::describe::<EditInput>();
        Self {
            definition: Definition {
                name: "Edit",
                description,
                parameters,
                mutating: true,
                approval: Approval::Policy,
                concurrency: Concurrency::Serial,
                replay: Replay::Verify,
                kind: Kind::Edit,
            },
        }
    }
}

#[async_trait]
impl Tool for Edit {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn title(&self, args: &Value) -> String {
        file_title("Edit", args)
    }

    fn locations(&self, world: &World, args: &Value) -> Vec<Location> {
        file_location(world, args)
    }

    fn rule_subject(&self, world: &World, args: &Value) -> Option<String> {
        file_subject(world, args)
    }

    async fn preview(
        &self,
        context: &CallContext,
        args: &Value,
    ) -> Result<Vec<FileChange>, Failure> {
        let (change, _) = plan(context, args.clone()).await?;
        Ok(vec![change.as_file_change()])
    }

    async fn run(&self, context: &CallContext, args: Value) -> Result<Output, Failure> {
        let (change, count) = plan(context, args).await?;
        let mut done = format!("Edited {}", change.path.display());
        if count > 1 {
            done.push_str(&format!(", {count} places"));
        }
        change.make(context, done).await
    }
}

async fn plan(context: &CallContext, args: Value) -> Result<(Change, usize), Failure> {
    let input: EditInput = arguments::parse(args)?;
    let replacement = Replacement {
        old: input.old_string,
        new: input.new_string,
        all: input.replace_all,
    };
    let (change, counts) =
        change::replacements(context, &input.file_path, vec![replacement], false).await?;
    Ok((change, counts.first().copied().unwrap_or_default()))
}

#[cfg(test)]
mod tests;
