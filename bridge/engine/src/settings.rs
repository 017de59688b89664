//! What an engine is told from outside. The values come from config; nothing here is
//! read from the environment.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use terret_models::{ModelName, ThinkingLevel};
use terret_tools::mode::Mode;
use terret_tools::world::jobs;

use crate::external_hooks::ExternalHook;
use crate::grants::RuleFile;
use crate::jobs::JobsTurn;
use crate::notify::Notify;
use crate::trust::Source;
use terret_tools::world::sandbox::choice::SandboxSettings;
use terret_tools::world::web::WebSettings;

/// Where an engine keeps its state. All of it is out of the reach of tools.
#[derive(Debug, Clone)]
pub struct Places {
    /// Session logs, blobs, the index and what is kept of jobs.
    pub state: PathBuf,
    /// Full outputs of commands that were cut, by session.
    pub scratch: PathBuf,
    /// Folders that no tool may read or write: state, config, runtime.
    pub denied: Vec<PathBuf>,
}

/// Everything an engine goes by; replaced as a whole when config changes.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The model of the `main` role; none when nothing is configured.
    pub model: Option<ModelName>,
    /// The models that an editor offers to choose from, the main one first.
    pub offered_models: Vec<ModelName>,
    pub thinking: ThinkingLevel,
    pub mode: Mode,
    /// What becomes of a question where nobody can be asked.
    pub unattended: Unattended,
    /// Whether `bypass` may be chosen: only who started the process can say so.
    pub bypass: bool,
    /// The operator's allow list over tool names (`Terret spec §2.2`).
    pub floor: Vec<String>,
    /// The rules that are known before a session is: built in and the user's own.
    pub rules: terret_tools::rules::RuleSet,
    /// Where the user's own rules are kept, for who takes one back.
    pub user_rules: Option<RuleFile>,
    pub limits: Limits,
    pub jobs: JobSettings,
    /// Names of environment variables that commands may see though they look like secrets.
    pub environment_allow: Vec<String>,
    /// Names of environment variables that hold keys of ours, whatever they look like.
    pub environment_hide: Vec<String>,
    /// What commands run in.
    pub sandbox: SandboxSettings,
    /// What may be fetched from the web, and how.
    pub web: WebSettings,
    /// Files that count where a project brings them, once they are trusted.
    pub project_sources: Vec<Source>,
    /// The user's own programs around calls and questions.
    pub hooks: HookSettings,
    /// Text that is added to the system prompt.
    pub instructions: Option<String>,
}

/// What becomes of what a person would have to approve, in a run without one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Unattended {
    /// Denied, and the model is told why.
    #[default]
    Deny,
    /// The run ends as failed.
    Fail,
    /// Approved, where rules, hooks and the mode would ask. What is a person's alone is
    /// denied all the same: protected files, more reach for a call, a call that wants to
    /// outlive the session, leaving plan mode, trust.
    Allow,
}

/// Programs of the user's own that are told of calls and of questions that wait.
#[derive(Debug, Clone, Default)]
pub struct HookSettings {
    /// In the order in which they run.
    pub calls: Arc<[ExternalHook]>,
    /// What tells a person that an approval waits.
    pub notify: Option<Notify>,
}

/// How jobs are kept and waited for. What bounds a job holds from the next making or
/// opening of its session on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobSettings {
    pub turn: JobsTurn,
    /// Jobs of a session, those that ended and were not collected included (check 150).
    pub max: usize,
    /// Bytes of one job's output that are kept on the disk.
    pub spool: u64,
    /// Running time that a job goes on while no Terret is there for it.
    pub orphan_grace: Duration,
}

impl Default for JobSettings {
    fn default() -> Self {
        Self {
            turn: JobsTurn::End,
            max: jobs::LIMIT,
            spool: jobs::SPOOL,
            orphan_grace: jobs::ORPHAN_GRACE,
        }
    }
}

impl Places {
    /// The folder of all jobs, in folders named as their sessions; as private as the logs.
    pub fn jobs(&self) -> PathBuf {
        self.state.join("jobs")
    }
}

/// Bounds of an engine.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Live sessions, children included (`Terret seed §2`: 128).
    pub max_agents: usize,
    /// Steps of a turn that nobody attends (`Terret spec §1.7`: 25).
    pub max_steps: u32,
    /// Steps after which an attended turn asks whether to go on.
    pub ask_after_steps: u32,
    /// Output limit of one request in tokens; the provider's own when absent.
    pub max_output: Option<u32>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_agents: 128,
            max_steps: 25,
            ask_after_steps: 100,
            max_output: None,
        }
    }
}
