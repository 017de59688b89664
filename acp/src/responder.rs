//! The right and the duty to answer one request.

use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::encode;
use crate::error::RpcError;
use crate::id::RequestId;
use crate::peer::Peer;
use crate::shared::Shared;

/// Answers one request, once. Dropped without an answer (an early return, a panic), it answers
/// by itself: -32800 when the request was cancelled, else -32603.
#[derive(Debug)]
pub struct Responder {
    shared: Arc<Shared>,
    id: RequestId,
    serial: u64,
    cancellation: CancellationToken,
    withdrawn: CancellationToken,
    answered: bool,
}

impl Responder {
    pub(crate) fn new(shared: Arc<Shared>, id: RequestId, session: Option<String>) -> Self {
        let (serial, cancellation, withdrawn) = shared.opened(&id, session);
        Self {
            shared,
            id,
            serial,
            cancellation,
            withdrawn,
            answered: false,
        }
    }

    /// The id of the request, as the peer wrote it.
    #[must_use]
    pub fn id(&self) -> &RequestId {
        &self.id
    }

    /// Fired when the answer is no longer wanted: by `$/cancel_request`, by a message of
    /// [`crate::Lane::Interrupt`] for its session, or by the end of the connection. One answer
    /// is due all the same: the normal one, the method's own cancelled form, or
    /// [`RpcError::cancelled`].
    #[must_use]
    pub fn cancellation(&self) -> &CancellationToken {
        &self.cancellation
    }

    /// As [`Self::cancellation`], but fired only when the peer said so. A peer that cancels
    /// and goes away in the same breath has withdrawn its request; one that merely goes
    /// away has not.
    #[must_use]
    pub fn withdrawn(&self) -> &CancellationToken {
        &self.withdrawn
    }

    /// The side that asked.
    #[must_use]
    pub fn peer(&self) -> Peer {
        Peer::new(Arc::clone(&self.shared))
    }

    /// Answers with a result, waiting for room in the queue. Everything that was queued before
    /// stands before it on the wire. The answer is not lost when the future is dropped while it
    /// waits; with the connection gone it goes nowhere.
    pub async fn respond(self, value: &(impl Serialize + Sync + ?Sized)) {
        let frame = encode::result(&self.id, value).unwrap_or_else(|_| {
            let fault = RpcError::internal("the result cannot be written as JSON");
            encode::error(Some(&self.id), &fault)
        });
        self.send(frame).await;
    }

    /// Answers with an error; as [`Responder::respond`].
    pub async fn fail(self, error: RpcError) {
        let frame = encode::error(Some(&self.id), &error);
        self.send(frame).await;
    }

    /// Answers with either; as [`Responder::respond`].
    pub async fn finish<T: Serialize + Sync>(self, outcome: Result<T, RpcError>) {
        let frame = match &outcome {
            Ok(value) => return self.respond(value).await,
            Err(error) => encode::error(Some(&self.id), error),
        };
        self.send(frame).await;
    }

    /// Answers with an error past the queue's bound, without waiting: for the reader, which
    /// waits for room by itself.
    pub(crate) fn fail_now(mut self, error: &RpcError) {
        self.answer_now(encode::error(Some(&self.id), error));
    }

    async fn send(mut self, frame: Bytes) {
        let waiting = NotLost {
            responder: &mut self,
            frame: Some(frame.clone()),
        };
        // A closed connection has nobody to answer.
        let _ = waiting.responder.shared.outbox.send(frame).await;
        waiting.queued();
    }

    fn answer_now(&mut self, frame: Bytes) {
        if !self.answered {
            self.answered = true;
            // A closed connection has nobody to answer.
            let _ = self.shared.outbox.force(frame);
            self.shared.settled(self.serial);
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let error = if self.cancellation.is_cancelled() {
            RpcError::cancelled()
        } else {
            RpcError::internal("the request ended without an answer; this is a fault on this side")
        };
        self.answer_now(encode::error(Some(&self.id), &error));
    }
}

/// Queues an answer past the bound when the future that waits for room is dropped.
struct NotLost<'responder> {
    responder: &'responder mut Responder,
    frame: Option<Bytes>,
}

impl NotLost<'_> {
    fn queued(mut self) {
        self.frame = None;
        self.responder.answered = true;
        self.responder.shared.settled(self.responder.serial);
    }
}

impl Drop for NotLost<'_> {
    fn drop(&mut self) {
        if let Some(frame) = self.frame.take() {
            self.responder.answer_now(frame);
        }
    }
}
