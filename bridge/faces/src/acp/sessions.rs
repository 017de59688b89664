//! Sessions: new, load, resume, list, close, delete, and their options.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;
use terret_acp::schema::v1;
use terret_acp::{RawParams, Responder, RpcError};
use terret_engine::room::log::{SessionFilter, SessionId};
use terret_engine::{AgentStatus, EngineError, OptionError, SessionHandle};

use super::attachment::{Attachment, Held};
use super::follower::Start;
use super::handshake::Client;
use super::{AcpFace, absolute, blocks, engine_error, options, value};
use crate::text::line;
use crate::time::iso;

/// Bytes of a page of `session/list`.
const PAGE_BYTES: usize = 40 * 1024;

/// The parts of new, load and resume that are alike.
struct Opening {
    cwd: PathBuf,
    additional_directories: Vec<PathBuf>,
    /// Names of the MCP servers that the client wants connected.
    servers: Vec<String>,
}

impl Opening {
    /// Reads the folders, leniently towards everything else (R116).
    fn read(params: &Value) -> Result<Self, RpcError> {
        let cwd = match params.get("cwd") {
            Some(Value::String(cwd)) => absolute("cwd", PathBuf::from(cwd))?,
            Some(_) => return Err(RpcError::invalid_params("`cwd` must be a string")),
            None => return Err(RpcError::invalid_params("`cwd` is missing")),
        };
        let additional_directories = match params.get("additionalDirectories") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(paths)) => paths
                .iter()
                .enumerate()
                .map(|(at, path)| {
                    let field = format!("additionalDirectories[{at}]");
                    let path = path.as_str().ok_or_else(|| {
                        RpcError::invalid_params(format!("`{field}` must be a string"))
                    })?;
                    absolute(&field, PathBuf::from(path))
                })
                .collect::<Result<_, _>>()?,
            Some(_) => {
                return Err(RpcError::invalid_params(
                    "`additionalDirectories` must be a list",
                ));
            }
        };
        if params
            .get("systemPrompt")
            .is_some_and(|prompt| !prompt.is_null())
        {
            // Not offered, and silently leaving it out would be a lie.
            return Err(RpcError::invalid_params(
                "`systemPrompt` is not supported here; leave it out",
            ));
        }
        let servers = match params.get("mcpServers") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(servers)) => servers
                .iter()
                .map(|server| {
                    line(
                        server
                            .get("name")
                            .and_then(Value::as_str)
                            .unwrap_or("unnamed"),
                        60,
                    )
                })
                .collect(),
            Some(_) => return Err(RpcError::invalid_params("`mcpServers` must be a list")),
        };
        Ok(Self {
            cwd,
            additional_directories,
            servers,
        })
    }

    /// Says once what will not work, instead of leaving it out without a word.
    fn tell(&self, attachment: &Attachment) {
        if !self.servers.is_empty() {
            attachment.tell(format!(
                "MCP servers are not connected in this version, so their tools are missing: {}.",
                self.servers.join(", ")
            ));
        }
    }
}

impl AcpFace {
    pub(super) async fn new_session(&self, client: Client, raw: &RawParams, responder: Responder) {
        match self.create(client, raw, &responder).await {
            Ok((attachment, held)) => {
                let (modes, all) = options::current(attachment.session());
                let id = attachment.session().id().as_str().to_owned();
                responder
                    .respond(
                        &v1::NewSessionResponse::new(id)
                            .modes(modes)
                            .config_options(all),
                    )
                    .await;
                held.release();
            }
            Err(error) => responder.fail(error).await,
        }
    }

    async fn create(
        &self,
        client: Client,
        raw: &RawParams,
        responder: &Responder,
    ) -> Result<(Arc<Attachment>, Held), RpcError> {
        let opening = Opening::read(&raw.to_value()?)?;
        let session = self
            .engine
            .create_session(opening.cwd.clone(), opening.additional_directories.clone())
            .await
            .map_err(|error| engine_error(&error))?;
        let attachment = self.attach(client, responder, session).await;
        let held = attachment
            .follow(Start::New)
            .await
            .ok_or_else(RpcError::cancelled)?;
        opening.tell(&attachment);
        Ok((attachment, held))
    }

    pub(super) async fn load_session(&self, client: Client, raw: &RawParams, responder: Responder) {
        match self.open(client, raw, &responder, Start::Load).await {
            Ok((attachment, held)) => {
                let (modes, all) = options::current(attachment.session());
                responder
                    .respond(
                        &v1::LoadSessionResponse::new()
                            .modes(modes)
                            .config_options(all),
                    )
                    .await;
                held.release();
            }
            Err(error) => responder.fail(error).await,
        }
    }

