//! Durable approvals: written before anyone is asked, decided once, by whoever is first.
//!
//! A waiting call holds nothing but a channel; the request is the event in the log, so
//! a lost editor, a second face or a restart changes nothing about it
//! (`design.md §4 Approvals`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use terret_log::{FileChange, Payload, RuleEffect, Verdict};
use terret_tools::call::{Answer, Approver, Fault, Question};
use terret_tools::gate::Decision as Gate;
use terret_tools::pipeline::Pipeline;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::core::Core;
use crate::error::ApprovalError;
use crate::policy::SessionPolicy;
use crate::status::AgentStatus;

/// The words of the seed for a denial without a reason (`Terret spec §2.4`).
const NO_REASON: &str = "no reason given";

/// What a person decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// This call, once.
    AllowOnce,
    /// This call, and what its offered rule covers for the rest of the session.
    AllowForSession,
    Reject {
        reason: Option<String>,
    },
    /// The face gave the question up; the turn is being cancelled.
    Cancelled,
}

pub(crate) struct Approvals {
    core: Arc<Core>,
    policy: Arc<SessionPolicy>,
    /// Tells what the gate says of a waiting call now.
    judge: Pipeline,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    calls: HashMap<String, Parked>,
    /// Whether a person can be asked at all.
    attended: bool,
}

struct Parked {
    question: Question,
    answer: oneshot::Sender<Answer>,
}

/// Stands where a pipeline only judges and never asks.
pub(crate) struct NobodyAsked;

#[async_trait]
impl Approver for NobodyAsked {
    async fn ask(&self, _question: Question, _cancel: &CancellationToken) -> Result<Answer, Fault> {
        Ok(Answer::Cancelled)
    }
}

enum Parking {
    Waits {
        id: String,
        answer: oneshot::Receiver<Answer>,
    },
    NobodyToAsk {
        reason: String,
    },
}

impl Approvals {
    /// `judge` is the session's pipeline with [`NobodyAsked`] in the place of this.
    pub(crate) fn new(core: Arc<Core>, policy: Arc<SessionPolicy>, judge: Pipeline) -> Self {
        Self {
            core,
            policy,
            judge,
            waiting: Mutex::default(),
        }
    }

    /// Says whether a person can be asked: an editor is attached, or the inbox is read.
    pub(crate) fn set_attended(&self, attended: bool) {
        self.lock().attended = attended;
    }

    pub(crate) fn attended(&self) -> bool {
        self.lock().attended
    }

    /// Decides a waiting approval. The verdict is logged before the call goes on.
    pub(crate) fn decide(
        &self,
        id: &str,
        decision: Decision,
        by: &str,
    ) -> Result<(), ApprovalError> {
        let Some(parked) = self.lock().calls.remove(id) else {
            return Err(ApprovalError::NotWaiting(id.to_owned()));
        };
        let offered = parked.question.offered_rule.clone();
        let allow_rule = match (&decision, offered) {
            (Decision::AllowForSession, Some(rule)) => Some(rule),
            _ => None,
        };
        let (verdict, answer, reason) = match decision {
            Decision::AllowOnce | Decision::AllowForSession => {
                (Verdict::Approved, Answer::Approved, None)
            }
            Decision::Reject { reason } => {
                let text = reason.clone().unwrap_or_else(|| NO_REASON.to_owned());
                (Verdict::Denied, Answer::Denied { reason: text }, reason)
            }
            Decision::Cancelled => (Verdict::Cancelled, Answer::Cancelled, None),
        };
        self.settle(id, parked, verdict, answer, reason, by)
            .map_err(|fault| ApprovalError::Fault(fault.0))?;
        if let Some(rule) = allow_rule {
            self.grant(&rule, by)
                .map_err(|fault| ApprovalError::Fault(fault.0))?;
        }
        Ok(())
    }

    /// Adds an allow rule to the session and settles every waiting request it covers,
    /// each with a verdict of its own.
    fn grant(&self, rule: &str, by: &str) -> Result<(), Fault> {
        let id = self.core.next_seq().to_string();
        self.core.append(Payload::RuleAdded {
            id: format!("r{id}"),
            rule: rule.to_owned(),
            effect: RuleEffect::Allow,
            by: by.to_owned(),
        })?;
        self.policy.refresh();
        self.settle_covered(&format!("rule:r{id}"))
    }

    /// Settles every waiting request that the policy now lets run.
    pub(crate) fn settle_covered(&self, by: &str) -> Result<(), Fault> {
        let covered: Vec<(String, Parked)> = {
            let mut waiting = self.lock();
            let ids: Vec<String> = waiting
                .calls
                .iter()
                .filter(|(_, parked)| self.judge.decision(&parked.question.call) == Some(Gate::Run))
                .map(|(id, _)| id.clone())
                .collect();
            ids.into_iter()
                .filter_map(|id| waiting.calls.remove_entry(&id))
                .collect()
        };
        for (id, parked) in covered {
            self.settle(&id, parked, Verdict::Approved, Answer::Approved, None, by)?;
        }
        Ok(())
    }

    fn settle(
        &self,
        id: &str,
        parked: Parked,
        verdict: Verdict,
        answer: Answer,
        reason: Option<String>,
        by: &str,
    ) -> Result<(), Fault> {
        self.core.append(Payload::ApprovalResolved {
            id: id.to_owned(),
            call_id: parked.question.call.id.clone(),
            verdict,
            reason,
            by: by.to_owned(),
        })?;
        // The call may have been cancelled meanwhile; its verdict is logged all the same.
        let _gone = parked.answer.send(answer);
        Ok(())
    }

