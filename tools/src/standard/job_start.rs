//! job_start: a command that goes on while the conversation does.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::arguments;
use crate::call::{CallContext, Failure, FileChange, Output, Tool};
use crate::definition::{Approval, Concurrency, Definition, Kind, Replay};
use crate::standard::jobs::{self, Start};
use crate::world::World;

/// Starts a command in bash that goes on in the background: a server, a watcher, a long
/// build. Returns at once with the job's id. The job starts in the folder and with the
/// exported variables of the last Bash command, and has no terminal and no input. Its
/// output is kept: job_collect gives what is new and the exit status, job_stop ends it,
/// job_list shows all. You are told when it ends. It runs until it ends by itself, is
/// stopped, or the session is over.
#[derive(Debug, Deserialize, JsonSchema)]
struct JobStartInput {
    /// The command; several lines are fine. Leave out a trailing `&`.
    command: String,
    /// What the job does, in five to ten words, for the person.
    description: Option<String>,
    /// True for a job that goes on when the session is over. A person is always asked
    /// for this.
    keep: Option<bool>,
}

/// The tool.
pub struct JobStart {
    definition: Definition,
}

/// Why a person is asked about a job that outlives its session.
const KEEP: &str = "the job goes on when the session is over, until it ends by itself or is \
    stopped with `terret jobs stop`";

impl Default for JobStart {
    fn default() -> Self {
        Self::new()
    }
}

impl JobStart {
    /// Asked for as Bash is (check 145).
    pub fn new() -> Self {
        let (description, parameters) = arguments::describe::<JobStartInput>();
        Self {
            definition: Definition {
                name: "job_start",
                description,
                parameters,
                mutating: true,
                approval: Approval::BySandbox,
                concurrency: Concurrency::Serial,
                replay: Replay::Verify,
                kind: Kind::Execute,
            },
        }
    }
}

#[async_trait]
impl Tool for JobStart {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn title(&self, args: &Value) -> String {
        match jobs::command_title(args) {
            Some(command) => format!("Job: {command}"),
            None => "Job".to_owned(),
        }
    }

    fn rule_subject(&self, _world: &World, args: &Value) -> Option<String> {
        Some(args.get("command")?.as_str()?.to_owned())
    }

    fn insists(&self, args: &Value) -> Option<String> {
        (args.get("keep").and_then(Value::as_bool) == Some(true)).then(|| KEEP.to_owned())
    }

    /// The job of an earlier run is found by the call's id.
    fn repeats_safely(&self, _args: &Value) -> bool {
        true
    }

    async fn preview(
        &self,
        _context: &CallContext,
        args: &Value,
    ) -> Result<Vec<FileChange>, Failure> {
        jobs::shown_whole(args)?;
        Ok(Vec::new())
    }

    async fn run(&self, context: &CallContext, args: Value) -> Result<Output, Failure> {
        let input: JobStartInput = arguments::parse(args)?;
        let start = Start {
            command: input.command,
            description: input.description,
            keep: input.keep == Some(true),
        };
        jobs::start(context, start).await
    }
}
