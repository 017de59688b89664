//! One call on its way through the pipeline, and the seams it meets there.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::definition::{Definition, Kind, Replay};
use crate::gate::Decision;
use crate::mode::Mode;
use crate::pipeline::HookSays;
use crate::rules::Rule;
use crate::world::World;
use crate::world::jobs::{Job, JobId};

/// The text between a result and its closing remarks (`Terret seed §4`).
pub const LEDGER_SEPARATOR: &str = "--- terret ---";

/// A call as the model made it. Ids are unique within a session.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    pub id: String,
    pub name: String,
    /// `Err` carries what was wrong with the arguments' JSON, for the model.
    pub args: Result<Value, String>,
}

/// What a tool gives back.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Output {
    pub text: String,
    pub images: Vec<ImageBytes>,
    /// The ledger: closing lines that say what produced the text and what is missing.
    pub remarks: Vec<String>,
}

/// An image by value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageBytes {
    pub mime_type: String,
    pub bytes: Vec<u8>,
}

/// A tool's refusal or failure: text for the model, and the turn goes on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Failure(pub String);

/// A failure of ours that ends the turn: the log cannot be written, say.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct Fault(pub String);

/// The one terminal result of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct CallResult {
    pub content: Result<Output, String>,
}

/// A place a call works on, for the editor to follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    pub path: PathBuf,
    /// Counts from 1.
    pub line: Option<u32>,
}

/// Both sides of a file that a call changes, or would change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    pub path: PathBuf,
    pub before: Option<Arc<[u8]>>,
    pub after: Option<Arc<[u8]>>,
}

/// Asks a person for more than the first approval of a running call covered.
#[async_trait]
pub trait Escalate: Send + Sync {
    /// Waits for the answer. Denied where rules and mode leave nobody to ask.
    ///
    /// # Errors
    /// A [`Fault`], which ends the turn.
    async fn ask(&self, reason: String) -> Result<Answer, Fault>;

    /// What the gate says now about a call of the same tool with another subject, such as
    /// the host that a redirect leads to.
    fn decision(&self, _subject: &str) -> Decision {
        Decision::Forbid {
            reason: "nothing beyond this call was allowed".to_owned(),
        }
    }
}

/// What a running call may use. Cheap to clone.
#[derive(Clone)]
pub struct CallContext {
    pub call_id: String,
    pub world: Arc<World>,
    pub journal: Arc<dyn CallJournal>,
    pub escalate: Arc<dyn Escalate>,
    /// Ends the call: a cancelled call still gives its result within the grace.
    pub cancel: CancellationToken,
}

/// A tool. One file each; [`crate::table`] lists them all.
#[async_trait]
pub trait Tool: Send + Sync {
    fn definition(&self) -> &Definition;

    /// A short line for the editor's card, from possibly malformed arguments:
    /// `Read src/main.rs`, or the command of a Bash call.
    fn title(&self, args: &Value) -> String;

    /// The files that the call is about.
    fn locations(&self, _world: &World, _args: &Value) -> Vec<Location> {
        Vec::new()
    }

    /// What a rule for this call would match: `Bash` gives its command, file tools their
    /// path; the text inside `Tool(...)`. None when only the bare tool name can match.
    fn rule_subject(&self, _world: &World, _args: &Value) -> Option<String> {
        None
    }

    /// Why a person is asked about this call whatever its command or path may do: it wants
    /// something that no rule for these speaks of, such as to outlive the session.
    fn insists(&self, _args: &Value) -> Option<String> {
        None
    }

    /// Whether this call, begun before a crash and without a result, may simply run again:
    /// it looks first and does nothing twice (`Terret spec §1.8`).
    fn repeats_safely(&self, _args: &Value) -> bool {
        self.definition().replay == Replay::Safe
    }

    /// What the call would do to files, computed without doing it, for the approval.
    /// A failure here is the call's result, so that nobody is asked in vain.
    async fn preview(
        &self,
        _context: &CallContext,
        _args: &Value,
    ) -> Result<Vec<FileChange>, Failure> {
        Ok(Vec::new())
    }

    /// Does it. Arguments were checked against the schema.
    async fn run(&self, context: &CallContext, args: Value) -> Result<Output, Failure>;
}

/// Of a journal that has no place for jobs.
const NO_JOBS: &str = "this journal keeps no jobs";

/// Where a call's events go, in order; the engine implements it over the log.
/// A [`Fault`] ends the turn.
#[async_trait]
pub trait CallJournal: Send + Sync {
    /// `tool/call`.
    async fn called(&self, call: &Call) -> Result<(), Fault>;

