//! Requests of ours: their frames, their answers, and taking them back.

use std::time::Duration;

use serde_json::{Value, json};
use terret_acp::schema::v1::{LoadSessionResponse, WriteTextFileResponse};
use terret_acp::{ErrorCode, NotifyError, Options, RequestError};

use crate::support::{Raw, notification, soon, until};

#[tokio::test]
async fn a_request_has_an_integer_id_and_its_result_is_typed() {
    let mut raw = Raw::client();
    let peer = raw.peer.clone();
    let asked =
        tokio::spawn(async move { peer.request::<Vec<u8>>("list", &json!({ "a": 1 })).await });
    assert_eq!(
        raw.line().await,
        r#"{"jsonrpc":"2.0","id":1,"method":"list","params":{"a":1}}"#
    );
    raw.send_line(r#"{"jsonrpc":"2.0","id":1,"result":[1,2]}"#)
        .await;
    assert_eq!(asked.await.unwrap().unwrap(), [1, 2]);
    let peer = raw.peer.clone();
    tokio::spawn(async move { peer.request::<Value>("bare", &()).await });
    assert_eq!(
        raw.line().await,
        r#"{"jsonrpc":"2.0","id":2,"method":"bare"}"#
    );
}

/// Asks, answers with the line (`ID` stands for the id), gives what came of it.
async fn ask<R: serde::de::DeserializeOwned + Send + 'static>(
    raw: &mut Raw,
    answer: &str,
) -> Result<R, RequestError> {
    let peer = raw.peer.clone();
    let asked = tokio::spawn(async move { peer.request::<R>("ask", &json!({})).await });
    let id = raw.frame().await["id"].to_string();
    raw.send_line(answer.replace("ID", &id)).await;
    soon(asked).await.unwrap()
}

#[tokio::test]
async fn quirk_3_null_and_an_empty_object_are_the_same_result() {
    let mut raw = Raw::client();
    for answer in [
        r#"{"jsonrpc":"2.0","id":ID,"result":null}"#,
        r#"{"jsonrpc":"2.0","id":ID,"result":{}}"#,
    ] {
        ask::<()>(&mut raw, answer).await.unwrap();
        ask::<WriteTextFileResponse>(&mut raw, answer)
            .await
            .unwrap();
        ask::<LoadSessionResponse>(&mut raw, answer).await.unwrap();
    }
}

#[tokio::test]
async fn answers_are_read_as_loosely_as_they_are_made() {
    let mut raw = Raw::client();
    for answer in [
        r#"{"id":"ID","result":{"a":1}}"#,
        r#"{"id":ID.0,"result":{"a":1}}"#,
        r#"{"jsonrpc":"2.0","id":ID,"result":{"a":1},"error":null}"#,
    ] {
        assert_eq!(
            ask::<Value>(&mut raw, answer).await.unwrap(),
            json!({ "a": 1 })
        );
    }
    for (answer, code, message) in [
        (
            r#"{"id":ID,"error":{"code":-32000,"message":"log in"},"result":null}"#,
            ErrorCode::AuthRequired,
            "log in",
        ),
        (
            r#"{"id":ID,"error":{"code":"-32800","message":"m"}}"#,
            ErrorCode::Cancelled,
            "m",
        ),
        (
            r#"{"id":ID,"error":{"code":12345678901,"message":"m"}}"#,
            ErrorCode::Other(12_345_678_901),
            "m",
        ),
        (
            r#"{"id":ID,"error":"just text"}"#,
            ErrorCode::Internal,
            "just text",
        ),
        (
            r#"{"id":ID,"error":{}}"#,
            ErrorCode::Internal,
            "the peer refused and gave no reason",
        ),
        (
            r#"{"id":ID,"error":7}"#,
            ErrorCode::Internal,
            "the peer refused and gave no reason",
        ),
    ] {
        let refused = ask::<Value>(&mut raw, answer).await.unwrap_err();
        let error = refused
            .rpc()
            .unwrap_or_else(|| panic!("{answer}: {refused}"));
        assert_eq!(
            (error.code, error.message.as_ref()),
            (code, message),
            "{answer}"
        );
    }
}

