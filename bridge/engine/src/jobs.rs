//! What the engine says of a session's jobs: in its log, to the model, and in words.

use terret_log::{InjectedBy, JobOutcome, JobRecord, Payload, SessionState};
use terret_tools::world::jobs::{Job, JobState};
use terret_tools::world::process::tree::signal_name;

/// Characters of a command in a line that names it.
const COMMAND: usize = 100;

/// What becomes of a turn whose model waits for a job (`design.md §4 Jobs`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum JobsTurn {
    /// The turn ends; the next request is told of the job's end.
    #[default]
    End,
    /// The prompt stays open, without a request to the model, until a job that the
    /// model's last message names has ended.
    Hold,
}

/// How a job ended, in words that follow its name: `exited with status 0 after 3.2 s`.
/// `ran_for` is in milliseconds.
pub fn ended_words(outcome: &JobOutcome, ran_for: u64) -> String {
    let after = duration_words(ran_for);
    match outcome {
        JobOutcome::Exited { status } => format!("exited with status {status} after {after}"),
        JobOutcome::Signalled { signal } => {
            format!("was ended by {} after {after}", signal_name(*signal))
        }
        JobOutcome::Stopped => format!("was stopped after {after}"),
        JobOutcome::Lost { reason } => format!("was lost: {reason}"),
    }
}

/// A running time for people: `0.4 s`, `3 min 20 s`, `5 h 2 min`.
pub fn duration_words(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    match seconds {
        0..60 => format!("{seconds}.{} s", milliseconds % 1000 / 100),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// A command on one line, without what could hide in it, for people and models.
pub fn command_words(command: &str) -> String {
    let mut words = command.split_whitespace();
    let mut line = String::new();
    for word in words.by_ref() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.extend(
            word.chars()
                .map(|character| match character {
                    '`' => '\'',
                    control if control.is_control() => '?',
                    character => character,
                })
                .take(COMMAND + 1),
        );
        if line.chars().count() > COMMAND {
            break;
        }
    }
    match line.char_indices().nth(COMMAND) {
        Some((cut, _)) => format!("{} …", line.get(..cut).unwrap_or_default()),
        None => line,
    }
}

/// How a job stands that is over; none while it runs.
pub fn outcome_of(state: &JobState) -> Option<JobOutcome> {
    Some(match state {
        JobState::Running { .. } => return None,
        JobState::Exited(status) => JobOutcome::Exited { status: *status },
        JobState::Signalled(signal) => JobOutcome::Signalled { signal: *signal },
        JobState::Stopped => JobOutcome::Stopped,
        JobState::Lost(reason) => JobOutcome::Lost {
            reason: reason.clone(),
        },
    })
}

/// `job/started`.
pub(crate) fn started_event(call_id: &str, job: &Job) -> Payload {
    Payload::JobStarted {
        id: job.id.as_str().to_owned(),
        call_id: call_id.to_owned(),
        command: job.command.clone(),
        description: job.description.clone(),
        keep: job.keep,
    }
}

/// `job/progress`, for a job that the session knows and that runs as far as its log says.
pub(crate) fn progress_event(state: &SessionState, job: &Job) -> Option<Payload> {
    let record = running(state, job.id.as_str())?;
    Some(Payload::JobProgress {
        id: record.id.clone(),
        call_id: record.call_id.clone(),
        tail: job.tail.clone(),
        written: job.written,
        notes: notes(job),
    })
}

/// `job/ended`, once for each job that the session knows.
pub(crate) fn ended_event(state: &SessionState, job: &Job) -> Option<Payload> {
    let record = running(state, job.id.as_str())?;
    Some(Payload::JobEnded {
        id: record.id.clone(),
        call_id: record.call_id.clone(),
        outcome: outcome_of(&job.state)?,
        ran_for: job.ran_for,
        written: job.written,
        dropped: job.dropped,
        tail: job.tail.clone(),
        notes: notes(job),
    })
}

/// `job/ended` for a job of which nothing is left.
pub(crate) fn lost_event(state: &SessionState, id: &str, reason: &str) -> Option<Payload> {
    let record = running(state, id)?;
    Some(Payload::JobEnded {
        id: record.id.clone(),
        call_id: record.call_id.clone(),
        outcome: JobOutcome::Lost {
            reason: reason.to_owned(),
        },
        ran_for: 0,
        written: 0,
        dropped: 0,
        tail: String::new(),
        notes: Vec::new(),
    })
}

/// The one line that tells the model of all jobs that ended since the last one (R023).
/// None when there are none.
pub(crate) fn told_event(state: &SessionState) -> Option<Payload> {
    if state.jobs.all_told() {
        return None;
    }
    let ends: Vec<String> = state
        .jobs
        .untold()
        .filter_map(|job| {
            let end = job.end.as_ref()?;
            let words: String = ended_words(&end.outcome, end.ran_for)
                .chars()
                .map(|character| {
                    if character.is_control() {
                        ' '
                    } else {
                        character
                    }
                })
                .collect();
            Some(format!(
                "{} (`{}`) {words}",
                job.id,
                command_words(&job.command)
            ))
        })
        .collect();
    Some(Payload::ContextInjected {
        text: format!(
            "Background jobs that ended since the last request: {}. job_collect gives the output of each.",
            ends.join("; ")
        ),
        images: Vec::new(),
        blocks: Vec::new(),
        source: InjectedBy::Jobs,
    })
}

fn notes(job: &Job) -> Vec<String> {
    job.notes.iter().map(ToString::to_string).collect()
}

fn running<'a>(state: &'a SessionState, id: &str) -> Option<&'a JobRecord> {
    state.jobs.get(id).filter(|job| job.end.is_none())
}

#[cfg(test)]
pub(crate) mod tests;
