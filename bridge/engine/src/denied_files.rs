//! Deny rules about paths hold for files, not only for the tool that names them: a
//! `Read(secrets/**)` also keeps a search over the whole folder out of `secrets`.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use terret_tools::gate::Policy;
use terret_tools::pipeline::Veto;
use terret_tools::rules::{Effect, Rule, Subject};
use terret_tools::world::files::{FileAccess, FileHook, FileOperation};

/// Asked by the session's world before each file operation.
#[derive(Default)]
pub(crate) struct DeniedFiles(OnceLock<Bound>);

/// The world is made before the policy, so the two are tied together afterwards.
struct Bound {
    cwd: PathBuf,
    policy: Arc<RwLock<Arc<Policy>>>,
}

impl DeniedFiles {
    /// From now on the session's policy is asked. `cwd` is the real path of its folder.
    pub(crate) fn bind(&self, cwd: PathBuf, policy: Arc<RwLock<Arc<Policy>>>) {
        let _already = self.0.set(Bound { cwd, policy });
    }

    fn policy(&self) -> Option<(&Bound, Arc<Policy>)> {
        let bound = self.0.get()?;
        let policy = bound.policy.read().unwrap_or_else(PoisonError::into_inner);
        Some((bound, Arc::clone(&policy)))
    }
}

impl FileHook for DeniedFiles {
    fn authorize(&self, access: FileAccess) -> Result<FileAccess, Veto> {
        let Some((bound, policy)) = self.policy() else {
            return Ok(access);
        };
        let path = access.path.strip_prefix(&bound.cwd).unwrap_or(&access.path);
        let text = path.to_string_lossy();
        let subject = Subject {
            text: &text,
            cwd: &bound.cwd,
        };
        let tool = match access.operation {
            FileOperation::Read => "Read",
            FileOperation::Write => "Write",
        };
        match policy
            .rules
            .iter()
            .find(|rule| denies_paths(rule) && rule.matches(tool, Some(subject)))
        {
            Some(rule) => Err(Veto(format!("the rule `{}` denies it", rule.text()))),
            None => Ok(access),
        }
    }

    fn active(&self) -> bool {
        self.policy()
            .is_some_and(|(_, policy)| policy.rules.iter().any(denies_paths))
    }
}

/// A bare tool name denies the tool, which the gate sees to.
fn denies_paths(rule: &Rule) -> bool {
    rule.effect == Effect::Deny && rule.text().contains('(')
}
