//! What an editor is shown: live, in a replay, and after a crash.

use serde_json::json;
use terret_log::{EditorFold, EditorItem, InjectedBy, Payload, PlanEntry, PromptBlock, TurnStatus};

use crate::plan::writes;
use crate::support::*;

fn agent_texts(items: &[EditorItem]) -> Vec<(String, String)> {
    let mut texts: Vec<(String, String)> = Vec::new();
    for item in items {
        if let EditorItem::AgentText { message_id, text }
        | EditorItem::AgentThought { message_id, text } = item
        {
            match texts.last_mut() {
                Some((last, whole)) if last == message_id => whole.push_str(text),
                _ => texts.push((message_id.clone(), text.clone())),
            }
        }
    }
    texts
}

fn plans(items: &[EditorItem]) -> Vec<&Vec<PlanEntry>> {
    items
        .iter()
        .filter_map(|item| match item {
            EditorItem::Plan(entries) => Some(entries),
            _ => None,
        })
        .collect()
}

#[test]
fn live_shows_each_piece_and_a_replay_whole_messages_under_the_same_ids() {
    let events = numbered(golden_turn());
    let live = shown(EditorFold::live(), &events);
    let replay = shown(EditorFold::replay(), &events);
    assert_eq!(agent_texts(&live), agent_texts(&replay));
    assert_eq!(
        agent_texts(&live),
        [
            ("m3".to_owned(), "on it".to_owned()),
            ("m11".to_owned(), "done".to_owned())
        ]
    );
    let pieces = |items: &[EditorItem]| {
        items
            .iter()
            .filter(|item| matches!(item, EditorItem::AgentText { .. }))
            .count()
    };
    assert_eq!((pieces(&live), pieces(&replay)), (3, 2));
}

#[test]
fn a_message_adds_only_what_was_not_streamed() {
    let events = numbered(vec![
        step_start(1),
        thought("let me "),
        chunk("Hel"),
        assistant(vec![thinking("let me see"), text("Hello"), text(" there")]),
        step_start(2),
        says("unstreamed"),
    ]);
    let live = agent_texts(&shown(EditorFold::live(), &events));
    let flat = |id: &str| -> String {
        live.iter()
            .filter(|(found, _)| found == id)
            .map(|(_, text)| text.as_str())
            .collect()
    };
    assert_eq!(flat("m1"), "let me see");
    assert_eq!(flat("m2"), "Hello there");
    assert_eq!(flat("m5"), "unstreamed");
}

#[test]
fn a_torn_turn_shows_as_it_stood() {
    let events = numbered(vec![
        turn_start(),
        step_start(1),
        user("go"),
        thought("hm"),
        chunk("half "),
        chunk("an answer"),
    ]);
    let replay = shown(EditorFold::replay(), &events);
    assert_eq!(
        agent_texts(&replay),
        [
            ("m3".into(), "hm".into()),
            ("m4".into(), "half an answer".into())
        ]
    );
    let events = numbered(vec![
        turn_start(),
        step_start(1),
        assistant(vec![call("c", "Bash", json!({"command": "make"}))]),
        tool_call("c", "Bash", json!({"command": "make"})),
        tool_started("c"),
        Payload::ToolOutput {
            id: "c".into(),
            text: "cc ".into(),
        },
        Payload::ToolOutput {
            id: "c".into(),
            text: "a.c".into(),
        },
    ]);
    let replay = shown(EditorFold::replay(), &events);
    assert_eq!(
        replay.last(),
        Some(&EditorItem::ToolOutput {
            id: "c".into(),
            text: "cc a.c".into()
        })
    );
    assert_eq!(
        replay
            .iter()
            .filter(|item| matches!(item, EditorItem::ToolCall { .. }))
            .count(),
        1,
        "r078: sent once"
    );
}

#[test]
fn output_with_a_result_is_not_replayed() {
    let events = numbered(vec![
        turn_start(),
        assistant(vec![call("c", "Bash", json!({}))]),
        Payload::ToolOutput {
            id: "c".into(),
            text: "noise".into(),
        },
        result("c", "done"),
    ]);
    let is_output = |item: &EditorItem| matches!(item, EditorItem::ToolOutput { .. });
    assert!(!shown(EditorFold::replay(), &events).iter().any(is_output));
    assert!(shown(EditorFold::live(), &events).iter().any(is_output));
}

