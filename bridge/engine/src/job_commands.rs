//! `/jobs` and `/jobs stop ID`: what a person sees of background jobs, and does about one.

use terret_tools::world::jobs::{Job, JobId, Jobs};

use crate::commands::Command;
use crate::jobs::{command_words, duration_words, ended_words, outcome_of};
use crate::turn::TurnParts;

/// What is asked of the jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JobCommand {
    List,
    Stop(String),
    Unknown(String),
}

/// The command, if it is about jobs.
pub(crate) fn of(command: &Command) -> Option<JobCommand> {
    if command.name != "jobs" {
        return None;
    }
    let mut words = command.argument.split_whitespace();
    Some(match (words.next(), words.next(), words.next()) {
        (None, ..) | (Some("list"), None, _) => JobCommand::List,
        (Some("stop"), Some(id), None) => JobCommand::Stop(id.to_owned()),
        _ => JobCommand::Unknown(command.argument.clone()),
    })
}

/// Does it, and says what came of it.
pub(crate) async fn run(
    parts: &TurnParts,
    jobs: &dyn Jobs,
    command: &JobCommand,
) -> Result<String, String> {
    match command {
        JobCommand::List => list(parts, jobs).await,
        JobCommand::Stop(name) => stop(parts, jobs, name).await,
        JobCommand::Unknown(other) => Err(format!(
            "`/jobs {other}` is not known; use `/jobs` or `/jobs stop ID`"
        )),
    }
}

/// Those that run, and those that ended and were not collected to their ends.
async fn list(parts: &TurnParts, jobs: &dyn Jobs) -> Result<String, String> {
    let there = jobs.list().await.map_err(|error| error.to_string())?;
    let mut text = String::new();
    for job in there.iter().filter(|job| !collected_out(parts, job)) {
        text.push_str(&format!("- {}\n", words(job)));
    }
    // What the log knows alone: jobs whose files are gone.
    let gone: Vec<String> = parts.core.state(|state| {
        state
            .jobs
            .iter()
            .filter(|record| !record.collected_out)
            .filter(|record| !there.iter().any(|job| job.id.as_str() == record.id))
            .filter_map(|record| {
                let end = record.end.as_ref()?;
                Some(format!(
                    "- `{}` {}: `{}`\n",
                    record.id,
                    ended_words(&end.outcome, end.ran_for),
                    command_words(&record.command)
                ))
            })
            .collect()
    });
    for line in gone.iter().rev().take(GONE).rev() {
        text.push_str(line);
    }
    if text.is_empty() {
        return Ok("There are no background jobs.".to_owned());
    }
    text.push_str("`/jobs stop ID` stops one.");
    Ok(text)
}

/// Jobs of the past that a list still shows.
const GONE: usize = 8;

async fn stop(parts: &TurnParts, jobs: &dyn Jobs, name: &str) -> Result<String, String> {
    let there = jobs.list().await.map_err(|error| error.to_string())?;
    let fits: Vec<&Job> = there
        .iter()
        .filter(|job| !collected_out(parts, job))
        .filter(|job| names(name, &job.id))
        .collect();
    let job = match fits.as_slice() {
        [one] => *one,
        [] => {
            return Err(format!(
                "there is no job `{}` in this session; `/jobs` lists what there is",
                command_words(name)
            ));
        }
        several => {
            return Err(format!(
                "`{name}` fits {} jobs; write more of it",
                several.len()
            ));
        }
    };
    if !job.state.is_running() {
        return Ok(format!("It is over already: {}.", words(job)));
    }
    let stopped = jobs
        .stop(&job.id)
        .await
        .map_err(|error| error.to_string())?;
    Ok(format!("Stopped: {}.", words(&stopped)))
}

/// A beginning is enough, with or without `job-`.
fn names(text: &str, id: &JobId) -> bool {
    let id = id.as_str();
    let short = id.strip_prefix("job-").unwrap_or(id);
    !text.is_empty() && (id.starts_with(text) || short.starts_with(text))
}

fn collected_out(parts: &TurnParts, job: &Job) -> bool {
    parts
        .core
        .state(|state| state.jobs.collected_out(job.id.as_str()))
}

fn words(job: &Job) -> String {
    let state = match outcome_of(&job.state) {
        Some(outcome) => ended_words(&outcome, job.ran_for),
        None => format!("runs for {}", duration_words(job.ran_for)),
    };
    format!(
        "`{}` {state}, {} bytes of output: `{}`",
        job.id,
        job.written,
        command_words(&job.command)
    )
}
