//! The jobs of a session: which run, what of them was collected, and whose end the model
//! has yet to be told.

use std::collections::HashMap;

use serde_json::Value;

use crate::event::{Event, InjectedBy, JobOutcome, Payload, TurnStatus};

/// The tool whose success tells the model of a job's end.
const STOP_TOOL: &str = "job_stop";

/// What a job of the source is in a copy of its session.
pub(crate) const LEFT_BEHIND: &str = "it belongs to the session that this one was copied from";

/// All jobs that the session ever had.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Jobs {
    records: HashMap<String, JobRecord>,
    /// All ids, oldest first.
    order: Vec<String>,
    /// Ids of those that run, oldest first.
    running: Vec<String>,
    /// Ids of those whose end the model has not been told, in the order of their ends.
    untold: Vec<String>,
    /// What results that are not logged yet will hold, by call.
    collecting: HashMap<String, Vec<Collecting>>,
    /// Jobs that calls without a result are stopping, by call.
    stopping: HashMap<String, String>,
    /// As they were before the open turn: a refused turn leaves the model's history with
    /// all that it told (`ACP refusal`).
    before_turn: HashMap<String, (u64, bool)>,
}

/// One job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRecord {
    pub id: String,
    /// The call that started it.
    pub call_id: String,
    pub command: String,
    pub description: Option<String>,
    /// It outlives a clean end of the session.
    pub keep: bool,
    /// Unix milliseconds.
    pub started_at: u64,
    /// None while it runs.
    pub end: Option<JobEnd>,
    /// How many bytes of its output were collected.
    pub cursor: u64,
    /// It was collected to its end, and its id is as unknown as any other.
    pub collected_out: bool,
    /// The model knows of its end.
    pub told: bool,
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobEnd {
    /// Unix milliseconds, when the end was logged.
    pub at: u64,
    pub outcome: JobOutcome,
    /// Milliseconds.
    pub ran_for: u64,
    /// Bytes that it wrote, and of these such that were not kept.
    pub written: u64,
    pub dropped: u64,
}

#[derive(Debug, Clone, PartialEq)]
struct Collecting {
    id: String,
    upto: u64,
    ended: bool,
}

impl Jobs {
    /// Takes the next event of the log.
    pub fn apply(&mut self, event: &Event) {
        match &event.payload {
            Payload::JobStarted {
                id,
                call_id,
                command,
                description,
                keep,
            } => self.start(JobRecord {
                id: id.clone(),
                call_id: call_id.clone(),
                command: command.clone(),
                description: description.clone(),
                keep: *keep,
                started_at: event.at,
                end: None,
                cursor: 0,
                collected_out: false,
                told: false,
            }),
            Payload::JobEnded {
                id,
                outcome,
                ran_for,
                written,
                dropped,
                ..
            } => self.end(
                id,
                JobEnd {
                    at: event.at,
                    outcome: outcome.clone(),
                    ran_for: *ran_for,
                    written: *written,
                    dropped: *dropped,
                },
            ),
            Payload::JobCollected {
                call_id,
                id,
                upto,
                ended,
            } => self
                .collecting
                .entry(call_id.clone())
                .or_default()
                .push(Collecting {
                    id: id.clone(),
                    upto: *upto,
                    ended: *ended,
                }),
            Payload::ToolCall { id, name, args } if name == STOP_TOOL => {
                if let Some(job) = args.get("id").and_then(Value::as_str) {
                    self.stopping.insert(id.clone(), job.to_owned());
                }
            }
            Payload::ToolResult { id, error, .. } => self.result(id, error.is_none()),
            Payload::ContextInjected {
                source: InjectedBy::Jobs,
                ..
            } => {
                for id in std::mem::take(&mut self.untold) {
                    self.tell(&id);
                }
            }
            Payload::TurnStart { .. } => self.before_turn.clear(),
            Payload::TurnEnd { status, .. } => {
                // No result of this turn comes any more.
                self.collecting.clear();
                self.stopping.clear();
                let before = std::mem::take(&mut self.before_turn);
                if *status == TurnStatus::Refused {
                    self.take_back(before);
                }
            }
            // The copy has the log and not the processes.
            Payload::SessionForked { .. } => self.leave_behind(event.at),
            _ => {}
        }
    }

