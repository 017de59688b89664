//! The rules that come with Terret, as data: what only looks is allowed while commands are
//! isolated, and what would hand the person's authority to another program is asked.

use super::{Effect, Rule, Scope};

/// One built-in rule.
#[derive(Debug, Clone, Copy)]
pub struct BuiltIn {
    pub effect: Effect,
    pub rule: &'static str,
    /// Why it is there, for whoever lists rules.
    pub reason: &'static str,
    /// Subjects that it matches, and some that it does not; a test holds it to them.
    pub matching: &'static [&'static str],
    pub not_matching: &'static [&'static str],
}

/// All of them.
pub const TABLE: &[BuiltIn] = &[BuiltIn {
    effect: Effect::Allow,
    rule: "Bash(pwd)",
    reason: "tells the folder",
    matching: &["pwd"],
    not_matching: &["pwd; rm x"],
}];

/// The table as rules.
pub fn rules() -> Vec<Rule> {
    TABLE
        .iter()
        .filter_map(|row| Rule::parse(row.rule, row.effect, Scope::BuiltIn).ok())
        .collect()
}

/// Why a built-in rule is there.
pub fn reason(rule: &Rule) -> Option<&'static str> {
    TABLE
        .iter()
        .find(|row| row.effect == rule.effect && row.rule == rule.text())
        .map(|row| row.reason)
}