    pub(super) async fn resume_session(
        &self,
        client: Client,
        raw: &RawParams,
        responder: Responder,
    ) {
        match self.open(client, raw, &responder, Start::Resume).await {
            Ok((attachment, held)) => {
                let (modes, all) = options::current(attachment.session());
                responder
                    .respond(
                        &v1::ResumeSessionResponse::new()
                            .modes(modes)
                            .config_options(all),
                    )
                    .await;
                held.release();
            }
            Err(error) => responder.fail(error).await,
        }
    }

    async fn open(
        &self,
        client: Client,
        raw: &RawParams,
        responder: &Responder,
        start: Start,
    ) -> Result<(Arc<Attachment>, Held), RpcError> {
        let params = raw.to_value()?;
        let id = session_id(raw)?;
        let opening = Opening::read(&params)?;
        let session = self
            .engine
            .open_session(
                &known_id(&id)?,
                Some(opening.cwd.clone()),
                Some(opening.additional_directories.clone()),
            )
            .await
            .map_err(|error| engine_error(&error))?;
        let known = self.live(&id);
        let attachment = match known {
            Some(attachment) => attachment,
            None => self.attach(client, responder, session).await,
        };
        let held = attachment
            .follow(start)
            .await
            .ok_or_else(RpcError::cancelled)?;
        opening.tell(&attachment);
        Ok((attachment, held))
    }

    /// The session of a request that needs no opening. One that this connection has not
    /// opened is opened as it stands: a new editor may go on by prompting (check 168).
    async fn reach(
        &self,
        client: Client,
        raw: &RawParams,
        responder: &Responder,
    ) -> Result<Arc<Attachment>, RpcError> {
        let id = session_id(raw)?;
        if let Some(attachment) = self.live(&id) {
            return Ok(attachment);
        }
        let session = self
            .engine
            .open_session(&known_id(&id)?, None, None)
            .await
            .map_err(|error| engine_error(&error))?;
        let attachment = self.attach(client, responder, session).await;
        attachment
            .follow(Start::Resume)
            .await
            .ok_or_else(RpcError::cancelled)?
            .release();
        Ok(attachment)
    }

    /// The attachment of a session that has not ended elsewhere.
    fn live(&self, id: &str) -> Option<Arc<Attachment>> {
        let known = self.attached().get(id).cloned();
        known.filter(|attachment| attachment.session().status() != AgentStatus::Done)
    }

    async fn attach(
        &self,
        client: Client,
        responder: &Responder,
        session: SessionHandle,
    ) -> Arc<Attachment> {
        let id = session.id().as_str().to_owned();
        let attachment = Arc::new(Attachment::new(
            self.engine.clone(),
            client,
            responder.peer(),
            session,
        ));
        let before = self.attached().insert(id, Arc::clone(&attachment));
        if let Some(before) = before {
            before.leave().await;
        }
        attachment
    }

    pub(super) async fn prompt(&self, client: Client, raw: &RawParams, responder: Responder) {
        let prepared = async {
            session_id(raw)?;
            let blocks = blocks::read(raw)?;
            Ok((self.reach(client, raw, &responder).await?, blocks))
        };
        match prepared.await {
            Ok((attachment, blocks)) => attachment.prompt(blocks, responder).await,
            Err(error) => responder.fail(error).await,
        }
    }

    pub(super) async fn set_mode(&self, client: Client, raw: &RawParams, responder: Responder) {
        let set = async {
            let mode = text_field(raw, "modeId")?;
            let attachment = self.reach(client, raw, &responder).await?;
            attachment
                .session()
                .set_option("mode", &mode, "editor")
                .map_err(|error| option_error("modeId", &error))?;
            Ok(v1::SetSessionModeResponse::new())
        };
        let outcome = set.await;
        responder.finish(outcome).await;
    }

    pub(super) async fn set_config_option(
        &self,
        client: Client,
        raw: &RawParams,
        responder: Responder,
    ) {
        let set = async {
            let option = text_field(raw, "configId")?;
            let new = text_field(raw, "value")?;
            let attachment = self.reach(client, raw, &responder).await?;
            attachment
                .session()
                .set_option(&option, &new, "editor")
                .map_err(|error| option_error("configId", &error))?;
            let (_, all) = options::current(attachment.session());
            Ok(v1::SetSessionConfigOptionResponse::new(all))
        };
        let outcome = set.await;
        responder.finish(outcome).await;
    }

