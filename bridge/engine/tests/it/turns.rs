//! Checks C: the turn and its steps.

use std::sync::Mutex;

use async_trait::async_trait;
use terret_engine::hooks::{Rejected, TurnHook};
use terret_engine::input::Claim;
use terret_engine::room::log::{InjectedBy, Part, Payload, Severity, TurnStatus};
use terret_engine::{AgentStatus, InputBlock};

use crate::harness::{
    Harness, complete, events, json, name, names, prompt, result, status, text, wait_for, within,
};

#[tokio::test(flavor = "multi_thread")]
async fn check_030_a_two_step_tool_turn_has_the_golden_order() {
    let harness = Harness::new(
        r#"{"calls":[{"id":"c1","name":"Glob","args":{"pattern":"*"}}]}
{"say":"done"}"#,
    );
    let (_engine, session) = harness.session().await;
    complete(&session, "look").await;
    // `tool/started` stands between call and result.
    let expected = [
        "session/created",
        "turn/start",
        "step/start",
        "user/message",
        "assistant/message",
        "tool/call",
        "tool/started",
        "tool/result",
        "step/end",
        "step/start",
        "assistant/message",
        "step/end",
        "turn/end",
    ];
    assert_eq!(names(&session).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn check_031_chunks_precede_their_message_and_make_its_text() {
    let harness = Harness::new(r#"{"say":"one two three four","chunk":4}"#);
    let (_engine, session) = harness.session().await;
    complete(&session, "count").await;
    let mut streamed = String::new();
    for event in events(&session).await {
        match event.payload {
            Payload::AssistantChunk { text } => streamed.push_str(&text),
            Payload::AssistantMessage { parts, partial } => {
                assert_eq!(
                    parts,
                    [Part::Text {
                        text: streamed.clone()
                    }]
                );
                assert!(!partial);
                assert_eq!(streamed, "one two three four");
                return;
            }
            _ => {}
        }
    }
    panic!("no message");
}

#[tokio::test(flavor = "multi_thread")]
async fn check_032_and_033_steps_name_their_number_model_and_usage() {
    let harness = Harness::new(
        r#"{"calls":[{"id":"c1","name":"Glob","args":{"pattern":"*"}}],"usage":{"input":10,"output":5}}
{"say":"done"}"#,
    );
    let (_engine, session) = harness.session().await;
    complete(&session, "look").await;
    let model = harness.settings.model.clone().unwrap().to_string();
    let mut starts = Vec::new();
    let mut usages = Vec::new();
    for event in events(&session).await {
        match event.payload {
            Payload::StepStart { n, model } => starts.push((n, model)),
            Payload::StepEnd { n, usage } => {
                usages.push((n, usage.map(|usage| usage.prompt_tokens)))
            }
            _ => {}
        }
    }
    assert_eq!(starts, [(1, model.clone()), (2, model)]);
    assert_eq!(usages, [(1, Some(10)), (2, None)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn check_034_a_model_error_fails_the_turn_and_is_shown() {
    let harness = Harness::new(r#"{"fail":{"status":400,"times":9}}"#);
    let (_engine, session) = harness.session().await;
    let outcome = prompt(&session, "hello").await;
    assert_eq!(outcome.status, TurnStatus::Failed);
    let reason = outcome.reason.unwrap();
    assert!(reason.contains("400"), "{reason}");
    assert_eq!(session.status(), AgentStatus::Idle);
    let shown = events(&session).await.into_iter().any(|event| {
        matches!(event.payload, Payload::NoticeShown { severity: Severity::Error, text } if text.contains("400"))
    });
    assert!(shown, "r059: an error is visible, not an empty end");
}

#[tokio::test(flavor = "multi_thread")]
async fn r059_a_script_without_an_answer_says_what_was_asked() {
    let harness = Harness::new(r#"{"match":"^only this$","say":"yes"}"#);
    let (_engine, session) = harness.session().await;
    let outcome = prompt(&session, "something else").await;
    assert_eq!(outcome.status, TurnStatus::Failed);
    assert!(outcome.reason.unwrap().contains("something else"));
}

/// Rejects the first `0` claims, and remembers what it saw.
struct Rejects(Mutex<(u32, Vec<Vec<String>>)>);

#[async_trait]
impl TurnHook for Rejects {
    async fn before_step(&self, claim: Vec<Claim>) -> Result<Vec<Claim>, Rejected> {
        let mut state = self.0.lock().unwrap();
        let texts = claim.iter().map(|claim| match claim {
            Claim::Prompt(input) | Claim::Injected(input) => input.text.clone(),
        });
        let seen = texts.collect();
        state.1.push(seen);
        if state.0 > 0 {
            state.0 -= 1;
            return Err(Rejected("not now".to_owned()));
        }
        Ok(claim)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn check_035_a_rejection_closes_the_turn_without_a_step() {
    let mut harness = Harness::new(r#"{"say":"hi"}"#);
    harness
        .turn_hooks
        .push(std::sync::Arc::new(Rejects(Mutex::new((1, Vec::new())))));
    let (_engine, session) = harness.session().await;
    let outcome = prompt(&session, "hello").await;
    assert_eq!(outcome.status, TurnStatus::Rejected);
    assert_eq!(
        names(&session).await,
        ["session/created", "turn/start", "turn/end"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn check_036_a_wake_with_nothing_to_do_closes_the_turn_as_empty() {
    let harness = Harness::new(r#"{"say":"must not be said"}"#);
    let (_engine, session) = harness.session().await;
    let outcome = within(session.wake().await.unwrap().outcome())
        .await
        .unwrap();
    assert_eq!(outcome.status, TurnStatus::Empty);
    assert_eq!(
        names(&session).await,
        ["session/created", "turn/start", "turn/end"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn check_037_the_step_after_the_ceiling_never_starts() {
    // Every answer is one more call, for ever.
    let mut lines = String::new();
    for n in 0..40 {
        lines.push_str(&format!(
            "{{\"calls\":[{{\"id\":\"c{n}\",\"name\":\"Glob\",\"args\":{{\"pattern\":\"*\"}}}}]}}\n"
        ));
    }
    let harness = Harness::new(&lines);
    let engine = harness.engine();
    // Nobody attends: the ceiling is the seed's.
    let session = engine
        .create_session(harness.work(), Vec::new())
        .await
        .unwrap();
    let outcome = prompt(&session, "loop").await;
    assert_eq!(outcome.status, TurnStatus::StepLimit);
    let starts = names(&session)
        .await
        .iter()
        .filter(|name| *name == "step/start")
        .count();
    assert_eq!(starts, 25);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attended_turn_asks_at_its_ceiling_and_goes_on() {
    let mut harness = Harness::new(
        r#"{"calls":[{"id":"a","name":"Glob","args":{"pattern":"*"}}]}
{"calls":[{"id":"b","name":"Glob","args":{"pattern":"*"}}]}
{"say":"done"}"#,
    );
    harness.settings.limits.ask_after_steps = 2;
    let (_engine, session) = harness.session().await;
    let answer = session.prompt(text("go")).await.unwrap();
    let id = crate::harness::approval(&session, 0).await;
    assert_eq!(session.status(), AgentStatus::WaitingApproval);
    session
        .decide(&id, terret_engine::Decision::AllowOnce, "test")
        .unwrap();
    assert_eq!(
        within(answer.outcome()).await.unwrap().status,
        TurnStatus::Completed
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn check_038_text_sent_during_a_turn_joins_its_next_step() {
    let mut harness = Harness::new(
        r#"{"calls":[{"id":"c1","name":"Glob","args":{"pattern":"*"}}],"delay_ms":100,"chunk":1,"say":"xyz"}
{"say":"done"}"#,
    );
    let _unused = &mut harness;
    let (_engine, session) = harness.session().await;
    let first = session.prompt(text("look")).await.unwrap();
    wait_for(&session, 0, |payload| {
        matches!(payload, Payload::UserMessage { .. }).then_some(())
    })
    .await;
    let second = session.prompt(text("and be quick")).await.unwrap();
    // r114: both prompts are answered, and no text is lost.
    assert_eq!(
        within(first.outcome()).await.unwrap().status,
        TurnStatus::Completed
    );
    assert_eq!(
        within(second.outcome()).await.unwrap().status,
        TurnStatus::Completed
    );
    let injected: Vec<_> = events(&session)
        .await
        .into_iter()
        .filter_map(|event| match event.payload {
            Payload::ContextInjected { text, source, .. } => Some((text, source)),
            _ => None,
        })
        .collect();
    assert_eq!(injected, [("and be quick".to_owned(), InjectedBy::Steer)]);
    let turns = names(&session)
        .await
        .iter()
        .filter(|name| *name == "turn/start")
        .count();
    assert_eq!(turns, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn check_039_a_rejection_puts_steering_back_in_front() {
    let mut harness = Harness::new(
        r#"{"calls":[{"id":"c1","name":"Glob","args":{"pattern":"*"}}],"delay_ms":100,"chunk":1,"say":"xyz"}
{"say":"done"}"#,
    );
    // The first claim passes, the one that holds the steer is rejected, then all pass.
    struct Second(Mutex<u32>);
    #[async_trait]
    impl TurnHook for Second {
        async fn before_step(&self, claim: Vec<Claim>) -> Result<Vec<Claim>, Rejected> {
            let mut count = self.0.lock().unwrap();
            *count += 1;
            if *count == 2 {
                Err(Rejected("no".to_owned()))
            } else {
                Ok(claim)
            }
        }
    }
    harness
        .turn_hooks
        .push(std::sync::Arc::new(Second(Mutex::new(0))));
    let (_engine, session) = harness.session().await;
    let first = session.prompt(text("look")).await.unwrap();
    wait_for(&session, 0, |payload| {
        matches!(payload, Payload::UserMessage { .. }).then_some(())
    })
    .await;
    let steer = session.prompt(text("kept")).await.unwrap();
    assert_eq!(
        within(first.outcome()).await.unwrap().status,
        TurnStatus::Rejected
    );
    assert_eq!(
        within(steer.outcome()).await.unwrap().status,
        TurnStatus::Rejected
    );
    complete(&session, "next").await;
    let inputs: Vec<String> = events(&session)
        .await
        .into_iter()
        .filter_map(|event| match event.payload {
            Payload::UserMessage { text, .. } | Payload::ContextInjected { text, .. } => Some(text),
            _ => None,
        })
        .collect();
    assert_eq!(inputs, ["look", "next", "kept"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn check_042_a_closed_session_takes_no_prompt() {
    let harness = Harness::new(r#"{"say":"hi"}"#);
    let (engine, session) = harness.session().await;
    engine.close_session(session.id()).await.unwrap();
    assert_eq!(session.status(), AgentStatus::Done);
    assert!(session.prompt(text("hello")).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn check_043_racing_prompts_make_one_turn_or_two_and_lose_nothing() {
    let harness = Harness::new(r#"{"match":".","say":"ok"}"#);
    let (_engine, session) = harness.session().await;
    let mut answers = Vec::new();
    for n in 0..16 {
        answers.push(session.prompt(text(&format!("p{n}"))).await.unwrap());
    }
    for answer in answers {
        assert_eq!(
            within(answer.outcome()).await.unwrap().status,
            TurnStatus::Completed
        );
    }
    let mut inputs: Vec<String> = events(&session)
        .await
        .into_iter()
        .filter_map(|event| match event.payload {
            Payload::UserMessage { text, .. } | Payload::ContextInjected { text, .. } => Some(text),
            _ => None,
        })
        .collect();
    inputs.sort();
    let mut expected: Vec<String> = (0..16).map(|n| format!("p{n}")).collect();
    expected.sort();
    assert_eq!(inputs, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn check_044_an_unknown_tool_is_an_error_result_and_the_turn_goes_on() {
    let harness = Harness::new(
        r#"{"calls":[{"id":"c1","name":"Teleport","args":{}}]}
{"say":"done"}"#,
    );
    let (_engine, session) = harness.session().await;
    complete(&session, "go").await;
    assert!(
        result(&session, "c1")
            .await
            .unwrap_err()
            .contains("Teleport")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn check_045_a_steer_during_the_last_step_needs_no_other_wake() {
    let harness = Harness::new(
        r#"{"match":"^first$","say":"slow answer","chunk":1,"delay_ms":40}
{"match":"^late$","say":"answered"}"#,
    );
    let (_engine, session) = harness.session().await;
    let first = session.prompt(text("first")).await.unwrap();
    wait_for(&session, 0, |payload| {
        matches!(payload, Payload::AssistantChunk { .. }).then_some(())
    })
    .await;
    let late = session.prompt(text("late")).await.unwrap();
    within(first.outcome()).await.unwrap();
    within(late.outcome()).await.unwrap();
    let answers: Vec<String> = events(&session)
        .await
        .into_iter()
        .filter_map(|event| match event.payload {
            Payload::AssistantMessage { parts, .. } => {
                parts.into_iter().next().map(|part| match part {
                    Part::Text { text } => text,
                    other => panic!("{other:?}"),
                })
            }
            _ => None,
        })
        .collect();
    assert_eq!(answers, ["slow answer", "answered"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn check_046_r054_a_cut_stream_fails_the_turn_and_the_session_stays_usable() {
    let harness = Harness::new(
        r#"{"match":"^cut$","say":"half of an answer that is long","chunk":4,"cut_after":12}
{"match":"^again$","say":"whole"}"#,
    );
    let (_engine, session) = harness.session().await;
    assert_eq!(prompt(&session, "cut").await.status, TurnStatus::Failed);
    let partial = events(&session)
        .await
        .into_iter()
        .find_map(|event| match event.payload {
            Payload::AssistantMessage { parts, partial } => Some((parts, partial)),
            _ => None,
        });
    let (parts, partial) = partial.expect("what was said is kept");
    assert!(partial);
    assert!(
        matches!(&parts[0], Part::Text { text } if "half of an answer".starts_with(text.as_str()))
    );
    complete(&session, "again").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn check_048_an_output_limit_is_seen_in_the_turns_status() {
    let harness = Harness::new(r#"{"say":"as far as it we","stop":"length"}"#);
    let (_engine, session) = harness.session().await;
    assert_eq!(
        prompt(&session, "write").await.status,
        TurnStatus::OutputLimit
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_leaves_the_history_and_stays_in_the_log() {
    let harness = Harness::new(
        r#"{"match":"^bad$","say":"I will not","stop":"refusal"}
{"match":"^good$","say":"fine"}"#,
    );
    let (_engine, session) = harness.session().await;
    assert_eq!(prompt(&session, "bad").await.status, TurnStatus::Refused);
    complete(&session, "good").await;
    let history: Vec<String> = session.state(|state| {
        state
            .history
            .messages()
            .iter()
            .map(|message| format!("{:?}", message.parts))
            .collect()
    });
    assert_eq!(history.len(), 2, "{history:?}");
    assert!(!history.iter().any(|text| text.contains("bad")));
    assert!(
        names(&session)
            .await
            .iter()
            .filter(|name| *name == "user/message")
            .count()
            == 2
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn r057_an_impossible_tool_name_is_replaced_before_it_is_stored() {
    let long = format!("rm -rf x {}", "y".repeat(250));
    let harness = Harness::new(&format!(
        "{{\"calls\":[{{\"id\":\"c1\",\"name\":{},\"args\":{{}}}}]}}\n{{\"say\":\"done\"}}",
        serde_json::to_string(&long).unwrap()
    ));
    let (_engine, session) = harness.session().await;
    complete(&session, "go").await;
    assert!(result(&session, "c1").await.is_err());
    let fits = |name: &str| name.len() <= 64 && !name.contains(' ');
    for event in events(&session).await {
        match event.payload {
            Payload::ToolCall { name, .. } => assert!(fits(&name), "{name}"),
            Payload::AssistantMessage { parts, .. } => {
                for part in parts {
                    if let Part::ToolCall { name, .. } = part {
                        assert!(fits(&name), "{name}");
                    }
                }
            }
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn check_077_equal_call_ids_are_told_apart() {
    let harness = Harness::new(
        r#"{"calls":[{"id":"c","name":"Glob","args":{"pattern":"a*"}},{"id":"c","name":"Glob","args":{"pattern":"b*"}}]}
{"calls":[{"id":"c","name":"Glob","args":{"pattern":"b*"}}]}
{"say":"done"}"#,
    );
    harness.write("a.txt", "");
    harness.write("b.txt", "");
    let (_engine, session) = harness.session().await;
    complete(&session, "go").await;
    let ids: Vec<String> = events(&session)
        .await
        .into_iter()
        .filter_map(|event| match event.payload {
            Payload::ToolResult { id, .. } => Some(id),
            _ => None,
        })
        .collect();
    assert_eq!(
        ids.iter().collect::<std::collections::HashSet<_>>().len(),
        3,
        "{ids:?}"
    );
    assert!(result(&session, &ids[0]).await.unwrap().contains("a.txt"));
    assert!(result(&session, &ids[1]).await.unwrap().contains("b.txt"));
}

#[tokio::test(flavor = "multi_thread")]
async fn thinking_is_kept_with_the_provider_that_made_it() {
    let harness = Harness::new(r#"{"think":"hm","say":"yes"}"#);
    let (_engine, session) = harness.session().await;
    complete(&session, "think").await;
    let parts = events(&session)
        .await
        .into_iter()
        .find_map(|event| match event.payload {
            Payload::AssistantMessage { parts, .. } => Some(parts),
            _ => None,
        });
    let parts = parts.unwrap();
    assert!(
        matches!(&parts[0], Part::Thinking { text, provider, .. } if text == "hm" && provider == "scripted")
    );
    assert!(matches!(&parts[1], Part::Text { text } if text == "yes"));
}

#[tokio::test(flavor = "multi_thread")]
async fn r036_a_link_reaches_the_model_as_its_decoded_path() {
    let harness = Harness::new(r#"{"match":".","say":"ok"}"#);
    let file = harness.write("é#.txt", "content");
    let (_engine, session) = harness.session().await;
    let uri = terret_engine::input::file_uri(&file);
    assert!(uri.contains("%C3%A9%23.txt"), "{uri}");
    let blocks = vec![
        InputBlock::Text("see".to_owned()),
        InputBlock::ResourceLink {
            uri,
            name: "é#.txt".to_owned(),
        },
        InputBlock::ResourceLink {
            uri: "file:///nowhere/x.txt".to_owned(),
            name: "x.txt".to_owned(),
        },
    ];
    within(session.prompt(blocks).await.unwrap().outcome())
        .await
        .unwrap();
    let sent = events(&session)
        .await
        .into_iter()
        .find_map(|event| match event.payload {
            Payload::UserMessage { text, .. } => Some(text),
            _ => None,
        });
    let sent = sent.unwrap();
    assert!(sent.contains(file.to_str().unwrap()), "{sent}");
    assert!(
        sent.contains("/nowhere/x.txt") && sent.contains("cannot be read"),
        "{sent}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn r131_a_huge_result_does_not_end_the_session() {
    let harness = Harness::new("");
    let file = harness.write("one-line.txt", &"x".repeat(2_000_000));
    let harness_with = Harness::new(&format!(
        "{{\"match\":\"^read$\",\"calls\":[{{\"id\":\"c1\",\"name\":\"Read\",\"args\":{{\"file_path\":{}}}}}]}}\n{{\"match\":\".\",\"say\":\"ok\"}}",
        json(&file)
    ));
    std::fs::copy(&file, harness_with.work().join("one-line.txt")).unwrap();
    let engine = harness_with.engine();
    let session = engine
        .create_session(harness.work(), Vec::new())
        .await
        .unwrap();
    session.attach(None);
    complete(&session, "read").await;
    assert!(result(&session, "c1").await.unwrap().len() < 300_000);
    complete(&session, "next").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_a_hook_fails_the_turn_and_nothing_else() {
    struct Panics(Mutex<bool>);
    #[async_trait]
    impl TurnHook for Panics {
        async fn before_step(&self, claim: Vec<Claim>) -> Result<Vec<Claim>, Rejected> {
            let first = std::mem::replace(&mut *self.0.lock().unwrap(), false);
            assert!(!first, "a hook breaks");
            Ok(claim)
        }
    }
    let mut harness = Harness::new(r#"{"say":"hi"}"#);
    harness
        .turn_hooks
        .push(std::sync::Arc::new(Panics(Mutex::new(true))));
    let (_engine, session) = harness.session().await;
    assert_eq!(prompt(&session, "one").await.status, TurnStatus::Failed);
    status(&session, AgentStatus::Idle).await;
    complete(&session, "two").await;
    assert_eq!(
        names(&session)
            .await
            .iter()
            .filter(|found| *found == "turn/end")
            .count(),
        2
    );
    assert_eq!(
        name(&Payload::TurnStart {
            agent: String::new()
        }),
        "turn/start"
    );
}
