//! Glob: finds files by name.

use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::arguments;
use crate::call::{CallContext, Failure, Output, Tool};
use crate::definition::{Approval, Concurrency, Definition, Kind, Replay};
use crate::standard::grep::search;
use crate::world::World;
use crate::world::search::find::{FindRequest, find};
use crate::world::search::shown;

/// Finds files by a glob such as `**/*.rs` or `src/**/test_*.{js,ts}`, and gives absolute
/// paths, the newest first. `*` stays within one folder, `**` goes through all. Hidden files
/// are found, `.git` and ignored files (`.gitignore`, `.ignore`) are not, unless the pattern
/// names them, such as `dist/app.js`.
#[derive(Debug, Deserialize, JsonSchema)]
struct GlobInput {
    /// The glob; relative ones begin in `path`.
    pattern: String,
    /// The folder to look in; the session's folders when not given.
    path: Option<String>,
}

/// The tool.
pub struct Glob {
    definition: Definition,
}

impl Default for Glob {
    fn default() -> Self {
        Self::new()
    }
}

impl Glob {
    pub fn new() -> Self {
        let (description, parameters) = arguments::describe::<GlobInput>();
        Self {
            definition: Definition {
                name: "Glob",
                description,
                parameters,
                mutating: false,
                approval: Approval::Never,
                concurrency: Concurrency::Parallel,
                replay: Replay::Safe,
                kind: Kind::Search,
            },
        }
    }
}

#[async_trait]
impl Tool for Glob {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn title(&self, args: &Value) -> String {
        let word = |name| args.get(name).and_then(Value::as_str);
        match (word("pattern"), word("path")) {
            (Some(pattern), Some(path)) => format!("Glob {pattern} in {path}"),
            (Some(pattern), None) => format!("Glob {pattern}"),
            _ => "Glob".to_owned(),
        }
    }

    fn rule_subject(&self, world: &World, args: &Value) -> Option<String> {
        Some(world.relative(args.get("path").and_then(Value::as_str).unwrap_or(".")))
    }

    async fn run(&self, context: &CallContext, args: Value) -> Result<Output, Failure> {
        let input: GlobInput = arguments::parse(args)?;
        let request = FindRequest {
            pattern: input.pattern,
            path: input.path,
        };
        let world = Arc::clone(&context.world);
        let found = search(context, move |cancel| find(&world, &request, cancel)).await?;
        let text = if found.paths.is_empty() {
            "No files matched".to_owned()
        } else {
            found
                .paths
                .iter()
                .map(|path| shown(path))
                .collect::<Vec<_>>()
                .join("\n")
        };
        Ok(Output {
            text,
            remarks: found.remarks,
            ..Output::default()
        })
    }
}