#[test]
fn no_card_looks_as_if_it_ran_when_its_turn_is_over() {
    let events = numbered(vec![
        turn_start(),
        assistant(vec![
            call("a", "Bash", json!({})),
            call("b", "Bash", json!({})),
        ]),
        result("b", "done"),
        turn_end(TurnStatus::Failed),
    ]);
    for fold in [EditorFold::live(), EditorFold::replay()] {
        let items = shown(fold, &events);
        let results: Vec<_> = items
            .iter()
            .filter_map(|item| match item {
                EditorItem::ToolResult { id, error, .. } => Some((id.as_str(), error.is_some())),
                _ => None,
            })
            .collect();
        assert_eq!(results, [("b", false), ("a", true)]);
        assert!(matches!(
            items.last(),
            Some(EditorItem::TurnEnded {
                status: TurnStatus::Failed,
                ..
            })
        ));
    }
}

#[test]
fn r078_a_call_is_shown_once_and_before_its_request() {
    let args = json!({"command": "make"});
    let events = numbered(vec![
        turn_start(),
        assistant(vec![call("c", "Bash", args.clone())]),
        tool_call("c", "Bash", args.clone()),
        asked("r", "c"),
    ]);
    let items = shown(EditorFold::live(), &events);
    let place = |wanted: fn(&EditorItem) -> bool| items.iter().position(wanted).unwrap();
    assert!(
        place(|item| matches!(item, EditorItem::ToolCall { .. }))
            < place(|item| matches!(item, EditorItem::ApprovalRequested { .. }))
    );
    assert_eq!(
        items
            .iter()
            .filter(|item| matches!(item, EditorItem::ToolCall { .. }))
            .count(),
        1
    );
    let rewritten = numbered(vec![
        assistant(vec![call("c", "Bash", args)]),
        tool_call("c", "Bash", json!({"command": "make -n"})),
    ]);
    assert_eq!(
        shown(EditorFold::live(), &rewritten).len(),
        2,
        "arguments that a hook rewrote are shown"
    );
}

#[test]
fn r011_a_plan_is_shown_once_before_its_result() {
    let events = numbered(writes(&[
        &[("a", "pending"), ("b", "pending")],
        &[("a", "pending"), ("b", "pending")],
    ]));
    for fold in [EditorFold::live(), EditorFold::replay()] {
        let items = shown(fold, &events);
        assert_eq!(plans(&items).len(), 1, "an equal list is no news");
        let plan = items
            .iter()
            .position(|item| matches!(item, EditorItem::Plan(_)))
            .unwrap();
        assert!(matches!(items[plan + 1], EditorItem::ToolResult { .. }));
    }
}

#[test]
fn r084_an_empty_plan_precedes_the_first_content_of_the_next_turn() {
    let mut events = vec![turn_start(), user("go")];
    events.extend(writes(&[&[("a", "completed")]]));
    events.extend([
        turn_end(TurnStatus::Completed),
        turn_start(),
        step_start(1),
        user("else"),
        says("ok"),
    ]);
    let items = shown(EditorFold::live(), &numbered(events));
    assert_eq!(plans(&items).last().unwrap().len(), 0);
    let emptied = items
        .iter()
        .rposition(|item| matches!(item, EditorItem::Plan(_)))
        .unwrap();
    assert!(matches!(items[emptied + 1], EditorItem::UserText { .. }));
}

#[test]
fn steers_and_commands_are_shown_and_our_own_lines_are_not() {
    let blocks = vec![PromptBlock::ResourceLink {
        uri: "file:///a".into(),
        name: "a".into(),
    }];
    let events = numbered(vec![
        injected("steered", InjectedBy::Steer),
        injected("a job ended", InjectedBy::Terret),
        Payload::CommandRun {
            text: "/plan".into(),
        },
        Payload::UserMessage {
            text: "see a".into(),
            images: vec![],
            blocks: blocks.clone(),
        },
    ]);
    let items = shown(EditorFold::replay(), &events);
    let plain = |text: &str| vec![PromptBlock::Text { text: text.into() }];
    assert_eq!(
        items,
        [
            EditorItem::UserText {
                message_id: "m0".into(),
                blocks: plain("steered")
            },
            EditorItem::UserText {
                message_id: "m2".into(),
                blocks: plain("/plan")
            },
            EditorItem::UserText {
                message_id: "m3".into(),
                blocks
            },
        ]
    );
}

#[test]
fn a_replay_that_reaches_the_present_goes_on_live() {
    let events = numbered(vec![
        turn_start(),
        step_start(1),
        chunk("one "),
        chunk("two "),
        chunk("three"),
        says("one two three"),
    ]);
    for cut in 0..=events.len() {
        let mut fold = EditorFold::replay();
        let mut items = Vec::new();
        events[..cut]
            .iter()
            .for_each(|event| fold.apply(event, &mut items));
        fold.go_live(&mut items);
        events[cut..]
            .iter()
            .for_each(|event| fold.apply(event, &mut items));
        fold.finish(&mut items);
        assert_eq!(
            agent_texts(&items),
            [("m2".to_owned(), "one two three".to_owned())],
            "cut at {cut}"
        );
    }
}
