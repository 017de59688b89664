//! R115: programs that write more than messages into their output.

use std::time::Duration;

use serde_json::{Value, json};
use terret_acp::Options;

use crate::support::{Raw, soon};

#[tokio::test]
async fn r115_a_message_is_found_among_escape_sequences_and_banners() {
    let mut raw = Raw::client();
    for (n, (before, after)) in [
        ("\u{1b}]0;my agent\u{7}", ""),
        ("\u{1b}]2;title\u{1b}\\", "\r"),
        ("\u{1b}[2J\u{1b}[1;1H\u{1b}[?25l", "\u{1b}[0m"),
        ("\u{1b}(B\u{1b}=\u{1b}7", ""),
        ("\u{9b}31m\u{9d}0;t\u{9c}", " \u{1b}[K"),
        ("Welcome to agent 1.2 (beta)\r\n\n[info] starting\n{not json}\n", ""),
        ("{\"level\":\"info\",\"msg\":\"up\"}\n{\"level\":\"error\",\"error\":\"x\",\"method\":\"GET\"}\n42\n\"text\"\n", ""),
        ("\u{fffd}\u{7}\u{8}loading |\rloading /\r", ""),
    ]
    .into_iter()
    .enumerate()
    {
        let message = format!(r#"{{"jsonrpc":"2.0","id":{n},"method":"echo","params":{{"n":{n}}}}}"#);
        raw.send_line(format!("{before}{message}{after}")).await;
        assert_eq!(raw.frame().await, json!({ "jsonrpc": "2.0", "id": n, "result": { "n": n } }), "{before:?}");
    }
    // Nothing of the noise was answered, or the next frame would be that.
    raw.send(b"\xFF\xFE garbage\n").await;
    raw.assert_alive().await;
}

#[tokio::test(start_paused = true)]
async fn r115_a_start_that_never_comes_ends_with_the_last_line_of_noise() {
    let mut raw = Raw::client();
    raw.send("\u{1b}]0;title\u{7}\n").await;
    raw.send("\u{1b}[31mError: no \u{202e}API key, run `agent login`\u{1b}[0m\r\n")
        .await;
    // Read for certain before the time runs.
    raw.assert_alive().await;
    let peer = raw.peer.clone();
    let failed = tokio::spawn(async move {
        peer.request_within::<Value>(
            Duration::from_secs(10),
            "initialize",
            &json!({ "protocolVersion": 1 }),
        )
        .await
    })
    .await
    .unwrap()
    .unwrap_err();
    insta::assert_snapshot!(
        failed,
        @"`initialize` was not answered within 10s; the last thing it wrote that is not a message: Error: no API key, run `agent login`"
    );
}

#[tokio::test]
async fn an_endless_line_of_noise_is_dropped_without_an_answer() {
    let mut raw = Raw::with(
        Options {
            line_limit: 1000,
            ..Options::client()
        },
        1 << 16,
    );
    raw.send_line("x".repeat(5000)).await;
    raw.assert_alive().await;
    assert_eq!(
        raw.peer.last_noise().as_deref(),
        Some("(a line of more than 1000 bytes)")
    );
}

#[tokio::test]
async fn a_batch_is_refused_even_where_noise_is_passed_over() {
    let mut raw = Raw::client();
    raw.send_line(r#"[{"jsonrpc":"2.0","id":1,"method":"echo"}]"#)
        .await;
    assert_eq!(soon(raw.frame()).await["error"]["code"], -32600);
}
