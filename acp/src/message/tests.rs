#![expect(clippy::panic, reason = "a test fails by panicking")]

use super::*;

fn read(line: &str, noise: Noise) -> Message {
    parse(&Bytes::copy_from_slice(line.as_bytes()), noise)
}

#[test]
fn parameters_are_a_slice_of_the_line_as_it_came() {
    let line =
        Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"method":"m","params": { "a" : 1.00 } }"#);
    let Message::Request { params, .. } = parse(&line, Noise::Refuse) else {
        panic!("it is a request");
    };
    assert_eq!(params.as_bytes(), br#"{ "a" : 1.00 }"#);
    assert!(line.as_ptr_range().contains(&params.as_bytes().as_ptr()));
}

#[test]
fn members_that_are_null_because_they_do_not_apply_are_absent() {
    let line = r#"{"jsonrpc":"2.0","id":1,"method":null,"params":null,"result":{},"error":null}"#;
    assert!(matches!(
        read(line, Noise::Refuse),
        Message::Response {
            id: Some(1),
            outcome: Outcome::Result(_)
        }
    ));
}

#[test]
fn a_null_result_is_a_result() {
    assert!(matches!(
        read(r#"{"id":1,"result":null}"#, Noise::Refuse),
        Message::Response { id: Some(1), outcome: Outcome::Result(raw) } if raw.is_null()
    ));
}

#[test]
fn among_noise_only_what_bears_the_mark_of_a_message_is_one() {
    for noise in [
        r#"{"level":"info","msg":"x"}"#,
        r#"{"level":"error","error":{"code":1}}"#,
        r#"{"id":5,"msg":"started"}"#,
        r#"{"method":"GET","path":"/"}"#,
        r#""text""#,
        "12",
        "[12:30:01] INFO up",
        "\u{1b}]0;title never ends {\"jsonrpc\":\"2.0\",\"method\":\"m\"}",
        "{\"jsonrpc\":\"2.0\",\"method\":\"m\"} and {\"more\":1}",
        "{",
    ] {
        assert!(
            matches!(read(noise, Noise::Skip), Message::Noise),
            "{noise}"
        );
    }
    for message in [
        r#"{"jsonrpc":"2.0","method":"m"}"#,
        r#"{"method":"m","params":{}}"#,
        "\u{1b}[0m \u{1b}]0;t\u{7} {\"jsonrpc\":\"2.0\",\"method\":\"m\"} \u{1b}[K",
        "npm warn {x} {\"jsonrpc\":\"2.0\",\"method\":\"m\"}",
    ] {
        assert!(
            matches!(read(message, Noise::Skip), Message::Notification { .. }),
            "{message}"
        );
    }
}
