//! TodoWrite: the list of what is to be done. It holds no state: its echo in the log is
//! the list, whole with each call (`Terret spec §6`, check 158).

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::arguments;
use crate::call::{CallContext, Failure, Output, Tool};
use crate::definition::{Approval, Concurrency, Definition, Kind, Replay};

/// Sets the todo list of this session. Give the whole list each time; an empty one clears
/// it. Keep one entry in progress while you work on it, and complete it when it is done.
#[derive(Debug, Deserialize, JsonSchema)]
struct TodoWriteInput {
    /// The whole list, in order.
    todos: Vec<Todo>,
}

/// One entry of the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Todo {
    /// What is to be done, as an order: "Run the tests".
    pub content: String,
    /// How far it is.
    pub status: Status,
    /// The same while it is being done: "Running the tests".
    pub active_form: String,
}

/// How far an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Status {
    Pending,
    InProgress,
    Completed,
}

/// The tool.
pub struct TodoWrite {
    definition: Definition,
}

impl Default for TodoWrite {
    fn default() -> Self {
        Self::new()
    }
}

impl TodoWrite {
    pub fn new() -> Self {
        let (description, parameters) = arguments::describe::<TodoWriteInput>();
        Self {
            definition: Definition {
                name: "TodoWrite",
                description,
                parameters,
                mutating: false,
                approval: Approval::Never,
                concurrency: Concurrency::Serial,
                replay: Replay::Safe,
                kind: Kind::Think,
            },
        }
    }
}

#[async_trait]
impl Tool for TodoWrite {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn title(&self, args: &Value) -> String {
        match args.get("todos").and_then(Value::as_array) {
            Some(todos) if todos.len() == 1 => "Plan of 1 entry".to_owned(),
            Some(todos) => format!("Plan of {} entries", todos.len()),
            None => "Plan".to_owned(),
        }
    }

    async fn run(&self, _context: &CallContext, args: Value) -> Result<Output, Failure> {
        let input: TodoWriteInput = arguments::parse(args)?;
        Ok(Output::text(render(&input.todos)))
    }
}

/// The list as text: `- [ ]`, `- [~]`, `- [x]`, one line an entry.
pub fn render(todos: &[Todo]) -> String {
    if todos.is_empty() {
        return "(the todo list is empty)".to_owned();
    }
    todos.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn line(todo: &Todo) -> String {
    let (mark, label) = match todo.status {
        Status::Pending => (' ', &todo.content),
        Status::InProgress => ('~', &todo.active_form),
        Status::Completed => ('x', &todo.content),
    };
    // A label cannot make a line of its own.
    format!(
        "- [{mark}] {}",
        label.replace('\r', "\\r").replace('\n', "\\n")
    )
}

#[cfg(test)]
mod tests;
