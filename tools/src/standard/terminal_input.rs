//! `terminal_input`: text and keys for a terminal.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::arguments;
use crate::call::{CallContext, Failure, FileChange, Output, Tool};
use crate::definition::{Approval, Concurrency, Definition, Kind, Replay};
use crate::standard::terminal;
use crate::world::World;
use crate::world::terminals::keys;

/// Types text into a terminal, exactly as it stands; nothing is added, so end a line with
/// a line end, which is the Enter key. Other keys are written by name: <Enter>, <Tab>,
/// <S-Tab>, <Esc>, <Space>, <Backspace>, <Delete>, <Insert>, <Up>, <Down>, <Left>, <Right>,
/// <Home>, <End>, <PageUp>, <PageDown>, <F1> to <F12>, and <C-a> to <C-z> for Ctrl with a
/// letter: <C-c> interrupts, <C-d> ends the input. Write <lt> for a `<` before such a name
/// that is meant as text. Backslashes are plain text. Look at the effect with terminal_read.
#[derive(Debug, Deserialize, JsonSchema)]
struct TerminalInputInput {
    /// The terminal's name.
    name: String,
    /// What to type, such as `print(1)` and a line end, or `:q!<Enter>`.
    text: String,
}

/// The tool.
pub struct TerminalInput {
    definition: Definition,
}

impl Default for TerminalInput {
    fn default() -> Self {
        Self::new()
    }
}

impl TerminalInput {
    pub fn new() -> Self {
        let (description, parameters) = arguments::describe::<TerminalInputInput>();
        Self {
            definition: Definition {
                name: "terminal_input",
                description,
                parameters,
                mutating: true,
                approval: Approval::Policy,
                concurrency: Concurrency::Serial,
                replay: Replay::Ask,
                kind: Kind::Execute,
            },
        }
    }
}

#[async_trait]
impl Tool for TerminalInput {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn title(&self, args: &Value) -> String {
        let name = terminal::title("Type into terminal", args);
        match args.get("text").and_then(Value::as_str) {
            Some(text) => terminal::cut(&format!("{name}: {}", keys::shown(text))),
            None => name,
        }
    }

    /// `name: text`, so that a rule can be about one terminal, `terminal_input(repl: *)`,
    /// or about one answer, `terminal_input(*: y)`. No allow rule of another tool reaches
    /// it, since what text does is up to the program that reads it.
    fn rule_subject(&self, _world: &World, args: &Value) -> Option<String> {
        let name = args.get("name")?.as_str()?.trim();
        let text = args.get("text")?.as_str()?;
        Some(format!("{name}: {text}"))
    }

    async fn preview(
        &self,
        _context: &CallContext,
        args: &Value,
    ) -> Result<Vec<FileChange>, Failure> {
        terminal::shown_whole("text", args)
    }

    async fn run(&self, context: &CallContext, args: Value) -> Result<Output, Failure> {
        let input: TerminalInputInput = arguments::parse(args)?;
        let name = input.name.trim();
        if input.text.is_empty() {
            return Err(Failure::new("`text` is empty, and text to type is wanted"));
        }
        if input.text.len() > keys::LONGEST {
            return Err(Failure::new(format!(
                "`text` is {} bytes long, and {} can be typed at a time; write it to a file with Write, and let the \
                 program read that",
                input.text.len(),
                keys::LONGEST
            )));
        }
        let typed = context
            .world
            .terminals()
            .input(name, &input.text, &context.cancel)
            .await
            .map_err(terminal::failure)?;
        let mut remarks = Vec::new();
        if !typed.keys.is_empty() {
            remarks.push(format!("read as keys: {}", typed.keys.join(" ")));
        }
        if typed.sent < typed.of {
            remarks.push(format!(
                "the program takes nothing more in for now: the last {} of {} bytes were not typed",
                typed.of - typed.sent,
                typed.of
            ));
        }
        if typed.overlong {
            remarks.push(format!(
                "the program reads whole lines, and the system keeps no more than {} bytes of one",
                keys::LINE
            ));
        }
        Ok(Output {
            text: format!("Typed {} bytes into terminal {name}", typed.sent),
            remarks,
            ..Output::default()
        })
    }
}
