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
    /// Events from the file that are ahead of `seq`, newest last.
    batch: std::collections::VecDeque<Arc<Event>>,
    reader: Option<(u64, EventReader)>,
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

    /// The next event; waits for it. None when the session is gone or its file cannot
    /// be read. Cancel-safe.
    pub async fn next(&mut self) -> Option<Arc<Event>> {
        loop {
            if let Some(event) = self.ready().await {
                return Some(event);
            }
            if self.caught_up() {
                self.latest.changed().await.ok()?;
            } else {
                // Not in memory and not in the file: nothing more can be had.
                return None;
            }
        }
    }

    /// The next event when it is there already.
    pub async fn ready(&mut self) -> Option<Arc<Event>> {
        if self.seq >= *self.latest.borrow_and_update() {
            return None;
        }
        if let Some(event) = self.core.recent(self.seq) {
            self.batch.clear();
            self.reader = None;
            self.seq += 1;
            return Some(event);
        }
        if self.batch.is_empty() {
            self.fill().await;
        }
        let event = self.batch.pop_front()?;
        self.seq = event.seq + 1;
        Some(event)
    }

    async fn fill(&mut self) {
        let reader = match self.reader.take() {
            Some((at, reader)) if at == self.seq => Some(reader),
            _ => None,
        };
        let (store, id, from) = (self.core.store().clone(), self.core.id().clone(), self.seq);
        let read = tokio::task::spawn_blocking(move || {
            let mut reader = match reader {
                Some(reader) => reader,
                None => store.read(&id, from)?,
            };
            let mut events = Vec::with_capacity(BATCH);
            while events.len() < BATCH {
                match reader.next() {
                    Some(event) => events.push(Arc::new(event?)),
                    None => break,
                }
            }
            Ok::<_, terret_log::StoreError>((reader, events))
        })
        .await;
        match read {
            Ok(Ok((reader, events))) => {
                if let Some(last) = events.last() {
                    self.reader = Some((last.seq + 1, reader));
                }
                self.batch.extend(events);
            }
            Ok(Err(error)) => tracing::error!(%error, "a session's log could not be read"),
            Err(error) => tracing::error!(%error, "reading a session's log was interrupted"),
        }
    }
}
