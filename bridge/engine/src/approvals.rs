//! Durable approvals: written before anyone is asked, decided once, by whoever is first.
//!
//! A waiting call holds nothing but a channel; the request is the event in the log, so
//! a lost editor, a second face or a restart changes nothing about it
//! (`design.md §4 Approvals`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use terret_log::{ApprovalStage, FileChange, Payload, PendingApproval, RuleEffect, Verdict};
use terret_tools::call::{Answer, Approver, Fault, Question, Stage};
use terret_tools::gate::Decision as Gate;
use terret_tools::mode::Mode;
use terret_tools::pipeline::Pipeline;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::core::Core;
use crate::error::ApprovalError;
use crate::policy::SessionPolicy;
use crate::status::AgentStatus;

/// The words of the seed for a denial without a reason (`Terret spec §2.4`).
const NO_REASON: &str = "no reason given";

/// Who takes back a request whose preview no longer holds.
const CHANGED: &str = "changed";

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
    tickets: u64,
    /// Whether a person can be asked at all.
    attended: bool,
}

struct Parked {
    question: Question,
    answer: oneshot::Sender<Answer>,
    /// Tells this wait from a later one for the same request.
    ticket: u64,
}

/// A call's place among those that wait. Dropping it gives the place up, however the
/// wait ended: a call that nobody waits for any more must not look as if it waited.
struct Place<'a> {
    approvals: &'a Approvals,
    id: String,
    ticket: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut waiting = self.approvals.lock();
        if waiting
            .calls
            .get(&self.id)
            .is_some_and(|parked| parked.ticket == self.ticket)
        {
            waiting.calls.remove(&self.id);
        }
        // Under the lock: a sibling that parks now would set its status before this one.
        if waiting.calls.is_empty() {
            self.approvals.core.change_status(|status| match status {
                AgentStatus::WaitingApproval => AgentStatus::Running,
                other => other,
            });
        }
    }
}

/// Stands where a pipeline only judges and never asks.
pub(crate) struct NobodyAsked;

#[async_trait]
impl Approver for NobodyAsked {
    async fn ask(&self, _question: Question, _cancel: &CancellationToken) -> Result<Answer, Fault> {
        Ok(Answer::Cancelled)
    }
}

