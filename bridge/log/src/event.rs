//! The closed list of durable events. One enum holds them all, so that a reader
//! which forgets one does not compile, and nothing undeclared can be stored.
//!
//! The first seventeen are the seed's (`Terret spec §1.2`); the rest are ours and
//! say so. `bridge/log/EVENTS.md` is generated from [`catalogue`].

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::blob::BlobId;
use crate::id::SessionId;

/// One line of a session's log.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Position in the session: 0, 1, 2, … without holes.
    pub seq: u64,
    /// Unix time in milliseconds, from the log's clock.
    pub at: u64,
    /// What happened.
    pub payload: Payload,
}

/// What happened. The serde tag is the durable name of the event's type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", content = "payload")]
pub enum Payload {
    // --- session -----------------------------------------------------------
    /// Always seq 0 of a session that was not forked.
    #[serde(rename = "session/created")]
    SessionCreated {
        parent_id: Option<SessionId>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        root_id: Option<SessionId>,
        #[serde(default)]
        depth: u32,
        /// The parent's tool call that made this child.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call_id: Option<String>,
        /// Absolute path that the session works in.
        cwd: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        additional_directories: Vec<String>,
    },
    /// Right after a copied prefix; `boundary` is the number of copied events,
    /// null when the whole log was copied.
    #[serde(rename = "session/forked")]
    SessionForked {
        from: SessionId,
        boundary: Option<u64>,
    },
    #[serde(rename = "session/titled")]
    SessionTitled { title: String },
    #[serde(rename = "session/compacted")]
    SessionCompacted { upto_seq: u64, summary: String },

