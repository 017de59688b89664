//! Bash: one shell command with its output, status and what it left behind.

mod reach;
mod unattended;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::arguments;
use crate::call::{CallContext, Failure, FileChange, Output, Tool, harmless};
use crate::definition::{Approval, Concurrency, Definition, Kind, Replay};
use crate::standard::jobs::{self, Start};
use crate::world::World;
use crate::world::process::capture::Captured;
use crate::world::process::live::LiveSink;
use crate::world::process::tree::signal_name;
use crate::world::process::{End, Finished, GRACE};
use crate::world::sandbox::Confinement;
use crate::world::shell::{ShellCommand, ShellResult};

/// When the call names none, in milliseconds.
const DEFAULT_TIMEOUT: u64 = 120_000;
/// The longest that a call may name.
const MAX_TIMEOUT: u64 = 600_000;
/// Leftovers that are named; the rest is counted.
const NAMED: usize = 10;

/// Runs a command in bash and gives its output, with standard error where it came, and its
/// exit status when that is not 0. The folder and exported variables are kept for the next
/// command; functions and aliases are not. There is no terminal and no input: a program
/// that asks a question or opens an editor fails at once, so give answers as options.
/// What a command leaves running with `&` is ended with it: for a server, a watcher or a
/// long build set `run_in_background`. In a sandbox the network may be closed and files
/// outside the workspace out of reach; when a failure looks like that, the person is asked
/// once whether to run it again with more reach. Long output is shown from both ends, and the whole of it
/// is kept in a file that Read can open. Prefer Read, Glob and Grep for reading and
/// searching files.
#[derive(Debug, Deserialize, JsonSchema)]
struct BashInput {
    /// The command; several lines are fine.
    command: String,
    /// Milliseconds until the command is stopped: 120000 when not given, 600000 at most.
    timeout: Option<i64>,
    /// What the command does, in five to ten words, for the person.
    description: Option<String>,
    /// True to start it as a job and go on at once: the answer is the job's id for
    /// job_collect and job_stop. A job has no timeout.
    run_in_background: Option<bool>,
}

/// The tool.
pub struct Bash {
    definition: Definition,
}

impl Default for Bash {
    fn default() -> Self {
        Self::new()
    }
}

