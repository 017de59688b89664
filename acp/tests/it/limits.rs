//! Large lines, endless lines, and peers that do not read.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use serde_json::json;
use terret_acp::framing::DEFAULT_LINE_LIMIT;
use terret_acp::{Connection, Ended, NotifyError, Options};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};

use crate::support::{Desk, Raw, request, soon, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_of_64_mb_works_both_ways() {
    let mut raw = Raw::agent();
    let frame_bytes = 64 * 1024 * 1024;
    let head = r#"{"jsonrpc":"2.0","id":1,"method":"echo","params":{"text":""#;
    let text = "x".repeat(frame_bytes - head.len() - r#""}}"#.len());
    let line = format!("{head}{text}\"}}}}\n");
    assert_eq!(line.len() - 1, DEFAULT_LINE_LIMIT);
    let mut input = raw.input.take().unwrap();
    let sending = tokio::spawn(async move {
        tokio::io::AsyncWriteExt::write_all(&mut input, line.as_bytes())
            .await
            .unwrap();
        input
    });
    let answer = raw.line().await;
    assert_eq!(
        answer.len(),
        r#"{"jsonrpc":"2.0","id":1,"result":{"text":""}}"#.len() + text.len()
    );
    raw.input = Some(sending.await.unwrap());
    raw.assert_alive().await;
}

#[tokio::test]
async fn a_line_over_the_limit_is_answered_once_and_dropped() {
    let mut raw = Raw::with(
        Options {
            line_limit: 1000,
            ..Options::agent()
        },
        1 << 20,
    );
    raw.send_line("x".repeat(1000)).await;
    assert_eq!(
        raw.frame().await["error"]["code"],
        -32700,
        "it is at the limit"
    );
    for length in [1001, 70_000, 500_000] {
        raw.send_line("x".repeat(length)).await;
        assert_eq!(
            raw.line().await,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"a line is longer than 1000 bytes; it was dropped"}}"#
        );
        raw.assert_alive().await;
    }
}

/// 1 GiB without a line end, then a request. It asserts how much it was asked to fill at once,
/// which is what the reader keeps room for.
struct Endless {
    left: usize,
    tail: &'static [u8],
    largest_room: Arc<AtomicUsize>,
}

impl AsyncRead for Endless {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let room = buffer.remaining();
        self.largest_room.fetch_max(room, Ordering::Relaxed);
        if self.left > 0 {
            let count = room.min(self.left);
            let piece = [b'x'; 64 * 1024];
            buffer.put_slice(&piece[..count.min(piece.len())]);
            self.left -= count.min(piece.len());
        } else {
            let count = room.min(self.tail.len());
            buffer.put_slice(&self.tail[..count]);
            self.tail = &self.tail[count..];
        }
        Poll::Ready(Ok(()))
    }
}

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    let kilobytes: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kilobytes * 1024
}

#[tokio::test]
async fn r111_a_peer_that_never_ends_its_line_costs_bounded_memory() {
    let largest_room = Arc::new(AtomicUsize::new(0));
    let input = Endless {
        left: 1 << 30,
        tail: b"\n{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"echo\",\"params\":{}}\n",
        largest_room: Arc::clone(&largest_room),
    };
    let (ours, mut theirs) = tokio::io::duplex(1 << 16);
    let options = Options {
        line_limit: 1 << 20,
        ..Options::agent()
    };
    let before = resident_bytes();
    let (_peer, driver) = Connection::serve(input, ours, Arc::new(Desk::default()), options);
    let ended = soon(driver).await;
    assert!(matches!(ended, Ended::Eof), "{ended:?}");
    let mut output = String::new();
    soon(theirs.read_to_string(&mut output)).await.unwrap();
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines.len(), 2, "{output}");
    assert!(
        lines[0].contains("-32600") && lines[0].contains("\"id\":null"),
        "{output}"
    );
    assert_eq!(lines[1], r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    assert!(largest_room.load(Ordering::Relaxed) <= 64 * 1024);
    // Tests of this binary run beside this one, so the bound is a loose one; what is not
    // dropped would be 1 GiB.
    assert!(resident_bytes().saturating_sub(before) < 700 << 20);
}

