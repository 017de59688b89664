//! What must hold for any bytes.

use proptest::prelude::*;
use serde_json::{Value, json};
use terret_acp::framing::{Line, LineBuffer};
use terret_acp::{Connection, Noise, Options, message};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{Desk, soon};

fn all_lines(limit: usize, pieces: &[&[u8]]) -> Vec<Line> {
    let mut buffer = LineBuffer::new(limit);
    let mut lines = Vec::new();
    for piece in pieces {
        buffer.push(piece);
        while let Some(line) = buffer.next_line() {
            lines.push(line);
        }
    }
    lines.extend(buffer.finish());
    lines
}

/// Bytes that look like what matters to the reader.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"\n".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"\xEF\xBB\xBF".to_vec()),
        Just(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"echo\",\"params\":{\"sessionId\":\"a\"}}\n".to_vec()),
        Just("\u{2028}\u{85}".as_bytes().to_vec()),
        Just(b"  \t".to_vec()),
        proptest::collection::vec(any::<u8>(), 0..40),
        (1_usize..300).prop_map(|length| vec![b'x'; length]),
    ];
    proptest::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat())
}

/// One line that a peer may send, and the id that an answer is due for.
fn line() -> impl Strategy<Value = (Vec<u8>, Option<String>)> {
    let id = prop_oneof![
        any::<i64>().prop_map(|number| number.to_string()),
        "[a-zé\"\\\\ ]{0,8}".prop_map(|text| Value::from(text).to_string()),
    ];
    let method = prop_oneof![
        Just("echo"),
        Just("panic"),
        Just("drop"),
        Just("typed"),
        Just("no/such")
    ];
    let params = prop_oneof![
        Just(None),
        Just(Some(json!(null))),
        Just(Some(json!([1, 2]))),
        Just(Some(json!({ "sessionId": "a" }))),
        Just(Some(json!({ "sessionId": "b", "x": [{ "y": null }] }))),
        Just(Some(json!({ "sessionId": 7 }))),
        Just(Some(json!({ "lane": "now" }))),
        Just(Some(json!("text"))),
    ];
    let call = (id, method, params.clone()).prop_map(|(id, method, params)| {
        let params = params
            .map(|params| format!(",\"params\":{params}"))
            .unwrap_or_default();
        (
            format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\"{params}}}")
                .into_bytes(),
            Some(id),
        )
    });
    let told = params.prop_map(|params| {
        (
            json!({ "method": "panic", "params": params })
                .to_string()
                .into_bytes(),
            None,
        )
    });
    let garbage = prop_oneof![
        proptest::collection::vec(
            any::<u8>().prop_filter("one line", |byte| *byte != b'\n'),
            0..60
        ),
        "[\\[\\]{}\":,0-9a-z ]{0,40}".prop_map(String::into_bytes),
        Just(br#"{"jsonrpc":"2.0","id":5,"result":{}}"#.to_vec()),
        Just(br#"{"jsonrpc":"2.0","id":null,"error":{}}"#.to_vec()),
        Just(br#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1}}"#.to_vec()),
        Just(br#"{"method":"#.to_vec()),
    ]
    // A random line that is a request by accident would be due an answer of its own.
    .prop_filter("no request", |bytes| {
        let line = bytes::Bytes::copy_from_slice(bytes);
        !matches!(
            message::parse(&line, Noise::Refuse),
            message::Message::Request { .. }
        )
    })
    .prop_map(|bytes| (bytes, None));
    prop_oneof![3 => call, 1 => told, 2 => garbage]
}

fn on_a_runtime<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

/// Sends the pieces, ends the input, gives everything that was answered.
async fn converse(pieces: Vec<Vec<u8>>) -> String {
    let (ours, theirs) = tokio::io::duplex(1 << 12);
    let (reader, writer) = tokio::io::split(ours);
    let (_peer, driver) = Connection::serve(
        reader,
        writer,
        std::sync::Arc::new(Desk::default()),
        Options::agent(),
    );
    let driver = tokio::spawn(driver);
    let (mut output, mut input) = tokio::io::split(theirs);
    let sending = tokio::spawn(async move {
        for piece in pieces {
            input.write_all(&piece).await.unwrap();
        }
        input.shutdown().await.unwrap();
    });
    let mut answered = String::new();
    soon(output.read_to_string(&mut answered)).await.unwrap();
    soon(sending).await.unwrap();
    soon(driver).await.unwrap();
    answered
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn any_split_of_the_bytes_gives_the_same_lines(
        bytes in stream(),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..20),
        limit in prop_oneof![Just(10_usize), Just(100), Just(100_000)],
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.sort_unstable();
        let mut pieces = Vec::new();
        let mut from = 0;
        for cut in cuts {
            pieces.push(&bytes[from..cut]);
            from = cut;
        }
        pieces.push(&bytes[from..]);
        let whole = all_lines(limit, &[&bytes]);
        prop_assert_eq!(&all_lines(limit, &pieces), &whole);
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(&all_lines(limit, &single), &whole);
        for line in whole {
            if let Line::Whole(line) = line {
                prop_assert!(line.len() <= limit && !line.contains(&b'\n') && !line.trim_ascii().is_empty());
            }
        }
    }

    #[test]
    fn no_line_is_too_odd_to_be_understood(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in "\\PC{0,60}") {
        for line in [bytes, text.into_bytes()] {
            let line = bytes::Bytes::from(line);
            let _ = message::parse(&line, Noise::Refuse);
            let _ = message::parse(&line, Noise::Skip);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn every_request_gets_exactly_one_answer_whatever_stands_between(
        lines in proptest::collection::vec(line(), 0..40),
        cut in 1_usize..200,
    ) {
        let mut bytes = Vec::new();
        let mut due: Vec<String> = Vec::new();
        for (line, id) in &lines {
            bytes.extend_from_slice(line);
            bytes.push(b'\n');
            due.extend(id.clone());
        }
        let pieces = bytes.chunks(cut).map(<[u8]>::to_vec).collect();
        let answered = on_a_runtime(converse(pieces));
        let mut given: Vec<String> = Vec::new();
        for line in answered.lines() {
            let frame: Value = serde_json::from_str(line).expect("only JSON is written");
            prop_assert!(frame.get("result").is_some() != frame.get("error").is_some());
            if !frame["id"].is_null() {
                given.push(frame["id"].to_string());
            }
        }
        due.sort();
        given.sort();
        prop_assert_eq!(given, due);
    }
}
