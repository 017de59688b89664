//! How a connection ends, and what is still said.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use terret_acp::{Connection, Ended, Options};
use tokio::io::AsyncWriteExt;

use crate::support::{Desk, Raw, notification, request, soon, until};

#[tokio::test]
async fn requests_from_a_script_that_ends_its_input_at_once_are_answered() {
    let mut raw = Raw::agent();
    raw.send(request(1, "echo", &json!({}))).await;
    raw.send(request(2, "cancellable", &json!({ "sessionId": "a" })))
        .await;
    // The last line may lack its end.
    raw.send(request(3, "echo", &json!({ "sessionId": "b" })).trim_end())
        .await;
    let (rest, ended) = raw.end().await;
    assert!(matches!(ended, Ended::Eof), "{ended:?}");
    let mut lines: Vec<&str> = rest.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines.len(), 3, "{rest}");
    assert_eq!(lines[0], r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    assert!(
        lines[1].starts_with(r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32800,"#),
        "{rest}"
    );
    assert_eq!(
        lines[2],
        r#"{"jsonrpc":"2.0","id":3,"result":{"sessionId":"b"}}"#
    );
}

#[tokio::test]
async fn at_the_end_what_runs_is_cancelled_and_its_last_words_are_written() {
    let mut raw = Raw::agent();
    raw.send(request(1, "keep", &json!({ "sessionId": "a" })))
        .await;
    until(|| !raw.desk.kept.lock().unwrap().is_empty()).await;
    let kept = raw.desk.kept.lock().unwrap().pop().unwrap();
    let peer = raw.peer.clone();
    tokio::spawn(async move {
        kept.cancellation().cancelled().await;
        peer.notify("session/update", &json!({ "last": true }))
            .await
            .unwrap();
        kept.respond(&json!({ "stopReason": "cancelled" })).await;
    });
    let (rest, _) = raw.end().await;
    insta::assert_snapshot!(rest, @r#"
    {"jsonrpc":"2.0","method":"session/update","params":{"last":true}}
    {"jsonrpc":"2.0","id":1,"result":{"stopReason":"cancelled"}}
    "#);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_does_not_stop_is_stopped() {
    let mut raw = Raw::agent();
    raw.send(request(1, "gate", &json!({}))).await;
    raw.desk.gate.reached(1).await;
    let from = tokio::time::Instant::now();
    let (rest, ended) = raw.end().await;
    assert!(matches!(ended, Ended::Eof));
    assert_eq!(rest, "");
    assert!(
        from.elapsed() <= Duration::from_millis(2100),
        "{:?}",
        from.elapsed()
    );
}

#[tokio::test]
async fn a_broken_pipe_ends_the_connection_without_a_panic() {
    let (ours, theirs) = tokio::io::duplex(64);
    let (keep_reading, mut keep_open) = tokio::io::duplex(64);
    let desk = Arc::new(Desk::default());
    let (peer, driver) = Connection::serve(keep_reading, ours, desk.clone(), Options::agent());
    let driver = tokio::spawn(driver);
    keep_open
        .write_all(notification("hello", &json!({})).as_bytes())
        .await
        .unwrap();
    drop(theirs);
    let _ = peer.notify("into the void", &json!({})).await;
    let ended = soon(driver).await.unwrap();
    assert!(matches!(ended, Ended::WriteFailed(_)), "{ended:?}");
    assert!(peer.is_closed());
    assert!(peer.notify("late", &json!({})).await.is_err());
}

#[tokio::test]
async fn whoever_waits_for_room_is_woken_when_the_pipe_breaks() {
    let raw = Raw::with(
        Options {
            queue_frames: 1,
            queue_bytes: 64,
            ..Options::agent()
        },
        16,
    );
    let peer = raw.peer.clone();
    let sending = tokio::spawn(async move {
        let mut sent = 0;
        while peer.notify("fill", &json!({ "n": sent })).await.is_ok() {
            sent += 1;
        }
        sent
    });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    drop((raw.input, raw.output));
    assert!(soon(sending).await.unwrap() < 10);
    soon(raw.driver).await.unwrap();
}

#[tokio::test]
async fn closing_writes_what_is_queued() {
    let mut raw = Raw::agent();
    for n in 0..100 {
        raw.peer.notify("n", &json!({ "n": n })).await.unwrap();
    }
    raw.peer.close();
    for n in 0..100 {
        assert_eq!(raw.frame().await["params"]["n"], n);
    }
    let ended = soon(&mut raw.driver).await.unwrap();
    assert!(matches!(ended, Ended::Stopped), "{ended:?}");
}

#[tokio::test]
async fn dropping_the_driver_ends_everything() {
    let mut raw = Raw::agent();
    raw.send(request(1, "keep", &json!({}))).await;
    until(|| !raw.desk.kept.lock().unwrap().is_empty()).await;
    raw.driver.abort();
    assert!((&mut raw.driver).await.unwrap_err().is_cancelled());
    soon(raw.peer.closed()).await;
    let kept = raw.desk.kept.lock().unwrap().pop().unwrap();
    assert!(kept.cancellation().is_cancelled());
    soon(kept.respond(&json!({}))).await;
    let (rest, _) = {
        let mut rest = String::new();
        soon(tokio::io::AsyncReadExt::read_to_string(
            &mut raw.output,
            &mut rest,
        ))
        .await
        .unwrap();
        (rest, ())
    };
    assert_eq!(rest, "");
}

#[cfg(unix)]
#[tokio::test]
async fn it_works_over_a_unix_socket() {
    use tokio::io::AsyncBufReadExt;
    let (ours, theirs) = tokio::net::UnixStream::pair().unwrap();
    let (reader, writer) = ours.into_split();
    let (_peer, driver) =
        Connection::serve(reader, writer, Arc::new(Desk::default()), Options::agent());
    let driver = tokio::spawn(driver);
    let (output, mut input) = theirs.into_split();
    input
        .write_all(request(1, "echo", &json!({})).as_bytes())
        .await
        .unwrap();
    let mut line = String::new();
    tokio::io::BufReader::new(output)
        .read_line(&mut line)
        .await
        .unwrap();
    assert_eq!(line, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n");
    drop(input);
    assert!(matches!(soon(driver).await.unwrap(), Ended::Eof));
}

#[tokio::test]
async fn both_sides_of_this_crate_understand_each_other() {
    let (left, right) = tokio::io::duplex(1 << 16);
    let (left_reader, left_writer) = tokio::io::split(left);
    let (right_reader, right_writer) = tokio::io::split(right);
    let (agent_desk, client_desk) = (Arc::new(Desk::default()), Arc::new(Desk::default()));
    let (_, agent) = Connection::serve(
        left_reader,
        left_writer,
        agent_desk.clone(),
        Options::agent(),
    );
    let (agent_of, client) = Connection::serve(
        right_reader,
        right_writer,
        client_desk.clone(),
        Options::client(),
    );
    let (agent, client) = (tokio::spawn(agent), tokio::spawn(client));
    let answer: serde_json::Value = soon(agent_of.request("echo", &json!({ "a": 1 })))
        .await
        .unwrap();
    assert_eq!(answer, json!({ "a": 1 }));
    soon(agent_of.request_after_updates::<()>("s", "updates", &json!({ "n": 100 })))
        .await
        .unwrap();
    assert_eq!(client_desk.seen().len(), 100);
    let client_of = agent_desk.peer();
    let answer: serde_json::Value = soon(client_of.request("echo", &json!({ "b": 2 })))
        .await
        .unwrap();
    assert_eq!(answer, json!({ "b": 2 }));
    // A request that is dropped on one side is cancelled on the other.
    let dropped = tokio::spawn(async move {
        agent_of
            .request::<()>("cancellable", &json!({ "lane": "now" }))
            .await
    });
    until(|| {
        agent_desk
            .seen()
            .iter()
            .any(|(method, _)| method == "cancellable")
    })
    .await;
    dropped.abort();
    let _ = dropped.await;
    client_of.close();
    soon(agent).await.unwrap();
    soon(client).await.unwrap();
}
