//! What a hook's program says, by its exit status, its output and its errors.
//!
//! The form is the one that people's hooks have already: status 2 refuses with the errors as
//! the reason; status 0 with a JSON object says more; any other status is a failure. Where
//! it cannot be told what the hook wanted to say, it has failed, and what then becomes of
//! the call is the hook's `on_failure`.

use serde_json::{Map, Value};
use terret_tools::world::process::End;
use terret_tools::world::process::exchange::{Answered, Kept};

use super::HookEvent;

/// Characters of a reason or a message.
const LONGEST: usize = 4096;
/// Characters of the errors of a hook that failed.
const LAST_WORDS: usize = 300;

/// What a hook said.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Said {
    pub verdict: Option<Verdict>,
    /// Why, for whoever reads the verdict.
    pub reason: Option<String>,
    /// New arguments for the call.
    pub input: Option<Value>,
    /// For the model, beside the result.
    pub context: Option<String>,
    /// For the person.
    pub message: Option<String>,
    /// The turn is to end; with what the person is told.
    pub stop: Option<String>,
}

/// What is to become of the call, from the weakest to the strongest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    Allow,
    Ask,
    /// Refused before it; after it the model is told what is wrong.
    Block,
}

/// Understands an answer.
///
/// # Errors
/// Why the hook counts as failed, in words that go behind "the hook".
pub(super) fn understand(event: HookEvent, answered: &Answered) -> Result<Said, String> {
    match answered.end {
        End::Exited(0) => said(event, &answered.output),
        End::Exited(2) => Ok(Said {
            verdict: Some(Verdict::Block),
            reason: Some(text(&answered.errors, LONGEST)).filter(|reason| !reason.is_empty()),
            ..Said::default()
        }),
        End::Exited(status) => Err(with_words(
            format!("ended with status {status}"),
            &answered.errors,
        )),
        End::Signalled(signal) => Err(with_words(
            format!("was killed by signal {signal}"),
            &answered.errors,
        )),
        End::TimedOut => Err("did not end in time and was stopped".to_owned()),
        End::Cancelled => Err("was stopped".to_owned()),
    }
}

fn with_words(how: String, errors: &Kept) -> String {
    match text(errors, LAST_WORDS) {
        words if words.is_empty() => how,
        words => format!("{how} ({words})"),
    }
}

fn said(event: HookEvent, output: &Kept) -> Result<Said, String> {
    if output.dropped > 0 {
        return Err(format!(
            "printed more than {} bytes, which is no answer",
            output.bytes.len()
        ));
    }
    let Ok(printed) = std::str::from_utf8(&output.bytes) else {
        return Err("printed what is no text".to_owned());
    };
    let printed = printed.trim();
    if !printed.contains('{') {
        // Words that it prints for whoever runs it by hand.
        return Ok(Said::default());
    }
    // A brace somewhere may be an answer that something else was printed before: it must
    // not pass for none.
    match serde_json::from_str::<Value>(printed) {
        Ok(Value::Object(object)) => object_said(event, &object),
        Ok(_) => Err("printed JSON that is no object".to_owned()),
        Err(error) => Err(format!(
            "printed what is no JSON ({error}); it may print nothing, or one JSON object and \
             nothing beside it"
        )),
    }
}

fn object_said(event: HookEvent, object: &Map<String, Value>) -> Result<Said, String> {
    let mut said = Said {
        message: words(object, "systemMessage")?,
        ..Said::default()
    };
    match object.get("continue") {
        None | Some(Value::Null | Value::Bool(true)) => {}
        Some(Value::Bool(false)) => {
            let reason = words(object, "stopReason")?;
            said.stop = Some(reason.unwrap_or_else(|| "no reason given".to_owned()));
        }
        Some(_) => return Err(wrong("continue", "true or false")),
    }
    said.verdict = match object.get("decision") {
        None | Some(Value::Null) => None,
        Some(Value::String(word)) => match (word.as_str(), event) {
            ("block" | "deny", _) => Some(Verdict::Block),
            ("approve" | "allow", HookEvent::PreToolUse) => Some(Verdict::Allow),
            ("ask", HookEvent::PreToolUse) => Some(Verdict::Ask),
            ("approve" | "allow", HookEvent::PostToolUse) => None,
            _ => return Err(wrong("decision", "`block` or `approve`")),
        },
        Some(_) => return Err(wrong("decision", "a word")),
    };
    said.reason = words(object, "reason")?;
    let specific = match object.get("hookSpecificOutput") {
        None | Some(Value::Null) => return Ok(said),
        Some(Value::Object(specific)) => specific,
        Some(_) => return Err(wrong("hookSpecificOutput", "an object")),
    };
    said.context = words(specific, "additionalContext")?;
    if event == HookEvent::PostToolUse {
        return Ok(said);
    }
    let decided = match specific.get("permissionDecision") {
        None | Some(Value::Null) => None,
        Some(Value::String(word)) => Some(match word.as_str() {
            "allow" => Verdict::Allow,
            "ask" => Verdict::Ask,
            "deny" => Verdict::Block,
            _ => return Err(wrong("permissionDecision", "`allow`, `ask` or `deny`")),
        }),
        Some(_) => return Err(wrong("permissionDecision", "a word")),
    };
    // Said in both ways, the stronger one counts.
    said.verdict = said.verdict.max(decided);
    if let Some(reason) = words(specific, "permissionDecisionReason")? {
        said.reason = Some(reason);
    }
    said.input = match specific.get("updatedInput") {
        None | Some(Value::Null) => None,
        Some(input @ Value::Object(_)) => Some(input.clone()),
        Some(_) => return Err(wrong("updatedInput", "an object")),
    };
    Ok(said)
}

fn words(object: &Map<String, Value>, key: &str) -> Result<Option<String>, String> {
    match object.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(plain(text, LONGEST)).filter(|text| !text.is_empty())),
        Some(_) => Err(wrong(key, "a text")),
    }
}

fn wrong(key: &str, wanted: &str) -> String {
    format!("printed an answer whose `{key}` is not {wanted}")
}

fn text(kept: &Kept, most: usize) -> String {
    plain(&String::from_utf8_lossy(&kept.bytes), most)
}

/// Without what could hide text or move a cursor, and cut.
fn plain(text: &str, most: usize) -> String {
    let lines: Vec<String> = text
        .trim()
        .lines()
        .map(terret_tools::rules::shown)
        .collect();
    let text = lines.join("\n");
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{} …", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

#[cfg(test)]
#[expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]
mod tests;
