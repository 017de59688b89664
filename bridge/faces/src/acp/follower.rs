//! Follows one session's log for one client, at the client's own pace.
//!
//! What the client has not been sent stays in the log, not in memory: a client that does
//! not read costs one queue, however long the turn. While it is behind, pieces of one text
//! are merged; nothing is dropped (check 169).

use std::sync::Arc;

use terret_acp::schema::v1;
use terret_acp::{NotifyError, Peer};
use terret_engine::room::log::{EditorFold, EditorItem, Event};
use terret_engine::{COMMANDS, Engine, Follower, SessionHandle};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::asks::Asks;
use super::handshake::Client;
use super::terminals::OpenTerminals;
use super::view::{Out, Phase, View};

/// Events that are taken at once when they are there.
const BATCH: usize = 256;
/// Bytes up to which pieces of one text are merged.
const MERGE: usize = 8 * 1024;

/// What a follower works with.
pub(crate) struct Follow {
    pub engine: Engine,
    pub client: Client,
    pub peer: Peer,
    pub session: SessionHandle,
    pub asks: Asks,
    /// Everything before this seq has been queued for the client.
    pub position: watch::Sender<u64>,
    pub terminals: OpenTerminals,
    pub stop: CancellationToken,
}

/// Where a follower begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// A session that has no past.
    New,
    /// The client knows the past (`session/resume`).
    Resume,
    /// The client is shown the past (`session/load`).
    Load,
}

/// The client is gone, or the follower was stopped.
struct Gone;

impl From<NotifyError> for Gone {
    fn from(_: NotifyError) -> Self {
        Self
    }
}

impl Follow {
    /// Runs until it is stopped or the client is gone. Says `caught_up` when the past is
    /// queued, and goes on when it is told to: what follows must not overtake the answer
    /// of the request that started this (R113).
    pub(crate) async fn run(
        self,
        start: Start,
        caught_up: oneshot::Sender<()>,
        go: oneshot::Receiver<()>,
    ) {
        let (stop, position) = (self.stop.clone(), self.position.clone());
        if stop
            .run_until_cancelled(self.follow(start, caught_up, go))
            .await
            .is_some()
        {
            // The client is gone, or the log cannot be read. No answer may wait for more.
            position.send_replace(u64::MAX);
        }
    }

    async fn follow(
        self,
        start: Start,
        caught_up: oneshot::Sender<()>,
        go: oneshot::Receiver<()>,
    ) -> Result<(), Gone> {
        let (phase, fold) = match start {
            Start::New => (Phase::Live, EditorFold::live()),
            Start::Resume => (Phase::Silent, EditorFold::replay()),
            Start::Load => (Phase::Replay, EditorFold::replay()),
        };
        let view = View::new(
            self.engine.clone(),
            self.client.clone(),
            self.session.clone(),
            self.terminals.clone(),
            phase,
        );
        let mut run = Run {
            events: self.session.follow(0),
            fold,
            view,
            batch: Vec::new(),
            items: Vec::new(),
        };
        if start != Start::New {
            self.past(&mut run).await?;
        }
        let _gone = caught_up.send(());
        if go.await.is_err() {
            return Err(Gone);
        }
        self.commands().await?;
        run.view.go_live();
        loop {
            self.step(&mut run).await?;
        }
    }

    /// Everything that was there when the follower started.
    async fn past(&self, run: &mut Run) -> Result<(), Gone> {
        let present = self.session.next_seq();
        while run.events.position() < present {
            let Some(event) = run.events.ready().await else {
                break;
            };
            run.fold.apply(&event, &mut run.items);
            run.collect(&event);
            if run.batch.len() >= BATCH {
                self.show(run).await?;
            }
        }
        run.fold.go_live(&mut run.items);
        let left: Vec<_> = run.items.drain(..).map(|item| (None, item)).collect();
        run.batch.extend(left);
        self.show(run).await
    }

