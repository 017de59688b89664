//! The script's format, and how replies are chosen and played.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use std::time::Duration;

use futures::StreamExt;
use serde_json::json;

use super::*;
use crate::message::{ToolCall, ToolResult};
use crate::provider::{StopReason, Usage};
use crate::testing::{calls_of, request};

fn script(text: &str) -> Scripted {
    Scripted::from_text("test.jsonl", text).unwrap()
}

fn user(text: &str) -> Arc<Message> {
    Arc::new(Message::user(text))
}

fn said(text: &str) -> Arc<Message> {
    Arc::new(Message {
        role: Role::Assistant,
        parts: vec![Part::Text(text.to_owned())],
    })
}

fn result(text: &str) -> Arc<Message> {
    Arc::new(Message {
        role: Role::Tool,
        parts: vec![Part::ToolResult(ToolResult {
            call_id: "c".to_owned(),
            content: Err(text.to_owned()),
            images: vec![],
        })],
    })
}

async fn ask(
    script: &Scripted,
    messages: &[Arc<Message>],
) -> (Vec<StreamEvent>, Option<ModelError>) {
    let mut stream = script.stream(request("test.jsonl", messages.iter().cloned().collect()));
    let mut events = Vec::new();
    while let Some(event) = stream.next().await {
        match event {
            Ok(event) => events.push(event),
            Err(error) => {
                assert!(stream.next().await.is_none());
                return (events, Some(error));
            }
        }
    }
    (events, None)
}

async fn text(script: &Scripted, messages: &[Arc<Message>]) -> String {
    let (events, error) = ask(script, messages).await;
    assert!(error.is_none(), "{error:?}");
    events
        .iter()
        .filter_map(|event| match event {
            StreamEvent::Text(text) => Some(text.as_str()),
            _ => None,
        })
        .collect()
}

#[tokio::test]
async fn lines_without_match_are_taken_by_the_number_of_answers() {
    let script = script(
        "# a comment\n\n{\"say\":\"one\"}\n{\"match\":\"never\",\"say\":\"x\"}\n{\"say\":\"two\"}\n",
    );
    assert_eq!(text(&script, &[user("a")]).await, "one");
    // The same request, the same reply: nothing is used up.
    assert_eq!(text(&script, &[user("a")]).await, "one");
    let second = [user("a"), said("one"), user("b")];
    assert_eq!(text(&script, &second).await, "two");
    let third = [user("a"), said("one"), said("two"), user("third thing")];
    let (_, error) = ask(&script, &third).await;
    let error = error.unwrap().to_string();
    assert!(
        error.contains("test.jsonl")
            && error.contains("request 3")
            && error.contains("third thing"),
        "{error}"
    );
}

#[tokio::test]
async fn match_looks_at_the_last_message_and_agent_at_the_first_users() {
    let script = script(
        r#"{"agent":"^child","match":"exit \\d+","say":"child saw it fail"}
{"match":"exit \\d+","say":"root saw it fail"}
{"agent":"^child","say":"child"}
{"say":"root"}"#,
    );
    assert_eq!(text(&script, &[user("child: go")]).await, "child");
    assert_eq!(text(&script, &[user("go")]).await, "root");
    assert_eq!(
        text(&script, &[user("child"), said("x"), result("exit 1")]).await,
        "child saw it fail"
    );
    assert_eq!(
        text(&script, &[user("go"), said("x"), result("exit 1")]).await,
        "root saw it fail"
    );
    // Only the last message counts; and a line without `agent` fits a child as well.
    assert_eq!(
        text(&script, &[user("child exit 1"), said("x"), user("on")]).await,
        "root"
    );
}

