//! Durable approvals: written before anyone is asked, decided once, by whoever is first.
//!
//! A waiting call holds nothing but a channel; the request is the event in the log, so
//! a lost editor, a second face or a restart changes nothing about it
//! (`design.md §4 Approvals`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use terret_log::{
    ApprovalStage, FileChange, GrantScope, Payload, PendingApproval, RuleEffect, Severity, Verdict,
};
use terret_tools::call::{Answer, Approver, Fault, Question, Stage};
use terret_tools::gate::{Decider, Decision as Gate};
use terret_tools::mode::Mode;
use terret_tools::pipeline::Pipeline;
use terret_tools::rules::Effect;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::core::Core;
use crate::error::ApprovalError;
use crate::grants::StoredRule;
use crate::notify::Notifier;
use crate::policy::SessionPolicy;
use crate::settings::Unattended;
use crate::status::AgentStatus;

/// The words of the seed for a denial without a reason (`Terret spec §2.4`).
const NO_REASON: &str = "no reason given";

/// Who takes back a request whose preview no longer holds.
const CHANGED: &str = "changed";

/// Who approves where nobody can be asked and the run says so.
const BY_POLICY: &str = "permission-policy";

/// What the model is told of a call that was refused by somebody who has more to say.
const WILL_SAY_WHY: &str = "the user refuses this call and says why in the next prompt";

/// The modes that a yes to a plan may lead to, the more careful first.
pub const AFTER_PLAN: [Mode; 2] = [Mode::Ask, Mode::Edits];

/// What a person decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// This call, once. A plan is begun in the first mode of [`AFTER_PLAN`].
    AllowOnce,
    /// This call, and what its offered rule covers from now on, as far as this.
    AllowAlways(GrantScope),
    /// The plan is begun in this mode; as [`Self::AllowOnce`] for any other question.
    LeavePlan(Mode),
    Reject {
        reason: Option<String>,
    },
    /// This call is refused and its turn ends: the next prompt says why.
    RejectAndWait,
    /// The face gave the question up; the turn is being cancelled.
    Cancelled,
}

pub(crate) struct Approvals {
    core: Arc<Core>,
    policy: Arc<SessionPolicy>,
    /// Tells what the gate says of a waiting call now.
    judge: Pipeline,
    notifier: Notifier,
    waiting: Mutex<Waiting>,
    /// Writes granted rules down.
    writes: TaskTracker,
}

#[derive(Default)]
struct Waiting {
    calls: HashMap<String, Parked>,
    tickets: u64,
    /// Stops the calls of the message that is at work.
    stop_calls: CancellationToken,
    /// Why a person stopped them.
    calls_end: Option<CallsEnd>,
    /// Whether a person can be asked at all.
    attended: bool,
}

/// What a person made of a turn by deciding about one of its calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CallsEnd {
    /// Wants the word: the next prompt says why the call was refused.
    Refused,
    /// Gave the turn up (R008).
    Cancelled,
    /// Was not there, and the run is to fail then; with why.
    Missed(String),
}

/// A verdict as it is logged, and what it is for the call.
struct Settled<'a> {
    verdict: Verdict,
    answer: Answer,
    reason: Option<String>,
    by: &'a str,
    scope: Option<GrantScope>,
}

impl<'a> Settled<'a> {
    fn yes(by: &'a str) -> Self {
        Self {
            verdict: Verdict::Approved,
            answer: Answer::Approved,
            reason: None,
            by,
            scope: None,
        }
    }
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
    /// Nobody can be asked.
    Settled(Answer),
}

