//! What would become of a call, without making one: for a person who tries rules, and for
//! calls of the past under other rules. It looks at the folder's paths and runs nothing.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;
use serde_json::Value;
use terret_tools::call::{Allowed, Call, CallJournal, CallResult, Fault, FileChange};
use terret_tools::definition::Definition;
use terret_tools::gate::{Policy, Ruling};
use terret_tools::pipeline::Pipeline;
use terret_tools::table::Table;
use terret_tools::world::{World, WorldError, WorldSettings};

use crate::approvals::NobodyAsked;

/// Judges calls in one folder.
pub struct Judge {
    pipeline: Pipeline,
}

impl Judge {
    /// In a folder with its further ones; `denied` are those that no tool may reach.
    ///
    /// # Errors
    /// [`WorldError`] when a folder is not there.
    pub fn new(
        table: &Arc<Table>,
        cwd: &Path,
        further: &[PathBuf],
        denied: &[PathBuf],
    ) -> Result<Self, WorldError> {
        let world = World::new(WorldSettings {
            cwd: cwd.to_owned(),
            additional_directories: further.to_vec(),
            denied: denied.to_vec(),
            ..WorldSettings::default()
        })?;
        Ok(Self {
            pipeline: Pipeline {
                table: Arc::clone(table),
                world: Arc::new(world),
                journal: Arc::new(NoJournal),
                approver: Arc::new(NobodyAsked),
                policy: Arc::new(RwLock::new(Arc::new(Policy::default()))),
                hooks: Vec::new(),
            },
        })
    }

    /// From now on this policy decides.
    pub fn set_policy(&self, policy: Arc<Policy>) {
        *self
            .pipeline
            .policy
            .write()
            .unwrap_or_else(PoisonError::into_inner) = policy;
    }

    /// What the policy says about a call.
    ///
    /// # Errors
    /// Why it could be no call: there is no such tool, or its arguments do not fit.
    pub fn ruling(&self, tool: &str, args: Value) -> Result<Ruling, String> {
        self.pipeline.ruling(&Call {
            id: "judged".to_owned(),
            name: tool.to_owned(),
            args: Ok(args),
        })
    }

    /// What rules match of a call; none when the tool's name alone can match.
    pub fn subject(&self, tool: &str, args: &Value) -> Option<String> {
        let tool = self.pipeline.table.get(tool)?;
        tool.rule_subject(&self.pipeline.world, args)
    }

    /// The real path of the folder.
    pub fn cwd(&self) -> PathBuf {
        self.pipeline.world.cwd()
    }
}

/// Of calls that are not made.
struct NoJournal;

#[async_trait]
impl CallJournal for NoJournal {
    async fn called(&self, _call: &Call) -> Result<(), Fault> {
        Err(not_made())
    }

    async fn started(
        &self,
        _call: &Call,
        _definition: &Definition,
        _allowed: &Allowed,
    ) -> Result<(), Fault> {
        Err(not_made())
    }

    fn output(&self, _call_id: &str, _text: &str) {}

    fn file_seen(&self, _call_id: &str, _path: &Path, _hash: &str) {}

    fn seen(&self, _path: &Path) -> Option<String> {
        None
    }

    async fn file_changing(&self, _call_id: &str, _change: &FileChange) -> Result<(), Fault> {
        Err(not_made())
    }

    async fn finished(&self, _call: &Call, _result: &CallResult) -> Result<(), Fault> {
        Err(not_made())
    }
}

fn not_made() -> Fault {
    Fault("a call that is only judged is not made".to_owned())
}
