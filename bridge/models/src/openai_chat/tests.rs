//! Requests by snapshot, answers by recorded streams.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

use proptest::prelude::*;
use serde_json::{Value, json};

use super::known;
use super::request::{Server, body};
use super::stream::Decoder;
use crate::calls::CallIds;
use crate::http::DecodeError;
use crate::message::Conversation;
use crate::provider::{StopReason, StreamEvent, ThinkingLevel, Usage};
use crate::testing::{calls_of, decode, decode_whole, every_part, request};

macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!("../../tests/fixtures/chat_", $name, ".sse"))
    };
}

fn decoder() -> Decoder {
    Decoder::new(CallIds::default())
}

fn stop_of(events: &[StreamEvent]) -> Option<StopReason> {
    match events.last() {
        Some(StreamEvent::Stop(stop)) => Some(*stop),
        _ => None,
    }
}

fn sent(server: Server, request: &crate::provider::Request) -> Value {
    serde_json::from_slice(&body("openai", server, request).unwrap()).unwrap()
}

#[test]
fn a_request_with_every_kind_of_part() {
    insta::assert_json_snapshot!(sent(Server::Other, &request("gpt-4o", every_part())));
}

/// A tool, or a model that was changed for another one, leaves images where none can be
/// seen; the server would refuse this request and all that follow.
#[test]
fn a_model_that_cannot_see_is_sent_no_image() {
    let sent = sent(Server::Other, &request("some-text-model", every_part())).to_string();
    assert!(!sent.contains("image_url"), "{sent}");
    assert_eq!(sent.matches(crate::message::NOT_SHOWN).count(), 2);
}

#[test]
fn servers_are_sent_their_own_dialect() {
    let mut request = request("m", Conversation::default());
    request.thinking = ThinkingLevel::Low;
    request.max_output = Some(100);
    let openai = sent(Server::of("https://api.openai.com/v1"), &request);
    assert_eq!(openai["max_completion_tokens"], 100);
    assert_eq!(openai["reasoning_effort"], "low");
    assert_eq!(openai.get("max_tokens"), None);
    let local = sent(Server::of("http://localhost:11434/v1"), &request);
    assert_eq!(local["max_tokens"], 100);
    assert_eq!(local.get("usage"), None);
    let router = sent(Server::of("https://openrouter.ai/api/v1"), &request);
    assert_eq!(router["usage"], json!({"include": true}));
    assert_eq!(router["stream_options"], json!({"include_usage": true}));
}

#[test]
fn what_is_known_of_models() {
    assert!(known("anthropic/claude-sonnet-4.5").images);
    assert!(known("o3").thinking && known("openai/o3-mini").thinking);
    assert_eq!(known("foo3"), crate::Capabilities::default());
    assert_eq!(known("gpt-4.1-mini").context_window, Some(1_047_576));
    assert_eq!(known("llama3.2:1b").context_window, None);
}

#[test]
fn a_text_answer_with_usage() {
    let events = decode_whole(decoder, fixture!("text"));
    assert_eq!(
        events,
        [
            StreamEvent::Text("Hallo ".to_owned()),
            StreamEvent::Text("Welt ü€😀".to_owned()),
            StreamEvent::Usage(Usage {
                input: 120,
                output: 30,
                cached_read: 64,
                thinking: 12,
                ..Usage::default()
            }),
            StreamEvent::Stop(StopReason::End),
        ]
    );
}

#[test]
fn thinking_under_any_of_its_names_is_told_once() {
    let events = decode_whole(decoder, fixture!("reasoning"));
    assert_eq!(
        events,
        [
            StreamEvent::Thinking("Hm, ".to_owned()),
            StreamEvent::Thinking("so.".to_owned()),
            StreamEvent::Thinking(" Ja.".to_owned()),
            StreamEvent::ThinkingEnd { signature: None },
            StreamEvent::Text("Gut.".to_owned()),
            StreamEvent::Usage(Usage {
                input: 120,
                output: 30,
                cached_read: 64,
                thinking: 12,
                cost: Some(0.0125),
                ..Usage::default()
            }),
            StreamEvent::Stop(StopReason::End),
        ]
    );
}