    // --- turn and step -----------------------------------------------------
    #[serde(rename = "turn/start")]
    TurnStart { agent: String },
    #[serde(rename = "turn/end")]
    TurnEnd {
        status: TurnStatus,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// `n` counts from 1 within the turn; `model` is `provider:model`.
    #[serde(rename = "step/start")]
    StepStart { n: u32, model: String },
    #[serde(rename = "step/end")]
    StepEnd {
        n: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<StepUsage>,
    },

    // --- what the model sees ----------------------------------------------
    /// The input that started the turn. `text` is what the model reads;
    /// `images` follow it; `blocks` is the prompt as the editor sent it, for replay.
    #[serde(rename = "user/message")]
    UserMessage {
        text: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        images: Vec<ImageRef>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        blocks: Vec<PromptBlock>,
    },
    /// Input that joined a running turn: a steering prompt, or a notice of ours.
    #[serde(rename = "context/injected")]
    ContextInjected {
        text: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        images: Vec<ImageRef>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        blocks: Vec<PromptBlock>,
        #[serde(default)]
        source: InjectedBy,
    },
    /// A piece of streamed answer text. Never part of history.
    #[serde(rename = "assistant/chunk")]
    AssistantChunk { text: String },
    /// Ours: a piece of streamed thinking. Never part of history.
    #[serde(rename = "assistant/thought")]
    AssistantThought { text: String },
    /// The whole message of a step. `partial` marks a stream that a cancel cut.
    #[serde(rename = "assistant/message")]
    AssistantMessage {
        parts: Vec<Part>,
        #[serde(default, skip_serializing_if = "is_false")]
        partial: bool,
    },

    // --- tool calls --------------------------------------------------------
    #[serde(rename = "tool/call")]
    ToolCall {
        id: String,
        name: String,
        args: Value,
    },
    /// Ours: the gate has passed and the effect may have begun (`design.md §8`, check 30).
    #[serde(rename = "tool/started")]
    ToolStarted {
        id: String,
        /// What let the call run; absent in logs of before this was told.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        allowed: Option<Allowance>,
    },
    /// Ours: a piece of live output for the editor. Never part of history.
    #[serde(rename = "tool/output")]
    ToolOutput { id: String, text: String },
    /// Exactly one a call. One of `content` and `error` is null.
    #[serde(rename = "tool/result")]
    ToolResult {
        id: String,
        content: Option<String>,
        error: Option<String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        images: Vec<ImageRef>,
    },
    /// Ours: a file's content as a call saw it; later edits are refused when it differs.
    #[serde(rename = "file/seen")]
    FileSeen {
        call_id: String,
        path: String,
        hash: String,
    },
    /// Ours: a file is about to get new content; both sides are kept as blobs.
    #[serde(rename = "file/changed")]
    FileChanged { call_id: String, change: FileChange },

    // --- jobs --------------------------------------------------------------
    /// Ours: the call started a job, a process that outlives it. `id` is the job's.
    #[serde(rename = "job/started")]
    JobStarted {
        id: String,
        call_id: String,
        command: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<String>,
        /// It outlives a clean end of the session.
        #[serde(default, skip_serializing_if = "is_false")]
        keep: bool,
    },
    /// Ours: a running job's last lines, for the editor. Never part of history; seldom,
    /// so that a noisy job of many hours adds a bounded number of events.
    #[serde(rename = "job/progress")]
    JobProgress {
        id: String,
        call_id: String,
        tail: String,
        /// Bytes that it wrote so far.
        written: u64,
        /// What should be known of it besides, such as that its output fills its room.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        notes: Vec<String>,
    },
    /// Ours: the result of `call_id` will hold the job's output up to the byte `upto`,
    /// and its end when `ended`. It takes effect when that result is logged, so a crash
    /// in between loses nothing.
    #[serde(rename = "job/collected")]
    JobCollected {
        call_id: String,
        id: String,
        upto: u64,
        #[serde(default, skip_serializing_if = "is_false")]
        ended: bool,
    },
    /// Ours: the job is over, with all that came from it.
    #[serde(rename = "job/ended")]
    JobEnded {
        id: String,
        call_id: String,
        outcome: JobOutcome,
        /// Milliseconds, as far as they are known.
        ran_for: u64,
        /// Bytes that it wrote.
        written: u64,
        /// Bytes of these that were not kept.
        #[serde(default, skip_serializing_if = "is_zero")]
        dropped: u64,
        /// Its last lines.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        tail: String,
        /// As for `job/progress`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        notes: Vec<String>,
    },

    // --- permissions -------------------------------------------------------
    /// Written before anyone is asked. `id` is ours and unique in the session.
    #[serde(rename = "approval/requested")]
    ApprovalRequested {
        id: String,
        call_id: String,
        name: String,
        args: Value,
        /// What is asked for, in one line.
        #[serde(default)]
        title: String,
        /// Why it is asked, for the person.
        reason: String,
        /// What the call would change, shown before it does.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        preview: Vec<FileChange>,
        /// The rule that "allow for this session" would add, in its exact text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        offered_rule: Option<String>,
        /// What a yes would allow; a verdict for one stage says nothing of another.
        #[serde(default, skip_serializing_if = "ApprovalStage::is_call")]
        stage: ApprovalStage,
    },
    #[serde(rename = "approval/resolved")]
    ApprovalResolved {
        id: String,
        call_id: String,
        verdict: Verdict,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// Who decided: `editor`, `inbox`, `rule:<id>`, `cancel`, `nobody`.
        by: String,
        /// How far a yes reaches beyond this call; absent when it does not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        scope: Option<GrantScope>,
    },
    #[serde(rename = "policy/updated")]
    PolicyUpdated { patterns: Vec<String> },
    /// Ours: a rule joined the session's own layer.
    #[serde(rename = "rule/added")]
    RuleAdded {
        id: String,
        rule: String,
        effect: RuleEffect,
        by: String,
        /// The approval that it came from.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        approval: Option<String>,
        /// Unix milliseconds after which it counts for nothing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expires: Option<u64>,
    },
    /// Ours: a rule of the session's own layer was taken back.
    #[serde(rename = "rule/removed")]
    RuleRemoved { id: String, by: String },

    // --- the session's own state -------------------------------------------
    /// Ours: system prompt and tool schemas of the requests that follow, written
    /// when they differ from the last frame, so the log covers all a model sees.
    #[serde(rename = "request/frame")]
    RequestFrame {
        system: String,
        tools: Vec<ToolSchema>,
    },
    /// Ours: a durable choice for this session: `mode`, `model`, `thinking`.
    #[serde(rename = "option/set")]
    OptionSet {
        option: String,
        value: String,
        by: String,
    },
    /// Ours: the folders beside `cwd` that the session may work in, as a whole list.
    #[serde(rename = "roots/set")]
    RootsSet { additional_directories: Vec<String> },
    /// Ours: a slash command that we answer ourselves. The editor shows its text as the
    /// person's; the model never sees it.
    #[serde(rename = "command/run")]
    CommandRun { text: String },
    /// Ours: the person emptied the plan.
    #[serde(rename = "plan/cleared")]
    PlanCleared { by: String },
    /// Ours: a message for the person that is no model text: errors, retries, answers
    /// of slash commands.
    #[serde(rename = "notice/shown")]
    NoticeShown { severity: Severity, text: String },
    /// Ours: a torn last line was cut off and kept beside the log.
    #[serde(rename = "log/repaired")]
    LogRepaired {
        kept_aside: String,
        dropped_bytes: u64,
    },
}

/// How a turn ended. The last three are ours; the seed folds them into others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnStatus {
    Completed,
    Cancelled,
    Rejected,
    Empty,
    Failed,
    /// The model stopped at its output limit (check 48).
    OutputLimit,
    /// The step ceiling was reached (`ACP max_turn_requests`).
    StepLimit,
    /// The model refused (`ACP refusal`): the prompt and all after it in this turn
    /// leave the history that the model sees; the editor keeps them.
    Refused,
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum JobOutcome {
    /// With the status of its first process.
    Exited { status: i32 },
    /// Its first process was killed by a signal, not by us.
    Signalled { signal: i32 },
    /// We ended it: a person or a model stopped it, or its session ended.
    Stopped,
    /// Nobody saw its end; why, in words.
    Lost { reason: String },
}

/// What a step cost, as its provider reported it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StepUsage {
    /// All input tokens, cached ones included: the size of the context.
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cached_read_tokens: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cached_write_tokens: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub thought_tokens: u64,
    /// In `currency`; null when the provider does not say and no price is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
}

