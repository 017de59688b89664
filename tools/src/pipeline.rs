//! The only way a call runs: hooks before, floor, gate, run, hooks after, one result.
//!
//! What one call goes through, in order:
//!
//! 1. `before` hooks, which may rewrite it, veto it, or say whether it is to be asked for;
//! 2. the tool must exist and the floor must admit it, as rewritten; then its arguments
//!    are checked against its schema;
//! 3. the gate ([`Policy::decide`]); where it asks, the change is previewed first, so that
//!    nobody is asked about a call that cannot work;
//! 4. `around` hooks, then `tool/started`, then the tool. A call that an `around` hook made
//!    another one goes through 2 and 3 again;
//! 5. `after` hooks, on denials of a person too, and not after a veto or the floor.
//!
//! Nothing on this way ends a turn but a [`Fault`]: a panic becomes the call's error result.
//! How the calls of one message stand to each other is the barrier's part.

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;
use futures::FutureExt;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::arguments;
use crate::barrier;
use crate::call::{
    Allowed, Answer, Approver, Call, CallContext, CallJournal, CallResult, Escalate, Failure,
    Fault, FileChange, Output, Question, Stage, Tool,
};
use crate::definition::Kind;
use crate::floor;
use crate::gate::{Decider, Decision, Policy, Ruling};
use crate::mode::Mode;
use crate::rules::Subject;
use crate::table::Table;
use crate::world::World;

/// The result of a call that a cancel kept from running (`Terret spec §1.9`).
pub const CANCELLED: &str = "cancelled before execution";
/// The most text of a result that a model sees, in bytes.
pub const MAX_TEXT: usize = 256 * 1024;
/// The most bytes of its closing remarks.
const MAX_REMARKS: usize = 16 * 1024;

/// All that one session's calls run with. The engine builds it; `policy` is replaced
/// when rules, mode or floor change, and read anew for every decision.
#[derive(Clone)]
pub struct Pipeline {
    pub table: Arc<Table>,
    pub world: Arc<World>,
    pub journal: Arc<dyn CallJournal>,
    pub approver: Arc<dyn Approver>,
    pub policy: Arc<RwLock<Arc<Policy>>>,
    pub hooks: Vec<Arc<dyn CallHook>>,
}

/// A typed in-process hook around calls (`Terret spec §2.1`). Hooks run in order; none
/// can loosen the floor, which stands after the last of them.
#[async_trait]
pub trait CallHook: Send + Sync {
    /// May rewrite the call, say something of asking for it, or veto it with a reason.
    /// After a veto neither the call nor any `after` hook runs.
    async fn before(&self, call: Call) -> Result<Admission, Veto> {
        Ok(call.into())
    }

    /// Wraps the execution; `next` runs the rest. May replace it altogether.
    async fn around(&self, call: Call, next: Next<'_>) -> Result<CallResult, Fault> {
        next.run(call).await
    }

    /// May rewrite the result.
    async fn after(&self, _call: &Call, result: CallResult) -> CallResult {
        result
    }
}

/// A call that hooks let pass, as they made it, and what they say of asking for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Admission {
    pub call: Call,
    pub says: Option<HookSays>,
}

/// What a hook says of asking a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookSays {
    /// Nobody need be asked where only a default would ask: a rule that speaks, a protected
    /// file, a call that insists and the floor stand (`design: Permissions`).
    Allow,
    /// A person is to be asked, for this reason. No allow rule passes it.
    Ask(String),
}

impl From<Call> for Admission {
    fn from(call: Call) -> Self {
        Self { call, says: None }
    }
}

impl HookSays {
    /// What two hooks say together: to ask is stronger than to allow.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Ask(one), Self::Ask(two)) => Self::Ask(format!("{one}; {two}")),
            (Self::Ask(reason), Self::Allow) | (Self::Allow, Self::Ask(reason)) => {
                Self::Ask(reason)
            }
            (Self::Allow, Self::Allow) => Self::Allow,
        }
    }
}

/// A hook's refusal; the text becomes the call's error result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Veto(pub String);

/// The rest of an `around` chain. Running it consumes it, so a tool runs once at most.
pub struct Next<'a> {
    rest: &'a [Arc<dyn CallHook>],
    execution: &'a Execution<'a>,
}

