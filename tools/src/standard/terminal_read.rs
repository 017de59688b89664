//! `terminal_read`: what is new on a terminal.

use std::time::Duration;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::arguments;
use crate::call::{CallContext, Failure, Output, Tool, harmless};
use crate::definition::{Approval, Concurrency, Definition, Kind, Replay};
use crate::standard::terminal;
use crate::world::terminals::{Reading, WAIT};

/// The longest wait that a call may name, in milliseconds.
const MAX_TIMEOUT: u64 = 600_000;

/// Reads what is new on a terminal. A program that writes lines gives what it wrote since
/// the last read; a program that fills its screen, such as an editor or a pager, gives the
/// whole screen as it stands, with the place of the cursor. Waits while there is nothing
/// new, and gives what there is as soon as there is something. Says when the program has
/// ended.
#[derive(Debug, Deserialize, JsonSchema)]
struct TerminalReadInput {
    /// The terminal's name.
    name: String,
    /// Milliseconds to wait for something new: 100 when not given, 600000 at most.
    timeout: Option<i64>,
}

/// The tool.
pub struct TerminalRead {
    definition: Definition,
}

impl Default for TerminalRead {
    fn default() -> Self {
        Self::new()
    }
}

impl TerminalRead {
    pub fn new() -> Self {
        let (description, parameters) = arguments::describe::<TerminalReadInput>();
        Self {
            definition: Definition {
                name: "terminal_read",
                description,
                parameters,
                mutating: false,
                approval: Approval::Never,
                concurrency: Concurrency::Serial,
                replay: Replay::Safe,
                kind: Kind::Execute,
            },
        }
    }
}

#[async_trait]
impl Tool for TerminalRead {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn title(&self, args: &Value) -> String {
        terminal::title("Read terminal", args)
    }

    async fn run(&self, context: &CallContext, args: Value) -> Result<Output, Failure> {
        let input: TerminalReadInput = arguments::parse(args)?;
        let mut remarks = Vec::new();
        let wait = match input.timeout.and_then(|asked| u64::try_from(asked).ok()) {
            None => WAIT,
            Some(asked) => {
                if asked > MAX_TIMEOUT {
                    remarks.push(format!(
                        "the timeout was {MAX_TIMEOUT} ms, the longest there is, and not {asked} ms"
                    ));
                }
                Duration::from_millis(asked.min(MAX_TIMEOUT))
            }
        };
        let reading = context
            .world
            .terminals()
            .read(input.name.trim(), wait, &context.cancel)
            .await
            .map_err(terminal::failure)?;
        let mut output = shown(reading);
        output.remarks.extend(remarks);
        Ok(output)
    }
}

fn shown(reading: Reading) -> Output {
    let mut remarks = Vec::new();
    let mut text = match reading.view {
        None if reading.ended.is_some() => String::new(),
        None => "(nothing to read)".to_owned(),
        Some(view) => {
            if view.left_out.bytes > 0 {
                remarks.push(format!(
                    "{} bytes in {} lines before this were not read in time and are left out",
                    view.left_out.bytes, view.left_out.lines
                ));
            }
            match view.screen {
                Some(place) => {
                    remarks.push(format!(
                        "the whole screen of {} rows and {} columns; the cursor is in row {}, column {}",
                        reading.rows, reading.columns, place.row, place.column
                    ));
                    if view.text.is_empty() {
                        "(the screen is empty)".to_owned()
                    } else {
                        harmless(view.text)
                    }
                }
                None => harmless(view.text),
            }
        }
    };
    if reading.hidden_input {
        remarks.push(
            "the program reads a line that is not shown as it is typed, such as a password"
                .to_owned(),
        );
    }
    if let Some(ended) = reading.ended {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&format!("({ended})"));
    }
    Output {
        text,
        remarks,
        ..Output::default()
    }
}
