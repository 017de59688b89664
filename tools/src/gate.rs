//! The gate: run, ask or forbid, for one call. Pure; the pipeline asks and logs.
//!
//! The first that speaks decides (`design: Permissions`): hard denials, deny rules, floor,
//! plan mode's narrowing, protected files, ask rules, allow rules, the mode's default, the
//! tool's default.

use crate::definition::{Definition, Kind};
use crate::floor::{self, Floor};
use crate::mode::Mode;
use crate::rules::{self, Effect, Rule, Subject};

/// All that decides about a session's calls. Replaced as a whole when a part changes.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// The operator's list.
    pub floor: Floor,
    /// The session's last `policy/updated`; it narrows the floor.
    pub live: Option<Floor>,
    /// What an agent's ancestors may do at most; every list must admit.
    pub ceilings: Vec<Floor>,
    pub mode: Mode,
    pub rules: Vec<Rule>,
    /// Commands run in an isolating sandbox.
    pub isolated: bool,
}

/// What is to become of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    Run,
    Ask {
        /// Why, for the person.
        reason: String,
        /// The rule that "always in this session" would add.
        offered_rule: Option<String>,
    },
    Forbid {
        /// Why, for the model.
        reason: String,
    },
}

impl Policy {
    /// Whether a tool may run at all.
    pub fn admits(&self, tool: &str) -> bool {
        self.floor.admits(tool)
            && self.live.as_ref().is_none_or(|live| live.admits(tool))
            && self.ceilings.iter().all(|ceiling| ceiling.admits(tool))
    }

    /// The floor and the deny rules alone: what must be looked at again after a wait.
    pub fn forbids(&self, definition: &Definition, subject: Option<Subject<'_>>) -> Option<String> {
        if let Some(rule) = self.speaking(Effect::Deny, definition.name, subject) {
            return Some(format!(
                "{} is denied by the rule `{}`",
                definition.name,
                rule.text()
            ));
        }
        (!self.admits(definition.name)).then(|| floor::refusal(definition.name))
    }

    /// Decides about one call. `protection` says why the file it changes is protected.
    pub fn decide(
        &self,
        definition: &Definition,
        subject: Option<Subject<'_>>,
        protection: Option<&str>,
    ) -> Decision {
        let tool = definition.name;
        if let Some(reason) = self.forbids(definition, subject) {
            return Decision::Forbid { reason };
        }
        if self.mode == Mode::Plan && definition.mutating {
            return Decision::Forbid {
                reason: format!(
                    "{tool} is not available in plan mode, which only looks; describe the change in words and wait until the mode is left"
                ),
            };
        }
        if let Some(why) = protection.filter(|_| definition.mutating) {
            return Decision::Ask {
                reason: format!("the file is protected: {why}"),
                offered_rule: None,
            };
        }
        let offered_rule = || rules::offer(tool, subject.map(|subject| subject.text));
        if self.mode != Mode::Bypass
            && let Some(rule) = self.speaking(Effect::Ask, tool, subject)
        {
            // A rule of the session would not pass an ask rule, so none is offered.
            return Decision::Ask {
                reason: format!("the rule `{}` asks for it", rule.text()),
                offered_rule: None,
            };
        }
        if self.speaking(Effect::Allow, tool, subject).is_some()
            || self.mode.runs_unasked(definition, self.isolated)
        {
            return Decision::Run;
        }
        Decision::Ask {
            reason: default_reason(definition),
            offered_rule: offered_rule(),
        }
    }

    /// A decision about a call that asks for itself ([`crate::call::Tool::insists`]): no
    /// allow rule speaks of that, so none is offered either. Only `bypass` asks nobody.
    pub fn insist(&self, decision: Decision, why: String) -> Decision {
        match decision {
            Decision::Forbid { .. } => decision,
            _ if self.mode == Mode::Bypass => decision,
            Decision::Run => Decision::Ask {
                reason: why,
                offered_rule: None,
            },
            Decision::Ask { reason, .. } => Decision::Ask {
                reason: format!("{why}; {reason}"),
                offered_rule: None,
            },
        }
    }

    /// Whether a waiting question about this call needs no answer any more.
    pub fn covers(
        &self,
        definition: &Definition,
        subject: Option<Subject<'_>>,
        protection: Option<&str>,
    ) -> bool {
        self.decide(definition, subject, protection) == Decision::Run
    }

    fn speaking(&self, effect: Effect, tool: &str, subject: Option<Subject<'_>>) -> Option<&Rule> {
        self.rules
            .iter()
            .find(|rule| rule.effect == effect && rule.matches(tool, subject))
    }
}

fn default_reason(definition: &Definition) -> String {
    match definition.kind {
        Kind::Edit => "it changes a file".to_owned(),
        Kind::Execute => "it runs a command".to_owned(),
        Kind::Fetch => "it reaches the network".to_owned(),
        _ => format!("{} changes something outside this session", definition.name),
    }
}

#[cfg(test)]
mod tests;
