//! The client's open buffers, through `fs/read_text_file` and `fs/write_text_file`.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use terret_acp::schema::v1;
use terret_acp::{ErrorCode, Peer, RequestError};
use terret_engine::room::tools::world::editor::{EditorError, EditorFiles};

use super::handshake::Client;

/// A client that never answers (avante, for what it does not know) must not hang a tool.
const READ_LIMIT: Duration = Duration::from_secs(5);
/// Longer, since a client may run a formatter before it saves.
const WRITE_LIMIT: Duration = Duration::from_secs(30);

/// The buffers of one session's editor.
pub(crate) struct ClientFiles {
    peer: Peer,
    session: String,
    reads: bool,
    writes: bool,
}

impl ClientFiles {
    /// What the client offers; `None` when it offers neither.
    pub(crate) fn of(client: &Client, peer: &Peer, session: &str) -> Option<Self> {
        let offers = client.reads_files || client.writes_files;
        offers.then(|| Self {
            peer: peer.clone(),
            session: session.to_owned(),
            reads: client.reads_files,
            writes: client.writes_files,
        })
    }
}

#[async_trait]
impl EditorFiles for ClientFiles {
    async fn read_text(&self, path: &Path) -> Result<Option<String>, EditorError> {
        if !self.reads {
            return Ok(None);
        }
        let request = v1::ReadTextFileRequest::new(self.session.clone(), path);
        let answer: Result<v1::ReadTextFileResponse, _> = self
            .peer
            .request_within(READ_LIMIT, "fs/read_text_file", &request)
            .await;
        match answer {
            Ok(response) => Ok(Some(response.content)),
            Err(RequestError::Rpc { error, .. })
                if matches!(error.code, ErrorCode::NotFound | ErrorCode::MethodNotFound) =>
            {
                Ok(None)
            }
            Err(error) => Err(EditorError::Failed(error.to_string())),
        }
    }

    async fn write_text(&self, path: &Path, content: &str) -> Result<(), EditorError> {
        if !self.writes {
            return Err(EditorError::Unsupported);
        }
        let request = v1::WriteTextFileRequest::new(self.session.clone(), path, content);
        // Answered with `null` by some and `{}` by others; either says that it is done.
        let answer: Result<Value, _> = self
            .peer
            .request_within(WRITE_LIMIT, "fs/write_text_file", &request)
            .await;
        answer
            .map(|_| ())
            .map_err(|error| EditorError::Failed(error.to_string()))
    }
}
