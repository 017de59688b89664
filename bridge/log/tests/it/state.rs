//! The smaller folds: usage, title, approvals, rules, files, the open turn.

use serde_json::json;
use terret_log::{ApprovalStage, BlobId, FileChange, Payload, RuleEffect, TurnStatus, Verdict};

use crate::support::*;

#[test]
fn check_015_usage_sums_over_steps() {
    let state = state_of(vec![
        created(),
        step_end_with(1, 10, 5, Some(0.25)),
        step_end(2),
        step_end_with(3, 30, 7, Some(0.5)),
        step_end_with(4, 1, 1, None),
    ]);
    let usage = state.usage;
    assert_eq!(
        (usage.prompt_tokens, usage.completion_tokens, usage.steps),
        (41, 13, 4)
    );
    assert!((usage.cost - 0.75).abs() < 1e-12);
    assert_eq!(usage.unpriced_steps, 1);
    assert_eq!(usage.context_tokens, Some(2));
}

#[test]
fn check_016_the_title_is_the_latest_or_none() {
    assert_eq!(state_of(vec![created()]).title, None);
    let titled = |title: &str| Payload::SessionTitled {
        title: title.to_owned(),
    };
    assert_eq!(
        state_of(vec![created(), titled("a"), titled("b")])
            .title
            .as_deref(),
        Some("b")
    );
}

#[test]
fn checks_094_and_095_approvals_wait_until_they_are_resolved_or_the_turn_ends() {
    let open = vec![
        turn_start(),
        asked("r1", "c1"),
        asked("r2", "c2"),
        resolved("r1", "c1", Verdict::Denied),
    ];
    let state = state_of(open.clone());
    let waiting: Vec<_> = state
        .approvals
        .pending()
        .iter()
        .map(|request| request.id.as_str())
        .collect();
    assert_eq!(waiting, ["r2"]);
    assert_eq!(
        state.approvals.get("r2").unwrap().offered_rule.as_deref(),
        Some("Bash(make)")
    );
    let args = json!({"command": "make"});
    let stage = ApprovalStage::Call;
    let pending = |stage| state.approvals.pending_for("c2", "Bash", &args, stage);
    assert!(pending(stage).is_some() && pending(ApprovalStage::Escalation).is_none());
    assert_eq!(
        state
            .approvals
            .verdict_for("c1", "Bash", &args, stage)
            .unwrap()
            .verdict,
        Verdict::Denied
    );
    assert!(
        state
            .approvals
            .verdict_for("c1", "Bash", &json!({"command": "make clean"}), stage)
            .is_none()
    );
    let verdict = |name, stage| state.approvals.verdict_for("c1", name, &args, stage);
    assert!(verdict("Write", stage).is_none());
    assert!(verdict("Bash", ApprovalStage::Escalation).is_none());
    let closed = state_of([open, vec![turn_end(TurnStatus::Cancelled)]].concat());
    assert!(
        closed.approvals.is_empty()
            && closed
                .approvals
                .verdict_for("c1", "Bash", &args, stage)
                .is_none()
    );
}

#[test]
fn an_open_turn_knows_what_it_owes() {
    let state = state_of(vec![
        turn_start(),
        step_start(1),
        user("go"),
        assistant(vec![
            call("a", "Read", json!({})),
            call("b", "Bash", json!({})),
            call("b", "Bash", json!({"n": 2})),
            call("c", "Read", json!({})),
        ]),
        tool_call("a", "Read", json!({})),
        tool_started("a"),
        result("a", "ok"),
        tool_call("b", "Bash", json!({})),
        tool_started("b"),
    ]);
    let open = state.turn.open.as_ref().unwrap();
    assert_eq!(
        (
            open.start_seq,
            open.steps,
            open.step_open,
            open.step_answered
        ),
        (0, 1, true, true)
    );
    let owed: Vec<_> = state
        .turn
        .owed_calls()
        .iter()
        .map(|call| (call.id.as_str(), call.announced, call.started))
        .collect();
    assert_eq!(
        owed,
        [("b", true, true), ("b", false, false), ("c", false, false)]
    );
    assert_eq!(state.call_ids.len(), 3);
}

#[test]
fn check_064_only_a_turn_without_its_end_is_open() {
    assert!(!state_of(vec![created()]).turn.is_open());
    assert!(!state_of(golden_turn()).turn.is_open());
    assert!(
        state_of([golden_turn(), vec![turn_start()]].concat())
            .turn
            .is_open()
    );
    let state = state_of([golden_turn(), golden_turn()].concat());
    assert_eq!(
        (state.turn.turns, state.turn.last_status),
        (2, Some(TurnStatus::Completed))
    );
}

#[test]
fn check_066_only_the_last_message_owes() {
    let state = state_of(vec![
        turn_start(),
        assistant(vec![call("a", "Read", json!({}))]),
        assistant(vec![call("b", "Read", json!({}))]),
    ]);
    assert_eq!(
        state
            .turn
            .owed_calls()
            .iter()
            .map(|call| call.id.as_str())
            .collect::<Vec<_>>(),
        ["b"]
    );
}

#[test]
fn rules_options_policy_and_roots_hold_their_last_word() {
    let added = |id: &str, rule: &str| Payload::RuleAdded {
        id: id.to_owned(),
        rule: rule.to_owned(),
        effect: RuleEffect::Allow,
        by: "editor".to_owned(),
        approval: None,
        expires: None,
    };
    let option = |value: &str| Payload::OptionSet {
        option: "mode".to_owned(),
        value: value.to_owned(),
        by: "editor".to_owned(),
    };
    let state = state_of(vec![
        created(),
        added("1", "Bash(ls)"),
        added("2", "Read"),
        Payload::RuleRemoved {
            id: "1".to_owned(),
            by: "editor".to_owned(),
        },
        option("plan"),
        option("edits"),
        Payload::PolicyUpdated {
            patterns: vec!["Read".to_owned()],
        },
        Payload::PolicyUpdated { patterns: vec![] },
        Payload::RootsSet {
            additional_directories: vec!["/other".to_owned()],
        },
    ]);
    assert_eq!(
        state
            .rules
            .iter()
            .map(|rule| rule.rule.as_str())
            .collect::<Vec<_>>(),
        ["Read"]
    );
    assert_eq!(state.options["mode"], "edits");
    assert_eq!(state.policy, Some(vec![]));
    assert_eq!(
        (state.cwd.as_str(), state.additional_directories.as_slice()),
        ("/project", &["/other".to_owned()][..])
    );
}

#[test]
fn files_are_known_as_they_were_last_seen_or_written() {
    let seen = |hash: &str| Payload::FileSeen {
        call_id: "c".into(),
        path: "/project/a".into(),
        hash: hash.into(),
    };
    let changed = |after: Option<BlobId>| Payload::FileChanged {
        call_id: "c".into(),
        change: FileChange {
            path: "/project/a".into(),
            before: None,
            after,
        },
    };
    let after = BlobId::of(b"new");
    assert_eq!(
        state_of(vec![seen("h1"), seen("h2")]).seen_files["/project/a"],
        "h2"
    );
    let written = state_of(vec![seen("h1"), changed(Some(after.clone()))]);
    assert_eq!(written.seen_files["/project/a"], after.as_str());
    assert!(
        state_of(vec![seen("h1"), changed(None)])
            .seen_files
            .is_empty()
    );
}
