//! The prompts of one session on one connection, and their cancels, in the order in which
//! they arrived.
//!
//! One task sends both to the engine. A cancel is marked on every prompt that was received
//! before it by the connection's reader (`Lane::Interrupt`), so it reaches exactly those:
//! one that still waits is answered as cancelled without a turn, and one that comes later
//! waits until the cancelled turn is over, so it can never be swept away with it (R104).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use terret_acp::schema::v1;
use terret_acp::{Peer, Responder, RpcError};
use terret_engine::room::log::{Severity, TurnStatus};
use terret_engine::{COMMANDS, Engine, InputBlock, PromptAnswer, SessionHandle, TurnOutcome};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::asks::Asks;
use super::engine_error;
use super::follower::notify;

/// How long a turn that was cancelled by a client that is gone may take to end.
const LAST_WORDS: std::time::Duration = std::time::Duration::from_millis(1200);

/// What the task is told.
pub(crate) enum Turn {
    Prompt {
        blocks: Vec<InputBlock>,
        responder: Responder,
    },
    /// The editor gave the turn up by its answer to a question.
    Cancel,
}

/// What the task works with.
pub(crate) struct Turns {
    pub engine: Engine,
    pub peer: Peer,
    pub session: SessionHandle,
    pub asks: Asks,
    /// How far the client has been brought.
    pub position: watch::Receiver<u64>,
    /// What the person is told with the first prompt.
    pub notice: Arc<Mutex<Option<String>>>,
}

/// A prompt that the engine has.
struct Open {
    number: u64,
    cancellation: CancellationToken,
    /// The engine was told to cancel the turn that this prompt belongs to.
    cancelled: bool,
    /// Ends the wait for a cancel once the prompt is answered.
    _answered: DropGuard,
}

/// A prompt that has not been sent to the engine yet.
struct Waiting {
    blocks: Vec<InputBlock>,
    responder: Responder,
}

/// What is going on.
#[derive(Default)]
struct State {
    open: Vec<Open>,
    answers: FuturesUnordered<BoxFuture<'static, u64>>,
    cancels: FuturesUnordered<BoxFuture<'static, u64>>,
    /// In order; behind a turn that is being cancelled.
    waiting: VecDeque<Waiting>,
    next: u64,
}

enum Next {
    Told(Option<Turn>),
    Answered(u64),
    Cancelled(u64),
}

impl Turns {
    /// Runs until the sender is gone and every prompt is answered, or the client is gone.
    pub(crate) async fn run(self, mut told: mpsc::Receiver<Turn>) {
        let mut state = State::default();
        let mut closing = false;
        loop {
            if closing && state.open.is_empty() && state.waiting.is_empty() {
                return;
            }
            let next = tokio::select! {
                biased;
                () = self.peer.closed() => return self.last_words(state, told).await,
                Some(number) = state.cancels.next() => Next::Cancelled(number),
                Some(number) = state.answers.next() => Next::Answered(number),
                turn = told.recv(), if !closing => Next::Told(turn),
            };
            match next {
                Next::Told(Some(Turn::Prompt { blocks, responder })) => {
                    state.waiting.push_back(Waiting { blocks, responder });
                }
                Next::Told(Some(Turn::Cancel)) => self.cancel(&mut state, |_| true).await,
                Next::Told(None) => closing = true,
                Next::Cancelled(number) => {
                    self.cancel(&mut state, |open| open.number == number).await
                }
                Next::Answered(number) => state.open.retain(|open| open.number != number),
            }
            self.submit(&mut state).await;
        }
    }

    /// Cancels the turn of the prompts that are meant.
    async fn cancel(&self, state: &mut State, meant: impl Fn(&Open) -> bool) {
        let any = state.open.iter().any(|open| meant(open) && !open.cancelled);
        if !any {
            return;
        }
        // All prompts that the engine has share the turn that runs.
        for open in &mut state.open {
            open.cancelled = true;
        }
        if let Err(error) = self.session.cancel("stopped by the user").await {
            tracing::debug!(%error, "nothing was left to cancel");
        }
    }

