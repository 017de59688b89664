//! The other end of the control socket: finding live engines and asking them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use terret_acp::{Connection, Options, Peer, RequestError, Service};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

use super::messages::{
    DECIDE, Decide, INBOX, Inbox, LIVE, Live, LiveSession, PING, PendingItem, Pong, VerdictWord,
};
use super::server::remove_socket;

/// An engine that does not answer in this time is busy or stuck; the others still count.
const LIMIT: Duration = Duration::from_secs(5);

/// Why an engine could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error("the runtime folder {} cannot be read: {source}", path.display())]
    Folder {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the engine at {} cannot be reached: {source}", path.display())]
    Connect {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// Held as no source: its own text names methods and codes, which say nothing to a person.
    #[error("{}", told(.0))]
    Request(RequestError),
}

impl From<RequestError> for ControlError {
    fn from(error: RequestError) -> Self {
        Self::Request(error)
    }
}

/// A failed request in a person's words, without the names of the wire.
fn told(error: &RequestError) -> String {
    match error {
        RequestError::Rpc { error, .. } => error.message.to_string(),
        RequestError::Closed { .. } => "the engine ended before it answered".to_owned(),
        RequestError::TimedOut { after, .. } => {
            format!(
                "the engine did not answer within {} seconds",
                after.as_secs()
            )
        }
        _ => "the engine's answer cannot be read; it may be of another version".to_owned(),
    }
}

/// A connection to one engine.
pub struct ControlClient {
    path: PathBuf,
    peer: Peer,
    connection: JoinHandle<()>,
}

/// Takes nothing: an engine asks nothing here.
struct Silent;

#[async_trait]
impl Service for Silent {}

impl ControlClient {
    /// Connects to all live engines of a runtime folder. Sockets that nobody listens on
    /// any more are removed; an engine that cannot be reached otherwise is passed over.
    ///
    /// # Errors
    /// When the folder is there and cannot be read.
    pub async fn connect_all(runtime: &Path) -> Result<Vec<Self>, ControlError> {
        let mut clients = Vec::new();
        for path in sockets(runtime)? {
            match Self::connect(&path).await {
                Ok(client) => clients.push(client),
                Err(ControlError::Connect { source, .. })
                    if source.kind() == io::ErrorKind::ConnectionRefused =>
                {
                    remove_socket(&path);
                }
                Err(error) => tracing::warn!(%error, "an engine was passed over"),
            }
        }
        Ok(clients)
    }

    /// Connects to one engine.
    ///
    /// # Errors
    /// [`ControlError::Connect`].
    pub async fn connect(path: &Path) -> Result<Self, ControlError> {
        let stream = UnixStream::connect(path)
            .await
            .map_err(|source| ControlError::Connect {
                path: path.to_owned(),
                source,
            })?;
        let (reader, writer) = stream.into_split();
        let (peer, connection) =
            Connection::serve(reader, writer, Arc::new(Silent), Options::client());
        let connection = tokio::spawn(async move {
            connection.await;
        });
        Ok(Self {
            path: path.to_owned(),
            peer,
            connection,
        })
    }

    /// The socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Asks who is there.
    ///
    /// # Errors
    /// [`ControlError::Request`].
    pub async fn ping(&self) -> Result<Pong, ControlError> {
        self.ask(PING, &json!({})).await
    }

    /// The sessions that the engine holds.
    ///
    /// # Errors
    /// [`ControlError::Request`].
    pub async fn live_sessions(&self) -> Result<Vec<LiveSession>, ControlError> {
        Ok(self.ask::<Live>(LIVE, &json!({})).await?.sessions)
    }

    /// What waits for a person.
    ///
    /// # Errors
    /// [`ControlError::Request`].
    pub async fn inbox(&self) -> Result<Vec<PendingItem>, ControlError> {
        Ok(self.ask::<Inbox>(INBOX, &json!({})).await?.items)
    }

    /// Decides an approval; the first decision wins.
    ///
    /// # Errors
    /// [`ControlError::Request`]: when it does not wait any more, or this process comes
    /// from the engine.
    pub async fn decide(
        &self,
        session_id: &str,
        id: &str,
        verdict: VerdictWord,
        reason: Option<String>,
    ) -> Result<(), ControlError> {
        let request = Decide {
            session_id: session_id.to_owned(),
            id: id.to_owned(),
            verdict,
            reason,
        };
        self.ask::<Value>(DECIDE, &request).await?;
        Ok(())
    }

    async fn ask<R: DeserializeOwned>(
        &self,
        method: &str,
        params: &(impl Serialize + Sync),
    ) -> Result<R, ControlError> {
        Ok(self.peer.request_within(LIMIT, method, params).await?)
    }
}

impl Drop for ControlClient {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// The sockets of a runtime folder, in order; none when it is not there.
#[expect(
    clippy::disallowed_methods,
    reason = "the folder of sockets is the control socket's own"
)]
fn sockets(runtime: &Path) -> Result<Vec<PathBuf>, ControlError> {
    let failed = |source| ControlError::Folder {
        path: runtime.to_owned(),
        source,
    };
    let entries = match std::fs::read_dir(runtime) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if name.starts_with("engine-") && name.ends_with(".sock") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
