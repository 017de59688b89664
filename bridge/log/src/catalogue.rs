//! What each event type is for: the table behind `EVENTS.md`, and the one place that
//! knows types by name.

use serde_json::Value;

use crate::event::Payload;
use crate::strict_json::{self, StrictJsonError};

/// One event type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventType {
    /// The durable name.
    pub name: &'static str,
    /// Ours, or of the seed's seventeen.
    pub ours: bool,
    pub fields: &'static [Field],
    pub written_by: &'static str,
    pub seen_by: &'static str,
}

/// One field of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    pub name: &'static str,
    /// May be missing from the JSON.
    pub optional: bool,
    pub holds: &'static str,
}

/// Why a payload from outside is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PayloadError {
    #[error("`{0}` is no event type of this version; see `EVENTS.md` for those that are")]
    UnknownType(String),
    #[error(transparent)]
    Json(#[from] StrictJsonError),
    #[error("this is no payload of `{event}`: {source}")]
    Shape {
        event: String,
        source: serde_json::Error,
    },
    #[error("the payload of `{event}` has the field `{field}`, which would be lost; remove it")]
    UnknownField { event: String, field: String },
}

impl Payload {
    /// The durable name of the type.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::SessionCreated { .. } => "session/created",
            Self::SessionForked { .. } => "session/forked",
            Self::SessionTitled { .. } => "session/titled",
            Self::SessionCompacted { .. } => "session/compacted",
            Self::TurnStart { .. } => "turn/start",
            Self::TurnEnd { .. } => "turn/end",
            Self::StepStart { .. } => "step/start",
            Self::StepEnd { .. } => "step/end",
            Self::UserMessage { .. } => "user/message",
            Self::ContextInjected { .. } => "context/injected",
            Self::AssistantChunk { .. } => "assistant/chunk",
            Self::AssistantThought { .. } => "assistant/thought",
            Self::AssistantMessage { .. } => "assistant/message",
            Self::ToolCall { .. } => "tool/call",
            Self::ToolStarted { .. } => "tool/started",
            Self::ToolOutput { .. } => "tool/output",
            Self::ToolResult { .. } => "tool/result",
            Self::FileSeen { .. } => "file/seen",
            Self::FileChanged { .. } => "file/changed",
            Self::JobStarted { .. } => "job/started",
            Self::JobProgress { .. } => "job/progress",
            Self::JobCollected { .. } => "job/collected",
            Self::JobEnded { .. } => "job/ended",
            Self::ApprovalRequested { .. } => "approval/requested",
            Self::ApprovalResolved { .. } => "approval/resolved",
            Self::PolicyUpdated { .. } => "policy/updated",
            Self::RuleAdded { .. } => "rule/added",
            Self::RuleRemoved { .. } => "rule/removed",
            Self::RequestFrame { .. } => "request/frame",
            Self::OptionSet { .. } => "option/set",
            Self::RootsSet { .. } => "roots/set",
            Self::PlanCleared { .. } => "plan/cleared",
            Self::NoticeShown { .. } => "notice/shown",
            Self::CommandRun { .. } => "command/run",
            Self::LogRepaired { .. } => "log/repaired",
        }
    }

    /// Reads a payload from outside: strict JSON, a known type, the fields of that
    /// type and no others (checks 3 to 5).
    ///
    /// # Errors
    /// [`PayloadError`] says what is wrong; nothing was stored.
    pub fn from_json(type_name: &str, json: &[u8]) -> Result<Self, PayloadError> {
        if !is_known(type_name) {
            return Err(PayloadError::UnknownType(
                type_name.chars().take(64).collect(),
            ));
        }
        let given = strict_json::parse(json)?;
        let shape = |source| PayloadError::Shape {
            event: type_name.to_owned(),
            source,
        };
        let payload: Self =
            serde_json::from_value(serde_json::json!({ "type": type_name, "payload": given }))
                .map_err(shape)?;
        let mut kept = serde_json::to_value(&payload).map_err(shape)?;
        let kept = kept.get_mut("payload").map_or(Value::Null, Value::take);
        match lost_field(&given, &kept) {
            Some(field) => Err(PayloadError::UnknownField {
                event: type_name.to_owned(),
                field,
            }),
            None => Ok(payload),
        }
    }
}

/// True for a type of this version.
pub fn is_known(name: &str) -> bool {
    catalogue().iter().any(|event| event.name == name)
}

