//! Requests by snapshot, answers by recorded streams.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

use serde_json::Value;

use super::request::{ModelAge, body};
use super::stream::Decoder;
use crate::calls::CallIds;
use crate::http::DecodeError;
use crate::message::{Conversation, Image, Message, Part, Role, ToolCall};
use crate::provider::{Request, StopReason, StreamEvent, ThinkingLevel, Usage};
use crate::testing::{calls_of, decode, decode_whole, every_part, request};

fn decoder() -> Decoder {
    Decoder::new(CallIds::default())
}

fn sent(request: &Request) -> Value {
    serde_json::from_slice(&body("anthropic", request).unwrap()).unwrap()
}

#[test]
fn a_request_with_every_kind_of_part() {
    let mut request = request("claude-sonnet-4-5", every_part());
    request.thinking = ThinkingLevel::Medium;
    insta::assert_json_snapshot!(sent(&request));
}

#[test]
fn without_thinking_no_thinking_is_sent_back() {
    let request = request("claude-sonnet-4-5", every_part());
    let sent = sent(&request);
    assert!(!sent.to_string().contains("c2ln"));
    assert_eq!(sent.get("thinking"), None);
}

#[test]
fn a_loop_that_began_without_thinking_goes_on_without() {
    let call = ToolCall {
        id: "c1".to_owned(),
        name: "Read".to_owned(),
        args: serde_json::json!({}),
    };
    let conversation: Conversation = [
        Message::user("hi"),
        Message {
            role: Role::Assistant,
            parts: vec![Part::ToolCall(call)],
        },
    ]
    .into_iter()
    .map(std::sync::Arc::new)
    .collect();
    let mut request = request("claude-sonnet-4-5", conversation);
    request.thinking = ThinkingLevel::High;
    assert_eq!(sent(&request).get("thinking"), None);
}

