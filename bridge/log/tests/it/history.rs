//! Checks 21 to 28, and the repairs that keep every request valid.

use serde_json::json;
use sha2::{Digest as _, Sha256};
use terret_log::{BlobId, ImageRef, InjectedBy, Part, Payload, SessionState, TurnStatus, Verdict};

use crate::support::*;

fn compacted(upto_seq: u64, summary: &str) -> Payload {
    Payload::SessionCompacted {
        upto_seq,
        summary: summary.to_owned(),
    }
}

/// What every provider asks of a conversation.
pub(crate) fn assert_valid(state: &SessionState) {
    let mut owed: Vec<String> = Vec::new();
    for message in state.history.messages() {
        assert!(!message.parts.is_empty(), "an empty message");
        let results: Vec<&String> = message
            .parts
            .iter()
            .filter_map(|part| match part {
                Part::ToolResult { id, .. } => Some(id),
                _ => None,
            })
            .collect();
        if results.is_empty() {
            assert!(
                owed.is_empty(),
                "{owed:?} have no result before {message:?}"
            );
        }
        for id in results {
            let place = owed
                .iter()
                .position(|owed| owed == id)
                .expect("a result without its call");
            owed.remove(place);
        }
        for part in &message.parts {
            match part {
                Part::Text { text } => assert!(!text.trim().is_empty(), "a blank text part"),
                Part::ToolCall { id, name, args } => {
                    assert!(terret_log::projection::is_tool_name(name), "{name}");
                    assert!(args.is_object());
                    owed.push(id.clone());
                }
                _ => {}
            }
        }
    }
}

#[test]
fn check_021_inputs_project_as_user_messages_in_log_order() {
    let state = state_of(vec![
        created(),
        turn_start(),
        user("a"),
        injected("b", InjectedBy::Steer),
        injected("c", InjectedBy::Terret),
        user("d"),
    ]);
    assert_eq!(
        conversation(&state),
        ["User: a", "User: b", "User: c", "User: d"]
    );
}

#[test]
fn check_021_images_follow_the_text() {
    let image = ImageRef {
        mime_type: "image/png".to_owned(),
        blob: BlobId::of(b"png"),
    };
    let payload = Payload::UserMessage {
        text: "look".to_owned(),
        images: vec![image.clone()],
        blocks: vec![],
    };
    assert_eq!(
        conversation(&state_of(vec![payload])),
        ["User: look + [image/png]"]
    );
    let only = Payload::UserMessage {
        text: "  ".to_owned(),
        images: vec![image],
        blocks: vec![],
    };
    assert_eq!(conversation(&state_of(vec![only])), ["User: [image/png]"]);
}

#[test]
fn check_022_the_rest_never_projects() {
    let state = state_of(vec![
        created(),
        turn_start(),
        step_start(1),
        chunk("x"),
        thought("x"),
        tool_call("c", "Read", json!({})),
        tool_started("c"),
        asked("a", "c"),
        resolved("a", "c", Verdict::Approved),
        Payload::PolicyUpdated {
            patterns: vec!["*".to_owned()],
        },
        Payload::SessionTitled {
            title: "t".to_owned(),
        },
        Payload::CommandRun {
            text: "/plan".to_owned(),
        },
        Payload::ToolOutput {
            id: "c".to_owned(),
            text: "x".to_owned(),
        },
        step_end(1),
        turn_end(TurnStatus::Completed),
    ]);
    assert!(state.history.messages().is_empty());
    assert_eq!(state.history.digest(), [0; 32]);
    assert_eq!(state.history.generation(), 0);
}

#[test]
fn check_023_each_result_is_a_tool_message_of_its_own() {
    let state = state_of(vec![
        user("go"),
        assistant(vec![
            call("a", "Read", json!({})),
            call("b", "Bash", json!({"command": "x"})),
        ]),
        failure("b", "no such file"),
        result("a", "fine"),
    ]);
    assert_eq!(
        conversation(&state),
        [
            "User: go",
            "Assistant: Read#a{} + Bash#b{\"command\":\"x\"}",
            "Tool: #b error no such file",
            "Tool: #a ok fine"
        ]
    );
}

