//! The calls of one message: which run together, when a person is asked, and in what order
//! things are logged (`Terret spec §4`, and `design: Approvals`).
//!
//! Calls are cut into runs, in order: adjacent parallel calls are one run, every other
//! call is a run of one. A run begins when the one before it has ended.
//!
//! **Asking.** A person should see all that one message asks for at once, not one question
//! after another. So before anything runs, each call is taken through its hooks, and the
//! gate's questions are put, even those of later runs. A question is put early only when
//! its preview can be made now and no earlier call of the message changes a file that it
//! changes; the others are asked when it is their turn. The early look decides nothing
//! but that: at its turn a call is checked and decided anew, under the policy of that
//! moment. An answer holds unless the preview came out
//! differently after the calls before it ran; then it is asked again.
//!
//! **Order in the log.** `called` events come in call order and once each; a call's comes
//! before its question. A question that is put early therefore brings forward the `called`
//! events of the calls before it. All `called` of a run come before its first `finished`;
//! `finished` events come in call order, each as soon as those before it are in.
//!
//! **Cancel.** The calls of the run that is under way see their token fire and have
//! [`GRACE`] to give a result; then they are given up and get one that says so (R027).
//! Results that are there are kept. Calls of later runs get [`CANCELLED`].

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::StreamExt as _;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::call::{Answer, Call, CallResult, Fault, FileChange};
use crate::definition::Concurrency;
use crate::gate::Decision;
use crate::pipeline::{Admission, CANCELLED, Checked, Pipeline, bounded, panicked, refusal};
use crate::table::Table;

/// How long a cancelled call has to end by itself.
pub(crate) const GRACE: Duration = Duration::from_secs(2);
/// How long an aborted call is waited for.
const DROP_WAIT: Duration = Duration::from_millis(100);
/// How many calls of one run work at the same time.
const WIDTH: usize = 16;
/// How many calls of one message are in their hooks at the same time.
const HOOKS: usize = 4;

/// A call and how far it came before its turn.
struct Slot {
    call: Call,
    /// What the `before` hooks made of it.
    admitted: Result<Admission, CallResult>,
    asked: Option<Asked>,
}

/// A question put before the call's turn.
struct Asked {
    answer: oneshot::Receiver<Result<Answer, Fault>>,
    preview: Vec<FileChange>,
    /// Takes the question back when nobody waits for its answer any more.
    _withdraw: DropGuard,
}

/// Runs the calls of one message.
pub(crate) async fn run(
    pipeline: Arc<Pipeline>,
    calls: Vec<Call>,
    cancel: &CancellationToken,
) -> Result<(), Fault> {
    let runs = partition(&calls, &pipeline.table);
    let mut log = CallLog {
        pipeline: &pipeline,
        calls: calls.clone(),
        called: 0,
    };
    let mut questions = JoinSet::new();
    let mut slots = prepare(&pipeline, calls, &mut log, &mut questions, cancel)
        .await?
        .into_iter();
    let limit = Arc::new(Semaphore::new(WIDTH));
    for run in runs {
        let slots: Vec<Slot> = slots.by_ref().take(run.len()).collect();
        if cancel.is_cancelled() {
            // Each question is answered in the log before its call is.
            settle(&mut questions).await;
            for (index, slot) in run.clone().zip(slots) {
                log.called_to(index + 1).await?;
                let result = unrun(slot.admitted, &slot.call, slot.asked);
                pipeline.journal.finished(&slot.call, &result).await?;
            }
            continue;
        }
        log.called_to(run.end).await?;
        run_together(&pipeline, slots, &limit, cancel).await?;
    }
    settle(&mut questions).await;
    Ok(())
}

/// The result of a call that a cancel kept from running. One that was refused before says
/// so, with the reason that a person gave.
fn unrun(admitted: Result<Admission, CallResult>, call: &Call, asked: Option<Asked>) -> CallResult {
    if let Err(refused) = admitted {
        return refused;
    }
    match asked.and_then(|mut asked| asked.answer.try_recv().ok()) {
        Some(Ok(answer @ Answer::Denied { .. })) => refusal(call, answer),
        _ => None,
    }
    .unwrap_or_else(|| CallResult::error(CANCELLED))
}

/// Waits for the questions that were taken back or cancelled to be closed.
async fn settle(questions: &mut JoinSet<()>) {
    let closed = async { while questions.join_next().await.is_some() {} };
    if tokio::time::timeout(GRACE, closed).await.is_err() {
        tracing::warn!("a question stayed open after its call had ended");
    }
}

/// Writes `called` events in call order, each once.
struct CallLog<'a> {
    pipeline: &'a Pipeline,
    calls: Vec<Call>,
    called: usize,
}

