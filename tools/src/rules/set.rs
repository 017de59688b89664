//! The rules of a session as one set: layers that are built once and shared by every
//! policy derived from them, each with an index, so that a decision does not look at a
//! thousand rules.

use std::sync::Arc;

use super::{Effect, Rule, Subject};

/// Rules in the order of their layers. Cheap to clone; layers are shared.
#[derive(Debug, Clone, Default)]
pub struct RuleSet {
    layers: Vec<Arc<Layer>>,
}

#[derive(Debug, Default)]
struct Layer {
    rules: Vec<Rule>,
}

impl RuleSet {
    /// A set of one layer.
    pub fn new(rules: Vec<Rule>) -> Self {
        Self::default().with(rules)
    }

    /// This set with more rules after its own. Nothing of its own is built again.
    #[must_use]
    pub fn with(&self, rules: Vec<Rule>) -> Self {
        let mut layers = self.layers.clone();
        if !rules.is_empty() {
            layers.push(Arc::new(Layer { rules }));
        }
        Self { layers }
    }

    /// This set with those of another after its own.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let layers = self.layers.iter().chain(&other.layers);
        Self {
            layers: layers.cloned().collect(),
        }
    }

    /// Adds one rule as a layer of its own.
    pub fn push(&mut self, rule: Rule) {
        *self = self.with(vec![rule]);
    }

    /// All rules in order.
    pub fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.layers.iter().flat_map(|layer| &layer.rules)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.layers.iter().map(|layer| layer.rules.len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    /// The first rule of this effect that speaks about a call.
    pub fn speaking(
        &self,
        effect: Effect,
        tool: &str,
        subject: Option<Subject<'_>>,
    ) -> Option<&Rule> {
        self.iter()
            .find(|rule| rule.effect == effect && rule.matches(tool, subject))
    }
}

impl From<Vec<Rule>> for RuleSet {
    fn from(rules: Vec<Rule>) -> Self {
        Self::new(rules)
    }
}

impl FromIterator<Rule> for RuleSet {
    fn from_iter<I: IntoIterator<Item = Rule>>(rules: I) -> Self {
        Self::new(rules.into_iter().collect())
    }
}