impl Bash {
    /// Asked for as the session's sandbox makes necessary (check 145).
    pub fn new() -> Self {
        let (description, parameters) = arguments::describe::<BashInput>();
        Self {
            definition: Definition {
                name: "Bash",
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
impl Tool for Bash {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn title(&self, args: &Value) -> String {
        jobs::command_title(args).unwrap_or_else(|| "Bash".to_owned())
    }

    fn rule_subject(&self, _world: &World, args: &Value) -> Option<String> {
        Some(args.get("command")?.as_str()?.to_owned())
    }

    /// Nothing of a command changes a file that could be shown beforehand. What cannot be
    /// shown whole to whoever decides is not asked about at all.
    async fn preview(
        &self,
        _context: &CallContext,
        args: &Value,
    ) -> Result<Vec<FileChange>, Failure> {
        jobs::shown_whole(args)?;
        let is_job = self.repeats_safely(args);
        match args.get("command").and_then(Value::as_str) {
            Some(command) if !is_job => unattended::refused(command)?,
            _ => {}
        }
        Ok(Vec::new())
    }

    /// A job of an earlier run is found by the call's id; a command is never run twice.
    fn repeats_safely(&self, args: &Value) -> bool {
        args.get("run_in_background").and_then(Value::as_bool) == Some(true)
    }

    async fn run(&self, context: &CallContext, args: Value) -> Result<Output, Failure> {
        let input: BashInput = arguments::parse(args)?;
        if input.command.trim().is_empty() {
            return Err(jobs::no_command());
        }
        if input.run_in_background == Some(true) {
            let start = Start {
                command: input.command,
                description: input.description,
                keep: false,
            };
            let mut output = jobs::start(context, start).await?;
            if input.timeout.is_some_and(|asked| asked > 0) {
                let remark = "a job has no timeout; stop it with job_stop";
                output.remarks.push(remark.to_owned());
            }
            return Ok(output);
        }
        unattended::refused(&input.command)?;
        let (timeout, remarks) = timeout(input.timeout);
        let command = Command {
            text: input.command,
            timeout,
        };
        let mut told = reach::run(context, &command).await?;
        told.output.remarks.splice(0..0, remarks);
        if told.cancelled {
            Err(Failure(told.output.render()))
        } else {
            Ok(told.output)
        }
    }
}

/// What is run, once or, with more reach, once more.
struct Command {
    text: String,
    timeout: Duration,
}

/// A run as the model is told of it.
struct Told {
    output: Output,
    end: End,
    cancelled: bool,
}

impl Command {
    /// Runs it once.
    async fn run(&self, context: &CallContext, confinement: Confinement) -> Result<Told, Failure> {
        let journal = Arc::clone(&context.journal);
        let call_id = context.call_id.clone();
        let live: LiveSink = Arc::new(move |text: &str| journal.output(&call_id, text));
        let world = &context.world;
        let showing = world
            .display()
            .show(
                &context.call_id,
                (world.scratch(), &world.cwd()),
                &context.cancel,
            )
            .await;
        let command = ShellCommand {
            command: self.text.clone(),
            timeout: self.timeout,
            roots: world.roots(),
            live: Some(showing.live(&self.text, live)),
            confinement,
        };
        let result = world
            .shell()
            .run(world.processes(), command, showing.cancel())
            .await;
        let ShellResult {
            finished,
            remarks: notes,
        } = result.map_err(|error| Failure::new(error.to_string()))?;
        let stopped = !finished.leftovers.is_empty()
            || matches!(finished.end, End::TimedOut | End::Cancelled);
        let mut remarks = Vec::new();
        remarks.extend(ending(&finished, self.timeout));
        remarks.extend(left_out(&finished.output));
        remarks.extend(leftovers(&finished));
        if stopped && confinement != Confinement::Outside {
            // A signal does not reach everywhere.
            remarks.extend(world.processes().sandbox().caveat().map(str::to_owned));
        }
        remarks.extend(missing_program(&finished, world));
        remarks.extend(unattended::hint(
            &self.text,
            finished.end,
            &finished.output.text,
        ));
        remarks.extend(notes);
        remarks.extend(showing.finish(finished.end).await);
        let text = if finished.output.text.is_empty() {
            "(no output)".to_owned()
        } else {
            harmless(finished.output.text)
        };
        Ok(Told {
            output: Output {
                text,
                remarks,
                ..Output::default()
            },
            end: finished.end,
            cancelled: finished.end == End::Cancelled,
        })
    }
}

fn timeout(asked: Option<i64>) -> (Duration, Vec<String>) {
    match asked
        .and_then(|asked| u64::try_from(asked).ok())
        .filter(|asked| *asked > 0)
    {
        None => (Duration::from_millis(DEFAULT_TIMEOUT), Vec::new()),
        Some(asked) if asked > MAX_TIMEOUT => (
            Duration::from_millis(MAX_TIMEOUT),
            vec![format!(
                "the timeout was {MAX_TIMEOUT} ms, the longest there is, and not {asked} ms"
            )],
        ),
        Some(asked) => (Duration::from_millis(asked), Vec::new()),
    }
}

fn ending(finished: &Finished, timeout: Duration) -> Option<String> {
    let grace = GRACE.as_secs();
    let rest = if finished.gone {
        "with everything it had started".to_owned()
    } else {
        format!("and what does not end by itself is killed after {grace} s")
    };
    match finished.end {
        End::Exited(0) => None,
        End::Exited(status) => Some(format!("exit status {status}")),
        End::Signalled(signal) => Some(format!("ended by {}", signal_name(signal))),
        End::TimedOut => Some(format!(
            "notice: the command was still running after {} ms and was stopped, {rest}; the folder and variables are \
             those from before it. What runs for long, such as a server, is started with `run_in_background`",
            timeout.as_millis()
        )),
        End::Cancelled => Some(format!(
            "cancelled: the command was stopped, {rest}; it may have done part of its work"
        )),
    }
}

/// Who was started by a window and not by a shell has another PATH than a terminal (R136).
fn missing_program(finished: &Finished, world: &World) -> Option<String> {
    let text = &finished.output.text;
    let is_missing = matches!(finished.end, End::Exited(126 | 127))
        && (text.contains("not found") || text.contains("No such file"));
    let path = world.shell().path(world.processes())?;
    is_missing.then(|| {
        format!(
            "a program was not found; they are looked for in {}",
            path.to_string_lossy()
        )
    })
}

fn left_out(output: &Captured) -> Option<String> {
    if output.left_out == 0 {
        return None;
    }
    let counts = format!(
        "{} of {} bytes of output are shown, {} from the middle are left out",
        output.total - output.left_out,
        output.total,
        output.left_out
    );
    Some(match &output.file {
        Some(file) if file.dropped == 0 => {
            format!("{counts}; the whole output is in {}", file.path.display())
        }
        Some(file) => format!(
            "{counts}; the output is in {}, without its last {} bytes",
            file.path.display(),
            file.dropped
        ),
        None => format!(
            "{counts}, and could not be kept; run the command again with its output in a file"
        ),
    })
}

fn leftovers(finished: &Finished) -> Vec<String> {
    let mut remarks: Vec<String> = finished
        .leftovers
        .iter()
        .take(NAMED)
        .map(|one| {
            let state = if finished.gone {
                "was ended"
            } else {
                "does not end, although it was killed"
            };
            format!(
                "still running when the command ended, and {state}: {} (pid {})",
                one.command, one.pid
            )
        })
        .collect();
    let more = finished.leftovers.len().saturating_sub(NAMED);
    if more > 0 {
        remarks.push(format!(
            "{more} more processes were still running and were ended"
        ));
    }
    if !remarks.is_empty() {
        remarks.push(
            "what is to go on in the background is started with `run_in_background`".to_owned(),
        );
    }
    remarks
}

#[cfg(test)]
mod tests;
