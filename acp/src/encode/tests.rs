#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::*;

fn text(frame: &Bytes) -> String {
    String::from_utf8(frame.to_vec()).unwrap()
}

#[test]
fn the_shape_of_every_frame() {
    let id = RequestId::from_token("\"é\"").unwrap();
    let frames = [
        text(&request(7, "session/request_permission", &json!({ "a": [1, null] })).unwrap()),
        text(&request(8, "bare", &()).unwrap()),
        text(&notification("session/update", &json!({})).unwrap()),
        text(&result(&id, &()).unwrap()),
        text(&result(&id, &json!({ "stopReason": "end_turn" })).unwrap()),
        text(&error(Some(&id), &RpcError::session_not_found("s1"))),
        text(&error(None, &RpcError::parse_error())),
        text(&error(Some(&id), &RpcError::busy())),
        text(&cancel(7)),
    ];
    insta::assert_snapshot!(frames.concat());
}

#[test]
fn r112_raw_json_that_is_passed_on_stays_on_one_line() {
    let raw = RawValue::from_string(
        "{\r\n  \"a\\n\": [1,\n2],\n\"b\": \"x\u{2028}\u{85}\"\n}".to_owned(),
    )
    .unwrap();
    let frame = text(&notification("m", &raw).unwrap());
    assert_eq!(frame.matches(['\n', '\r', '\u{2028}', '\u{85}']).count(), 1);
    let read: Value = serde_json::from_str(&frame).unwrap();
    assert_eq!(
        read,
        json!({ "jsonrpc": "2.0", "method": "m", "params": { "a\n": [1, 2], "b": "x\u{2028}\u{85}" } })
    );
}

#[test]
fn what_has_no_json_form_is_an_error_and_not_half_a_frame() {
    assert!(notification("m", &BTreeMap::from([(vec![1], 1)])).is_err());
    assert!(
        result(
            &RequestId::from_token("1").unwrap(),
            &BTreeMap::from([(vec![1], 1)])
        )
        .is_err()
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn r112_any_text_is_one_line_and_comes_back(
        key in "[a\u{85}\u{a0}\u{c2}\u{2027}\u{2028}\u{2029}\u{202a}\n\r\"\\\\€]{0,10}",
        value in "\\PC{0,20}[\u{0}-\u{9f}\u{2028}\u{2029}]{0,10}",
    ) {
        let params = json!({ key: [value] });
        let frame = text(&notification("m", &params).unwrap());
        prop_assert!(frame.ends_with("]}\n") || frame.ends_with("}}\n"), "the frame has no end");
        prop_assert_eq!(frame.matches(['\n', '\r', '\u{2028}', '\u{2029}', '\u{85}']).count(), 1);
        let read: Value = serde_json::from_str(&frame).unwrap();
        prop_assert_eq!(read.get("params"), Some(&params));
    }
}
