//! Write: a whole file.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::arguments;
use crate::call::{CallContext, Failure, FileChange, Location, Output, Tool};
use crate::definition::{Approval, Concurrency, Definition, Kind, Replay};
use crate::standard::change::{self, Change};
use crate::standard::{file_location, file_subject, file_title};
use crate::world::World;

/// Writes a whole file, making it and its folders when they do not exist. A file that
/// exists must have been read in this session and not changed since; its encoding and line
/// ends are kept. To change a part of a file use Edit.
#[derive(Debug, Deserialize, JsonSchema)]
struct WriteInput {
    /// The file's path, absolute or from the session's folder.
    file_path: String,
    /// The whole new content.
    content: String,
}

/// The tool.
pub struct Write {
    definition: Definition,
}

impl Default for Write {
    fn default() -> Self {
        Self::new()
    }
}

impl Write {
    pub fn new() -> Self {
        let (description, parameters) = arguments::describe::<WriteInput>();
        Self {
            definition: Definition {
                name: "Write",
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
impl Tool for Write {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn title(&self, args: &Value) -> String {
        file_title("Write", args)
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
        Ok(vec![plan(context, args.clone()).await?.as_file_change()])
    }

    async fn run(&self, context: &CallContext, args: Value) -> Result<Output, Failure> {
        let change = plan(context, args).await?;
        let done = format!(
            "Wrote {} bytes to {}",
            change.after.len(),
            change.path.display()
        );
        change.make(context, done).await
    }
}

async fn plan(context: &CallContext, args: Value) -> Result<Change, Failure> {
    let input: WriteInput = arguments::parse(args)?;
    let loaded = change::known(context, &input.file_path).await?;
    change::overwrite(context, &input.file_path, loaded, &input.content).await
}
