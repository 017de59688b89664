//! Sessions, agents, the turn loop, approvals and everything that happens between a
//! prompt and its answer. A face sends commands to a [`SessionHandle`] and shows what
//! its [`Follower`] reads; it holds no state of its own that a restart would need.

mod approvals;
mod call_log;
mod commands;
mod core;
mod denied_files;
mod editor_slot;
mod engine;
mod error;
pub mod external_hooks;
mod follow;
pub mod grants;
pub mod hooks;
mod inbox;
pub mod input;
mod job_commands;
mod job_watch;
mod jobs;
mod judge;
mod notify;
mod options;
mod policy;
mod project_rules;
mod request;
mod rule_commands;
mod session;
mod settings;
mod status;
mod step;
mod system_prompt;
mod title;
pub mod trust;
mod turn;

pub use approvals::{AFTER_PLAN, Decision};
pub use commands::{COMMANDS, CommandInfo};
pub use engine::{Engine, EngineParts};
pub use error::{ApprovalError, EngineError, OptionError};
pub use follow::Follower;
pub use input::InputBlock;
pub use jobs::{JobsTurn, command_words, duration_words, ended_words, outcome_of};
pub use judge::Judge;
pub use notify::{NOTIFY_AFTER, Notify};
pub use options::{OFFERED_MODES, Options, mode_description};
pub use session::{PromptAnswer, SessionHandle};
pub use settings::{HookSettings, JobSettings, Limits, Places, Settings, Unattended};
pub use status::{AgentStatus, TurnOutcome};

#[cfg(test)]
terret_tools::own_helpers!();

/// What faces need of the rooms below: events and projections of the log, kinds of
/// tools, names of models.
pub mod room {
    pub use {terret_log as log, terret_models as models, terret_tools as tools};
}