#[test]
fn r056_fragments_make_the_calls_that_were_made() {
    let given = [
        r#"call_a Read {"file_path":"a"}"#,
        r#"call_b Read {"file_path":"b"}"#,
    ];
    let first_made = [r#"call_0_0 Read {"file_path":"a"}"#, given[1]];
    let second_made = [given[0], r#"call_0_0 Read {"file_path":"b"}"#];
    let both_made = [first_made[0], r#"call_0_1 Read {"file_path":"b"}"#];
    let one_id = [
        r#"call_0 Read {"file_path":"a"}"#,
        r#"call_0_0 Read {"file_path":"b"}"#,
    ];
    for (name, body, expected) in [
        ("same index, two ids", fixture!("same_index_two_ids"), given),
        (
            "interleaved by id",
            fixture!("same_index_interleaved_by_id"),
            given,
        ),
        ("no index", fixture!("no_index"), given),
        ("no ids", fixture!("no_ids"), both_made),
        (
            "no ids and one index",
            fixture!("no_ids_one_index"),
            both_made,
        ),
        ("late id", fixture!("late_id"), first_made),
        (
            "name in each fragment",
            fixture!("name_repeated"),
            second_made,
        ),
        ("one id for all", fixture!("one_id_for_all"), one_id),
        (
            "arguments as an object",
            fixture!("arguments_as_object"),
            given,
        ),
    ] {
        let events = decode_whole(decoder, body);
        assert_eq!(calls_of(&events), expected, "{name}");
        assert_eq!(stop_of(&events), Some(StopReason::ToolUse), "{name}");
    }
    assert_eq!(
        calls_of(&decode_whole(decoder, fixture!("two_calls"))),
        [given[0], r#"call_b Grep {"pattern":"x"}"#]
    );
}

#[test]
fn r056_deltas_carry_the_id_of_their_call() {
    for body in [
        fixture!("late_id"),
        fixture!("no_index"),
        fixture!("two_calls"),
    ] {
        let events = decode_whole(decoder, body);
        for event in &events {
            let StreamEvent::ToolCallEnd(Ok(call)) = event else {
                continue;
            };
            let json: String = events
                .iter()
                .filter_map(|event| match event {
                    StreamEvent::ToolCallDelta { id, json } if *id == call.id => {
                        Some(json.as_str())
                    }
                    _ => None,
                })
                .collect();
            assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), call.args);
        }
    }
}

#[test]
fn r056_an_id_that_the_conversation_has_is_not_given_again() {
    let mut ids = CallIds::new(&every_part());
    assert_eq!(ids.assign(Some("toolu_1")), "call_2_0");
    assert_eq!(ids.assign(Some("fresh")), "fresh");
    assert_eq!(ids.assign(Some("fresh")), "call_2_1");
    assert_eq!(ids.assign(None), "call_2_2");
}

#[test]
fn r054_a_cut_inside_arguments_yields_no_call() {
    let (events, ended) = decode(decoder(), fixture!("cut_in_arguments").as_bytes(), 5);
    assert!(matches!(ended, Err(DecodeError::Unfinished)), "{ended:?}");
    assert_eq!(calls_of(&events), Vec::<String>::new());
    assert_eq!(stop_of(&events), None);
}

#[test]
fn r055_check_048_length_inside_a_call_is_an_error_for_the_model() {
    let events = decode_whole(decoder, fixture!("length_in_arguments"));
    assert_eq!(
        calls_of(&events),
        [r#"call_a Read {"file_path":"a"}"#, "call_b Write !"]
    );
    assert_eq!(stop_of(&events), Some(StopReason::Length));
}

#[test]
fn check_047_malformed_arguments_are_an_error_for_the_model_and_no_fault() {
    let events = decode_whole(decoder, fixture!("malformed_arguments"));
    assert_eq!(
        calls_of(&events),
        [r#"call_a Read {"file_path":"a"}"#, "call_b Write !"]
    );
    assert_eq!(stop_of(&events), Some(StopReason::ToolUse));
    let problem = events.iter().find_map(|event| match event {
        StreamEvent::ToolCallEnd(Err(bad)) => Some(bad.problem.clone()),
        _ => None,
    });
    insta::assert_snapshot!(problem.unwrap_or_default(), @"the arguments of `Write` cannot be used, they are not valid JSON: trailing comma at line 1 column 18; send the call again with its arguments as one JSON object");
}

#[test]
fn check_046_without_an_end_mark_no_answer_is_whole() {
    let body = fixture!("two_calls");
    let blocks: Vec<&str> = body.split_inclusive("\n\n").collect();
    let finish = blocks
        .iter()
        .position(|block| block.contains(r#""finish_reason": "tool_calls""#));
    for count in 0..=finish.unwrap() {
        let part = blocks.get(..count).unwrap().concat();
        let (events, ended) = decode(decoder(), part.as_bytes(), 64);
        assert!(
            matches!(ended, Err(DecodeError::Unfinished)),
            "after {count} events"
        );
        assert_eq!(calls_of(&events), Vec::<String>::new());
    }
    // Either mark is enough.
    let without_done = body.replace("data: [DONE]\n\n", "");
    assert_eq!(
        decode_whole(decoder, &without_done),
        decode_whole(decoder, body)
    );
    let without_reason = body.replace(
        r#""finish_reason": "tool_calls""#,
        r#""finish_reason": null"#,
    );
    assert_eq!(
        decode_whole(decoder, &without_reason),
        decode_whole(decoder, body)
    );
}

#[test]
fn r059_an_answer_of_nothing_is_an_error() {
    let (_, ended) = decode(decoder(), b"data: [DONE]\n\n", 100);
    assert!(matches!(ended, Err(DecodeError::Protocol(_))), "{ended:?}");
    let (_, ended) = decode(decoder(), b"data: oops\n\n", 100);
    assert!(matches!(ended, Err(DecodeError::Protocol(_))), "{ended:?}");
}

#[test]
fn check_164_an_error_midway_is_reported_and_keeps_what_was_said() {
    let (events, ended) = decode(decoder(), fixture!("error_midway").as_bytes(), 9);
    assert_eq!(events, [StreamEvent::Text("Half".to_owned())]);
    let Err(DecodeError::Reported(error)) = ended else {
        panic!("{ended:?}");
    };
    assert_eq!(error.stream_status(), 502);
}

#[test]
fn a_refusal_is_text_and_a_stop_of_its_own() {
    let events = decode_whole(decoder, fixture!("refusal"));
    assert_eq!(stop_of(&events), Some(StopReason::Refusal));
    assert!(events.contains(&StreamEvent::Text("do that.".to_owned())));
}

#[test]
fn an_answer_that_does_not_stream_is_read_as_well() {
    let body = json!({"choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
        "role": "assistant", "content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]},
        {"type": "text", "text": "Hi"}],
        "tool_calls": [{"id": "a", "type": "function", "function": {"name": "Read", "arguments": "{}"}}]}}]});
    let events = decode_whole(decoder, &format!("data: {body}\n\n"));
    assert_eq!(calls_of(&events), ["a Read {}"]);
    assert!(events.contains(&StreamEvent::Text("Hi".to_owned())));
    assert!(events.contains(&StreamEvent::Thinking("Hm.".to_owned())));
}

proptest! {
    /// Whatever fragments come, each call that begins ends exactly once, under its own id.
    #[test]
    fn r056_every_call_ends_once(fragments in prop::collection::vec(
        (prop::option::of(0i64..3), prop::option::of("[ab]"), prop::option::of("[RW]"), "[{}a\":1,]{0,5}"),
        0..12,
    )) {
        let mut body = String::new();
        for (index, id, name, json) in &fragments {
            let fragment = json!({"index": index, "id": id, "function": {"name": name, "arguments": json}});
            let chunk = json!({"choices": [{"delta": {"tool_calls": [fragment]}}]});
            body.push_str(&format!("data: {chunk}\n\n"));
        }
        body.push_str("data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n");
        let events = decode_whole(decoder, &body);
        let mut began = Vec::new();
        let mut ended = Vec::new();
        for event in events {
            match event {
                StreamEvent::ToolCallStart { id, .. } => began.push(id),
                StreamEvent::ToolCallEnd(Ok(call)) => ended.push(call.id),
                StreamEvent::ToolCallEnd(Err(bad)) => ended.push(bad.id),
                _ => {}
            }
        }
        began.sort();
        ended.sort();
        prop_assert!(began.windows(2).all(|pair| pair[0] != pair[1]));
        prop_assert_eq!(began, ended);
    }
}

/// An id stands in every event and frame of its call, so a server may not make it long.
#[test]
fn an_endless_id_is_replaced() {
    let mut ids = CallIds::default();
    assert_eq!(ids.assign(Some("call-1")), "call-1");
    assert_eq!(ids.assign(Some(&"x".repeat(100_000))), "call_0_0");
}
