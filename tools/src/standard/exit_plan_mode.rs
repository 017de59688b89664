//! ExitPlanMode: shows the plan to the person and asks to begin with it. A yes leaves plan
//! mode for the mode that the answer names; the engine sets it with the verdict.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::arguments;
use crate::call::{CallContext, Failure, FileChange, Output, Tool};
use crate::definition::{Approval, Concurrency, Definition, Kind, Replay};
use crate::mode::Mode;

/// What is said where there is no plan mode to leave.
const NOT_PLANNING: &str =
    "the session is not in plan mode; go on with the work, which is asked about call by call";

/// Shows a finished plan to the user and asks to begin with it. Use it in plan mode alone, when the plan is complete and nothing is left to be asked. After a yes the session is in another mode and changes can be made; after a no keep planning.
#[derive(Debug, Deserialize, JsonSchema)]
struct ExitPlanModeInput {
    /// The whole plan, in Markdown, as the user is to read it.
    plan: String,
}

/// The tool.
pub struct ExitPlanMode {
    definition: Definition,
}

impl Default for ExitPlanMode {
    fn default() -> Self {
        Self::new()
    }
}

impl ExitPlanMode {
    pub fn new() -> Self {
        let (description, parameters) = arguments::describe::<ExitPlanModeInput>();
        Self {
            definition: Definition {
                name: "ExitPlanMode",
                description,
                parameters,
                mutating: false,
                approval: Approval::Always,
                concurrency: Concurrency::Serial,
                replay: Replay::Safe,
                kind: Kind::SwitchMode,
            },
        }
    }
}

#[async_trait]
impl Tool for ExitPlanMode {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn title(&self, _args: &Value) -> String {
        "Begin with the plan".to_owned()
    }

    /// A plan is agreed to by a person, never by a rule.
    fn insists(&self, _args: &Value) -> Option<String> {
        Some("the plan is complete, and beginning with it leaves plan mode".to_owned())
    }

    async fn preview(
        &self,
        context: &CallContext,
        args: &Value,
    ) -> Result<Vec<FileChange>, Failure> {
        let input: ExitPlanModeInput = arguments::parse(args.clone())?;
        if context.journal.mode() != Mode::Plan {
            return Err(Failure::new(NOT_PLANNING));
        }
        if input.plan.trim().is_empty() {
            return Err(Failure::new(
                "the plan is empty; write it whole into `plan`, as the user is to read it",
            ));
        }
        Ok(Vec::new())
    }

    async fn run(&self, context: &CallContext, _args: Value) -> Result<Output, Failure> {
        match context.journal.mode() {
            Mode::Plan => Err(Failure::new(
                "the plan was allowed, but by nobody who could leave plan mode; keep planning",
            )),
            mode => Ok(Output::text(format!(
                "The user agrees. The session is in mode `{}` now: carry the plan out.",
                mode.name()
            ))),
        }
    }
}
