#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use schemars::JsonSchema;
use serde_json::{Value, json};

use super::{check, describe};

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is looked at")]
struct Input {
    /// A path.
    path: String,
    /// How many.
    #[schemars(range(min = 1))]
    limit: Option<u64>,
    #[serde(default)]
    all: bool,
    #[serde(default)]
    edits: Vec<Edit>,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is looked at")]
struct Edit {
    old: String,
}

fn error(args: Value) -> String {
    check("T", &describe::<Input>().1, args)
        .expect_err("a refusal")
        .0
}

#[test]
fn a_refusal_names_the_parameter_what_came_and_what_is_wanted() {
    assert_eq!(
        error(json!({})),
        "`path` is missing, and a string is wanted"
    );
    assert_eq!(
        error(json!({"path": null})),
        "`path` is null, and a string is wanted"
    );
    assert_eq!(
        error(json!({"path": 3})),
        "`path` is the number 3, and a string is wanted"
    );
    assert_eq!(
        error(json!({"path": "p", "all": "yes"})),
        "`all` is the string \"yes\", and a boolean is wanted"
    );
    assert_eq!(
        error(json!({"path": "p", "limit": 0})),
        "`limit` is the number 0, and at least 1 is wanted"
    );
    assert_eq!(
        error(json!({"path": "p", "limit": 1.5})),
        "`limit` is the number 1.5, and an integer is wanted"
    );
    assert_eq!(
        error(json!({"path": "p", "edits": {}})),
        "`edits` is an object, and a list is wanted"
    );
    assert_eq!(
        error(json!({"path": "p", "edits": [{"old": "a"}, {}]})),
        "`old` of item 2 of `edits` is missing, and a string is wanted"
    );
    assert_eq!(
        error(json!("text")),
        "the set of arguments is the string \"text\", and an object is wanted"
    );
}

#[test]
fn numbers_as_text_and_nulls_for_nothing_are_taken() {
    let schema = describe::<Input>().1;
    let checked = check(
        "T",
        &schema,
        json!({"path": "p", "limit": "10", "all": null}),
    )
    .expect("fits");
    assert_eq!(checked.args, json!({"path": "p", "limit": 10}));
    let checked = check("T", &schema, json!({"path": "p", "limit": 10.0})).expect("fits");
    assert_eq!(checked.args, json!({"path": "p", "limit": 10}));
}

#[test]
fn unknown_parameters_are_dropped_and_named_deep_down_too() {
    let args = json!({"path": "p", "edits": [{"old": "a", "color": 1}], "x": 2});
    let checked = check("T", &describe::<Input>().1, args.clone()).expect("fits");
    assert_eq!(checked.args, json!({"path": "p", "edits": [{"old": "a"}]}));
    assert_eq!(
        checked.remarks,
        [
            "ignored `color` of item 1 of `edits`: there is no such parameter",
            "ignored `x`: there is no such parameter"
        ]
    );
    // A tool server's schema may be open, so it gets all.
    assert_eq!(
        check("mcp__a__b", &describe::<Input>().1, args.clone())
            .expect("fits")
            .args,
        args
    );
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(
                prop_oneof![Just("path".to_owned()), Just("edits".to_owned()), ".{0,4}"],
                inner,
                0..4
            )
            .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn no_arguments_at_all_panic_and_what_passes_passes_again(args in any_json()) {
        let schema = describe::<Input>().1;
        if let Ok(checked) = check("T", &schema, args) {
            let again = check("T", &schema, checked.args.clone()).expect("what fits, fits");
            prop_assert_eq!(&again.args, &checked.args);
            prop_assert!(again.remarks.is_empty());
        }
    }
}
