//! The client's side of the terminal face: shows updates, answers questions.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use serde_json::{Value, json};
use terret_acp::{IncomingRequest, Lane, RawParams, Responder, RpcError};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::printer::PrinterHandle;
use super::render::{Render, key};
use super::{Approvals, Form, Input, TerminalOptions};

pub(super) struct TerminalClient {
    approvals: Approvals,
    form: Form,
    render: Mutex<Render>,
    printer: PrinterHandle,
    input: Arc<dyn Input>,
    /// One question at a time: there is one keyboard.
    keyboard: Arc<Semaphore>,
    questions: TaskTracker,
    end: CancellationToken,
    /// A question found nobody at the keyboard.
    unanswered: CancellationToken,
}

impl TerminalClient {
    pub(super) fn new(
        options: TerminalOptions,
        printer: PrinterHandle,
        input: Arc<dyn Input>,
    ) -> Self {
        Self {
            approvals: options.approvals,
            form: options.form,
            render: Mutex::new(Render::new(options.colour)),
            printer,
            input,
            keyboard: Arc::new(Semaphore::new(1)),
            questions: TaskTracker::new(),
            end: CancellationToken::new(),
            unanswered: CancellationToken::new(),
        }
    }

    /// A prompt is about to be sent.
    pub(super) async fn prompted(&self, prompt: &str) {
        let text = match self.form {
            Form::Text => self.render().prompt(prompt),
            Form::Json => json_line(&json!({ "type": "prompt", "text": prompt })),
        };
        self.printer.print(text).await;
    }

    /// Fires when a question found nobody at the keyboard. The turn is then to be
    /// cancelled: an answer first would let the model go on until the cancel comes.
    pub(super) fn unanswered(&self) -> &CancellationToken {
        &self.unanswered
    }

    /// The session failed, in words that the caller says.
    pub(super) async fn failed(&self, words: &str) {
        if self.form == Form::Text {
            let text = self.render().failed(words);
            self.printer.print(text).await;
        }
    }

    /// A turn has ended.
    pub(super) async fn ended(&self, stop_reason: &str) {
        let text = match self.form {
            Form::Text if self.unanswered.is_cancelled() => self.render().unanswered(),
            Form::Text => self.render().ended(stop_reason),
            Form::Json => json_line(&json!({ "type": "end", "stopReason": stop_reason })),
        };
        self.printer.print(text).await;
    }

    /// No more questions: those that stand are given up.
    pub(super) async fn leave(&self) {
        self.end.cancel();
        self.questions.close();
        self.questions.wait().await;
    }

    async fn permission(self: &Arc<Self>, params: &RawParams, responder: Responder) {
        let request = match params.to_value() {
            Ok(request) => request,
            Err(error) => return responder.fail(error).await,
        };
        if self.form == Form::Json {
            self.printer
                .print(json_line(
                    &json!({ "type": "permission", "request": request }),
                ))
                .await;
        }
        match self.approvals {
            Approvals::AllowAll => {
                let offered = offered(&request);
                let fitting = ['y', 'n'].iter().find_map(|key| of(&offered, *key));
                let answer = fitting
                    .map(selected)
                    .ok_or_else(|| RpcError::invalid_params("no option fits the answer"));
                responder.finish(answer).await;
            }
            Approvals::Nobody => {
                let reason =
                    "nobody can be asked here; allow it by a rule, another mode, or `--ask`";
                responder.fail(RpcError::internal(reason)).await;
            }
            Approvals::Ask => {
                let client = Arc::clone(self);
                self.questions
                    .spawn(async move { client.question(&request, responder).await });
            }
        }
    }

    async fn question(&self, request: &Value, responder: Responder) {
        // Taken back by the agent, or the session is over: no answer is wanted.
        let taken_back = responder.cancellation().clone();
        let over = async {
            tokio::select! {
                () = taken_back.cancelled() => {}
                () = self.end.cancelled() => {}
            }
        };
        tokio::pin!(over);
        let offered = offered(request);
        let chosen = tokio::select! {
            biased;
            () = &mut over => None,
            chosen = self.ask(request, &offered) => {
                if chosen.is_none() {
                    self.render().left_open();
                    self.unanswered.cancel();
                    over.await;
                }
                chosen
            }
        };
        match chosen.and_then(|chosen| of(&offered, chosen)) {
            Some(id) => responder.respond(&selected(id)).await,
            None => {
                responder
                    .respond(&json!({ "outcome": { "outcome": "cancelled" } }))
                    .await;
            }
        }
    }

