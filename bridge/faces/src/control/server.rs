//! The engine's end of the control socket.

#![expect(
    clippy::disallowed_methods,
    reason = "the socket and its folder belong to this module"
)]

use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use serde::Serialize;
use serde_json::{Value, json};
use terret_acp::{
    Connection, ErrorCode, IncomingRequest, Lane, Options, RawParams, RpcError, Service,
};
use terret_engine::room::log::{GrantScope, SessionId};
use terret_engine::{AgentStatus, ApprovalError, Decision, Engine, SessionHandle};
use tokio::net::UnixListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::messages::{
    DECIDE, Decide, INBOX, Inbox, LIVE, Live, LiveSession, PING, PendingItem, Pong, VerdictWord,
};
use super::peer::{Standing, standing};
use crate::text::{line, plain};

/// Connections at a time; more wait in the kernel's queue.
const MOST_CONNECTIONS: usize = 64;

/// Why the runtime folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    #[error("the runtime folder {} cannot be made: {source}; choose another with `--home`", path.display())]
    Make {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the runtime folder {} {why}; make it a folder of your own with mode 0700", path.display())]
    Unsafe { path: PathBuf, why: &'static str },
    #[error("the control socket {} cannot be opened: {source}", path.display())]
    Bind {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

/// A socket that serves an engine until it is dropped or stopped.
pub struct ControlServer {
    path: PathBuf,
    stop: CancellationToken,
    task: Option<JoinHandle<()>>,
}

impl ControlServer {
    /// Opens the socket of this process in the runtime folder, which is made when it is
    /// missing. Blocks for a few system calls.
    ///
    /// # Errors
    /// [`RuntimeError`]; nothing is served then, and the engine works without.
    pub fn start(engine: Engine, runtime: &Path, version: &str) -> Result<Self, RuntimeError> {
        prepare(runtime)?;
        let path = runtime.join(format!("engine-{}.sock", std::process::id()));
        remove_socket(&path);
        let listener = UnixListener::bind(&path).map_err(|source| RuntimeError::Bind {
            path: path.clone(),
            source,
        })?;
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&path, mode).map_err(|source| RuntimeError::Bind {
            path: path.clone(),
            source,
        })?;
        let stop = CancellationToken::new();
        let task = tokio::spawn(accept(listener, engine, Arc::from(version), stop.clone()));
        Ok(Self {
            path,
            stop,
            task: Some(task),
        })
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Ends all connections and removes the socket.
    pub async fn stop(mut self) {
        self.stop.cancel();
        if let Some(task) = self.task.take()
            && let Err(error) = task.await
        {
            tracing::error!(%error, "the control socket did not end well");
        }
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.stop.cancel();
        remove_socket(&self.path);
    }
}

/// Makes the folder, or makes sure that nobody else can reach into it.
fn prepare(runtime: &Path) -> Result<(), RuntimeError> {
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(runtime);
    made.map_err(|source| RuntimeError::Make {
        path: runtime.to_owned(),
        source,
    })?;
    // Not followed: a link could lead anywhere later.
    let found = std::fs::symlink_metadata(runtime).map_err(|source| RuntimeError::Make {
        path: runtime.to_owned(),
        source,
    })?;
    let unsafe_because = |why| {
        Err(RuntimeError::Unsafe {
            path: runtime.to_owned(),
            why,
        })
    };
    if !found.is_dir() {
        return unsafe_because("is no folder");
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return unsafe_because("belongs to another user");
    }
    if found.mode() & 0o077 != 0 {
        return unsafe_because("can be reached by others");
    }
    Ok(())
}

/// Removes a socket of ours, and nothing else that bears its name.
pub(super) fn remove_socket(path: &Path) {
    let is_socket =
        std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if is_socket && let Err(error) = std::fs::remove_file(path) {
        tracing::debug!(%error, "a control socket was not removed");
    }
}

async fn accept(
    listener: UnixListener,
    engine: Engine,
    version: Arc<str>,
    stop: CancellationToken,
) {
    let mut connections = JoinSet::new();
    loop {
        let room = connections.len() < MOST_CONNECTIONS;
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept(), if room => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of file descriptors, most likely; there is no use in spinning.
                tracing::warn!(%error, "a control connection was not accepted");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            }
        };
        let standing = standing(&stream).unwrap_or(Standing::Stranger);
        if standing == Standing::Stranger {
            tracing::warn!("a control connection of another user was refused");
            continue;
        }
        let service = Control {
            engine: engine.clone(),
            version: Arc::clone(&version),
            standing,
        };
        let (reader, writer) = stream.into_split();
        let options = Options {
            line_limit: 1024 * 1024,
            ..Options::agent()
        };
        let (_peer, connection) = Connection::serve(reader, writer, Arc::new(service), options);
        connections.spawn(connection);
    }
    connections.shutdown().await;
}

/// One connection.
struct Control {
    engine: Engine,
    version: Arc<str>,
    standing: Standing,
}

#[async_trait]
impl Service for Control {
    fn lane(&self, _method: &str, _params: &RawParams) -> Lane {
        Lane::Connection
    }

    async fn request(&self, call: IncomingRequest) {
        let outcome = match call.method.as_str() {
            PING => value(&Pong {
                pid: std::process::id(),
                version: self.version.to_string(),
            }),
            LIVE => value(&Live {
                sessions: self.engine.live_sessions().iter().map(live).collect(),
            }),
            INBOX => value(&Inbox {
                items: self
                    .engine
                    .live_sessions()
                    .iter()
                    .flat_map(pending)
                    .collect(),
            }),
            DECIDE => self.decide(&call.params),
            other => Err(RpcError::method_not_found(other)),
        };
        call.responder.finish(outcome).await;
    }
}

impl Control {
    fn decide(&self, raw: &RawParams) -> Result<Value, RpcError> {
        if self.standing != Standing::Trusted {
            return Err(RpcError::new(
                ErrorCode::Other(-31_001),
                "a process that an agent started cannot decide for it; decide in the editor or another terminal",
            ));
        }
        let request: Decide = raw.parse()?;
        let id: SessionId = request
            .session_id
            .parse()
            .map_err(|_| gone(&line(&request.session_id, 80)))?;
        let session = self.engine.session(&id).ok_or_else(|| gone(id.as_str()))?;
        let decision = match request.verdict {
            VerdictWord::AllowOnce => Decision::AllowOnce,
            VerdictWord::AllowForSession => Decision::AllowAlways(GrantScope::Session),
            VerdictWord::AllowForProject => Decision::AllowAlways(GrantScope::Project),
            VerdictWord::RejectAndWait => Decision::RejectAndWait,
            VerdictWord::Reject => Decision::Reject {
                reason: request.reason,
            },
        };
        match session.decide(&request.id, decision, "inbox") {
            Ok(()) => Ok(json!({})),
            Err(error @ ApprovalError::NotWaiting(_)) => {
                Err(RpcError::new(ErrorCode::NotFound, error.to_string()))
            }
            Err(error) => Err(RpcError::internal(error.to_string())),
        }
    }
}

/// The session is not, or not any more, in this engine.
fn gone(session: &str) -> RpcError {
    RpcError::new(
        ErrorCode::NotFound,
        format!("session `{session}` is not running; load it in an editor and send a prompt"),
    )
}

fn live(session: &SessionHandle) -> LiveSession {
    let (title, waiting) =
        session.state(|state| (state.title.clone(), state.approvals.pending().len()));
    LiveSession {
        session_id: session.id().as_str().to_owned(),
        cwd: session.world().cwd().to_string_lossy().into_owned(),
        title,
        status: session.status().as_str().to_owned(),
        pending: waiting,
    }
}

/// What a session asks now. An approval that a crash left open is asked again by the next
/// prompt alone, so that in a session at rest nothing can be decided.
fn pending(session: &SessionHandle) -> Vec<PendingItem> {
    if session.status() == AgentStatus::Idle {
        return Vec::new();
    }
    let waiting = session.state(|state| state.approvals.pending().to_vec());
    waiting
        .into_iter()
        .map(|request| {
            let tool = session.table().get(&request.name);
            let title =
                tool.map_or_else(|| request.title.clone(), |tool| tool.title(&request.args));
            PendingItem {
                session_id: session.id().as_str().to_owned(),
                id: request.id,
                name: request.name,
                title: line(&title, 200),
                reason: plain(&request.reason),
                args: request.args,
                offered_rule: request.offered_rule.map(|rule| plain(&rule)),
            }
        })
        .collect()
}

fn value(answer: &impl Serialize) -> Result<Value, RpcError> {
    serde_json::to_value(answer)
        .map_err(|_| RpcError::internal("the answer cannot be written as JSON"))
}