impl Approvals {
    /// `judge` is the session's pipeline with [`NobodyAsked`] in the place of this.
    pub(crate) fn new(core: Arc<Core>, policy: Arc<SessionPolicy>, judge: Pipeline) -> Self {
        Self {
            notifier: Notifier::new(
                Arc::clone(&core),
                Arc::clone(&policy),
                Arc::clone(&judge.world),
            ),
            core,
            policy,
            judge,
            waiting: Mutex::default(),
            writes: TaskTracker::new(),
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
        self.settle_one(id, decision, by)
            .map_err(|error| match error {
                Some(fault) => ApprovalError::Fault(fault.0),
                None => ApprovalError::NotWaiting(id.to_owned()),
            })
    }

    /// None as the error: nothing of this id waits.
    fn settle_one(&self, id: &str, decision: Decision, by: &str) -> Result<(), Option<Fault>> {
        let mut waiting = self.lock();
        let question = &waiting.calls.get(id).ok_or(None)?.question;
        let offered = question.offered_rule.clone();
        let stage = question.stage;
        let mut verdict = Settled::yes(by);
        let mut granted = None;
        let mut stops = None;
        // A plan that is agreed to begins in the most careful mode, unless another is said.
        let [mut next_mode, _] = AFTER_PLAN;
        match decision {
            Decision::AllowOnce => {}
            Decision::LeavePlan(mode) => next_mode = mode,
            Decision::AllowAlways(scope) => {
                granted = offered.map(|rule| (scope, rule));
                verdict.scope = granted.as_ref().map(|(scope, _)| *scope);
            }
            Decision::Reject { reason } => {
                let text = reason.clone().unwrap_or_else(|| NO_REASON.to_owned());
                verdict.verdict = Verdict::Denied;
                verdict.answer = Answer::Denied { reason: text };
                verdict.reason = reason;
            }
            Decision::RejectAndWait => {
                let reason = WILL_SAY_WHY.to_owned();
                verdict.verdict = Verdict::Denied;
                verdict.answer = Answer::Denied {
                    reason: reason.clone(),
                };
                verdict.reason = Some(reason);
                stops = Some(CallsEnd::Refused);
            }
            Decision::Cancelled => {
                verdict.verdict = Verdict::Cancelled;
                verdict.answer = Answer::Cancelled;
                stops = Some(CallsEnd::Cancelled);
            }
        }
        let leaves_plan = stage == Stage::LeavePlan && verdict.verdict == Verdict::Approved;
        if leaves_plan {
            // Before the verdict: a plan that was agreed to is never carried out in the
            // mode that only looks.
            self.core
                .append(Payload::OptionSet {
                    option: "mode".to_owned(),
                    value: next_mode.name().to_owned(),
                    by: format!("approval:{id}"),
                })
                .map_err(Some)?;
            self.policy.refresh();
        }
        let is_stopped = stops.is_some();
        if let Some(end) = stops {
            waiting.calls_end.get_or_insert(end);
        }
        self.settle(&mut waiting, id, verdict).map_err(Some)?;
        if is_stopped {
            waiting.stop_calls.cancel();
        }
        drop(waiting);
        match granted {
            Some((scope, rule)) => self.grant(scope, &rule, id, by).map_err(Some),
            None if leaves_plan => self.settle_covered("mode").map_err(Some),
            None => Ok(()),
        }
    }

    /// Stops the calls of a message that is about to run: when `stop` does, and when a
    /// person gives one of them up, or refuses it and wants the word.
    pub(crate) fn calls_begin(&self, stop: &CancellationToken) -> CancellationToken {
        let mut waiting = self.lock();
        waiting.stop_calls = stop.child_token();
        waiting.calls_end = None;
        waiting.stop_calls.clone()
    }

    /// What a person made of the turn while its calls ran; nothing, mostly.
    pub(crate) fn calls_ended(&self) -> Option<CallsEnd> {
        self.lock().calls_end.take()
    }

    /// Adds an allow rule and settles every waiting request it covers, each with a verdict
    /// of its own.
    fn grant(&self, scope: GrantScope, rule: &str, approval: &str, by: &str) -> Result<(), Fault> {
        match scope {
            GrantScope::Session => self.grant_session(rule, approval, by),
            GrantScope::Project => self.grant_project(rule, approval, by),
        }
    }

    /// The rule holds at once, and is written down by a task of its own. Where it cannot
    /// be, it holds for the session, and the person is told (R074).
    fn grant_project(&self, rule: &str, approval: &str, by: &str) -> Result<(), Fault> {
        let mut stored = StoredRule::new(Effect::Allow, rule);
        stored.added = Some(self.policy.now());
        stored.origin = Some(format!("approval {approval} of session {}", self.core.id()));
        let project = Arc::clone(self.policy.project());
        project.grant(stored.clone());
        self.policy.refresh();
        self.settle_covered("rule:project")?;
        let (core, policy) = (Arc::clone(&self.core), Arc::clone(&self.policy));
        let fallback = Payload::RuleAdded {
            id: format!("r{}", core.next_seq()),
            rule: rule.to_owned(),
            effect: RuleEffect::Allow,
            by: by.to_owned(),
            approval: Some(approval.to_owned()),
            expires: None,
        };
        let rule = rule.to_owned();
        self.writes.spawn(async move {
            let written = tokio::task::spawn_blocking(move || project.keep(&stored)).await;
            let problem = match written {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error.to_string(),
                Err(error) => error.to_string(),
            };
            let told = core.append(fallback).and_then(|_| {
                policy.refresh();
                core.append(Payload::NoticeShown {
                    severity: Severity::Warning,
                    text: format!(
                        "The rule `{rule}` holds for this session alone, since it could not be kept for the project: {problem}"
                    ),
                })
            });
            if let Err(fault) = told {
                tracing::error!(%fault, %problem, "a rule could not be kept");
            }
        });
        Ok(())
    }

    /// Waits until granted rules are written down.
    pub(crate) async fn finish(&self) {
        self.writes.close();
        self.writes.wait().await;
    }

    fn grant_session(&self, rule: &str, approval: &str, by: &str) -> Result<(), Fault> {
        let id = format!("r{}", self.core.next_seq());
        self.core.append(Payload::RuleAdded {
            id: id.clone(),
            rule: rule.to_owned(),
            effect: RuleEffect::Allow,
            by: by.to_owned(),
            approval: Some(approval.to_owned()),
            expires: None,
        })?;
        self.policy.refresh();
        self.settle_covered(&format!("rule:{id}"))
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
            self.settle(&mut waiting, &id, Settled::yes(by))?;
        }
        Ok(())
    }