/// The way from a running call back to whoever approves.
struct Escalation {
    pipeline: Pipeline,
    call: Call,
    kind: Kind,
    title: String,
    /// One question a call: whoever has answered is not asked the same again.
    asked: AtomicBool,
    cancel: CancellationToken,
}

#[async_trait]
impl Escalate for Escalation {
    async fn ask(&self, reason: String) -> Result<Answer, Fault> {
        if self.asked.swap(true, Ordering::Relaxed) {
            return Ok(Answer::Denied {
                reason: "a call asks for more reach once at most".to_owned(),
            });
        }
        if self.pipeline.current_policy().mode == Mode::Bypass {
            return Ok(Answer::Approved);
        }
        let question = Question {
            call: self.call.clone(),
            kind: self.kind,
            title: self.title.clone(),
            reason,
            preview: Vec::new(),
            // More reach is never given by a rule that speaks of the command alone.
            offered_rule: None,
            stage: Stage::Escalation,
            says: None,
        };
        let answer = self.pipeline.approver.ask(question, &self.cancel).await?;
        Ok(match (answer, self.forbidden()) {
            (Answer::Approved, Some(reason)) => Answer::Denied { reason },
            (answer, _) => answer,
        })
    }

    fn decision(&self, subject: &str) -> Decision {
        let Some(tool) = self.pipeline.table.get(&self.call.name) else {
            let reason = floor::refusal(&self.call.name);
            return Decision::Forbid { reason };
        };
        let cwd = self.pipeline.world.cwd();
        let subject = Subject {
            text: subject,
            cwd: &cwd,
        };
        self.pipeline
            .current_policy()
            .decide(tool.definition(), Some(subject), None)
    }
}

impl Escalation {
    /// Why the call may not run any more: rules and mode may have changed during the wait.
    fn forbidden(&self) -> Option<String> {
        let result = match self.pipeline.check(self.call.clone().into()) {
            Ok(checked) => self.pipeline.forbidden(&checked)?,
            Err(result) => result,
        };
        result.content.err()
    }
}

/// What stands at the end of the chain.
struct Execution<'a> {
    pipeline: &'a Pipeline,
    /// The call that passed the gate.
    gated: &'a Checked,
    context: &'a CallContext,
}

/// A call whose tool exists, which the floor admits and whose arguments fit.
pub(crate) struct Checked {
    pub(crate) call: Call,
    pub(crate) tool: Arc<dyn Tool>,
    args: Value,
    remarks: Vec<String>,
    /// What hooks said of asking.
    says: Option<HookSays>,
}

impl Pipeline {
    /// Runs the calls of one message. Each gets exactly one `tool/result`.
    ///
    /// # Errors
    /// A [`Fault`], which ends the turn; calls may then lack their result.
    pub async fn run_calls(
        &self,
        calls: Vec<Call>,
        cancel: &CancellationToken,
    ) -> Result<(), Fault> {
        barrier::run(Arc::new(self.clone()), calls, cancel).await
    }

    /// What the gate would say about a call now; none when there is no such tool. With
    /// this and what hooks said of it, the engine finds the waiting questions that a new
    /// rule settles: those for which it is [`Decision::Run`].
    pub fn decision(&self, call: &Call, says: Option<&HookSays>) -> Option<Decision> {
        let admission = Admission {
            call: call.clone(),
            says: says.cloned(),
        };
        let checked = self.check(admission).ok()?;
        Some(self.decide(&checked))
    }

    /// What the gate would say about a call, and what decides about it, without hooks.
    ///
    /// # Errors
    /// Why it could be no call: there is no such tool, or its arguments do not fit.
    pub fn ruling(&self, call: &Call) -> Result<Ruling, String> {
        let policy = self.current_policy();
        let tool = self.table.get(&call.name).cloned();
        let tool = tool.ok_or_else(|| self.unknown(&policy, &call.name))?;
        let checked = fit(call.clone(), tool, None)
            .map_err(|result| result.content.err().unwrap_or_default())?;
        Ok(self.rule(&checked))
    }

