//! Lines that are not what was written are told apart from those that are.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on is to fail")]

use super::{BadLine, GENESIS, decode, encode, raw_payload};
use crate::event::{Event, Payload};

fn line() -> Vec<u8> {
    let mut buffer = Vec::new();
    let event = Event {
        seq: 0,
        at: 12,
        payload: Payload::TurnStart {
            agent: "a\"b\\\n".to_owned(),
        },
    };
    encode(&mut buffer, &event, &GENESIS).unwrap();
    assert_eq!(buffer.pop(), Some(b'\n'));
    buffer
}

#[test]
fn a_line_is_read_back() {
    let mut bytes = line();
    let (name, json) = raw_payload(&bytes).unwrap();
    assert_eq!(
        (name, json),
        ("turn/start", &br#"{"agent":"a\"b\\\n"}"#[..])
    );
    let (event, _) = decode(&mut bytes, 0, Some(&GENESIS)).unwrap();
    assert_eq!(
        event.payload,
        Payload::TurnStart {
            agent: "a\"b\\\n".to_owned()
        }
    );
    assert_eq!((event.seq, event.at), (0, 12));
}

#[test]
fn a_hole_a_wrong_chain_and_junk_differ() {
    assert!(matches!(
        decode(&mut line(), 1, Some(&GENESIS)),
        Err(BadLine::Wrong(_))
    ));
    assert!(matches!(
        decode(&mut line(), 0, Some(&[b'1'; 64])),
        Err(BadLine::Wrong(_))
    ));
    for junk in [
        &b""[..],
        b"{}",
        b"null",
        br#"{"v":1}"#,
        br#"{"v":01,"seq":0}"#,
        br#"{"v":99999999999999999999,"seq":0}"#,
    ] {
        assert!(matches!(
            decode(&mut junk.to_vec(), 0, Some(&GENESIS)),
            Err(BadLine::Junk(_))
        ));
    }
    let cut = line().len() - 1;
    assert!(matches!(
        decode(line().get_mut(..cut).unwrap(), 0, Some(&GENESIS)),
        Err(BadLine::Junk(_))
    ));
    assert!(matches!(
        decode(&mut br#"{"v":2,"anything":1}"#.to_vec(), 0, Some(&GENESIS)),
        Err(BadLine::Newer(_))
    ));
}

#[test]
fn a_type_of_a_newer_version_is_called_so() {
    let text = String::from_utf8(line())
        .unwrap()
        .replace("turn/start", "turn/waved");
    assert!(matches!(
        decode(&mut text.clone().into_bytes(), 0, None),
        Err(BadLine::Newer(_))
    ));
    assert!(
        matches!(
            decode(&mut text.into_bytes(), 0, Some(&GENESIS)),
            Err(BadLine::Wrong(_))
        ),
        "tampering comes first"
    );
}
