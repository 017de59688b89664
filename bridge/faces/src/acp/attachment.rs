//! One session on one connection: the tasks that show it, run its prompts and ask its
//! questions, and their end.

use std::sync::{Arc, Mutex, PoisonError};

use terret_acp::{Peer, Responder};
use terret_engine::room::log::Severity;
use terret_engine::room::tools::world::editor::EditorFiles;
use terret_engine::{Engine, InputBlock, SessionHandle};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::asks::{AskingClient, Asks};
use super::files::ClientFiles;
use super::follower::{Follow, Start};
use super::handshake::Client;
use super::terminals::{ClientTerminals, OpenTerminals};
use super::turns::{Turn, Turns};

/// Prompts that may wait for the task that sends them.
const MAILBOX: usize = 64;

pub(crate) struct Attachment {
    engine: Engine,
    client: Client,
    peer: Peer,
    session: SessionHandle,
    turns: Mutex<Option<mpsc::Sender<Turn>>>,
    asks: Asks,
    position: watch::Sender<u64>,
    end: CancellationToken,
    driver: Mutex<Option<JoinHandle<()>>>,
    follower: Mutex<Option<Following>>,
    terminals: Option<ClientTerminals>,
    open_terminals: OpenTerminals,
    /// What the person is told with the first prompt.
    notice: Arc<Mutex<Option<String>>>,
}

struct Following {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// A follower that has queued the past and waits for the answer of its request.
pub(crate) struct Held(oneshot::Sender<()>);

impl Held {
    /// The answer is queued; what follows it may go.
    pub(crate) fn release(self) {
        // The client may have gone meanwhile.
        let _gone = self.0.send(());
    }
}

impl Attachment {
    /// Attaches a session. Nothing is shown until [`Attachment::follow`].
    pub(crate) fn new(engine: Engine, client: Client, peer: Peer, session: SessionHandle) -> Self {
        let files = ClientFiles::of(&client, &peer, session.id().as_str());
        let files = files.map(|files| Arc::new(files) as Arc<dyn EditorFiles>);
        if client.unattended {
            session.attach_unattended(files);
        } else {
            session.attach(files);
        }
        let end = CancellationToken::new();
        let open_terminals = OpenTerminals::default();
        let terminals = client.terminals.then(|| {
            let (id, open) = (session.id().as_str(), open_terminals.clone());
            ClientTerminals::new(&peer, id, open, end.child_token())
        });
        if let Some(terminals) = &terminals {
            session.attach_terminals(Arc::new(terminals.clone()));
        }
        let (turns, told) = mpsc::channel(MAILBOX);
        let asks = Asks::new(
            peer.clone(),
            session.clone(),
            turns.downgrade(),
            AskingClient {
                together: client.habits.asks_together,
                several_of_a_kind: client.habits.several_of_a_kind,
                forms: client.forms,
            },
            end.child_token(),
        );
        let position = watch::Sender::new(0);
        let notice: Arc<Mutex<Option<String>>> = Arc::default();
        let driver = Turns {
            engine: engine.clone(),
            peer: peer.clone(),
            session: session.clone(),
            asks: asks.clone(),
            position: position.subscribe(),
            notice: Arc::clone(&notice),
        };
        let driver = tokio::spawn(driver.run(told));
        Self {
            engine,
            client,
            peer,
            session,
            turns: Mutex::new(Some(turns)),
            asks,
            position,
            end,
            driver: Mutex::new(Some(driver)),
            follower: Mutex::default(),
            terminals,
            open_terminals,
            notice,
        }
    }

    /// Tells the person something once. A client without notices shows text only while a
    /// turn runs, so there it waits for the first prompt.
    pub(crate) fn tell(&self, text: String) {
        if !self.client.notices {
            *lock(&self.notice) = Some(text);
        } else if let Err(error) = self.session.notice(Severity::Warning, &text) {
            tracing::error!(%error, "a notice was not logged");
        }
    }

    pub(crate) fn session(&self) -> &SessionHandle {
        &self.session
    }

    /// Starts to show the session, in the place of an earlier follower. Resolves when the
    /// past is queued; `None` when the client is gone or the log cannot be read.
    pub(crate) async fn follow(&self, start: Start) -> Option<Held> {
        self.stop_following().await;
        let stop = self.end.child_token();
        let follow = Follow {
            engine: self.engine.clone(),
            client: self.client.clone(),
            peer: self.peer.clone(),
            session: self.session.clone(),
            asks: self.asks.clone(),
            position: self.position.clone(),
            terminals: self.open_terminals.clone(),
            stop: stop.clone(),
        };
        let (caught_up, past) = oneshot::channel();
        let (go, gone) = oneshot::channel();
        let task = tokio::spawn(follow.run(start, caught_up, gone));
        *lock(&self.follower) = Some(Following { stop, task });
        past.await.ok()?;
        Some(Held(go))
    }

    /// Hands a prompt to the task that keeps it in order.
    pub(crate) async fn prompt(&self, blocks: Vec<InputBlock>, responder: Responder) {
        let turns = lock(&self.turns).clone();
        match turns {
            // The responder answers by itself when the task is gone.
            Some(turns) => drop(turns.send(Turn::Prompt { blocks, responder }).await),
            None => drop(responder),
        }
    }

    /// Lets open prompts be answered, then ends everything. The session must have been
    /// closed, or it would be waited for.
    pub(crate) async fn finish(&self) {
        drop(lock(&self.turns).take());
        let driver = lock(&self.driver).take();
        if let Some(driver) = driver {
            join(driver).await;
        }
        self.leave().await;
    }

    /// Ends everything at once and leaves the session as it is.
    pub(crate) async fn leave(&self) {
        drop(lock(&self.turns).take());
        self.end.cancel();
        let driver = lock(&self.driver).take();
        if let Some(driver) = driver {
            driver.abort();
            join(driver).await;
        }
        self.stop_following().await;
        if let Some(terminals) = &self.terminals {
            terminals.released().await;
        }
        self.asks.ended().await;
        self.session.detach();
    }

    async fn stop_following(&self) {
        let following = lock(&self.follower).take();
        if let Some(Following { stop, task }) = following {
            stop.cancel();
            join(task).await;
        }
    }
}

impl Drop for Attachment {
    /// A connection that is dropped as a whole takes its tasks with it.
    fn drop(&mut self) {
        self.end.cancel();
        if let Some(driver) = lock(&self.driver).take() {
            driver.abort();
        }
    }
}

async fn join(task: JoinHandle<()>) {
    if let Err(error) = task.await
        && error.is_panic()
    {
        // Not with its message, which may quote what the session holds.
        tracing::error!("a task of a session's face panicked");
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
