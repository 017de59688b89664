//! The wire: Agent Client Protocol types, JSON-RPC, framing, and a connection for either side.
//!
//! The types are those of `agent-client-protocol-schema`; transport and dispatch are ours,
//! because a peer that we serve must be able to trust that: a slow reader costs bounded memory,
//! a long line is not fatal, one session never holds up another, a handler that panics harms
//! nobody, and every request gets exactly one answer.
//!
//! - [`Connection::serve`] runs one connection over any pair of byte streams, for the agent's
//!   side ([`Options::agent`]) or the client's ([`Options::client`]).
//! - [`Service`] is what a side does with what it gets; [`Lane`] says what a message waits for.
//! - [`Peer`] is the other side: [`Peer::request`], [`Peer::notify`].
//! - [`Responder`] answers one request, once.
//! - [`params::parse`] reads parameters as leniently as real clients need.
//!
//! Order: messages of a lane are handled in the order they came; frames leave in the order they
//! were queued. Reading never waits for a handler.

pub mod error;
pub mod framing;
pub mod id;
pub mod message;
pub mod params;

mod connection;
mod encode;
mod lanes;
mod noise;
mod outbox;
mod peer;
mod responder;
mod service;
mod shared;

pub use agent_client_protocol_schema as schema;

pub use connection::{Connection, Ended, Options, Overflow};
pub use error::{Closed, ErrorCode, NotifyError, RequestError, RpcError};
pub use id::RequestId;
pub use message::Noise;
pub use params::RawParams;
pub use peer::Peer;
pub use responder::Responder;
pub use service::{IncomingRequest, Lane, Service};
