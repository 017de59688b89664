//! The terminal face: a small ACP client of the engine, over a pipe in memory.
//!
//! It serves `terret demo` and `terret run`. Speaking the protocol, and not the engine's
//! own calls, keeps one way to be shown and one to be asked (`design: the engine speaks
//! ACP inside, too`).

mod client;
mod command;
mod printer;
mod render;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};
use terret_acp::{Connection, Options, Peer, RequestError};
use terret_engine::Engine;
use tokio_util::sync::CancellationToken;

use crate::acp::{self, FaceSettings};
use client::TerminalClient;
use printer::Printer;

/// Bytes in the pipe between the two ends.
const PIPE: usize = 256 * 1024;

/// What a terminal session is to do.
#[derive(Debug, Clone)]
pub struct TerminalOptions {
    /// Absolute.
    pub cwd: PathBuf,
    /// One turn each, in order; a turn that is cancelled or fails ends the row.
    pub prompts: Vec<String>,
    pub approvals: Approvals,
    pub form: Form,
    /// Escape sequences for colour.
    pub colour: bool,
}

/// Who answers questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Approvals {
    /// The person, through [`Input`].
    Ask,
    /// Everything is allowed once (`--yes`).
    AllowAll,
    /// Nobody is there: denied, and the model is told so.
    Nobody,
}

/// What is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Text,
    /// One JSON object a line: every `session/update` as it comes, questions, and ends.
    Json,
}

/// Where a person's answers come from. A terminal reads lines; a test has a list.
#[async_trait]
pub trait Input: Send + Sync + 'static {
    /// The next line; `None` when there is no more.
    async fn line(&self) -> Option<String>;
}

/// How the last turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    pub session_id: String,
    /// As in ACP: `end_turn`, `cancelled`, `refusal`, `max_tokens`, `max_turn_requests`.
    pub stop_reason: String,
    /// A question found nobody at the keyboard, which cancelled the turn. The output says
    /// so; who knows a way to answer beforehand may add it.
    pub unanswered: bool,
}

/// Why nothing came of it.
#[derive(Debug, thiserror::Error)]
pub enum TerminalError {
    /// The engine's own words where it has some: a person here knows nothing of requests.
    #[error("{}", match .0 {
        RequestError::Rpc { error, .. } => error.message.clone().into_owned(),
        other => other.to_string(),
    })]
    Request(#[from] RequestError),
    #[error("the engine answered what this version does not understand: `{0}` is missing")]
    Shape(&'static str),
    #[error("the output could not be written: {0}")]
    Output(#[from] std::io::Error),
}

/// Runs the prompts in a new session. `stop` cancels the turn that runs (Ctrl-C); the
/// engine is the caller's and stays up.
///
/// # Errors
/// [`TerminalError`]; a failed turn is one, with the engine's words, which are then not
/// part of the text that is printed: they are the caller's to say.
pub async fn run<W: Write + Send + 'static>(
    engine: Engine,
    settings: FaceSettings,
    options: TerminalOptions,
    output: W,
    input: Arc<dyn Input>,
    stop: CancellationToken,
) -> Result<Finished, TerminalError> {
    let (ours, theirs) = tokio::io::duplex(PIPE);
    let (their_reader, their_writer) = tokio::io::split(theirs);
    let serving = acp::serve(engine, settings, their_reader, their_writer);
    let printer = Printer::start(output);
    let client = Arc::new(TerminalClient::new(
        options.clone(),
        printer.handle(),
        input,
    ));
    let (reader, writer) = tokio::io::split(ours);
    let (peer, connection) = Connection::serve(
        reader,
        writer,
        Arc::new(client::Service(Arc::clone(&client))),
        Options::client(),
    );
    let talk = async {
        let outcome = converse(&peer, &options, &client, &stop).await;
        if let Err(error) = &outcome {
            client.failed(&error.to_string()).await;
        }
        peer.close();
        outcome
    };
    let (outcome, _, _) = tokio::join!(talk, connection, serving);
    client.leave().await;
    drop(client);
    printer.finish().await?;
    outcome
}

async fn converse(
    peer: &Peer,
    options: &TerminalOptions,
    client: &TerminalClient,
    stop: &CancellationToken,
) -> Result<Finished, TerminalError> {
    // With nobody to ask the engine denies by itself, and holds the turn to the lower
    // ceiling of an unattended one.
    let unattended = options.approvals == Approvals::Nobody;
    let hello = json!({
        "protocolVersion": 1,
        "clientInfo": { "name": "terret-terminal", "version": env!("CARGO_PKG_VERSION") },
        "clientCapabilities": {
            "session": { "notices": {} },
            "_meta": { "terret": { "unattended": unattended } },
        },
    });
    peer.request::<Value>("initialize", &hello).await?;
    let new = json!({ "cwd": options.cwd, "mcpServers": [] });
    let answer: Value = peer.request("session/new", &new).await?;
    let session = answer
        .get("sessionId")
        .and_then(Value::as_str)
        .ok_or(TerminalError::Shape("sessionId"))?;
    let mut finished = Finished {
        session_id: session.to_owned(),
        stop_reason: "end_turn".to_owned(),
        unanswered: false,
    };
    for prompt in &options.prompts {
        client.prompted(prompt).await;
        finished.stop_reason = turn(peer, session, prompt, client, stop).await?;
        finished.unanswered = client.unanswered().is_cancelled();
        client.ended(&finished.stop_reason).await;
        if stop.is_cancelled() || finished.stop_reason != "end_turn" {
            break;
        }
    }
    Ok(finished)
}

/// One turn; gives its stop reason.
async fn turn(
    peer: &Peer,
    session: &str,
    prompt: &str,
    client: &TerminalClient,
    stop: &CancellationToken,
) -> Result<String, TerminalError> {
    let params = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": prompt }] });
    let asking = peer.request_after_updates::<Value>(session, "session/prompt", &params);
    tokio::pin!(asking);
    let given_up = async {
        tokio::select! {
            () = stop.cancelled() => {}
            () = client.unanswered().cancelled() => {}
        }
    };
    let answer = tokio::select! {
        biased;
        answer = &mut asking => answer?,
        () = given_up => {
            // A closed connection shows in the answer.
            let _gone = peer.notify("session/cancel", &json!({ "sessionId": session })).await;
            asking.await?
        }
    };
    let reason = answer
        .get("stopReason")
        .and_then(Value::as_str)
        .ok_or(TerminalError::Shape("stopReason"))?;
    Ok(reason.to_owned())
}
