//! What JSON-RPC asks for, in the form in which real peers broke it.

use serde_json::json;

use crate::support::{Raw, notification, request};

#[tokio::test]
async fn r029_ids_of_every_kind_are_echoed_as_they_came() {
    let mut raw = Raw::agent();
    for id in [
        "\"1\"",
        "1",
        "\"é\"",
        "\"\\u00e9\"",
        "\"\"",
        "null",
        "\"a\\\"b\\\\\"",
        "0",
        "-0",
    ] {
        raw.send_line(format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"echo","params":{{}}}}"#
        ))
        .await;
        assert_eq!(
            raw.line().await,
            format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
        );
        raw.send_line(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"nope"}}"#))
            .await;
        assert!(raw.line().await.starts_with(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"#
        )));
    }
}

#[tokio::test]
async fn r106_integer_ids_of_any_size_are_echoed_and_fractions_are_refused() {
    let mut raw = Raw::agent();
    for id in [
        "2147483648",
        "9007199254740993",
        "9223372036854775808",
        "-9223372036854775809",
        "-1",
        &"9".repeat(40),
    ] {
        raw.send_line(format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"echo","params":{{}}}}"#
        ))
        .await;
        assert_eq!(
            raw.line().await,
            format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
        );
    }
    for id in ["1.5", "1.0", "1e2", "true", "[1]", "{}"] {
        raw.send_line(format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"echo","params":{{}}}}"#
        ))
        .await;
        let frame = raw.frame().await;
        assert_eq!(
            (&frame["id"], &frame["error"]["code"]),
            (&json!(null), &json!(-32600)),
            "{id}"
        );
    }
    let long = format!("\"{}\"", "x".repeat(5000));
    raw.send_line(format!(
        r#"{{"jsonrpc":"2.0","id":{long},"method":"echo"}}"#
    ))
    .await;
    assert_eq!(raw.frame().await["error"]["code"], -32600);
}

#[tokio::test]
async fn r031_every_malformed_message_is_answered_and_the_connection_lives() {
    let mut raw = Raw::agent();
    let lines = [
        r#"{"jsonrpc":"2.0","id":1,"method":"no/such"}"#,
        r#"{"jsonrpc":"2.0","id":2,"method":"typed","params":{"a":"secret"}}"#,
        r#"{"jsonrpc":"2.0","id":3,"method":"typed","params":null}"#,
        r#"{"jsonrpc":"2.0","id":4,"method":"typed","params":["secret"]}"#,
        r#"{"jsonrpc":"2.0","id":5,"method":"#,
        r#""a string""#,
        "42",
        "null",
        r#"[{"jsonrpc":"2.0","id":6,"method":"echo"},{"jsonrpc":"2.0","id":7,"method":"echo"}]"#,
        "[]",
        r#"{"jsonrpc":"2.0","id":8,"method":7}"#,
        r#"{"jsonrpc":"2.0","id":9}"#,
        r#"{"jsonrpc":"2.0","id":10,"id":11,"method":"echo"}"#,
        "{}",
        r#"{"jsonrpc":"2.0","result":{}}"#,
        "this is not JSON and holds a secret",
        r#"{"id":12,"method":"typed"}"#,
    ];
    let mut answers = Vec::new();
    for line in lines {
        raw.send_line(line).await;
        answers.push(json!({ "sent": line, "answered": raw.frame().await }));
    }
    raw.assert_alive().await;
    for answer in &answers {
        assert!(
            !answer["answered"].to_string().contains("secret"),
            "content came back: {answer}"
        );
    }
    insta::assert_json_snapshot!(answers);
}

#[tokio::test]
async fn r031_a_method_is_named_in_the_refusal_only_when_it_is_short_and_plain() {
    let mut raw = Raw::agent();
    raw.send(request(1, "no/such", &json!({}))).await;
    assert_eq!(
        raw.frame().await["error"]["message"],
        "there is no method `no/such` here"
    );
    for method in ["my secret text", &"x".repeat(65), "a\u{2028}b", ""] {
        raw.send(request(2, method, &json!({}))).await;
        let frame = raw.frame().await;
        assert_eq!(frame["error"]["code"], -32601);
        assert_eq!(frame["error"]["message"], "there is no such method here");
    }
}

