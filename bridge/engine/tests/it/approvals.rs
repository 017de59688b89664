//! Approvals are durable, decided once, and settle what a granted rule covers.

use terret_engine::room::log::{ApprovalStage, Payload, TurnStatus, Verdict};
use terret_engine::room::models::Registry;
use terret_engine::room::tools::mode::Mode;
use terret_engine::room::tools::rules::{Effect, Rule, Scope};
use terret_engine::{AgentStatus, Decision};

use crate::harness::{
    Harness, approval, assert_sound, complete, events, json, names, prompt, result, text, wait_for,
    within,
};

#[tokio::test(flavor = "multi_thread")]
async fn check_090_an_approval_is_written_once_and_its_verdict_before_the_call() {
    let harness = Harness::new(
        r#"{"calls":[{"id":"a","name":"Bash","args":{"command":"echo hello"}}]}
{"say":"done"}"#,
    );
    let (_engine, session) = harness.session().await;
    let answer = session.prompt(text("run")).await.unwrap();
    let id = approval(&session, 0).await;
    assert_eq!(session.status(), AgentStatus::WaitingApproval);
    session.decide(&id, Decision::AllowOnce, "test").unwrap();
    assert_eq!(
        within(answer.outcome()).await.unwrap().status,
        TurnStatus::Completed
    );
    let order: Vec<String> = names(&session)
        .await
        .into_iter()
        .filter(|name| name.starts_with("approval/") || name.starts_with("tool/"))
        .collect();
    assert_eq!(
        order,
        [
            "tool/call",
            "approval/requested",
            "approval/resolved",
            "tool/started",
            "tool/result"
        ]
    );
    assert!(result(&session, "a").await.unwrap().contains("hello"));
}

