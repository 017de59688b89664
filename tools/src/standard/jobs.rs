//! What the job tools share: starting a job, finding one by its id, and words for its state.

use serde_json::Value;

use crate::call::{CallContext, Failure, Output};
use crate::world::jobs::{Job, JobError, JobId, JobRequest, JobState};
use crate::world::process::tree::signal_name;

/// The longest command, as JSON text, that an approval shows whole.
const SHOWN_WHOLE: usize = 24 * 1024;
/// Characters of a title.
pub(crate) const TITLE: usize = 120;
/// Characters of an id that an answer repeats; ours are shorter.
const SHOWN_ID: usize = 64;

/// A command that is to become a job.
pub(crate) struct Start {
    pub(crate) command: String,
    pub(crate) description: Option<String>,
    pub(crate) keep: bool,
}

/// Starts a job for a call. A call that is repeated after a crash finds the job that it
/// started and starts none.
pub(crate) async fn start(context: &CallContext, start: Start) -> Result<Output, Failure> {
    if start.command.trim().is_empty() {
        return Err(no_command());
    }
    let jobs = context.world.jobs();
    let mut remarks = Vec::new();
    let job = match jobs.started_by(&context.call_id).await.map_err(failed)? {
        Some(job) => {
            remarks.push(
                "this job was started before an interruption; it was found, and none was started"
                    .to_owned(),
            );
            job
        }
        None => {
            free_slots(context).await;
            let world = &context.world;
            let (program, notes) = world
                .shell()
                .job(world.processes(), &start.command)
                .map_err(|error| Failure::new(error.to_string()))?;
            remarks.extend(notes);
            let request = JobRequest {
                call_id: context.call_id.clone(),
                command: start.command,
                description: start.description,
                keep: start.keep,
                program,
            };
            jobs.start(request).await.map_err(failed)?
        }
    };
    if let Err(fault) = context.journal.job_started(&context.call_id, &job).await {
        // A job that no log knows would be nobody's.
        let _stopped = jobs.stop(&job.id).await;
        jobs.forget(&job.id).await;
        return Err(Failure::new(format!(
            "the job was stopped again, since its start could not be written down: {fault}"
        )));
    }
    let lasts = if job.keep {
        "It outlives this session"
    } else {
        "It ends with this session"
    };
    let text = format!(
        "Started the job {}. {lasts}; job_collect gives its output and its exit status, job_stop ends it.",
        job.id
    );
    remarks.insert(0, format!("job {}", job.id));
    remarks.extend(
        context
            .world
            .processes()
            .sandbox()
            .caveat()
            .map(str::to_owned),
    );
    Ok(Output {
        text,
        remarks,
        ..Output::default()
    })
}

/// Lets go of what was collected to its end, so that its place is free (check 149).
async fn free_slots(context: &CallContext) {
    let jobs = context.world.jobs();
    let Ok(all) = jobs.list().await else {
        return;
    };
    for job in all {
        if !job.state.is_running() && context.journal.job_collected_out(&job.id) {
            jobs.forget(&job.id).await;
        }
    }
}

/// The id that a model wrote. One that is unknown, of another session or collected to its
/// end gets the same answer (check 150).
pub(crate) fn known(context: &CallContext, id: &str) -> Result<JobId, Failure> {
    let id = id.trim();
    if id.is_empty() {
        return Err(Failure::new(
            "`id` is empty, and the id of a job is wanted, as job_start gave it; job_list shows all",
        ));
    }
    JobId::parse(id)
        .filter(|id| !context.journal.job_collected_out(id))
        .ok_or_else(|| {
            let shown: String = id
                .chars()
                .take(SHOWN_ID)
                .flat_map(char::escape_debug)
                .collect();
            failed(JobError::NoSuchJob(shown))
        })
}

pub(crate) fn failed(error: JobError) -> Failure {
    Failure::new(error.to_string())
}

/// A state that a ledger carries, in words that follow the job's name.
pub(crate) fn state_words(job: &Job) -> String {
    let after = duration(job.ran_for);
    match &job.state {
        JobState::Running { leader: None } => format!("running for {after}"),
        JobState::Running {
            leader: Some(status),
        } => format!(
            "running for {after}: its first process exited with status {status}, and what that left behind goes on"
        ),
        JobState::Exited(status) => format!("exited with status {status} after {after}"),
        JobState::Signalled(signal) => {
            format!("ended by {} after {after}", signal_name(*signal))
        }
        JobState::Stopped => format!("stopped before reporting a status, after {after}"),
        JobState::Lost(why) => format!("lost: {why}"),
    }
}

/// A running time for people.
fn duration(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    match seconds {
        0..60 => format!("{seconds}.{} s", milliseconds % 1000 / 100),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// The first line of a command, for a card.
pub(crate) fn command_title(args: &Value) -> Option<String> {
    let command = args.get("command").and_then(Value::as_str)?;
    let mut lines = command.lines().filter(|line| !line.trim().is_empty());
    let first = lines.next()?;
    let mut title: String = first.trim().chars().take(TITLE).collect();
    if title.len() < first.trim().len() || lines.next().is_some() {
        title.push_str(" …");
    }
    Some(title)
}

/// What cannot be shown whole to whoever decides is not asked about at all.
pub(crate) fn shown_whole(args: &Value) -> Result<(), Failure> {
    let size = args
        .get("command")
        .map_or(0, |command| command.to_string().len());
    if size > SHOWN_WHOLE {
        return Err(Failure::new(format!(
            "the command is {size} bytes long and cannot be shown whole to the person who has to approve it, \
             which ends at {SHOWN_WHOLE}; write it to a script file with Write, and run that"
        )));
    }
    Ok(())
}

pub(crate) fn no_command() -> Failure {
    Failure::new("`command` is empty, and a shell command is wanted")
}

#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
pub(crate) mod tests;
