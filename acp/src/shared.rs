//! What the parts of one connection share: the outbox, the requests of ours that wait for an
//! answer, and the requests of the peer that wait for ours.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use crate::id::RequestId;
use crate::message::Outcome;
use crate::outbox::Outbox;

/// Shared by the driver, every [`crate::Peer`] and every [`crate::Responder`].
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) outbox: Outbox,
    /// Fired when the peer is gone or the connection is closed: handlers stop.
    pub(crate) ended: CancellationToken,
    /// Fired by [`crate::Peer::close`].
    pub(crate) stop: CancellationToken,
    pending: Mutex<Pending>,
    next_id: AtomicU64,
    open: Mutex<OpenRequests>,
    next_serial: AtomicU64,
    none_open: Notify,
    last_noise: Mutex<Option<String>>,
}

/// Requests of ours.
#[derive(Debug, Default)]
struct Pending {
    waiting: HashMap<u64, Waiting>,
    closed: bool,
}

/// One request of ours.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) answer: oneshot::Sender<Outcome>,
    /// The answer is given only after what came before it in this session was handled.
    pub(crate) after_session: Option<String>,
}

/// Requests of the peer, by a number of our own: a peer that reuses an id while it is open
/// still gets one answer for each.
#[derive(Debug, Default)]
struct OpenRequests {
    by_serial: HashMap<u64, OpenRequest>,
    latest: HashMap<RequestId, u64>,
}

#[derive(Debug)]
struct OpenRequest {
    id: RequestId,
    session: Option<String>,
    cancellation: CancellationToken,
    /// Fired by the peer alone, not by the end of the connection.
    withdrawn: CancellationToken,
}

impl OpenRequest {
    /// Withdrawn first: who sees the cancellation can tell why it came.
    fn tokens(&self) -> [CancellationToken; 2] {
        [self.withdrawn.clone(), self.cancellation.clone()]
    }
}

impl Shared {
    pub(crate) fn new(outbox: Outbox) -> Self {
        Self {
            outbox,
            ended: CancellationToken::new(),
            stop: CancellationToken::new(),
            pending: Mutex::default(),
            next_id: AtomicU64::new(1),
            open: Mutex::default(),
            next_serial: AtomicU64::new(0),
            none_open: Notify::new(),
            last_noise: Mutex::default(),
        }
    }

    /// The peer will not send any more: requests of ours end, handlers are told to.
    pub(crate) fn end(&self) {
        self.ended.cancel();
        let dropped = {
            let mut pending = lock(&self.pending);
            pending.closed = true;
            std::mem::take(&mut pending.waiting)
        };
        drop(dropped);
    }

    pub(crate) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Remembers a request of ours, unless nobody will ever answer it.
    pub(crate) fn wait_for(&self, id: u64, waiting: Waiting) -> bool {
        let mut pending = lock(&self.pending);
        if !pending.closed {
            pending.waiting.insert(id, waiting);
        }
        !pending.closed
    }

    /// Takes out the request that an answer belongs to.
    pub(crate) fn answered(&self, id: u64) -> Option<Waiting> {
        lock(&self.pending).waiting.remove(&id)
    }

    /// Remembers a request of the peer.
    pub(crate) fn opened(
        &self,
        id: &RequestId,
        session: Option<String>,
    ) -> (u64, CancellationToken, CancellationToken) {
        let serial = self.next_serial.fetch_add(1, Ordering::Relaxed);
        let cancellation = self.ended.child_token();
        let withdrawn = CancellationToken::new();
        let mut open = lock(&self.open);
        open.latest.insert(id.clone(), serial);
        open.by_serial.insert(
            serial,
            OpenRequest {
                id: id.clone(),
                session,
                cancellation: cancellation.clone(),
                withdrawn: withdrawn.clone(),
            },
        );
        (serial, cancellation, withdrawn)
    }

    /// Forgets a request of the peer that was answered.
    pub(crate) fn settled(&self, serial: u64) {
        let mut open = lock(&self.open);
        if let Some(request) = open.by_serial.remove(&serial)
            && open.latest.get(&request.id) == Some(&serial)
        {
            open.latest.remove(&request.id);
        }
        if open.by_serial.is_empty() {
            self.none_open.notify_waiters();
        }
    }

    /// Tells the handler of one request that its answer is no longer wanted.
    pub(crate) fn cancel(&self, id: &RequestId) {
        let open = lock(&self.open);
        let token = open
            .latest
            .get(id)
            .and_then(|serial| open.by_serial.get(serial));
        let tokens = token.map(OpenRequest::tokens);
        drop(open);
        if let Some(tokens) = tokens {
            tokens.iter().for_each(CancellationToken::cancel);
        }
    }

    /// Tells the handlers of all open requests of a session.
    pub(crate) fn cancel_session(&self, session: &str) {
        let tokens: Vec<_> = lock(&self.open)
            .by_serial
            .values()
            .filter(|request| request.session.as_deref() == Some(session))
            .map(OpenRequest::tokens)
            .collect();
        for token in tokens.iter().flatten() {
            token.cancel();
        }
    }

    /// Resolves when the peer waits for no answer.
    pub(crate) async fn no_open_requests(&self) {
        loop {
            let notified = self.none_open.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            if lock(&self.open).by_serial.is_empty() {
                return;
            }
            notified.await;
        }
    }

    pub(crate) fn note_noise(&self, line: String) {
        if !line.is_empty() {
            *lock(&self.last_noise) = Some(line);
        }
    }

    pub(crate) fn last_noise(&self) -> Option<String> {
        lock(&self.last_noise).clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
