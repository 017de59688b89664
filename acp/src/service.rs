//! What a side of the connection does with what the other side sends.

use async_trait::async_trait;

use crate::error::RpcError;
use crate::params::RawParams;
use crate::peer::Peer;
use crate::responder::Responder;

/// Where a message is handled, that is: what it waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lane {
    /// At once and beside everything else, in a task of its own. For what may take long or must
    /// not wait, and needs no order.
    Immediate,
    /// In order with the other messages of this lane, which is the connection's own:
    /// `initialize`, `session/new` and their like. Until this lane is empty for the first time,
    /// messages for sessions keep behind it, too ([`crate::Options::opening_in_order`]).
    Connection,
    /// In order with the other messages of this session, beside those of other sessions.
    Session(String),
    /// At once, and every request of this session that has no answer yet gets its
    /// [`Responder::cancellation`] fired first. For `session/cancel`: it overtakes a prompt that
    /// still waits in the session's lane, and reaches it there.
    Interrupt(String),
}

/// A request of the peer.
#[derive(Debug)]
pub struct IncomingRequest {
    /// What is asked.
    pub method: String,
    /// Not read yet; see [`crate::params::parse`].
    pub params: RawParams,
    /// For the one answer. It may leave the handler, to be answered later.
    pub responder: Responder,
}

/// Handles what the peer sends. The methods of a session's lane run one at a time, until they
/// return: a handler that has to wait for a turn or a person spawns that wait (the responder
/// moves along) and returns. A handler that panics answers -32603 and harms nothing else.
#[async_trait]
pub trait Service: Send + Sync + 'static {
    /// Called once, before anything is read.
    fn connected(&self, peer: &Peer) {
        let _ = peer;
    }

    /// Where the message is handled. Called by the reader, so it must be quick.
    fn lane(&self, method: &str, params: &RawParams) -> Lane {
        let _ = (method, params);
        Lane::Connection
    }

    /// Answers a request. A method that is not known is answered with -32601, which is all that
    /// this does unless overridden (R108: every request gets an answer).
    async fn request(&self, call: IncomingRequest) {
        call.responder
            .fail(RpcError::method_not_found(&call.method))
            .await;
    }

    /// Takes a notification. One that is not known is ignored.
    async fn notification(&self, method: String, params: RawParams) {
        let _ = (method, params);
    }
}
