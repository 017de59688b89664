//! One turn: from an input to `turn/end`, step by step (`Terret spec §1.7`).
//!
//! The turn is straight-line code in a task that the session owns. Its only way to
//! speak is to append; its only ways to end are the returned outcome, a fault, or the
//! session dropping the task at shutdown, which leaves the turn open to be resumed.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt as _;
use terret_log::{
    ApprovalStage, HistoryRole, OwedCall, Part, Payload, SessionState, StepUsage, TurnStatus,
};
use terret_tools::call::{Answer, Approver as _, Call, Fault, Question, Stage};
use terret_tools::definition::{Approval, Kind};
use terret_tools::mode::Mode;
use terret_tools::pipeline::Pipeline;
use tokio_util::sync::CancellationToken;

use crate::approvals::{Approvals, CallsEnd};
use crate::core::Core;
use crate::external_hooks::ExternalHooks;
use crate::hooks::TurnHook;
use crate::inbox::Inbox;
use crate::input::{Claim, Input};
use crate::jobs::{JobsTurn, told_event};
use crate::policy::SessionPolicy;
use crate::status::{AgentStatus, TurnOutcome};
use crate::step::{Models, StepEnd};
use crate::trust;

/// What a turn works with; all of it outlives the turn.
pub(crate) struct TurnParts {
    pub core: Arc<Core>,
    pub pipeline: Pipeline,
    pub approvals: Arc<Approvals>,
    pub external: Arc<ExternalHooks>,
    pub policy: Arc<SessionPolicy>,
    pub inbox: Arc<Inbox>,
    pub models: Models,
    pub hooks: Vec<Arc<dyn TurnHook>>,
}

/// A standing wish to stop, with its reason.
#[derive(Clone, Default)]
pub(crate) struct Stop {
    pub token: CancellationToken,
    pub reason: Arc<std::sync::OnceLock<String>>,
}

/// How the steps of a turn came to an end.
struct Ended {
    status: TurnStatus,
    reason: Option<String>,
}

impl Ended {
    fn with(status: TurnStatus) -> Self {
        Self {
            status,
            reason: None,
        }
    }

    fn failed(reason: impl Into<String>) -> Self {
        Self {
            status: TurnStatus::Failed,
            reason: Some(reason.into()),
        }
    }
}

impl TurnParts {
    /// Finds out what the sandbox is before a call is judged by it. Looking may start a
    /// program or two, so it is done for calls that it matters to, and never at a start.
    async fn learn_isolation(&self, calls: &[Call]) {
        let policy = self
            .policy
            .shared()
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone();
        let matters = policy.mode == Mode::Auto
            || calls.iter().any(|call| {
                self.pipeline
                    .table
                    .get(&call.name)
                    .is_some_and(|tool| tool.definition().approval == Approval::BySandbox)
            });
        if !matters {
            return;
        }
        let sandbox = self.pipeline.world.processes().sandbox();
        // One that cannot be looked at isolates nothing.
        let isolated = tokio::task::spawn_blocking(move || sandbox.isolated())
            .await
            .unwrap_or(false);
        self.policy.set_isolated(isolated);
    }
}

/// Runs a turn to its end and logs that end, whatever it is.
pub(crate) async fn run(
    parts: &TurnParts,
    first: Option<Input>,
    stop: &Stop,
) -> Result<TurnOutcome, Fault> {
    if parts.core.state(|state| state.turn.open.is_some()) {
        return Err(Fault(
            "the log holds an open turn; resume it before a new one begins".to_owned(),
        ));
    }
    parts.core.append(Payload::TurnStart {
        agent: format!("agent-{}", parts.core.id()),
    })?;
    let mut step = 0;
    let ended = match steps(parts, first, &mut step, stop).await {
        Ok(ended) => ended,
        Err(fault) => Ended::failed(fault.0),
    };
    finish(parts, ended.status, ended.reason, stop)
}

/// Goes on with a turn that a crash or a lost editor left open (`Terret spec §1.8`): no
/// new `turn/start`, the calls that are still owed first, then the steps. `input` joins
/// as context. A call that had started runs again only when it merely looks, or finds
/// what it did before the crash; any other is reported as unknown, since nothing may run twice unasked.
pub(crate) async fn resume(
    parts: &TurnParts,
    input: Option<Input>,
    stop: &Stop,
) -> Result<TurnOutcome, Fault> {
    if let Some(input) = input {
        parts.inbox.leave(input);
    }
    let ended = match resume_steps(parts, stop).await {
        Ok(ended) => ended,
        Err(fault) => Ended::failed(fault.0),
    };
    finish(parts, ended.status, ended.reason, stop)
}