#[tokio::test]
async fn the_whole_of_a_reply_in_order() {
    let script = script(
        r#"{"think":"hm hm","say":"äöü€x","calls":[{"id":"c1","name":"Read","args":{"file_path":"a.txt"}},{"name":"Ls"}],"usage":{"input":10,"output":5},"chunk":4}"#,
    );
    let (events, error) = ask(&script, &[user("go")]).await;
    assert!(error.is_none());
    let text = |text: &str| StreamEvent::Text(text.to_owned());
    assert_eq!(
        events.get(..5).unwrap(),
        [
            StreamEvent::Thinking("hm h".to_owned()),
            StreamEvent::Thinking("m".to_owned()),
            StreamEvent::ThinkingEnd { signature: None },
            text("äöü€"),
            text("x"),
        ]
    );
    assert_eq!(
        calls_of(&events),
        [r#"c1 Read {"file_path":"a.txt"}"#, "call_0_0 Ls {}"]
    );
    assert_eq!(
        events.get(events.len() - 2..).unwrap(),
        [
            StreamEvent::Usage(Usage {
                input: 10,
                output: 5,
                ..Usage::default()
            }),
            StreamEvent::Stop(StopReason::ToolUse),
        ]
    );
}

#[tokio::test]
async fn an_id_that_the_session_has_is_not_given_again() {
    let script = script(r#"{"match":"","calls":[{"id":"c1","name":"Read"}]}"#);
    let call = Arc::new(Message {
        role: Role::Assistant,
        parts: vec![Part::ToolCall(ToolCall {
            id: "c1".to_owned(),
            name: "Read".to_owned(),
            args: json!({}),
        })],
    });
    let (events, _) = ask(&script, &[user("go"), call, result("no")]).await;
    assert_eq!(calls_of(&events), ["call_1_0 Read {}"]);
}

#[tokio::test]
async fn check_047_and_r055_raw_arguments_and_length_are_errors_for_the_model() {
    let script = script(
        r#"{"calls":[{"id":"a","name":"Write","args":"{\"path\":"},{"id":"b","name":"Read","args":{}}]}
{"calls":[{"id":"a","name":"Read","args":{}},{"id":"b","name":"Write","args":{"x":1}}],"stop":"length"}
{"say":"no","stop":"refusal"}"#,
    );
    let (events, _) = ask(&script, &[user("go")]).await;
    assert_eq!(calls_of(&events), ["a Write !", "b Read {}"]);
    let (events, _) = ask(&script, &[user("go"), said("")]).await;
    assert_eq!(calls_of(&events), ["a Read {}", "b Write !"]);
    assert_eq!(events.last(), Some(&StreamEvent::Stop(StopReason::Length)));
    let (events, _) = ask(&script, &[user("go"), said(""), said("")]).await;
    assert_eq!(events.last(), Some(&StreamEvent::Stop(StopReason::Refusal)));
}

#[tokio::test]
async fn r054_a_cut_stream_gives_what_was_said_and_no_call() {
    let line = |cut: usize| {
        script(&format!(
            r#"{{"say":"0123456789","calls":[{{"id":"c","name":"Read","args":{{"a":1}}}}],"chunk":4,"cut_after":{cut}}}"#
        ))
    };
    for (cut, shown) in [
        (0, ""),
        (1, "0"),
        (6, "012345"),
        (13, "0123456789"),
        (500, "0123456789"),
    ] {
        let (events, error) = ask(&line(cut), &[user("go")]).await;
        let said: String = events
            .iter()
            .filter_map(|event| match event {
                StreamEvent::Text(text) => Some(text.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(said, shown, "{cut}");
        assert!(matches!(error, Some(ModelError::Cut { .. })));
        assert_eq!(calls_of(&events), Vec::<String>::new());
    }
}

#[tokio::test(start_paused = true)]
async fn pieces_come_with_a_delay_between_them() {
    let script = script(r#"{"say":"abcdef","chunk":2,"delay_ms":1000}"#);
    let start = tokio::time::Instant::now();
    assert_eq!(text(&script, &[user("go")]).await, "abcdef");
    assert_eq!(start.elapsed(), Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn check_164_a_fail_line_fails_its_times_and_is_passed_over() {
    let script = script(
        r#"{"say":"one"}
{"fail":{"status":529,"retry_after":2,"times":3}}
{"say":"two"}
{"match":"boom","fail":{"status":400,"times":1}}
{"match":"boom","say":"after the boom"}"#,
    );
    assert_eq!(text(&script, &[user("a")]).await, "one");
    let second = [user("a"), said("one"), user("b")];
    let start = tokio::time::Instant::now();
    let (events, error) = ask(&script, &second).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(start.elapsed().as_secs(), 6);
    let retries = events
        .iter()
        .filter(|event| matches!(event, StreamEvent::Retry { .. }));
    assert_eq!(retries.count(), 3);
    // The number of a reply does not change with what was passed over.
    assert_eq!(text(&script, &second).await, "two");
    let boom = [user("boom")];
    let (events, error) = ask(&script, &boom).await;
    assert!(events.is_empty());
    assert!(
        matches!(error, Some(ModelError::Status { status: 400, .. })),
        "{error:?}"
    );
    assert_eq!(text(&script, &boom).await, "after the boom");
}

#[tokio::test(start_paused = true)]
async fn a_fail_line_that_lasts_uses_up_the_tries() {
    let script = script(r#"{"fail":{"status":500,"times":9}}"#);
    let (events, error) = ask(&script, &[user("a")]).await;
    assert_eq!(events.len(), 3);
    assert!(error.unwrap().to_string().contains("tried 4 times"));
    let script = self::script(r#"{"fail":{"status":401}}"#);
    assert!(matches!(
        ask(&script, &[user("a")]).await.1,
        Some(ModelError::Auth { .. })
    ));
    let script = self::script(r#"{"fail":{"status":413}}"#);
    assert!(matches!(
        ask(&script, &[user("a")]).await.1,
        Some(ModelError::ContextOverflow { .. })
    ));
}

#[test]
fn a_wrong_line_is_refused_with_its_number() {
    for (line, problem) in [
        (r#"{"sya":"typo"}"#, "unknown field"),
        (r#"{"say":"a","say":"b"}"#, "duplicate field"),
        (r#"{"say":"#, "EOF"),
        (r#"{"match":"("}"#, "`match` is no regular expression"),
        (r#"{"agent":"["}"#, "`agent` is no regular expression"),
        (r#"{"calls":[{"name":"Read","arg":{}}]}"#, "unknown field"),
        (r#"{"calls":[{"id":"c"}]}"#, "missing field `name`"),
        (r#"{"stop":"bored"}"#, "unknown variant"),
        (r#"{"chunk":0}"#, "`chunk`"),
        (r#"{"fail":{"status":200}}"#, "must be 400 to 599"),
        (r#"{"fail":{"status":500,"retry_after":-1}}"#, "retry_after"),
        (
            r#"{"fail":{"status":500},"say":"x"}"#,
            "cannot answer as well",
        ),
        ("[]", "invalid"),
    ] {
        let text = format!("# comment\n{{\"say\":\"fine\"}}\n\n{line}\n");
        let Err(ModelError::Script(message)) = Scripted::from_text("s.jsonl", &text) else {
            panic!("{line} was taken");
        };
        assert!(
            message.starts_with("line 4 of the script `s.jsonl`"),
            "{message}"
        );
        assert!(message.contains(problem), "{line}: {message}");
    }
}

#[test]
fn a_script_that_is_not_there_is_named() {
    let error = Scripted::open("/no/such/script.jsonl")
        .unwrap_err()
        .to_string();
    assert!(error.contains("/no/such/script.jsonl"), "{error}");
}

#[tokio::test]
async fn what_a_group_of_the_pattern_found_is_said_and_called_with() {
    let script = script(
        r#"{"match":"job (\\S+)( now)?","say":"I look at {{1}}{{2}}.","calls":[{"name":"Look","args":{"id":"{{1}}"}}]}"#,
    );
    let asked = [result("Started the job a\"7")];
    assert_eq!(text(&script, &asked).await, "I look at a\"7.");
    let (events, _) = ask(&script, &asked).await;
    let calls = calls_of(&events);
    assert!(
        calls.concat().ends_with(r#"Look {"id":"a\"7"}"#),
        "{calls:?}"
    );
}
