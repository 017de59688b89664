//! job_collect: what a job wrote since the last collect, and how it stands.
//!
//! The place where the next collect goes on is the log's, and moves with this call's
//! result; so a crash between the two loses no output, and repeating the call is safe.

use std::time::Duration;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::arguments;
use crate::call::{CallContext, Failure, Output, Tool, harmless};
use crate::definition::{Approval, Concurrency, Definition, Kind, Replay};
use crate::standard::jobs;
use crate::world::jobs::{Job, JobId, JobNote};
use crate::world::process::SHOWN;
use crate::world::process::capture::{Capture, CaptureLimits, Captured};
use crate::world::process::clean::whole;

/// The longest wait that a call may name, in milliseconds.
const MAX_WAIT: u64 = 600_000;
/// Bytes of one read; what is shown is cut from them, so memory stays bounded.
const CHUNK: usize = 256 * 1024;

/// Gives what a job wrote since it was last collected, and whether it runs or how it
/// ended. Output comes once; long output is shown from both ends. With `wait_ms` it waits
/// while there is nothing new and the job runs. After the end was collected, the id is
/// forgotten.
#[derive(Debug, Deserialize, JsonSchema)]
struct JobCollectInput {
    /// The job's id, as job_start gave it.
    id: String,
    /// Milliseconds to wait for output or the job's end: none when not given, 600000 at
    /// most.
    wait_ms: Option<i64>,
}

/// The tool.
pub struct JobCollect {
    definition: Definition,
}

/// What one collect found.
struct Gathered {
    job: Job,
    output: Captured,
    /// Bytes that the spool had no room for.
    missing: u64,
    /// Where the next collect goes on.
    upto: u64,
    /// The job is over and this is the end of its output.
    ended: bool,
}

impl Default for JobCollect {
    fn default() -> Self {
        Self::new()
    }
}

impl JobCollect {
    pub fn new() -> Self {
        let (description, parameters) = arguments::describe::<JobCollectInput>();
        Self {
            definition: Definition {
                name: "job_collect",
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
impl Tool for JobCollect {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn title(&self, args: &Value) -> String {
        match args.get("id").and_then(Value::as_str) {
            Some(id) => format!("Collect {id}"),
            None => "Collect a job".to_owned(),
        }
    }

    async fn run(&self, context: &CallContext, args: Value) -> Result<Output, Failure> {
        let input: JobCollectInput = arguments::parse(args)?;
        let id = jobs::known(context, &input.id)?;
        let (wait, mut remarks) = wait(input.wait_ms);
        let gathered = gather(context, &id, wait).await?;
        if context.cancel.is_cancelled() {
            return Err(Failure::new(
                "cancelled while waiting for the job, which goes on; nothing was collected",
            ));
        }
        let journal = &context.journal;
        journal
            .job_collecting(&context.call_id, &id, gathered.upto, gathered.ended)
            .await
            .map_err(|fault| Failure::new(format!("nothing was collected: {fault}")))?;
        remarks.insert(0, format!("job {id}: {}", jobs::state_words(&gathered.job)));
        remarks.extend(gathered.job.notes.iter().map(ToString::to_string));
        remarks.extend(left_out(&gathered));
        if gathered.ended {
            remarks.push("that was all of it: the job and its id are forgotten".to_owned());
        }
        let text = if gathered.output.text.is_empty() {
            "(no new output)".to_owned()
        } else {
            harmless(gathered.output.text)
        };
        Ok(Output {
            text,
            remarks,
            ..Output::default()
        })
    }
}

fn wait(asked: Option<i64>) -> (Duration, Vec<String>) {
    let asked = asked
        .and_then(|asked| u64::try_from(asked).ok())
        .unwrap_or(0);
    if asked <= MAX_WAIT {
        return (Duration::from_millis(asked), Vec::new());
    }
    let remark = format!("it waits {MAX_WAIT} ms at most, and not {asked} ms");
    (Duration::from_millis(MAX_WAIT), vec![remark])
}

/// Reads what there is now. A job that writes without end is not followed for ever: what
/// comes during the reading is the next collect's.
async fn gather(context: &CallContext, id: &JobId, wait: Duration) -> Result<Gathered, Failure> {
    let provider = context.world.jobs();
    let cancel = &context.cancel;
    let from = context.journal.job_cursor(id);
    let mut capture = Capture::new(CaptureLimits {
        shown: SHOWN,
        file: 0,
        path: std::path::PathBuf::new(),
    });
    let mut missing = 0;
    // A character or an escape sequence whose end has not come yet.
    let mut held = Vec::new();
    let mut piece = provider
        .read(id, from, CHUNK, wait, cancel)
        .await
        .map_err(jobs::failed)?;
    let goal = piece.job.written;
    loop {
        if piece.missing > 0 {
            missing += piece.missing;
            capture.push(&held);
            held.clear();
            let gap = format!("\n[... {} bytes are gone here ...]\n", piece.missing);
            capture.push(gap.as_bytes());
        }
        held.extend_from_slice(&piece.bytes);
        let length = whole(&held);
        capture.push(held.get(..length).unwrap_or_default());
        held.drain(..length);
        if piece.bytes.is_empty() || piece.upto >= goal || cancel.is_cancelled() {
            break;
        }
        piece = provider
            .read(id, piece.upto, CHUNK, Duration::ZERO, cancel)
            .await
            .map_err(jobs::failed)?;
    }
    let ended = !piece.job.state.is_running() && piece.upto >= piece.job.written;
    let mut upto = piece.upto;
    if ended {
        capture.push(&held);
    } else {
        upto -= held.len() as u64;
    }
    Ok(Gathered {
        job: piece.job,
        output: capture.finish(),
        missing,
        upto,
        ended,
    })
}

fn left_out(gathered: &Gathered) -> Vec<String> {
    let output = &gathered.output;
    let mut remarks = Vec::new();
    if output.left_out > 0 {
        remarks.push(format!(
            "{} of {} bytes of new output are shown; {} from the middle are left out and cannot be had again, so \
             collect more often or let the job write to a file",
            output.total - output.left_out,
            output.total,
            output.left_out
        ));
    }
    if gathered.missing > 0 {
        // Files that somebody removed are gone just so; then a note says it, or nothing does.
        let is_full = gathered
            .job
            .notes
            .iter()
            .any(|note| matches!(note, JobNote::Full { .. }));
        remarks.push(format!(
            "{} bytes of the job's output were dropped before they were collected{}",
            gathered.missing,
            if is_full {
                ", since its spool was full"
            } else {
                ""
            }
        ));
    }
    remarks
}

#[cfg(test)]
mod tests;