#[tokio::test]
async fn a_peer_that_does_not_read_bounds_what_waits_for_it() {
    let mut raw = Raw::with(Options::agent(), 1024);
    // 1,024 small frames at most, beside what the writer took in hand before the pipe filled.
    let mut queued = 0;
    soon(async {
        loop {
            match raw
                .peer
                .try_notify("session/update", &json!({ "n": queued }))
            {
                Ok(()) => queued += 1,
                Err(NotifyError::Full) => break,
                Err(error) => panic!("{error}"),
            }
        }
    })
    .await;
    assert_eq!(queued, 1024);
    // Large ones fill it by bytes.
    for n in 0..queued {
        assert_eq!(raw.frame().await["params"]["n"], n);
    }
    soon(raw.peer.flush()).await.unwrap();
    let large = json!({ "text": "x".repeat(1 << 20) });
    let mut count = 0;
    while raw.peer.try_notify("session/update", &large).is_ok() {
        count += 1;
    }
    assert_eq!(count, 7, "7 of a little more than 1 MiB in 8 MiB");
    let peer = raw.peer.clone();
    let waiting = tokio::spawn(async move { peer.notify("last", &json!({})).await });
    // What is read is answered all the same: the reader does not stand behind the writer.
    raw.send(request(1, "keep", &json!({ "sessionId": "a" })))
        .await;
    raw.send(request(2, "keep", &json!({ "sessionId": "b" })))
        .await;
    until(|| raw.desk.kept.lock().unwrap().len() == 2).await;
    for _ in 0..count {
        raw.line().await;
    }
    assert_eq!(raw.frame().await["method"], "last");
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_frame_that_is_larger_than_the_queue_goes_alone() {
    let mut raw = Raw::with(
        Options {
            queue_bytes: 1000,
            ..Options::agent()
        },
        1024,
    );
    let peer = raw.peer.clone();
    let sending = tokio::spawn(async move {
        for n in 0..3 {
            peer.notify("big", &json!({ "n": n, "text": "x".repeat(100_000) }))
                .await
                .unwrap();
        }
    });
    for n in 0..3 {
        assert_eq!(raw.frame().await["params"]["n"], n);
    }
    soon(sending).await.unwrap();
}

#[tokio::test]
async fn an_answer_outlives_the_future_that_waited_to_queue_it() {
    let mut raw = Raw::with(
        Options {
            queue_frames: 1,
            queue_bytes: 64,
            ..Options::agent()
        },
        16,
    );
    raw.send(request(1, "keep", &json!({}))).await;
    until(|| !raw.desk.kept.lock().unwrap().is_empty()).await;
    let kept = raw.desk.kept.lock().unwrap().pop().unwrap();
    for n in 0..2 {
        raw.peer.notify("fill", &json!({ "n": n })).await.unwrap();
    }
    let answering = tokio::spawn(async move { kept.respond(&json!({ "answer": true })).await });
    tokio::task::yield_now().await;
    answering.abort();
    assert!(answering.await.unwrap_err().is_cancelled());
    raw.frames(2).await;
    assert_eq!(
        raw.line().await,
        r#"{"jsonrpc":"2.0","id":1,"result":{"answer":true}}"#
    );
}

#[tokio::test]
async fn a_flood_of_garbage_from_a_peer_that_does_not_read_is_held_back() {
    let mut raw = Raw::with(
        Options {
            queue_frames: 8,
            ..Options::agent()
        },
        1024,
    );
    let mut input = raw.input.take().unwrap();
    let flooding = tokio::spawn(async move {
        for _ in 0..2000 {
            tokio::io::AsyncWriteExt::write_all(&mut input, b"garbage\n")
                .await
                .unwrap();
        }
        input
    });
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
    assert!(!flooding.is_finished());
    for _ in 0..2000 {
        assert_eq!(raw.frame().await["error"]["code"], -32700);
    }
    raw.input = Some(soon(flooding).await.unwrap());
    raw.assert_alive().await;
}
