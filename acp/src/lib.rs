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
//! ```
//! use std::sync::Arc;
//!
//! use terret_acp::schema::v1::{InitializeRequest, InitializeResponse};
//! use terret_acp::{Connection, IncomingRequest, Options, RpcError, Service};
//!
//! struct Agent;
//!
//! #[async_trait::async_trait]
//! impl Service for Agent {
//!     async fn request(&self, call: IncomingRequest) {
//!         match call.method.as_str() {
//!             "initialize" => {
//!                 let asked = call.params.parse::<InitializeRequest>();
//!                 let answer = asked.map(|asked| InitializeResponse::new(asked.protocol_version));
//!                 call.responder.finish(answer).await;
//!             }
//!             other => call.responder.fail(RpcError::method_not_found(other)).await,
//!         }
//!     }
//! }
//!
//! struct Editor;
//! impl Service for Editor {}
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), terret_acp::RequestError> {
//! let (left, right) = tokio::io::duplex(4096);
//! let (reader, writer) = tokio::io::split(left);
//! let (_, agent) = Connection::serve(reader, writer, Arc::new(Agent), Options::agent());
//! let (reader, writer) = tokio::io::split(right);
//! let (peer, editor) = Connection::serve(reader, writer, Arc::new(Editor), Options::client());
//! tokio::spawn(agent);
//! tokio::spawn(editor);
//!
//! let asked = serde_json::json!({ "protocolVersion": 1 });
//! let answer: InitializeResponse = peer.request("initialize", &asked).await?;
//! assert_eq!(serde_json::json!(answer.protocol_version), 1);
//! # Ok(())
//! # }
//! ```
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
