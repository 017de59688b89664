//! What a person may answer to a question, and what an answer means.
//!
//! One option of each kind, since several clients give a key only to the first of a kind or
//! show labels of their own; more only for a client that is known to show them by name.
//! Whatever a client answers, nothing but an id that it was offered allows.

use serde_json::Value;
use terret_acp::schema::v1;
use terret_engine::room::log::{ApprovalStage, GrantScope};
use terret_engine::room::tools::mode::Mode;
use terret_engine::{AFTER_PLAN, Decision};

use crate::text::line;

/// Characters of a rule that an option's name has room for.
const SHOWN_RULE: usize = 400;

/// One option: what is sent, and what its choice means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Choice {
    id: &'static str,
    name: String,
    kind: v1::PermissionOptionKind,
    means: Meaning,
}

/// What choosing an option means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Meaning {
    Decided(Decision),
    /// Refuses, and the person is asked why.
    SayWhy,
}

/// What the options of a question depend on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Offer<'a> {
    pub stage: ApprovalStage,
    /// The rule that an "always" would add.
    pub rule: Option<&'a str>,
    /// The client shows more than one option of a kind, by their names.
    pub several_of_a_kind: bool,
}

/// The options of a question, the first of each kind before the second of any.
pub(super) fn choices(offer: &Offer<'_>) -> Vec<Choice> {
    use v1::PermissionOptionKind as Kind;
    let choice = |id, name: &str, kind, means| Choice {
        id,
        name: name.to_owned(),
        kind,
        means,
    };
    let decided = Meaning::Decided;
    let reject = |name| {
        choice(
            "reject_once",
            name,
            Kind::RejectOnce,
            decided(Decision::Reject { reason: None }),
        )
    };
    match offer.stage {
        ApprovalStage::LeavePlan => {
            let [careful, free] = AFTER_PLAN;
            let begin = |id, kind, mode: Mode, how: &str| {
                let name = format!("Begin, in mode `{}`: {how}", mode.name());
                choice(id, &name, kind, decided(Decision::LeavePlan(mode)))
            };
            vec![
                begin(
                    "allow_once",
                    Kind::AllowOnce,
                    careful,
                    "ask before files change",
                ),
                begin(
                    "allow_always",
                    Kind::AllowAlways,
                    free,
                    "edit files without asking",
                ),
                reject("Keep planning"),
            ]
        }
        ApprovalStage::Trust => vec![
            choice(
                "allow_once",
                "Trust this content",
                Kind::AllowOnce,
                decided(Decision::AllowOnce),
            ),
            reject("Do not trust it"),
        ],
        ApprovalStage::Call | ApprovalStage::Escalation => {
            let mut all = vec![choice(
                "allow_once",
                "Allow once",
                Kind::AllowOnce,
                decided(Decision::AllowOnce),
            )];
            // Nobody may agree to a rule that they cannot read whole. The exact rule and
            // how far it reaches: "always" must say what it means (R009).
            let rule = offer
                .rule
                .filter(|rule| rule.chars().count() <= SHOWN_RULE)
                .map(|rule| line(rule, SHOWN_RULE));
            let always = |id, reach: &str, scope| {
                rule.as_ref().map(|rule| {
                    let name = format!("Allow {reach}: {rule}");
                    let means = decided(Decision::AllowAlways(scope));
                    choice(id, &name, Kind::AllowAlways, means)
                })
            };
            all.extend(always(
                "allow_always",
                "for this session",
                GrantScope::Session,
            ));
            all.push(reject("Reject"));
            if offer.several_of_a_kind {
                all.extend(always(
                    "allow_project",
                    "in this project, in every session",
                    GrantScope::Project,
                ));
                all.push(choice(
                    "reject_why",
                    "Reject and say why",
                    Kind::RejectOnce,
                    Meaning::SayWhy,
                ));
            }
            all
        }
    }
}

