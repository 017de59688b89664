//! Hands messages to the service, each in its lane, without the reader ever waiting for a
//! handler.
//!
//! A lane exists while it has work: its first message starts a task, which ends when the queue
//! is empty. So there is nothing to clean up, and a client with a thousand idle sessions costs
//! nothing here.

use std::collections::{HashMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::connection::Options;
use crate::message::Outcome;
use crate::params::RawParams;
use crate::service::{IncomingRequest, Lane, Service};

/// One message on its way to a handler.
pub(crate) enum Work {
    Request(IncomingRequest),
    Notification {
        method: String,
        params: RawParams,
    },
    /// An answer to a request of ours that must not overtake its session's updates.
    Answer {
        to: oneshot::Sender<Outcome>,
        outcome: Outcome,
    },
}

impl Work {
    /// Bytes that are held while it waits and runs.
    fn bytes(&self) -> usize {
        match self {
            Self::Request(call) => call.params.as_bytes().len(),
            Self::Notification { params, .. } => params.as_bytes().len(),
            Self::Answer { .. } => 0,
        }
    }
}

/// All lanes of one connection.
pub(crate) struct Lanes {
    service: Arc<dyn Service>,
    table: Mutex<Table>,
    limits: Limits,
    /// Fired when a message left a lane.
    room: Notify,
    tasks: TaskTracker,
    kill: CancellationToken,
}

/// How much may wait.
struct Limits {
    lane_frames: usize,
    lane_bytes: usize,
    all_bytes: usize,
}

struct Table {
    /// Sessions keep behind the connection's lane.
    opening: bool,
    queues: HashMap<Key, Queue>,
    immediate: usize,
    bytes: usize,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Key {
    Connection,
    Session(String),
}

/// Is in the table for as long as a task works on it.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<Work>,
    bytes: usize,
}

impl Lanes {
    pub(crate) fn new(
        service: Arc<dyn Service>,
        options: &Options,
        kill: CancellationToken,
    ) -> Self {
        Self {
            service,
            table: Mutex::new(Table {
                opening: options.opening_in_order,
                queues: HashMap::new(),
                immediate: 0,
                bytes: 0,
            }),
            limits: Limits {
                lane_frames: options.lane_frames.max(1),
                lane_bytes: options.lane_bytes,
                all_bytes: options.inbound_bytes,
            },
            room: Notify::new(),
            tasks: TaskTracker::new(),
            kill,
        }
    }

    /// Puts a message in its lane, or gives it back when too much waits there.
    pub(crate) fn push(self: &Arc<Self>, lane: Lane, work: Work) -> Result<(), Box<Work>> {
        match lane {
            Lane::Immediate | Lane::Interrupt(_) => self.push_immediate(work),
            Lane::Connection => self.push_queued(Key::Connection, work),
            Lane::Session(id) => self.push_queued(Key::Session(id), work),
        }
    }

    /// Resolves when a message has left a lane since `waiting` was made.
    pub(crate) fn room(&self) -> tokio::sync::futures::Notified<'_> {
        self.room.notified()
    }

    /// No more will be pushed; resolves when all handlers have returned.
    pub(crate) async fn idle(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn push_immediate(self: &Arc<Self>, work: Work) -> Result<(), Box<Work>> {
        let bytes = work.bytes();
        {
            let mut table = self.lock();
            if table.immediate >= self.limits.lane_frames
                || table.is_heavy(bytes, self.limits.all_bytes)
            {
                return Err(Box::new(work));
            }
            table.immediate += 1;
            table.bytes += bytes;
        }
        let lanes = Arc::clone(self);
        self.spawn(async move {
            lanes.handle(work).await;
            let mut table = lanes.lock();
            table.immediate -= 1;
            table.bytes -= bytes;
            drop(table);
            lanes.room.notify_waiters();
        });
        Ok(())
    }

    fn push_queued(self: &Arc<Self>, key: Key, work: Work) -> Result<(), Box<Work>> {
        let bytes = work.bytes();
        let key = {
            let mut table = self.lock();
            let key = if table.opening { Key::Connection } else { key };
            if table.is_heavy(bytes, self.limits.all_bytes) {
                return Err(Box::new(work));
            }
            match table.queues.get_mut(&key) {
                Some(queue) => {
                    let is_answer = matches!(work, Work::Answer { .. });
                    let full = queue.waiting.len() >= self.limits.lane_frames
                        || queue.bytes > 0 && queue.bytes + bytes > self.limits.lane_bytes;
                    if full && !is_answer {
                        return Err(Box::new(work));
                    }
                    queue.bytes += bytes;
                    queue.waiting.push_back(work);
                    table.bytes += bytes;
                    return Ok(());
                }
                None => {
                    table.queues.insert(
                        key.clone(),
                        Queue {
                            waiting: VecDeque::new(),
                            bytes,
                        },
                    );
                    table.bytes += bytes;
                    key
                }
            }
        };
        self.spawn(Arc::clone(self).work_off(key, work));
        Ok(())
    }

    /// The task of one lane.
    async fn work_off(self: Arc<Self>, key: Key, first: Work) {
        let mut next = Some(first);
        while let Some(work) = next {
            let bytes = work.bytes();
            self.handle(work).await;
            next = self.lock().advance(&key, bytes);
            self.room.notify_waiters();
        }
    }

    /// Runs one handler. A panic ends here: the responder answers as it is dropped.
    async fn handle(&self, work: Work) {
        let run = async {
            match work {
                Work::Request(call) => self.service.request(call).await,
                Work::Notification { method, params } => {
                    self.service.notification(method, params).await
                }
                // Whoever asked may have given up.
                Work::Answer { to, outcome } => drop(to.send(outcome)),
            }
        };
        if AssertUnwindSafe(run).catch_unwind().await.is_err() {
            tracing::error!(
                "a message handler panicked; its request was answered with an internal error"
            );
        }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let kill = self.kill.clone();
        self.tasks.spawn(async move {
            kill.run_until_cancelled(task).await;
        });
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Whether `more` bytes are too many; alone, a message of any size is let through.
    fn is_heavy(&self, more: usize, limit: usize) -> bool {
        self.bytes > 0 && self.bytes + more > limit
    }

    /// After a message of `bytes` was handled: the next of that lane, or the lane is gone.
    fn advance(&mut self, key: &Key, bytes: usize) -> Option<Work> {
        self.bytes = self.bytes.saturating_sub(bytes);
        let queue = self.queues.get_mut(key)?;
        queue.bytes = queue.bytes.saturating_sub(bytes);
        if let Some(work) = queue.waiting.pop_front() {
            return Some(work);
        }
        self.queues.remove(key);
        if *key == Key::Connection {
            self.opening = false;
        }
        None
    }
}

#[cfg(test)]
mod tests;
