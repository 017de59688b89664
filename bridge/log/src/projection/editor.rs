//! What an editor sees of a session: the same items live and in a replay, with the
//! same ids, so that a reloaded thread looks like the one that was left (R040).

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use super::history::INTERRUPTED;
use super::jobs::LEFT_BEHIND;
use super::plan::{Plan, PlanEntry};
use super::usage::UsageTotals;
use crate::event::{
    ApprovalStage, Event, FileChange, GrantScope, ImageRef, InjectedBy, JobOutcome, Part, Payload,
    PromptBlock, Severity, TurnStatus, Verdict,
};

/// One thing to show. Text items with one `message_id` are pieces of one message.
#[derive(Debug, Clone, PartialEq)]
pub enum EditorItem {
    /// A prompt, one that steered, or a slash command that we answer.
    UserText {
        message_id: String,
        blocks: Vec<PromptBlock>,
    },
    AgentText {
        message_id: String,
        text: String,
    },
    AgentThought {
        message_id: String,
        text: String,
    },
    /// A call that the model made. A second one with the same id brings arguments that
    /// a hook rewrote, and replaces what was shown.
    ToolCall {
        id: String,
        name: String,
        args: Value,
    },
    ToolStarted {
        id: String,
    },
    /// A piece of live output.
    ToolOutput {
        id: String,
        text: String,
    },
    FileChanged {
        id: String,
        change: FileChange,
    },
    ToolResult {
        id: String,
        content: Option<String>,
        error: Option<String>,
        images: Vec<ImageRef>,
    },
    /// The call started a job: its card goes on until the job ends, also behind the call's
    /// result. `id` is the call's.
    JobStarted {
        id: String,
        job: String,
        command: String,
    },
    /// The last lines of a running job, in the place of what was shown before.
    JobProgress {
        id: String,
        job: String,
        tail: String,
        written: u64,
        notes: Vec<String>,
    },
    /// The job of a call is over, and with it the call's card.
    JobEnded {
        id: String,
        job: String,
        command: String,
        outcome: JobOutcome,
        /// Milliseconds.
        ran_for: u64,
        written: u64,
        dropped: u64,
        tail: String,
        notes: Vec<String>,
    },
    ApprovalRequested {
        id: String,
        call_id: String,
        name: String,
        args: Value,
        title: String,
        reason: String,
        preview: Vec<FileChange>,
        offered_rule: Option<String>,
        stage: ApprovalStage,
    },
    ApprovalResolved {
        id: String,
        call_id: String,
        verdict: Verdict,
        reason: Option<String>,
        by: String,
        scope: Option<GrantScope>,
    },
    /// The whole plan, only when it changed.
    Plan(Vec<PlanEntry>),
    Title(String),
    OptionSet {
        option: String,
        value: String,
    },
    Usage {
        context_tokens: Option<u64>,
        totals: UsageTotals,
    },
    Notice {
        severity: Severity,
        text: String,
    },
    StepStarted {
        n: u32,
        model: String,
    },
    TurnStarted,
    TurnEnded {
        status: TurnStatus,
        reason: Option<String>,
    },
}

/// How events become items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Pieces of text are shown as they come; the whole message adds what was missing.
    Live,
    /// Whole messages are shown; pieces only where a crash left nothing else.
    Replay,
}

/// The fold. Feed it all events from 0 on, whatever the mode: ids and the plan
/// depend on them.
#[derive(Debug, Clone)]
pub struct EditorFold {
    mode: Mode,
    plan: Plan,
    usage: UsageTotals,
    /// Of the message that is being streamed.
    stream: Stream,
    /// Calls of the open turn without a result.
    calls: HashMap<String, Call>,
    /// The order in which they came.
    order: Vec<String>,
    /// Jobs that run, by the call that started them.
    jobs: BTreeMap<String, Job>,
}

/// What is known of a message before it is whole.
#[derive(Debug, Clone, Default)]
struct Stream {
    text_id: Option<u64>,
    thought_id: Option<u64>,
    /// Bytes that were shown already.
    text_shown: usize,
    thought_shown: usize,
    /// In a replay: what is shown if no whole message follows.
    held: Vec<(Kind, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Thought,
}

#[derive(Debug, Clone, Default)]
struct Call {
    /// Of name and arguments, to notice that a hook rewrote them.
    shown: u64,
    /// In a replay: live output that is shown if no result follows.
    held_output: String,
}

/// What is known of a job that runs.
#[derive(Debug, Clone)]
struct Job {
    id: String,
    command: String,
    /// In a replay: its last lines and how much it wrote, shown if it still runs.
    held: Option<(String, u64, Vec<String>)>,
}

impl EditorFold {
    /// A fold at the beginning of a log.
    pub fn new(mode: Mode) -> Self {
        Self {
            mode,
            plan: Plan::default(),
            usage: UsageTotals::default(),
            stream: Stream::default(),
            calls: HashMap::new(),
            order: Vec::new(),
            jobs: BTreeMap::new(),
        }
    }