/// The options as they are sent.
pub(super) fn sent(choices: &[Choice]) -> Vec<v1::PermissionOption> {
    choices
        .iter()
        .map(|choice| v1::PermissionOption::new(choice.id, choice.name.clone(), choice.kind))
        .collect()
}

/// What an outcome means; none when the client gave up the turn.
pub(super) fn understand(response: &Value, choices: &[Choice]) -> Option<Meaning> {
    let text = |path: &str| response.pointer(path).and_then(Value::as_str);
    match (text("/outcome/outcome"), text("/outcome/optionId")) {
        (Some("cancelled"), _) => None,
        (Some("selected"), Some(id)) => {
            Some(choices.iter().find(|choice| choice.id == id).map_or_else(
                || reject("the editor chose an option that was not offered"),
                |choice| choice.means.clone(),
            ))
        }
        _ => Some(reject("the editor's answer was not understood")),
    }
}

/// A refusal that is nobody's choice.
pub(super) fn reject(reason: impl Into<String>) -> Meaning {
    Meaning::Decided(Decision::Reject {
        reason: Some(reason.into()),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn offer(rule: Option<&str>) -> Offer<'_> {
        Offer {
            stage: ApprovalStage::Call,
            rule,
            several_of_a_kind: false,
        }
    }

    fn names(offer: &Offer<'_>) -> Vec<String> {
        choices(offer)
            .into_iter()
            .map(|choice| format!("{:?} {}", choice.kind, choice.name))
            .collect()
    }

    #[test]
    fn one_option_of_each_kind_unless_the_client_shows_more() {
        let rule = "Bash(cargo test)";
        assert_eq!(
            names(&offer(Some(rule))),
            [
                "AllowOnce Allow once",
                "AllowAlways Allow for this session: Bash(cargo test)",
                "RejectOnce Reject",
            ]
        );
        let more = Offer {
            several_of_a_kind: true,
            ..offer(Some(rule))
        };
        assert_eq!(
            names(&more),
            [
                "AllowOnce Allow once",
                "AllowAlways Allow for this session: Bash(cargo test)",
                "RejectOnce Reject",
                "AllowAlways Allow in this project, in every session: Bash(cargo test)",
                "RejectOnce Reject and say why",
            ]
        );
    }

    #[test]
    fn leaving_plan_mode_says_which_mode_follows() {
        let offer = Offer {
            stage: ApprovalStage::LeavePlan,
            ..offer(None)
        };
        assert_eq!(
            names(&offer),
            [
                "AllowOnce Begin, in mode `ask`: ask before files change",
                "AllowAlways Begin, in mode `edits`: edit files without asking",
                "RejectOnce Keep planning",
            ]
        );
    }

    #[test]
    fn a_rule_that_cannot_be_shown_whole_is_not_offered() {
        let long = format!("Bash(echo {} precious)", "x".repeat(500));
        assert_eq!(choices(&offer(Some(&long))).len(), 2);
    }

    #[test]
    fn only_what_was_offered_allows() {
        let allows = |response: Value, rule: Option<&str>| {
            matches!(
                understand(&response, &choices(&offer(rule))),
                Some(Meaning::Decided(
                    Decision::AllowOnce | Decision::AllowAlways(_) | Decision::LeavePlan(_)
                ))
            )
        };
        let selected = |id: &str| json!({ "outcome": { "outcome": "selected", "optionId": id } });
        assert!(allows(selected("allow_once"), None));
        assert!(allows(selected("allow_always"), Some("Bash(ls)")));
        for response in [
            selected("allow_always"),
            selected("allow_project"),
            selected("reject_once"),
            selected("reject_why"),
            selected("yes"),
            json!({ "outcome": { "outcome": "selected" } }),
            json!({ "outcome": "allow_once" }),
            json!({ "optionId": "allow_once" }),
            json!(null),
        ] {
            assert!(!allows(response, None));
        }
        let cancelled = json!({ "outcome": { "outcome": "cancelled" } });
        assert_eq!(understand(&cancelled, &choices(&offer(None))), None);
    }
}
