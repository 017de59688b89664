#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::path::Path;

use proptest::prelude::*;
use serde_json::json;

use super::{Decision, Policy};
use crate::definition::{Approval, Concurrency, Definition, Kind, Replay};
use crate::floor::Floor;
use crate::mode::Mode;
use crate::rules::{Effect, Rule, RuleSet, Scope, Subject};

fn definition(name: &'static str, mutating: bool, approval: Approval, kind: Kind) -> Definition {
    Definition {
        name,
        description: String::new(),
        parameters: json!({}),
        mutating,
        approval,
        concurrency: Concurrency::Serial,
        replay: Replay::Ask,
        kind,
    }
}

fn bash() -> Definition {
    definition("Bash", true, Approval::Policy, Kind::Execute)
}

fn edit() -> Definition {
    definition("Edit", true, Approval::Policy, Kind::Edit)
}

fn read() -> Definition {
    definition("Read", false, Approval::Never, Kind::Read)
}

fn subject(text: &str) -> Option<Subject<'_>> {
    Some(Subject {
        text,
        cwd: Path::new("/p"),
    })
}

fn rules(rules: &[(Effect, &str)]) -> RuleSet {
    rules
        .iter()
        .map(|(effect, text)| Rule::parse(text, *effect, Scope::Project).expect("a rule"))
        .collect()
}

fn asks(decision: &Decision) -> bool {
    matches!(decision, Decision::Ask { .. })
}

fn forbids(decision: &Decision) -> bool {
    matches!(decision, Decision::Forbid { .. })
}

#[test]
fn check_089_what_changes_something_is_asked_and_the_rest_runs() {
    let policy = Policy::default();
    assert_eq!(policy.decide(&read(), subject("a"), None), Decision::Run);
    let looks = definition("mcp__a__look", false, Approval::Policy, Kind::Other);
    assert_eq!(policy.decide(&looks, None, None), Decision::Run);
    let wanted = Decision::Ask {
        reason: "it runs a command".to_owned(),
        offered_rule: Some("Bash(make)".to_owned()),
    };
    assert_eq!(policy.decide(&bash(), subject("make"), None), wanted);
    let always = definition("Bash", false, Approval::Always, Kind::Execute);
    assert!(asks(&policy.decide(&always, subject("make"), None)));
}

#[test]
fn a_fetch_is_asked_for_a_host_that_no_rule_names() {
    let fetch = definition("WebFetch", false, Approval::Policy, Kind::Fetch);
    let here = subject("domain:example.com");
    let wanted = Decision::Ask {
        reason: "it reaches the network".to_owned(),
        offered_rule: Some("WebFetch(domain:example.com)".to_owned()),
    };
    let modes = [Mode::Plan, Mode::Ask, Mode::Edits, Mode::Auto];
    for (mode, isolated) in modes
        .into_iter()
        .flat_map(|mode| [(mode, false), (mode, true)])
    {
        let mut policy = Policy {
            mode,
            isolated,
            ..Policy::default()
        };
        assert_eq!(policy.decide(&fetch, here, None), wanted, "{mode:?}");
        // What names no host opens none.
        let nowhere = policy.decide(&fetch, None, None);
        assert!(matches!(
            nowhere,
            Decision::Ask {
                offered_rule: None,
                ..
            }
        ));
        policy.rules = rules(&[(Effect::Allow, "WebFetch(domain:example.com)")]);
        assert_eq!(policy.decide(&fetch, here, None), Decision::Run, "{mode:?}");
        assert!(asks(&policy.decide(
            &fetch,
            subject("domain:example.org"),
            None
        )));
        policy.rules = rules(&[
            (Effect::Allow, "WebFetch(domain:*.com)"),
            (Effect::Deny, "WebFetch(domain:EXAMPLE.com.)"),
        ]);
        assert!(forbids(&policy.decide(&fetch, here, None)), "check 155");
    }
    let bypass = Policy {
        mode: Mode::Bypass,
        ..Policy::default()
    };
    assert_eq!(bypass.decide(&fetch, here, None), Decision::Run);
}

#[test]
fn the_first_that_speaks_decides() {
    let all = [
        (Effect::Allow, "Bash"),
        (Effect::Ask, "Bash(git push:*)"),
        (Effect::Deny, "Bash(git push --force:*)"),
    ];
    let mut policy = Policy {
        rules: rules(&all),
        ..Policy::default()
    };
    assert_eq!(policy.decide(&bash(), subject("make"), None), Decision::Run);
    assert!(asks(&policy.decide(&bash(), subject("git push"), None)));
    assert!(forbids(&policy.decide(
        &bash(),
        subject("git push --force"),
        None
    )));
    policy.mode = Mode::Bypass;
    assert_eq!(
        policy.decide(&bash(), subject("git push"), None),
        Decision::Run
    );
    assert!(
        forbids(&policy.decide(&bash(), subject("git push --force"), None)),
        "bypass passes no denial"
    );
    policy.mode = Mode::Plan;
    assert!(
        forbids(&policy.decide(&bash(), subject("make"), None)),
        "a rule does not widen plan mode"
    );
    policy.mode = Mode::Bypass;
    policy.floor = Floor::new(["Read"]);
    assert!(
        forbids(&policy.decide(&bash(), subject("make"), None)),
        "no mode passes the floor"
    );
}

