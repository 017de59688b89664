//! The gate: run, ask or forbid, for one call. Pure; the pipeline asks and logs.
//!
//! The first that speaks decides (`design: Permissions`): hard denials, deny rules, floor,
//! plan mode's narrowing, protected files, ask rules, allow rules, the mode's default, the
//! tool's default.

use crate::definition::{Definition, Kind};
use crate::floor::{self, Floor};
use crate::mode::Mode;
use crate::rules::{self, Effect, Rule, RuleSet, Scope, Subject};

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
    pub rules: RuleSet,
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

/// A decision and what it rests on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruling {
    pub decision: Decision,
    /// What spoke first.
    pub by: Decider,
    /// One sentence for a person, without control characters.
    pub why: String,
    /// Of a command line with several commands, the one that decided.
    pub part: Option<String>,
    /// All the rules that were needed: for an allowed line of several commands one for
    /// each of them.
    pub rules: Vec<Rule>,
}

/// What can decide about a call, from the first that is asked to the last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decider {
    /// A rule, of any effect.
    Rule(Rule),
    /// The operator's list of tools.
    Floor,
    /// The session's live list, or that of an ancestor.
    Ceiling,
    /// Plan mode, which only looks.
    Plan,
    /// The file that it changes, with why it is protected.
    Protection(String),
    /// No rule spoke, and the mode says what happens then.
    Mode(Mode),
    /// No rule spoke, and the tool is never asked for.
    Tool,
    /// No rule spoke, and a hook of the user's spared the question.
    Hook,
}

impl Ruling {
    /// `allow`, `ask` or `deny`.
    pub fn effect(&self) -> Effect {
        match self.decision {
            Decision::Run => Effect::Allow,
            Decision::Ask { .. } => Effect::Ask,
            Decision::Forbid { .. } => Effect::Deny,
        }
    }

    /// Whether no rule, list or protection spoke, so that only a default decided.
    pub fn is_default(&self) -> bool {
        matches!(self.by, Decider::Mode(_) | Decider::Tool)
    }

    fn new(decision: Decision, by: Decider, why: String) -> Self {
        let rules = match &by {
            Decider::Rule(rule) => vec![rule.clone()],
            _ => Vec::new(),
        };
        Self {
            decision,
            by,
            why,
            part: None,
            rules,
        }
    }

    fn run(why: String, by: Decider) -> Self {
        Self::new(Decision::Run, by, why)
    }

    fn ask(reason: String, by: Decider, offered_rule: Option<String>) -> Self {
        let decision = Decision::Ask {
            reason: reason.clone(),
            offered_rule,
        };
        Self::new(decision, by, reason)
    }

    fn forbid(reason: String, by: Decider) -> Self {
        let decision = Decision::Forbid {
            reason: reason.clone(),
        };
        Self::new(decision, by, reason)
    }
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
            return Some(denied(definition.name, rule));
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
        self.judge(definition, subject, protection).decision
    }

    /// Decides about one call and says what decided.
    pub fn judge(
        &self,
        definition: &Definition,
        subject: Option<Subject<'_>>,
        protection: Option<&str>,
    ) -> Ruling {
        let tool = definition.name;
        if let Some(rule) = self.speaking(Effect::Deny, tool, subject) {
            return Ruling::forbid(denied(tool, rule), Decider::Rule(rule.clone()));
        }
        if let Some(list) = self.refusing(tool) {
            return Ruling::forbid(floor::refusal(tool), list);
        }
        if self.mode == Mode::Plan && definition.mutating {
            let why = format!(
                "{tool} is not available in plan mode, which only looks; describe the change in words and wait until the mode is left"
            );
            return Ruling::forbid(why, Decider::Plan);
        }
        if let Some(why) = protection.filter(|_| definition.mutating) {
            return Ruling::ask(
                format!("the file is protected: {why}"),
                Decider::Protection(why.to_owned()),
                None,
            );
        }
        if self.mode != Mode::Bypass
            && let Some(rule) = self.speaking(Effect::Ask, tool, subject)
        {
            // A rule of the session would not pass an ask rule, so none is offered.
            let why = format!("the rule `{}` asks for it", rule.text());
            return Ruling::ask(why, Decider::Rule(rule.clone()), None);
        }
        if let Some(rule) = self.speaking(Effect::Allow, tool, subject) {
            let why = format!("the rule `{}` allows it", rule.text());
            return Ruling::run(why, Decider::Rule(rule.clone()));
        }
        if self.mode.runs_unasked(definition, self.isolated) {
            return if Mode::Ask.runs_unasked(definition, self.isolated) {
                Ruling::run(format!("{tool} is not asked for"), Decider::Tool)
            } else {
                let why = format!("the mode `{}` does not ask for it", self.mode.name());
                Ruling::run(why, Decider::Mode(self.mode))
            };
        }
        let offered = rules::offer(tool, subject.map(|subject| subject.text));
        Ruling::ask(
            default_reason(definition),
            Decider::Mode(self.mode),
            offered,
        )
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
            .filter(|rule| rule.effect == effect)
            // What comes with us was judged for commands that cannot reach far.
            .filter(|rule| self.isolated || rule.scope != Scope::BuiltIn || effect != Effect::Allow)
            .find(|rule| rule.matches(tool, subject))
    }

    /// Which list keeps a tool from running at all.
    fn refusing(&self, tool: &str) -> Option<Decider> {
        if !self.floor.admits(tool) {
            return Some(Decider::Floor);
        }
        let held = self.live.iter().chain(&self.ceilings);
        let refused = held.into_iter().any(|list| !list.admits(tool));
        refused.then_some(Decider::Ceiling)
    }
}

fn denied(tool: &str, rule: &Rule) -> String {
    format!("{tool} is denied by the rule `{}`", rule.text())
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
