//! The policy of one session: the operator's settings, folded with the session's own
//! durable choices. Derived again whenever one of them changes; never stored.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use terret_log::{Clock, RuleEffect, SessionRule, SessionState};
use terret_tools::floor::Floor;
use terret_tools::gate::Policy;
use terret_tools::mode::Mode;
use terret_tools::rules::{Effect, Rule, Scope};
use terret_tools::standard::web_fetch;

use crate::core::Core;
use crate::external_hooks::ExternalHook;
use crate::project_rules::ProjectRules;
use crate::settings::Settings;
use crate::trust::ProjectTrust;

pub(crate) struct SessionPolicy {
    core: Arc<Core>,
    settings: Mutex<Arc<Settings>>,
    /// Shared with the pipeline, which reads it once per decision.
    shared: Arc<RwLock<Arc<Policy>>>,
    /// What the sandbox was last found to be; not isolating until it was looked at.
    isolated: AtomicBool,
    project: Arc<ProjectRules>,
    trust: Arc<ProjectTrust>,
    clock: Arc<dyn Clock>,
    /// Unix milliseconds at which a rule that was derived stops to count.
    expires: AtomicU64,
}

impl SessionPolicy {
    pub(crate) fn new(
        core: Arc<Core>,
        settings: Arc<Settings>,
        project: Arc<ProjectRules>,
        trust: Arc<ProjectTrust>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let policy = Self {
            core,
            settings: Mutex::new(settings),
            shared: Arc::default(),
            isolated: AtomicBool::new(false),
            project,
            trust,
            clock,
            expires: AtomicU64::new(u64::MAX),
        };
        policy.refresh();
        policy
    }

    /// The rules that hold for all sessions of the project.
    pub(crate) fn project(&self) -> &Arc<ProjectRules> {
        &self.project
    }

    /// Unix milliseconds.
    pub(crate) fn now(&self) -> u64 {
        self.clock.now_ms()
    }

    /// Takes up what other processes made of the project's rules, and lets go of what has
    /// expired. Before calls are judged, so that a revoked rule lets nothing run any more.
    pub(crate) async fn freshen(&self) {
        let (project, trust) = (Arc::clone(&self.project), Arc::clone(&self.trust));
        let settings = self.settings();
        match tokio::task::spawn_blocking(move || {
            let changes = project.subscribe();
            let loaded = project.load();
            let has_changed = changes.has_changed().unwrap_or(false);
            match trust.load(&settings) {
                Ok(is_other) => (loaded, has_changed || is_other),
                Err(error) => {
                    tracing::warn!(%error, "nothing that the project brings is trusted");
                    (loaded, true)
                }
            }
        })
        .await
        {
            Ok((Ok(()), false)) if self.now() < self.expires.load(Ordering::SeqCst) => return,
            Ok((Ok(()), _)) => {}
            Ok((Err(error), _)) => tracing::warn!(%error, "a project's rules are not in force"),
            Err(error) => tracing::error!(%error, "a project's rules could not be looked at"),
        }
        self.refresh();
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

    /// The hooks around calls, in the order in which they run.
    pub(crate) fn hooks(&self) -> Arc<[ExternalHook]> {
        let own = Arc::clone(&self.settings().hooks.calls);
        match self.trust.hooks() {
            brought if brought.is_empty() => own,
            brought => own.iter().cloned().chain(brought).collect(),
        }
    }

    /// What the project brings.
    pub(crate) fn trust(&self) -> &Arc<ProjectTrust> {
        &self.trust
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
        let now = self.now();
        let isolated = self.isolated.load(Ordering::SeqCst);
        let mut project = self.project.rules(now);
        project.extend(self.trust.rules(now));
        let (policy, expires) = self.core.state(|state| {
            let expires = state.rules.iter().filter_map(|rule| rule.expires);
            let next = expires.filter(|at| *at > now).min();
            (derive(&settings, state, project, now, isolated), next)
        });
        let expires = expires.into_iter().chain(self.project.next_expiry(now));
        let expires = expires.min().unwrap_or(u64::MAX);
        self.expires.store(expires, Ordering::SeqCst);
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

fn derive(
    settings: &Settings,
    state: &SessionState,
    project: Vec<Rule>,
    now: u64,
    isolated: bool,
) -> Policy {
    let counts = |rule: &&SessionRule| rule.expires.is_none_or(|at| at > now);
    let session_rules = state.rules.iter().filter(counts).filter_map(|rule| {
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
                .chain(project)
                .chain(session_rules)
                .collect(),
        ),
        isolated,
    }
}