#[test]
fn an_image_that_the_api_would_refuse_is_named() {
    let image = |mime_type: &str, base64: &str| {
        Part::Image(Image {
            mime_type: mime_type.to_owned(),
            base64: base64.into(),
            digest: String::new(),
        })
    };
    let large = "A".repeat(5 * 1024 * 1024 + 4);
    let conversation = [Message {
        role: Role::User,
        parts: vec![
            image("image/svg+xml", "AAAA"),
            image("image/png", ""),
            image("image/png", &large),
            image("image/png", "AAAA"),
        ],
    }]
    .into_iter()
    .map(std::sync::Arc::new)
    .collect();
    let sent = sent(&request("claude-sonnet-4-5", conversation));
    let kinds: Vec<&str> = sent["messages"][0]["content"]
        .as_array()
        .unwrap()
        .iter()
        .map(|block| block["type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["text", "text", "text", "image"]);
}

/// The API refuses an answer whose last block is thinking, and would refuse every later
/// request of the session with it.
#[test]
fn no_answer_ends_with_its_thinking() {
    let thinking = |text: &str, signature: &str| Part::Thinking {
        text: text.to_owned(),
        signature: Some(signature.to_owned()),
        provider: "anthropic".to_owned(),
    };
    let answer = |parts: Vec<Part>| Message {
        role: Role::Assistant,
        parts,
    };
    let conversation: Conversation = [
        Message::user("one"),
        answer(vec![
            thinking("cut by the length limit", "s1"),
            thinking("", "redacted_thinking:x"),
        ]),
        Message::user("two"),
        answer(vec![
            thinking("first", "s2"),
            Part::Text("said".to_owned()),
            thinking("second", "s3"),
            Part::Text(" \n".to_owned()),
        ]),
        Message::user("three"),
    ]
    .into_iter()
    .map(std::sync::Arc::new)
    .collect();
    let mut request = request("claude-sonnet-4-5", conversation);
    request.thinking = ThinkingLevel::High;
    let sent = sent(&request);
    let turns = sent["messages"].as_array().unwrap();
    let kinds: Vec<Vec<&str>> = turns
        .iter()
        .map(|turn| {
            let blocks = turn["content"].as_array().unwrap();
            blocks
                .iter()
                .map(|block| block["type"].as_str().unwrap())
                .collect()
        })
        .collect();
    assert_eq!(
        kinds,
        [vec!["text", "text"], vec!["thinking", "text"], vec!["text"]]
    );
}

#[test]
fn thinking_follows_the_age_of_the_model() {
    for (model, age) in [
        ("claude-3-5-sonnet-20241022", ModelAge::Old),
        ("claude-3-opus-20240229", ModelAge::Old),
        ("claude-3-7-sonnet-latest", ModelAge::Budget),
        ("claude-sonnet-4-20250514", ModelAge::Budget),
        ("claude-sonnet-4-5", ModelAge::Budget),
        ("claude-opus-4-5-20251101", ModelAge::Budget),
        ("claude-opus-4-6", ModelAge::Adaptive),
        ("anthropic/claude-opus-4.7", ModelAge::Adaptive),
        ("claude-fable-5", ModelAge::Adaptive),
        ("qwen3", ModelAge::Budget),
    ] {
        assert_eq!(ModelAge::of(model), age, "{model}");
    }
    let with = |model: &str, max_output| {
        let mut request = request(model, Conversation::default());
        request.thinking = ThinkingLevel::High;
        request.max_output = max_output;
        sent(&request)
    };
    let adaptive = with("claude-opus-4-7", None);
    assert_eq!(adaptive["thinking"]["type"], "adaptive");
    assert_eq!(adaptive["output_config"]["effort"], "high");
    let budget = with("claude-sonnet-4-5", Some(8_000));
    assert_eq!(budget["thinking"]["budget_tokens"], 6_000);
    assert_eq!(budget["max_tokens"], 8_000);
    assert_eq!(with("claude-sonnet-4-5", Some(1_000)).get("thinking"), None);
    assert_eq!(with("claude-3-5-haiku-latest", None).get("thinking"), None);
}

#[test]
fn an_answer_with_thinking_text_and_two_calls() {
    let events = decode_whole(
        decoder,
        include_str!("../../tests/fixtures/anthropic_thinking_and_two_calls.sse"),
    );
    insta::assert_debug_snapshot!(events);
}

#[test]
fn r054_a_cut_inside_arguments_yields_no_call() {
    let body = include_str!("../../tests/fixtures/anthropic_cut_in_arguments.sse");
    let (events, ended) = decode(decoder(), body.as_bytes(), 5);
    assert!(matches!(ended, Err(DecodeError::Unfinished)), "{ended:?}");
    assert_eq!(calls_of(&events), Vec::<String>::new());
    assert!(
        !events
            .iter()
            .any(|event| matches!(event, StreamEvent::Stop(_)))
    );
}

#[test]
fn check_046_without_message_stop_no_answer_is_whole() {
    let body = include_str!("../../tests/fixtures/anthropic_thinking_and_two_calls.sse");
    let blocks: Vec<&str> = body.split_inclusive("\n\n").collect();
    for count in 0..blocks.len() {
        let part = blocks.get(..count).unwrap().concat();
        let (events, ended) = decode(decoder(), part.as_bytes(), 64);
        assert!(
            matches!(ended, Err(DecodeError::Unfinished)),
            "after {count} events"
        );
        assert_eq!(calls_of(&events), Vec::<String>::new());
    }
}

#[test]
fn r055_check_048_length_inside_a_call_is_an_error_for_the_model() {
    let events = decode_whole(
        decoder,
        include_str!("../../tests/fixtures/anthropic_length_in_arguments.sse"),
    );
    assert_eq!(
        calls_of(&events),
        [r#"toolu_1 Read {"file_path":"a"}"#, "toolu_2 Write !"]
    );
    assert_eq!(events.last(), Some(&StreamEvent::Stop(StopReason::Length)));
}

#[test]
fn r055_a_call_that_length_cut_before_its_first_byte_does_not_run_empty() {
    let body = include_str!("../../tests/fixtures/anthropic_thinking_and_two_calls.sse").replace(
        r#""stop_reason": "tool_use""#,
        r#""stop_reason": "max_tokens""#,
    );
    assert_eq!(
        calls_of(&decode_whole(decoder, &body)),
        [
            r#"toolu_1 Read {"file_path":"a.txt"}"#,
            "toolu_2 TodoRead !"
        ]
    );
}

#[test]
fn check_164_an_error_midway_is_reported_and_keeps_what_was_said() {
    let body = include_str!("../../tests/fixtures/anthropic_overloaded_midway.sse");
    let (events, ended) = decode(decoder(), body.as_bytes(), 3);
    assert!(events.contains(&StreamEvent::Text("Half".to_owned())));
    let Err(DecodeError::Reported(error)) = ended else {
        panic!("{ended:?}");
    };
    assert_eq!(
        (error.stream_status(), error.message.as_str()),
        (529, "Overloaded")
    );
}

#[test]
fn stop_reasons() {
    for (reason, stop) in [
        ("end_turn", StopReason::End),
        ("stop_sequence", StopReason::End),
        ("max_tokens", StopReason::Length),
        ("model_context_window_exceeded", StopReason::Length),
        ("pause_turn", StopReason::Length),
        ("refusal", StopReason::Refusal),
        ("tool_use", StopReason::End),
        ("something_new", StopReason::End),
    ] {
        let body = format!(
            "data: {{\"type\":\"message_delta\",\"delta\":{{\"stop_reason\":\"{reason}\"}}}}\n\n\
             data: {{\"type\":\"message_stop\"}}\n\n"
        );
        let events = decode_whole(decoder, &body);
        assert_eq!(events, [StreamEvent::Stop(stop)], "{reason}");
    }
}

#[test]
fn usage_counts_cached_input_and_keeps_what_a_later_figure_leaves_out() {
    let events = decode_whole(
        decoder,
        include_str!("../../tests/fixtures/anthropic_thinking_and_two_calls.sse"),
    );
    let last = events.iter().rev().find_map(|event| match event {
        StreamEvent::Usage(usage) => Some(*usage),
        _ => None,
    });
    assert_eq!(
        last,
        Some(Usage {
            input: 2125,
            output: 40,
            cached_read: 2000,
            cached_write: 100,
            ..Usage::default()
        })
    );
}

#[test]
fn an_input_that_comes_whole_with_its_start_is_taken() {
    let body = r#"data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"Read","input":{"a":1}}}

data: {"type":"content_block_stop","index":0}

data: {"type":"message_stop"}

"#;
    assert_eq!(
        calls_of(&decode_whole(decoder, body)),
        [r#"t Read {"a":1}"#]
    );
}

#[test]
fn what_is_no_protocol_is_said_so() {
    let (_, ended) = decode(decoder(), b"data: <html>\n\n", 100);
    assert!(matches!(ended, Err(DecodeError::Protocol(_))));
}
