//! The control socket: how other processes of the same user look at a live engine and
//! decide what it waits for (`design: Permissions`, "nobody approves themselves").
//!
//! One Unix socket an engine, `engine-<pid>.sock` in the runtime folder, spoken to with
//! JSON-RPC lines. A peer of another user is refused; a peer that descends from the engine
//! may look and not decide, so that what an agent starts cannot approve for it. Outside a
//! sandbox that is a fence and not a wall.

mod client;
mod messages;
mod peer;
mod server;

pub use client::{ControlClient, ControlError};
pub use messages::{Inbox, LiveSession, PendingItem, Pong, VerdictWord};
pub use server::{ControlServer, RuntimeError};