impl CallLog<'_> {
    async fn called_to(&mut self, end: usize) -> Result<(), Fault> {
        while self.called < end {
            let Some(call) = self.calls.get(self.called) else {
                return Ok(());
            };
            self.pipeline.journal.called(call).await?;
            self.called += 1;
        }
        Ok(())
    }
}

/// Cuts a message's calls into runs. An unknown tool is serial.
fn partition(calls: &[Call], table: &Table) -> Vec<Range<usize>> {
    let parallel = |call: &Call| {
        table
            .get(&call.name)
            .is_some_and(|tool| tool.definition().concurrency == Concurrency::Parallel)
    };
    let mut runs: Vec<Range<usize>> = Vec::new();
    let mut last_parallel = false;
    for (index, call) in calls.iter().enumerate() {
        let parallel = parallel(call);
        match runs.last_mut() {
            Some(run) if parallel && last_parallel => run.end = index + 1,
            _ => runs.push(index..index + 1),
        }
        last_parallel = parallel;
    }
    runs
}

/// Takes all calls through their hooks and puts the questions that can be put now.
async fn prepare(
    pipeline: &Pipeline,
    calls: Vec<Call>,
    log: &mut CallLog<'_>,
    questions: &mut JoinSet<()>,
    cancel: &CancellationToken,
) -> Result<Vec<Slot>, Fault> {
    let mut slots = Vec::with_capacity(calls.len());
    let mut touched = BTreeSet::new();
    let mut waiting = Vec::new();
    // A hook may be a program that takes its time; those of other calls go on beside it.
    let mut admissions = futures::stream::iter(calls.clone())
        .map(|call| pipeline.admit(call))
        .buffered(HOOKS);
    for (index, call) in calls.into_iter().enumerate() {
        if cancel.is_cancelled() {
            let admitted = Err(CallResult::error(CANCELLED));
            slots.push(Slot {
                call,
                admitted,
                asked: None,
            });
            continue;
        }
        let admitted = tokio::select! {
            // First, so that the hook that stops the calls is heard on its own call.
            biased;
            Some(admitted) = admissions.next() => admitted,
            () = cancel.cancelled() => Err(CallResult::error(CANCELLED)),
        };
        let mut asked = None;
        if let Ok(admitted) = &admitted
            && let Ok(checked) = pipeline.check(admitted.clone())
        {
            if let Decision::Ask {
                reason,
                offered_rule,
            } = pipeline.decide(&checked)
                && let Some(preview) = early_preview(pipeline, &checked, &touched, cancel).await
            {
                let question = pipeline.question(&checked, reason, offered_rule, preview.clone());
                let (sender, answer) = oneshot::channel();
                let withdraw = cancel.child_token();
                waiting.push((index, question, sender, withdraw.clone()));
                asked = Some(Asked {
                    answer,
                    preview,
                    _withdraw: withdraw.drop_guard(),
                });
            }
            if checked.tool.definition().mutating {
                touched.extend(pipeline.places(&checked));
            }
        }
        slots.push(Slot {
            call,
            admitted,
            asked,
        });
    }
    for (index, question, sender, cancel) in waiting {
        log.called_to(index + 1).await?;
        let approver = Arc::clone(&pipeline.approver);
        let mut ask = Box::pin(async move {
            // The receiver is gone only when the turn is.
            let _ = sender.send(approver.ask(question, &cancel).await);
        });
        // The first poll puts the question, here and now, so that questions stand in the
        // log in call order; the wait for the answer is the task's.
        let first = std::future::poll_fn(|context| Poll::Ready(ask.as_mut().poll(context))).await;
        if first.is_pending() {
            questions.spawn(ask);
        }
    }
    Ok(slots)
}

/// The preview, when it can be made before the earlier calls have run.
async fn early_preview(
    pipeline: &Pipeline,
    checked: &Checked,
    touched: &BTreeSet<PathBuf>,
    cancel: &CancellationToken,
) -> Option<Vec<FileChange>> {
    if pipeline
        .places(checked)
        .iter()
        .any(|path| touched.contains(path))
    {
        return None;
    }
    tokio::select! {
        preview = pipeline.preview(checked, cancel) => preview.ok(),
        () = cancel.cancelled() => None,
    }
}

