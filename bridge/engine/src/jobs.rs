//! What the engine says of a session's jobs: in its log, and in words.

use terret_log::{JobOutcome, Payload};
use terret_tools::world::jobs::Job;
use terret_tools::world::process::tree::signal_name;

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