#[test]
fn check_024_after_a_compaction_come_summary_and_what_followed() {
    // 0 created, 1 user, 2 assistant, 3 user, 4 assistant, 5 compacted.
    let state = state_of(vec![
        created(),
        user("old"),
        says("old answer"),
        user("recent"),
        says("recent answer"),
        compacted(2, "the summary"),
        user("new"),
    ]);
    assert_eq!(
        conversation(&state),
        [
            "User: the summary",
            "User: recent",
            "Assistant: recent answer",
            "User: new"
        ]
    );
    assert_eq!(state.history.generation(), 1);
}

#[test]
fn check_025_of_two_compactions_only_the_latest_applies() {
    let state = state_of(vec![
        user("a"),
        says("b"),
        compacted(1, "first"),
        user("c"),
        says("d"),
        compacted(3, "second"),
        user("e"),
    ]);
    assert_eq!(
        conversation(&state),
        ["User: second", "Assistant: d", "User: e"]
    );
    assert_eq!(state.history.generation(), 2);
}

#[test]
fn a_compaction_between_a_call_and_its_result_leaves_no_orphan() {
    let state = state_of(vec![
        turn_start(),
        user("go"),
        assistant(vec![call("a", "Read", json!({}))]),
        result("a", "fine"),
        compacted(2, "sum"),
        user("next"),
    ]);
    assert_eq!(conversation(&state), ["User: sum", "User: next"]);
    // And when the result only comes afterwards.
    let state = state_of(vec![
        turn_start(),
        user("go"),
        assistant(vec![call("a", "Read", json!({}))]),
        compacted(2, "sum"),
        result("a", "fine"),
        user("next"),
    ]);
    assert_eq!(conversation(&state), ["User: sum", "User: next"]);
    // But a call that stays keeps its result.
    let state = state_of(vec![
        turn_start(),
        user("go"),
        assistant(vec![call("a", "Read", json!({}))]),
        compacted(1, "sum"),
        result("a", "fine"),
    ]);
    assert_eq!(
        conversation(&state),
        ["User: sum", "Assistant: Read#a{}", "Tool: #a ok fine"]
    );
}

#[test]
fn check_027_the_digest_after_a_reload_is_that_of_the_live_fold() {
    let home = home();
    let mut live = SessionState::default();
    let mut log = home.store.create(id("s")).unwrap();
    for payload in std::iter::once(created()).chain(golden_turn()).chain([
        compacted(6, "sum"),
        turn_start(),
        user("x"),
    ]) {
        live.apply(&log.append(payload).unwrap());
        assert_eq!(
            home.store.load(&id("s")).unwrap().history.digest(),
            live.history.digest()
        );
    }
}

#[test]
fn check_026_a_message_that_is_not_logged_changes_the_digest() {
    let with = state_of(vec![user("a"), user("b")]);
    let without = state_of(vec![user("a")]);
    let otherwise = state_of(vec![user("ab")]);
    assert_ne!(with.history.digest(), without.history.digest());
    assert_ne!(with.history.digest(), otherwise.history.digest());
}

/// Written out from the documented rendering, so that it holds for other programs.
#[test]
fn the_digest_is_the_documented_one() {
    fn message(fields: &[&str]) -> [u8; 32] {
        let mut bytes = Vec::new();
        for field in fields {
            bytes.extend_from_slice(&(field.len() as u64).to_le_bytes());
            bytes.extend_from_slice(field.as_bytes());
        }
        Sha256::digest(bytes).into()
    }
    let blob = BlobId::of(b"png");
    let image = ImageRef {
        mime_type: "image/png".to_owned(),
        blob: blob.clone(),
    };
    let state = state_of(vec![
        Payload::UserMessage {
            text: "look".to_owned(),
            images: vec![image.clone()],
            blocks: vec![],
        },
        assistant(vec![
            thinking("hm"),
            text("on it"),
            call("c", "Read", json!({"b": [1, 2.5], "a": "ü"})),
        ]),
        Payload::ToolResult {
            id: "c".to_owned(),
            content: Some("ok".to_owned()),
            error: None,
            images: vec![image],
        },
        user("more"),
    ]);
    let args = json!({"b": [1, 2.5], "a": "ü"}).to_string();
    let messages = [
        message(&["user", "text", "look", "image", "image/png", blob.as_str()]),
        message(&[
            "assistant",
            "thinking",
            "hm",
            "sig",
            "scripted",
            "text",
            "on it",
            "call",
            "c",
            "Read",
            args.as_str(),
        ]),
        message(&[
            "tool",
            "result",
            "c",
            "ok",
            "ok",
            "image",
            "image/png",
            blob.as_str(),
        ]),
        message(&["user", "text", "more"]),
    ];
    let expected = messages.iter().fold([0; 32], |digest: [u8; 32], message| {
        Sha256::new()
            .chain_update(digest)
            .chain_update(message)
            .finalize()
            .into()
    });
    assert_eq!(state.history.digest(), expected);
}

