//! The client's terminals, in which commands may be shown (`ACP terminal/create`).
//!
//! One task owns each terminal from the request that makes it to the one that releases
//! it, so that a call that is cancelled, times out or is dropped leaves none behind, and
//! neither does an answer that comes late.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use terret_acp::Peer;
use terret_acp::schema::v1;
use terret_engine::room::tools::world::editor::EditorError;
use terret_engine::room::tools::world::editor_terminal::{
    EditorProgram, EditorTerminal, EditorTerminals,
};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long a client may take to kill or to release.
const LIMIT: Duration = Duration::from_secs(2);
/// How long a release waits for the card that is to hold the terminal: it must have been
/// shown before (`ACP ToolCallContent`).
const SHOWING: Duration = Duration::from_secs(1);

/// The terminals of one session in its client. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ClientTerminals {
    peer: Peer,
    session: String,
    open: OpenTerminals,
    tasks: TaskTracker,
    end: CancellationToken,
}

/// The terminals that cards may hold, by call.
#[derive(Clone, Default)]
pub(crate) struct OpenTerminals(Arc<Mutex<HashMap<String, Open>>>);

#[derive(Clone)]
struct Open {
    id: String,
    /// Fires when the client was sent the card that holds it.
    shown: CancellationToken,
}

impl OpenTerminals {
    /// The terminal of a call.
    pub(crate) fn of(&self, call: &str) -> Option<String> {
        self.lock().get(call).map(|open| open.id.clone())
    }

    /// The client was sent the card that holds it.
    pub(crate) fn shown(&self, call: &str) {
        if let Some(open) = self.lock().get(call) {
            open.shown.cancel();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Open>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientTerminals {
    /// Terminals that are all released when `end` fires.
    pub(crate) fn new(
        peer: &Peer,
        session: &str,
        open: OpenTerminals,
        end: CancellationToken,
    ) -> Self {
        Self {
            peer: peer.clone(),
            session: session.to_owned(),
            open,
            tasks: TaskTracker::new(),
            end,
        }
    }

    /// Waits until every terminal is released, and no longer than a client that answers
    /// needs. None is opened any more.
    pub(crate) async fn released(&self) {
        self.tasks.close();
        if tokio::time::timeout(LIMIT, self.tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!("the client did not release its terminals in time");
        }
    }

    async fn keep(
        self,
        program: EditorProgram,
        tell: oneshot::Sender<Result<EditorTerminal, EditorError>>,
    ) {
        let request =
            v1::CreateTerminalRequest::new(self.session.clone(), program.program.to_string_lossy())
                .args(program.arguments)
                .cwd(program.cwd)
                .output_byte_limit(program.output_limit);
        let created: Result<v1::CreateTerminalResponse, _> =
            self.peer.request("terminal/create", &request).await;
        let id = match created {
            Ok(response) => response.terminal_id,
            Err(error) => {
                let _gone = tell.send(Err(EditorError::Failed(error.to_string())));
                return;
            }
        };
        let shown = CancellationToken::new();
        let open = Open {
            id: id.to_string(),
            shown: shown.clone(),
        };
        self.open.lock().insert(program.call_id.clone(), open);
        let (exited, release) = (CancellationToken::new(), CancellationToken::new());
        let terminal = EditorTerminal::new(exited.clone(), release.clone().drop_guard());
        // Who does not take it any more drops it, and with that releases it.
        let _gone = tell.send(Ok(terminal));
        let wait = v1::WaitForTerminalExitRequest::new(self.session.clone(), id.clone());
        let mut wait = std::pin::pin!(self.peer.request::<Value>("terminal/wait_for_exit", &wait));
        let has_exited = tokio::select! {
            _ = &mut wait => {
                exited.cancel();
                true
            }
            () = release.cancelled() => false,
            () = self.end.cancelled() => false,
        };
        if !has_exited {
            let kill = v1::KillTerminalRequest::new(self.session.clone(), id.clone());
            let killed: Result<Value, _> = self
                .peer
                .request_within(LIMIT, "terminal/kill", &kill)
                .await;
            if let Err(error) = killed {
                tracing::warn!(%error, "the client did not kill what runs in its terminal");
            }
            let _ = tokio::time::timeout(LIMIT, wait).await;
            exited.cancel();
        }
        tokio::select! {
            () = release.cancelled() => {}
            () = self.end.cancelled() => {}
        }
        tokio::select! {
            _ = tokio::time::timeout(SHOWING, shown.cancelled()) => {}
            () = self.end.cancelled() => {}
            () = self.peer.closed() => {}
        }
        self.open.lock().remove(&program.call_id);
        let request = v1::ReleaseTerminalRequest::new(self.session.clone(), id);
        let released: Result<Value, _> = self
            .peer
            .request_within(LIMIT, "terminal/release", &request)
            .await;
        if let Err(error) = released {
            tracing::warn!(%error, "the client did not release its terminal");
        }
    }
}

#[async_trait]
impl EditorTerminals for ClientTerminals {
    fn are_wanted(&self) -> bool {
        !self.end.is_cancelled() && !self.peer.is_closed()
    }

    async fn open(&self, program: EditorProgram) -> Result<EditorTerminal, EditorError> {
        if self.tasks.is_closed() {
            return Err(EditorError::Unsupported);
        }
        let (tell, told) = oneshot::channel();
        self.tasks.spawn(self.clone().keep(program, tell));
        told.await
            .unwrap_or_else(|_| Err(EditorError::Failed("the editor is gone".to_owned())))
    }
}
