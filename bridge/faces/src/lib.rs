//! Faces: each maps one protocol to engine commands and projections, and nothing else.
//!
//! [`acp`] is the agent's side of the Agent Client Protocol, the main one. [`terminal`] is
//! a client of it for the command line. [`control`] is the socket by which other commands
//! of the same user look at a live engine.

pub mod acp;
#[cfg(unix)]
pub mod control;
pub mod terminal;
mod text;
mod time;
