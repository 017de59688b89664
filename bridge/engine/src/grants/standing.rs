//! All the rules that hold somewhere as one list, each with where it is kept, for the person
//! who looks through them and takes one back.

use std::path::{Path, PathBuf};

use terret_log::{RuleEffect, RuleUse, SessionId, SessionRule, moment};
use terret_tools::rules::{Effect, Rule, Scope, builtin, shown};

use super::{RuleFile, RuleFileError, StoredRule};

/// A rule that stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Its number in the list; none for a rule that cannot be taken back here.
    pub number: Option<usize>,
    pub effect: Effect,
    pub scope: Scope,
    pub text: String,
    pub kept: Kept,
    /// What it came from, for people.
    pub origin: Option<String>,
    /// Unix milliseconds.
    pub added: Option<u64>,
    /// Unix milliseconds after which it counts for nothing.
    pub expires: Option<u64>,
    /// False while the file that brings it is not trusted.
    pub in_force: bool,
    /// How often it let calls run, as far as the logs that are kept say.
    pub used: Option<Used>,
}

/// Where a rule is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    BuiltIn,
    File(RuleFile),
    /// In the session's log, by its id there.
    Session(String),
    /// In a file that is not ours to change, or another key of the configuration.
    Elsewhere(String),
}

/// When a rule let calls run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Used {
    /// Unix milliseconds of the last call.
    pub last: u64,
    pub times: u64,
}

impl Standing {
    /// The rule of a file.
    pub fn stored(rule: StoredRule, scope: Scope, kept: Kept) -> Self {
        Self {
            number: None,
            effect: rule.effect,
            scope,
            text: rule.text,
            kept,
            origin: rule.origin,
            added: rule.added,
            expires: rule.expires,
            in_force: true,
            used: None,
        }
    }

    /// A session's own rule.
    pub fn of_session(rule: &SessionRule) -> Self {
        Self {
            number: None,
            effect: effect_of(rule.effect),
            scope: Scope::Session,
            text: rule.rule.clone(),
            kept: Kept::Session(rule.id.clone()),
            origin: Some(match &rule.approval {
                Some(approval) => format!("approval {approval}, by {}", rule.by),
                None => rule.by.clone(),
            }),
            added: Some(rule.added_at),
            expires: rule.expires,
            in_force: true,
            used: None,
        }
    }

    /// A rule that is known without its file.
    pub fn elsewhere(rule: &Rule, place: &str) -> Self {
        let stored = StoredRule::new(rule.effect, rule.text());
        Self::stored(stored, rule.scope, Kept::Elsewhere(place.to_owned()))
    }

    /// Whether it counts for nothing any more at a moment in Unix milliseconds.
    pub fn is_expired(&self, now: u64) -> bool {
        self.expires.is_some_and(|expires| expires < now)
    }

    /// One line: the number, what it does, its text and how far it reaches.
    pub fn line(&self) -> String {
        let number = self
            .number
            .map_or_else(|| "-".to_owned(), |number| number.to_string());
        format!(
            "{number:>3}  {:5}  {}  ({})",
            self.effect.name(),
            shown(&self.text),
            self.scope.name()
        )
    }

    /// What more is known of it, in a person's words; nothing when there is nothing.
    pub fn details(&self, now: u64) -> String {
        let mut details = Vec::new();
        match (&self.origin, self.added) {
            (Some(origin), Some(added)) => {
                details.push(format!("from {}, {} UTC", shown(origin), moment(added)));
            }
            (Some(origin), None) => details.push(format!("from {}", shown(origin))),
            (None, Some(added)) => details.push(format!("added {} UTC", moment(added))),
            (None, None) => {}
        }
        match &self.kept {
            Kept::Elsewhere(place) => details.push(format!("kept in {}", shown(place))),
            Kept::BuiltIn => {
                let rule = Rule::parse(&self.text, self.effect, Scope::BuiltIn).ok();
                details.extend(rule.as_ref().and_then(builtin::reason).map(str::to_owned));
            }
            Kept::File(_) | Kept::Session(_) => {}
        }
        if let Some(used) = self.used {
            let times = if used.times == 1 { "time" } else { "times" };
            details.push(format!(
                "used {} {times}, last {} UTC",
                used.times,
                moment(used.last)
            ));
        }
        if let Some(expires) = self.expires {
            let word = if self.is_expired(now) {
                "expired"
            } else {
                "expires"
            };
            details.push(format!("{word} {} UTC", moment(expires)));
        }
        if !self.in_force {
            details.push("not in force until that file is trusted".to_owned());
        }
        details.join("; ")
    }
}

/// The rules of a file.
///
/// # Errors
/// [`RuleFileError`].
pub fn of_file(file: &RuleFile, scope: Scope) -> Result<Vec<Standing>, RuleFileError> {
    let rules = file.read()?.into_iter();
    Ok(rules
        .map(|rule| Standing::stored(rule, scope, Kept::File(file.clone())))
        .collect())
}

/// The rules that come with Terret.
pub fn of_terret() -> Vec<Standing> {
    let rules = builtin::rules().into_iter();
    rules
        .map(|rule| {
            Standing::stored(
                StoredRule::new(rule.effect, rule.text()),
                rule.scope,
                Kept::BuiltIn,
            )
        })
        .collect()
}

/// Numbers what can be taken back, from 1 on.
pub fn number(rules: &mut [Standing]) {
    let ours = |rule: &&mut Standing| matches!(rule.kept, Kept::File(_) | Kept::Session(_));
    for (number, rule) in rules.iter_mut().filter(ours).enumerate() {
        rule.number = Some(number + 1);
    }
}

