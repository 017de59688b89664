//! `terminal_open`: a program on a terminal of its own.

use std::ffi::OsString;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::arguments;
use crate::call::{CallContext, Failure, FileChange, Output, Tool};
use crate::definition::{Approval, Concurrency, Definition, Kind, Replay};
use crate::standard::terminal;
use crate::world::World;
use crate::world::sandbox::Confinement;
use crate::world::terminals::OpenTerminal;

/// Starts a program on a terminal of its own, where it lives until it ends or the terminal
/// is closed: an interactive shell, a REPL, a debugger, an editor, a program that asks
/// questions. Type with terminal_input, look with terminal_read, end it with terminal_close.
/// The program starts in the session's folder; `cd` and variables of Bash calls are not
/// known to it. A session may have 8 terminals. Use Bash for commands that end by
/// themselves, and background jobs for servers.
#[derive(Debug, Deserialize, JsonSchema)]
struct TerminalOpenInput {
    /// A name of your choice for the terminal, such as `repl`.
    name: String,
    /// The program and its arguments, each apart: `["python3", "-i"]`. No shell reads
    /// them; name one for shell syntax: `["bash", "-c", "a | b"]`.
    argv: Vec<String>,
}

/// The tool.
pub struct TerminalOpen {
    definition: Definition,
}

impl Default for TerminalOpen {
    fn default() -> Self {
        Self::new()
    }
}

impl TerminalOpen {
    /// Asked for as Bash is: what runs is as free as a command.
    pub fn new() -> Self {
        let (description, parameters) = arguments::describe::<TerminalOpenInput>();
        Self {
            definition: Definition {
                name: "terminal_open",
                description,
                parameters,
                mutating: true,
                approval: Approval::BySandbox,
                concurrency: Concurrency::Serial,
                replay: Replay::Ask,
                kind: Kind::Execute,
            },
        }
    }
}

#[async_trait]
impl Tool for TerminalOpen {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn title(&self, args: &Value) -> String {
        let name = terminal::title("Open terminal", args);
        match command_line(args) {
            Some(command) => terminal::cut(&format!("{name}: {command}")),
            None => name,
        }
    }

    /// The command line as a shell would need it written.
    fn rule_subject(&self, _world: &World, args: &Value) -> Option<String> {
        command_line(args)
    }

    async fn preview(
        &self,
        _context: &CallContext,
        args: &Value,
    ) -> Result<Vec<FileChange>, Failure> {
        terminal::shown_whole("argv", args)
    }

    async fn run(&self, context: &CallContext, args: Value) -> Result<Output, Failure> {
        let input: TerminalOpenInput = arguments::parse(args)?;
        let name = input.name.trim().to_owned();
        let world = &context.world;
        let request = OpenTerminal {
            name: name.clone(),
            argv: input.argv.into_iter().map(OsString::from).collect(),
            cwd: world.cwd(),
            confinement: Confinement::default(),
        };
        let pid = world
            .terminals()
            .open(world.processes(), request)
            .await
            .map_err(terminal::failure)?;
        Ok(Output::text(format!("Opened terminal {name} (pid {pid})")))
    }
}

/// The words, quoted where a shell would read them as something else. None for what is no
/// list of words.
fn command_line(args: &Value) -> Option<String> {
    let words: Vec<&str> = match args.get("argv")? {
        Value::String(word) => vec![word],
        Value::Array(words) => words.iter().map(Value::as_str).collect::<Option<_>>()?,
        _ => return None,
    };
    let quoted: Vec<String> = words.into_iter().map(quoted).collect();
    (!quoted.is_empty()).then(|| quoted.join(" "))
}

fn quoted(word: &str) -> String {
    let plain =
        |character: char| character.is_ascii_alphanumeric() || "_-./:=@%+,^".contains(character);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_command_line_is_what_a_shell_would_need() {
        let line = |argv: Value| command_line(&json!({"argv": argv}));
        assert_eq!(
            line(json!(["git", "rebase", "-i"])),
            Some("git rebase -i".to_owned())
        );
        assert_eq!(
            line(json!(["a b", "it's", ""])),
            Some("'a b' 'it'\\''s' ''".to_owned())
        );
        assert_eq!(line(json!("cat")), Some("cat".to_owned()));
        assert_eq!(line(json!(["cat", 3])), None);
        assert_eq!(line(json!([])), None);
    }
}
