//! Reads a script. What it does not know it refuses, with the line: a reply that is
//! silently left out shows up far away from its cause.

use std::time::Duration;

use regex::{Captures, Regex};
use serde::Deserialize;
use serde_json::Value;

use crate::provider::{ModelError, StopReason, Usage};

/// Characters of output in one piece, unless told.
const CHUNK: usize = 16;

/// One line: when it is taken, and what it does then.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) agent: Option<Regex>,
    pub(super) pattern: Option<Regex>,
    pub(super) reply: Reply,
}

#[derive(Debug)]
pub(super) enum Reply {
    Answer(Answer),
    Fail(Fail),
}

#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) think: Option<String>,
    pub(super) say: Option<String>,
    pub(super) calls: Vec<Call>,
    pub(super) usage: Option<Usage>,
    pub(super) stop: StopReason,
    pub(super) chunk: usize,
    pub(super) delay: Duration,
    pub(super) cut_after: Option<usize>,
}

#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) id: Option<String>,
    pub(super) name: String,
    pub(super) json: String,
}

#[derive(Debug)]
pub(super) struct Fail {
    pub(super) status: u16,
    pub(super) retry_after: Option<Duration>,
    pub(super) times: u32,
}

impl Answer {
    /// The answer with what the groups of its pattern found in their places.
    pub(super) fn filled(&self, found: &Captures<'_>) -> Self {
        let mut answer = self.clone();
        for (number, group) in found.iter().enumerate().skip(1) {
            let place = format!("{{{{{number}}}}}");
            let group = group.map_or("", |group| group.as_str());
            if let Some(say) = &mut answer.say {
                *say = say.replace(&place, group);
            }
            // Within a JSON string: without the quotes around it.
            let quoted = Value::from(group).to_string();
            let inner = quoted.get(1..quoted.len() - 1).unwrap_or_default();
            for call in &mut answer.calls {
                call.json = call.json.replace(&place, inner);
            }
        }
        answer
    }
}

/// All lines of a script.
///
/// # Errors
/// With the name and the number of the first line that is wrong.
pub(super) fn read(name: &str, text: &str) -> Result<Vec<Line>, ModelError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        lines.push(read_line(line).map_err(|problem| {
            ModelError::Script(format!(
                "line {} of the script `{name}`: {problem}",
                number + 1
            ))
        })?);
    }
    Ok(lines)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLine {
    r#match: Option<String>,
    agent: Option<String>,
    think: Option<String>,
    say: Option<String>,
    #[serde(default)]
    calls: Vec<RawCall>,
    usage: Option<RawUsage>,
    stop: Option<RawStop>,
    chunk: Option<usize>,
    #[serde(default)]
    delay_ms: u64,
    fail: Option<RawFail>,
    cut_after: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCall {
    id: Option<String>,
    name: String,
    args: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
#[derive(Default)]
struct RawUsage {
    input: u64,
    output: u64,
    cached_read: u64,
    cached_write: u64,
    thinking: u64,
    cost: Option<f64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum RawStop {
    End,
    Length,
    Refusal,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFail {
    status: u16,
    retry_after: Option<f64>,
    times: Option<u32>,
}

fn read_line(line: &str) -> Result<Line, String> {
    let raw: RawLine = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let pattern = |key: &str, text: Option<String>| {
        text.map(|text| Regex::new(&text))
            .transpose()
            .map_err(|error| format!("`{key}` is no regular expression: {error}"))
    };
    let reply = match raw.fail {
        Some(fail) => {
            let answers = raw.think.is_some()
                || raw.say.is_some()
                || !raw.calls.is_empty()
                || raw.usage.is_some()
                || raw.stop.is_some()
                || raw.cut_after.is_some();
            if answers {
                return Err(
                    "a line with `fail` cannot answer as well: put the answer on the \
                            next line"
                        .to_owned(),
                );
            }
            Reply::Fail(read_fail(&fail)?)
        }
        None => Reply::Answer(Answer {
            think: raw.think,
            say: raw.say,
            calls: raw.calls.into_iter().map(read_call).collect(),
            usage: raw.usage.map(|usage| Usage {
                input: usage.input,
                output: usage.output,
                cached_read: usage.cached_read,
                cached_write: usage.cached_write,
                thinking: usage.thinking,
                cost: usage.cost,
            }),
            stop: match raw.stop {
                None | Some(RawStop::End) => StopReason::End,
                Some(RawStop::Length) => StopReason::Length,
                Some(RawStop::Refusal) => StopReason::Refusal,
            },
            chunk: match raw.chunk {
                Some(0) => return Err("`chunk` must be 1 or more".to_owned()),
                chunk => chunk.unwrap_or(CHUNK),
            },
            delay: Duration::from_millis(raw.delay_ms),
            cut_after: raw.cut_after,
        }),
    };
    Ok(Line {
        agent: pattern("agent", raw.agent)?,
        pattern: pattern("match", raw.r#match)?,
        reply,
    })
}

fn read_fail(fail: &RawFail) -> Result<Fail, String> {
    if !(400..600).contains(&fail.status) {
        return Err(format!(
            "`fail.status` is {} and must be 400 to 599",
            fail.status
        ));
    }
    Ok(Fail {
        status: fail.status,
        retry_after: fail
            .retry_after
            .map(Duration::try_from_secs_f64)
            .transpose()
            .map_err(|_| "`fail.retry_after` must be a number of seconds".to_owned())?,
        times: fail.times.unwrap_or(1),
    })
}

fn read_call(call: RawCall) -> Call {
    Call {
        id: call.id,
        name: call.name,
        json: match call.args {
            None => "{}".to_owned(),
            Some(Value::String(raw)) => raw,
            Some(args) => args.to_string(),
        },
    }
}