    /// Writes the request and registers the waiting call as one act, so that a verdict
    /// which follows at once finds it (check 99).
    fn park(&self, question: Question, preview: Vec<FileChange>) -> Result<Parking, Fault> {
        let mut waiting = self.lock();
        let args = question.call.args.clone().unwrap_or_default();
        // After a restart the request may stand in the log already (check 70).
        let standing = self.core.state(|state| {
            state
                .approvals
                .pending_for(&question.call.id, &question.call.name, &args)
                .map(|found| found.id.clone())
        });
        if waiting.attended {
            // Before the event, so that whoever sees the request sees the status too.
            self.core.change_status(|status| match status {
                AgentStatus::Stopping => AgentStatus::Stopping,
                _ => AgentStatus::WaitingApproval,
            });
        }
        if let (Some(id), true) = (standing, waiting.attended) {
            let (sender, answer) = oneshot::channel();
            waiting.calls.insert(
                id.clone(),
                Parked {
                    question,
                    answer: sender,
                },
            );
            return Ok(Parking::Waits { id, answer });
        }
        let event = self.core.append_with(|state| Payload::ApprovalRequested {
            id: format!("a{}", state.next_seq()),
            call_id: question.call.id.clone(),
            name: question.call.name.clone(),
            args,
            title: question.title.clone(),
            reason: question.reason.clone(),
            preview,
            offered_rule: question.offered_rule.clone(),
        })?;
        let id = format!("a{}", event.seq);
        if !waiting.attended {
            let reason = format!(
                "nobody can be asked in a headless run; allow it by a rule or another mode ({})",
                question.reason
            );
            self.core.append(Payload::ApprovalResolved {
                id,
                call_id: question.call.id,
                verdict: Verdict::Denied,
                reason: Some(reason.clone()),
                by: "nobody".to_owned(),
            })?;
            return Ok(Parking::NobodyToAsk { reason });
        }
        let (sender, answer) = oneshot::channel();
        waiting.calls.insert(
            id.clone(),
            Parked {
                question,
                answer: sender,
            },
        );
        Ok(Parking::Waits { id, answer })
    }

    /// The verdict that the open turn already holds for exactly this call, from before a
    /// restart (check 93).
    fn recorded(&self, question: &Question) -> Option<Answer> {
        let args = question.call.args.as_ref().ok()?;
        self.core.state(|state| {
            let found =
                state
                    .approvals
                    .verdict_for(&question.call.id, &question.call.name, args)?;
            Some(match found.verdict {
                Verdict::Approved => Answer::Approved,
                Verdict::Denied => Answer::Denied {
                    reason: found.reason.clone().unwrap_or_else(|| NO_REASON.to_owned()),
                },
                Verdict::Cancelled => Answer::Cancelled,
            })
        })
    }

    /// Keeps both sides of what would change, off the runtime.
    async fn store_preview(&self, question: &Question) -> Result<Vec<FileChange>, Fault> {
        if question.preview.is_empty() {
            return Ok(Vec::new());
        }
        let (core, changes) = (Arc::clone(&self.core), question.preview.clone());
        tokio::task::spawn_blocking(move || {
            changes
                .iter()
                .map(|change| stored_change(&core, change))
                .collect()
        })
        .await
        .map_err(|error| Fault(format!("keeping a preview was interrupted: {error}")))?
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Approver for Approvals {
    async fn ask(&self, question: Question, cancel: &CancellationToken) -> Result<Answer, Fault> {
        if cancel.is_cancelled() {
            return Ok(Answer::Cancelled);
        }
        if let Some(answer) = self.recorded(&question) {
            return Ok(answer);
        }
        let preview = self.store_preview(&question).await?;
        let (id, receiver) = match self.park(question, preview)? {
            Parking::Waits { id, answer } => (id, answer),
            Parking::NobodyToAsk { reason } => return Ok(Answer::Denied { reason }),
        };
        let answer = tokio::select! {
            biased;
            answer = receiver => answer.unwrap_or(Answer::Cancelled),
            () = cancel.cancelled() => {
                // Whoever takes the entry out writes the verdict, so there is one.
                let parked = self.lock().calls.remove(&id);
                if let Some(parked) = parked {
                    self.settle(&id, parked, Verdict::Cancelled, Answer::Cancelled, None, "cancel")?;
                }
                Answer::Cancelled
            }
        };
        let others = !self.lock().calls.is_empty();
        self.core.change_status(|status| match status {
            AgentStatus::WaitingApproval if !others => AgentStatus::Running,
            other => other,
        });
        if matches!(answer, Answer::Approved) {
            self.core.syncer().sync().await.map_err(|error| {
                Fault(format!("the verdict could not be made durable: {error}"))
            })?;
        }
        Ok(answer)
    }
}

/// Keeps both sides of a change as blobs.
pub(crate) fn stored_change(
    core: &Core,
    change: &terret_tools::call::FileChange,
) -> Result<FileChange, Fault> {
    let blobs = core.store().blobs();
    let keep = |side: &Option<Arc<[u8]>>| {
        side.as_ref()
            .map(|bytes| blobs.put(bytes))
            .transpose()
            .map_err(|error| Fault(format!("a file's content could not be kept: {error}")))
    };
    Ok(FileChange {
        path: change.path.to_string_lossy().into_owned(),
        before: keep(&change.before)?,
        after: keep(&change.after)?,
    })
}
