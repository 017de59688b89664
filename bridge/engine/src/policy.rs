//! The policy of one session: the operator's settings, folded with the session's own
//! durable choices. Derived again whenever one of them changes; never stored.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use terret_log::{RuleEffect, SessionState};
use terret_tools::floor::Floor;
use terret_tools::gate::Policy;
use terret_tools::mode::Mode;
use terret_tools::rules::{Effect, Rule, Scope};
use terret_tools::standard::web_fetch;

use crate::core::Core;
use crate::settings::Settings;

pub(crate) struct SessionPolicy {
    core: Arc<Core>,
    settings: Mutex<Arc<Settings>>,
    /// Shared with the pipeline, which reads it once per decision.
    shared: Arc<RwLock<Arc<Policy>>>,
    /// What the sandbox was last found to be; not isolating until it was looked at.
    isolated: AtomicBool,
}

impl SessionPolicy {
    pub(crate) fn new(core: Arc<Core>, settings: Arc<Settings>) -> Self {
        let policy = core.state(|state| derive(&settings, state, false));
        Self {
            core,
            settings: Mutex::new(settings),
            shared: Arc::new(RwLock::new(Arc::new(policy))),
            isolated: AtomicBool::new(false),
        }
    }

    /// What the session's sandbox turned out to be; approvals follow at once (check 145).
    pub(crate) fn set_isolated(&self, isolated: bool) {
        if self.isolated.swap(isolated, Ordering::SeqCst) != isolated {
            self.refresh();
        }
    }

    /// The cell that the pipeline reads.
    pub(crate) fn shared(&self) -> Arc<RwLock<Arc<Policy>>> {
        Arc::clone(&self.shared)
    }

    pub(crate) fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// New settings from config (check 86).
    pub(crate) fn reconfigure(&self, settings: Arc<Settings>) {
        *self.settings.lock().unwrap_or_else(PoisonError::into_inner) = settings;
        self.refresh();
    }

    /// Derives the policy again from what the log now says.
    pub(crate) fn refresh(&self) {
        // The cell is held while the policy is derived, so that of two who refresh at the
        // same time the one that saw less cannot be the last to write.
        let mut shared = self.shared.write().unwrap_or_else(PoisonError::into_inner);
        let settings = self.settings();
        let policy = self
            .core
            .state(|state| derive(&settings, state, self.isolated.load(Ordering::SeqCst)));
        *shared = Arc::new(policy);
    }
}

/// The mode that a session is in: its own choice, else the configured one. A log may
/// come from anywhere; a mode that nobody could have chosen here counts for nothing.
pub(crate) fn mode_of(settings: &Settings, state: &SessionState) -> Mode {
    state
        .options
        .get("mode")
        .and_then(|mode| Mode::named(mode))
        .filter(|mode| *mode != Mode::Bypass || settings.bypass)
        .unwrap_or(settings.mode)
}

fn derive(settings: &Settings, state: &SessionState, isolated: bool) -> Policy {
    let session_rules = state.rules.rules().iter().filter_map(|rule| {
        let effect = match rule.effect {
            RuleEffect::Allow => Effect::Allow,
            RuleEffect::Ask => Effect::Ask,
            RuleEffect::Deny => Effect::Deny,
        };
        // A rule that this version cannot read grants nothing; one that denies must
        // have been refused when it was added.
        Rule::parse(&rule.rule, effect, Scope::Session).ok()
    });
    Policy {
        floor: Floor::new(settings.floor.iter().cloned()),
        live: state
            .policy
            .as_ref()
            .map(|patterns| Floor::new(patterns.iter().cloned())),
        ceilings: Vec::new(),
        mode: mode_of(settings, state),
        rules: settings.rules.with(
            web_fetch::rules(&settings.web)
                .into_iter()
                .chain(session_rules)
                .collect(),
        ),
        isolated,
    }
}
