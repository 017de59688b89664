//! MultiEdit: several literal replacements in one file, all or none.

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

/// Makes several replacements in one file, in order, each on the result of the one before.
/// Either all are made or none. The rules of Edit hold for each.
#[derive(Debug, Deserialize, JsonSchema)]
struct MultiEditInput {
    /// The file's path, absolute or from the session's folder.
    file_path: String,
    /// The replacements, in order.
    edits: Vec<OneEdit>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct OneEdit {
    /// The text to replace.
    old_string: String,
    /// The text to put in its place, taken literally.
    new_string: String,
    /// Replace every occurrence.
    #[serde(default)]
    replace_all: bool,
}

/// The tool.
pub struct MultiEdit {
    definition: Definition,
}

impl Default for MultiEdit {
    fn default() -> Self {
        Self::new()
    }
}

impl MultiEdit {
    pub fn new() -> Self {
        let (description, parameters) = arguments::describe::<MultiEditInput>();
        Self {
            definition: Definition {
                name: "MultiEdit",
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
impl Tool for MultiEdit {
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
        let (change, counts) = plan(context, args).await?;
        let places: usize = counts.iter().sum();
        let done = format!(
            "Edited {}, {} edits, {places} places",
            change.path.display(),
            counts.len()
        );
        change.make(context, done).await
    }
}

async fn plan(context: &CallContext, args: Value) -> Result<(Change, Vec<usize>), Failure> {
    let input: MultiEditInput = arguments::parse(args)?;
    if input.edits.is_empty() {
        return Err(Failure::new(
            "`edits` is empty, so there is nothing to change",
        ));
    }
    let edits = input
        .edits
        .into_iter()
        .map(|edit| Replacement {
            old: edit.old_string,
            new: edit.new_string,
            all: edit.replace_all,
        })
        .collect();
    change::replacements(context, &input.file_path, edits, true).await
}