/// The first field of `given` that `kept` has no trace of. Fields that are left out
/// when they say nothing (`null`, `false`, 0, an empty list) are not missed.
fn lost_field(given: &Value, kept: &Value) -> Option<String> {
    match (given, kept) {
        (Value::Object(given), Value::Object(kept)) => {
            given.iter().find_map(|(name, value)| match kept.get(name) {
                Some(kept) => lost_field(value, kept),
                None if says_nothing(value) => None,
                None => Some(name.clone()),
            })
        }
        (Value::Array(given), Value::Array(kept)) => given
            .iter()
            .zip(kept)
            .find_map(|(given, kept)| lost_field(given, kept)),
        _ => None,
    }
}

fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_u64() == Some(0),
        Value::Array(items) => items.is_empty(),
        Value::String(_) | Value::Object(_) => false,
    }
}

const fn must(name: &'static str, holds: &'static str) -> Field {
    Field {
        name,
        optional: false,
        holds,
    }
}

const fn may(name: &'static str, holds: &'static str) -> Field {
    Field {
        name,
        optional: true,
        holds,
    }
}

const fn seed(
    name: &'static str,
    fields: &'static [Field],
    written_by: &'static str,
    seen_by: &'static str,
) -> EventType {
    EventType {
        name,
        ours: false,
        fields,
        written_by,
        seen_by,
    }
}

const fn own(
    name: &'static str,
    fields: &'static [Field],
    written_by: &'static str,
    seen_by: &'static str,
) -> EventType {
    EventType {
        name,
        ours: true,
        fields,
        written_by,
        seen_by,
    }
}

