//! What waits for a person in the open turn, and what was decided in it.

use serde_json::Value;

use crate::event::{ApprovalStage, Event, FileChange, Payload, Verdict};

/// A request without a verdict.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingApproval {
    /// Number of its `approval/requested` event.
    pub seq: u64,
    /// Unix milliseconds.
    pub requested_at: u64,
    pub id: String,
    pub call_id: String,
    pub name: String,
    pub args: Value,
    /// What is asked for, in one line.
    pub title: String,
    pub reason: String,
    pub preview: Vec<FileChange>,
    pub offered_rule: Option<String>,
    pub stage: ApprovalStage,
}

/// A verdict of the open turn with the call that it was given for.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedVerdict {
    /// Number of its `approval/resolved` event.
    pub seq: u64,
    pub id: String,
    pub call_id: String,
    pub name: String,
    pub args: Value,
    pub stage: ApprovalStage,
    /// What the person was shown.
    pub preview: Vec<FileChange>,
    pub verdict: Verdict,
    pub reason: Option<String>,
    pub by: String,
}

/// Requests and verdicts of the open turn. A turn's end settles them all.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PendingApprovals {
    pending: Vec<PendingApproval>,
    decided: Vec<RecordedVerdict>,
}

impl PendingApprovals {
    /// Takes the next event of the log.
    pub fn apply(&mut self, event: &Event) {
        match &event.payload {
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
                self.pending.push(PendingApproval {
                    seq: event.seq,
                    requested_at: event.at,
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
                verdict,
                reason,
                by,
                ..
            } => {
                let Some(place) = self.pending.iter().position(|request| request.id == *id) else {
                    return;
                };
                let request = self.pending.remove(place);
                self.decided.push(RecordedVerdict {
                    seq: event.seq,
                    id: request.id,
                    call_id: request.call_id,
                    name: request.name,
                    args: request.args,
                    stage: request.stage,
                    preview: request.preview,
                    verdict: *verdict,
                    reason: reason.clone(),
                    by: by.clone(),
                });
            }
            Payload::TurnStart { .. } | Payload::TurnEnd { .. } => {
                self.pending.clear();
                self.decided.clear();
            }
            _ => {}
        }
    }

    /// What waits, oldest first.
    pub fn pending(&self) -> &[PendingApproval] {
        &self.pending
    }

    /// A waiting request by its id.
    pub fn get(&self, id: &str) -> Option<&PendingApproval> {
        self.pending.iter().find(|request| request.id == id)
    }

    /// The waiting request of exactly this call and stage (check 70).
    pub fn pending_for(
        &self,
        call_id: &str,
        name: &str,
        args: &Value,
        stage: ApprovalStage,
    ) -> Option<&PendingApproval> {
        self.pending.iter().find(|request| {
            request.call_id == call_id
                && request.name == name
                && request.args == *args
                && request.stage == stage
        })
    }

    /// The last verdict of the open turn on exactly this call and stage: a resumed call is
    /// not asked again (check 69), and one whose arguments changed since is.
    pub fn verdict_for(
        &self,
        call_id: &str,
        name: &str,
        args: &Value,
        stage: ApprovalStage,
    ) -> Option<&RecordedVerdict> {
        self.decided.iter().rev().find(|known| {
            known.call_id == call_id
                && known.name == name
                && known.args == *args
                && known.stage == stage
        })
    }

    /// True when nothing waits.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }
}
