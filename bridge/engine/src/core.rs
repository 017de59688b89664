//! One session's durable heart: its log, the state folded from it, and those who follow.
//!
//! Everything that happens in a session is an append here. The lock is held for one
//! `write` and one fold, never across an await; followers read by seq, so a slow one
//! delays nobody and costs no memory.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use terret_log::{
    AppendError, Event, Payload, Scrubber, SessionId, SessionLog, SessionState, Store, Syncer,
    TextStream,
};
use terret_tools::call::Fault;
use tokio::sync::watch;

use crate::request::Outbound;
use crate::status::AgentStatus;

/// Recent events kept for followers; older ones are read from the file.
const RECENT_EVENTS: usize = 1024;
/// Their lines in bytes, so that a few huge results do not stay in memory.
const RECENT_BYTES: u64 = 512 * 1024;

pub(crate) struct Core {
    id: SessionId,
    store: Store,
    journal: Mutex<Journal>,
    next_seq: watch::Sender<u64>,
    status: watch::Sender<AgentStatus>,
    syncer: Syncer,
    /// The log was given up; no event will come any more.
    released: AtomicBool,
}

struct Journal {
    /// None once the session was closed: its lock is free for another process.
    log: Option<SessionLog>,
    state: SessionState,
    outbound: Outbound,
    recent: Recent,
    /// What each running call said and may yet prove to be the beginning of a secret.
    outputs: HashMap<String, TextStream>,
}

#[derive(Default)]
struct Recent {
    events: VecDeque<(u64, Arc<Event>)>,
    bytes: u64,
}

impl Core {
    pub(crate) fn new(store: Store, log: SessionLog, state: SessionState) -> Self {
        Self {
            id: log.id().clone(),
            store,
            syncer: log.syncer(),
            next_seq: watch::Sender::new(log.next_seq()),
            status: watch::Sender::new(AgentStatus::Idle),
            released: AtomicBool::new(false),
            journal: Mutex::new(Journal {
                log: Some(log),
                state,
                outbound: Outbound::default(),
                recent: Recent::default(),
                outputs: HashMap::new(),
            }),
        }
    }

    pub(crate) fn id(&self) -> &SessionId {
        &self.id
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// What keeps secrets out of the log. A comparison with what the log holds must go
    /// through it, since the log holds what was scrubbed.
    pub(crate) fn scrubber(&self) -> &Scrubber {
        self.store.scrubber()
    }

    pub(crate) fn syncer(&self) -> &Syncer {
        &self.syncer
    }

    /// Appends one event, scrubbed of secrets: in the file first, then in the state, then to
    /// followers. What comes back is what was stored.
    pub(crate) fn append(&self, payload: Payload) -> Result<Arc<Event>, Fault> {
        self.append_locked(&mut self.journal(), payload)
    }

    fn append_locked(&self, journal: &mut Journal, payload: Payload) -> Result<Arc<Event>, Fault> {
        match &payload {
            Payload::ToolResult { id, .. } => {
                let rest = journal.outputs.remove(id).map(|mut said| said.finish());
                if let Some(text) = rest.filter(|text| !text.is_empty()) {
                    let id = id.clone();
                    self.append_locked(journal, Payload::ToolOutput { id, text })?;
                }
            }
            Payload::TurnEnd { .. } => journal.outputs.clear(),
            _ => {}
        }
        let Some(log) = journal.log.as_mut() else {
            return Err(Fault("the session has been closed".to_owned()));
        };
        let before = log.length();
        let event = log.append(payload).map_err(fault)?;
        let size = log.length() - before;
        journal.state.apply(&event);
        journal.recent.push(size, Arc::clone(&event));
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

    /// Appends what `make` derives from the state, if anything, with nothing in between.
    pub(crate) fn append_if(
        &self,
        make: impl FnOnce(&SessionState) -> Option<Payload>,
    ) -> Result<Option<Arc<Event>>, Fault> {
        let mut journal = self.journal();
        match make(&journal.state) {
            Some(payload) => self.append_locked(&mut journal, payload).map(Some),
            None => Ok(None),
        }
    }

    /// Appends what a call says, as long as the open turn owes its result. A call that was
    /// given up may still be at work; it says and changes nothing behind its result, let
    /// alone behind the end of the turn.
    pub(crate) fn append_for_call(
        &self,
        call: &str,
        payload: Payload,
    ) -> Result<Arc<Event>, Fault> {
        let mut journal = self.journal();
        self.check_owed(&journal, call)?;
        self.append_locked(&mut journal, payload)
    }

    fn check_owed(&self, journal: &Journal, call: &str) -> Result<(), Fault> {
        let owed = journal.state.turn.owed_calls();
        if owed.iter().any(|owed| owed.id == call) {
            Ok(())
        } else {
            Err(Fault(format!("the call `{call}` has its result already")))
        }
    }

    /// Appends a piece of a call's live output, but for an end that may yet become a secret:
    /// that comes with the next piece, or before the call's result.
    pub(crate) fn append_output(&self, call: &str, text: &str) -> Result<(), Fault> {
        let mut journal = self.journal();
        self.check_owed(&journal, call)?;
        let said = journal
            .outputs
            .entry(call.to_owned())
            .or_insert_with(|| self.scrubber().stream());
        let text = said.push(text);
        if !text.is_empty() {
            let id = call.to_owned();
            self.append_locked(&mut journal, Payload::ToolOutput { id, text })?;
        }
        Ok(())
    }

    /// Gives up the log: nothing is appended any more, and another process may write it.
    /// Followers end when they have read what there is.
    pub(crate) fn release(&self) {
        let mut journal = self.journal();
        journal.log = None;
        self.released.store(true, Ordering::Release);
        self.next_seq.send_modify(|_| {});
    }

    pub(crate) fn released(&self) -> bool {
        self.released.load(Ordering::Acquire)
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
    fn push(&mut self, size: u64, event: Arc<Event>) {
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