#[tokio::test]
async fn an_answer_with_neither_result_nor_error_fails_that_request_alone() {
    let mut raw = Raw::client();
    let peer = raw.peer.clone();
    let other = tokio::spawn(async move { peer.request::<Value>("other", &json!({})).await });
    assert_eq!(raw.frame().await["id"], 1);
    for answer in [
        r#"{"jsonrpc":"2.0","id":ID}"#,
        r#"{"jsonrpc":"2.0","id":ID,"error":null}"#,
    ] {
        let failed = ask::<Value>(&mut raw, answer).await.unwrap_err();
        assert!(matches!(failed, RequestError::Protocol { .. }), "{failed}");
    }
    raw.send_line(r#"{"jsonrpc":"2.0","id":1,"result":7}"#)
        .await;
    assert_eq!(other.await.unwrap().unwrap(), 7);
}

#[tokio::test]
async fn a_result_that_does_not_fit_names_the_place_and_not_the_content() {
    let mut raw = Raw::client();
    let failed = ask::<terret_acp::schema::v1::ReadTextFileResponse>(
        &mut raw,
        r#"{"id":ID,"result":{"content":["secret"]}}"#,
    )
    .await
    .unwrap_err();
    insta::assert_snapshot!(failed, @"the result of `ask` does not fit: `content` must be a string");
}

#[tokio::test]
async fn dropping_a_request_takes_it_back() {
    let mut raw = Raw::client();
    let peer = raw.peer.clone();
    let asked = tokio::spawn(async move { peer.request::<Value>("slow", &json!({})).await });
    assert_eq!(raw.frame().await["method"], "slow");
    asked.abort();
    assert_eq!(
        raw.line().await,
        r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1}}"#
    );
    // Its late answer belongs to nobody, and nothing else is said about it.
    raw.send_line(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32800,"message":"cancelled"}}"#)
        .await;
    raw.assert_alive().await;
}

#[tokio::test]
async fn an_answered_request_is_not_taken_back() {
    let mut raw = Raw::client();
    ask::<Value>(&mut raw, r#"{"id":ID,"result":1}"#)
        .await
        .unwrap();
    ask::<Value>(&mut raw, r#"{"id":ID,"error":{"code":1,"message":"m"}}"#)
        .await
        .unwrap_err();
    raw.assert_alive().await;
}

#[tokio::test]
async fn a_request_that_never_went_out_is_dropped_without_a_word() {
    let mut raw = Raw::with(
        Options {
            queue_frames: 1,
            queue_bytes: 64,
            ..Options::client()
        },
        16,
    );
    // The pipe holds a part of the first frame; the second fills the queue, the third waits.
    for n in 0..2 {
        raw.peer.notify("fill", &json!({ "n": n })).await.unwrap();
    }
    let peer = raw.peer.clone();
    let asked = tokio::spawn(async move { peer.request::<Value>("late", &json!({})).await });
    tokio::task::yield_now().await;
    asked.abort();
    assert!(asked.await.unwrap_err().is_cancelled());
    assert_eq!(raw.frame().await["params"]["n"], 0);
    assert_eq!(raw.frame().await["params"]["n"], 1);
    raw.peer.notify("next", &json!({})).await.unwrap();
    assert_eq!(raw.frame().await["method"], "next");
}

#[tokio::test(start_paused = true)]
async fn r108_an_unanswered_request_ends_with_a_clear_error_and_is_taken_back() {
    let mut raw = Raw::agent();
    let limit = Duration::from_secs(5);
    let peer = raw.peer.clone();
    let asked = tokio::spawn(async move {
        peer.request_within::<Value>(limit, "fs/read_text_file", &json!({}))
            .await
    });
    assert_eq!(raw.frame().await["method"], "fs/read_text_file");
    let failed = asked.await.unwrap().unwrap_err();
    insta::assert_snapshot!(failed, @"`fs/read_text_file` was not answered within 5s");
    assert_eq!(
        raw.line().await,
        r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1}}"#
    );
}

#[tokio::test(start_paused = true)]
async fn r108_requests_that_the_client_side_does_not_know_are_refused() {
    struct Nothing;
    impl terret_acp::Service for Nothing {}
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let (reader, writer) = tokio::io::split(ours);
    let (_peer, driver) = terret_acp::Connection::serve(
        reader,
        writer,
        std::sync::Arc::new(Nothing),
        Options::client(),
    );
    tokio::spawn(driver);
    let (output, mut input) = tokio::io::split(theirs);
    let mut output = tokio::io::BufReader::new(output);
    for method in ["terminal/create", "foo/bar"] {
        use tokio::io::{AsyncBufReadExt, AsyncWriteExt};
        input
            .write_all(crate::support::request(1, method, &json!({})).as_bytes())
            .await
            .unwrap();
        let mut line = String::new();
        tokio::time::timeout(Duration::from_secs(1), output.read_line(&mut line))
            .await
            .unwrap()
            .unwrap();
        assert!(line.contains("-32601"), "{line}");
    }
}

