//! `terminal_close`: the end of a terminal and of what runs on it.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::arguments;
use crate::call::{CallContext, Failure, Output, Tool};
use crate::definition::{Approval, Concurrency, Definition, Kind, Replay};
use crate::standard::terminal;
use crate::world::World;
use crate::world::terminals::keys;

/// Closes a terminal: its program and all that it started are ended, and the name is free.
/// What was not read is lost. Closing a terminal that is not open is no mistake.
#[derive(Debug, Deserialize, JsonSchema)]
struct TerminalCloseInput {
    /// The terminal's name.
    name: String,
}

/// The tool.
pub struct TerminalClose {
    definition: Definition,
}

impl Default for TerminalClose {
    fn default() -> Self {
        Self::new()
    }
}

impl TerminalClose {
    pub fn new() -> Self {
        let (description, parameters) = arguments::describe::<TerminalCloseInput>();
        Self {
            definition: Definition {
                name: "terminal_close",
                description,
                parameters,
                mutating: true,
                approval: Approval::Policy,
                concurrency: Concurrency::Serial,
                replay: Replay::Verify,
                kind: Kind::Execute,
            },
        }
    }
}

#[async_trait]
impl Tool for TerminalClose {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn title(&self, args: &Value) -> String {
        terminal::title("Close terminal", args)
    }

    fn rule_subject(&self, _world: &World, args: &Value) -> Option<String> {
        Some(args.get("name")?.as_str()?.trim().to_owned())
    }

    async fn run(&self, context: &CallContext, args: Value) -> Result<Output, Failure> {
        let input: TerminalCloseInput = arguments::parse(args)?;
        let name = input.name.trim();
        let was_open = context.world.terminals().close(name, &context.cancel).await;
        Ok(Output::text(if was_open {
            format!("Closed terminal {name}")
        } else {
            format!("No terminal named {} was open", keys::shown(name))
        }))
    }
}
