//! Following a session: every event from a seq on, in order, without a gap, at the
//! follower's own pace. What has left memory is read from the file.

use std::sync::Arc;

use terret_log::{Event, EventReader};
use tokio::sync::watch;

use crate::core::Core;

/// How many events are read from the file at a time.
const BATCH: usize = 256;

/// A reader of one session's events that waits for new ones.
pub struct Follower {
    core: Arc<Core>,
    seq: u64,
    latest: watch::Receiver<u64>,
    /// Events from the file, from `seq` on.
    batch: std::collections::VecDeque<Arc<Event>>,
    /// Stands at or before `seq` when `batch` is empty.
    reader: Option<EventReader>,
}

impl Follower {
    pub(crate) fn new(core: Arc<Core>, seq: u64) -> Self {
        let latest = core.watch_seq();
        Self {
            core,
            seq,
            latest,
            batch: std::collections::VecDeque::new(),
            reader: None,
        }
    }

    /// The seq of the event that comes next.
    pub fn position(&self) -> u64 {
        self.seq
    }

    /// Whether everything that has happened so far was given.
    pub fn caught_up(&self) -> bool {
        self.seq >= *self.latest.borrow()
    }

    /// The next event; waits for it. None when the session was closed and all of it was
    /// given, or when its file cannot be read. Cancel-safe.
    pub async fn next(&mut self) -> Option<Arc<Event>> {
        loop {
            // In this order: after the release no event comes, so the seq is the last one.
            let released = self.core.released();
            // One look decides; an event that comes behind it wakes the wait below.
            if self.seq < *self.latest.borrow_and_update() {
                // None when it is neither in memory nor in the file.
                return self.ready().await;
            }
            if released {
                return None;
            }
            self.latest.changed().await.ok()?;
        }
    }

    /// The next event when it is there already.
    pub async fn ready(&mut self) -> Option<Arc<Event>> {
        if self.seq >= *self.latest.borrow_and_update() {
            return None;
        }
        if self.batch.is_empty() {
            if let Some(event) = self.core.recent(self.seq) {
                self.seq += 1;
                return Some(event);
            }
            self.fill().await;
        }
        let event = self.batch.pop_front()?;
        self.seq = event.seq + 1;
        Some(event)
    }

    async fn fill(&mut self) {
        let reader = self.reader.take();
        let (store, id, from) = (self.core.store().clone(), self.core.id().clone(), self.seq);
        let read = tokio::task::spawn_blocking(move || {
            // A follower that falls behind again goes on where it left the file.
            let mut reader = match reader {
                Some(reader) => reader,
                None => store.read(&id, from)?,
            };
            reader.pass_over(from);
            let mut events = Vec::with_capacity(BATCH);
            let mut problem = None;
            while events.len() < BATCH {
                match reader.next() {
                    Some(Ok(event)) => events.push(Arc::new(event)),
                    Some(Err(error)) => {
                        problem = Some(error);
                        break;
                    }
                    None => break,
                }
            }
            Ok::<_, terret_log::StoreError>((reader, events, problem))
        })
        .await;
        match read {
            Ok(Ok((reader, events, problem))) => {
                match problem {
                    None => self.reader = Some(reader),
                    Some(error) => tracing::error!(%error, "a session's log could not be read"),
                }
                self.batch.extend(events);
            }
            Ok(Err(error)) => tracing::error!(%error, "a session's log could not be read"),
            Err(error) => tracing::error!(%error, "reading a session's log was interrupted"),
        }
    }
}