#[tokio::test]
async fn an_answer_waits_for_the_updates_before_it_when_asked_to() {
    let mut raw = Raw::client();
    let peer = raw.peer.clone();
    let asked = tokio::spawn(async move {
        peer.request_after_updates::<Value>("s", "session/prompt", &json!({ "sessionId": "s" }))
            .await
    });
    assert_eq!(raw.frame().await["method"], "session/prompt");
    raw.send(notification("gated", &json!({ "sessionId": "s" })))
        .await;
    raw.send(notification(
        "session/update",
        &json!({ "sessionId": "s", "n": 1 }),
    ))
    .await;
    raw.send_line(r#"{"jsonrpc":"2.0","id":1,"result":{"stopReason":"end_turn"}}"#)
        .await;
    raw.desk.gate.reached(1).await;
    // The answer has been read, since this came after it; it must still wait.
    raw.assert_alive().await;
    assert!(!asked.is_finished());
    raw.desk.gate.open(1);
    assert_eq!(
        soon(asked).await.unwrap().unwrap()["stopReason"],
        "end_turn"
    );
    let seen: Vec<_> = raw
        .desk
        .seen()
        .into_iter()
        .filter(|(method, _)| method != "echo")
        .map(|(method, _)| method)
        .collect();
    assert_eq!(seen, ["gated", "session/update"]);
}

#[tokio::test]
async fn an_answer_does_not_wait_for_other_sessions() {
    let mut raw = Raw::client();
    let peer = raw.peer.clone();
    let asked = tokio::spawn(async move {
        peer.request_after_updates::<Value>("mine", "session/prompt", &json!({}))
            .await
    });
    assert_eq!(raw.frame().await["id"], 1);
    raw.send(notification("gated", &json!({ "sessionId": "other" })))
        .await;
    raw.desk.gate.reached(1).await;
    raw.send_line(r#"{"jsonrpc":"2.0","id":1,"result":1}"#)
        .await;
    assert_eq!(soon(asked).await.unwrap().unwrap(), 1);
}

#[tokio::test]
async fn when_the_peer_is_gone_requests_end_and_later_ones_fail_at_once() {
    let raw = Raw::client();
    let peer = raw.peer.clone();
    let asked = {
        let peer = peer.clone();
        tokio::spawn(async move { peer.request::<Value>("slow", &json!({})).await })
    };
    let mut raw = raw;
    assert_eq!(raw.frame().await["method"], "slow");
    raw.end().await;
    let failed = soon(asked).await.unwrap().unwrap_err();
    insta::assert_snapshot!(failed, @"`slow` was not answered: the connection has ended");
    soon(peer.closed()).await;
    assert!(peer.is_closed());
    assert!(
        peer.request::<Value>("late", &json!({}))
            .await
            .unwrap_err()
            .is_closed()
    );
    assert!(matches!(
        peer.notify("late", &json!({})).await,
        Err(NotifyError::Closed(_))
    ));
    assert!(matches!(
        peer.try_notify("late", &json!({})),
        Err(NotifyError::Closed(_))
    ));
    // Everything that was queued had been written, so there is nothing to wait for.
    soon(peer.flush()).await.unwrap();
}

#[tokio::test]
async fn a_flush_waits_for_the_pipe() {
    let mut raw = Raw::with(Options::client(), 64);
    let big = "x".repeat(1000);
    raw.peer
        .notify("big", &json!({ "text": big }))
        .await
        .unwrap();
    let peer = raw.peer.clone();
    let flushed = tokio::spawn(async move { peer.flush().await });
    tokio::task::yield_now().await;
    assert!(!flushed.is_finished());
    assert_eq!(raw.frame().await["params"]["text"], *big);
    soon(flushed).await.unwrap().unwrap();
    let peer = raw.peer.clone();
    until(|| !peer.is_closed()).await;
}

#[tokio::test]
async fn parameters_without_a_json_form_are_our_own_fault() {
    let raw = Raw::client();
    let bad = std::collections::HashMap::from([(vec![1_u8], 1)]);
    assert!(matches!(
        raw.peer.notify("m", &bad).await,
        Err(NotifyError::Encode)
    ));
    assert!(matches!(
        raw.peer.request::<Value>("m", &bad).await,
        Err(RequestError::Encode { .. })
    ));
}