    /// A fold for [`Mode::Live`].
    pub fn live() -> Self {
        Self::new(Mode::Live)
    }

    /// A fold for [`Mode::Replay`].
    pub fn replay() -> Self {
        Self::new(Mode::Replay)
    }

    /// Takes the next event of the log and adds what it shows to `out`.
    pub fn apply(&mut self, event: &Event, out: &mut Vec<EditorItem>) {
        let plan_changed = self.plan.apply(event);
        // A cleared plan goes before the prompt that cleared it (R084), and a new one
        // before the result that brought it (R011).
        if plan_changed {
            out.push(EditorItem::Plan(self.plan.entries().to_vec()));
        }
        self.usage.apply(event);
        match &event.payload {
            Payload::SessionTitled { title } => out.push(EditorItem::Title(title.clone())),
            Payload::OptionSet { option, value, .. } => {
                out.push(EditorItem::OptionSet {
                    option: option.clone(),
                    value: value.clone(),
                });
            }
            Payload::NoticeShown { severity, text } => {
                out.push(EditorItem::Notice {
                    severity: *severity,
                    text: text.clone(),
                });
            }
            Payload::JobStarted { .. }
            | Payload::JobProgress { .. }
            | Payload::JobEnded { .. }
            | Payload::SessionForked { .. } => self.apply_job(&event.payload, out),
            Payload::TurnStart { .. } => {
                self.close_turn(out);
                out.push(EditorItem::TurnStarted);
            }
            Payload::TurnEnd { status, reason } => {
                self.close_turn(out);
                out.push(EditorItem::TurnEnded {
                    status: *status,
                    reason: reason.clone(),
                });
            }
            Payload::StepStart { n, model } => {
                self.end_stream(out);
                out.push(EditorItem::StepStarted {
                    n: *n,
                    model: model.clone(),
                });
            }
            Payload::StepEnd { usage: Some(_), .. } => out.push(EditorItem::Usage {
                context_tokens: self.usage.context_tokens,
                totals: self.usage,
            }),
            Payload::UserMessage {
                text,
                images,
                blocks,
            }
            | Payload::ContextInjected {
                text,
                images,
                blocks,
                source: InjectedBy::Steer,
            } => {
                let blocks = if blocks.is_empty() {
                    plain_blocks(text, images)
                } else {
                    blocks.clone()
                };
                if !blocks.is_empty() {
                    out.push(EditorItem::UserText {
                        message_id: message_id(event.seq),
                        blocks,
                    });
                }
            }
            Payload::CommandRun { text } => {
                let blocks = plain_blocks(text, &[]);
                out.push(EditorItem::UserText {
                    message_id: message_id(event.seq),
                    blocks,
                });
            }
            Payload::AssistantChunk { text } => self.chunk(event.seq, Kind::Text, text, out),
            Payload::AssistantThought { text } => self.chunk(event.seq, Kind::Thought, text, out),
            Payload::AssistantMessage { parts, .. } => self.message(event.seq, parts, out),
            _ => self.apply_call(event, out),
        }
    }