/// Runs the calls of one run and logs their results in order.
async fn run_together(
    pipeline: &Arc<Pipeline>,
    slots: Vec<Slot>,
    limit: &Arc<Semaphore>,
    cancel: &CancellationToken,
) -> Result<(), Fault> {
    let mut order = Vec::with_capacity(slots.len());
    let mut tasks = JoinSet::new();
    let mut places = BTreeMap::new();
    for (index, slot) in slots.into_iter().enumerate() {
        order.push(slot.call.clone());
        let pipeline = Arc::clone(pipeline);
        let limit = Arc::clone(limit);
        let cancel = cancel.child_token();
        let handle = tasks.spawn(async move { take_turn(&pipeline, slot, &limit, &cancel).await });
        places.insert(handle.id(), index);
    }
    let mut results: BTreeMap<usize, CallResult> = BTreeMap::new();
    let mut logged = 0;
    let mut giving_up = false;
    let given_up = async {
        cancel.cancelled().await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::pin!(given_up);
    while logged < order.len() {
        tokio::select! {
            biased;
            Some(joined) = tasks.join_next_with_id() => match joined {
                Ok((id, result)) => {
                    if let Some(index) = places.get(&id) {
                        results.insert(*index, result?);
                    }
                }
                Err(error) => {
                    if let Some(index) = places.get(&error.id()) {
                        let result = if error.is_panic() {
                            panicked("the call")
                        } else {
                            CallResult::error(ABANDONED)
                        };
                        results.insert(*index, result);
                    }
                }
            },
            () = &mut given_up, if !giving_up => {
                giving_up = true;
                tasks.abort_all();
                // A task that does not even yield cannot be ended; its result is not waited for.
                for index in 0..order.len() {
                    if index >= logged {
                        results.entry(index).or_insert_with(|| CallResult::error(ABANDONED));
                    }
                }
            }
        }
        while let Some(result) = results.remove(&logged) {
            if let Some(call) = order.get(logged) {
                pipeline.journal.finished(call, &bounded(result)).await?;
            }
            logged += 1;
        }
    }
    if giving_up {
        // An aborted task is dropped when it next yields; that is to be over before the turn is.
        let ended = async { while tasks.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(DROP_WAIT, ended).await;
    }
    Ok(())
}

/// What a call that did not heed the cancel is answered.
const ABANDONED: &str = "cancelled: the call did not end within 2 s of the cancel and was given up; it may have done part of its work";

/// One call's turn: decided anew, asked if need be, and run.
async fn take_turn(
    pipeline: &Pipeline,
    slot: Slot,
    limit: &Semaphore,
    cancel: &CancellationToken,
) -> Result<CallResult, Fault> {
    let admission = match slot.admitted {
        Ok(admission) => admission,
        Err(result) => return Ok(result),
    };
    let checked = match pipeline.check(admission) {
        Ok(checked) => checked,
        Err(result) => return Ok(result),
    };
    let decision = pipeline.decide(&checked);
    if let Decision::Forbid { reason } = decision {
        return Ok(CallResult::error(reason));
    }
    // What the person said yes to; none before anybody was asked.
    let mut shown = None;
    if let Some(asked) = slot.asked {
        // A rule that covers the call meanwhile settles the question, so the wait is short.
        let Ok(answer) = asked.answer.await else {
            return Ok(panicked("the question for this call"));
        };
        if let Some(result) = refusal(&checked.call, answer?) {
            return Ok(pipeline.finish(&checked.call, result).await);
        }
        shown = Some(asked.preview);
    }
    // A yes is for the change that was shown. When the file became another one while the
    // person looked at it, the change that it has become is shown anew.
    loop {
        if let Some(shown) = &shown
            && is_as_shown(pipeline, &checked, shown, cancel).await
        {
            break;
        }
        let Decision::Ask {
            reason,
            offered_rule,
        } = pipeline.decide(&checked)
        else {
            break;
        };
        let preview = match pipeline.preview(&checked, cancel).await {
            Ok(preview) => preview,
            Err(result) => return Ok(pipeline.finish(&checked.call, result).await),
        };
        let question = pipeline.question(&checked, reason, offered_rule, preview.clone());
        if let Some(result) = pipeline.ask(question, cancel).await? {
            return Ok(pipeline.finish(&checked.call, result).await);
        }
        shown = Some(preview);
    }
    // What was allowed before a wait may be forbidden after it.
    if let Some(result) = pipeline.forbidden(&checked) {
        return Ok(result);
    }
    let Ok(_permit) = limit.acquire().await else {
        return Ok(CallResult::error(CANCELLED));
    };
    if cancel.is_cancelled() {
        return Ok(CallResult::error(CANCELLED));
    }
    pipeline.execute(&checked, cancel).await
}

/// Whether a call would still do what the person was shown.
async fn is_as_shown(
    pipeline: &Pipeline,
    checked: &Checked,
    shown: &[FileChange],
    cancel: &CancellationToken,
) -> bool {
    match pipeline.preview(checked, cancel).await {
        Ok(now) => now == shown,
        // It cannot be done any more; running it says why.
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests;
