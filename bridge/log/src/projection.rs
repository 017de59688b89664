//! Pure folds of a session's events. Each takes one event at a time, so nothing is
//! ever read twice and a step costs the same at any length of the log.

mod approvals;
pub mod editor;
mod history;
pub(crate) mod jobs;
mod plan;
mod rules;
mod turn;
mod usage;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::event::{Event, Part, Payload, ToolSchema};
use crate::id::SessionId;

pub use crate::event::Part as HistoryPart;
pub use approvals::{PendingApproval, PendingApprovals, RecordedVerdict};
pub use history::{Digest, History, HistoryMessage, HistoryRole, INTERRUPTED, is_tool_name};
pub use jobs::{JobEnd, JobRecord, Jobs};
pub use plan::{Plan, PlanEntry, PlanStatus};
pub use rules::{SessionRule, SessionRules};
pub use turn::{OpenTurn, OwedCall, TurnState};
pub use usage::UsageTotals;

/// All that the engine needs to know of a session, folded from its log.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SessionState {
    /// From `session/created`.
    pub created: Option<Created>,
    /// Absolute path that the session works in; empty before `session/created`.
    pub cwd: String,
    /// Further folders that it may work in, as last set.
    pub additional_directories: Vec<String>,
    /// The session that this one was forked from.
    pub forked_from: Option<SessionId>,
    /// What a model is sent.
    pub history: History,
    pub plan: Plan,
    pub usage: UsageTotals,
    pub approvals: PendingApprovals,
    pub jobs: Jobs,
    pub rules: SessionRules,
    /// The last choice for each option: `mode`, `model`, `thinking`.
    pub options: BTreeMap<String, String>,
    /// What requests are framed with since the last `request/frame`.
    pub frame: Option<RequestFrame>,
    /// Content hash by absolute path, as last read or written by a call.
    pub seen_files: HashMap<String, String>,
    /// The live set of tool patterns, when one was set.
    pub policy: Option<Vec<String>>,
    pub turn: TurnState,
    pub title: Option<String>,
    /// The text of the first prompt, for a title without a model.
    pub first_user_text: Option<String>,
    /// Ids of all tool calls of the session, so that a repeated one is noticed (G7).
    pub call_ids: HashSet<String>,
    /// Number of the last event.
    pub last_seq: Option<u64>,
    /// Unix milliseconds of the last event.
    pub updated_at: u64,
}

/// How a session began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Created {
    /// Unix milliseconds.
    pub at: u64,
    pub parent_id: Option<SessionId>,
    pub root_id: Option<SessionId>,
    pub depth: u32,
    pub call_id: Option<String>,
}

/// System prompt and tools of the requests that follow (check 29).
#[derive(Debug, Clone, PartialEq)]
pub struct RequestFrame {
    /// SHA-256 over fields, each as its length (u64, little endian) and its bytes: the
    /// system prompt, then each tool's name, description and parameters as compact JSON.
    pub digest: Digest,
    pub content: Arc<FrameContent>,
}

/// The frame itself.
#[derive(Debug, Clone, PartialEq)]
pub struct FrameContent {
    pub system: String,
    pub tools: Vec<ToolSchema>,
}

impl RequestFrame {
    /// A frame with its digest.
    pub fn new(system: String, tools: Vec<ToolSchema>) -> Self {
        let mut fields = FieldHasher::default();
        fields.add(&system);
        for tool in &tools {
            fields.add(&tool.name);
            fields.add(&tool.description);
            fields.add(&tool.parameters.to_string());
        }
        Self {
            digest: fields.finish(),
            content: Arc::new(FrameContent { system, tools }),
        }
    }
}

impl SessionState {
    /// Takes the next event of the log.
    pub fn apply(&mut self, event: &Event) {
        self.last_seq = Some(event.seq);
        self.updated_at = event.at;
        self.history.apply(event);
        self.plan.apply(event);
        self.usage.apply(event);
        self.approvals.apply(event);
        self.jobs.apply(event);
        self.rules.apply(event);
        self.turn.apply(event);
        self.apply_own(event);
    }

    fn apply_own(&mut self, event: &Event) {
        match &event.payload {
            Payload::SessionCreated {
                parent_id,
                root_id,
                depth,
                call_id,
                cwd,
                additional_directories,
            } => {
                self.created = Some(Created {
                    at: event.at,
                    parent_id: parent_id.clone(),
                    root_id: root_id.clone(),
                    depth: *depth,
                    call_id: call_id.clone(),
                });
                self.cwd.clone_from(cwd);
                self.additional_directories
                    .clone_from(additional_directories);
            }
            Payload::RootsSet {
                additional_directories,
            } => {
                self.additional_directories
                    .clone_from(additional_directories);
            }
            Payload::SessionForked { from, .. } => self.forked_from = Some(from.clone()),
            Payload::UserMessage { text, .. } if self.first_user_text.is_none() => {
                self.first_user_text = Some(text.clone());
            }
            Payload::SessionTitled { title } => self.title = Some(title.clone()),
            Payload::OptionSet { option, value, .. } => {
                self.options.insert(option.clone(), value.clone());
            }
            Payload::RequestFrame { system, tools } => {
                self.frame = Some(RequestFrame::new(system.clone(), tools.clone()));
            }
            Payload::FileSeen { path, hash, .. } => {
                self.seen_files.insert(path.clone(), hash.clone());
            }
            Payload::FileChanged { change, .. } => match &change.after {
                Some(after) => {
                    self.seen_files
                        .insert(change.path.clone(), after.as_str().to_owned());
                }
                None => {
                    self.seen_files.remove(&change.path);
                }
            },
            Payload::PolicyUpdated { patterns } => self.policy = Some(patterns.clone()),
            Payload::AssistantMessage { parts, .. } => {
                for part in parts {
                    if let Part::ToolCall { id, .. } = part {
                        self.call_ids.insert(id.clone());
                    }
                }
            }
            Payload::ToolCall { id, .. } if !self.call_ids.contains(id) => {
                self.call_ids.insert(id.clone());
            }
            _ => {}
        }
    }

    /// The number that the next event gets.
    pub fn next_seq(&self) -> u64 {
        self.last_seq.map_or(0, |last| last + 1)
    }

    /// The session that this one comes from: the source of its last fork, or the one
    /// that delegated it (`Terret spec §1.13`, check 14).
    pub fn parent(&self) -> Option<&SessionId> {
        self.forked_from.as_ref().or_else(|| {
            self.created
                .as_ref()
                .and_then(|created| created.parent_id.as_ref())
        })
    }
}

/// Hashes fields so that no two rows of fields render alike.
#[derive(Default)]
pub(crate) struct FieldHasher(Sha256);

impl FieldHasher {
    pub(crate) fn add(&mut self, text: &str) {
        self.0.update((text.len() as u64).to_le_bytes());
        self.0.update(text.as_bytes());
    }

    pub(crate) fn finish(self) -> Digest {
        self.0.finalize().into()
    }
}