    fn apply_call(&mut self, event: &Event, out: &mut Vec<EditorItem>) {
        match &event.payload {
            Payload::ToolCall { id, name, args } => self.call(id, name, args, out),
            Payload::ToolStarted { id, .. } => out.push(EditorItem::ToolStarted { id: id.clone() }),
            Payload::ToolOutput { id, text } => match (self.mode, self.calls.get_mut(id)) {
                (Mode::Replay, Some(call)) => call.held_output.push_str(text),
                _ => out.push(EditorItem::ToolOutput {
                    id: id.clone(),
                    text: text.clone(),
                }),
            },
            Payload::ToolResult {
                id,
                content,
                error,
                images,
            } => {
                if self.calls.remove(id).is_some() {
                    self.order.retain(|known| known != id);
                }
                out.push(EditorItem::ToolResult {
                    id: id.clone(),
                    content: content.clone(),
                    error: error.clone(),
                    images: images.clone(),
                });
            }
            Payload::FileChanged { call_id, change } => {
                out.push(EditorItem::FileChanged {
                    id: call_id.clone(),
                    change: change.clone(),
                });
            }
            Payload::ApprovalRequested {
                id,
                call_id,
                name,
                args,
                title,
                reason,
                preview,
                offered_rule,
                stage,
            } => {
                out.push(EditorItem::ApprovalRequested {
                    id: id.clone(),
                    call_id: call_id.clone(),
                    name: name.clone(),
                    args: args.clone(),
                    title: title.clone(),
                    reason: reason.clone(),
                    preview: preview.clone(),
                    offered_rule: offered_rule.clone(),
                    stage: *stage,
                });
            }
            Payload::ApprovalResolved {
                id,
                call_id,
                verdict,
                reason,
                by,
                scope,
            } => {
                out.push(EditorItem::ApprovalResolved {
                    id: id.clone(),
                    call_id: call_id.clone(),
                    verdict: *verdict,
                    reason: reason.clone(),
                    by: by.clone(),
                    scope: *scope,
                });
            }
            _ => {}
        }
    }

    fn apply_job(&mut self, payload: &Payload, out: &mut Vec<EditorItem>) {
        match payload {
            Payload::JobStarted {
                id,
                call_id,
                command,
                ..
            } => {
                let job = Job {
                    id: id.clone(),
                    command: command.clone(),
                    held: None,
                };
                self.jobs.insert(call_id.clone(), job);
                out.push(EditorItem::JobStarted {
                    id: call_id.clone(),
                    job: id.clone(),
                    command: command.clone(),
                });
            }
            Payload::JobProgress {
                id,
                call_id,
                tail,
                written,
                notes,
            } => match self.jobs.get_mut(call_id).filter(|job| job.id == *id) {
                Some(job) if self.mode == Mode::Replay => {
                    job.held = Some((tail.clone(), *written, notes.clone()));
                }
                Some(_) => out.push(EditorItem::JobProgress {
                    id: call_id.clone(),
                    job: id.clone(),
                    tail: tail.clone(),
                    written: *written,
                    notes: notes.clone(),
                }),
                None => {}
            },
            Payload::JobEnded {
                id,
                call_id,
                outcome,
                ran_for,
                written,
                dropped,
                tail,
                notes,
            } => {
                if self.jobs.get(call_id).is_none_or(|job| job.id != *id) {
                    return;
                }
                let Some(job) = self.jobs.remove(call_id) else {
                    return;
                };
                out.push(EditorItem::JobEnded {
                    id: call_id.clone(),
                    job: job.id,
                    command: job.command,
                    outcome: outcome.clone(),
                    ran_for: *ran_for,
                    written: *written,
                    dropped: *dropped,
                    tail: tail.clone(),
                    notes: notes.clone(),
                });
            }
            // The copy has the log and not the processes.
            Payload::SessionForked { .. } => {
                for (id, job) in std::mem::take(&mut self.jobs) {
                    let (tail, written, notes) = job.held.unwrap_or_default();
                    out.push(EditorItem::JobEnded {
                        id,
                        job: job.id,
                        command: job.command,
                        outcome: JobOutcome::Lost {
                            reason: LEFT_BEHIND.to_owned(),
                        },
                        ran_for: 0,
                        written,
                        dropped: 0,
                        tail,
                        notes,
                    });
                }
            }
            _ => {}
        }
    }

    /// The log ends here: shows what a torn turn left, and how running jobs stand.
    pub fn finish(&mut self, out: &mut Vec<EditorItem>) {
        self.finish_turn(out);
        for (id, job) in &mut self.jobs {
            if let Some((tail, written, notes)) = job.held.take() {
                out.push(EditorItem::JobProgress {
                    id: id.clone(),
                    job: job.id.clone(),
                    tail,
                    written,
                    notes,
                });
            }
        }
    }

    fn finish_turn(&mut self, out: &mut Vec<EditorItem>) {
        self.flush_held(out);
        for id in &self.order {
            let Some(call) = self.calls.get_mut(id) else {
                continue;
            };
            if !call.held_output.is_empty() {
                let text = std::mem::take(&mut call.held_output);
                out.push(EditorItem::ToolOutput {
                    id: id.clone(),
                    text,
                });
            }
        }
    }

    /// The replay has reached the present: shows what was held and goes on live.
    pub fn go_live(&mut self, out: &mut Vec<EditorItem>) {
        self.finish(out);
        self.mode = Mode::Live;
    }