async fn resume_steps(parts: &TurnParts, stop: &Stop) -> Result<Ended, Fault> {
    let core = &parts.core;
    let (mut steps_begun, step_open, answered, start) = core.state(|state| {
        state
            .turn
            .open
            .as_ref()
            .map_or((0, false, false, 0), |open| {
                (
                    open.steps,
                    open.step_open,
                    open.step_answered,
                    open.start_seq,
                )
            })
    });
    let mut calls = Vec::new();
    for owed in owed_calls(core) {
        let repeats = parts
            .pipeline
            .table
            .get(&owed.name)
            .is_some_and(|tool| tool.repeats_safely(&owed.args));
        if owed.started && !repeats {
            core.append(error_result(owed.id, MAY_HAVE_RUN))?;
        } else if was_redacted(core, &owed) {
            if !owed.announced {
                core.append(Payload::ToolCall {
                    id: owed.id.clone(),
                    name: owed.name,
                    args: owed.args,
                })?;
            }
            core.append(error_result(owed.id, REDACTED_CALL))?;
        } else {
            calls.push(Call {
                id: owed.id,
                name: owed.name,
                args: Ok(owed.args),
            });
        }
    }
    let owed_any = !calls.is_empty();
    // The others were asked by what the crash ended, and nobody waits for their answer.
    parts.approvals.withdraw(
        |request| {
            // What the project brings is asked for before the next request.
            request.stage != ApprovalStage::Trust
                && !calls.iter().any(|call| call.id == request.call_id)
        },
        "resume",
    )?;
    // A question that stands is shown already, and is answered as it was asked: whoever
    // answers must not come before it waits again.
    if parts.core.state(|state| state.approvals.is_empty()) {
        parts.learn_isolation(&calls).await;
    }
    let ended = run_calls(parts, calls, stop).await?;
    if step_open && (answered || owed_any) {
        core.append(Payload::StepEnd {
            n: steps_begun,
            usage: None,
        })?;
    }
    tracing::info!(session = %core.id(), start, steps_begun, "a turn was resumed");
    if stop.token.is_cancelled() {
        return Ok(Ended::with(TurnStatus::Cancelled));
    }
    if let Some(ended) = ended {
        return Ok(ended);
    }
    // What was held before the crash is held again; there is nothing to ask the model.
    if parts.policy.settings().jobs.turn == JobsTurn::Hold
        && let Held::Cancelled = hold(parts, stop).await
    {
        return Ok(Ended::with(TurnStatus::Cancelled));
    }
    steps(parts, None, &mut steps_begun, stop).await
}

/// What the model is told of a call that a crash interrupted.
const MAY_HAVE_RUN: &str = "the agent was interrupted while this call ran: it may have run in full, in part or \
    not at all, and was not run again; look before you repeat it";

/// What the model is told of a call that cannot be had again.
const REDACTED_CALL: &str = "this call was not run: the agent was interrupted before it, and the log holds the \
    call with a secret redacted, so what it said in full is not known any more; make the call again, without \
    the secret in it where you can";

/// Whether the log holds a call without a secret that was in it, in its name, a value or a
/// key (checks 73 and 75).
fn was_redacted(core: &Core, call: &OwedCall) -> bool {
    let replacement = core.scrubber().replacement();
    let holds = |text: &str| {
        [&*replacement, terret_log::REPLACEMENT]
            .iter()
            .any(|token| text.contains(token))
    };
    holds(&call.name) || any_text(&call.args, &holds)
}

