//! job_stop: ends a job with all that came from it.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::arguments;
use crate::call::{CallContext, Failure, Output, Tool};
use crate::definition::{Approval, Concurrency, Definition, Kind, Replay};
use crate::standard::jobs;
use crate::world::jobs::JobState;

/// Ends a job and everything it started. What it wrote stays: collect it once more.
#[derive(Debug, Deserialize, JsonSchema)]
struct JobStopInput {
    /// The job's id, as job_start gave it.
    id: String,
}

/// The tool.
pub struct JobStop {
    definition: Definition,
}

impl Default for JobStop {
    fn default() -> Self {
        Self::new()
    }
}

impl JobStop {
    pub fn new() -> Self {
        let (description, parameters) = arguments::describe::<JobStopInput>();
        Self {
            definition: Definition {
                name: "job_stop",
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
impl Tool for JobStop {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn title(&self, args: &Value) -> String {
        match args.get("id").and_then(Value::as_str) {
            Some(id) => format!("Stop {id}"),
            None => "Stop a job".to_owned(),
        }
    }

    /// Stopping twice is fine.
    fn repeats_safely(&self, _args: &Value) -> bool {
        true
    }

    async fn run(&self, context: &CallContext, args: Value) -> Result<Output, Failure> {
        let input: JobStopInput = arguments::parse(args)?;
        let id = jobs::known(context, &input.id)?;
        let provider = context.world.jobs();
        let before = provider.list().await.map_err(jobs::failed)?;
        let ran = before
            .iter()
            .any(|job| job.id == id && job.state.is_running());
        let job = provider.stop(&id).await.map_err(jobs::failed)?;
        let text = match &job.state {
            JobState::Running { .. } => format!(
                "The job {id} was told to stop and killed, and something of it is still there."
            ),
            JobState::Stopped if ran => {
                format!("Stopped the job {id} with everything it had started.")
            }
            _ => format!("The job {id} had ended already."),
        };
        let remarks = [
            format!("job {id}: {}", jobs::state_words(&job)),
            format!("collect {id} once more with job_collect for what is left of its output"),
        ];
        let caveat = context.world.processes().sandbox().caveat();
        Ok(Output {
            text,
            remarks: remarks
                .into_iter()
                .chain(caveat.map(str::to_owned))
                .collect(),
            ..Output::default()
        })
    }
}
