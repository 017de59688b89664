//! What a tool declares about itself.

use serde_json::Value;

/// The closed description of a tool. The schema and the description are what the
/// model reads; the rest is what the pipeline goes by.
#[derive(Debug, Clone)]
pub struct Definition {
    pub name: &'static str,
    pub description: String,
    /// JSON schema of the arguments.
    pub parameters: Value,
    /// Changes something outside the session.
    pub mutating: bool,
    pub approval: Approval,
    pub concurrency: Concurrency,
    pub replay: Replay,
    pub kind: Kind,
}

/// Whether a person has to be asked (`Terret spec §2.3`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Approval {
    Never,
    /// As rules and mode say; asks by default when the tool is mutating or fetches.
    Policy,
    Always,
    /// [`Self::Policy`] where commands run in an isolating sandbox, [`Self::Always`]
    /// elsewhere; follows a hot change of the sandbox (check 145).
    BySandbox,
}

/// Whether a call may run beside its neighbours (`Terret seed §5`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Concurrency {
    Parallel,
    Serial,
}

/// What a resume may do with a call that started and has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replay {
    /// Runs again: it only looks.
    Safe,
    /// Looks whether the effect is there.
    Verify,
    /// Asks the person.
    Ask,
}

/// What kind of work it is, for the editor (`ACP ToolKind`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Read,
    Edit,
    Delete,
    Move,
    Search,
    Execute,
    Think,
    Fetch,
    SwitchMode,
    Other,
}
