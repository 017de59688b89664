//! The session's own layer of rules.

use crate::event::{Event, Payload, RuleEffect};

/// A rule that holds for this session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRule {
    pub id: String,
    /// Its exact text.
    pub rule: String,
    pub effect: RuleEffect,
    pub by: String,
    /// The approval that it came from.
    pub approval: Option<String>,
    /// Unix milliseconds.
    pub added_at: u64,
    /// Unix milliseconds after which it counts for nothing.
    pub expires: Option<u64>,
}

/// Rules added and not removed, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionRules {
    rules: Vec<SessionRule>,
}

impl SessionRules {
    /// Takes the next event of the log.
    pub fn apply(&mut self, event: &Event) {
        match &event.payload {
            Payload::RuleAdded {
                id,
                rule,
                effect,
                by,
                approval,
                expires,
            } => {
                self.rules.retain(|known| known.id != *id);
                self.rules.push(SessionRule {
                    id: id.clone(),
                    rule: rule.clone(),
                    effect: *effect,
                    by: by.clone(),
                    approval: approval.clone(),
                    added_at: event.at,
                    expires: *expires,
                });
            }
            Payload::RuleRemoved { id, .. } => self.rules.retain(|known| known.id != *id),
            _ => {}
        }
    }

    /// The rules that hold, oldest first.
    pub fn rules(&self) -> &[SessionRule] {
        &self.rules
    }

    /// The rules that hold, oldest first.
    pub fn iter(&self) -> std::slice::Iter<'_, SessionRule> {
        self.rules.iter()
    }
}
