//! The client's side of the terminal face: shows updates, answers questions.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use serde_json::{Value, json};
use terret_acp::{IncomingRequest, Lane, RawParams, Responder, RpcError, Service};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::printer::PrinterHandle;
use super::render::Render;
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

    /// A turn has ended.
    pub(super) async fn ended(&self, stop_reason: &str) {
        let text = match self.form {
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

    async fn permission(&self, params: &RawParams, responder: Responder) {
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
            Approvals::AllowAll => responder.finish(select(&request, "allow_once")).await,
            Approvals::Nobody => {
                let reason =
                    "nobody can be asked here; allow it by a rule, another mode, or `--ask`";
                responder.fail(RpcError::internal(reason)).await;
            }
            Approvals::Ask => {
                let text = if self.form == Form::Text {
                    self.render().question(&request)
                } else {
                    String::new()
                };
                let question = Question {
                    text,
                    request,
                    printer: self.printer.clone(),
                    input: Arc::clone(&self.input),
                    keyboard: Arc::clone(&self.keyboard),
                };
                let end = self.end.clone();
                self.questions.spawn(async move {
                    // Taken back by the agent, or the session is over: no answer is wanted.
                    let taken_back = responder.cancellation().clone();
                    let asked = tokio::select! {
                        biased;
                        () = taken_back.cancelled() => None,
                        () = end.cancelled() => None,
                        kind = question.ask() => Some(kind),
                    };
                    match asked {
                        Some(Some(kind)) => responder.finish(select(&question.request, kind)).await,
                        _ => {
                            responder
                                .respond(&json!({ "outcome": { "outcome": "cancelled" } }))
                                .await
                        }
                    }
                });
            }
        }
    }

    fn render(&self) -> MutexGuard<'_, Render> {
        self.render.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Service for TerminalClient {
    fn lane(&self, _method: &str, params: &RawParams) -> Lane {
        params.session_id().map_or(Lane::Connection, Lane::Session)
    }

    async fn request(&self, call: IncomingRequest) {
        match call.method.as_str() {
            "session/request_permission" => self.permission(&call.params, call.responder).await,
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
        let text = match self.form {
            Form::Text => self.render().update(update),
            Form::Json => json_line(&json!({ "type": "update", "update": update })),
        };
        self.printer.print(text).await;
    }
}

/// One question on its way to the keyboard.
struct Question {
    text: String,
    request: Value,
    printer: PrinterHandle,
    input: Arc<dyn Input>,
    keyboard: Arc<Semaphore>,
}

impl Question {
    /// The kind of option that the person chose; `None` when there is nobody any more.
    async fn ask(&self) -> Option<&'static str> {
        let _keyboard = self.keyboard.acquire().await.ok()?;
        self.printer.print(self.text.clone()).await;
        loop {
            match self.input.line().await?.trim().to_lowercase().as_str() {
                "y" | "yes" => return Some("allow_once"),
                "a" | "always" => return Some("allow_always"),
                "n" | "no" => return Some("reject_once"),
                _ => self.printer.print("y, a or n? > ".to_owned()).await,
            }
        }
    }
}

/// The answer that selects the first option of a kind; one that was not offered rejects.
fn select(request: &Value, kind: &str) -> Result<Value, RpcError> {
    let options = request
        .get("options")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    let of = |kind: &str| {
        let option = options
            .iter()
            .find(|option| option.get("kind").and_then(Value::as_str) == Some(kind))?;
        option.get("optionId").cloned()
    };
    let id = of(kind).or_else(|| {
        of(if kind == "allow_always" {
            "allow_once"
        } else {
            "reject_once"
        })
    });
    id.map(|id| json!({ "outcome": { "outcome": "selected", "optionId": id } }))
        .ok_or_else(|| RpcError::invalid_params("no option fits the answer"))
}

fn json_line(value: &Value) -> String {
    format!("{value}\n")
}
