//! Order within a lane, independence between lanes, and faults that stay where they are.

use std::sync::Arc;

use serde_json::{Value, json};
use terret_acp::{Options, Overflow, RpcError};

use crate::support::{Desk, Raw, notification, request, soon, until};

#[tokio::test]
async fn pipelined_initialize_and_session_new_are_answered_in_order() {
    let mut raw = Raw::agent();
    let all: String = [
        request(0, "gate", &json!({ "protocolVersion": 1 })),
        request(1, "echo", &json!({ "cwd": "/" })),
        request(2, "echo", &json!({ "sessionId": "s", "prompt": [] })),
    ]
    .concat();
    raw.send(all).await;
    raw.desk.gate.reached(1).await;
    assert_eq!(
        raw.desk.seen().len(),
        1,
        "what follows `initialize` waits for it"
    );
    raw.desk.gate.open(1);
    let ids: Vec<_> = raw
        .frames(3)
        .await
        .iter()
        .map(|frame| frame["id"].clone())
        .collect();
    assert_eq!(ids, [json!(0), json!(1), json!(2)]);
}

/// After the opening, sessions no longer wait for the connection's lane.
async fn opened(raw: &mut Raw) {
    raw.send(request(1000, "echo", &json!({}))).await;
    assert_eq!(raw.frame().await["id"], 1000);
}

