//! Permission requests: the durable approvals of a session, as questions to its editor.
//!
//! A question is asked while a prompt of this connection is pending, since v1 clients show
//! none at other times; it waits here until then. Whatever the editor answers, nothing but
//! an id that was offered allows (`ACP session/request_permission`).

mod choices;

use std::collections::{HashMap, VecDeque};
use std::future::Future as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use serde_json::{Value, json};
use terret_acp::schema::v1;
use terret_acp::{ErrorCode, Peer, RequestError};
use terret_engine::room::log::ApprovalStage;
use terret_engine::{ApprovalError, Decision, SessionHandle};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::choices::{Meaning, Offer, choices, reject, sent, understand};
use super::turns::Turn;
use crate::text::line;

/// The one field of the form that asks for a reason.
const REASON: &str = "reason";

/// One question.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    /// The approval's id.
    pub id: String,
    /// What the editor shows.
    pub card: v1::ToolCallUpdate,
    pub offered_rule: Option<String>,
    pub stage: ApprovalStage,
}

/// What a client can do with questions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AskingClient {
    /// Shows several at once.
    pub together: bool,
    /// Shows more than one option of a kind, by their names.
    pub several_of_a_kind: bool,
    /// Shows forms (`ACP elicitation/create`).
    pub forms: bool,
}

/// All questions of one session on one connection. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Asks(Arc<Inner>);

struct Inner {
    peer: Peer,
    session: SessionHandle,
    turns: mpsc::WeakSender<Turn>,
    client: AskingClient,
    state: Mutex<State>,
    /// How many prompts of this connection are pending.
    prompts: watch::Sender<usize>,
    tasks: TaskTracker,
    /// Ends all tasks with the attachment.
    end: CancellationToken,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Ask>,
    /// What the editor is being asked, with what takes the question back.
    open: HashMap<String, CancellationToken>,
}

/// What came of a question.
enum Answered {
    Decided(Decision),
    /// The editor gave up the turn.
    Cancelled,
    /// The connection is gone: the approval waits for another face.
    Gone,
}

impl Asks {
    pub(crate) fn new(
        peer: Peer,
        session: SessionHandle,
        turns: mpsc::WeakSender<Turn>,
        client: AskingClient,
        end: CancellationToken,
    ) -> Self {
        Self(Arc::new(Inner {
            peer,
            session,
            turns,
            client,
            state: Mutex::default(),
            prompts: watch::Sender::new(0),
            tasks: TaskTracker::new(),
            end,
        }))
    }

    /// A prompt of this connection is pending from now on.
    pub(crate) fn prompt_began(&self) {
        self.0.prompts.send_modify(|prompts| *prompts += 1);
        self.ask_next();
    }

    /// A prompt was answered.
    pub(crate) fn prompt_ended(&self) {
        self.0
            .prompts
            .send_modify(|prompts| *prompts = prompts.saturating_sub(1));
    }

    /// Resolves while a prompt is pending.
    pub(crate) async fn prompted(&self) {
        let mut prompts = self.0.prompts.subscribe();
        // The sender lives as long as this does.
        let _open = prompts.wait_for(|prompts| *prompts > 0).await;
    }

    /// Asks as soon as it may be asked.
    pub(crate) fn ask(&self, ask: Ask) {
        let mut state = self.lock();
        let known = state.open.contains_key(&ask.id)
            || state.waiting.iter().any(|waiting| waiting.id == ask.id);
        if !known {
            state.waiting.push_back(ask);
        }
        drop(state);
        self.ask_next();
    }

    /// An approval was decided: a question that still stands is taken back.
    pub(crate) fn decided(&self, id: &str) {
        let mut state = self.lock();
        state.waiting.retain(|ask| ask.id != id);
        let open = state.open.remove(id);
        drop(state);
        if let Some(open) = open {
            open.cancel();
        }
        self.ask_next();
    }

