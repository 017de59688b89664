//! The handle to the other side: ask it, tell it, and learn that it is gone.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

use crate::encode;
use crate::error::{Closed, NotifyError, RequestError};
use crate::message::Outcome;
use crate::params::{self, RawParams};
use crate::shared::{Shared, Waiting};

/// The other side of a connection. Cheap to clone; holds the connection open no longer than its
/// driver runs.
#[derive(Debug, Clone)]
pub struct Peer {
    shared: Arc<Shared>,
}

impl Peer {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Asks and waits for the answer, without limit.
    ///
    /// Dropping the future sends `$/cancel_request` when the request went out, and forgets it.
    /// Never await this inside a handler of a lane unless the handler was spawned off it: with
    /// [`crate::Overflow::Wait`] the answer may stand behind that very lane.
    ///
    /// # Errors
    /// [`RequestError`], which says what was asked.
    pub async fn request<R: DeserializeOwned>(
        &self,
        method: &str,
        params: &(impl Serialize + Sync + ?Sized),
    ) -> Result<R, RequestError> {
        let id = self.shared.next_id();
        let frame = encode::request(id, method, params);
        let raw = self.ask(id, method, frame, None).await?;
        read_result(method, &raw)
    }

    /// As [`Peer::request`], within a time; when it is over, the peer is told that the answer is
    /// no longer wanted.
    ///
    /// # Errors
    /// [`RequestError::TimedOut`], with the last noise line of the peer (R115), and all of
    /// [`Peer::request`].
    pub async fn request_within<R: DeserializeOwned>(
        &self,
        limit: Duration,
        method: &str,
        params: &(impl Serialize + Sync + ?Sized),
    ) -> Result<R, RequestError> {
        match tokio::time::timeout(limit, self.request(method, params)).await {
            Ok(result) => result,
            Err(_) => Err(RequestError::TimedOut {
                method: method.to_owned(),
                after: limit,
                noise: self.last_noise(),
            }),
        }
    }

    /// As [`Peer::request`], but the answer is given only after every message that the peer sent
    /// before it in that session has been handled by our service: a prompt's answer after the
    /// last of its updates, a load's after the replay.
    ///
    /// # Errors
    /// As [`Peer::request`].
    pub async fn request_after_updates<R: DeserializeOwned>(
        &self,
        session_id: &str,
        method: &str,
        params: &(impl Serialize + Sync + ?Sized),
    ) -> Result<R, RequestError> {
        let id = self.shared.next_id();
        let frame = encode::request(id, method, params);
        let raw = self.ask(id, method, frame, Some(session_id)).await?;
        read_result(method, &raw)
    }

    /// Tells, waiting for room in the queue. Messages of one caller stay in order.
    ///
    /// # Errors
    /// [`NotifyError::Closed`] when the connection has ended, [`NotifyError::Encode`].
    pub async fn notify(
        &self,
        method: &str,
        params: &(impl Serialize + Sync + ?Sized),
    ) -> Result<(), NotifyError> {
        let frame = encode::notification(method, params).map_err(|_| NotifyError::Encode)?;
        Ok(self.shared.outbox.send(frame).await?)
    }

    /// Tells if there is room now.
    ///
    /// # Errors
    /// [`NotifyError::Full`] when the peer does not read fast enough, and all of
    /// [`Peer::notify`].
    pub fn try_notify(
        &self,
        method: &str,
        params: &(impl Serialize + ?Sized),
    ) -> Result<(), NotifyError> {
        let frame = encode::notification(method, params).map_err(|_| NotifyError::Encode)?;
        self.shared.outbox.try_send(frame)
    }

    /// Resolves when everything queued before has been written.
    ///
    /// # Errors
    /// When the connection ends before.
    pub async fn flush(&self) -> Result<(), Closed> {
        self.shared.outbox.flushed().await
    }

    /// Whether the connection has ended, or is ending.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.ended.is_cancelled()
    }

    /// Resolves when the peer is gone or the connection was closed.
    pub async fn closed(&self) {
        self.shared.ended.cancelled().await;
    }

    /// Ends the connection: handlers are told to stop, what is queued is written, and the driver
    /// returns.
    pub fn close(&self) {
        self.shared.stop.cancel();
    }

    /// The last line of the peer that was not a message, fit to be shown to a person.
    #[must_use]
    pub fn last_noise(&self) -> Option<String> {
        self.shared.last_noise()
    }

    async fn ask(
        &self,
        id: u64,
        method: &str,
        frame: serde_json::Result<Bytes>,
        after_session: Option<&str>,
    ) -> Result<RawParams, RequestError> {
        let closed = || RequestError::Closed {
            method: method.to_owned(),
        };
        let frame = frame.map_err(|_| RequestError::Encode {
            method: method.to_owned(),
        })?;
        let (answer, answered) = oneshot::channel();
        let after_session = after_session.map(str::to_owned);
        if !self.shared.wait_for(
            id,
            Waiting {
                answer,
                after_session,
            },
        ) {
            return Err(closed());
        }
        let mut forget = Forget {
            shared: &self.shared,
            id,
            sent: false,
        };
        self.shared
            .outbox
            .send(frame)
            .await
            .map_err(|Closed| closed())?;
        forget.sent = true;
        let outcome = answered.await;
        // Answered, or nobody is there to be told: nothing is to be taken back.
        forget.sent = false;
        match outcome {
            Ok(Outcome::Result(raw)) => Ok(raw),
            Ok(Outcome::Error(error)) => Err(RequestError::Rpc {
                method: method.to_owned(),
                error: Box::new(error),
            }),
            Ok(Outcome::Neither) => Err(RequestError::Protocol {
                method: method.to_owned(),
            }),
            Err(_) => Err(closed()),
        }
    }
}

fn read_result<R: DeserializeOwned>(method: &str, raw: &RawParams) -> Result<R, RequestError> {
    params::parse_result(raw).map_err(|detail| RequestError::Decode {
        method: method.to_owned(),
        detail,
    })
}

/// Takes a request back when its future is dropped.
struct Forget<'shared> {
    shared: &'shared Shared,
    id: u64,
    sent: bool,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        let was_waiting = self.shared.answered(self.id).is_some();
        if was_waiting && self.sent {
            // A closed connection needs no notice.
            let _ = self.shared.outbox.force(encode::cancel(self.id));
        }
    }
}