    /// The policy of this moment.
    pub fn current_policy(&self) -> Arc<Policy> {
        Arc::clone(&self.policy.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs the `before` hooks.
    pub(crate) async fn admit(&self, call: Call) -> Result<Admission, CallResult> {
        let mut admission = Admission::from(call);
        for hook in &self.hooks {
            let passed = AssertUnwindSafe(hook.before(admission.call)).catch_unwind();
            let Admission { call, says } = match passed.await {
                Ok(Ok(admitted)) => admitted,
                Ok(Err(Veto(reason))) => return Err(CallResult::error(reason)),
                Err(_) => return Err(panicked("a hook before the call")),
            };
            let says = match (admission.says, says) {
                (Some(one), Some(two)) => Some(one.and(two)),
                (one, two) => one.or(two),
            };
            admission = Admission { call, says };
        }
        Ok(admission)
    }

    /// Step 2: the tool, the floor, the arguments.
    pub(crate) fn check(&self, admission: Admission) -> Result<Checked, CallResult> {
        let Admission { call, says } = admission;
        let policy = self.current_policy();
        let Some(tool) = self.table.get(&call.name).cloned() else {
            return Err(CallResult::error(self.unknown(&policy, &call.name)));
        };
        if !policy.admits(&call.name) {
            return Err(CallResult::error(floor::refusal(&call.name)));
        }
        fit(call, tool, says)
    }

    /// Step 3, without the asking.
    pub(crate) fn decide(&self, checked: &Checked) -> Decision {
        self.rule(checked).decision
    }

    /// A decision with what it rests on.
    fn rule(&self, checked: &Checked) -> Ruling {
        let definition = checked.tool.definition();
        let subject = checked.tool.rule_subject(&self.world, &checked.args);
        let cwd = self.world.cwd();
        let subject = subject.as_deref().map(|text| Subject { text, cwd: &cwd });
        let protection = if definition.mutating {
            self.places(checked)
                .iter()
                .find_map(|path| self.world.protection(path))
        } else {
            None
        };
        let policy = self.current_policy();
        let mut ruling = policy.judge(definition, subject, protection);
        let insists = checked.tool.insists(&checked.args);
        // To leave plan mode is a person's decision alone.
        let spares =
            ruling.is_default() && insists.is_none() && definition.kind != Kind::SwitchMode;
        let mut insist = |why: String| {
            let decision = policy.insist(ruling.decision.clone(), why);
            if let Decision::Ask { reason, .. } = &decision
                && decision != ruling.decision
            {
                ruling.why.clone_from(reason);
                ruling.by = Decider::Tool;
            }
            ruling.decision = decision;
        };
        if let Some(why) = insists {
            insist(why);
        }
        match &checked.says {
            Some(HookSays::Ask(reason)) => insist(reason.clone()),
            Some(HookSays::Allow) if spares && matches!(ruling.decision, Decision::Ask { .. }) => {
                ruling.decision = Decision::Run;
                ruling.by = Decider::Hook;
            }
            Some(HookSays::Allow) | None => {}
        }
        ruling
    }

    /// The files that a call names.
    pub(crate) fn places(&self, checked: &Checked) -> Vec<PathBuf> {
        checked
            .tool
            .locations(&self.world, &checked.args)
            .into_iter()
            .map(|location| self.world.resolve(&location.path).unwrap_or(location.path))
            .collect()
    }

    /// What a call would do to files.
    pub(crate) async fn preview(
        &self,
        checked: &Checked,
        cancel: &CancellationToken,
    ) -> Result<Vec<FileChange>, CallResult> {
        let context = self.context(checked, cancel);
        match AssertUnwindSafe(checked.tool.preview(&context, &checked.args))
            .catch_unwind()
            .await
        {
            Ok(Ok(changes)) => Ok(changes),
            Ok(Err(Failure(text))) => Err(CallResult::error(text)),
            Err(_) => Err(panicked(&checked.call.name)),
        }
    }

    /// The words of a question.
    pub(crate) fn question(
        &self,
        checked: &Checked,
        reason: String,
        offered_rule: Option<String>,
        preview: Vec<FileChange>,
    ) -> Question {
        let kind = checked.tool.definition().kind;
        Question {
            call: checked.call.clone(),
            kind,
            title: checked.tool.title(&checked.args),
            reason,
            preview,
            offered_rule,
            stage: match kind {
                Kind::SwitchMode => Stage::LeavePlan,
                _ => Stage::Call,
            },
            says: checked.says.clone(),
        }
    }

    /// After a wait: whether the floor, a deny rule or the mode stands against it now.
    pub(crate) fn forbidden(&self, checked: &Checked) -> Option<CallResult> {
        match self.decide(checked) {
            Decision::Forbid { reason } => Some(CallResult::error(reason)),
            Decision::Run | Decision::Ask { .. } => None,
        }
    }

    /// Steps 4 and 5 for a call that passed the gate.
    pub(crate) async fn execute(
        &self,
        checked: &Checked,
        cancel: &CancellationToken,
    ) -> Result<CallResult, Fault> {
        let context = self.context(checked, cancel);
        let execution = Execution {
            pipeline: self,
            gated: checked,
            context: &context,
        };
        let next = Next {
            rest: &self.hooks,
            execution: &execution,
        };
        let result = match AssertUnwindSafe(next.run(checked.call.clone()))
            .catch_unwind()
            .await
        {
            Ok(result) => result?,
            Err(_) => panicked(&checked.call.name),
        };
        Ok(self.finish(&checked.call, result).await)
    }

    /// Runs the `after` hooks.
    pub(crate) async fn finish(&self, call: &Call, result: CallResult) -> CallResult {
        let mut result = result;
        for hook in &self.hooks {
            result = match AssertUnwindSafe(hook.after(call, result))
                .catch_unwind()
                .await
            {
                Ok(result) => result,
                Err(_) => panicked("a hook after the call"),
            };
        }
        result
    }

    /// Asks, and gives the result when the answer is not a yes.
    pub(crate) async fn ask(
        &self,
        question: Question,
        cancel: &CancellationToken,
    ) -> Result<Option<CallResult>, Fault> {
        let call = question.call.clone();
        let answer = self.approver.ask(question, cancel).await?;
        Ok(refusal(&call, answer))
    }

    fn context(&self, checked: &Checked, cancel: &CancellationToken) -> CallContext {
        CallContext {
            call_id: checked.call.id.clone(),
            escalate: Arc::new(Escalation {
                pipeline: self.clone(),
                call: checked.call.clone(),
                kind: checked.tool.definition().kind,
                title: checked.tool.title(&checked.args),
                asked: AtomicBool::new(false),
                cancel: cancel.clone(),
            }),
            world: Arc::clone(&self.world),
            journal: Arc::clone(&self.journal),
            cancel: cancel.clone(),
        }
    }

    fn unknown(&self, policy: &Policy, name: &str) -> String {
        let shown: String = name.chars().take(80).flat_map(char::escape_debug).collect();
        let names: Vec<&str> = self
            .table
            .iter()
            .map(|tool| tool.definition().name)
            .filter(|name| policy.admits(name))
            .collect();
        if names.is_empty() {
            return format!("no tool named {shown}; there are no tools");
        }
        format!("no tool named {shown}; there are {}", names.join(", "))
    }
}

/// The call with its arguments as the tool takes them.
fn fit(call: Call, tool: Arc<dyn Tool>, says: Option<HookSays>) -> Result<Checked, CallResult> {
    let args = match &call.args {
        Ok(args) => args.clone(),
        Err(reason) => {
            return Err(CallResult::error(format!(
                "the arguments of {} are not valid JSON: {reason}",
                call.name
            )));
        }
    };
    match arguments::check(&call.name, &tool.definition().parameters, args) {
        Ok(checked) => Ok(Checked {
            call,
            tool,
            args: checked.args,
            remarks: checked.remarks,
            says,
        }),
        Err(failure) => Err(CallResult::error(failure.0)),
    }
}

impl Next<'_> {
    /// Runs the rest of the chain with this call.
    ///
    /// # Errors
    /// A [`Fault`], which ends the turn.
    pub async fn run(self, call: Call) -> Result<CallResult, Fault> {
        if let Some((hook, rest)) = self.rest.split_first() {
            return hook
                .around(
                    call,
                    Next {
                        rest,
                        execution: self.execution,
                    },
                )
                .await;
        }
        self.execution.run(call).await
    }
}

impl Execution<'_> {
    async fn run(&self, call: Call) -> Result<CallResult, Fault> {
        if call == self.gated.call {
            if let Some(result) = self.pipeline.forbidden(self.gated) {
                return Ok(result);
            }
            return self.start(self.gated).await;
        }
        // Another call than the one that passed: floor and gate stand before it as well.
        let asks = |says: &&HookSays| matches!(says, HookSays::Ask(_));
        let checked = match self.pipeline.check(Admission {
            call,
            // What allowed the other call says nothing of this one.
            says: self.gated.says.as_ref().filter(asks).cloned(),
        }) {
            Ok(checked) => checked,
            Err(result) => return Ok(result),
        };
        match self.pipeline.decide(&checked) {
            Decision::Run => {}
            Decision::Forbid { reason } => return Ok(CallResult::error(reason)),
            Decision::Ask {
                reason,
                offered_rule,
            } => {
                let preview = match self.pipeline.preview(&checked, &self.context.cancel).await {
                    Ok(preview) => preview,
                    Err(result) => return Ok(result),
                };
                let question = self
                    .pipeline
                    .question(&checked, reason, offered_rule, preview);
                if let Some(result) = self.pipeline.ask(question, &self.context.cancel).await? {
                    return Ok(result);
                }
            }
        }
        self.start(&checked).await
    }