#[tokio::test]
async fn r032_a_byte_order_mark_is_taken_off_and_bad_utf8_is_refused() {
    let mut raw = Raw::agent();
    raw.send(b"\xEF\xBB\xBF{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"echo\",\"params\":{}}\n")
        .await;
    assert_eq!(raw.line().await, r#"{"jsonrpc":"2.0","id":0,"result":{}}"#);
    for line in [
        &b"\xFF\n"[..],
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"echo\",\"params\":{\"a\":\"\xC3\x28\"}}\n",
    ] {
        raw.send(line).await;
        let frame = raw.frame().await;
        assert_eq!(
            (&frame["id"], &frame["error"]["code"]),
            (&json!(null), &json!(-32700))
        );
    }
    raw.assert_alive().await;
}

#[tokio::test]
async fn r112_line_separators_are_escaped_on_the_way_out_and_are_text_on_the_way_in() {
    let mut raw = Raw::agent();
    let text = "a\u{2028}b\u{2029}c\u{85}d\u{a9}\u{20ac}";
    raw.send_line(format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":\"i\u{2028}\",\"method\":\"echo\",\"params\":{{\"{text}\":\"{text}\"}}}}"
    ))
    .await;
    let escaped = "a\\u2028b\\u2029c\\u0085d\u{a9}\u{20ac}";
    assert_eq!(
        raw.line().await,
        format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":\"i\\u2028\",\"result\":{{\"{escaped}\":\"{escaped}\"}}}}"
        )
    );
    raw.peer
        .notify("session/update", &json!({ "text": text }))
        .await
        .unwrap();
    assert_eq!(
        raw.line().await,
        format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{{\"text\":\"{escaped}\"}}}}"
        )
    );
}

#[tokio::test]
async fn notifications_are_never_answered_and_blank_lines_are_nothing() {
    let mut raw = Raw::agent();
    raw.send("\n\r\n  \t \n").await;
    for method in [
        "unknown",
        "panic",
        "$/cancel_request",
        "$/unknown",
        "initialize",
    ] {
        raw.send(notification(method, &json!({ "requestId": 77 })))
            .await;
    }
    raw.send_line(r#"{"jsonrpc":"2.0","method":"no/params"}"#)
        .await;
    raw.send("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"echo\",\"params\":{}}\r\n")
        .await;
    assert_eq!(raw.line().await, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
}

#[tokio::test]
async fn answers_to_nothing_are_ignored() {
    let mut raw = Raw::agent();
    for line in [
        r#"{"jsonrpc":"2.0","id":999,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":"x","result":{}}"#,
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"Method not found"}}"#,
        r#"{"jsonrpc":"2.0","error":{"code":-32601,"message":"Method not found"}}"#,
        r#"{"jsonrpc":"2.0","id":999,"error":{"code":-32601}}"#,
    ] {
        raw.send_line(line).await;
    }
    raw.assert_alive().await;
}

#[tokio::test]
async fn the_version_mark_may_be_missing_and_other_members_are_ignored() {
    let mut raw = Raw::agent();
    raw.send_line(r#"{"id":1,"method":"echo","params":{"a":1},"extra":[{}],"jsonrpc":2}"#)
        .await;
    assert_eq!(
        raw.line().await,
        r#"{"jsonrpc":"2.0","id":1,"result":{"a":1}}"#
    );
    raw.send_line(r#"{"\u0069d":2,"meth\u006fd":"echo","params":{}}"#)
        .await;
    assert_eq!(raw.line().await, r#"{"jsonrpc":"2.0","id":2,"result":{}}"#);
}

#[tokio::test]
async fn deep_nesting_is_a_refusal_and_not_the_end() {
    let mut raw = Raw::agent();
    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    raw.send_line(format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"typed","params":{{"a":{deep}}}}}"#
    ))
    .await;
    let frame = raw.frame().await;
    assert_eq!(
        (&frame["id"], &frame["error"]["code"]),
        (&json!(1), &json!(-32602))
    );
    raw.send_line(format!(
        r#"{{"jsonrpc":"2.0","id":{deep},"method":"echo"}}"#
    ))
    .await;
    assert_eq!(raw.frame().await["error"]["code"], -32600);
    raw.assert_alive().await;
}
