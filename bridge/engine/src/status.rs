//! The status of an agent (`Terret seed §8`, `Terret spec §1.10`).

use terret_log::TurnStatus;

/// What an agent is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentStatus {
    Idle,
    Running,
    /// At least one call waits for a person's verdict.
    WaitingApproval,
    /// The turn is parked on a question that is no approval.
    WaitingInput,
    /// A cancel stands and the turn has not ended yet.
    Stopping,
    /// Disposed; takes no turn any more.
    Done,
}

impl AgentStatus {
    /// The name in events and on the control socket.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Running => "running",
            Self::WaitingApproval => "waiting_approval",
            Self::WaitingInput => "waiting_input",
            Self::Stopping => "stopping",
            Self::Done => "done",
        }
    }
}

/// How the turn that answered a prompt ended.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnOutcome {
    pub status: TurnStatus,
    pub reason: Option<String>,
    /// The seq after the turn's last event: a face answers the prompt when it has
    /// shown everything before it.
    pub end: u64,
}
