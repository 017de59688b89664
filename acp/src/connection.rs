//! Serves one connection: reads and dispatches, writes, and ends in order.

use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::encode;
use crate::error::RpcError;
use crate::framing::{DEFAULT_LINE_LIMIT, Line, LineBuffer};
use crate::id::RequestId;
use crate::lanes::{Lanes, Work};
use crate::message::{self, Message, Noise, Outcome};
use crate::noise;
use crate::outbox::Outbox;
use crate::params::RawParams;
use crate::peer::Peer;
use crate::responder::Responder;
use crate::service::{IncomingRequest, Lane, Service};
use crate::shared::{Shared, Waiting};

/// From this size on a line is read off the runtime's workers.
const LARGE_LINE: usize = 1024 * 1024;

/// What happens to a message whose lane is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overflow {
    /// A request is answered [`RpcError::busy`], a notification is dropped; the reader goes on,
    /// for other sessions. For the agent's side, where what comes in is a person's doing and a
    /// flood is a fault.
    Busy,
    /// The reader waits, and with it the peer. For the client's side, where what comes in is
    /// content and must not be lost. Handlers of a lane must then not wait for an answer of the
    /// same peer.
    Wait,
}

/// How a connection is served.
#[derive(Debug, Clone)]
pub struct Options {
    /// Longest line that is kept, in bytes without its end.
    pub line_limit: usize,
    /// Most messages that wait in one lane; also the most handlers that run beside the lanes.
    pub lane_frames: usize,
    /// Most bytes that wait in one lane; a single message may be larger.
    pub lane_bytes: usize,
    /// Most bytes that wait in all lanes.
    pub inbound_bytes: usize,
    /// What happens when it is more.
    pub overflow: Overflow,
    /// Messages for sessions keep behind the connection's lane until that is empty for the
    /// first time, so that a client may send `initialize` and all that follows in one go.
    pub opening_in_order: bool,
    /// What to make of lines that are not messages.
    pub noise: Noise,
    /// Most frames that wait to be written.
    pub queue_frames: usize,
    /// Most bytes that wait to be written; a single frame may be larger.
    pub queue_bytes: usize,
    /// Most frames that are written before a flush.
    pub coalesce: usize,
    /// How long handlers have to come to an end, and the queue to be written, once the peer is
    /// gone or the connection is closed.
    pub linger: Duration,
}

impl Options {
    /// For the agent's side: strict about lines, and never held up by one session.
    #[must_use]
    pub fn agent() -> Self {
        Self {
            line_limit: DEFAULT_LINE_LIMIT,
            lane_frames: 16 * 1024,
            lane_bytes: DEFAULT_LINE_LIMIT,
            inbound_bytes: 4 * DEFAULT_LINE_LIMIT,
            overflow: Overflow::Busy,
            opening_in_order: true,
            noise: Noise::Refuse,
            queue_frames: 1024,
            queue_bytes: 8 * 1024 * 1024,
            coalesce: 256,
            linger: Duration::from_secs(2),
        }
    }

    /// For the client's side: passes over noise, and slows a peer that floods.
    #[must_use]
    pub fn client() -> Self {
        Self {
            overflow: Overflow::Wait,
            opening_in_order: false,
            noise: Noise::Skip,
            ..Self::agent()
        }
    }
}

/// Why a connection ended.
#[derive(Debug)]
pub enum Ended {
    /// The peer closed its output: it is gone, or wants nothing more.
    Eof,
    /// Reading failed.
    ReadFailed(io::Error),
    /// Writing failed: the peer is gone (a broken pipe) or the disk behind its pipe is full.
    WriteFailed(io::Error),
    /// [`Peer::close`] was called.
    Stopped,
}

/// A connection to one peer, over any pair of byte streams: stdio, a socket, a duplex.
#[derive(Debug, Clone, Copy)]
pub struct Connection;

impl Connection {
    /// Serves a connection. Nothing happens until the returned future is polled; dropping it
    /// ends the connection and all its handlers at once.
    ///
    /// When the peer's output ends, handlers are cancelled and have [`Options::linger`] to give
    /// their last answers, which are still written: a script may pipe its requests in and read
    /// the answers.
    pub fn serve<R, W>(
        reader: R,
        writer: W,
        service: Arc<dyn Service>,
        options: Options,
    ) -> (Peer, impl Future<Output = Ended> + Send + 'static)
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let shared = Arc::new(Shared::new(Outbox::new(
            options.queue_frames,
            options.queue_bytes,
        )));
        let peer = Peer::new(Arc::clone(&shared));
        let driver = drive(reader, writer, service, options, shared);
        (peer, driver)
    }
}

