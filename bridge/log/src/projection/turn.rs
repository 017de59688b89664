//! Where the session stands in its turn: what a resume has to know (`Terret spec §1.8`).

use std::collections::HashSet;

use serde_json::Value;

use crate::event::{Event, Part, Payload, TurnStatus};

/// The open turn, if any, and how many there were.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TurnState {
    /// A `turn/start` without its `turn/end`.
    pub open: Option<OpenTurn>,
    /// Turns begun in this session.
    pub turns: u64,
    /// How the last closed turn ended.
    pub last_status: Option<TurnStatus>,
}

/// A turn that has not ended.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenTurn {
    /// Number of its `turn/start` event.
    pub start_seq: u64,
    pub agent: String,
    /// Steps begun in this turn; numbering goes on behind it after a crash.
    pub steps: u32,
    /// The last step has no `step/end` yet.
    pub step_open: bool,
    /// An assistant message is there for the last step begun.
    pub step_answered: bool,
    /// Calls of the last assistant message without a result, in its order. The message
    /// is the truth, not `tool/call`.
    pub owed: Vec<OwedCall>,
    /// Ids of calls with a `tool/started` in this turn.
    pub started: HashSet<String>,
}

/// A call whose result is owed.
#[derive(Debug, Clone, PartialEq)]
pub struct OwedCall {
    pub id: String,
    pub name: String,
    pub args: Value,
    /// Its `tool/call` is in the log.
    pub announced: bool,
    /// Its `tool/started` is in the log: the effect may have begun (check 30).
    pub started: bool,
}

impl TurnState {
    /// True while a turn has no end.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Calls of the open turn without a result.
    pub fn owed_calls(&self) -> &[OwedCall] {
        self.open.as_ref().map_or(&[], |open| &open.owed)
    }

    /// Takes the next event of the log.
    pub fn apply(&mut self, event: &Event) {
        match &event.payload {
            Payload::TurnStart { agent } => {
                self.turns += 1;
                self.open = Some(OpenTurn {
                    start_seq: event.seq,
                    agent: agent.clone(),
                    steps: 0,
                    step_open: false,
                    step_answered: false,
                    owed: Vec::new(),
                    started: HashSet::new(),
                });
            }
            Payload::TurnEnd { status, .. } => {
                self.open = None;
                self.last_status = Some(*status);
            }
            payload => {
                if let Some(open) = &mut self.open {
                    open.apply(payload);
                }
            }
        }
    }
}

impl OpenTurn {
    fn apply(&mut self, payload: &Payload) {
        match payload {
            Payload::StepStart { .. } => {
                self.steps += 1;
                self.step_open = true;
                self.step_answered = false;
            }
            Payload::StepEnd { .. } => self.step_open = false,
            Payload::AssistantMessage { parts, .. } => {
                self.step_answered = true;
                self.owed = parts
                    .iter()
                    .filter_map(|part| match part {
                        Part::ToolCall { id, name, args } => Some(OwedCall {
                            id: id.clone(),
                            name: name.clone(),
                            args: args.clone(),
                            announced: false,
                            started: false,
                        }),
                        _ => None,
                    })
                    .collect();
            }
            // Calls of one message may carry equal ids, so each event marks one (check 77).
            Payload::ToolCall { id, .. } => {
                if let Some(call) = self
                    .owed
                    .iter_mut()
                    .find(|call| call.id == *id && !call.announced)
                {
                    call.announced = true;
                }
            }
            Payload::ToolStarted { id, .. } => {
                self.started.insert(id.clone());
                if let Some(call) = self
                    .owed
                    .iter_mut()
                    .find(|call| call.id == *id && !call.started)
                {
                    call.started = true;
                }
            }
            Payload::ToolResult { id, .. } => {
                if let Some(place) = self.owed.iter().position(|call| call.id == *id) {
                    self.owed.remove(place);
                }
            }
            _ => {}
        }
    }
}