    /// A job that is or was the session's.
    pub fn get(&self, id: &str) -> Option<&JobRecord> {
        self.records.get(id)
    }

    /// All jobs, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &JobRecord> {
        self.order.iter().filter_map(|id| self.records.get(id))
    }

    /// Those that run, oldest first.
    pub fn running(&self) -> impl Iterator<Item = &JobRecord> {
        self.running.iter().filter_map(|id| self.records.get(id))
    }

    /// Those whose end the model has not been told, in the order of their ends.
    pub fn untold(&self) -> impl Iterator<Item = &JobRecord> {
        self.untold.iter().filter_map(|id| self.records.get(id))
    }

    /// Whether the model has all ends been told.
    pub fn all_told(&self) -> bool {
        self.untold.is_empty()
    }

    /// How many bytes of a job's output were collected; 0 for an unknown one.
    pub fn cursor(&self, id: &str) -> u64 {
        self.get(id).map_or(0, |job| job.cursor)
    }

    /// Whether a job was collected to its end.
    pub fn collected_out(&self, id: &str) -> bool {
        self.get(id).is_some_and(|job| job.collected_out)
    }

    /// The jobs that the result of this call, once logged, collects to their ends.
    pub fn collecting_out(&self, call: &str) -> Vec<String> {
        self.collecting
            .get(call)
            .map(|all| {
                all.iter()
                    .filter(|one| one.ended)
                    .map(|one| one.id.clone())
                    .collect()
            })
            .unwrap_or_default()
    }

    fn start(&mut self, record: JobRecord) {
        let id = record.id.clone();
        if self.records.contains_key(&id) {
            return;
        }
        self.order.push(id.clone());
        self.running.push(id.clone());
        self.records.insert(id, record);
    }

    fn end(&mut self, id: &str, end: JobEnd) {
        let Some(record) = self.records.get_mut(id).filter(|job| job.end.is_none()) else {
            return;
        };
        record.end = Some(end);
        self.running.retain(|running| running != id);
        if !record.told {
            self.untold.push(id.to_owned());
        }
    }

    fn result(&mut self, call: &str, ok: bool) {
        for collected in self.collecting.remove(call).unwrap_or_default() {
            // A call that failed, or was cut off, gave the model nothing.
            if !ok {
                continue;
            }
            self.remember(&collected.id);
            let Some(record) = self.records.get_mut(&collected.id) else {
                continue;
            };
            record.cursor = record.cursor.max(collected.upto);
            if collected.ended {
                record.collected_out = true;
                self.untold.retain(|untold| *untold != collected.id);
                self.tell(&collected.id);
            }
        }
        if let Some(job) = self.stopping.remove(call)
            && ok
        {
            self.untold.retain(|untold| *untold != job);
            self.tell(&job);
        }
    }

    fn tell(&mut self, id: &str) {
        self.remember(id);
        if let Some(record) = self.records.get_mut(id) {
            record.told = true;
        }
    }

    /// Keeps what the open turn found, before it changes.
    fn remember(&mut self, id: &str) {
        if let Some(record) = self.records.get(id) {
            self.before_turn
                .entry(id.to_owned())
                .or_insert((record.cursor, record.told));
        }
    }

    /// What the model was told in a turn that it refused, it does not know. A job that was
    /// collected out is gone all the same.
    fn take_back(&mut self, before: HashMap<String, (u64, bool)>) {
        for id in &self.order {
            let Some((cursor, told)) = before.get(id) else {
                continue;
            };
            let Some(record) = self.records.get_mut(id).filter(|job| !job.collected_out) else {
                continue;
            };
            record.cursor = *cursor;
            record.told = *told;
            if !told && record.end.is_some() && !self.untold.contains(id) {
                self.untold.push(id.clone());
            }
        }
    }

    fn leave_behind(&mut self, at: u64) {
        for id in self.running.clone() {
            self.end(
                &id,
                JobEnd {
                    at,
                    outcome: JobOutcome::Lost {
                        reason: LEFT_BEHIND.to_owned(),
                    },
                    ran_for: 0,
                    written: 0,
                    dropped: 0,
                },
            );
        }
    }
}