    /// Waits for what comes next and shows it.
    async fn step(&self, run: &mut Run) -> Result<(), Gone> {
        let due = run.view.due();
        let asks_wait = run.view.has_open_asks();
        let event = tokio::select! {
            biased;
            () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                run.view.show_due(Instant::now());
                return self.send(run).await;
            }
            // What the past left open is shown with the prompt that goes on with it.
            () = self.asks.prompted(), if asks_wait => {
                run.view.ask_open().await;
                return self.send(run).await;
            }
            event = run.events.next() => event,
        };
        let mut next = event.ok_or(Gone)?;
        loop {
            run.fold.apply(&next, &mut run.items);
            run.collect(&next);
            if run.batch.len() >= BATCH {
                break;
            }
            match run.events.ready().await {
                Some(event) => next = event,
                None => break,
            }
        }
        self.show(run).await
    }

    /// Shows the batch, and says how far the client has been brought.
    async fn show(&self, run: &mut Run) -> Result<(), Gone> {
        for (event, item) in std::mem::take(&mut run.batch) {
            run.view.take(event.as_deref(), item).await;
            self.send(run).await?;
        }
        self.position.send_replace(run.events.position());
        Ok(())
    }

    async fn send(&self, run: &mut Run) -> Result<(), Gone> {
        for out in run.view.drain() {
            match out {
                Out::Update(update) => self.update(update).await?,
                Out::Terminal(call) => self.terminals.shown(&call),
                Out::Ask(ask) => self.asks.ask(ask),
                Out::Decided(id) => self.asks.decided(&id),
            }
        }
        Ok(())
    }

    async fn update(&self, update: v1::SessionUpdate) -> Result<(), Gone> {
        Ok(notify(&self.peer, &self.session, update).await?)
    }

    async fn commands(&self) -> Result<(), Gone> {
        let commands = COMMANDS
            .iter()
            .map(|command| {
                let input = command.hint.map(|hint| {
                    v1::AvailableCommandInput::Unstructured(v1::UnstructuredCommandInput::new(hint))
                });
                v1::AvailableCommand::new(command.name, command.description).input(input)
            })
            .collect();
        self.update(v1::SessionUpdate::AvailableCommandsUpdate(
            v1::AvailableCommandsUpdate::new(commands),
        ))
        .await
    }
}

/// Sends one update of a session.
pub(crate) async fn notify(
    peer: &Peer,
    session: &SessionHandle,
    update: v1::SessionUpdate,
) -> Result<(), NotifyError> {
    let id = session.id().as_str().to_owned();
    peer.notify("session/update", &v1::SessionNotification::new(id, update))
        .await
}

/// What changes while a follower runs.
struct Run {
    events: Follower,
    fold: EditorFold,
    view: View,
    batch: Vec<(Option<Arc<Event>>, EditorItem)>,
    items: Vec<EditorItem>,
}

impl Run {
    /// Moves the items of an event to the batch; a piece of a text joins the one before it.
    fn collect(&mut self, event: &Arc<Event>) {
        for item in self.items.drain(..) {
            if let Some((_, last)) = self.batch.last_mut()
                && merges(last, &item)
            {
                continue;
            }
            self.batch.push((Some(Arc::clone(event)), item));
        }
    }
}

/// Adds a piece of the same text to the last one, if both are small.
fn merges(last: &mut EditorItem, next: &EditorItem) -> bool {
    use EditorItem::{AgentText, AgentThought, ToolOutput};
    let (known, more) = match (last, next) {
        (
            AgentText { message_id, text },
            AgentText {
                message_id: id,
                text: more,
            },
        )
        | (
            AgentThought { message_id, text },
            AgentThought {
                message_id: id,
                text: more,
            },
        )
        | (
            ToolOutput {
                id: message_id,
                text,
            },
            ToolOutput { id, text: more },
        ) if message_id == id => (text, more),
        _ => return false,
    };
    if known.len() + more.len() > MERGE {
        return false;
    }
    known.push_str(more);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(id: &str, text: &str) -> EditorItem {
        EditorItem::AgentText {
            message_id: id.to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn pieces_of_one_text_merge_up_to_a_bound() {
        let mut last = text("m1", "a");
        assert!(merges(&mut last, &text("m1", "b")));
        assert_eq!(last, text("m1", "ab"));
        assert!(!merges(&mut last, &text("m2", "c")));
        assert!(!merges(&mut last, &text("m1", &"x".repeat(MERGE))));
        let thought = EditorItem::AgentThought {
            message_id: "m1".to_owned(),
            text: "t".to_owned(),
        };
        assert!(!merges(&mut last, &thought));
    }
}
