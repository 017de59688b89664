//! Checks 1 to 20: what a store keeps, refuses and reports.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Arc, Mutex};

use terret_log::{AppendError, Payload, PayloadError, SessionId, StoreError};

use crate::support::*;

#[test]
fn check_001_a_new_session_begins_with_session_created() {
    let home = home();
    home.session("s", vec![]);
    let events = home.events("s");
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].seq, 0);
    assert!(matches!(
        events[0].payload,
        Payload::SessionCreated {
            parent_id: None,
            ..
        }
    ));
    let line = fs::read_to_string(home.store.log_path(&id("s"))).unwrap();
    assert!(
        line.contains(r#""type":"session/created","payload":{"parent_id":null,"#),
        "{line}"
    );
}

#[test]
fn check_002_seqs_have_no_holes_in_a_fresh_store() {
    let home = home();
    home.session("s", golden_turn());
    let fresh = terret_log::Store::open(home.store.root(), Ticks::new()).unwrap();
    let seqs: Vec<u64> = fresh
        .read(&id("s"), 0)
        .unwrap()
        .map(|event| event.unwrap().seq)
        .collect();
    assert_eq!(seqs, (0..16).collect::<Vec<u64>>());
}

#[test]
fn check_003_an_unknown_type_is_refused() {
    for name in ["session/event", "approval/granted", "", "turn/start "] {
        let error = Payload::from_json(name, b"{}").unwrap_err();
        assert!(
            matches!(error, PayloadError::UnknownType(_)),
            "{name}: {error}"
        );
    }
    assert!(Payload::from_json("turn/start", br#"{"agent":"a"}"#).is_ok());
}

#[test]
fn check_003_a_field_that_would_be_lost_is_refused() {
    let error = Payload::from_json("turn/start", br#"{"agent":"a","extra":1}"#).unwrap_err();
    assert!(
        matches!(&error, PayloadError::UnknownField { field, .. } if field == "extra"),
        "{error}"
    );
    let nested = br#"{"n":1,"usage":{"prompt_tokens":1,"completion_tokens":2,"price":3}}"#;
    assert!(matches!(
        Payload::from_json("step/end", nested),
        Err(PayloadError::UnknownField { .. })
    ));
    // What is left out when it says nothing may be there.
    let empty = br#"{"text":"hi","images":[],"blocks":[]}"#;
    assert_eq!(
        Payload::from_json("user/message", empty).unwrap(),
        user("hi")
    );
}

#[test]
fn check_004_what_json_cannot_hold_is_refused() {
    let home = home();
    let mut log = home.session("s", vec![]);
    for cost in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let error = log.append(step_end_with(1, 1, 1, Some(cost))).unwrap_err();
        assert!(matches!(error, AppendError::NotFinite { .. }), "{error}");
    }
    assert_eq!(log.next_seq(), 1);
    assert_eq!(home.events("s").len(), 1);
    for bad in [
        &br#"{"id":"a","name":"b","args":{"x":NaN}}"#[..],
        br#"{"id":"a","name":"b","args":{"x":Infinity}}"#,
        br#"{"id":"a","name":"b","args":{"x":-Infinity}}"#,
        br#"{"id":"a","name":"b","args":{"x":1e999}}"#,
        b"{\"id\":\"a\",\"name\":\"b\",\"args\":\"\xff\xfe\"}",
        br#"{"id":"a","name":"b","args":"\ud800"}"#,
        br#"{"id":"a","name":"b","args":"\udc00x"}"#,
        br#"{"id":"a","name":"b","args":{}} trailing"#,
        br#"["not","an","object"]"#,
        b"",
    ] {
        assert!(
            Payload::from_json("tool/call", bad).is_err(),
            "{}",
            String::from_utf8_lossy(bad)
        );
    }
}

#[test]
fn check_004_a_value_too_deep_to_read_back_is_refused() {
    let home = home();
    let mut log = home.session("s", vec![]);
    let nest = |levels: usize| {
        (0..levels).fold(serde_json::json!(1), |inner, _| serde_json::json!([inner]))
    };
    log.append(tool_call("a", "b", nest(96))).unwrap();
    log.append(assistant(vec![call("a", "b", nest(96))]))
        .unwrap();
    for payload in [
        tool_call("a", "b", nest(97)),
        assistant(vec![call("a", "b", nest(97))]),
    ] {
        assert!(matches!(
            log.append(payload),
            Err(AppendError::TooDeep { .. })
        ));
    }
    assert_eq!(
        home.events("s").len(),
        3,
        "the deepest that is taken can be read back"
    );
}

#[test]
fn check_005_equal_keys_are_refused() {
    for bad in [
        &br#"{"id":"a","id":"a","name":"b","args":{}}"#[..],
        br#"{"id":"a","name":"b","args":{"path":"x","path":"y"}}"#,
        br#"{"id":"a","name":"b","args":{"deep":[{"k":1,"\u006b":2}]}}"#,
    ] {
        let error = Payload::from_json("tool/call", bad).unwrap_err();
        assert!(error.to_string().contains("twice"), "{error}");
    }
}

#[test]
fn check_007_concurrent_appenders_never_share_a_seq() {
    let home = home();
    let log = Arc::new(Mutex::new(home.session("s", vec![])));
    let seqs: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|thread| {
                let log = Arc::clone(&log);
                scope.spawn(move || {
                    (0..50)
                        .map(|n| {
                            log.lock()
                                .unwrap()
                                .append(chunk(&format!("{thread}-{n}")))
                                .unwrap()
                                .seq
                        })
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    let mut sorted = seqs.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (1..=400).collect::<Vec<u64>>());
    assert_eq!(home.events("s").len(), 401);
}

#[test]
fn check_008_what_is_appended_while_an_event_is_handled_comes_after_it() {
    let home = home();
    let mut log = home.session("s", vec![user("one")]);
    let mut first = Vec::new();
    let mut second = home.store.read(&id("s"), 0).unwrap();
    for event in home.store.read(&id("s"), 0).unwrap() {
        let event = event.unwrap();
        if event.seq == 1 {
            log.append(user("two")).unwrap();
        }
        first.push(event);
    }
    let second: Vec<_> = second.by_ref().map(Result::unwrap).collect();
    assert_eq!(first, second);
    assert_eq!(
        first.iter().map(|event| event.seq).collect::<Vec<_>>(),
        [0, 1, 2]
    );
}

#[test]
fn check_009_a_failing_reader_hinders_neither_append_nor_other_readers() {
    let home = home();
    let mut log = home.session("s", vec![]);
    let store = home.store.clone();
    let failed = std::thread::spawn(move || {
        let mut reader = store.read(&id("s"), 0).unwrap();
        reader.next();
        std::panic::resume_unwind(Box::new("a listener fails"));
    })
    .join();
    assert!(failed.is_err());
    log.append(user("still here")).unwrap();
    assert_eq!(home.events("s").len(), 2);
}

#[test]
fn check_010_reading_from_k_equals_a_tail_from_k() {
    let home = home();
    let mut log = home.session("s", vec![]);
    let mut tail = home.store.read(&id("s"), 3).unwrap();
    assert!(tail.next().is_none(), "nothing is there yet");
    let mut followed = Vec::new();
    for payload in golden_turn() {
        log.append(payload).unwrap();
        followed.extend(tail.by_ref().map(Result::unwrap));
    }
    for k in 0..20_u64 {
        let read: Vec<_> = home
            .store
            .read(&id("s"), k)
            .unwrap()
            .map(Result::unwrap)
            .collect();
        let expected: Vec<_> = home
            .events("s")
            .into_iter()
            .filter(|event| event.seq >= k)
            .collect();
        assert_eq!(read, expected, "from {k}");
    }
    assert_eq!(
        followed,
        home.store
            .read(&id("s"), 3)
            .unwrap()
            .map(Result::unwrap)
            .collect::<Vec<_>>()
    );
}

#[test]
fn check_011_an_unknown_session_is_an_error() {
    let home = home();
    assert!(matches!(
        home.store.open_writer(&id("nobody")),
        Err(StoreError::NotFound { .. })
    ));
    assert!(matches!(
        home.store.read(&id("nobody"), 0),
        Err(StoreError::NotFound { .. })
    ));
    assert!(matches!(
        home.store.verify(&id("nobody")),
        Err(StoreError::NotFound { .. })
    ));
    assert!(!home.store.exists(&id("nobody")));
    assert!(home.store.ids().unwrap().is_empty());
    home.store.delete(&id("nobody")).unwrap();
}

#[test]
fn check_011_a_live_session_is_not_opened_twice() {
    let home = home();
    let log = home.session("s", golden_turn());
    let error = home.store.open_writer(&id("s")).unwrap_err();
    assert!(
        matches!(&error, StoreError::Held { by, .. } if by.contains(&std::process::id().to_string())),
        "{error}"
    );
    assert!(matches!(
        home.store.delete(&id("s")),
        Err(StoreError::Held { .. })
    ));
    assert!(matches!(
        home.store.create(id("s")),
        Err(StoreError::Exists { .. })
    ));
    drop(log);
    assert_eq!(home.store.open_writer(&id("s")).unwrap().0.next_seq(), 16);
}

#[test]
fn check_012_messages_are_the_same_after_a_reload() {
    let home = home();
    let mut live = terret_log::SessionState::default();
    let mut log = home.store.create(id("s")).unwrap();
    for payload in std::iter::once(created())
        .chain(golden_turn())
        .chain([turn_start(), user("again \u{2028} \"ü\"\n")])
    {
        live.apply(&log.append(payload).unwrap());
    }
    drop(log);
    let (log, reloaded) = home.store.open_writer(&id("s")).unwrap();
    assert_eq!(reloaded.history.messages(), live.history.messages());
    assert_eq!(reloaded.history.digest(), live.history.digest());
    assert_eq!(reloaded, live);
    assert_eq!(reloaded.next_seq(), log.next_seq());
    assert_eq!(home.store.load(&id("s")).unwrap(), live);
}

#[test]
fn check_019_an_id_cannot_leave_the_folder() {
    for bad in [
        "../x",
        "a/b",
        "a\\b",
        "..",
        ".",
        "",
        "a.b",
        "a\0b",
        "ä",
        &"x".repeat(65),
    ] {
        assert!(bad.parse::<SessionId>().is_err(), "{bad:?}");
        assert!(
            serde_json::from_value::<SessionId>(bad.into()).is_err(),
            "{bad:?}"
        );
    }
    let home = home();
    let path = home.store.log_path(&id("A-z_0"));
    assert_eq!(path.parent().unwrap(), home.store.root().join("sessions"));
}

#[test]
fn a_session_and_what_lies_beside_it_are_private_and_made_late() {
    let home = home();
    assert!(!home.store.root().exists(), "opening makes nothing");
    let log = home.session("s", vec![]);
    let blob = home.store.blobs().put(b"secret").unwrap();
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let sessions = home.store.root().join("sessions");
    assert_eq!(mode(home.store.root()), 0o700);
    assert_eq!(mode(&sessions), 0o700);
    assert_eq!(mode(&home.store.log_path(&id("s"))), 0o600);
    assert_eq!(mode(&sessions.join("s.holder")), 0o600);
    assert_eq!(
        mode(
            &home
                .store
                .root()
                .join("blobs")
                .join(&blob.as_str()[..2])
                .join(blob.as_str())
        ),
        0o600
    );
    drop(log);
    assert!(
        !sessions.join("s.holder").exists(),
        "the note goes with the writer"
    );
    home.store.delete(&id("s")).unwrap();
    assert_eq!(fs::read_dir(&sessions).unwrap().count(), 0);
}

#[test]
fn a_replaced_file_stops_the_writer() {
    let home = home();
    let mut log = home.session("s", vec![user("one")]);
    let path = home.store.log_path(&id("s"));
    fs::rename(&path, path.with_extension("moved")).unwrap();
    assert!(matches!(
        log.append(user("two")),
        Err(AppendError::Replaced { .. })
    ));
    fs::copy(path.with_extension("moved"), &path).unwrap();
    assert!(
        matches!(log.append(user("two")), Err(AppendError::Replaced { .. })),
        "a copy is another file"
    );
    // The copy has no writer, so it can be opened; never are there two writers of one file.
    let (mut second, _) = home.store.open_writer(&id("s")).unwrap();
    second.append(user("two")).unwrap();
    assert!(log.append(user("lost")).is_err());
    assert_eq!(home.events("s").len(), 3);
}

#[test]
fn a_foreign_write_stops_the_writer() {
    use std::io::Write as _;
    let home = home();
    let mut log = home.session("s", vec![]);
    let mut foreign = fs::OpenOptions::new()
        .append(true)
        .open(home.store.log_path(&id("s")))
        .unwrap();
    foreign.write_all(b"{}\n").unwrap();
    assert!(matches!(
        log.append(user("x")),
        Err(AppendError::Foreign { .. })
    ));
}

#[test]
fn a_line_over_the_limit_is_refused_and_leaves_nothing() {
    let home = home();
    let mut log = home.session("s", vec![]);
    let error = log
        .append(user(&"x".repeat(terret_log::MAX_LINE_BYTES)))
        .unwrap_err();
    assert!(matches!(error, AppendError::TooLarge { .. }), "{error}");
    assert_eq!(log.append(user("small")).unwrap().seq, 1);
    // Whole batches are refused as one.
    let batch = vec![user("a"), step_end_with(1, 1, 1, Some(f64::NAN))];
    assert!(log.append_all(batch).is_err());
    assert_eq!(
        log.append_all(vec![user("b"), user("c")]).unwrap()[1].seq,
        3
    );
    assert_eq!(home.events("s").len(), 4);
}

#[test]
fn a_compaction_must_lie_behind_the_last_one_and_before_itself() {
    let home = home();
    let mut log = home.session("s", vec![user("a"), user("b"), user("c")]);
    let compact = |upto_seq| Payload::SessionCompacted {
        upto_seq,
        summary: "s".to_owned(),
    };
    assert!(matches!(
        log.append(compact(4)),
        Err(AppendError::Compaction { .. })
    ));
    log.append(compact(2)).unwrap();
    assert!(matches!(
        log.append(compact(1)),
        Err(AppendError::Compaction { .. })
    ));
    drop(log);
    let (mut log, _) = home.store.open_writer(&id("s")).unwrap();
    assert!(
        matches!(log.append(compact(1)), Err(AppendError::Compaction { .. })),
        "a reload remembers"
    );
    log.append(compact(3)).unwrap();
}

#[test]
fn the_chain_can_be_checked_by_a_stranger() {
    use sha2::{Digest as _, Sha256};
    let home = home();
    home.session("s", golden_turn());
    let file = fs::read_to_string(home.store.log_path(&id("s"))).unwrap();
    let mut before = "0".repeat(64);
    for line in file.lines() {
        let (body, tail) = line.rsplit_once(",\"chain\":\"").unwrap();
        let chain = tail.strip_suffix("\"}").unwrap();
        let hash = Sha256::digest(format!("{before}{body}"));
        let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hash, chain);
        before = chain.to_owned();
    }
    let report = home.store.verify(&id("s")).unwrap();
    assert!(report.is_sound());
    assert_eq!((report.events, report.head), (16, Some(before)));
}

#[test]
fn a_newer_format_or_type_is_refused_and_said() {
    let home = home();
    drop(home.session("s", vec![]));
    let path = home.store.log_path(&id("s"));
    let line = fs::read_to_string(&path).unwrap();
    fs::write(&path, line.replacen("{\"v\":1,", "{\"v\":2,", 1)).unwrap();
    let error = home.store.open_writer(&id("s")).unwrap_err();
    assert!(
        matches!(&error, StoreError::Newer { found, .. } if found == "format 2"),
        "{error}"
    );
    assert!(matches!(
        home.store.read(&id("s"), 0).unwrap().next(),
        Some(Err(StoreError::Newer { .. }))
    ));
    assert_eq!(
        fs::read_to_string(&path).unwrap().len(),
        line.len(),
        "nothing was repaired away"
    );
}