#[test]
fn check_028_all_parts_round_trip_and_an_unknown_tag_errors() {
    let image = ImageRef {
        mime_type: "image/png".to_owned(),
        blob: BlobId::of(b"png"),
    };
    let parts = vec![
        text("a\u{0}\u{1f600}\n"),
        thinking("hm"),
        Part::Thinking {
            text: String::new(),
            signature: None,
            provider: "p".to_owned(),
        },
        call(
            "c",
            "Read",
            json!({"a": [null, true, -1, 1.5e-7, 18_446_744_073_709_551_615_u64], "": {}}),
        ),
        Part::ToolResult {
            id: "c".to_owned(),
            content: Some("x".to_owned()),
            error: None,
            images: vec![image.clone()],
        },
        Part::ToolResult {
            id: "c".to_owned(),
            content: None,
            error: Some("x".to_owned()),
            images: vec![],
        },
        Part::Image { image },
    ];
    let home = home();
    home.session("s", vec![assistant(parts.clone())]);
    assert_eq!(home.events("s")[1].payload, assistant(parts));
    for bad in [
        r#"{"type":"audio","text":"x"}"#,
        r#"{"text":"x"}"#,
        r#"{"type":"text","text":"x","more":1}"#,
    ] {
        assert!(serde_json::from_str::<Part>(bad).is_err(), "{bad}");
    }
}

#[test]
fn check_029_the_frame_has_a_digest_that_any_change_changes() {
    use terret_log::{RequestFrame, ToolSchema};
    let tool = |description: &str, parameters| ToolSchema {
        name: "Read".to_owned(),
        description: description.to_owned(),
        parameters,
    };
    let frame =
        |system: &str, tools: Vec<ToolSchema>| RequestFrame::new(system.to_owned(), tools).digest;
    let held = frame("s", vec![tool("d", json!({"type": "object"}))]);
    assert_ne!(
        held,
        frame("s ", vec![tool("d", json!({"type": "object"}))])
    );
    assert_ne!(held, frame("s", vec![tool("e", json!({"type": "object"}))]));
    assert_ne!(held, frame("s", vec![tool("d", json!({"type": "array"}))]));
    assert_ne!(held, frame("s", vec![]));
    let tools = vec![tool("d", json!({"type": "object"}))];
    let state = state_of(vec![
        created(),
        Payload::RequestFrame {
            system: "s".to_owned(),
            tools: tools.clone(),
        },
    ]);
    let kept = state.frame.unwrap();
    assert_eq!(
        (
            kept.digest,
            kept.content.system.as_str(),
            &kept.content.tools
        ),
        (held, "s", &tools)
    );
}

#[test]
fn g26_a_call_without_a_result_gets_one_when_its_turn_ends() {
    let state = state_of(vec![
        turn_start(),
        user("go"),
        assistant(vec![
            call("a", "Read", json!({})),
            call("b", "Read", json!({})),
        ]),
        result("b", "fine"),
        turn_end(TurnStatus::Failed),
        result("a", "too late"),
        turn_start(),
        user("next"),
    ]);
    let lines = conversation(&state);
    assert_eq!(lines.len(), 5, "{lines:?}");
    assert!(
        lines[3].starts_with("Tool: #a error the call was interrupted"),
        "{lines:?}"
    );
    assert_valid(&state);
}