    /// `tool/started`; waits for the disk when the effect cannot be repeated.
    async fn started(
        &self,
        call: &Call,
        definition: &Definition,
        allowed: &Allowed,
    ) -> Result<(), Fault>;

    /// `tool/output`: a piece of live output for the editor.
    fn output(&self, call_id: &str, text: &str);

    /// `file/seen`: the call saw the file with this content (lower-case SHA-256 of its bytes).
    fn file_seen(&self, call_id: &str, path: &Path, hash: &str);

    /// The hash of the content that the session last saw of this file, by reading or
    /// by writing it; none when it never did.
    fn seen(&self, path: &Path) -> Option<String>;

    /// `file/changed`: written before the file is.
    async fn file_changing(&self, call_id: &str, change: &FileChange) -> Result<(), Fault>;

    /// The session's mode of this moment.
    fn mode(&self) -> Mode {
        Mode::default()
    }

    /// `job/started`: the job is this call's from now on; on the disk before it returns.
    async fn job_started(&self, _call_id: &str, _job: &Job) -> Result<(), Fault> {
        Err(Fault(NO_JOBS.to_owned()))
    }

    /// How much of a job's output the session has collected, in bytes; 0 for one that it
    /// does not know.
    fn job_cursor(&self, _id: &JobId) -> u64 {
        0
    }

    /// Whether the session has collected a job to its end, which makes its id as unknown
    /// as any other.
    fn job_collected_out(&self, _id: &JobId) -> bool {
        false
    }

    /// `job/collected`: this call's result will hold the output up to `upto`, and the
    /// job's end when `ended`. Takes effect with the result, so that a crash in between
    /// loses nothing.
    async fn job_collecting(
        &self,
        _call_id: &str,
        _id: &JobId,
        _upto: u64,
        _ended: bool,
    ) -> Result<(), Fault> {
        Err(Fault(NO_JOBS.to_owned()))
    }

    /// `tool/result`.
    async fn finished(&self, call: &Call, result: &CallResult) -> Result<(), Fault>;
}

/// What let a call run, for whoever asks later why it did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Allowed {
    /// An allow rule.
    Rule(Rule),
    /// A person, now or before a restart.
    Approval,
    /// The mode, where no rule spoke.
    Mode(Mode),
    /// The tool needs no decision.
    Tool,
    /// A hook of the user's, where no rule spoke.
    Hook,
}

/// What the gate wants a person to decide.
#[derive(Debug, Clone)]
pub struct Question {
    pub call: Call,
    pub kind: Kind,
    pub title: String,
    /// Why it is asked.
    pub reason: String,
    pub preview: Vec<FileChange>,
    /// The rule that "always in this session" would add, in its exact text.
    pub offered_rule: Option<String>,
    pub stage: Stage,
    /// What hooks said of asking; a rule that comes meanwhile does not pass it.
    pub says: Option<HookSays>,
}

/// What a yes would allow. A verdict for one stage of a call says nothing of another.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Stage {
    /// The call itself.
    #[default]
    Call,
    /// One more run of a call that has run, with more reach.
    Escalation,
    /// Leaving plan mode, to do what the call's plan says.
    LeavePlan,
    /// What a repository brings that runs code or redirects keys; no call of a model.
    Trust,
}

/// A person's, or a rule's, answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Approved,
    Denied {
        /// `no reason given` when the person gave none.
        reason: String,
    },
    /// The turn was cancelled while the question stood.
    Cancelled,
}

/// Who answers questions; the engine implements it with durable approvals.
#[async_trait]
pub trait Approver: Send + Sync {
    /// Waits for the answer without a limit. Ends with [`Answer::Cancelled`] when
    /// `cancel` fires.
    async fn ask(&self, question: Question, cancel: &CancellationToken) -> Result<Answer, Fault>;
}

impl CallResult {
    /// A success.
    pub fn ok(output: Output) -> Self {
        Self {
            content: Ok(output),
        }
    }

    /// An error for the model.
    pub fn error(text: impl Into<String>) -> Self {
        Self {
            content: Err(text.into()),
        }
    }
}

impl Output {
    /// A plain text without remarks.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }

    /// The text as the model reads it: the ledger comes last, after the separator.
    pub fn render(&self) -> String {
        if self.remarks.is_empty() {
            return self.text.clone();
        }
        let mut rendered = self.text.clone();
        if !rendered.is_empty() && !rendered.ends_with('\n') {
            rendered.push('\n');
        }
        rendered.push_str(LEDGER_SEPARATOR);
        for remark in &self.remarks {
            rendered.push('\n');
            rendered.push_str(remark);
        }
        rendered
    }
}

impl Failure {
    /// A failure with this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

/// A command that prints the separator must not write its own ledger.
pub(crate) fn harmless(text: String) -> String {
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
