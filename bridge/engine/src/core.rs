//! One session's durable heart: its log, the state folded from it, and those who follow.
//!
//! Everything that happens in a session is an append here. The lock is held for one
//! `write` and one fold, never across an await; followers read by seq, so a slow one
//! delays nobody and costs no memory.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use terret_log::{AppendError, Event, Payload, SessionId, SessionLog, SessionState, Store, Syncer};
use terret_tools::call::Fault;
use tokio::sync::watch;

use crate::request::Outbound;
use crate::status::AgentStatus;

/// Recent events kept for followers; older ones are read from the file.
const RECENT_EVENTS: usize = 1024;
/// Their text in bytes, so that a few huge results do not stay in memory.
const RECENT_BYTES: usize = 512 * 1024;

pub(crate) struct Core {
    id: SessionId,
    store: Store,
    journal: Mutex<Journal>,
    next_seq: watch::Sender<u64>,
    status: watch::Sender<AgentStatus>,
    syncer: Syncer,
}

struct Journal {
    /// None once the session was closed: its lock is free for another process.
    log: Option<SessionLog>,
    state: SessionState,
    outbound: Outbound,
    recent: Recent,
}

#[derive(Default)]
struct Recent {
    events: VecDeque<(usize, Arc<Event>)>,
    bytes: usize,
}

impl Core {
    pub(crate) fn new(store: Store, log: SessionLog, state: SessionState) -> Self {
        Self {
            id: log.id().clone(),
            store,
            syncer: log.syncer(),
            next_seq: watch::Sender::new(log.next_seq()),
            status: watch::Sender::new(AgentStatus::Idle),
            journal: Mutex::new(Journal {
                log: Some(log),
                state,
                outbound: Outbound::default(),
                recent: Recent::default(),
            }),
        }
    }

    pub(crate) fn id(&self) -> &SessionId {
        &self.id
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn syncer(&self) -> &Syncer {
        &self.syncer
    }

    /// Appends one event: in the file first, then in the state, then to followers.
    pub(crate) fn append(&self, payload: Payload) -> Result<Arc<Event>, Fault> {
        self.append_locked(&mut self.journal(), payload)
    }

    fn append_locked(&self, journal: &mut Journal, payload: Payload) -> Result<Arc<Event>, Fault> {
        let Some(log) = journal.log.as_mut() else {
            return Err(Fault("the session has been closed".to_owned()));
        };
        let event = log.append(payload).map_err(fault)?;
        journal.state.apply(&event);
        journal.recent.push(Arc::clone(&event));
        // Inside the lock, so that followers see seqs grow.
        self.next_seq.send_replace(event.seq + 1);
        Ok(event)
    }

    /// Appends what `make` derives from the state, with nothing in between.
    pub(crate) fn append_with(
        &self,
        make: impl FnOnce(&SessionState) -> Payload,
    ) -> Result<Arc<Event>, Fault> {
        let mut journal = self.journal();
        let payload = make(&journal.state);
        self.append_locked(&mut journal, payload)
    }

    /// Gives up the log: nothing is appended any more, and another process may write it.
    pub(crate) fn release(&self) {
        self.journal().log = None;
    }

    /// Looks at the state.
    pub(crate) fn state<R>(&self, look: impl FnOnce(&SessionState) -> R) -> R {
        look(&self.journal().state)
    }

    /// Brings the outbound conversation up to the state and looks at both.
    pub(crate) fn outbound<R>(&self, look: impl FnOnce(&mut Outbound, &SessionState) -> R) -> R {
        let mut journal = self.journal();
        let Journal {
            outbound, state, ..
        } = &mut *journal;
        look(outbound, state)
    }

    pub(crate) fn next_seq(&self) -> u64 {
        *self.next_seq.borrow()
    }

    pub(crate) fn watch_seq(&self) -> watch::Receiver<u64> {
        self.next_seq.subscribe()
    }

    /// The event at `seq` when it is still in memory.
    pub(crate) fn recent(&self, seq: u64) -> Option<Arc<Event>> {
        self.journal().recent.get(seq)
    }

    pub(crate) fn status(&self) -> AgentStatus {
        *self.status.borrow()
    }

    pub(crate) fn watch_status(&self) -> watch::Receiver<AgentStatus> {
        self.status.subscribe()
    }

    /// Changes the status by what it is; `Done` is never left.
    pub(crate) fn change_status(&self, change: impl FnOnce(AgentStatus) -> AgentStatus) {
        self.status.send_if_modified(|status| {
            let next = if *status == AgentStatus::Done {
                AgentStatus::Done
            } else {
                change(*status)
            };
            let changed = next != *status;
            *status = next;
            changed
        });
    }

    fn journal(&self) -> MutexGuard<'_, Journal> {
        // A panic between append and fold leaves the file right and the state short by
        // one event; going on serves better than refusing the whole session.
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn fault(error: AppendError) -> Fault {
    Fault(format!("the session's log could not be written: {error}"))
}

impl Recent {
    fn push(&mut self, event: Arc<Event>) {
        let size = weight(&event);
        self.bytes += size;
        self.events.push_back((size, event));
        while self.events.len() > RECENT_EVENTS
            || (self.bytes > RECENT_BYTES && self.events.len() > 1)
        {
            if let Some((size, _)) = self.events.pop_front() {
                self.bytes -= size;
            }
        }
    }

    fn get(&self, seq: u64) -> Option<Arc<Event>> {
        let first = self.events.front()?.1.seq;
        let offset = usize::try_from(seq.checked_sub(first)?).ok()?;
        self.events.get(offset).map(|(_, event)| Arc::clone(event))
    }
}

/// A rough size: the texts that can be large.
fn weight(event: &Event) -> usize {
    let text = match &event.payload {
        Payload::UserMessage { text, .. }
        | Payload::ContextInjected { text, .. }
        | Payload::AssistantChunk { text }
        | Payload::AssistantThought { text }
        | Payload::ToolOutput { text, .. }
        | Payload::NoticeShown { text, .. } => text.len(),
        Payload::ToolResult { content, error, .. } => {
            content.as_ref().map_or(0, String::len) + error.as_ref().map_or(0, String::len)
        }
        Payload::RequestFrame { system, .. } => system.len() + 16 * 1024,
        Payload::AssistantMessage { parts, .. } => parts.len() * 2048,
        Payload::ToolCall { .. } | Payload::ApprovalRequested { .. } => 2048,
        _ => 0,
    };
    text + 200
}