#[test]
fn g26_also_without_the_end_of_its_turn() {
    for next in [user("next"), says("next"), turn_start()] {
        let mut events = vec![
            turn_start(),
            user("go"),
            assistant(vec![call("a", "Read", json!({}))]),
            next,
        ];
        events.push(user("last"));
        let state = state_of(events);
        assert_valid(&state);
        assert!(conversation(&state)[2].starts_with("Tool: #a error "));
    }
}

#[test]
fn input_that_comes_before_a_result_stands_behind_it() {
    let state = state_of(vec![
        turn_start(),
        user("go"),
        assistant(vec![call("a", "Read", json!({}))]),
        injected("hurry", InjectedBy::Steer),
        result("a", "fine"),
    ]);
    assert_eq!(
        conversation(&state),
        [
            "User: go",
            "Assistant: Read#a{}",
            "Tool: #a ok fine",
            "User: hurry"
        ]
    );
}

#[test]
fn r057_names_and_arguments_that_no_provider_takes_are_replaced() {
    let line = format!("rm -rf {}", "x ".repeat(120));
    let state = state_of(vec![
        user("go"),
        assistant(vec![
            text(""),
            text(" \n"),
            call("a", &line, json!({})),
            call("b", "", json!([1])),
        ]),
        failure("a", "no such tool"),
        failure("b", "no such tool"),
        user("on"),
    ]);
    assert_valid(&state);
    assert_eq!(
        conversation(&state)[1],
        "Assistant: invalid_tool_name#a{} + invalid_tool_name#b{}"
    );
}

#[test]
fn a_message_of_nothing_contributes_nothing() {
    let empty = Payload::AssistantMessage {
        parts: vec![],
        partial: true,
    };
    let state = state_of(vec![user("go"), empty, says(" "), user(""), user("on")]);
    assert_eq!(conversation(&state), ["User: go", "User: on"]);
}

#[test]
fn a_refused_turn_leaves_the_history_and_no_other_does() {
    let before = vec![
        turn_start(),
        user("fine"),
        says("yes"),
        turn_end(TurnStatus::Completed),
    ];
    let refused = vec![
        turn_start(),
        user("bad"),
        says("no"),
        turn_end(TurnStatus::Refused),
    ];
    let kept = state_of(before.clone());
    let state = state_of([before, refused].concat());
    assert_eq!(conversation(&state), conversation(&kept));
    assert_eq!(state.history.digest(), kept.history.digest());
    assert_eq!(state.history.generation(), 1);
}

#[test]
fn a_refused_turn_does_not_take_the_repairs_of_the_turn_before() {
    let state = state_of(vec![
        turn_start(),
        user("go"),
        assistant(vec![call("a", "Read", json!({}))]),
        turn_start(),
        user("bad"),
        turn_end(TurnStatus::Refused),
        turn_end(TurnStatus::Refused),
        user("on"),
    ]);
    assert_valid(&state);
    assert_eq!(conversation(&state).len(), 4);
}

#[test]
fn equal_call_ids_in_one_message_each_get_their_result() {
    let state = state_of(vec![
        user("go"),
        assistant(vec![
            call("a", "Read", json!({})),
            call("a", "Read", json!({"x": 1})),
        ]),
        result("a", "one"),
        result("a", "two"),
        result("a", "three"),
    ]);
    assert_eq!(conversation(&state).len(), 4);
    assert_valid(&state);
}

#[test]
fn a_step_costs_the_same_at_any_length() {
    // What was pushed before is never touched again: the same allocations stay.
    let events = numbered(vec![user("a"), says("b"), user("c")]);
    let mut state = SessionState::default();
    events.iter().take(2).for_each(|event| state.apply(event));
    let before: Vec<_> = state.history.messages().to_vec();
    state.apply(&events[2]);
    assert!(
        before
            .iter()
            .zip(state.history.messages())
            .all(|(old, new)| std::sync::Arc::ptr_eq(old, new))
    );
}