/// A part of an assistant message. Names are storage names and independent of code.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Part {
    Text {
        text: String,
    },
    /// Replayed only to the provider that made it.
    Thinking {
        text: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
        provider: String,
    },
    ToolCall {
        id: String,
        name: String,
        args: Value,
    },
    ToolResult {
        id: String,
        content: Option<String>,
        error: Option<String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        images: Vec<ImageRef>,
    },
    Image {
        image: ImageRef,
    },
}

/// An image kept as a blob.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageRef {
    pub mime_type: String,
    pub blob: BlobId,
}

/// A block of a prompt as the editor sent it, for an exact replay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum PromptBlock {
    Text {
        text: String,
    },
    ResourceLink {
        uri: String,
        name: String,
    },
    /// An embedded text resource.
    Resource {
        uri: String,
        mime_type: Option<String>,
        text: String,
    },
    Image {
        image: ImageRef,
    },
}

/// Both sides of a file that a call changes, or would change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileChange {
    /// Absolute path.
    pub path: String,
    /// The bytes before; null for a new file.
    pub before: Option<BlobId>,
    /// The bytes after; null for a deletion.
    pub after: Option<BlobId>,
}

/// A tool as a model was shown it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolSchema {
    pub name: String,
    pub description: String,
    pub parameters: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Approved,
    Denied,
    Cancelled,
}

/// What a yes to an approval would allow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalStage {
    /// The call itself.
    #[default]
    Call,
    /// One more run of a call that has run, with more reach than its sandbox gave it.
    Escalation,
    /// Leaving plan mode, to do what the call's plan says.
    LeavePlan,
    /// What a repository brings that runs code or redirects keys; no call of a model.
    Trust,
}

/// How far a standing yes reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrantScope {
    /// The session that asked.
    Session,
    /// All sessions of the user in the project.
    Project,
}

/// What let a call run, for whoever asks later why it did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum Allowance {
    /// An allow rule, by its exact text and the layer that holds it.
    Rule { layer: String, rule: String },
    /// A verdict; the approval's events name the call.
    Approval,
    /// The mode lets such calls run where no rule speaks.
    Mode { mode: String },
    /// The tool needs no decision.
    Tool,
    /// A hook of the user's answered for it.
    Hook,
}

impl ApprovalStage {
    /// The stage that is not written into the log.
    pub fn is_call(&self) -> bool {
        *self == Self::Call
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleEffect {
    Allow,
    Ask,
    Deny,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InjectedBy {
    /// A prompt that arrived while a turn ran.
    #[default]
    Steer,
    /// A line of ours, such as a reason for a refusal.
    Terret,
    /// The one line that names all jobs that ended since the last such line.
    Jobs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    Info,
    Warning,
    Error,
}

fn is_false(value: &bool) -> bool {
    !*value
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}
