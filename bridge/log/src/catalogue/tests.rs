//! The table says what the events are.

#![expect(
    clippy::disallowed_methods,
    reason = "the test compares the page, or writes it when told to"
)]
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on is to fail"
)]

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{catalogue, events_page};
use crate::event::Payload;

/// One payload of each type with all fields, and one with only those that must be.
fn samples() -> Vec<(&'static str, Value, Value)> {
    let blob = "a".repeat(64);
    let image = json!({"mime_type": "image/png", "blob": blob});
    let change = json!({"path": "/a", "before": null, "after": blob});
    let block = json!({"type": "text", "text": "x"});
    let input = json!({"text": "x", "images": [image], "blocks": [block]});
    let mut injected = input.clone();
    injected["source"] = json!("terret");
    let same = |name, value: Value| (name, value.clone(), value);
    vec![
        (
            "session/created",
            json!({"parent_id": "a", "root_id": "a", "depth": 1, "call_id": "c", "cwd": "/", "additional_directories": ["/b"]}),
            json!({"parent_id": null, "cwd": "/"}),
        ),
        same("session/forked", json!({"from": "a", "boundary": 1})),
        same("session/titled", json!({"title": "t"})),
        same("session/compacted", json!({"upto_seq": 1, "summary": "s"})),
        same("turn/start", json!({"agent": "a"})),
        (
            "turn/end",
            json!({"status": "output_limit", "reason": "r"}),
            json!({"status": "completed"}),
        ),
        same("step/start", json!({"n": 1, "model": "m"})),
        (
            "step/end",
            json!({"n": 1, "usage": {"prompt_tokens": 1, "completion_tokens": 2}}),
            json!({"n": 1}),
        ),
        ("user/message", input, json!({"text": "x"})),
        ("context/injected", injected, json!({"text": "x"})),
        same("assistant/chunk", json!({"text": "x"})),
        same("assistant/thought", json!({"text": "x"})),
        (
            "assistant/message",
            json!({"parts": [{"type": "text", "text": "x"}], "partial": true}),
            json!({"parts": []}),
        ),
        same("tool/call", json!({"id": "c", "name": "n", "args": {}})),
        (
            "tool/started",
            json!({"id": "c", "allowed": {"how": "rule", "layer": "project", "rule": "Bash(ls)"}}),
            json!({"id": "c"}),
        ),
        same("tool/output", json!({"id": "c", "text": "x"})),
        (
            "tool/result",
            json!({"id": "c", "content": "x", "error": null, "images": [image]}),
            json!({"id": "c", "content": null, "error": "x"}),
        ),
        same(
            "file/seen",
            json!({"call_id": "c", "path": "/a", "hash": "h"}),
        ),
        same("file/changed", json!({"call_id": "c", "change": change})),
        (
            "job/started",
            json!({"id": "j", "call_id": "c", "command": "make", "description": "d", "keep": true}),
            json!({"id": "j", "call_id": "c", "command": "make"}),
        ),
        (
            "job/progress",
            json!({"id": "j", "call_id": "c", "tail": "x", "written": 1, "notes": ["n"]}),
            json!({"id": "j", "call_id": "c", "tail": "x", "written": 1}),
        ),
        (
            "job/collected",
            json!({"call_id": "c", "id": "j", "upto": 1, "ended": true}),
            json!({"call_id": "c", "id": "j", "upto": 1}),
        ),
        (
            "job/ended",
            json!({"id": "j", "call_id": "c", "outcome": {"how": "exited", "status": 1}, "ran_for": 1,
                   "written": 2, "dropped": 1, "tail": "x", "notes": ["n"]}),
            json!({"id": "j", "call_id": "c", "outcome": {"how": "stopped"}, "ran_for": 1, "written": 2}),
        ),
        (
            "approval/requested",
            json!({"id": "a", "call_id": "c", "name": "n", "args": {}, "title": "t", "reason": "r",
                   "preview": [change], "offered_rule": "Bash", "stage": "escalation"}),
            json!({"id": "a", "call_id": "c", "name": "n", "args": {}, "reason": "r"}),
        ),
        (
            "approval/resolved",
            json!({"id": "a", "call_id": "c", "verdict": "denied", "reason": "r", "by": "editor",
                   "scope": "project"}),
            json!({"id": "a", "call_id": "c", "verdict": "approved", "by": "editor"}),
        ),
        same("policy/updated", json!({"patterns": ["*"]})),
        (
            "rule/added",
            json!({"id": "r", "rule": "Bash", "effect": "allow", "by": "editor", "approval": "a",
                   "expires": 1}),
            json!({"id": "r", "rule": "Bash", "effect": "allow", "by": "editor"}),
        ),
        same("rule/removed", json!({"id": "r", "by": "editor"})),
        same(
            "request/frame",
            json!({"system": "s", "tools": [{"name": "n", "description": "d", "parameters": {}}]}),
        ),
        same(
            "option/set",
            json!({"option": "mode", "value": "ask", "by": "editor"}),
        ),
        same("roots/set", json!({"additional_directories": ["/a"]})),
        same("command/run", json!({"text": "/plan"})),
        same("plan/cleared", json!({"by": "editor"})),
        same("notice/shown", json!({"severity": "info", "text": "x"})),
        same(
            "log/repaired",
            json!({"kept_aside": "s.torn-1", "dropped_bytes": 3}),
        ),
    ]
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect()
}

#[test]
fn the_table_lists_each_type_once_with_its_fields() {
    let samples = samples();
    let names: Vec<_> = samples.iter().map(|(name, ..)| *name).collect();
    assert_eq!(
        names,
        catalogue()
            .iter()
            .map(|event| event.name)
            .collect::<Vec<_>>()
    );
    for ((name, full, least), event) in samples.iter().zip(catalogue()) {
        let all: BTreeSet<&str> = event.fields.iter().map(|field| field.name).collect();
        let must: BTreeSet<&str> = event
            .fields
            .iter()
            .filter(|field| !field.optional)
            .map(|field| field.name)
            .collect();
        assert_eq!(keys(full), all, "{name}");
        assert_eq!(keys(least), must, "{name}");
        for sample in [full, least] {
            let payload = Payload::from_json(name, sample.to_string().as_bytes()).unwrap();
            assert_eq!(payload.type_name(), *name);
            let written = serde_json::to_value(&payload).unwrap();
            assert_eq!(written["type"], **name);
            let written = keys(&written["payload"])
                .iter()
                .map(|key| (*key).to_owned())
                .collect::<BTreeSet<_>>();
            assert!(
                written.iter().all(|key| all.contains(key.as_str())),
                "{name}: {written:?}"
            );
            if sample == full {
                assert_eq!(written.len(), all.len(), "{name} writes all that it holds");
            }
        }
        for field in &must {
            let mut without = least.clone();
            without.as_object_mut().unwrap().remove(*field);
            // Serde reads a missing nullable field as null; all others must be there.
            if !least[*field].is_null()
                && full[*field] != Value::Null
                && !matches!(*field, "boundary" | "error" | "content")
            {
                assert!(
                    Payload::from_json(name, without.to_string().as_bytes()).is_err(),
                    "{name} without {field}"
                );
            }
        }
    }
    assert_eq!(catalogue().iter().filter(|event| !event.ours).count(), 17);
}

#[test]
fn events_page_is_current() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("EVENTS.md");
    let page = events_page();
    if std::env::var_os("TERRET_BLESS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == page,
        "EVENTS.md is old; renew it with `TERRET_BLESS=1 cargo test -p terret-log events_page_is_current`"
    );
}