/// All event types, in the order of [`Payload`].
pub fn catalogue() -> &'static [EventType] {
    const INPUT: &[Field] = &[
        must("text", "what the model reads"),
        may("images", "images that follow the text, as blobs"),
        may("blocks", "the prompt as the editor sent it, for replay"),
    ];
    const INJECTED: &[Field] = &[
        must("text", "what the model reads"),
        may("images", "images that follow the text, as blobs"),
        may("blocks", "the prompt as the editor sent it, for replay"),
        may(
            "source",
            "`steer`, a prompt during a turn (default), `terret`, a line of ours, or `jobs`, the line that names all jobs that ended since the last one",
        ),
    ];
    const TYPES: &[EventType] = &[
        seed(
            "session/created",
            &[
                must("parent_id", "the session that delegated this one, or null"),
                may("root_id", "the first of the family"),
                may("depth", "0 for a root"),
                may("call_id", "the parent's tool call that made this child"),
                must("cwd", "absolute path that the session works in"),
                may("additional_directories", "further folders it may work in"),
            ],
            "engine, always as event 0 of a session that was not forked",
            "lists, the engine",
        ),
        seed(
            "session/forked",
            &[
                must("from", "the source session"),
                must("boundary", "number of copied events; null for all"),
            ],
            "store, right after the copied prefix",
            "lists",
        ),
        seed(
            "session/titled",
            &[must("title", "the new title")],
            "titler, or the person",
            "lists, editor",
        ),
        seed(
            "session/compacted",
            &[
                must("upto_seq", "last event that the summary stands for"),
                must("summary", "the summary"),
            ],
            "compactor",
            "model, as one user message in the place of what came before",
        ),
        seed(
            "turn/start",
            &[must("agent", "the agent's id")],
            "loop",
            "editor, resume",
        ),
        seed(
            "turn/end",
            &[
                must("status", "how it ended"),
                may("reason", "why, for people"),
            ],
            "loop",
            "editor, resume; calls without a result get one for the model",
        ),
        seed(
            "step/start",
            &[
                must("n", "from 1 within the turn"),
                must("model", "`provider:model`"),
            ],
            "loop, before each request",
            "editor, resume",
        ),
        seed(
            "step/end",
            &[
                must("n", "the step"),
                may("usage", "what its provider reported"),
            ],
            "loop",
            "usage, editor",
        ),
        seed(
            "user/message",
            INPUT,
            "loop, for the input that started the turn",
            "model as user, editor",
        ),
        seed(
            "context/injected",
            INJECTED,
            "loop, at the beginning of a step",
            "model as user; editor when it was a steer",
        ),
        seed(
            "assistant/chunk",
            &[must("text", "a piece of the answer")],
            "loop, per streamed delta",
            "editor; in a replay only when no message followed",
        ),
        own(
            "assistant/thought",
            &[must("text", "a piece of thinking")],
            "loop, per streamed delta",
            "editor; in a replay only when no message followed",
        ),
        seed(
            "assistant/message",
            &[
                must("parts", "text, thinking, tool calls, images"),
                may("partial", "a cancel cut the stream"),
            ],
            "loop, once a step after the stream ended",
            "model as assistant, editor, resume",
        ),
        seed(
            "tool/call",
            &[
                must("id", "the call"),
                must("name", "the tool"),
                must("args", "its arguments"),
            ],
            "loop, when the call's turn has come",
            "editor, plan",
        ),
        own(
            "tool/started",
            &[
                must("id", "the call"),
                may(
                    "allowed",
                    "what let it run: `rule` with its `layer` and text, `approval`, `mode`, `tool` (needs no decision) or `hook`",
                ),
            ],
            "loop, when the gate has passed: the effect may have begun",
            "editor, resume",
        ),
        own(
            "tool/output",
            &[
                must("id", "the call"),
                must("text", "a piece of live output"),
            ],
            "loop",
            "editor; in a replay only when no result followed",
        ),
        seed(
            "tool/result",
            &[
                must("id", "the call"),
                must("content", "what it gave, or null"),
                must("error", "what went wrong, or null"),
                may("images", "images of the result, as blobs"),
            ],
            "loop, exactly once a call",
            "model as tool, editor, plan",
        ),
        own(
            "file/seen",
            &[
                must("call_id", "the call"),
                must("path", "absolute path"),
                must("hash", "SHA-256 of the content"),
            ],
            "loop, when a call has read a file",
            "the guard against edits of files that changed since",
        ),
        own(
            "file/changed",
            &[
                must("call_id", "the call"),
                must("change", "path, content before and after as blobs"),
            ],
            "loop, before the file gets its new content",
            "editor, undo, the guard against stale edits",
        ),
        own(
            "job/started",
            &[
                must("id", "the job"),
                must("call_id", "the call that started it"),
                must("command", "what it runs, for people"),
                may("description", "what it is for"),
                may("keep", "it outlives a clean end of the session"),
            ],
            "loop, when the job's keeper runs; on the disk before the call goes on",
            "editor, the index, resume",
        ),
        own(
            "job/progress",
            &[
                must("id", "the job"),
                must("call_id", "the call that started it"),
                must("tail", "its last lines"),
                must("written", "bytes that it wrote so far"),
                may("notes", "what should be known of it besides"),
            ],
            "engine, ever more seldom while the job writes",
            "editor, on the card of the call; in a replay only while the job runs",
        ),
        own(
            "job/collected",
            &[
                must("call_id", "the call whose result holds the output"),
                must("id", "the job"),
                must("upto", "the byte up to which it does"),
                may("ended", "it holds the job's end too"),
            ],
            "loop, before that result; it takes effect with it",
            "the job tools: what was collected is not collected again",
        ),
        own(
            "job/ended",
            &[
                must("id", "the job"),
                must("call_id", "the call that started it"),
                must(
                    "outcome",
                    "`how`: `exited` with `status`, `signalled` with `signal`, `stopped`, or `lost` with `reason`",
                ),
                must("ran_for", "milliseconds, as far as they are known"),
                must("written", "bytes that it wrote"),
                may("dropped", "bytes of these that were not kept"),
                may("tail", "its last lines"),
                may("notes", "what should be known of it besides"),
            ],
            "engine, when nothing of the job is left, also between turns",
            "editor, the index; the model by one line in its next request",
        ),
        seed(
            "approval/requested",
            &[
                must("id", "the request"),
                must("call_id", "the call"),
                must("name", "the tool"),
                must("args", "its arguments"),
                may("title", "what is asked for, in one line"),
                must("reason", "why it is asked"),
                may("preview", "the changes that it would make"),
                may("offered_rule", "the rule that an `always` would add"),
                may(
                    "stage",
                    "`escalation`: one more run of a call that has run, with more reach; `leave_plan`: carrying a plan out; `trust`: what a repository brings; without it, the call itself",
                ),
            ],
            "gate, before anyone is asked",
            "editor, inbox, resume",
        ),
        seed(
            "approval/resolved",
            &[
                must("id", "the request"),
                must("call_id", "the call"),
                must("verdict", "`approved`, `denied` or `cancelled`"),
                may("reason", "what the person said"),
                must("by", "`editor`, `inbox`, `rule:<id>`, `cancel` or `nobody`"),
                may(
                    "scope",
                    "how far a yes reaches beyond the call: `session` or `project`",
                ),
            ],
            "gate",
            "editor, inbox, resume",
        ),
        seed(
            "policy/updated",
            &[must("patterns", "tool names that may run")],
            "engine",
            "gate",
        ),
        own(
            "rule/added",
            &[
                must("id", "the rule"),
                must("rule", "its exact text"),
                must("effect", "`allow`, `ask` or `deny`"),
                must("by", "who added it"),
                may("approval", "the request that it came from"),
                may(
                    "expires",
                    "Unix milliseconds after which it counts for nothing",
                ),
            ],
            "engine",
            "gate",
        ),
        own(
            "rule/removed",
            &[must("id", "the rule"), must("by", "who took it back")],
            "engine",
            "gate",
        ),
        own(
            "request/frame",
            &[
                must("system", "the system prompt"),
                must("tools", "the tools with their schemas"),
            ],
            "loop, before a request whose frame differs from the last",
            "the check of the log invariant",
        ),
        own(
            "option/set",
            &[
                must("option", "`mode`, `model`, `thinking`, …"),
                must("value", "the choice"),
                must("by", "who chose"),
            ],
            "engine",
            "engine, editor",
        ),
        own(
            "roots/set",
            &[must(
                "additional_directories",
                "the folders beside `cwd`, as a whole list",
            )],
            "engine",
            "engine, lists",
        ),
        own(
            "command/run",
            &[must("text", "the slash command as it was typed")],
            "engine",
            "editor, as the person's",
        ),
        own(
            "plan/cleared",
            &[must("by", "who emptied it")],
            "engine",
            "plan, editor",
        ),
        own(
            "notice/shown",
            &[
                must("severity", "`info`, `warning` or `error`"),
                must("text", "what is shown"),
            ],
            "engine",
            "editor",
        ),
        own(
            "log/repaired",
            &[
                must("kept_aside", "file beside the log with the torn bytes"),
                must("dropped_bytes", "how many"),
            ],
            "store, when it opens a log with a torn tail",
            "people",
        ),
    ];
    TYPES
}