    /// Resolves when all tasks have ended; `end` must have been fired.
    pub(crate) async fn ended(&self) {
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    fn ask_next(&self) {
        let mut begun = Vec::new();
        let mut state = self.lock();
        while *self.0.prompts.borrow() > 0 && (self.0.client.together || state.open.is_empty()) {
            let Some(ask) = state.waiting.pop_front() else {
                break;
            };
            let taken_back = self.0.end.child_token();
            state.open.insert(ask.id.clone(), taken_back.clone());
            begun.push((ask, taken_back));
        }
        drop(state);
        for (ask, taken_back) in begun {
            let asks = self.clone();
            let mut run = Box::pin(async move { asks.run(ask, &taken_back).await });
            // The first poll sends the question, here and now, so that questions come in
            // the order of their calls; the wait for the answer is the task's.
            let first = run.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            if first.is_pending() {
                self.0.tasks.spawn(run);
            }
        }
    }

    async fn run(self, ask: Ask, taken_back: &CancellationToken) {
        let answered = tokio::select! {
            biased;
            // Dropping the request tells the client that its answer is no longer wanted.
            () = taken_back.cancelled() => return,
            answered = self.request(&ask) => answered,
        };
        match answered {
            Answered::Gone => return,
            Answered::Cancelled => {
                self.settle(&ask.id, Decision::Cancelled, taken_back).await;
                // The turn is cancelled by whoever keeps its order with the prompts.
                if let Some(turns) = self.0.turns.upgrade() {
                    let _gone = turns.send(Turn::Cancel).await;
                }
            }
            Answered::Decided(decision) => self.settle(&ask.id, decision, taken_back).await,
        }
        // The log says so as well, unless there was nothing left to decide.
        self.decided(&ask.id);
    }

    async fn request(&self, ask: &Ask) -> Answered {
        let offer = Offer {
            stage: ask.stage,
            rule: ask.offered_rule.as_deref(),
            several_of_a_kind: self.0.client.several_of_a_kind,
        };
        let choices = choices(&offer);
        let session = self.0.session.id().as_str().to_owned();
        let request = v1::RequestPermissionRequest::new(session, ask.card.clone(), sent(&choices));
        let meaning = match self
            .0
            .peer
            .request::<Value>("session/request_permission", &request)
            .await
        {
            Ok(response) => understand(&response, &choices),
            Err(RequestError::Closed { .. }) => return Answered::Gone,
            Err(RequestError::Rpc { error, .. }) if error.code == ErrorCode::Cancelled => None,
            Err(error) => {
                // The model has no use for methods and codes.
                let words = match &error {
                    RequestError::Rpc { error, .. } => error.message.to_string(),
                    other => other.to_string(),
                };
                Some(reject(format!(
                    "the editor could not ask: {}",
                    line(&words, 300)
                )))
            }
        };
        match meaning {
            None => Answered::Cancelled,
            Some(Meaning::Decided(decision)) => Answered::Decided(decision),
            Some(Meaning::SayWhy) if self.0.client.forms => self.reason(ask).await,
            // The next prompt says why.
            Some(Meaning::SayWhy) => Answered::Decided(Decision::RejectAndWait),
        }
    }

    /// Asks for the reason of a refusal. The call is refused whatever comes of that.
    async fn reason(&self, ask: &Ask) -> Answered {
        let form = json!({
            "mode": "form",
            "sessionId": self.0.session.id().as_str(),
            "toolCallId": ask.card.tool_call_id,
            "message": "Why is this call refused? The agent reads it and goes on.",
            "requestedSchema": {
                "type": "object",
                "properties": {
                    REASON: { "type": "string", "title": "Reason" },
                },
                "required": [REASON],
            },
        });
        let answer = self
            .0
            .peer
            .request::<Value>("elicitation/create", &form)
            .await;
        let given = match &answer {
            Ok(answer) if answer.get("action").and_then(Value::as_str) == Some("accept") => answer
                .pointer(&format!("/content/{REASON}"))
                .and_then(Value::as_str)
                .map(str::trim)
                .filter(|reason| !reason.is_empty()),
            Err(RequestError::Closed { .. }) => return Answered::Gone,
            _ => None,
        };
        Answered::Decided(match given {
            Some(reason) => Decision::Reject {
                reason: Some(reason.to_owned()),
            },
            // Whoever had something to say and did not say it here says it next.
            None => Decision::RejectAndWait,
        })
    }

    /// Decides. After a restart the question may be older than the call that waits again:
    /// the verdict is kept until that call is there, or the approval is decided otherwise.
    async fn settle(&self, id: &str, decision: Decision, taken_back: &CancellationToken) {
        let session = &self.0.session;
        let mut status = session.watch_status();
        loop {
            status.mark_unchanged();
            match session.decide(id, decision.clone(), "editor") {
                Ok(()) => return,
                Err(ApprovalError::NotWaiting(_)) => {}
                Err(error) => {
                    tracing::error!(%error, "a verdict could not be logged");
                    return;
                }
            }
            if session.state(|state| state.approvals.get(id).is_none()) {
                return;
            }
            tokio::select! {
                () = taken_back.cancelled() => return,
                changed = status.changed() => if changed.is_err() { return },
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