    /// The offered key that the person chose; `None` when there is nobody any more.
    async fn ask(&self, request: &Value, offered: &[Offered]) -> Option<char> {
        let _keyboard = self.keyboard.acquire().await.ok()?;
        if self.unanswered.is_cancelled() || offered.is_empty() {
            return None;
        }
        let is_text = self.form == Form::Text;
        if is_text {
            let text = self.render().question(request);
            self.printer.print(text).await;
        }
        loop {
            let key = match self.input.line().await?.trim().to_lowercase().as_str() {
                "y" | "yes" => Some('y'),
                "a" | "always" => Some('a'),
                "n" | "no" => Some('n'),
                _ => None,
            };
            if let Some(key) = key.filter(|key| of(offered, *key).is_some()) {
                if key == 'n'
                    && let Some(call) = request
                        .pointer("/toolCall/toolCallId")
                        .and_then(Value::as_str)
                {
                    self.render().refused(call);
                }
                return Some(key);
            }
            if is_text {
                self.printer.print(format!("{}? > ", any_of(offered))).await;
            }
        }
    }

    fn render(&self) -> MutexGuard<'_, Render> {
        self.render.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The client as its connection knows it: questions outlive the call that brings them.
pub(super) struct Service(pub(super) Arc<TerminalClient>);

#[async_trait]
impl terret_acp::Service for Service {
    fn lane(&self, _method: &str, params: &RawParams) -> Lane {
        params.session_id().map_or(Lane::Connection, Lane::Session)
    }

    async fn request(&self, call: IncomingRequest) {
        match call.method.as_str() {
            "session/request_permission" => self.0.permission(&call.params, call.responder).await,
            other => call.responder.fail(RpcError::method_not_found(other)).await,
        }
    }

    async fn notification(&self, method: String, params: RawParams) {
        if method != "session/update" {
            return;
        }
        let Ok(params) = params.to_value() else {
            return;
        };
        let Some(update) = params.get("update") else {
            return;
        };
        let text = match self.0.form {
            Form::Text => self.0.render().update(update),
            Form::Json => json_line(&json!({ "type": "update", "update": update })),
        };
        self.0.printer.print(text).await;
    }
}

/// An option that has a key.
struct Offered {
    key: char,
    id: Value,
}

/// The options of a question that can be typed: the first of each kind.
fn offered(request: &Value) -> Vec<Offered> {
    let mut offered: Vec<Offered> = Vec::new();
    for option in request
        .get("options")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let kind = option.get("kind").and_then(Value::as_str);
        if let (Some(key), Some(id)) = (kind.and_then(key), option.get("optionId"))
            && of(&offered, key).is_none()
        {
            let id = id.clone();
            offered.push(Offered { key, id });
        }
    }
    offered
}

/// The id of the option with a key.
fn of(offered: &[Offered], key: char) -> Option<&Value> {
    offered
        .iter()
        .find(|option| option.key == key)
        .map(|option| &option.id)
}

/// The keys as one says them: `y, a or n`.
fn any_of(offered: &[Offered]) -> String {
    let keys: Vec<String> = offered
        .iter()
        .map(|option| option.key.to_string())
        .collect();
    match keys.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

fn selected(id: &Value) -> Value {
    json!({ "outcome": { "outcome": "selected", "optionId": id } })
}

fn json_line(value: &Value) -> String {
    format!("{value}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r081_answers_go_by_kind_and_echo_whatever_id_was_offered() {
        let request = |options: Value| json!({ "options": options });
        let found = offered(&request(json!([
            { "optionId": "x1", "name": "Reject", "kind": "allow_once" },
            { "optionId": 7, "name": "allow_once", "kind": "reject_once" },
            { "optionId": "x3", "name": "Allow", "kind": "some_new_kind" },
            { "optionId": "x4", "name": "Second", "kind": "allow_once" },
            { "optionId": "allow_always", "name": "No kind" },
        ])));
        assert_eq!(of(&found, 'y'), Some(&json!("x1")));
        assert_eq!(of(&found, 'n'), Some(&json!(7)));
        assert_eq!(of(&found, 'a'), None);
        for none in [json!([]), json!(null), json!("allow_once")] {
            assert!(offered(&request(none)).is_empty());
        }
    }
}
