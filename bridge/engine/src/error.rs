//! What can go wrong towards a face. Each error says the thing, the cause and the way out.

use terret_log::{SessionId, StoreError};
use terret_models::ModelError;

/// Why the engine could not do what a face asked.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("there is no session `{0}`; list the sessions to see which there are")]
    UnknownSession(SessionId),
    #[error("{limit} sessions are live already; close one, or raise `limits.max_agents`")]
    TooManySessions { limit: usize },
    #[error("`{path}` cannot be worked in: {why}")]
    BadFolder { path: String, why: String },
    #[error("session `{id}` works in `{is}`, not in `{asked}`; open it with its own folder")]
    OtherFolder {
        id: SessionId,
        is: String,
        asked: String,
    },
    #[error("session `{id}` is held by {by}; close it there first")]
    Held { id: SessionId, by: String },
    #[error("session `{id}` has been closed")]
    Closed { id: SessionId },
    #[error("the session's log failed: {0}")]
    Store(#[from] StoreError),
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error("{0}")]
    Fault(String),
}

/// Why an option was not set.
#[derive(Debug, thiserror::Error)]
pub enum OptionError {
    #[error("there is no option `{0}`; there are `mode`, `model` and `thinking`")]
    Unknown(String),
    #[error("`{value}` is no value of `{option}`; use one of {known}")]
    Value {
        option: String,
        value: String,
        known: String,
    },
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Fault(String),
}

/// Why an approval was not decided.
#[derive(Debug, thiserror::Error)]
pub enum ApprovalError {
    #[error("no approval `{0}` is waiting here; it may have been decided already")]
    NotWaiting(String),
    #[error("{0}")]
    Fault(String),
}