fn any_text(value: &serde_json::Value, holds: &dyn Fn(&str) -> bool) -> bool {
    use serde_json::Value;
    match value {
        Value::String(text) => holds(text),
        Value::Array(items) => items.iter().any(|item| any_text(item, holds)),
        Value::Object(map) => map
            .iter()
            .any(|(key, value)| holds(key) || any_text(value, holds)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Closes a turn: every open question is taken back, every owed call gets its result,
/// waiting input is kept, and the end is logged. Also used when the turn's task panicked.
pub(crate) fn finish(
    parts: &TurnParts,
    status: TurnStatus,
    reason: Option<String>,
    stop: &Stop,
) -> Result<TurnOutcome, Fault> {
    let (core, inbox) = (&parts.core, &parts.inbox);
    let by = match status {
        TurnStatus::Cancelled => "cancel",
        _ => "turn_end",
    };
    parts.approvals.withdraw(|_| true, by)?;
    close_owed_calls(core, status)?;
    close_step(core)?;
    if !matches!(
        status,
        TurnStatus::Completed | TurnStatus::Rejected | TurnStatus::Empty
    ) {
        // What was sent while the turn ran is in the history, so that nothing that a
        // person wrote is lost, though no step of this turn reads it.
        for input in inbox.close_and_drain() {
            core.append(Claim::Injected(input).into_payload())?;
        }
    }
    inbox.close();
    if status == TurnStatus::Failed
        && let Some(reason) = &reason
    {
        core.append(Payload::NoticeShown {
            severity: terret_log::Severity::Error,
            text: reason.clone(),
        })?;
    }
    let reason = match status {
        TurnStatus::Cancelled => stop.reason.get().cloned(),
        _ => reason,
    };
    let event = core.append(Payload::TurnEnd { status, reason })?;
    core.change_status(|_| AgentStatus::Idle);
    // As it was logged: a face must not show what the log does not hold.
    let reason = match &event.payload {
        Payload::TurnEnd { reason, .. } => reason.clone(),
        _ => None,
    };
    Ok(TurnOutcome {
        status,
        reason,
        end: event.seq + 1,
    })
}

/// Steps until the turn ends. `step` counts those begun, also before a crash.
async fn steps(
    parts: &TurnParts,
    first: Option<Input>,
    step: &mut u32,
    stop: &Stop,
) -> Result<Ended, Fault> {
    let core = &parts.core;
    let mut first = first.map(Claim::Prompt);
    let mut asked_at = *step;
    let mut is_settled = false;
    loop {
        if stop.token.is_cancelled() {
            if let Some(claim) = first.take() {
                core.append(claim.into_payload())?;
            }
            return Ok(Ended::with(TurnStatus::Cancelled));
        }
        if let Some(ended) = check_ceiling(parts, *step, &mut asked_at, stop).await? {
            return Ok(ended);
        }
        let steers = parts.inbox.drain();
        let claim = match claim_input(parts, first.take(), &steers, stop).await {
            Ok(claim) => claim,
            Err(Unclaimed::Rejected(reason)) => {
                parts.inbox.put_back(steers);
                return Ok(Ended {
                    status: TurnStatus::Rejected,
                    reason: Some(reason),
                });
            }
            Err(Unclaimed::Unread { first, ended }) => {
                // Nothing that a person wrote is lost; the turn's end logs the rest.
                parts.inbox.put_back(steers);
                if let Some(first) = first {
                    core.append(first.into_payload())?;
                }
                return Ok(ended);
            }
        };
        if *step == 0 && claim.is_empty() {
            return Ok(Ended::with(TurnStatus::Empty));
        }
        *step += 1;
        let provider = match parts.models.resolve(core, &parts.policy) {
            Ok(provider) => provider,
            Err(error) => {
                // The person's words are logged even when no model can answer them.
                for input in claim {
                    core.append(input.into_payload())?;
                }
                return Ok(Ended::failed(error.to_string()));
            }
        };
        core.append(Payload::StepStart {
            n: *step,
            model: provider.name.to_string(),
        })?;
        // One line for all jobs that ended since the last request, before what a person
        // wrote, which is to be answered (R023).
        core.append_if(told_event)?;
        for input in claim {
            core.append(input.into_payload())?;
        }
        // The person's words are in the log by now, whatever becomes of the question.
        if !std::mem::replace(&mut is_settled, true)
            && trust::settle(parts, &stop.token).await? == trust::Settled::Cancelled
        {
            core.append(Payload::StepEnd {
                n: *step,
                usage: None,
            })?;
            return Ok(Ended::with(TurnStatus::Cancelled));
        }
        let end = crate::step::run(parts, &provider, &stop.token).await?;
        let answered = matches!(end, StepEnd::Answered { .. });
        let (ended, usage) = after_step(parts, end, stop).await?;
        core.append(Payload::StepEnd { n: *step, usage })?;
        let ended = match ended {
            None if answered => answer_ends(parts, stop).await,
            ended => ended,
        };
        if let Some(ended) = ended {
            return Ok(ended);
        }
    }
}

/// What a step's end means for the turn: an end of it, or the next step.
async fn after_step(
    parts: &TurnParts,
    end: StepEnd,
    stop: &Stop,
) -> Result<(Option<Ended>, Option<StepUsage>), Fault> {
    let cancelled = || {
        stop.token
            .is_cancelled()
            .then(|| Ended::with(TurnStatus::Cancelled))
    };
    match end {
        StepEnd::Calls { calls, usage } => {
            parts.learn_isolation(&calls).await;
            let ended = run_calls(parts, calls, stop).await?;
            Ok((cancelled().or(ended), usage))
        }
        StepEnd::Answered { usage } => Ok((cancelled(), usage)),
        StepEnd::OutputLimit { usage } => Ok((
            cancelled().or(Some(Ended::with(TurnStatus::OutputLimit))),
            usage,
        )),
        StepEnd::Refused { usage } => Ok((Some(Ended::with(TurnStatus::Refused)), usage)),
        StepEnd::Cancelled { usage } => Ok((Some(Ended::with(TurnStatus::Cancelled)), usage)),
        StepEnd::Failed { reason } => Ok((Some(Ended::failed(reason)), None)),
    }
}

/// Runs the calls of one message. The turn ends with them when a person gave it up by one
/// of them, or refused one and wants the word, unless that word has come already.
async fn run_calls(
    parts: &TurnParts,
    calls: Vec<Call>,
    stop: &Stop,
) -> Result<Option<Ended>, Fault> {
    parts.policy.freshen().await;
    let token = parts.approvals.calls_begin(&stop.token);
    parts.external.calls_begin(&token);
    let ran = parts.pipeline.run_calls(calls, &token).await;
    let ended = parts.approvals.calls_ended();
    ran?;
    let ended_by_hook = parts.external.calls_ended()?;
    Ok(match ended {
        None if !ended_by_hook => None,
        Some(CallsEnd::Cancelled) => Some(Ended::with(TurnStatus::Cancelled)),
        Some(CallsEnd::Missed(why)) => Some(Ended::failed(why)),
        // What was sent meanwhile is answered all the same.
        Some(CallsEnd::Refused) | None => parts
            .inbox
            .close_if_empty()
            .then(|| Ended::with(TurnStatus::Completed)),
    })
}

/// What an answer without calls means for the turn: its end, unless input came during the
/// last step, which is answered in this turn (check 45), or a job is waited for.
async fn answer_ends(parts: &TurnParts, stop: &Stop) -> Option<Ended> {
    if parts.policy.settings().jobs.turn == JobsTurn::Hold {
        match hold(parts, stop).await {
            Held::Nothing => {}
            Held::GoesOn => return None,
            Held::Cancelled => return Some(Ended::with(TurnStatus::Cancelled)),
        }
    }
    parts
        .inbox
        .close_if_empty()
        .then(|| Ended::with(TurnStatus::Completed))
}

/// How a hold came to its end.
enum Held {
    /// There was nothing to hold the turn for.
    Nothing,
    /// A job ended, or a prompt came.
    GoesOn,
    Cancelled,
}

/// Keeps the turn open, without a request, until a job that the last message names has
/// ended. A prompt that comes meanwhile ends the hold (`design.md §4 Jobs`).
async fn hold(parts: &TurnParts, stop: &Stop) -> Held {
    let core = &parts.core;
    let mut seq = core.watch_seq();
    let named = core.state(named_jobs);
    if named.is_empty() {
        return Held::Nothing;
    }
    tracing::debug!(session = %core.id(), "the turn is held for a job");
    loop {
        seq.borrow_and_update();
        let over = core.state(|state| {
            named
                .iter()
                .any(|id| state.jobs.get(id).is_none_or(|job| job.end.is_some()))
        });
        if over {
            return Held::GoesOn;
        }
        tokio::select! {
            biased;
            () = stop.token.cancelled() => return Held::Cancelled,
            () = parts.inbox.filled() => return Held::GoesOn,
            // The log outlives its turns.
            _ = seq.changed() => {}
        }
    }
}

/// The jobs that the last message names and of whose end the model knows nothing.
fn named_jobs(state: &SessionState) -> Vec<String> {
    let Some(message) = state
        .history
        .messages()
        .last()
        .filter(|message| message.role == HistoryRole::Assistant)
    else {
        return Vec::new();
    };
    let says = |id: &str| {
        message
            .parts
            .iter()
            .any(|part| matches!(part, Part::Text { text } if text.contains(id)))
    };
    state
        .jobs
        .running()
        .chain(state.jobs.untold())
        .filter(|job| says(&job.id))
        .map(|job| job.id.clone())
        .collect()
}

const BROKEN_HOOK: &str = "a hook before the step broke with an internal error; this is a defect of Terret or of the hook";

/// Why a step gets no input.
enum Unclaimed {
    Rejected(String),
    /// A hook panicked, or a cancel came while it worked; the input that starts the turn
    /// comes back.
    Unread {
        first: Option<Claim>,
        ended: Ended,
    },
}

/// Collects what the next step reads, through the hooks.
async fn claim_input(
    parts: &TurnParts,
    first: Option<Claim>,
    steers: &[Input],
    stop: &Stop,
) -> Result<Vec<Claim>, Unclaimed> {
    let mut claim: Vec<Claim> = first
        .clone()
        .into_iter()
        .chain(steers.iter().cloned().map(Claim::Injected))
        .collect();
    for hook in &parts.hooks {
        let work = AssertUnwindSafe(hook.before_step(claim)).catch_unwind();
        let ended = match stop.token.run_until_cancelled(work).await {
            Some(Ok(Ok(claimed))) => {
                claim = claimed;
                continue;
            }
            Some(Ok(Err(rejected))) => return Err(Unclaimed::Rejected(rejected.0)),
            Some(Err(_)) => Ended::failed(BROKEN_HOOK),
            None => Ended::with(TurnStatus::Cancelled),
        };
        return Err(Unclaimed::Unread { first, ended });
    }
    Ok(claim)
}

/// The ceiling of `design.md §4 Turns`: a turn that nobody attends ends at its limit;
/// an attended one asks whether to go on.
async fn check_ceiling(
    parts: &TurnParts,
    step: u32,
    asked_at: &mut u32,
    stop: &Stop,
) -> Result<Option<Ended>, Fault> {
    let limits = parts.policy.settings().limits;
    if !parts.approvals.attended() {
        return Ok((step >= limits.max_steps).then(|| step_limit(step)));
    }
    if step == 0 || step - *asked_at < limits.ask_after_steps {
        return Ok(None);
    }
    *asked_at = step;
    let title = format!("Go on after {step} steps?");
    let question = Question {
        call: Call {
            id: format!("continue-{}", parts.core.next_seq()),
            name: "continue".to_owned(),
            args: Ok(serde_json::json!({ "steps": step })),
        },
        kind: Kind::Other,
        title,
        reason: format!("this turn has taken {step} steps; it may be going in circles"),
        preview: Vec::new(),
        offered_rule: None,
        stage: Stage::Call,
        says: None,
    };
    Ok(match parts.approvals.ask(question, &stop.token).await? {
        Answer::Approved => None,
        Answer::Denied { .. } => Some(step_limit(step)),
        Answer::Cancelled => Some(Ended::with(TurnStatus::Cancelled)),
    })
}

fn step_limit(step: u32) -> Ended {
    Ended {
        status: TurnStatus::StepLimit,
        reason: Some(format!("the turn reached its limit of {step} steps")),
    }
}

/// Gives each call of the open turn that has no result an error result, so that no
/// history holds a call without one and no card spins for ever.
fn close_owed_calls(core: &Core, status: TurnStatus) -> Result<(), Fault> {
    let error = match status {
        TurnStatus::Cancelled => "cancelled before execution",
        _ => "the turn ended before this call had a result; it may have run in part",
    };
    for owed in owed_calls(core) {
        if !owed.announced {
            core.append(Payload::ToolCall {
                id: owed.id.clone(),
                name: owed.name,
                args: owed.args,
            })?;
        }
        core.append(error_result(owed.id, error))?;
    }
    Ok(())
}

/// Ends the step that a fault or a panic left open.
fn close_step(core: &Core) -> Result<(), Fault> {
    let open = core.state(|state| {
        let open = state.turn.open.as_ref()?;
        open.step_open.then_some(open.steps)
    });
    if let Some(n) = open {
        core.append(Payload::StepEnd { n, usage: None })?;
    }
    Ok(())
}

fn owed_calls(core: &Core) -> Vec<OwedCall> {
    core.state(|state| {
        state
            .turn
            .open
            .as_ref()
            .map(|open| open.owed.clone())
            .unwrap_or_default()
    })
}

fn error_result(id: String, error: &str) -> Payload {
    Payload::ToolResult {
        id,
        content: None,
        error: Some(error.to_owned()),
        images: Vec::new(),
    }
}

#[cfg(test)]
mod tests;