#[tokio::test(flavor = "multi_thread")]
async fn check_091_a_denial_is_an_error_result_with_its_reason() {
    for (decision, expected) in [
        (
            Decision::Reject {
                reason: Some("not on this machine".to_owned()),
            },
            "Bash denied: not on this machine",
        ),
        (
            Decision::Reject { reason: None },
            "Bash denied: no reason given",
        ),
    ] {
        let harness = Harness::new(
            r#"{"calls":[{"id":"a","name":"Bash","args":{"command":"touch made"}}]}
{"say":"understood"}"#,
        );
        let (_engine, session) = harness.session().await;
        let answer = session.prompt(text("run")).await.unwrap();
        let id = approval(&session, 0).await;
        session.decide(&id, decision, "test").unwrap();
        assert_eq!(
            within(answer.outcome()).await.unwrap().status,
            TurnStatus::Completed
        );
        assert_eq!(result(&session, "a").await, Err(expected.to_owned()));
        assert_eq!(harness.read("made"), None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_decision_wins_and_the_second_hears_so() {
    let harness = Harness::new(
        r#"{"calls":[{"id":"a","name":"Bash","args":{"command":"true"}}]}
{"say":"done"}"#,
    );
    let (_engine, session) = harness.session().await;
    let answer = session.prompt(text("run")).await.unwrap();
    let id = approval(&session, 0).await;
    session.decide(&id, Decision::AllowOnce, "editor").unwrap();
    assert!(
        session
            .decide(&id, Decision::Reject { reason: None }, "inbox")
            .is_err()
    );
    within(answer.outcome()).await.unwrap();
    let verdicts: Vec<Verdict> = events(&session)
        .await
        .into_iter()
        .filter_map(|event| match event.payload {
            Payload::ApprovalResolved { verdict, .. } => Some(verdict),
            _ => None,
        })
        .collect();
    assert_eq!(verdicts, [Verdict::Approved]);
}

#[tokio::test(flavor = "multi_thread")]
async fn check_101_a_rule_for_the_session_settles_what_waits_and_what_comes() {
    let harness = Harness::new(
        r#"{"match":"^run$","calls":[{"id":"a","name":"Bash","args":{"command":"echo same"}},{"id":"b","name":"Bash","args":{"command":"echo same"}},{"id":"c","name":"Bash","args":{"command":"echo other"}}]}
{"match":".","say":"done"}"#,
    );
    let (_engine, session) = harness.session().await;
    let answer = session.prompt(text("run")).await.unwrap();
    // All three ask together.
    let mut asked = Vec::new();
    let mut follower = session.follow(0);
    while asked.len() < 3 {
        let event = within(follower.next()).await.unwrap();
        if let Payload::ApprovalRequested {
            id,
            call_id,
            offered_rule,
            ..
        } = &event.payload
        {
            asked.push((call_id.clone(), id.clone(), offered_rule.clone()));
        }
    }
    let of = |call: &str| {
        asked
            .iter()
            .find(|(found, ..)| found == call)
            .unwrap()
            .clone()
    };
    assert_eq!(of("a").2.as_deref(), Some("Bash(echo same)"));
    session
        .decide(
            &of("a").1,
            Decision::AllowAlways(terret_log::GrantScope::Session),
            "test",
        )
        .unwrap();
    let settled_by = wait_for(&session, 0, |payload| match payload {
        Payload::ApprovalResolved { call_id, by, .. } if call_id == "b" => Some(by.clone()),
        _ => None,
    })
    .await;
    assert!(settled_by.starts_with("rule:"), "{settled_by}");
    // Another command is not covered.
    session
        .decide(&of("c").1, Decision::Reject { reason: None }, "test")
        .unwrap();
    within(answer.outcome()).await.unwrap();
    assert!(result(&session, "b").await.is_ok());
    assert!(result(&session, "c").await.is_err());
    assert_eq!(session.state(|state| state.rules.rules().len()), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn headless_calls_that_need_a_person_are_denied_and_say_so() {
    let harness = Harness::new(
        r#"{"calls":[{"id":"a","name":"Bash","args":{"command":"touch made"}}]}
{"say":"done"}"#,
    );
    let engine = harness.engine();
    let session = engine
        .create_session(harness.work(), Vec::new())
        .await
        .unwrap();
    complete(&session, "run").await;
    let error = result(&session, "a").await.unwrap_err();
    assert!(error.contains("nobody can be asked"), "{error}");
    assert_eq!(harness.read("made"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_shows_both_sides_before_it_is_made() {
    let harness = Harness::new("");
    let file = harness.write("a.txt", "old\n");
    let script = format!(
        "{{\"calls\":[{{\"id\":\"r\",\"name\":\"Read\",\"args\":{{\"file_path\":{0}}}}}]}}\n\
         {{\"calls\":[{{\"id\":\"e\",\"name\":\"Edit\",\"args\":{{\"file_path\":{0},\"old_string\":\"old\",\"new_string\":\"new\"}}}}]}}\n\
         {{\"say\":\"done\"}}",
        json(&file)
    );
    let harness_with = Harness::new(&script);
    let engine = harness_with.engine();
    let session = engine
        .create_session(harness.work(), Vec::new())
        .await
        .unwrap();
    session.attach(None);
    let answer = session.prompt(text("edit")).await.unwrap();
    let id = approval(&session, 0).await;
    let preview = session.state(|state| state.approvals.get(&id).unwrap().preview.clone());
    let side = |blob: &Option<_>| session.blobs().get(blob.as_ref().unwrap()).unwrap();
    assert_eq!(side(&preview[0].before), b"old\n");
    assert_eq!(side(&preview[0].after), b"new\n");
    assert_eq!(harness.read("a.txt").unwrap(), "old\n");
    session.decide(&id, Decision::AllowOnce, "test").unwrap();
    within(answer.outcome()).await.unwrap();
    assert_eq!(harness.read("a.txt").unwrap(), "new\n");
    assert!(names(&session).await.contains(&"file/changed".to_owned()));
}

/// A yes is for what was shown: when calls before it made something else of the same edit,
/// the yes to the first preview is none to the second.
#[tokio::test(flavor = "multi_thread")]
async fn an_edit_that_became_another_one_after_the_yes_is_asked_again() {
    let harness = Harness::new(
        r#"{"calls":[{"id":"r","name":"Read","args":{"file_path":"a.txt"}}]}
{"calls":[{"id":"b","name":"Bash","args":{"command":"printf 'old\\nmore\\n' > a.txt"}},{"id":"r2","name":"Read","args":{"file_path":"a.txt"}},{"id":"e","name":"Edit","args":{"file_path":"a.txt","old_string":"old","new_string":"new"}}]}
{"say":"done"}"#,
    );
    harness.write("a.txt", "old\n");
    let (_engine, session) = harness.session().await;
    let answer = session.prompt(text("edit")).await.unwrap();
    let command = approval(&session, 0).await;
    let asked = |after: u64| {
        let session = &session;
        async move {
            wait_for(session, after, |payload| match payload {
                Payload::ApprovalRequested { id, call_id, .. } if call_id == "e" => {
                    Some(id.clone())
                }
                _ => None,
            })
            .await
        }
    };
    let first = asked(0).await;
    session.decide(&first, Decision::AllowOnce, "test").unwrap();
    session
        .decide(&command, Decision::AllowOnce, "test")
        .unwrap();
    let after: u64 = first.trim_start_matches('a').parse().unwrap();
    let second = asked(after + 1).await;
    assert_ne!(second, first);
    assert_eq!(harness.read("a.txt").unwrap(), "old\nmore\n");
    session
        .decide(&second, Decision::Reject { reason: None }, "test")
        .unwrap();
    within(answer.outcome()).await.unwrap();
    assert_eq!(harness.read("a.txt").unwrap(), "old\nmore\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn edits_mode_edits_unasked_and_still_asks_for_commands() {
    let harness = Harness::new("");
    let file = harness.work().join("new.txt");
    let script = format!(
        "{{\"calls\":[{{\"id\":\"w\",\"name\":\"Write\",\"args\":{{\"file_path\":{},\"content\":\"x\"}}}},{{\"id\":\"b\",\"name\":\"Bash\",\"args\":{{\"command\":\"true\"}}}}]}}\n{{\"say\":\"done\"}}",
        json(&file)
    );
    let harness_with = Harness::new(&script);
    let engine = harness_with.engine();
    let session = engine
        .create_session(harness.work(), Vec::new())
        .await
        .unwrap();
    session.attach(None);
    session.set_option("mode", "edits", "test").unwrap();
    let answer = session.prompt(text("write")).await.unwrap();
    let id = approval(&session, 0).await;
    let call = session.state(|state| state.approvals.get(&id).unwrap().call_id.clone());
    assert_eq!(call, "b");
    session
        .decide(&id, Decision::Reject { reason: None }, "test")
        .unwrap();
    within(answer.outcome()).await.unwrap();
    assert_eq!(harness.read("new.txt").as_deref(), Some("x"));
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_mode_changes_nothing_and_asks_nobody() {
    let harness = Harness::new(
        r#"{"calls":[{"id":"a","name":"Bash","args":{"command":"touch made"}}]}
{"say":"here is the plan"}"#,
    );
    let (_engine, session) = harness.session().await;
    session.set_option("mode", "plan", "test").unwrap();
    assert_eq!(prompt(&session, "plan").await.status, TurnStatus::Completed);
    assert!(
        result(&session, "a")
            .await
            .unwrap_err()
            .contains("plan mode")
    );
    assert!(
        !names(&session)
            .await
            .contains(&"approval/requested".to_owned())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn r008_a_question_given_up_keeps_the_calls_behind_it_from_running() {
    let harness = Harness::new(
        r#"{"match":"^go$","calls":[{"id":"a","name":"Bash","args":{"command":"touch a"}},{"id":"b","name":"Write","args":{"file_path":"b","content":"b"}}]}
{"match":"again","say":"here"}"#,
    );
    let (_engine, session) = harness.session().await;
    session.set_option("mode", "edits", "test").unwrap();
    let answer = session.prompt(text("go")).await.unwrap();
    let id = approval(&session, 0).await;
    session.decide(&id, Decision::Cancelled, "editor").unwrap();
    assert_eq!(
        within(answer.outcome()).await.unwrap().status,
        TurnStatus::Cancelled
    );
    assert_eq!((harness.read("a"), harness.read("b")), (None, None));
    assert!(result(&session, "b").await.is_err());
    complete(&session, "again").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_that_wants_the_word_ends_the_turn_and_the_next_prompt_has_it() {
    let harness = Harness::new(
        r#"{"match":"^go$","calls":[{"id":"a","name":"Bash","args":{"command":"touch a"}},{"id":"b","name":"Bash","args":{"command":"touch b"}},{"id":"c","name":"Write","args":{"file_path":"c","content":"c"}}]}
{"match":"another branch","say":"I see"}"#,
    );
    let (_engine, session) = harness.session().await;
    session.set_option("mode", "edits", "test").unwrap();
    let answer = session.prompt(text("go")).await.unwrap();
    let id = approval(&session, 0).await;
    session
        .decide(&id, Decision::RejectAndWait, "editor")
        .unwrap();
    let outcome = within(answer.outcome()).await.unwrap();
    assert_eq!(outcome.status, TurnStatus::Completed);
    for file in ["a", "b", "c"] {
        assert_eq!(harness.read(file), None, "{file}");
    }
    let refused = result(&session, "a").await.unwrap_err();
    assert!(refused.contains("says why in the next prompt"), "{refused}");
    assert_sound(&events(&session).await);
    complete(&session, "use another branch").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_whose_reason_was_sent_already_goes_on_with_it() {
    let harness = Harness::new(
        r#"{"match":"^go$","calls":[{"id":"a","name":"Bash","args":{"command":"touch a"}}]}
{"match":"another branch","say":"I see"}"#,
    );
    let (_engine, session) = harness.session().await;
    let answer = session.prompt(text("go")).await.unwrap();
    let id = approval(&session, 0).await;
    let steer = session.prompt(text("use another branch")).await.unwrap();
    session
        .decide(&id, Decision::RejectAndWait, "editor")
        .unwrap();
    for answer in [answer, steer] {
        assert_eq!(
            within(answer.outcome()).await.unwrap().status,
            TurnStatus::Completed
        );
    }
    let said = events(&session).await.into_iter().any(|event| {
        matches!(&event.payload, Payload::AssistantMessage { .. })
            && format!("{:?}", event.payload).contains("I see")
    });
    assert!(said);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_begun_by_a_person_in_the_mode_that_they_name() {
    const SCRIPT: &str = r##"{"match":"^go$","calls":[{"id":"p","name":"ExitPlanMode","args":{"plan":"# Plan\n1. write"}}]}
{"match":"carry the plan out|Keep planning|not in plan mode|denied","calls":[{"id":"w","name":"Write","args":{"file_path":"w","content":"w"}}]}
{"match":".","say":"done"}"##;
    // A yes: the mode is the one that was named, and the plan is carried out in it.
    let harness = Harness::new(SCRIPT);
    let (_engine, session) = harness.session().await;
    session.set_option("mode", "plan", "test").unwrap();
    let answer = session.prompt(text("go")).await.unwrap();
    let id = approval(&session, 0).await;
    let (rule, stage) = session.state(|state| {
        let asked = state.approvals.get(&id).unwrap();
        (asked.offered_rule.clone(), asked.stage)
    });
    assert_eq!((rule, stage), (None, ApprovalStage::LeavePlan));
    session
        .decide(&id, Decision::LeavePlan(Mode::Edits), "editor")
        .unwrap();
    within(answer.outcome()).await.unwrap();
    assert_eq!(session.options().mode, Mode::Edits);
    assert_eq!(harness.read("w").as_deref(), Some("w"));

    // A no: nothing is changed.
    let harness = Harness::new(SCRIPT);
    let (_engine, session) = harness.session().await;
    session.set_option("mode", "plan", "test").unwrap();
    let answer = session.prompt(text("go")).await.unwrap();
    let id = approval(&session, 0).await;
    session
        .decide(&id, Decision::Reject { reason: None }, "editor")
        .unwrap();
    within(answer.outcome()).await.unwrap();
    assert_eq!(session.options().mode, Mode::Plan);
    assert_eq!(harness.read("w"), None);

    // Where there is no plan mode to leave, nobody is asked.
    let harness = Harness::new(SCRIPT);
    let (_engine, session) = harness.session().await;
    session.set_option("mode", "edits", "test").unwrap();
    complete(&session, "go").await;
    let refused = result(&session, "p").await.unwrap_err();
    assert!(refused.contains("not in plan mode"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_rule_and_no_other_mode_agrees_to_a_plan() {
    let mut harness = Harness::new(
        r##"{"match":"^go$","calls":[{"id":"p","name":"ExitPlanMode","args":{"plan":"# Plan"}}]}
{"match":".","say":"done"}"##,
    );
    let rule = Rule::parse("ExitPlanMode", Effect::Allow, Scope::User).unwrap();
    harness.settings.rules.push(rule);
    let (_engine, session) = harness.session().await;
    session.set_option("mode", "plan", "test").unwrap();
    let answer = session.prompt(text("go")).await.unwrap();
    let id = approval(&session, 0).await;
    session.decide(&id, Decision::AllowOnce, "editor").unwrap();
    within(answer.outcome()).await.unwrap();
    assert_eq!(session.options().mode, Mode::Ask);
}

#[tokio::test(flavor = "multi_thread")]
async fn bypass_is_nobodys_choice_unless_the_process_was_started_for_it() {
    let harness = Harness::new(r#"{"say":"done"}"#);
    let (engine, session) = harness.session().await;
    assert!(!session.options().modes.contains(&Mode::Bypass));
    assert!(session.set_option("mode", "bypass", "test").is_err());
    let mut settings = harness.settings.clone();
    settings.bypass = true;
    engine.reconfigure(settings.clone(), Registry::new(Vec::new()));
    assert!(session.options().modes.contains(&Mode::Bypass));
    session.set_option("mode", "bypass", "test").unwrap();
    assert_eq!(session.options().mode, Mode::Bypass);
    // The choice is in the log, and counts for nothing without the flag.
    settings.bypass = false;
    engine.reconfigure(settings, Registry::new(Vec::new()));
    assert_eq!(session.options().mode, Mode::Ask);
}

#[tokio::test(flavor = "multi_thread")]
async fn check_092_what_the_floor_refuses_is_asked_of_nobody() {
    let mut harness = Harness::new(
        r#"{"match":"^go$","calls":[{"id":"a","name":"Bash","args":{"command":"touch a"}}]}
{"match":".","say":"done"}"#,
    );
    harness.settings.floor = vec!["Read".to_owned()];
    let (_engine, session) = harness.session().await;
    complete(&session, "go").await;
    assert_eq!(
        result(&session, "a").await,
        Err("Bash is not on the allow list".to_owned())
    );
    let names = names(&session).await;
    assert!(!names.iter().any(|name| name.starts_with("approval/")));
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_097_and_100_calls_of_one_id_are_decided_one_by_one() {
    let harness = Harness::new(
        r#"{"match":"^go$","calls":[{"id":"c","name":"Bash","args":{"command":"touch same"}},{"id":"c","name":"Bash","args":{"command":"touch same"}},{"id":"c","name":"Bash","args":{"command":"touch other"}}]}
{"match":".","say":"done"}"#,
    );
    let (_engine, session) = harness.session().await;
    let answer = session.prompt(text("go")).await.unwrap();
    let mut asked = Vec::new();
    let mut follower = session.follow(0);
    while asked.len() < 3 {
        let event = within(follower.next()).await.unwrap();
        if let Payload::ApprovalRequested { id, call_id, .. } = &event.payload {
            asked.push((id.clone(), call_id.clone()));
        }
    }
    let decisions = [
        Decision::Reject {
            reason: Some("the first".to_owned()),
        },
        Decision::AllowOnce,
        Decision::Reject {
            reason: Some("the third".to_owned()),
        },
    ];
    for ((id, _), decision) in asked.iter().zip(decisions).rev() {
        session.decide(id, decision, "test").unwrap();
    }
    within(answer.outcome()).await.unwrap();
    assert_eq!(
        result(&session, &asked[0].1).await,
        Err("Bash denied: the first".to_owned())
    );
    assert!(result(&session, &asked[1].1).await.is_ok());
    assert_eq!(
        result(&session, &asked[2].1).await,
        Err("Bash denied: the third".to_owned())
    );
    assert!(harness.read("same").is_some() && harness.read("other").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn check_099_a_verdict_right_behind_its_request_is_never_lost() {
    let harness = Harness::new(
        r#"{"match":"^go$","calls":[{"name":"Bash","args":{"command":"true"}},{"name":"Bash","args":{"command":"true"}},{"name":"Bash","args":{"command":"true"}}]}
{"match":".","say":"done"}"#,
    );
    let (_engine, session) = harness.session().await;
    for _ in 0..20 {
        let mut follower = session.follow(session.next_seq());
        let answer = session.prompt(text("go")).await.unwrap();
        let mut decided = 0;
        while decided < 3 {
            let event = within(follower.next()).await.unwrap();
            if let Payload::ApprovalRequested { id, .. } = &event.payload {
                // The event is there before the call waits, or it is too early to be seen.
                session.decide(id, Decision::AllowOnce, "test").unwrap();
                decided += 1;
            }
        }
        assert_eq!(
            within(answer.outcome()).await.unwrap().status,
            TurnStatus::Completed
        );
    }
}