    /// Whether the policy lets a call run that waits. What lets the call run says nothing
    /// of more reach for it; that is a person's alone, or of the mode that asks nobody.
    fn runs_now(&self, question: &Question) -> bool {
        match question.stage {
            Stage::Call => {
                let says = question.says.as_ref();
                self.judge.decision(&question.call, says) == Some(Gate::Run)
            }
            Stage::Escalation => self.judge.current_policy().mode == Mode::Bypass,
            // Only a person agrees to a plan, and to what a repository brings.
            Stage::LeavePlan | Stage::Trust => false,
        }
    }

    /// Logs the verdict of a call that waits, and wakes it. Nothing happens when it does
    /// not wait any more: whoever was first has logged one.
    fn settle(&self, waiting: &mut Waiting, id: &str, settled: Settled<'_>) -> Result<(), Fault> {
        let Some(parked) = waiting.calls.get(id) else {
            return Ok(());
        };
        self.core.append(Payload::ApprovalResolved {
            id: id.to_owned(),
            call_id: parked.question.call.id.clone(),
            verdict: settled.verdict,
            reason: settled.reason,
            by: settled.by.to_owned(),
            scope: settled.scope,
        })?;
        if let Some(parked) = waiting.calls.remove(id) {
            // The call may have been given up meanwhile; its verdict is logged all the same.
            let _gone = parked.answer.send(settled.answer);
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
            let answer = self.answer_unattended(&mut waiting, &id, question)?;
            return Ok(Parking::Settled(answer));
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

    /// Waits for whoever decides.
    async fn answer_to(
        &self,
        place: &Place<'_>,
        answer: oneshot::Receiver<Answer>,
        cancel: &CancellationToken,
    ) -> Result<Answer, Fault> {
        tokio::select! {
            biased;
            answer = answer => Ok(answer.unwrap_or(Answer::Cancelled)),
            () = cancel.cancelled() => {
                let cancelled = Settled {
                    verdict: Verdict::Cancelled,
                    answer: Answer::Cancelled,
                    ..Settled::yes("cancel")
                };
                self.settle(&mut self.lock(), &place.id, cancelled)?;
                Ok(Answer::Cancelled)
            }
        }
    }

    /// What becomes of a question that nobody can be asked, logged as its verdict.
    fn answer_unattended(
        &self,
        waiting: &mut Waiting,
        id: &str,
        question: Question,
    ) -> Result<Answer, Fault> {
        let policy = self.policy.settings().unattended;
        let resolved = |verdict, reason: Option<String>, by: &str| Payload::ApprovalResolved {
            id: id.to_owned(),
            call_id: question.call.id.clone(),
            verdict,
            reason,
            by: by.to_owned(),
            scope: None,
        };
        let is_persons = question.stage != Stage::Call || self.is_persons(&question);
        if policy == Unattended::Allow && !is_persons {
            self.core
                .append(resolved(Verdict::Approved, None, BY_POLICY))?;
            return Ok(Answer::Approved);
        }
        let way_out = match (question.stage, is_persons) {
            (Stage::Call, false) => {
                "allow it by a rule, another mode, `--permission-policy allow`, or a run with `--ask`"
            }
            (Stage::Call, true) => "only a person can allow it; a run with `--ask` can ask",
            (Stage::Escalation | Stage::LeavePlan | Stage::Trust, _) => {
                "a run with `--ask` can ask"
            }
        };
        let reason = format!(
            "nobody can be asked in a headless run; {way_out} ({})",
            question.reason
        );
        self.core
            .append(resolved(Verdict::Denied, Some(reason.clone()), "nobody"))?;
        if policy == Unattended::Fail {
            let why = format!("`{}` needs an approval: {reason}", question.call.name);
            waiting.calls_end.get_or_insert(CallsEnd::Missed(why));
            waiting.stop_calls.cancel();
        }
        Ok(Answer::Denied { reason })
    }

    /// Whether a call is asked for because of what it is, and not because a rule, a hook or
    /// the mode would have somebody asked.
    fn is_persons(&self, question: &Question) -> bool {
        self.judge
            .ruling(&question.call)
            .map_or(true, |ruling| match ruling.by {
                Decider::Protection(_) => true,
                // A tool of which nobody has to be asked does not ask but by itself.
                Decider::Tool => ruling.decision != Gate::Run,
                _ => false,
            })
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
        let asked = question.clone();
        let answer = match self.park(question, preview)? {
            Parking::Settled(answer) => answer,
            Parking::Waits { place, answer } => {
                let notice = self.notifier.waiting(&place.id, &asked);
                let answer = self.answer_to(&place, answer, cancel).await?;
                drop((place, notice));
                answer
            }
        };
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
        Stage::LeavePlan => ApprovalStage::LeavePlan,
        Stage::Trust => ApprovalStage::Trust,
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