    /// The client is gone. Its turn and its approvals stay open, to be resumed, unless it
    /// cancelled them before it went: then the turn ends as cancelled, and the prompt is
    /// answered so for as long as anybody may still read it.
    async fn last_words(&self, mut state: State, mut told: mpsc::Receiver<Turn>) {
        let mut given_up = false;
        while let Ok(turn) = told.try_recv() {
            match turn {
                Turn::Prompt { blocks, responder } => {
                    state.waiting.push_back(Waiting { blocks, responder });
                }
                Turn::Cancel => given_up = true,
            }
        }
        for Waiting { responder, .. } in state.waiting.drain(..) {
            if responder.withdrawn().is_cancelled() {
                responder
                    .respond(&v1::PromptResponse::new(v1::StopReason::Cancelled))
                    .await;
            }
        }
        self.cancel(&mut state, |open| {
            given_up || open.cancellation.is_cancelled()
        })
        .await;
        if state.open.iter().any(|open| open.cancelled) {
            let answered = async { while state.answers.next().await.is_some() {} };
            if tokio::time::timeout(LAST_WORDS, answered).await.is_err() {
                tracing::warn!("a cancelled turn did not end before its client was let go");
            }
        }
    }

    /// Sends what waits to the engine, unless a cancelled turn is still ending.
    async fn submit(&self, state: &mut State) {
        loop {
            // A cancel that arrived before the next prompt goes first.
            self.cancel(state, |open| open.cancellation.is_cancelled())
                .await;
            if self.peer.is_closed() {
                return;
            }
            let held = state.open.iter().any(|open| open.cancelled);
            let Some(next) = state.waiting.front() else {
                return;
            };
            let given_up = next.responder.withdrawn().is_cancelled();
            if held && !given_up {
                return;
            }
            let Some(Waiting { blocks, responder }) = state.waiting.pop_front() else {
                return;
            };
            if given_up {
                responder
                    .respond(&v1::PromptResponse::new(v1::StopReason::Cancelled))
                    .await;
                continue;
            }
            self.start(state, blocks, responder).await;
        }
    }

    async fn start(&self, state: &mut State, blocks: Vec<InputBlock>, responder: Responder) {
        if let Err(reason) = self.ready(&blocks) {
            // Some clients show no error text of a prompt (Toad), so it is said as well.
            let block = v1::ContentBlock::Text(v1::TextContent::new(format!("{reason}\n")));
            let chunk = v1::ContentChunk::new(block).message_id(v1::MessageId::new("sign-in"));
            let _gone = notify(
                &self.peer,
                &self.session,
                v1::SessionUpdate::AgentMessageChunk(chunk),
            )
            .await;
            responder.fail(RpcError::auth_required(reason)).await;
            return;
        }
        let notice = self
            .notice
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(text) = notice
            && let Err(error) = self.session.notice(Severity::Warning, &text)
        {
            tracing::error!(%error, "a notice was not logged");
        }
        let prompted = self.session.prompt(blocks).await;
        match prompted {
            Ok(answer) => {
                let number = state.next;
                state.next += 1;
                let cancellation = responder.withdrawn().clone();
                let answered = CancellationToken::new();
                state.open.push(Open {
                    number,
                    cancellation: cancellation.clone(),
                    cancelled: false,
                    _answered: answered.clone().drop_guard(),
                });
                state.cancels.push(Box::pin(async move {
                    let _answered = answered.run_until_cancelled(cancellation.cancelled()).await;
                    number
                }));
                self.asks.prompt_began();
                let answering = self.answer(answer, responder);
                state.answers.push(Box::pin(async move {
                    answering.await;
                    number
                }));
            }
            Err(error) => responder.fail(engine_error(&error)).await,
        }
    }

    /// Waits for the turn's end, then until the client has been sent all of the turn, and
    /// answers behind that.
    fn answer(
        &self,
        answer: PromptAnswer,
        responder: Responder,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (session, asks, mut position) = (
            self.session.clone(),
            self.asks.clone(),
            self.position.clone(),
        );
        async move {
            let outcome = answer.outcome().await;
            if let Some(outcome) = &outcome {
                // Ends early when the follower is gone, and then nobody reads the answer.
                let _gone = position.wait_for(|position| *position >= outcome.end).await;
            }
            asks.prompt_ended();
            match outcome {
                Some(outcome) => responder.finish(response(&session, &outcome)).await,
                None => {
                    let reason = "the session was stopped; its turn stays open and goes on with the next prompt";
                    responder
                        .fail(RpcError::new(terret_acp::ErrorCode::Cancelled, reason))
                        .await;
                }
            }
        }
    }