/// Ends everything when the driver returns or is dropped.
struct Ends {
    shared: Arc<Shared>,
    kill: CancellationToken,
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.shared.end();
        self.kill.cancel();
        self.shared.outbox.close();
    }
}

async fn drive<R, W>(
    reader: R,
    writer: W,
    service: Arc<dyn Service>,
    options: Options,
    shared: Arc<Shared>,
) -> Ended
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let ends = Ends {
        shared: Arc::clone(&shared),
        kill: CancellationToken::new(),
    };
    service.connected(&Peer::new(Arc::clone(&shared)));
    let lanes = Arc::new(Lanes::new(
        Arc::clone(&service),
        &options,
        ends.kill.clone(),
    ));
    let (linger, coalesce) = (options.linger, options.coalesce);

    let mut reading = JoinSet::new();
    reading.spawn(
        Reader {
            lanes: Arc::clone(&lanes),
            service,
            shared: Arc::clone(&shared),
            options,
        }
        .run(reader),
    );
    let mut writing = JoinSet::new();
    let outbox_of = Arc::clone(&shared);
    writing.spawn(async move { outbox_of.outbox.write_to(writer, coalesce).await });

    let ended = tokio::select! {
        read = reading.join_next() => match read {
            Some(Ok(Ok(()))) => Ended::Eof,
            Some(Ok(Err(error))) => Ended::ReadFailed(error),
            Some(Err(fault)) => Ended::ReadFailed(io::Error::other(fault)),
            None => Ended::Eof,
        },
        wrote = writing.join_next() => Ended::WriteFailed(match wrote {
            Some(Ok(Err(error))) => error,
            Some(Err(fault)) => io::Error::other(fault),
            Some(Ok(Ok(()))) | None => io::ErrorKind::BrokenPipe.into(),
        }),
        () = shared.stop.cancelled() => Ended::Stopped,
    };
    reading.shutdown().await;
    shared.end();
    let can_write = !matches!(ended, Ended::WriteFailed(_));
    if !can_write {
        // Whoever waits for room would wait for ever.
        shared.outbox.close();
    }
    let orderly = async {
        lanes.idle().await;
        if can_write {
            shared.no_open_requests().await;
            shared.outbox.finish();
            writing.join_next().await;
        }
    };
    if tokio::time::timeout(linger, orderly).await.is_err() {
        tracing::debug!("the connection ended before all handlers did; they were stopped");
    }
    drop(ends);
    ended
}

/// Reads lines and puts what they say where it belongs.
struct Reader {
    lanes: Arc<Lanes>,
    service: Arc<dyn Service>,
    shared: Arc<Shared>,
    options: Options,
}

impl Reader {
    async fn run(self, mut input: impl AsyncRead + Unpin) -> io::Result<()> {
        let mut lines = LineBuffer::new(self.options.line_limit);
        loop {
            let ended = input.read_buf(&mut lines.room()).await? == 0;
            while let Some(line) = lines.next_line() {
                self.take(line).await;
            }
            if ended {
                if let Some(line) = lines.finish() {
                    self.take(line).await;
                }
                return Ok(());
            }
        }
    }

    async fn take(&self, line: Line) {
        let Line::Whole(line) = line else {
            self.too_long().await;
            return;
        };
        if line.len() < LARGE_LINE {
            let understood = understand(&line, self.options.noise, &*self.service);
            self.dispatch(&line, understood).await;
            return;
        }
        let (service, noise) = (Arc::clone(&self.service), self.options.noise);
        let large = line.clone();
        let read = tokio::task::spawn_blocking(move || understand(&large, noise, &*service)).await;
        match read {
            Ok(understood) => self.dispatch(&line, understood).await,
            Err(_) => {
                self.refuse(None, RpcError::internal("the message could not be read"))
                    .await
            }
        }
    }

    async fn too_long(&self) {
        let limit = self.options.line_limit;
        tracing::warn!(limit, "a line over the limit was dropped");
        match self.options.noise {
            Noise::Refuse => {
                let reason = format!("a line is longer than {limit} bytes; it was dropped");
                self.refuse(None, RpcError::invalid_request(reason)).await;
            }
            Noise::Skip => self
                .shared
                .note_noise(format!("(a line of more than {limit} bytes)")),
        }
    }

