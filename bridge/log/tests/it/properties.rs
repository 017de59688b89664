//! What must hold for any log.

use std::fs;

use proptest::prelude::*;
use serde_json::Value;
use terret_log::{InjectedBy, Payload, SessionState, TurnStatus, Verdict};

use crate::history::assert_valid;
use crate::support::*;

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>()
            .prop_filter("finite", |number| number.is_finite())
            .prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(".{0,4}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Any event, in any order: also orders that the loop never writes.
fn payload() -> impl Strategy<Value = Payload> {
    let id = || "[abc]";
    let name = || {
        prop_oneof![
            Just("Read".to_owned()),
            Just("TodoWrite".to_owned()),
            ".{0,70}"
        ]
    };
    prop_oneof![
        ".{0,20}".prop_map(|text| user(&text)),
        ".{0,20}".prop_map(|text| injected(&text, InjectedBy::Steer)),
        ".{0,20}".prop_map(|text| chunk(&text)),
        ".{0,20}".prop_map(|text| thought(&text)),
        (
            proptest::collection::vec((id(), name(), value()), 0..3),
            ".{0,9}"
        )
            .prop_map(|(calls, said)| {
                let calls = calls
                    .into_iter()
                    .map(|(id, name, args)| call(&id, &name, args));
                assistant(std::iter::once(text(&said)).chain(calls).collect())
            }),
        (id(), name(), value()).prop_map(|(id, name, args)| tool_call(&id, &name, args)),
        id().prop_map(|id| tool_started(&id)),
        (id(), ".{0,9}").prop_map(|(id, text)| result(&id, &text)),
        (id(), ".{0,9}").prop_map(|(id, text)| failure(&id, &text)),
        Just(turn_start()),
        prop_oneof![
            Just(TurnStatus::Completed),
            Just(TurnStatus::Refused),
            Just(TurnStatus::Failed)
        ]
        .prop_map(turn_end),
        (1_u32..4).prop_map(step_start),
        (1_u32..4, 0_u64..99, 0_u64..99).prop_map(|(n, prompt, reply)| step_end_with(
            n,
            prompt,
            reply,
            Some(0.1)
        )),
        (id(), id()).prop_map(|(request, call)| asked(&request, &call)),
        (id(), id()).prop_map(|(request, call)| resolved(&request, &call, Verdict::Approved)),
        (0_u64..30, ".{0,9}")
            .prop_map(|(upto_seq, summary)| Payload::SessionCompacted { upto_seq, summary }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_reload_gives_the_state_of_the_live_fold(payloads in proptest::collection::vec(payload(), 0..40)) {
        let home = home();
        let mut live = SessionState::default();
        let mut log = home.store.create(id("s")).unwrap();
        let mut written = vec![log.append(created()).unwrap()];
        for payload in payloads {
            // A compaction that does not fit is refused, and leaves nothing.
            written.extend(log.append(payload));
        }
        written.iter().for_each(|event| live.apply(event));
        drop(log);
        let (_, reloaded) = home.store.open_writer(&id("s")).unwrap();
        prop_assert_eq!(&reloaded, &live);
        let read: Vec<_> = home.events("s");
        prop_assert!(read.iter().eq(written.iter().map(AsRef::as_ref)));
    }

    #[test]
    fn any_truncation_keeps_all_whole_records(payloads in proptest::collection::vec(payload(), 1..12), cut in any::<prop::sample::Index>()) {
        let home = home();
        let mut log = home.store.create(id("s")).unwrap();
        log.append(created()).unwrap();
        for payload in payloads {
            let _ = log.append(payload);
        }
        drop(log);
        let path = home.store.log_path(&id("s"));
        let whole = fs::read(&path).unwrap();
        let kept = &whole[..cut.index(whole.len() + 1)];
        fs::write(&path, kept).unwrap();
        let lines = kept.iter().filter(|byte| **byte == b'\n').count() as u64;

        prop_assert_eq!(home.events("s").len() as u64, lines);
        let (mut log, _) = home.store.open_writer(&id("s")).unwrap();
        let torn = !kept.is_empty() && kept.last() != Some(&b'\n');
        prop_assert_eq!(log.next_seq(), lines + u64::from(torn));
        log.append(user("on it goes")).unwrap();
        drop(log);
        let (log, _) = home.store.open_writer(&id("s")).unwrap();
        prop_assert_eq!(log.next_seq(), lines + u64::from(torn) + 1);
        prop_assert!(home.store.verify(&id("s")).unwrap().is_sound());
    }

    #[test]
    fn any_junk_in_place_of_a_log_is_survived(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let home = home();
        drop(home.session("s", vec![user("one")]));
        let path = home.store.log_path(&id("s"));
        let good = fs::read(&path).unwrap();
        fs::write(&path, [&good[..], &bytes].concat()).unwrap();
        let (log, state) = home.store.open_writer(&id("s")).unwrap();
        prop_assert_eq!(conversation(&state), ["User: one"]);
        prop_assert_eq!(log.next_seq(), if bytes.is_empty() { 2 } else { 3 });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_request_is_valid(payloads in proptest::collection::vec(payload(), 0..40)) {
        let mut events = payloads;
        events.push(turn_end(TurnStatus::Completed));
        assert_valid(&state_of(events));
    }
}
