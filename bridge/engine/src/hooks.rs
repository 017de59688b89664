//! Typed in-process hooks on turns and requests. Hooks around calls are
//! [`terret_tools::CallHook`]; external hooks come on top of both.

use async_trait::async_trait;
use terret_models::Request;

use crate::input::Claim;

/// A hook on the way of a turn.
#[async_trait]
pub trait TurnHook: Send + Sync {
    /// Before a step: may rewrite what it will read, or reject it, which ends the turn
    /// as rejected and puts steering input back (`agent/pre_step`, checks 35, 39).
    async fn before_step(&self, claim: Vec<Claim>) -> Result<Vec<Claim>, Rejected> {
        Ok(claim)
    }

    /// The last rewrite point of a request. Anything in it that the log does not hold
    /// makes the turn fail before the model is called (`agent/request`, checks 26, 29).
    async fn before_request(&self, request: Request) -> Request {
        request
    }
}

/// Why a step may not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected(pub String);