    async fn dispatch(&self, line: &Bytes, (message, lane): (Message, Lane)) {
        match message {
            Message::Request { id, method, params } => {
                let session = match &lane {
                    Lane::Session(id) | Lane::Interrupt(id) => Some(id.clone()),
                    Lane::Immediate | Lane::Connection => None,
                };
                self.interrupt(&lane);
                let responder = Responder::new(Arc::clone(&self.shared), id, session);
                self.push(
                    lane,
                    Work::Request(IncomingRequest {
                        method,
                        params,
                        responder,
                    }),
                )
                .await;
            }
            Message::Notification { method, params } if method == "$/cancel_request" => {
                if let Some(id) = cancelled_id(&params) {
                    self.shared.cancel(&id);
                }
            }
            Message::Notification { method, params } => {
                self.interrupt(&lane);
                self.push(lane, Work::Notification { method, params }).await;
            }
            Message::Response {
                id: Some(id),
                outcome,
            } => {
                self.answered(id, outcome).await;
            }
            Message::Response { id: None, .. } => {
                tracing::debug!("an answer to nothing was ignored")
            }
            Message::Invalid { id, error } => {
                tracing::debug!(
                    code = error.code.number(),
                    bytes = line.len(),
                    "a line that is no message was refused"
                );
                self.refuse(id, error).await;
            }
            Message::Noise => {
                tracing::debug!(
                    bytes = line.len(),
                    "a line that is no message was passed over"
                );
                self.shared.note_noise(noise::shown(line));
            }
        }
    }

    async fn answered(&self, id: u64, outcome: Outcome) {
        match self.shared.answered(id) {
            Some(Waiting {
                answer,
                after_session: None,
            }) => drop(answer.send(outcome)),
            Some(Waiting {
                answer,
                after_session: Some(session),
            }) => {
                self.push(
                    Lane::Session(session),
                    Work::Answer {
                        to: answer,
                        outcome,
                    },
                )
                .await;
            }
            // Nobody asked, so it is no answer, but a request that lacks its method.
            None if matches!(outcome, Outcome::Neither) => {
                let error = RpcError::invalid_request(
                    "a message must have a `method`, a `result` or an `error`",
                );
                self.refuse(RequestId::from_token(&id.to_string()), error)
                    .await;
            }
            None => tracing::debug!("an answer that nobody waits for was ignored"),
        }
    }

    fn interrupt(&self, lane: &Lane) {
        if let Lane::Interrupt(session) = lane {
            self.shared.cancel_session(session);
        }
    }

    async fn push(&self, lane: Lane, work: Work) {
        let mut work = work;
        loop {
            let room = self.lanes.room();
            tokio::pin!(room);
            room.as_mut().enable();
            work = match self.lanes.push(lane.clone(), work) {
                Ok(()) => return,
                Err(work) => *work,
            };
            match (self.options.overflow, work) {
                (Overflow::Wait, back) => {
                    room.await;
                    work = back;
                }
                (Overflow::Busy, Work::Request(call)) => {
                    call.responder.fail_now(&RpcError::busy());
                    self.shared.outbox.has_room().await;
                    return;
                }
                (Overflow::Busy, Work::Notification { .. }) => {
                    tracing::warn!(
                        "a notification was dropped: too many messages wait in its lane"
                    );
                    return;
                }
                (Overflow::Busy, Work::Answer { to, outcome }) => {
                    drop(to.send(outcome));
                    return;
                }
            }
        }
    }

    /// Answers what is no request. This is the one thing that the reader waits for: room for
    /// its own answers, so that a flood of garbage from a peer that does not read is bounded.
    async fn refuse(&self, id: Option<RequestId>, error: RpcError) {
        // A closed connection has nobody to answer.
        let _ = self
            .shared
            .outbox
            .send(encode::error(id.as_ref(), &error))
            .await;
    }
}

/// Reads a line, and asks the service where it belongs.
fn understand(line: &Bytes, noise: Noise, service: &dyn Service) -> (Message, Lane) {
    let message = message::parse(line, noise);
    let lane = match &message {
        Message::Request { method, params, .. } | Message::Notification { method, params }
            if method != "$/cancel_request" =>
        {
            // A service that panics here must not take the reader with it.
            std::panic::catch_unwind(AssertUnwindSafe(|| service.lane(method, params)))
        }
        _ => Ok(Lane::Connection),
    };
    (message, lane.unwrap_or(Lane::Connection))
}

/// The id in a `$/cancel_request`, as it was written.
fn cancelled_id(params: &RawParams) -> Option<RequestId> {
    #[derive(serde::Deserialize)]
    struct OnlyId<'raw> {
        #[serde(rename = "requestId", borrow)]
        id: &'raw serde_json::value::RawValue,
    }
    let only: OnlyId<'_> = serde_json::from_slice(params.as_bytes()).ok()?;
    RequestId::from_token(only.id.get())
}