#[tokio::test]
async fn after_the_opening_a_slow_session_new_holds_up_no_session() {
    let mut raw = Raw::agent();
    opened(&mut raw).await;
    // The lane ends a moment after its answer was queued; its next message starts it anew.
    raw.send(request(1, "gate", &json!({}))).await;
    raw.desk.gate.reached(1).await;
    let mut others = 0;
    while others < 50 {
        others += 1;
        raw.send(request(others + 1, "echo", &json!({ "sessionId": "s" })))
            .await;
        assert_eq!(raw.frame().await["id"], others + 1);
    }
    raw.desk.gate.open(1);
    assert_eq!(raw.frame().await["id"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_pipelined_requests_are_answered_in_order() {
    let mut raw = Raw::agent();
    let mut all = String::new();
    for n in 0..10_000 {
        all.push_str(&request(n, "echo", &json!({ "sessionId": "s" })));
    }
    let mut input = raw.input.take().unwrap();
    let sending = tokio::spawn(async move {
        tokio::io::AsyncWriteExt::write_all(&mut input, all.as_bytes())
            .await
            .unwrap();
        input
    });
    for n in 0..10_000 {
        let frame = raw.frame().await;
        assert_eq!(frame["id"], n);
        assert_eq!(frame["result"]["sessionId"], "s");
    }
    raw.input = Some(sending.await.unwrap());
    raw.assert_alive().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_updates_stay_in_order_before_the_answer() {
    let mut raw = Raw::agent();
    raw.send(request(1, "updates", &json!({ "n": 10_000 })))
        .await;
    for n in 0..10_000 {
        assert_eq!(raw.frame().await["params"]["n"], n);
    }
    assert_eq!(raw.frame().await["id"], 1);
}

#[tokio::test]
async fn one_session_waits_and_another_goes_on() {
    let mut raw = Raw::agent();
    opened(&mut raw).await;
    raw.send(request(1, "gate", &json!({ "sessionId": "a" })))
        .await;
    raw.desk.gate.reached(1).await;
    raw.send(request(2, "echo", &json!({ "sessionId": "a" })))
        .await;
    raw.send(request(3, "echo", &json!({ "sessionId": "b" })))
        .await;
    assert_eq!(raw.frame().await["id"], 3);
    raw.desk.gate.open(1);
    assert_eq!(raw.frame().await["id"], 1);
    assert_eq!(raw.frame().await["id"], 2);
}

#[tokio::test]
async fn a_handler_may_take_its_responder_away_and_free_its_lane() {
    let mut raw = Raw::agent();
    raw.send(request(1, "keep", &json!({ "sessionId": "a" })))
        .await;
    raw.send(request(2, "echo", &json!({ "sessionId": "a" })))
        .await;
    assert_eq!(raw.frame().await["id"], 2);
    let kept = raw.desk.kept.lock().unwrap().pop().unwrap();
    kept.respond(&json!({ "stopReason": "end_turn" })).await;
    assert_eq!(
        raw.line().await,
        r#"{"jsonrpc":"2.0","id":1,"result":{"stopReason":"end_turn"}}"#
    );
}

#[tokio::test]
async fn a_panic_answers_for_itself_and_harms_nothing_else() {
    let mut raw = Raw::agent();
    for (n, params) in [
        json!({ "sessionId": "a" }),
        json!({}),
        json!({ "lane": "now" }),
    ]
    .iter()
    .enumerate()
    {
        raw.send(request(n as u64, "panic", params)).await;
        raw.send(notification("panic", params)).await;
        let frame = raw.frame().await;
        assert_eq!(
            (&frame["id"], &frame["error"]["code"]),
            (&json!(n), &json!(-32603))
        );
        raw.send(request(9, "echo", params)).await;
        assert_eq!(raw.frame().await["id"], 9, "the lane goes on");
    }
    raw.send(request(10, "panic-in-lane", &json!({}))).await;
    assert_eq!(raw.frame().await["id"], 10);
    raw.assert_alive().await;
}

#[tokio::test]
async fn a_responder_that_is_dropped_answers_by_itself() {
    let mut raw = Raw::agent();
    raw.send(request(1, "drop", &json!({}))).await;
    insta::assert_snapshot!(raw.line().await, @r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the request ended without an answer; this is a fault on this side"}}"#);
    raw.send(request(2, "keep", &json!({}))).await;
    raw.send(notification("$/cancel_request", &json!({ "requestId": 2 })))
        .await;
    until(|| {
        raw.desk
            .kept
            .lock()
            .unwrap()
            .first()
            .is_some_and(|kept| kept.cancellation().is_cancelled())
    })
    .await;
    raw.desk.kept.lock().unwrap().clear();
    assert_eq!(raw.frame().await["error"]["code"], -32800);
}

#[tokio::test]
async fn a_cancelled_request_gets_one_answer() {
    let mut raw = Raw::agent();
    // The id is the same however it is written.
    for (id, cancelled) in [
        ("1", "1"),
        ("\"x\"", "\"x\""),
        ("\"é\"", "\"\\u00e9\""),
        ("null", "null"),
        ("\"1\"", "\"1\""),
    ] {
        raw.send_line(format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"cancellable","params":{{"lane":"now"}}}}"#
        ))
        .await;
        raw.send_line(format!(r#"{{"jsonrpc":"2.0","method":"$/cancel_request","params":{{"requestId":{cancelled}}}}}"#)).await;
        let line = raw.line().await;
        assert!(
            line.starts_with(&format!(
                r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32800,"#
            )),
            "{line}"
        );
    }
    // Finished, unknown and malformed ones are ignored.
    for params in [
        "{\"requestId\":1}",
        "{\"requestId\":[1]}",
        "{}",
        "[]",
        "null",
        "7",
    ] {
        raw.send_line(format!(
            r#"{{"jsonrpc":"2.0","method":"$/cancel_request","params":{params}}}"#
        ))
        .await;
    }
    raw.assert_alive().await;
}

#[tokio::test]
async fn a_cancel_tells_numbers_from_strings() {
    let mut raw = Raw::agent();
    raw.send(request(1, "cancellable", &json!({ "lane": "now" })))
        .await;
    raw.send_line(r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"1"}}"#)
        .await;
    raw.assert_alive().await;
    raw.send(notification("$/cancel_request", &json!({ "requestId": 1 })))
        .await;
    assert_eq!(raw.frame().await["error"]["code"], -32800);
}

#[tokio::test]
async fn a_session_cancel_reaches_a_prompt_that_still_waits_in_its_lane() {
    let mut raw = Raw::agent();
    raw.send(request(1, "gate", &json!({ "sessionId": "a" })))
        .await;
    raw.send(request(2, "cancellable", &json!({ "sessionId": "a" })))
        .await;
    raw.send(request(3, "cancellable", &json!({ "sessionId": "b" })))
        .await;
    raw.desk.gate.reached(1).await;
    raw.send(notification("session/cancel", &json!({ "sessionId": "a" })))
        .await;
    until(|| {
        raw.desk
            .seen()
            .iter()
            .any(|(method, _)| method == "session/cancel")
    })
    .await;
    raw.desk.gate.open(1);
    assert_eq!(raw.frame().await["id"], 1);
    let cancelled = raw.frame().await;
    assert_eq!(
        (&cancelled["id"], &cancelled["error"]["code"]),
        (&json!(2), &json!(-32800))
    );
    raw.assert_alive().await;
}

#[tokio::test]
async fn the_same_id_twice_gets_two_answers() {
    let mut raw = Raw::agent();
    raw.send(request(1, "gate", &json!({ "sessionId": "a" })))
        .await;
    raw.send(request(1, "cancellable", &json!({ "lane": "now" })))
        .await;
    raw.send(notification("$/cancel_request", &json!({ "requestId": 1 })))
        .await;
    assert_eq!(
        raw.frame().await["error"]["code"],
        -32800,
        "the later one is meant"
    );
    raw.desk.gate.open(1);
    assert!(raw.frame().await["result"].is_object());
}

#[tokio::test]
async fn a_full_lane_is_busy_and_other_lanes_are_not() {
    let mut raw = Raw::with(
        Options {
            lane_frames: 4,
            ..Options::agent()
        },
        1 << 20,
    );
    opened(&mut raw).await;
    raw.send(request(0, "gate", &json!({ "sessionId": "a" })))
        .await;
    raw.desk.gate.reached(1).await;
    for n in 1..=10 {
        raw.send(request(n, "echo", &json!({ "sessionId": "a" })))
            .await;
    }
    raw.send(request(11, "echo", &json!({ "sessionId": "b" })))
        .await;
    for n in 5..=10 {
        let frame = raw.frame().await;
        assert_eq!(
            (&frame["id"], &frame["error"]["code"]),
            (&json!(n), &json!(-32603))
        );
        assert_eq!(frame["error"]["data"], json!({ "reason": "busy" }));
    }
    assert_eq!(raw.frame().await["id"], 11);
    raw.desk.gate.open(1);
    for n in 0..=4 {
        assert_eq!(raw.frame().await["id"], n);
    }
    assert!(RpcError::busy().is_busy());
}

#[tokio::test]
async fn a_lane_is_full_by_bytes_as_well() {
    let mut raw = Raw::with(
        Options {
            lane_bytes: 1000,
            ..Options::agent()
        },
        1 << 20,
    );
    opened(&mut raw).await;
    let params = |n: usize| json!({ "sessionId": "a", "text": "x".repeat(n) });
    // Alone, a message of any size is let through.
    raw.send(request(1, "gate", &params(5000))).await;
    raw.desk.gate.reached(1).await;
    raw.send(request(2, "echo", &params(10))).await;
    assert_eq!(raw.frame().await["error"]["data"]["reason"], "busy");
    raw.desk.gate.open(1);
    assert_eq!(raw.frame().await["id"], 1);
    raw.send(request(3, "echo", &params(10))).await;
    assert_eq!(raw.frame().await["id"], 3);
}

#[tokio::test]
async fn handlers_beside_the_lanes_are_bounded_too() {
    let mut raw = Raw::with(
        Options {
            lane_frames: 2,
            ..Options::agent()
        },
        1 << 20,
    );
    for n in 0..3 {
        raw.send(request(n, "gate", &json!({ "lane": "now" })))
            .await;
    }
    let frame = raw.frame().await;
    assert_eq!(
        (&frame["id"], &frame["error"]["data"]["reason"]),
        (&json!(2), &json!("busy"))
    );
    raw.desk.gate.open(2);
    raw.frames(2).await;
}

#[tokio::test]
async fn on_the_client_side_a_full_lane_slows_the_peer_and_loses_nothing() {
    let options = Options {
        lane_frames: 4,
        ..Options::client()
    };
    assert_eq!(options.overflow, Overflow::Wait);
    let desk = Arc::new(Desk::default());
    let mut raw = Raw::serving(Arc::clone(&desk), options, 4096);
    let mut input = raw.input.take().unwrap();
    let sending = tokio::spawn(async move {
        tokio::io::AsyncWriteExt::write_all(
            &mut input,
            notification("gated", &json!({ "sessionId": "a" })).as_bytes(),
        )
        .await
        .unwrap();
        for n in 0..1000 {
            let line = notification("session/update", &json!({ "sessionId": "a", "n": n }));
            tokio::io::AsyncWriteExt::write_all(&mut input, line.as_bytes())
                .await
                .unwrap();
        }
        input
    });
    desk.gate.reached(1).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!sending.is_finished(), "the peer is slowed");
    desk.gate.open(1);
    raw.input = Some(soon(sending).await.unwrap());
    until(|| desk.seen().len() == 1001).await;
    let order: Vec<Value> = desk
        .seen()
        .into_iter()
        .skip(1)
        .map(|(_, params)| params["n"].clone())
        .collect();
    assert_eq!(order, (0..1000).map(Value::from).collect::<Vec<_>>());
}