    /// The plan as it stands.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    fn chunk(&mut self, seq: u64, kind: Kind, text: &str, out: &mut Vec<EditorItem>) {
        if text.is_empty() {
            return;
        }
        let message_id = self.stream.id(kind, seq);
        if self.mode == Mode::Live {
            *self.stream.shown(kind) += text.len();
            out.push(kind.item(message_id, text.to_owned()));
            return;
        }
        match self.stream.held.last_mut() {
            Some((last, held)) if *last == kind => held.push_str(text),
            _ => self.stream.held.push((kind, text.to_owned())),
        }
    }

    fn message(&mut self, seq: u64, parts: &[Part], out: &mut Vec<EditorItem>) {
        self.stream.held.clear();
        for part in parts {
            match part {
                Part::Text { text } => self.rest(seq, Kind::Text, text, out),
                Part::Thinking { text, .. } => self.rest(seq, Kind::Thought, text, out),
                Part::ToolCall { id, name, args } => self.call(id, name, args, out),
                Part::ToolResult { .. } | Part::Image { .. } => {}
            }
        }
        self.stream = Stream::default();
    }

    /// The part of a text that was not shown piece by piece.
    fn rest(&mut self, seq: u64, kind: Kind, text: &str, out: &mut Vec<EditorItem>) {
        let message_id = self.stream.id(kind, seq);
        let shown = self.stream.shown(kind);
        let skipped = (*shown).min(text.len());
        *shown -= skipped;
        if let Some(rest) = text.get(skipped..).filter(|rest| !rest.is_empty()) {
            out.push(kind.item(message_id, rest.to_owned()));
        }
    }

    fn call(&mut self, id: &str, name: &str, args: &Value, out: &mut Vec<EditorItem>) {
        let print = fingerprint(name, args);
        match self.calls.get_mut(id) {
            Some(call) if call.shown == print => return,
            Some(call) => call.shown = print,
            None => {
                self.calls.insert(
                    id.to_owned(),
                    Call {
                        shown: print,
                        held_output: String::new(),
                    },
                );
                self.order.push(id.to_owned());
            }
        }
        out.push(EditorItem::ToolCall {
            id: id.to_owned(),
            name: name.to_owned(),
            args: args.clone(),
        });
    }

    /// No more of this message will come.
    fn end_stream(&mut self, out: &mut Vec<EditorItem>) {
        self.flush_held(out);
        self.stream = Stream::default();
    }

    fn flush_held(&mut self, out: &mut Vec<EditorItem>) {
        for (kind, text) in std::mem::take(&mut self.stream.held) {
            let message_id = self.stream.id(kind, 0);
            *self.stream.shown(kind) += text.len();
            out.push(kind.item(message_id, text));
        }
    }

    /// Nothing of the turn goes on, so no card may look as if it did, but those of jobs.
    fn close_turn(&mut self, out: &mut Vec<EditorItem>) {
        self.finish_turn(out);
        self.stream = Stream::default();
        self.calls.clear();
        for id in std::mem::take(&mut self.order) {
            let error = Some(INTERRUPTED.to_owned());
            out.push(EditorItem::ToolResult {
                id,
                content: None,
                error,
                images: Vec::new(),
            });
        }
    }
}

impl Stream {
    /// The id of the text or thinking of this message: the first event that held any.
    fn id(&mut self, kind: Kind, seq: u64) -> String {
        let id = match kind {
            Kind::Text => &mut self.text_id,
            Kind::Thought => &mut self.thought_id,
        };
        message_id(*id.get_or_insert(seq))
    }

    fn shown(&mut self, kind: Kind) -> &mut usize {
        match kind {
            Kind::Text => &mut self.text_shown,
            Kind::Thought => &mut self.thought_shown,
        }
    }
}

impl Kind {
    fn item(self, message_id: String, text: String) -> EditorItem {
        match self {
            Self::Text => EditorItem::AgentText { message_id, text },
            Self::Thought => EditorItem::AgentThought { message_id, text },
        }
    }
}

fn message_id(seq: u64) -> String {
    format!("m{seq}")
}

fn plain_blocks(text: &str, images: &[ImageRef]) -> Vec<PromptBlock> {
    let text = (!text.is_empty()).then(|| PromptBlock::Text {
        text: text.to_owned(),
    });
    text.into_iter()
        .chain(images.iter().map(|image| PromptBlock::Image {
            image: image.clone(),
        }))
        .collect()
}

/// Within one run of the program only.
fn fingerprint(name: &str, args: &Value) -> u64 {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    args.hash(&mut hasher);
    hasher.finish()
}