#[test]
fn modes_decide_where_no_rule_speaks() {
    let with = |mode, isolated| Policy {
        mode,
        isolated,
        ..Policy::default()
    };
    assert_eq!(
        with(Mode::Edits, false).decide(&edit(), subject("a"), None),
        Decision::Run
    );
    assert!(asks(&with(Mode::Edits, false).decide(
        &bash(),
        subject("make"),
        None
    )));
    assert_eq!(
        with(Mode::Auto, true).decide(&bash(), subject("make"), None),
        Decision::Run
    );
    assert!(asks(&with(Mode::Auto, false).decide(
        &bash(),
        subject("make"),
        None
    )));
    let always = definition("Bash", true, Approval::Always, Kind::Execute);
    assert!(asks(&with(Mode::Auto, true).decide(
        &always,
        subject("make"),
        None
    )));
    let todo = definition("TodoWrite", false, Approval::Never, Kind::Think);
    assert_eq!(
        with(Mode::Plan, false).decide(&todo, None, None),
        Decision::Run
    );
}

#[test]
fn a_protected_file_is_always_asked_for_and_no_rule_is_offered() {
    for mode in [Mode::Ask, Mode::Edits, Mode::Auto, Mode::Bypass] {
        let policy = Policy {
            mode,
            isolated: true,
            rules: rules(&[(Effect::Allow, "Edit")]),
            ..Policy::default()
        };
        let decision = policy.decide(
            &edit(),
            subject(".git/config"),
            Some("git runs what it says"),
        );
        assert_eq!(
            decision,
            Decision::Ask {
                reason: "the file is protected: git runs what it says".to_owned(),
                offered_rule: None
            }
        );
    }
    assert_eq!(
        Policy::default().decide(&read(), subject(".git/config"), Some("x")),
        Decision::Run
    );
}

#[test]
fn check_083_118_live_set_and_ceilings_narrow_the_floor_and_never_widen_it() {
    let mut policy = Policy {
        live: Some(Floor::new(["Read", "Secret"])),
        ..Policy::default()
    };
    assert!(policy.admits("Read"));
    assert!(!policy.admits("Bash") && !policy.admits("Secret"));
    policy.live = None;
    policy.ceilings = vec![Floor::new(["*"]), Floor::new(["Read"])];
    assert!(policy.admits("Read") && !policy.admits("Bash"));
}

/// How much a decision lets happen.
fn width(decision: &Decision) -> u8 {
    match decision {
        Decision::Forbid { .. } => 0,
        Decision::Ask { .. } => 1,
        Decision::Run => 2,
    }
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let texts = prop::sample::select(vec![
        "Bash",
        "Bash(make)",
        "Bash(make:*)",
        "Bash(rm:*)",
        "Edit",
        "Edit(src/**)",
        "Read",
        "Read(**)",
        "*",
        "mcp__*",
    ]);
    let effects = prop::sample::select(vec![Effect::Allow, Effect::Ask, Effect::Deny]);
    (effects, texts)
        .prop_map(|(effect, text)| Rule::parse(text, effect, Scope::Session).expect("a rule"))
}

fn any_policy() -> impl Strategy<Value = Policy> {
    let modes = prop::sample::select(vec![
        Mode::Plan,
        Mode::Ask,
        Mode::Edits,
        Mode::Auto,
        Mode::Bypass,
    ]);
    let floors = prop::sample::select(vec![vec!["*"], vec!["Read"], vec!["Bash", "Edit"], vec![]]);
    (
        modes,
        prop::collection::vec(any_rule(), 0..5),
        floors,
        any::<bool>(),
    )
        .prop_map(|(mode, rules, floor, isolated)| Policy {
            mode,
            rules: rules.into(),
            floor: Floor::new(floor),
            isolated,
            ..Policy::default()
        })
}

proptest! {
    #[test]
    fn adding_a_denial_or_an_ask_or_a_ceiling_never_widens(
        policy in any_policy(),
        extra in any_rule(),
        about in prop::sample::select(vec!["make", "make all", "rm x", "src/a.rs", "make; rm x"]),
        effect in prop::sample::select(vec![Effect::Ask, Effect::Deny]),
    ) {
        let mut narrowed = policy.clone();
        narrowed.rules.push(Rule::parse(extra.text(), effect, Scope::Session).expect("a rule"));
        let mut capped = policy.clone();
        capped.ceilings.push(Floor::new(["Read"]));
        for definition in [bash(), edit(), read()] {
            for protection in [None, Some("reason")] {
                let before = width(&policy.decide(&definition, subject(about), protection));
                prop_assert!(width(&narrowed.decide(&definition, subject(about), protection)) <= before);
                prop_assert!(width(&capped.decide(&definition, subject(about), protection)) <= before);
            }
        }
    }

    #[test]
    fn adding_a_grant_never_narrows(policy in any_policy(), extra in any_rule()) {
        let mut widened = policy.clone();
        widened.rules.push(Rule::parse(extra.text(), Effect::Allow, Scope::Session).expect("a rule"));
        for definition in [bash(), edit(), read()] {
            let before = width(&policy.decide(&definition, subject("make"), None));
            prop_assert!(width(&widened.decide(&definition, subject("make"), None)) >= before);
        }
    }
}

#[test]
fn check_145_the_sandbox_decides_how_strict_a_command_is() {
    let bash = definition("Bash", true, Approval::BySandbox, Kind::Execute);
    for isolated in [false, true] {
        let policy = Policy {
            mode: Mode::Auto,
            isolated,
            ..Policy::default()
        };
        let runs = policy.decide(&bash, None, None) == Decision::Run;
        assert_eq!(runs, isolated);
    }
}