/// The text of `EVENTS.md`.
pub fn events_page() -> String {
    let mut page = String::from(PAGE_HEAD);
    for event in catalogue() {
        let origin = if event.ours { " (ours)" } else { "" };
        page.push_str(&format!(
            "\n### `{}`{origin}\n\nWritten by: {}.\nSeen by: {}.\n\n| field | holds |\n|---|---|\n",
            event.name, event.written_by, event.seen_by
        ));
        for field in event.fields {
            let optional = if field.optional { "?" } else { "" };
            page.push_str(&format!(
                "| `{}`{optional} | {} |\n",
                field.name, field.holds
            ));
        }
    }
    page
}

const PAGE_HEAD: &str = "\
# Events

<!-- Generated from `bridge/log/src/catalogue.rs`. To renew it:
     TERRET_BLESS=1 cargo test -p terret-log events_page_is_current -->

A session is one file, `sessions/<id>.jsonl`. Each line is one event:

```text
{\"v\":1,\"seq\":7,\"at\":1764527640123,\"type\":\"turn/start\",\"payload\":{…},\"chain\":\"<64 hex>\"}
```

- `v` is the number of the format. A reader refuses a number that it does not know.
- `seq` counts from 0 without holes: line k (from 0) is event k.
- `at` is Unix time in milliseconds.
- `chain` is the lower-case hexadecimal SHA-256 over the `chain` of the line before (64 times `0` for
  the first line) and this line's bytes up to and without `,\"chain\"`.
  `terret sessions verify` checks it, and so does any program with a SHA-256.
- There are no spaces outside of strings, and one newline ends each line. Bytes at the end without a
  newline are a torn write; they are cut off and kept beside the log when it is next opened for writing.

Images and file contents are blobs: files under `blobs/`, named by the SHA-256 of their bytes.

Fields with `?` may be missing. Types marked (ours) go beyond the seventeen of the seed.

## Types
";

#[cfg(test)]
mod tests;