enum Parking<'a> {
    Waits {
        place: Place<'a>,
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

    /// Decides a waiting approval. The verdict is logged before the call goes on; one that
    /// cannot be logged decides nothing, and the call waits on.
    pub(crate) fn decide(
        &self,
        id: &str,
        decision: Decision,
        by: &str,
    ) -> Result<(), ApprovalError> {
        let mut waiting = self.lock();
        let Some(parked) = waiting.calls.get(id) else {
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
        self.settle(&mut waiting, id, verdict, answer, reason, by)
            .map_err(|fault| ApprovalError::Fault(fault.0))?;
        drop(waiting);
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
            approval: None,
            expires: None,
        })?;
        self.policy.refresh();
        self.settle_covered(&format!("rule:r{id}"))
    }

    /// Settles every waiting request that the policy now lets run.
    pub(crate) fn settle_covered(&self, by: &str) -> Result<(), Fault> {
        let mut waiting = self.lock();
        let mut covered: Vec<(u64, String)> = waiting
            .calls
            .iter()
            .filter(|(_, parked)| self.runs_now(&parked.question))
            .map(|(id, parked)| (parked.ticket, id.clone()))
            .collect();
        // In the order in which they were asked.
        covered.sort();
        for (_, id) in covered {
            let (verdict, answer) = (Verdict::Approved, Answer::Approved);
            self.settle(&mut waiting, &id, verdict, answer, None, by)?;
        }
        Ok(())
    }

    /// Whether the policy lets a call run that waits. What lets the call run says nothing
    /// of more reach for it; that is a person's alone, or of the mode that asks nobody.
    fn runs_now(&self, question: &Question) -> bool {
        match question.stage {
            Stage::Call => self.judge.decision(&question.call) == Some(Gate::Run),
            Stage::Escalation => self.judge.current_policy().mode == Mode::Bypass,
        }
    }

    /// Logs the verdict of a call that waits, and wakes it. Nothing happens when it does
    /// not wait any more: whoever was first has logged one.
    fn settle(
        &self,
        waiting: &mut Waiting,
        id: &str,
        verdict: Verdict,
        answer: Answer,
        reason: Option<String>,
        by: &str,
    ) -> Result<(), Fault> {
        let Some(parked) = waiting.calls.get(id) else {
            return Ok(());
        };
        self.core.append(Payload::ApprovalResolved {
            id: id.to_owned(),
            call_id: parked.question.call.id.clone(),
            verdict,
            reason,
            by: by.to_owned(),
            scope: None,
        })?;
        if let Some(parked) = waiting.calls.remove(id) {
            // The call may have been given up meanwhile; its verdict is logged all the same.
            let _gone = parked.answer.send(answer);
        }
        Ok(())
    }

    /// Forgets who waits: the turn is gone and left open. Its requests stand in the log,
    /// to be asked again when it is resumed.
    pub(crate) fn forget(&self) {
        self.lock().calls.clear();
    }

    /// Resolves as cancelled every request of the open turn that `stale` picks, so that no
    /// question stands in the log, or before a person, that nothing waits for.
    pub(crate) fn withdraw(
        &self,
        stale: impl Fn(&PendingApproval) -> bool,
        by: &str,
    ) -> Result<(), Fault> {
        let mut waiting = self.lock();
        let found: Vec<(String, String)> = self.core.state(|state| {
            let pending = state.approvals.pending().iter();
            pending
                .filter(|request| stale(request))
                .map(|request| (request.id.clone(), request.call_id.clone()))
                .collect()
        });
        for (id, call_id) in found {
            self.core.append(Payload::ApprovalResolved {
                id: id.clone(),
                call_id,
                verdict: Verdict::Cancelled,
                reason: None,
                by: by.to_owned(),
                scope: None,
            })?;
            if let Some(parked) = waiting.calls.remove(&id) {
                let _gone = parked.answer.send(Answer::Cancelled);
            }
        }
        Ok(())
    }

    /// Writes the request and registers the waiting call as one act, so that a verdict
    /// which follows at once finds it (check 99).
    fn park(&self, question: Question, preview: Vec<FileChange>) -> Result<Parking<'_>, Fault> {
        let mut waiting = self.lock();
        let args = question.call.args.clone().unwrap_or_default();
        let stage = logged(question.stage);
        let (name, stored) = self.as_stored(&question.call.name, &args);
        // After a restart the request may stand in the log already (check 70).
        let standing = self.core.state(|state| {
            state
                .approvals
                .pending_for(&question.call.id, &name, &stored, stage)
                .map(|found| (found.id.clone(), found.preview == preview))
        });
        let standing = match standing {
            Some((id, true)) => Some(id),
            // The file is another one by now: nobody may decide by what it was.
            Some((id, false)) => {
                self.core.append(Payload::ApprovalResolved {
                    id,
                    call_id: question.call.id.clone(),
                    verdict: Verdict::Cancelled,
                    reason: None,
                    by: CHANGED.to_owned(),
                    scope: None,
                })?;
                None
            }
            None => None,
        };
        if waiting.attended {
            // Before the event, so that whoever sees the request sees the status too.
            self.core.change_status(|status| match status {
                AgentStatus::Stopping => AgentStatus::Stopping,
                _ => AgentStatus::WaitingApproval,
            });
        }
        let id = match standing {
            Some(id) => id,
            None => {
                let event = self.core.append_with(|state| Payload::ApprovalRequested {
                    id: format!("a{}", state.next_seq()),
                    call_id: question.call.id.clone(),
                    name: question.call.name.clone(),
                    args,
                    title: question.title.clone(),
                    reason: question.reason.clone(),
                    preview,
                    offered_rule: question.offered_rule.clone(),
                    stage,
                })?;
                format!("a{}", event.seq)
            }
        };
        if !waiting.attended {
            let way_out = match question.stage {
                Stage::Call => "allow it by a rule, another mode, or a run with `--ask`",
                Stage::Escalation => "a run with `--ask` can ask",
            };
            let reason = format!(
                "nobody can be asked in a headless run; {way_out} ({})",
                question.reason
            );
            self.core.append(Payload::ApprovalResolved {
                id,
                call_id: question.call.id,
                verdict: Verdict::Denied,
                reason: Some(reason.clone()),
                by: "nobody".to_owned(),
                scope: None,
            })?;
            return Ok(Parking::NobodyToAsk { reason });
        }
        let (sender, answer) = oneshot::channel();
        waiting.tickets += 1;
        let ticket = waiting.tickets;
        let parked = Parked {
            question,
            answer: sender,
            ticket,
        };
        waiting.calls.insert(id.clone(), parked);
        let place = Place {
            approvals: self,
            id,
            ticket,
        };
        Ok(Parking::Waits { place, answer })
    }

    /// The verdict that the open turn already holds for exactly this call, from before a
    /// restart (check 93). A yes holds for what was shown with it and for nothing else.
    fn recorded(&self, question: &Question, preview: &[FileChange]) -> Option<Answer> {
        let args = question.call.args.as_ref().ok()?;
        let (name, args) = self.as_stored(&question.call.name, args);
        self.core.state(|state| {
            let found = state.approvals.verdict_for(
                &question.call.id,
                &name,
                &args,
                logged(question.stage),
            )?;
            Some(match found.verdict {
                Verdict::Approved if found.preview != preview => return None,
                // Taken back unasked, since what it showed had changed.
                Verdict::Cancelled if found.by == CHANGED => return None,
                Verdict::Approved => Answer::Approved,
                Verdict::Denied => Answer::Denied {
                    reason: found.reason.clone().unwrap_or_else(|| NO_REASON.to_owned()),
                },
                Verdict::Cancelled => Answer::Cancelled,
            })
        })
    }

    /// A call's name and arguments as the log holds them: without secrets (check 96).
    fn as_stored(&self, name: &str, args: &serde_json::Value) -> (String, serde_json::Value) {
        let scrubber = self.core.scrubber();
        (scrubber.text(name).into_owned(), scrubber.value(args))
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
        let preview = self.store_preview(&question).await?;
        if let Some(answer) = self.recorded(&question, &preview) {
            return Ok(answer);
        }
        let (place, receiver) = match self.park(question, preview)? {
            Parking::Waits { place, answer } => (place, answer),
            Parking::NobodyToAsk { reason } => return Ok(Answer::Denied { reason }),
        };
        let answer = tokio::select! {
            biased;
            answer = receiver => answer.unwrap_or(Answer::Cancelled),
            () = cancel.cancelled() => {
                let (verdict, answer) = (Verdict::Cancelled, Answer::Cancelled);
                self.settle(&mut self.lock(), &place.id, verdict, answer, None, "cancel")?;
                Answer::Cancelled
            }
        };
        drop(place);
        if matches!(answer, Answer::Approved) {
            self.core.syncer().sync().await.map_err(|error| {
                Fault(format!("the verdict could not be made durable: {error}"))
            })?;
        }
        Ok(answer)
    }
}

/// A stage as the log names it.
fn logged(stage: Stage) -> ApprovalStage {
    match stage {
        Stage::Call => ApprovalStage::Call,
        Stage::Escalation => ApprovalStage::Escalation,
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
        // As the log will hold it, so that a preview can be compared with a recorded one.
        path: core
            .scrubber()
            .place(&change.path.to_string_lossy())
            .into_owned(),
        before: keep(&change.before)?,
        after: keep(&change.after)?,
    })
}
