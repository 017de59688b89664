//! R040: a reloaded thread looks like the one that was left, whatever was in it.

use proptest::prelude::*;
use serde_json::json;
use terret_log::{EditorFold, EditorItem, Event, Payload, TurnStatus};

use crate::support::*;

/// What a person sees in the end: text by message, the rest but for live output.
fn seen(items: &[EditorItem]) -> (std::collections::BTreeMap<String, String>, Vec<EditorItem>) {
    let mut texts = std::collections::BTreeMap::<String, String>::new();
    let mut rest = Vec::new();
    for item in items {
        match item {
            EditorItem::AgentText { message_id, text }
            | EditorItem::AgentThought { message_id, text } => {
                texts.entry(message_id.clone()).or_default().push_str(text);
            }
            EditorItem::ToolOutput { .. } => {}
            other => rest.push(other.clone()),
        }
    }
    (texts, rest)
}

/// A step as the loop writes it: pieces, the message that they make up, calls.
fn step() -> impl Strategy<Value = Vec<Payload>> {
    (
        proptest::collection::vec("[a-zü\n ]{0,8}", 0..5),
        proptest::collection::vec("[a-z ]{1,8}", 0..3),
        proptest::collection::vec(any::<bool>(), 0..3),
        any::<bool>(),
    )
        .prop_map(|(pieces, thoughts, calls, streamed)| {
            let mut events = vec![step_start(1)];
            if streamed {
                events.extend(thoughts.iter().map(|piece| thought(piece)));
                events.extend(pieces.iter().map(|piece| chunk(piece)));
            }
            let mut parts = Vec::new();
            if !thoughts.is_empty() {
                parts.push(thinking(&thoughts.concat()));
            }
            parts.push(text(&pieces.concat()));
            for n in 0..calls.len() {
                parts.push(call(&format!("c{n}"), "Bash", json!({"n": n})));
            }
            events.push(assistant(parts));
            for (n, finished) in calls.iter().enumerate() {
                let id = format!("c{n}");
                events.push(tool_call(&id, "Bash", json!({"n": n})));
                events.push(tool_started(&id));
                events.push(Payload::ToolOutput {
                    id: id.clone(),
                    text: "out".into(),
                });
                events.push(if *finished {
                    result(&id, "ok")
                } else {
                    failure(&id, "no")
                });
            }
            events.push(step_end(1));
            events
        })
}

fn session() -> impl Strategy<Value = Vec<Event>> {
    proptest::collection::vec(proptest::collection::vec(step(), 0..3), 0..4).prop_map(|turns| {
        let mut events = vec![created()];
        for steps in turns {
            events.extend([turn_start(), user("go")]);
            events.extend(steps.into_iter().flatten());
            events.push(turn_end(TurnStatus::Completed));
        }
        numbered(events)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn r040_replay_and_live_end_up_alike(events in session(), cut in 0_usize..200) {
        let events = &events[..cut.min(events.len())];
        let live = shown(EditorFold::live(), events);
        let replay = shown(EditorFold::replay(), events);
        prop_assert_eq!(seen(&live), seen(&replay));
    }

    #[test]
    fn r040_going_live_at_any_point_changes_nothing(events in session(), cut in 0_usize..200) {
        let cut = cut.min(events.len());
        let mut fold = EditorFold::replay();
        let mut items = Vec::new();
        events[..cut].iter().for_each(|event| fold.apply(event, &mut items));
        fold.go_live(&mut items);
        events[cut..].iter().for_each(|event| fold.apply(event, &mut items));
        prop_assert_eq!(seen(&shown(EditorFold::live(), &events)), seen(&items));
    }
}
