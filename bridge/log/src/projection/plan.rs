//! The session's own list of tasks: what the last successful `TodoWrite` said.

use std::collections::HashMap;

use serde_json::Value;

use crate::event::{Event, Part, Payload};

/// The tool whose arguments are the plan.
const PLAN_TOOL: &str = "TodoWrite";

/// The list as it stands.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    entries: Vec<PlanEntry>,
    /// Lists that were asked for and have no result yet, by call.
    asked: HashMap<String, Vec<Wanted>>,
    next_id: u64,
}

/// One task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanEntry {
    /// Stays with the task while its text or state changes.
    pub id: String,
    pub content: String,
    pub status: PlanStatus,
    /// The text for while it is worked on.
    pub active_form: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanStatus {
    Pending,
    InProgress,
    Completed,
}

#[derive(Debug, Clone, PartialEq)]
struct Wanted {
    content: String,
    status: PlanStatus,
    active_form: String,
}

impl Plan {
    /// Takes the next event of the log. True when the list changed.
    pub fn apply(&mut self, event: &Event) -> bool {
        match &event.payload {
            Payload::AssistantMessage { parts, .. } => {
                for part in parts {
                    if let Part::ToolCall { id, name, args } = part {
                        self.ask(id, name, args);
                    }
                }
                false
            }
            // What ran may differ from what the model said, and what ran counts.
            Payload::ToolCall { id, name, args } => {
                self.ask(id, name, args);
                false
            }
            Payload::ToolResult { id, error, .. } => match self.asked.remove(id) {
                Some(wanted) if error.is_none() => self.replace(wanted),
                _ => false,
            },
            Payload::TurnEnd { .. } => {
                self.asked.clear();
                false
            }
            Payload::PlanCleared { .. } => self.clear(),
            // A plan that is done has had its last showing (R084).
            Payload::UserMessage { .. } if self.open_count() == 0 => self.clear(),
            _ => false,
        }
    }

    /// The tasks in order.
    pub fn entries(&self) -> &[PlanEntry] {
        &self.entries
    }

    /// How many tasks are not completed.
    pub fn open_count(&self) -> usize {
        self.entries
            .iter()
            .filter(|entry| entry.status != PlanStatus::Completed)
            .count()
    }

    /// True when there is no task.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn ask(&mut self, id: &str, name: &str, args: &Value) {
        if name != PLAN_TOOL {
            return;
        }
        match wanted(args) {
            Some(list) => self.asked.insert(id.to_owned(), list),
            None => self.asked.remove(id),
        };
    }

    fn clear(&mut self) -> bool {
        let changed = !self.entries.is_empty();
        self.entries.clear();
        changed
    }

    /// An entry keeps the id of the one with equal text, or else of the one in its
    /// place when that text is gone: it was reworded.
    fn replace(&mut self, wanted: Vec<Wanted>) -> bool {
        let mut old: Vec<Option<PlanEntry>> = std::mem::take(&mut self.entries)
            .into_iter()
            .map(Some)
            .collect();
        let before: Vec<Option<PlanEntry>> = old.clone();
        let mut by_text: HashMap<String, Vec<usize>> = HashMap::new();
        for (place, entry) in old.iter().enumerate().rev() {
            if let Some(entry) = entry {
                by_text
                    .entry(entry.content.clone())
                    .or_default()
                    .push(place);
            }
        }
        let mut ids: Vec<Option<String>> = wanted
            .iter()
            .map(|task| {
                let place = by_text.get_mut(&task.content)?.pop()?;
                old.get_mut(place)?.take().map(|entry| entry.id)
            })
            .collect();
        for (place, id) in ids.iter_mut().enumerate() {
            if id.is_none() {
                *id = old
                    .get_mut(place)
                    .and_then(Option::take)
                    .map(|entry| entry.id);
            }
        }
        for (task, id) in wanted.into_iter().zip(ids) {
            let id = id.unwrap_or_else(|| {
                self.next_id += 1;
                format!("t{}", self.next_id)
            });
            let Wanted {
                content,
                status,
                active_form,
            } = task;
            self.entries.push(PlanEntry {
                id,
                content,
                status,
                active_form,
            });
        }
        before.len() != self.entries.len()
            || before
                .iter()
                .flatten()
                .zip(&self.entries)
                .any(|(old, new)| old != new)
    }
}

/// The list in the arguments; nothing when they are not one.
fn wanted(args: &Value) -> Option<Vec<Wanted>> {
    args.get("todos")?
        .as_array()?
        .iter()
        .map(|task| {
            let text = |key: &str| task.get(key)?.as_str();
            let content = text("content")?;
            let status = match text("status")? {
                "pending" => PlanStatus::Pending,
                "in_progress" => PlanStatus::InProgress,
                "completed" => PlanStatus::Completed,
                _ => return None,
            };
            let active_form = text("activeForm").unwrap_or(content);
            Some(Wanted {
                content: content.to_owned(),
                status,
                active_form: active_form.to_owned(),
            })
        })
        .collect()
}
