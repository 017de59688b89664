//! Permission requests: the durable approvals of a session, as questions to its editor.
//!
//! A question is asked while a prompt of this connection is pending, since v1 clients show
//! none at other times; it waits here until then. Whatever the editor answers, nothing but
//! an id that was offered allows (`ACP session/request_permission`).

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use terret_acp::schema::v1;
use terret_acp::{ErrorCode, Peer, RequestError};
use terret_engine::room::log::ApprovalStage;
use terret_engine::{ApprovalError, Decision, SessionHandle};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::turns::Turn;
use crate::text::line;

const ALLOW_ONCE: &str = "allow_once";
const ALLOW_ALWAYS: &str = "allow_always";
const REJECT_ONCE: &str = "reject_once";
/// Characters of a rule that an option's name has room for.
const SHOWN_RULE: usize = 400;

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

impl Ask {
    /// The rule, if it can be shown whole: nobody may agree to one that they cannot read.
    fn offered_rule(&self) -> Option<&str> {
        self.offered_rule
            .as_deref()
            .filter(|rule| rule.chars().count() <= SHOWN_RULE)
    }
}

/// All questions of one session on one connection. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Asks(Arc<Inner>);

struct Inner {
    peer: Peer,
    session: SessionHandle,
    turns: mpsc::WeakSender<Turn>,
    together: bool,
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
        together: bool,
        end: CancellationToken,
    ) -> Self {
        Self(Arc::new(Inner {
            peer,
            session,
            turns,
            together,
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
        let mut state = self.lock();
        while *self.0.prompts.borrow() > 0 && (self.0.together || state.open.is_empty()) {
            let Some(ask) = state.waiting.pop_front() else {
                return;
            };
            let taken_back = self.0.end.child_token();
            state.open.insert(ask.id.clone(), taken_back.clone());
            let asks = self.clone();
            self.0
                .tasks
                .spawn(async move { asks.run(ask, &taken_back).await });
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
        let session = self.0.session.id().as_str().to_owned();
        let request = v1::RequestPermissionRequest::new(session, ask.card.clone(), options(ask));
        match self
            .0
            .peer
            .request::<Value>("session/request_permission", &request)
            .await
        {
            Ok(response) => understand(&response, ask.offered_rule().is_some()),
            Err(RequestError::Closed { .. }) => Answered::Gone,
            Err(RequestError::Rpc { error, .. }) if error.code == ErrorCode::Cancelled => {
                Answered::Cancelled
            }
            Err(error) => {
                // The model has no use for methods and codes.
                let words = match &error {
                    RequestError::Rpc { error, .. } => error.message.to_string(),
                    other => other.to_string(),
                };
                reject(format!("the editor could not ask: {}", line(&words, 300)))
            }
        }
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

/// One option of each kind: clients exist that give a key to the first of a kind only.
fn options(ask: &Ask) -> Vec<v1::PermissionOption> {
    let once = v1::PermissionOption::new(
        ALLOW_ONCE,
        "Allow once",
        v1::PermissionOptionKind::AllowOnce,
    );
    let always = ask.offered_rule().map(|rule| {
        // The exact rule and how far it reaches: "always" must say what it means (R009).
        let name = format!("Allow for this session: {}", line(rule, SHOWN_RULE));
        v1::PermissionOption::new(ALLOW_ALWAYS, name, v1::PermissionOptionKind::AllowAlways)
    });
    let reject =
        v1::PermissionOption::new(REJECT_ONCE, "Reject", v1::PermissionOptionKind::RejectOnce);
    [Some(once), always, Some(reject)]
        .into_iter()
        .flatten()
        .collect()
}

/// Reads the outcome; only an id that was offered allows.
fn understand(response: &Value, always_offered: bool) -> Answered {
    let text = |path: &str| response.pointer(path).and_then(Value::as_str);
    match (text("/outcome/outcome"), text("/outcome/optionId")) {
        (Some("cancelled"), _) => Answered::Cancelled,
        (Some("selected"), Some(ALLOW_ONCE)) => Answered::Decided(Decision::AllowOnce),
        (Some("selected"), Some(ALLOW_ALWAYS)) if always_offered => {
            Answered::Decided(Decision::AllowForSession)
        }
        (Some("selected"), Some(REJECT_ONCE)) => {
            Answered::Decided(Decision::Reject { reason: None })
        }
        (Some("selected"), _) => {
            reject("the editor chose an option that was not offered".to_owned())
        }
        _ => reject("the editor's answer was not understood".to_owned()),
    }
}

fn reject(reason: String) -> Answered {
    Answered::Decided(Decision::Reject {
        reason: Some(reason),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rule_that_cannot_be_shown_whole_is_not_offered() {
        let ask = |rule: String| Ask {
            id: "a1".to_owned(),
            card: v1::ToolCallUpdate::new("c1", v1::ToolCallUpdateFields::new()),
            offered_rule: Some(rule),
            stage: ApprovalStage::Call,
        };
        assert_eq!(options(&ask("Bash(ls)".to_owned())).len(), 3);
        let long = format!("Bash(echo {} precious)", "x".repeat(500));
        assert_eq!(options(&ask(long)).len(), 2);
    }

    #[test]
    fn only_what_was_offered_allows() {
        let allows = |response: Value, always: bool| {
            matches!(
                understand(&response, always),
                Answered::Decided(Decision::AllowOnce | Decision::AllowForSession)
            )
        };
        let selected = |id: &str| json!({ "outcome": { "outcome": "selected", "optionId": id } });
        assert!(allows(selected("allow_once"), false));
        assert!(allows(selected("allow_always"), true));
        for response in [
            selected("allow_always"),
            selected("reject_once"),
            selected("yes"),
            json!({ "outcome": { "outcome": "selected" } }),
            json!({ "outcome": "allow_once" }),
            json!({ "optionId": "allow_once" }),
            json!(null),
        ] {
            assert!(!allows(response, false));
        }
        let cancelled = json!({ "outcome": { "outcome": "cancelled" } });
        assert!(matches!(understand(&cancelled, true), Answered::Cancelled));
    }
}
