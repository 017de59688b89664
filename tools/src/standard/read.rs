//! Read: a file's lines with their numbers, or an image.

use std::path::Path;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::arguments;
use crate::call::{CallContext, Failure, ImageBytes, Location, Output, Tool};
use crate::definition::{Approval, Concurrency, Definition, Kind, Replay};
use crate::pipeline::MAX_TEXT;
use crate::standard::{file_location, file_subject, file_title};
use crate::world::World;
use crate::world::files::Content;
use crate::world::window::{End, WindowRequest};

/// Lines given when none are asked for.
const LINES: u64 = 2_000;
/// Characters kept of a line.
const LINE_CHARACTERS: usize = 2_000;

/// Reads a file. Text comes with line numbers: a right-aligned number, a tab, the line.
/// Long files come in windows of lines. Images (png, jpeg, gif, webp) come as images; other
/// binary files are named and not shown. Folders are listed with Glob.
#[derive(Debug, Deserialize, JsonSchema)]
struct ReadInput {
    /// The file's path, absolute or from the session's folder.
    file_path: String,
    /// The first line to read, counting from 1.
    #[schemars(range(min = 1))]
    offset: Option<u64>,
    /// How many lines to read; 2000 when not given.
    #[schemars(range(min = 1))]
    limit: Option<u64>,
}

/// The tool.
pub struct Read {
    definition: Definition,
}

impl Default for Read {
    fn default() -> Self {
        Self::new()
    }
}

impl Read {
    pub fn new() -> Self {
        let (description, parameters) = arguments::describe::<ReadInput>();
        Self {
            definition: Definition {
                name: "Read",
                description,
                parameters,
                mutating: false,
                approval: Approval::Never,
                concurrency: Concurrency::Parallel,
                replay: Replay::Safe,
                kind: Kind::Read,
            },
        }
    }
}

#[async_trait]
impl Tool for Read {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn title(&self, args: &Value) -> String {
        file_title("Read", args)
    }

    fn locations(&self, world: &World, args: &Value) -> Vec<Location> {
        let line = args
            .get("offset")
            .and_then(Value::as_u64)
            .and_then(|line| u32::try_from(line).ok());
        file_location(world, args)
            .into_iter()
            .map(|location| Location { line, ..location })
            .collect()
    }

    fn rule_subject(&self, world: &World, args: &Value) -> Option<String> {
        file_subject(world, args)
    }

    async fn run(&self, context: &CallContext, args: Value) -> Result<Output, Failure> {
        let input: ReadInput = arguments::parse(args)?;
        let request = WindowRequest {
            first: input.offset.unwrap_or(1).max(1),
            lines: input.limit.unwrap_or(LINES).max(1),
            line_characters: LINE_CHARACTERS,
            bytes: MAX_TEXT,
        };
        let path = Path::new(&input.file_path);
        let content = context
            .world
            .files()
            .window(path, request, &context.cancel)
            .await?;
        let real = context.world.resolve(path)?;
        let seen = |hash: Option<&str>| {
            if let Some(hash) = hash {
                context.journal.file_seen(&context.call_id, &real, hash);
            }
        };
        match content {
            Content::Text {
                window,
                mut remarks,
            } => {
                if let End::Known { lines } = window.end
                    && lines > 0
                    && request.first > lines
                {
                    return Err(Failure::new(format!(
                        "`offset` is {}, and {} has {lines} lines",
                        request.first,
                        context.world.relative(&real)
                    )));
                }
                seen(window.hash.as_deref());
                remarks.extend(window.remarks(&request));
                Ok(Output {
                    text: window.text,
                    remarks,
                    ..Output::default()
                })
            }
            Content::Image {
                mime_type,
                bytes,
                hash,
            } => {
                seen(Some(&hash));
                let text = format!(
                    "{} is an image ({mime_type}) of {} bytes",
                    real.display(),
                    bytes.len()
                );
                let image = ImageBytes {
                    mime_type: mime_type.to_owned(),
                    bytes,
                };
                Ok(Output {
                    text,
                    images: vec![image],
                    ..Output::default()
                })
            }
            Content::Binary { description, hash } => {
                seen(hash.as_deref());
                Ok(Output::text(format!(
                    "{} is {description}; it is not shown",
                    real.display()
                )))
            }
        }
    }
}

#[cfg(test)]
mod tests;
