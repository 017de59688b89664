//! job_list: the session's jobs as they stand.

use std::fmt::Write as _;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::arguments;
use crate::call::{CallContext, Failure, Output, Tool};
use crate::definition::{Approval, Concurrency, Definition, Kind, Replay};
use crate::standard::jobs;

/// Lists this session's jobs: id, state, bytes not yet collected, and the command.
#[derive(Debug, Deserialize, JsonSchema)]
struct JobListInput {}

/// The tool.
pub struct JobList {
    definition: Definition,
}

impl Default for JobList {
    fn default() -> Self {
        Self::new()
    }
}

impl JobList {
    pub fn new() -> Self {
        let (description, parameters) = arguments::describe::<JobListInput>();
        Self {
            definition: Definition {
                name: "job_list",
                description,
                parameters,
                mutating: false,
                approval: Approval::Never,
                concurrency: Concurrency::Parallel,
                replay: Replay::Safe,
                kind: Kind::Execute,
            },
        }
    }
}

#[async_trait]
impl Tool for JobList {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn title(&self, _args: &Value) -> String {
        "List jobs".to_owned()
    }

    async fn run(&self, context: &CallContext, args: Value) -> Result<Output, Failure> {
        let JobListInput {} = arguments::parse(args)?;
        let all = context.world.jobs().list().await.map_err(jobs::failed)?;
        let mut text = String::new();
        for job in all
            .iter()
            .filter(|job| !context.journal.job_collected_out(&job.id))
        {
            let command = serde_json::json!({ "command": job.command });
            let shown = jobs::command_title(&command).unwrap_or_default();
            let new = job
                .written
                .saturating_sub(context.journal.job_cursor(&job.id));
            let kept = if job.keep {
                ", outlives the session"
            } else {
                ""
            };
            let about = job
                .description
                .as_deref()
                .map(|about| format!(" ({})", about.lines().next().unwrap_or_default()))
                .unwrap_or_default();
            let _infallible = writeln!(
                text,
                "{}: {}{kept}, {new} bytes to collect: {shown}{about}",
                job.id,
                jobs::state_words(job)
            );
        }
        if text.is_empty() {
            "There are no jobs in this session.".clone_into(&mut text);
        }
        Ok(Output::text(text))
    }
}
