//! The agent's side of the Agent Client Protocol: an engine for one editor.
//!
//! This face maps methods to engine commands and the log to updates, and keeps nothing
//! that a restart would miss. A handler never awaits a person or a turn: prompts, questions
//! and updates run in tasks that belong to the session's attachment (`ACP v1`).

mod asks;
mod attachment;
mod blocks;
mod card;
mod clients;
mod diff;
mod files;
mod follower;
mod handshake;
mod job_card;
mod options;
mod sessions;
mod terminals;
mod turns;
mod view;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use async_trait::async_trait;
use serde::Serialize;
use serde_json::Value;
use terret_acp::{
    Connection, Ended, IncomingRequest, Lane, Options, Peer, RawParams, RpcError, Service,
};
use terret_engine::room::models::ModelError;
use terret_engine::{Engine, EngineError};
use tokio::io::{AsyncRead, AsyncWrite};

pub(crate) use diff::region as diff_region;

use attachment::Attachment;
use handshake::Client;

/// What a face is told about the program that it is a part of.
#[derive(Debug, Clone)]
pub struct FaceSettings {
    /// The program's version.
    pub version: String,
    /// How to give a key, in one line: the description of the way to sign in.
    pub key_hint: String,
    /// Arguments that make the program ask for a key in a terminal; none when it cannot.
    pub sign_in_arguments: Option<Vec<String>>,
    /// Show commands in the client's terminals, where it has some.
    pub editor_terminal: bool,
}

/// The face of an engine towards one connection.
pub struct AcpFace {
    engine: Engine,
    settings: FaceSettings,
    client: OnceLock<Client>,
    attached: Mutex<HashMap<String, Arc<Attachment>>>,
}

/// Serves one editor until it is gone. The engine lives on: a caller that owns it shuts it
/// down afterwards, which stops what runs and leaves open turns to be resumed.
///
/// Dropping the future ends the connection and its tasks at once.
pub async fn serve<R, W>(engine: Engine, settings: FaceSettings, reader: R, writer: W) -> Ended
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    serve_with(engine, settings, reader, writer, Options::agent()).await
}

/// As [`serve`], with bounds of the caller's choice.
pub async fn serve_with<R, W>(
    engine: Engine,
    settings: FaceSettings,
    reader: R,
    writer: W,
    options: Options,
) -> Ended
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let face = Arc::new(AcpFace::new(engine, settings));
    let (_peer, connection) = Connection::serve(
        reader,
        writer,
        Arc::clone(&face) as Arc<dyn Service>,
        options,
    );
    let ended = connection.await;
    face.leave().await;
    ended
}

impl AcpFace {
    /// A face for one connection.
    pub fn new(engine: Engine, settings: FaceSettings) -> Self {
        Self {
            engine,
            settings,
            client: OnceLock::new(),
            attached: Mutex::default(),
        }
    }

    /// The connection is gone: everything that served it ends. Sessions stay as they are.
    pub async fn leave(&self) {
        let attached: Vec<_> = self
            .attached()
            .drain()
            .map(|(_, attachment)| attachment)
            .collect();
        futures::future::join_all(attached.iter().map(|attachment| attachment.leave())).await;
    }

    fn initialize(&self, raw: &RawParams) -> Result<Value, RpcError> {
        let mut client = Client::read(raw)?;
        client.terminals &= self.settings.editor_terminal;
        let response = handshake::response(&self.engine, &client, &self.settings);
        if self.client.set(client).is_err() {
            return Err(RpcError::invalid_request(
                "`initialize` was sent before; a connection has one",
            ));
        }
        value(&response)
    }

    fn client(&self) -> Result<&Client, RpcError> {
        self.client
            .get()
            .ok_or_else(|| RpcError::invalid_request("`initialize` must be sent first"))
    }

    fn attached(&self) -> MutexGuard<'_, HashMap<String, Arc<Attachment>>> {
        self.attached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn route(&self, call: IncomingRequest) {
        let IncomingRequest {
            method,
            params,
            responder,
        } = call;
        if method == "initialize" {
            return responder.finish(self.initialize(&params)).await;
        }
        let client = match self.client() {
            Ok(client) => client.clone(),
            Err(error) => return responder.fail(error).await,
        };
        match method.as_str() {
            "authenticate" => {
                responder
                    .finish(handshake::authenticate(&self.engine, &params))
                    .await
            }
            "session/new" => self.new_session(client, &params, responder).await,
            "session/load" => self.load_session(client, &params, responder).await,
            "session/resume" => self.resume_session(client, &params, responder).await,
            "session/prompt" => self.prompt(client, &params, responder).await,
            "session/list" => responder.finish(self.list_sessions(&params).await).await,
            "session/close" => responder.finish(self.close_session(&params).await).await,
            "session/delete" => responder.finish(self.delete_session(&params).await).await,
            "session/set_mode" => self.set_mode(client, &params, responder).await,
            "session/set_config_option" => self.set_config_option(client, &params, responder).await,
            other => responder.fail(RpcError::method_not_found(other)).await,
        }
    }
}

#[async_trait]
impl Service for AcpFace {
    fn lane(&self, method: &str, params: &RawParams) -> Lane {
        match params.session_id() {
            // Reaches the prompts that were received before it and no other (R104).
            Some(session) if method == "session/cancel" => Lane::Interrupt(session),
            Some(session) => Lane::Session(session),
            None => Lane::Connection,
        }
    }

    async fn request(&self, call: IncomingRequest) {
        self.route(call).await;
    }

    async fn notification(&self, method: String, _params: RawParams) {
        // `session/cancel` has done its work by its lane: on an idle or unknown session
        // there is nothing to cancel, now or later.
        tracing::trace!(%method, "a notification was taken");
    }

    fn connected(&self, _peer: &Peer) {}
}

/// What the engine refused, as the protocol says it.
fn engine_error(error: &EngineError) -> RpcError {
    match error {
        EngineError::UnknownSession(id) | EngineError::Closed { id } => {
            RpcError::session_not_found(id.as_str())
        }
        EngineError::BadFolder { .. } | EngineError::OtherFolder { .. } => {
            RpcError::invalid_params(format!("`cwd`: {error}"))
        }
        EngineError::Model(
            ModelError::NoKey { .. } | ModelError::NoModel { .. } | ModelError::Auth { .. },
        ) => RpcError::auth_required(error.to_string()),
        _ => RpcError::internal(error.to_string()),
    }
}

fn value(response: &impl Serialize) -> Result<Value, RpcError> {
    serde_json::to_value(response)
        .map_err(|_| RpcError::internal("the answer cannot be written as JSON"))
}

/// An absolute path from the client.
fn absolute(field: &str, path: PathBuf) -> Result<PathBuf, RpcError> {
    if path.is_absolute() {
        Ok(path)
    } else {
        Err(RpcError::invalid_params(format!(
            "`{field}` must be an absolute path"
        )))
    }
}