    pub(super) async fn list_sessions(&self, raw: &RawParams) -> Result<Value, RpcError> {
        let request: v1::ListSessionsRequest = raw.parse()?;
        let cwd = request.cwd.map(|cwd| absolute("cwd", cwd)).transpose()?;
        let mut filter = SessionFilter {
            cwd: cwd.map(|cwd| cwd.to_string_lossy().into_owned()),
            cursor: request.cursor.clone(),
            ..SessionFilter::default()
        };
        loop {
            let (answer, count) = self.page(filter.clone()).await?;
            // Long folders make a page too large for a frame; then it is a shorter one.
            if count <= 1 || answer.to_string().len() <= PAGE_BYTES {
                return Ok(answer);
            }
            filter.limit = count / 2;
        }
    }

    /// One page as an answer, and how many sessions are on it.
    async fn page(&self, filter: SessionFilter) -> Result<(Value, usize), RpcError> {
        let goes_on = filter.cursor.is_some();
        let page = self
            .engine
            .list_sessions(filter)
            .await
            .map_err(|error| match error {
                EngineError::Store(_) if goes_on => {
                    RpcError::invalid_params(format!("`cursor`: {error}"))
                }
                other => engine_error(&other),
            })?;
        let count = page.sessions.len();
        let sessions = page
            .sessions
            .into_iter()
            .map(|row| {
                v1::SessionInfo::new(row.id.as_str().to_owned(), row.cwd)
                    .additional_directories(
                        row.additional_directories
                            .into_iter()
                            .map(PathBuf::from)
                            .collect(),
                    )
                    .title(row.title.map(|title| line(&title, 200)))
                    .updated_at(iso(row.updated_at))
            })
            .collect();
        let answer = value(&v1::ListSessionsResponse::new(sessions).next_cursor(page.next_cursor))?;
        Ok((answer, count))
    }

    /// Ends a session: its turn is cancelled, its open prompts are answered, and only then
    /// is this.
    pub(super) async fn close_session(&self, raw: &RawParams) -> Result<Value, RpcError> {
        let id = session_id(raw)?;
        let attachment = self.attached().remove(&id);
        self.engine
            .close_session(&known_id(&id)?)
            .await
            .map_err(|error| engine_error(&error))?;
        if let Some(attachment) = attachment {
            attachment.finish().await;
        }
        value(&v1::CloseSessionResponse::new())
    }

    /// Deletes a session; one that is not there counts as deleted.
    pub(super) async fn delete_session(&self, raw: &RawParams) -> Result<Value, RpcError> {
        let id = session_id(raw)?;
        let attachment = self.attached().remove(&id);
        let Ok(id) = id.parse::<SessionId>() else {
            return value(&v1::DeleteSessionResponse::new());
        };
        if let Some(attachment) = attachment {
            // Closed and let go of first: a log that is held open is not deleted.
            match self.engine.close_session(&id).await {
                Ok(()) | Err(EngineError::UnknownSession(_)) => {}
                Err(error) => return Err(engine_error(&error)),
            }
            attachment.finish().await;
        }
        self.engine
            .delete_session(&id)
            .await
            .map_err(|error| engine_error(&error))?;
        value(&v1::DeleteSessionResponse::new())
    }
}

/// `sessionId`; null or missing is a fault of the parameters, not an unknown session
/// (Toad sends null after a refused `session/new`).
fn session_id(raw: &RawParams) -> Result<String, RpcError> {
    raw.session_id()
        .ok_or_else(|| RpcError::invalid_params("`sessionId` is missing or not a string"))
}

/// An id that could not name a session names none.
fn known_id(id: &str) -> Result<SessionId, RpcError> {
    id.parse()
        .map_err(|_| RpcError::session_not_found(&line(id, 80)))
}

fn text_field(raw: &RawParams, field: &str) -> Result<String, RpcError> {
    session_id(raw)?;
    let params = raw.to_value()?;
    let text = params.get(field).and_then(Value::as_str).map(str::to_owned);
    text.ok_or_else(|| RpcError::invalid_params(format!("`{field}` is missing or not a string")))
}

fn option_error(field: &str, error: &OptionError) -> RpcError {
    match error {
        OptionError::Fault(_) => RpcError::internal(error.to_string()),
        OptionError::Value { .. } if field == "configId" => {
            RpcError::invalid_params(format!("`value`: {error}"))
        }
        _ => RpcError::invalid_params(format!("`{field}`: {error}")),
    }
}