    async fn start(&self, checked: &Checked) -> Result<CallResult, Fault> {
        if self.context.cancel.is_cancelled() {
            return Ok(CallResult::error(CANCELLED));
        }
        let ruling = self.pipeline.rule(checked);
        let allowed = match (ruling.decision, ruling.by) {
            (Decision::Run, Decider::Rule(rule)) => Allowed::Rule(rule),
            (Decision::Run, Decider::Mode(mode)) => Allowed::Mode(mode),
            (Decision::Run, Decider::Hook) => Allowed::Hook,
            (Decision::Run, _) => Allowed::Tool,
            // Whoever was asked said yes, or it would not have come so far.
            (Decision::Ask { .. } | Decision::Forbid { .. }, _) => Allowed::Approval,
        };
        self.pipeline
            .journal
            .started(&checked.call, checked.tool.definition(), &allowed)
            .await?;
        let work = checked.tool.run(self.context, checked.args.clone());
        Ok(match AssertUnwindSafe(work).catch_unwind().await {
            Ok(Ok(mut output)) => {
                output.remarks.extend(checked.remarks.iter().cloned());
                CallResult::ok(output)
            }
            Ok(Err(Failure(text))) => CallResult::error(text),
            Err(_) => panicked(&checked.call.name),
        })
    }
}