    /// Whether the session's model can be asked. Slash commands work without one: one of
    /// them chooses it.
    fn ready(&self, blocks: &[InputBlock]) -> Result<(), String> {
        if is_command(blocks) {
            return Ok(());
        }
        let checked = match self.session.options().model {
            Some(model) => self
                .engine
                .registry()
                .resolve(&model)
                .and_then(|provider| provider.ready()),
            None => self.engine.ready(),
        };
        checked.map_err(|error| error.to_string())
    }
}

fn is_command(blocks: &[InputBlock]) -> bool {
    blocks.iter().any(|block| match block {
        InputBlock::Text(text) => {
            let word = text
                .trim()
                .strip_prefix('/')
                .and_then(|rest| rest.split_whitespace().next());
            word.is_some_and(|word| COMMANDS.iter().any(|command| command.name == word))
        }
        _ => false,
    })
}

/// The answer to a prompt (`ACP stopReason`). A failure is an error, and never looks like
/// a finished turn (R059).
fn response(
    session: &SessionHandle,
    outcome: &TurnOutcome,
) -> Result<v1::PromptResponse, RpcError> {
    let reason = match outcome.status {
        TurnStatus::Completed | TurnStatus::Empty => v1::StopReason::EndTurn,
        TurnStatus::Cancelled => v1::StopReason::Cancelled,
        TurnStatus::Rejected | TurnStatus::Refused => v1::StopReason::Refusal,
        TurnStatus::OutputLimit => v1::StopReason::MaxTokens,
        TurnStatus::StepLimit => v1::StopReason::MaxTurnRequests,
        TurnStatus::Failed => {
            let reason = outcome
                .reason
                .clone()
                .unwrap_or_else(|| "the turn failed".to_owned());
            return Err(if is_about_keys(&reason) {
                RpcError::auth_required(reason)
            } else {
                RpcError::internal(reason)
            });
        }
    };
    let usage = session.state(|state| state.usage);
    let total = usage.prompt_tokens.saturating_add(usage.completion_tokens);
    let usage = (total > 0).then(|| {
        v1::Usage::new(total, usage.prompt_tokens, usage.completion_tokens)
            .thought_tokens(some(usage.thought_tokens))
            .cached_read_tokens(some(usage.cached_read_tokens))
            .cached_write_tokens(some(usage.cached_write_tokens))
    });
    Ok(v1::PromptResponse::new(reason).usage(usage))
}

/// Whether a turn failed for want of a key. The log keeps the words alone; a test holds
/// them to those of `ModelError`.
fn is_about_keys(reason: &str) -> bool {
    reason.starts_with("no key for `")
        || reason.starts_with("no model is set up: ")
        || reason.contains("` refused the key (")
}

fn some(count: u64) -> Option<u64> {
    (count > 0).then_some(count)
}

#[cfg(test)]
mod tests {
    use terret_engine::room::models::ModelError;

    use super::*;

    #[test]
    fn failures_about_keys_are_told_by_the_words_of_the_model_room() {
        let provider = "anthropic".to_owned();
        let no_key = ModelError::NoKey {
            provider: provider.clone(),
            way_out: "set it".to_owned(),
        };
        let refused = ModelError::Auth {
            provider: provider.clone(),
            status: 401,
            message: "bad".to_owned(),
        };
        let other = ModelError::Connect {
            provider,
            message: "refused the connection".to_owned(),
        };
        assert!(is_about_keys(&no_key.to_string()));
        assert!(is_about_keys(&refused.to_string()));
        let no_model = ModelError::NoModel {
            way_out: "name one".to_owned(),
        };
        assert!(is_about_keys(&no_model.to_string()));
        assert!(!is_about_keys(&other.to_string()));
    }

    #[test]
    fn commands_are_told_from_paths() {
        let text = |text: &str| vec![InputBlock::Text(text.to_owned())];
        assert!(is_command(&text("/model ollama:x")));
        assert!(!is_command(&text("/etc/hosts is odd")));
    }
}
