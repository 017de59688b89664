//! The card of a call that started a job: in progress until the job is over, with its last
//! lines, also behind the call's result and between turns (R096).

use serde_json::json;
use terret_acp::schema::v1;
use terret_engine::ended_words;
use terret_engine::room::log::JobOutcome;

use super::card::update;
use super::diff::text_content;
use crate::text::{back, ends, fenced, line, plain};

/// Of a job's last lines.
const TAIL: usize = 4 * 1024;
/// Of the result of the call that started it.
const RESULT: usize = 8 * 1024;
/// Characters of a note.
const NOTE: usize = 300;
/// Characters of a command in a notice.
const COMMAND: usize = 80;

/// The job of a call, as it ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended<'a> {
    pub job: &'a str,
    pub command: &'a str,
    pub outcome: &'a JobOutcome,
    /// Milliseconds.
    pub ran_for: u64,
    pub written: u64,
    pub dropped: u64,
    pub tail: &'a str,
    pub notes: &'a [String],
}

/// The call has its result, and the job goes on.
pub(crate) fn goes_on(id: &str, result: &str) -> v1::SessionUpdate {
    let contents = match result {
        "" => Vec::new(),
        text => vec![text_content(&ends(text, RESULT))],
    };
    running(id, contents)
}

/// The last lines of a job that runs, in the place of what the card showed.
pub(crate) fn progress(
    id: &str,
    job: &str,
    tail: &str,
    written: u64,
    notes: &[String],
) -> v1::SessionUpdate {
    let mut contents = lines(tail);
    contents.push(text_content(&format!(
        "`{job}` runs; {written} bytes of output so far.{}",
        said(notes)
    )));
    running(id, contents)
}

/// The job is over, and with it the card.
pub(crate) fn end(id: &str, ended: &Ended<'_>) -> v1::SessionUpdate {
    let mut contents = lines(ended.tail);
    let missing = match ended.dropped {
        0 => String::new(),
        dropped => format!(", {dropped} of them not kept"),
    };
    contents.push(text_content(&format!(
        "`{}` {}; {} bytes of output{missing}.{}",
        ended.job,
        line(&ended_words(ended.outcome, ended.ran_for), 500),
        ended.written,
        said(ended.notes)
    )));
    let fields = v1::ToolCallUpdateFields::new()
        .status(status(ended.outcome))
        .content(contents)
        .raw_output(json!({
            "job": ended.job,
            "outcome": ended.outcome,
            "ran_for_ms": ended.ran_for,
            "written": ended.written,
            "dropped": ended.dropped,
        }));
    update(id, fields)
}

/// What a client with notices is told, for a person who looks elsewhere.
pub(crate) fn notice(ended: &Ended<'_>) -> v1::SessionUpdate {
    let severity = match status(ended.outcome) {
        v1::ToolCallStatus::Failed => v1::NoticeSeverity::Warning,
        _ => v1::NoticeSeverity::Info,
    };
    let title = format!(
        "Job `{}` {}",
        line(ended.command, COMMAND),
        line(&ended_words(ended.outcome, ended.ran_for), 200)
    );
    v1::SessionUpdate::Notice(v1::Notice::new(severity, title))
}

/// What was asked to stop has done what it was asked.
fn status(outcome: &JobOutcome) -> v1::ToolCallStatus {
    match outcome {
        JobOutcome::Exited { status: 0 } | JobOutcome::Stopped => v1::ToolCallStatus::Completed,
        JobOutcome::Exited { .. } | JobOutcome::Signalled { .. } | JobOutcome::Lost { .. } => {
            v1::ToolCallStatus::Failed
        }
    }
}

fn running(id: &str, contents: Vec<v1::ToolCallContent>) -> v1::SessionUpdate {
    let fields = v1::ToolCallUpdateFields::new()
        .status(v1::ToolCallStatus::InProgress)
        .content(contents);
    update(id, fields)
}

/// What should be known of a job besides, behind what is said of it.
fn said(notes: &[String]) -> String {
    notes
        .iter()
        .map(|note| format!(" Note: {}.", line(note, NOTE)))
        .collect()
}

fn lines(tail: &str) -> Vec<v1::ToolCallContent> {
    let tail = plain(back(tail, TAIL));
    if tail.trim().is_empty() {
        return Vec::new();
    }
    vec![text_content(&fenced(&tail, ""))]
}