/// The result that an answer other than a yes makes.
pub(crate) fn refusal(call: &Call, answer: Answer) -> Option<CallResult> {
    match answer {
        Answer::Approved => None,
        Answer::Denied { reason } => {
            Some(CallResult::error(format!("{} denied: {reason}", call.name)))
        }
        Answer::Cancelled => Some(CallResult::error(CANCELLED)),
    }
}

/// The result of a call that broke inside. The panic's own words are for the log of the
/// process, not for the model.
pub(crate) fn panicked(what: &str) -> CallResult {
    tracing::error!(what, "a panic was made an error result");
    CallResult::error(format!(
        "{what} broke with an internal error; what it had done by then stays done. This is a defect of Terret, not of the arguments"
    ))
}

/// Bounds what a model sees of a result.
pub(crate) fn bounded(result: CallResult) -> CallResult {
    CallResult {
        content: result
            .content
            .map(bounded_output)
            .map_err(|text| cut(text, MAX_TEXT).0),
    }
}

fn bounded_output(output: Output) -> Output {
    let Output {
        text,
        images,
        remarks,
    } = output;
    let (text, dropped) = cut(text, MAX_TEXT);
    let mut kept = Vec::with_capacity(remarks.len());
    let mut room = MAX_REMARKS;
    let count = remarks.len();
    for remark in remarks {
        if remark.len() > room {
            kept.push(format!("{} more remarks are left out", count - kept.len()));
            break;
        }
        room -= remark.len();
        kept.push(remark);
    }
    if dropped > 0 {
        kept.push(format!(
            "the result is cut at {MAX_TEXT} bytes; {dropped} more bytes are left out"
        ));
    }
    Output {
        text,
        images,
        remarks: kept,
    }
}

fn cut(mut text: String, most: usize) -> (String, usize) {
    if text.len() <= most {
        return (text, 0);
    }
    let whole = text.len();
    text.truncate(text.floor_char_boundary(most));
    let dropped = whole - text.len();
    (text, dropped)
}

#[cfg(test)]
mod tests;
