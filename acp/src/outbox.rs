//! What waits to be written: one queue in order, bounded in frames and in bytes.
//!
//! One budget bounds both. A frame costs its bytes, but at least its share of the budget
//! ([`Outbox::new`]), so 1,024 small frames or 8 MB of large ones fill it, and a frame that is
//! larger than all of it goes alone. Senders wait for room. What must not be lost and cannot
//! wait (the answer of a responder that was dropped, a cancel notice) is queued past the budget
//! and in its place; its number is bounded by the requests that are open.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, TryAcquireError, watch};

use crate::error::{Closed, NotifyError};

/// Frames up to this size are gathered into one write.
const GATHER: usize = 64 * 1024;

/// The queue between all senders and the one writer.
#[derive(Debug)]
pub(crate) struct Outbox {
    queue: Mutex<Queue>,
    room: Arc<Semaphore>,
    budget: u32,
    least_cost: u32,
    work: Notify,
    written: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Queue {
    frames: VecDeque<Frame>,
    /// How many frames were ever queued.
    queued: u64,
    state: State,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Open,
    /// The writer ends once the queue is empty.
    Finishing,
    Closed,
}

#[derive(Debug)]
struct Frame {
    bytes: Bytes,
    /// Given back when the frame was written.
    room: Option<OwnedSemaphorePermit>,
}

impl Outbox {
    /// A queue of at most `frames` frames and `bytes` bytes (or one frame, when that is larger).
    pub(crate) fn new(frames: usize, bytes: usize) -> Self {
        let budget = u32::try_from(bytes)
            .unwrap_or(u32::MAX)
            .clamp(1, u32::MAX >> 3);
        let least_cost = (budget / u32::try_from(frames.max(1)).unwrap_or(u32::MAX)).max(1);
        Self {
            queue: Mutex::default(),
            room: Arc::new(Semaphore::new(budget as usize)),
            budget,
            least_cost,
            work: Notify::new(),
            written: watch::Sender::new(0),
        }
    }

    /// Queues a frame when there is room for it. Dropping the future before it is done queues
    /// nothing.
    pub(crate) async fn send(&self, bytes: Bytes) -> Result<(), Closed> {
        let room = Arc::clone(&self.room)
            .acquire_many_owned(self.cost(&bytes))
            .await
            .map_err(|_| Closed)?;
        self.push(bytes, Some(room))
    }

    /// Queues a frame if there is room now.
    pub(crate) fn try_send(&self, bytes: Bytes) -> Result<(), NotifyError> {
        let room = Arc::clone(&self.room)
            .try_acquire_many_owned(self.cost(&bytes))
            .map_err(|error| match error {
                TryAcquireError::Closed => NotifyError::Closed(Closed),
                TryAcquireError::NoPermits => NotifyError::Full,
            })?;
        Ok(self.push(bytes, Some(room))?)
    }

    /// Queues a frame even if there is no room: for what must not be lost and cannot wait.
    pub(crate) fn force(&self, bytes: Bytes) -> Result<(), Closed> {
        self.push(bytes, None)
    }

    /// Resolves when a small frame could be queued: what [`Outbox::force`] is paid for with.
    pub(crate) async fn has_room(&self) {
        // Closed means that nobody will ask again.
        drop(self.room.acquire_many(self.least_cost).await);
    }

    /// Resolves when everything that is queued now has been written and flushed.
    pub(crate) async fn flushed(&self) -> Result<(), Closed> {
        let target = self.lock().queued;
        let mut written = self.written.subscribe();
        loop {
            if *written.borrow_and_update() >= target {
                return Ok(());
            }
            if self.lock().state == State::Closed || written.changed().await.is_err() {
                return Err(Closed);
            }
        }
    }

    /// Lets the writer write what is queued and end.
    pub(crate) fn finish(&self) {
        let mut queue = self.lock();
        if queue.state == State::Open {
            queue.state = State::Finishing;
        }
        drop(queue);
        self.work.notify_one();
    }

    /// Drops what is queued and wakes everyone who waits.
    pub(crate) fn close(&self) {
        let dropped = {
            let mut queue = self.lock();
            queue.state = State::Closed;
            std::mem::take(&mut queue.frames)
        };
        drop(dropped);
        self.room.close();
        self.work.notify_one();
        // Wakes `flushed`, which then sees that the queue is closed.
        self.written.send_modify(|_| {});
    }

    /// Writes until the queue is finished or closed, or the pipe breaks. At most `coalesce`
    /// frames are gathered before a flush.
    pub(crate) async fn write_to(
        &self,
        mut writer: impl AsyncWrite + Unpin,
        coalesce: usize,
    ) -> std::io::Result<()> {
        let mut batch = Vec::new();
        let mut gathered = Vec::with_capacity(GATHER);
        let mut written = 0;
        loop {
            let state = self.take(&mut batch, coalesce);
            if batch.is_empty() {
                if state == State::Open {
                    self.work.notified().await;
                    continue;
                }
                return writer.shutdown().await;
            }
            written += batch.len() as u64;
            for frame in batch.drain(..) {
                if gathered.len() + frame.bytes.len() > GATHER && !gathered.is_empty() {
                    writer.write_all(&gathered).await?;
                    gathered.clear();
                }
                if frame.bytes.len() > GATHER {
                    writer.write_all(&frame.bytes).await?;
                } else {
                    gathered.extend_from_slice(&frame.bytes);
                }
                // The gathered bytes are bounded by `GATHER`; the room of a frame that is
                // only gathered is given back early by no more than that.
                drop(frame.room);
            }
            if !gathered.is_empty() {
                writer.write_all(&gathered).await?;
                gathered.clear();
            }
            writer.flush().await?;
            self.written.send_replace(written);
        }
    }

    fn take(&self, batch: &mut Vec<Frame>, most: usize) -> State {
        let mut queue = self.lock();
        let count = queue.frames.len().min(most.max(1));
        batch.extend(queue.frames.drain(..count));
        queue.state
    }

    fn push(&self, bytes: Bytes, room: Option<OwnedSemaphorePermit>) -> Result<(), Closed> {
        let mut queue = self.lock();
        if queue.state == State::Closed {
            return Err(Closed);
        }
        let was_empty = queue.frames.is_empty();
        queue.frames.push_back(Frame { bytes, room });
        queue.queued += 1;
        drop(queue);
        if was_empty {
            self.work.notify_one();
        }
        Ok(())
    }

    fn cost(&self, bytes: &Bytes) -> u32 {
        u32::try_from(bytes.len())
            .unwrap_or(u32::MAX)
            .clamp(self.least_cost, self.budget)
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
