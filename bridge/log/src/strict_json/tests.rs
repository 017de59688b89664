//! Strict and usual parsing differ only where they should.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on is to fail")]

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{MAX_DEPTH, fits_depth, parse};

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 40, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::btree_map(".{0,4}", inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_sound_reads_the_same(value in value()) {
        let text = value.to_string();
        prop_assert_eq!(parse(text.as_bytes()).unwrap(), serde_json::from_str::<Value>(&text).unwrap());
    }

    #[test]
    fn what_is_taken_the_usual_parser_takes_too(text in r#"[\[\]{}:,"a1. eE+\-]{0,24}"#) {
        if let Ok(strict) = parse(text.as_bytes()) {
            prop_assert_eq!(strict, serde_json::from_str::<Value>(&text).unwrap());
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let _ = parse(&bytes);
    }
}

#[test]
fn equal_keys_are_refused_at_any_depth() {
    for bad in [
        r#"{"a":1,"a":1}"#,
        r#"[{"b":{"a":1,"\u0061":2}}]"#,
        r#"{"":1,"":2}"#,
    ] {
        assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        assert!(
            serde_json::from_str::<Value>(bad).is_ok(),
            "the usual parser takes it"
        );
    }
}

#[test]
fn depth_is_bounded_alike_by_parser_and_writer() {
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    assert!(fits_depth(&parse(nested(MAX_DEPTH).as_bytes()).unwrap()));
    assert!(parse(nested(MAX_DEPTH + 1).as_bytes()).is_err());
    assert!(
        parse(nested(1_000_000).as_bytes()).is_err(),
        "a bomb is refused and not run"
    );
    let deep = (0..=MAX_DEPTH).fold(json!(1), |inner, _| json!({ "k": inner }));
    assert!(!fits_depth(&deep));
}
