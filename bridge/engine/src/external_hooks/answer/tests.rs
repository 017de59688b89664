use serde_json::json;

use super::*;
use HookEvent::{PostToolUse, PreToolUse};

fn answered(status: i32, output: &str, errors: &str) -> Answered {
    let kept = |text: &str| Kept {
        bytes: text.as_bytes().to_vec(),
        dropped: 0,
    };
    Answered {
        end: End::Exited(status),
        output: kept(output),
        errors: kept(errors),
    }
}

fn before(output: Value) -> Result<Said, String> {
    understand(PreToolUse, &answered(0, &output.to_string(), ""))
}

#[test]
fn status_two_refuses_with_the_errors_as_the_reason() {
    for event in [PreToolUse, PostToolUse] {
        let said = understand(
            event,
            &answered(2, "{\"x\":", " not on main\n\u{1b}[2Jnow "),
        )
        .unwrap();
        assert_eq!(said.verdict, Some(Verdict::Block));
        assert_eq!(said.reason.as_deref(), Some("not on main\n\\u{1b}[2Jnow"));
    }
    let said = understand(PreToolUse, &answered(2, "", "")).unwrap();
    assert_eq!((said.verdict, said.reason), (Some(Verdict::Block), None));
}

#[test]
fn nothing_and_plain_words_say_nothing() {
    for output in ["", "\n", "checked, all is well\n", "[ok]"] {
        let said = understand(PreToolUse, &answered(0, output, "noise")).unwrap();
        assert_eq!(said, Said::default(), "{output}");
    }
}

#[test]
fn the_decisions_are_those_that_people_know() {
    let specific = |decision: &str| {
        json!({ "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": decision,
            "permissionDecisionReason": "because",
        }})
    };
    for (output, verdict) in [
        (specific("allow"), Verdict::Allow),
        (specific("ask"), Verdict::Ask),
        (specific("deny"), Verdict::Block),
        (
            json!({ "decision": "block", "reason": "because" }),
            Verdict::Block,
        ),
        (
            json!({ "decision": "approve", "reason": "because" }),
            Verdict::Allow,
        ),
    ] {
        let said = before(output).unwrap();
        assert_eq!(said.verdict, Some(verdict));
        assert_eq!(said.reason.as_deref(), Some("because"));
    }
    let mut both = specific("allow");
    both["decision"] = json!("block");
    assert_eq!(before(both).unwrap().verdict, Some(Verdict::Block));
}

#[test]
fn the_rest_of_an_answer_is_taken_too() {
    let said = before(json!({
        "continue": false,
        "stopReason": "enough",
        "systemMessage": "hello",
        "hookSpecificOutput": { "updatedInput": { "command": "ls" } },
        "something new": [1],
    }))
    .unwrap();
    assert_eq!(said.stop.as_deref(), Some("enough"));
    assert_eq!(said.message.as_deref(), Some("hello"));
    assert_eq!(said.input, Some(json!({ "command": "ls" })));
    let after = json!({
        "decision": "block",
        "reason": "the tests fail",
        "hookSpecificOutput": { "additionalContext": "see log" },
    });
    let said = understand(PostToolUse, &answered(0, &after.to_string(), "")).unwrap();
    assert_eq!(said.verdict, Some(Verdict::Block));
    assert_eq!(said.context.as_deref(), Some("see log"));
}

#[test]
fn an_answer_that_is_not_understood_is_a_failure_and_no_leave() {
    for output in [
        "{",
        "Warning: old\n{\"decision\":\"block\"}",
        "{\"decision\":\"block\"} trailing",
        "[{}]",
        "{\"decision\":\"maybe\"}",
        "{\"decision\":1}",
        "{\"continue\":\"no\"}",
        "{\"hookSpecificOutput\":[]}",
        "{\"hookSpecificOutput\":{\"permissionDecision\":\"Deny\"}}",
        "{\"hookSpecificOutput\":{\"updatedInput\":\"ls\"}}",
        "{\"reason\":[\"x\"]}",
    ] {
        assert!(
            understand(PreToolUse, &answered(0, output, "")).is_err(),
            "{output}"
        );
    }
    let mut binary = answered(0, "", "");
    binary.output.bytes = vec![0xff, 0xfe, b'o', b'k'];
    assert!(understand(PreToolUse, &binary).is_err());
    let mut long = answered(0, "xxxx", "");
    long.output.dropped = 9;
    assert!(understand(PreToolUse, &long).is_err());
}

#[test]
fn other_ends_are_failures_that_say_how() {
    let error = understand(PreToolUse, &answered(1, "{}", "Traceback\nsecond")).unwrap_err();
    assert!(
        error.contains("status 1") && error.contains("Traceback"),
        "{error}"
    );
    for (end, word) in [
        (End::Signalled(11), "signal 11"),
        (End::TimedOut, "in time"),
        (End::Cancelled, "stopped"),
    ] {
        let answered = Answered {
            end,
            ..answered(0, "", "")
        };
        let error = understand(PreToolUse, &answered).unwrap_err();
        assert!(error.contains(word), "{error}");
    }
}

#[test]
fn a_long_reason_is_cut() {
    let said = understand(PreToolUse, &answered(2, "", &"é".repeat(10_000))).unwrap();
    assert_eq!(said.reason.unwrap().chars().count(), LONGEST + 2);
}
