//! Bash: one shell command with its output, status and what it left behind.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::arguments;
use crate::call::{CallContext, Failure, FileChange, LEDGER_SEPARATOR, Output, Tool};
use crate::definition::{Approval, Concurrency, Definition, Kind, Replay};
use crate::world::World;
use crate::world::process::capture::Captured;
use crate::world::process::tree::signal_name;
use crate::world::process::{End, Finished, GRACE};
use crate::world::sandbox::Confinement;
use crate::world::shell::{ShellCommand, ShellResult};

/// When the call names none, in milliseconds.
const DEFAULT_TIMEOUT: u64 = 120_000;
/// The longest that a call may name.
const MAX_TIMEOUT: u64 = 600_000;
/// Characters of a title.
const TITLE: usize = 120;
/// Leftovers that are named; the rest is counted.
const NAMED: usize = 10;

/// Runs a command in bash and gives its output, with standard error where it came, and its
/// exit status when that is not 0. The folder and exported variables are kept for the next
/// command; functions and aliases are not. There is no terminal and no input: a program
/// that asks a question or opens an editor fails at once, so give answers as options.
/// What a command leaves running in the background is ended with it; background jobs are
/// not available in this version. Long output is shown from both ends, and the whole of it
/// is kept in a file that Read can open. Prefer Read, Glob and Grep for reading and
/// searching files.
#[derive(Debug, Deserialize, JsonSchema)]
struct BashInput {
    /// The command; several lines are fine.
    command: String,
    /// Milliseconds until the command is stopped: 120000 when not given, 600000 at most.
    timeout: Option<i64>,
    /// What the command does, in five to ten words, for the person.
    #[expect(
        dead_code,
        reason = "for the person who reads the call; the command alone decides what runs"
    )]
    description: Option<String>,
    /// Not available in this version: a call with true is refused.
    run_in_background: Option<bool>,
}

/// The tool.
pub struct Bash {
    definition: Definition,
}

/// The longest command, as JSON text, that an approval shows whole.
const SHOWN_WHOLE: usize = 24 * 1024;

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
        let Some(command) = args.get("command").and_then(Value::as_str) else {
            return "Bash".to_owned();
        };
        let mut lines = command.lines().filter(|line| !line.trim().is_empty());
        let Some(first) = lines.next() else {
            return "Bash".to_owned();
        };
        let mut title: String = first.trim().chars().take(TITLE).collect();
        if title.len() < first.trim().len() || lines.next().is_some() {
            title.push_str(" …");
        }
        title
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
        let size = args
            .get("command")
            .map_or(0, |command| command.to_string().len());
        if size > SHOWN_WHOLE {
            return Err(Failure::new(format!(
                "the command is {size} bytes long and cannot be shown whole to the person who has to approve it, \
                 which ends at {SHOWN_WHOLE}; write it to a script file with Write, and run that"
            )));
        }
        Ok(Vec::new())
    }

    async fn run(&self, context: &CallContext, args: Value) -> Result<Output, Failure> {
        let input: BashInput = arguments::parse(args)?;
        if input.run_in_background == Some(true) {
            return Err(Failure::new(
                "background jobs are not available in this version; run the command without `run_in_background`, \
                 with a `timeout` that is long enough",
            ));
        }
        if input.command.trim().is_empty() {
            return Err(Failure::new(
                "`command` is empty, and a shell command is wanted",
            ));
        }
        let (timeout, mut remarks) = timeout(input.timeout);
        let journal = Arc::clone(&context.journal);
        let call_id = context.call_id.clone();
        let command = ShellCommand {
            command: input.command,
            timeout,
            roots: context.world.roots(),
            live: Some(Arc::new(move |text: &str| journal.output(&call_id, text))),
            confinement: Confinement::default(),
        };
        let world = &context.world;
        let result = world
            .shell()
            .run(world.processes(), command, &context.cancel)
            .await;
        let ShellResult {
            finished,
            remarks: notes,
        } = result.map_err(|error| Failure::new(error.to_string()))?;
        remarks.extend(ending(&finished, timeout));
        remarks.extend(left_out(&finished.output));
        remarks.extend(leftovers(&finished));
        remarks.extend(notes);
        let text = if finished.output.text.is_empty() {
            "(no output)".to_owned()
        } else {
            finished.output.text
        };
        let output = Output {
            text: harmless(text),
            remarks,
            ..Output::default()
        };
        if finished.end == End::Cancelled {
            Err(Failure(output.render()))
        } else {
            Ok(output)
        }
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
             those from before it",
            timeout.as_millis()
        )),
        End::Cancelled => Some(format!(
            "cancelled: the command was stopped, {rest}; it may have done part of its work"
        )),
    }
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
    remarks
}

/// A command that prints the separator must not write its own ledger.
fn harmless(text: String) -> String {
    if !text.contains(LEDGER_SEPARATOR) {
        return text;
    }
    let lines: Vec<String> = text
        .split('\n')
        .map(|line| {
            if line.trim() == LEDGER_SEPARATOR {
                format!("| {line}")
            } else {
                line.to_owned()
            }
        })
        .collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests;
