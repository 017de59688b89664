//! The rules that hold in one project, shared by all its live sessions. They are kept in
//! the user's state (`design.md §4 Permissions`); what another process changes there is
//! taken up before the next call.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use terret_tools::rules::{Rule, Scope};
use tokio::sync::watch;

use crate::grants::{RuleFile, RuleFileError, Stamp, StoredRule};

/// One project's rules.
#[derive(Debug)]
pub(crate) struct ProjectRules {
    file: RuleFile,
    held: Mutex<Held>,
    /// Counts changes.
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Held {
    /// Of the file as it was read; none before, and when it is not there.
    stamp: Option<Stamp>,
    /// What the file holds.
    stored: Vec<StoredRule>,
    /// Granted, and on the way into the file.
    granted: Vec<StoredRule>,
}

/// The rules of all projects that have a live session.
#[derive(Debug, Default)]
pub(crate) struct Projects(Mutex<HashMap<PathBuf, Weak<ProjectRules>>>);

impl Projects {
    /// Those of the project with this root. `state` is where rules are kept.
    pub(crate) fn of(&self, state: &Path, root: &Path) -> Arc<ProjectRules> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, rules| rules.strong_count() > 0);
        if let Some(rules) = all.get(root).and_then(Weak::upgrade) {
            return rules;
        }
        let rules = Arc::new(ProjectRules::new(RuleFile::project(state, root)));
        all.insert(root.to_owned(), Arc::downgrade(&rules));
        rules
    }

    /// All that are in use.
    pub(crate) fn live(&self) -> Vec<Arc<ProjectRules>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.values().filter_map(Weak::upgrade).collect()
    }
}

impl ProjectRules {
    /// Reads nothing yet.
    pub(crate) fn new(file: RuleFile) -> Self {
        Self {
            file,
            held: Mutex::default(),
            changed: watch::Sender::new(0),
        }
    }

    /// Where they are kept.
    pub(crate) fn file(&self) -> &RuleFile {
        &self.file
    }

    /// Hears of changes from now on.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// What counts at this time, in Unix milliseconds.
    pub(crate) fn rules(&self, now: u64) -> Vec<Rule> {
        let held = self.lock();
        held.stored
            .iter()
            .chain(&held.granted)
            .filter(|rule| !rule.is_expired(now))
            // What this version cannot read was refused when the file was read.
            .filter_map(|rule| rule.rule(Scope::Project).ok())
            .collect()
    }

    /// When the next rule stops to count, of those that count now.
    pub(crate) fn next_expiry(&self, now: u64) -> Option<u64> {
        let held = self.lock();
        held.stored
            .iter()
            .chain(&held.granted)
            .filter(|rule| !rule.is_expired(now))
            .filter_map(|rule| rule.expires)
            .min()
    }

    /// Reads the file again when it is another one than before. A file that cannot be read
    /// changes nothing: rules that were in force stay so. Blocks.
    ///
    /// # Errors
    /// [`RuleFileError`].
    pub(crate) fn load(&self) -> Result<(), RuleFileError> {
        let stamp = self.file.stamp();
        if self.lock().stamp == stamp {
            return Ok(());
        }
        let stored = self.file.read()?;
        let mut held = self.lock();
        held.stamp = stamp;
        let is_new = held.stored != stored;
        held.stored = stored;
        drop(held);
        if is_new {
            self.changed.send_modify(|changes| *changes += 1);
        }
        Ok(())
    }

    /// A rule holds from now on; [`Self::keep`] writes it down.
    pub(crate) fn grant(&self, rule: StoredRule) {
        self.lock().granted.push(rule);
        self.changed.send_modify(|changes| *changes += 1);
    }

    /// Writes a granted rule into the file. It is granted no longer by itself afterwards:
    /// the file has it, or nothing does. Blocks.
    ///
    /// # Errors
    /// [`RuleFileError`].
    pub(crate) fn keep(&self, rule: &StoredRule) -> Result<(), RuleFileError> {
        let kept = self.file.add(rule).and_then(|()| self.load());
        let mut held = self.lock();
        if let Some(place) = held.granted.iter().position(|known| known == rule) {
            held.granted.remove(place);
        }
        drop(held);
        if kept.is_err() {
            self.changed.send_modify(|changes| *changes += 1);
        }
        kept
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
