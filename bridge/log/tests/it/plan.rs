//! The plan: what the last successful `TodoWrite` said.

use serde_json::{Value, json};
use terret_log::{Payload, Plan, PlanStatus, TurnStatus};

use crate::support::*;

pub(crate) fn todos(entries: &[(&str, &str)]) -> Value {
    let todos: Vec<Value> = entries
        .iter()
        .map(|(content, status)| json!({"content": content, "status": status, "activeForm": format!("doing {content}")}))
        .collect();
    json!({ "todos": todos })
}

/// Calls with these lists, each successful.
pub(crate) fn writes(lists: &[&[(&str, &str)]]) -> Vec<Payload> {
    lists
        .iter()
        .enumerate()
        .flat_map(|(n, list)| {
            let id = format!("c{n}");
            vec![
                assistant(vec![call(&id, "TodoWrite", todos(list))]),
                tool_call(&id, "TodoWrite", todos(list)),
                result(&id, "- [ ] …"),
            ]
        })
        .collect()
}

fn plan(payloads: Vec<Payload>) -> Plan {
    state_of(payloads).plan
}

fn ids(plan: &Plan) -> Vec<&str> {
    plan.entries()
        .iter()
        .map(|entry| entry.id.as_str())
        .collect()
}

#[test]
fn a_successful_write_is_the_plan_and_a_failed_one_is_not() {
    let mut events = writes(&[&[("a", "completed"), ("b", "in_progress"), ("c", "pending")]]);
    events.extend([
        assistant(vec![call("x", "TodoWrite", todos(&[]))]),
        failure("x", "refused"),
    ]);
    let plan = plan(events);
    assert_eq!(plan.open_count(), 2);
    assert_eq!(plan.entries()[1].status, PlanStatus::InProgress);
    assert_eq!(plan.entries()[1].active_form, "doing b");
}

#[test]
fn r010_an_empty_list_empties_the_plan() {
    let plan = plan(writes(&[
        &[("a", "pending"), ("b", "pending"), ("c", "pending")],
        &[],
    ]));
    assert!(plan.is_empty());
    assert_eq!(plan.open_count(), 0);
}

#[test]
fn ids_stay_with_equal_and_reworded_entries() {
    let plan = plan(writes(&[
        &[("a", "pending"), ("b", "pending"), ("c", "pending")],
        &[
            ("c", "pending"),
            ("a", "completed"),
            ("b reworded", "pending"),
        ],
    ]));
    // `c` and `a` moved; the third place's own entry moved away, and `b` is gone.
    assert_eq!(ids(&plan)[..2], ["t3", "t1"]);
    let reworded = self::plan(writes(&[
        &[("a", "pending"), ("b", "pending")],
        &[("a", "pending"), ("b2", "pending")],
    ]));
    assert_eq!(ids(&reworded), ["t1", "t2"]);
    let grown = self::plan(writes(&[
        &[("a", "pending")],
        &[("new", "pending"), ("a", "pending")],
    ]));
    assert_eq!(ids(&grown), ["t2", "t1"]);
    let twins = self::plan(writes(&[
        &[("a", "pending"), ("a", "pending")],
        &[("a", "completed"), ("a", "pending")],
    ]));
    assert_eq!(ids(&twins), ["t1", "t2"]);
}

#[test]
fn ids_are_unique() {
    let lists: [&[(&str, &str)]; 4] = [
        &[("a", "pending"), ("b", "pending")],
        &[("x", "pending"), ("a", "pending"), ("y", "pending")],
        &[
            ("b", "pending"),
            ("b", "pending"),
            ("a", "pending"),
            ("x", "pending"),
        ],
        &[("q", "pending"), ("x", "pending"), ("b", "pending")],
    ];
    for n in 1..=lists.len() {
        let plan = plan(writes(&lists[..n]));
        let unique: std::collections::HashSet<_> = ids(&plan).into_iter().collect();
        assert_eq!(unique.len(), plan.entries().len());
    }
}

#[test]
fn r084_a_plan_that_is_done_is_gone_at_the_next_prompt() {
    let mut events = vec![turn_start(), user("go")];
    events.extend(writes(&[&[("a", "completed"), ("b", "completed")]]));
    events.push(turn_end(TurnStatus::Completed));
    assert_eq!(
        plan(events.clone()).entries().len(),
        2,
        "the last showing stays"
    );
    events.extend([turn_start(), user("something else")]);
    assert!(plan(events).is_empty());
    let mut open = writes(&[&[("a", "completed"), ("b", "pending")]]);
    open.push(user("go on"));
    assert_eq!(plan(open).entries().len(), 2);
}

#[test]
fn r086_the_person_can_empty_the_plan() {
    let mut events = writes(&[&[("a", "pending")]]);
    events.push(Payload::PlanCleared {
        by: "editor".to_owned(),
    });
    assert!(plan(events).is_empty());
}

#[test]
fn r012_a_compaction_does_not_touch_the_plan() {
    let mut events = writes(&[&[("a", "pending"), ("b", "completed")]]);
    let before = plan(events.clone());
    events.push(Payload::SessionCompacted {
        upto_seq: 2,
        summary: "sum".to_owned(),
    });
    assert_eq!(plan(events).entries(), before.entries());
}

#[test]
fn what_ran_counts_and_not_what_was_said() {
    let events = vec![
        assistant(vec![call("c", "TodoWrite", todos(&[("said", "pending")]))]),
        tool_call("c", "TodoWrite", todos(&[("ran", "pending")])),
        result("c", "ok"),
    ];
    assert_eq!(plan(events).entries()[0].content, "ran");
}

#[test]
fn arguments_that_are_no_list_change_nothing() {
    for args in [
        json!({}),
        json!({"todos": "x"}),
        json!({"todos": [{"content": "a"}]}),
        json!(null),
    ] {
        let mut events = writes(&[&[("a", "pending")]]);
        events.extend([
            assistant(vec![call("x", "TodoWrite", args)]),
            result("x", "ok"),
        ]);
        assert_eq!(plan(events).entries().len(), 1);
    }
}