/// Tells each rule how often it was used: of the session's own rules in that session, of the
/// project's in sessions below its root, of all others anywhere.
pub fn learn_uses(
    rules: &mut [Standing],
    uses: &[RuleUse],
    root: &Path,
    session: Option<&SessionId>,
) {
    for rule in rules {
        let counts = |found: &&RuleUse| {
            found.layer == rule.scope.name()
                && found.rule == rule.text
                && match rule.scope {
                    Scope::Session | Scope::Call => Some(&found.session) == session,
                    Scope::Project => PathBuf::from(&found.cwd).starts_with(root),
                    Scope::BuiltIn | Scope::User => true,
                }
        };
        // Only rules that allow let anything run.
        let found = uses
            .iter()
            .filter(counts)
            .filter(|_| rule.effect == Effect::Allow);
        rule.used = found.fold(None, |sum: Option<Used>, found| {
            Some(Used {
                last: sum.map_or(0, |sum| sum.last).max(found.last_at),
                times: sum.map_or(0, |sum| sum.times) + found.uses,
            })
        });
    }
}

/// The one rule that a person named, by its number in the list or its exact text.
///
/// # Errors
/// For that person: why it is none, or more than one.
pub fn named<'a>(rules: &'a [Standing], name: &str) -> Result<&'a Standing, String> {
    let name = name.trim();
    if let Ok(number) = name.parse::<usize>() {
        return rules
            .iter()
            .find(|rule| rule.number == Some(number))
            .ok_or_else(|| format!("there is no rule {number} in the list"));
    }
    let found: Vec<&Standing> = rules.iter().filter(|rule| rule.text == name).collect();
    match found.as_slice() {
        [one] => Ok(one),
        [] => Err(format!("there is no rule `{}`", shown(name))),
        several => {
            let numbers: Vec<String> = several
                .iter()
                .filter_map(|rule| rule.number)
                .map(|number| number.to_string())
                .collect();
            Err(format!(
                "`{}` stands {} times; name one by its number: {}",
                shown(name),
                several.len(),
                numbers.join(", ")
            ))
        }
    }
}

pub(crate) fn effect_of(effect: RuleEffect) -> Effect {
    match effect {
        RuleEffect::Allow => Effect::Allow,
        RuleEffect::Ask => Effect::Ask,
        RuleEffect::Deny => Effect::Deny,
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn rule(text: &str, effect: Effect, scope: Scope) -> Standing {
        let kept = Kept::File(RuleFile::user(PathBuf::from("/c/config.toml")));
        Standing::stored(StoredRule::new(effect, text), scope, kept)
    }

    #[test]
    fn a_rule_is_named_by_its_number_or_by_its_text_where_that_is_one() {
        let mut rules = vec![
            rule("Bash(ls)", Effect::Allow, Scope::Project),
            rule("Bash(ls)", Effect::Deny, Scope::User),
            rule("Read", Effect::Allow, Scope::User),
        ];
        rules.extend(of_terret());
        number(&mut rules);
        assert_eq!(named(&rules, " 2 ").unwrap().effect, Effect::Deny);
        assert_eq!(named(&rules, "Read").unwrap().number, Some(3));
        let twice = named(&rules, "Bash(ls)").unwrap_err();
        assert!(twice.contains("1, 2"), "{twice}");
        for unknown in ["0", "4", "Bash", "99999999999999999999", ""] {
            assert!(named(&rules, unknown).is_err(), "{unknown}");
        }
    }

    #[test]
    fn a_use_counts_for_the_rule_of_its_layer_and_place() {
        let used = |session: &str, cwd: &str, scope: Scope, uses: u64| RuleUse {
            session: session.parse().unwrap(),
            cwd: cwd.to_owned(),
            layer: scope.name().to_owned(),
            rule: "Bash(ls)".to_owned(),
            last_at: uses * 10,
            uses,
        };
        let uses = [
            used("s1", "/p/sub", Scope::Project, 1),
            used("s2", "/other", Scope::Project, 2),
            used("s1", "/p", Scope::Session, 4),
            used("s2", "/p", Scope::Session, 8),
            used("s1", "/p", Scope::User, 16),
            used("s2", "/other", Scope::User, 32),
        ];
        let mut rules: Vec<Standing> = [Scope::Project, Scope::Session, Scope::User]
            .into_iter()
            .flat_map(|scope| {
                [
                    rule("Bash(ls)", Effect::Allow, scope),
                    rule("Bash(ls)", Effect::Deny, scope),
                    rule("Bash(pwd)", Effect::Allow, scope),
                ]
            })
            .collect();
        let session = "s2".parse().unwrap();
        learn_uses(&mut rules, &uses, Path::new("/p"), Some(&session));
        let found: Vec<(Scope, u64, u64)> = rules
            .iter()
            .filter_map(|rule| Some((rule.scope, rule.used?.times, rule.used?.last)))
            .collect();
        assert_eq!(
            found,
            [
                (Scope::Project, 1, 10),
                (Scope::Session, 8, 80),
                (Scope::User, 48, 320)
            ]
        );
    }

    #[test]
    fn what_is_known_of_a_rule_is_said_without_what_could_deceive() {
        let mut shown = rule("Bash(echo \u{202e}x)", Effect::Allow, Scope::User);
        shown.origin = Some("approval a1\u{7}".to_owned());
        shown.expires = Some(1000);
        let text = format!("{} {}", shown.line(), shown.details(2000));
        assert!(
            !text.chars().any(|c| c == '\u{202e}' || c.is_control()),
            "{text}"
        );
        assert!(text.contains("expired 1970-01-01 00:00:01 UTC"), "{text}");
        assert!(shown.details(500).contains("expires"), "not yet");
        shown.in_force = false;
        assert!(shown.details(500).contains("not in force"));
    }
}
