//! Error bodies of many servers, and what of them may be shown.

#![expect(clippy::panic, reason = "a test may panic")]

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::message::{Conversation, Message};
use crate::testing::request;

fn error(status: u16, body: &Value) -> ModelError {
    let body = ErrorBody::read(body.to_string().as_bytes());
    status_error("p", status, &body, &Censor::new([], None))
}

#[test]
fn patterns_compile() {
    assert!(KEY_LIKE.is_match("sk-abcdefgh") && ECHO_START.is_match("input_value='x"));
}

#[test]
fn bodies_of_many_shapes_are_read() {
    for body in [
        json!({"error": {"message": "Bad thing", "type": "t"}}),
        json!({"type": "error", "error": {"type": "t", "message": "Bad thing"}}),
        json!({"error": "Bad thing"}),
        json!({"message": "Bad thing"}),
        json!({"detail": "Bad thing"}),
        json!([{"error": {"code": 400, "message": "Bad thing", "status": "T"}}]),
    ] {
        let text = error(400, &body).to_string();
        assert!(text.contains("`p` answered 400: Bad thing;"), "{text}");
    }
    let raw = json!({"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": "no such thing"}}});
    assert!(
        error(400, &raw)
            .to_string()
            .contains("Provider returned error: no such thing")
    );
    let html = ErrorBody::read(b"<html>\n<b>Bad gateway</b>");
    assert_eq!(html.message, "<html>\n<b>Bad gateway</b>");
}

#[test]
fn r059_each_status_says_what_to_do() {
    let body = json!({"error": {"message": "No."}});
    for (status, advice) in [
        (307, "base_url"),
        (402, "credit"),
        (404, "model's name"),
        (429, "wait"),
        (500, "try again later"),
        (529, "try again later"),
        (400, "another model"),
    ] {
        let text = error(status, &body).to_string();
        assert!(
            text.contains(advice) && text.contains(&status.to_string()),
            "{text}"
        );
    }
    for status in [401, 403] {
        assert!(matches!(error(status, &body), ModelError::Auth { .. }));
    }
    let text = error(503, &json!({})).to_string();
    assert!(text.contains("503"), "{text}");
    let silent = status_error("p", 503, &ErrorBody::read(b""), &Censor::new([], None));
    assert!(
        silent.to_string().contains("service unavailable"),
        "{silent}"
    );
}

#[test]
fn r131_an_overflow_is_told_apart() {
    for (status, body) in [
        (
            400,
            json!({"error": {"type": "invalid_request_error", "message": "prompt is too long: 210000 tokens > 200000 maximum"}}),
        ),
        (
            400,
            json!({"error": {"type": "invalid_request_error", "message": "input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000"}}),
        ),
        (
            413,
            json!({"error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}}),
        ),
        (
            400,
            json!({"error": {"code": "context_length_exceeded", "message": "This model's maximum context length is 8192 tokens."}}),
        ),
        (
            400,
            json!({"error": {"code": 400, "type": "exceed_context_size_error", "message": "the request exceeds the available context size"}}),
        ),
        (
            400,
            json!({"error": {"message": "The input token count (1200000) exceeds the maximum number of tokens allowed", "status": "INVALID_ARGUMENT"}}),
        ),
        (
            500,
            json!({"error": {"message": "the request exceeds the available context size. try increasing the context size"}}),
        ),
    ] {
        assert!(
            matches!(error(status, &body), ModelError::ContextOverflow { .. }),
            "{body}"
        );
    }
    for (status, body) in [
        (
            429,
            json!({"error": {"message": "tokens per minute over the context window"}}),
        ),
        (
            400,
            json!({"error": {"message": "unknown parameter: tools"}}),
        ),
    ] {
        assert!(
            matches!(error(status, &body), ModelError::Status { .. }),
            "{body}"
        );
    }
}

#[test]
fn a_stream_error_stands_for_a_status() {
    for (body, status) in [
        (
            json!({"error": {"type": "overloaded_error", "message": "x"}}),
            529,
        ),
        (
            json!({"error": {"type": "rate_limit_error", "message": "x"}}),
            429,
        ),
        (json!({"error": {"code": 502, "message": "x"}}), 502),
        (json!({"error": {"code": "503", "message": "x"}}), 503),
        (json!({"error": {"code": 1234, "message": "x"}}), 500),
        (
            json!({"error": {"type": "authentication_error", "message": "x"}}),
            401,
        ),
        (json!({"error": {"message": "x"}}), 500),
    ] {
        let error = ErrorBody::of(&body).unwrap_or_default();
        assert_eq!(error.stream_status(), status, "{body}");
    }
}

#[test]
fn neither_keys_nor_control_characters_are_shown() {
    let key = SecretString::from("not-a-real-key-0001");
    let censor = Censor::new([&key], None);
    let shown = censor.clean(
        "Wrong key not-a-real-key-0001\u{1b}[31m\r\nor sk-proj-****wxyz, \u{202e}Bearer abcdefgh",
    );
    assert_eq!(shown, "Wrong key [key] [31m or [key], [key]");
    let long = censor.clean(&"word ".repeat(1000));
    assert!(
        long.chars().count() <= EXCERPT + 1 && long.ends_with('…'),
        "{long}"
    );
}

#[test]
fn what_repeats_the_prompt_is_left_out() {
    let prompt = "Please look at the salaries of everybody in the accounting department.";
    let conversation: Conversation = [Message::user(prompt)]
        .into_iter()
        .map(std::sync::Arc::new)
        .collect();
    let request = request("m", conversation);
    let censor = Censor::new([], Some(&request));
    let shown = censor.clean(&format!(
        "1 validation error: messages.0 was {prompt} which is bad"
    ));
    assert!(
        shown.ends_with("[…]") && !shown.contains("salaries"),
        "{shown}"
    );
    let shown = censor.clean("1 validation error [type=missing, input_value={'role': 'user'}]");
    assert_eq!(shown, "1 validation error [type=missing, […]");
    let harmless = "max_tokens: 64000 > 32000, which is the maximum for this model";
    assert_eq!(censor.clean(harmless), harmless);
}

proptest! {
    #[test]
    fn any_body_gives_a_bounded_message_in_one_line(bytes in prop::collection::vec(any::<u8>(), 0..2000), status in 300u16..600) {
        let text = status_error("p", status, &ErrorBody::read(&bytes), &Censor::new([], None)).to_string();
        prop_assert!(text.chars().count() < EXCERPT + 200);
        prop_assert!(!text.chars().any(char::is_control));
    }
}

#[test]
fn a_piece_of_a_script_that_looks_like_an_echo_is_no_panic() {
    let Some(body) = ErrorBody::of(&json!({"error": {"message": "€".repeat(3000)}})) else {
        panic!("an error was there");
    };
    let request = request("m", Conversation::default());
    let shown = Censor::new([], Some(&request)).clean(&body.message);
    assert_eq!(shown.chars().count(), EXCERPT + 1);
}
