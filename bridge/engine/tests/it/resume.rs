//! What a stopped engine leaves open, the next prompt goes on with.

use terret_engine::room::log::{Payload, TurnStatus};
use terret_engine::{AgentStatus, Decision};

use crate::harness::{
    Harness, approval, complete, events, names, prompt, result, text, wait_for, within,
};

#[tokio::test(flavor = "multi_thread")]
async fn check_168_shutdown_leaves_the_turn_open_and_the_next_prompt_resumes_it() {
    let harness = Harness::new(
        r#"{"match":"^go$","calls":[{"id":"a","name":"Bash","args":{"command":"echo ran > made"}}]}
{"match":".","say":"done"}"#,
    );
    let (engine, session) = harness.session().await;
    let answer = session.prompt(text("go")).await.unwrap();
    approval(&session, 0).await;
    let id = session.id().clone();
    engine.shutdown().await;
    assert!(
        within(answer.outcome()).await.is_none(),
        "the turn has no end"
    );
    assert_eq!(session.status(), AgentStatus::Done);
    drop(session);
    drop(engine);

    let engine = harness.engine();
    let session = engine.open_session(&id, None, None).await.unwrap();
    session.attach(None);
    assert!(session.state(|state| state.turn.open.is_some()));
    let answer = session.prompt(text("go on")).await.unwrap();
    // check 70: the standing request is asked again, without a second event.
    crate::harness::status(&session, AgentStatus::WaitingApproval).await;
    let id = session.state(|state| state.approvals.pending()[0].id.clone());
    session.decide(&id, Decision::AllowOnce, "test").unwrap();
    assert_eq!(
        within(answer.outcome()).await.unwrap().status,
        TurnStatus::Completed
    );
    assert!(result(&session, "a").await.is_ok());
    assert_eq!(harness.read("made").as_deref(), Some("ran\n"));
    let names = names(&session).await;
    for (name, count) in [
        ("turn/start", 1),
        ("turn/end", 1),
        ("approval/requested", 1),
        ("tool/call", 1),
    ] {
        assert_eq!(
            names.iter().filter(|found| *found == name).count(),
            count,
            "{name}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_had_started_is_reported_and_not_run_again() {
    let harness = Harness::new(
        r#"{"match":"^go$","calls":[{"id":"a","name":"Bash","args":{"command":"echo once >> count; sleep 3602"}}]}
{"match":".","say":"done"}"#,
    );
    let (engine, session) = harness.session().await;
    let _answer = session.prompt(text("go")).await.unwrap();
    let approval = approval(&session, 0).await;
    session
        .decide(&approval, Decision::AllowOnce, "test")
        .unwrap();
    within(async {
        while harness.read("count").is_none_or(|text| text.is_empty()) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let (_engine, session) = harness.restarted(engine, session).await;
    assert_eq!(
        prompt(&session, "go on").await.status,
        TurnStatus::Completed
    );
    assert!(
        result(&session, "a")
            .await
            .unwrap_err()
            .contains("may have run")
    );
    assert_eq!(harness.read("count").as_deref(), Some("once\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn check_071_a_stop_before_the_model_replied_makes_one_new_request() {
    let harness = Harness::new(
        r#"{"match":"^go$","say":"xyz","chunk":1,"delay_ms":3600000}
{"match":"^on$","say":"done"}"#,
    );
    let (engine, session) = harness.session().await;
    let _answer = session.prompt(text("go")).await.unwrap();
    wait_for(&session, 0, |payload| {
        matches!(payload, Payload::UserMessage { .. }).then_some(())
    })
    .await;
    let id = session.id().clone();
    engine.shutdown().await;
    drop(session);
    drop(engine);
    let engine = harness.engine();
    let session = engine.open_session(&id, None, None).await.unwrap();
    session.attach(None);
    complete(&session, "on").await;
    let users = events(&session)
        .await
        .into_iter()
        .filter(|event| matches!(event.payload, Payload::UserMessage { .. }))
        .count();
    assert_eq!(users, 1);
}

/// Holds the first call that passed the gate for ever.
struct Holds(std::sync::atomic::AtomicBool);

#[async_trait::async_trait]
impl terret_engine::room::tools::pipeline::CallHook for Holds {
    async fn around(
        &self,
        call: terret_engine::room::tools::call::Call,
        next: terret_engine::room::tools::pipeline::Next<'_>,
    ) -> Result<terret_engine::room::tools::call::CallResult, terret_engine::room::tools::call::Fault>
    {
        if self.0.swap(false, std::sync::atomic::Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        next.run(call).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_064_066_068_069_and_093_an_approved_call_runs_after_a_restart_and_asks_nobody() {
    let mut harness = Harness::new(
        r#"{"match":"^go$","calls":[{"id":"g","name":"Glob","args":{"pattern":"*"}},{"id":"a","name":"Bash","args":{"command":"echo ran >> made"}}],"usage":{"input":5,"output":2}}
{"match":".","say":"done"}"#,
    );
    let holds = std::sync::Arc::new(Holds(std::sync::atomic::AtomicBool::new(true)));
    harness.call_hooks.push(std::sync::Arc::clone(&holds) as _);
    let (engine, session) = harness.session().await;
    let _answer = session.prompt(text("go")).await.unwrap();
    let approval = approval(&session, 0).await;
    session
        .decide(&approval, Decision::AllowOnce, "test")
        .unwrap();
    within(async {
        while holds.0.load(std::sync::atomic::Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let (_engine, session) = harness.restarted(engine, session).await;
    assert_eq!(harness.read("made"), None);
    complete(&session, "go on").await;
    assert_eq!(harness.read("made").as_deref(), Some("ran\n"));
    let all = events(&session).await;
    crate::harness::assert_sound(&all);
    let asked = all
        .iter()
        .filter(|event| matches!(event.payload, Payload::ApprovalRequested { .. }))
        .count();
    assert_eq!(asked, 1);
    // The repaired step has an end without usage, and the next one goes on counting.
    let steps: Vec<(u32, bool)> = all
        .iter()
        .filter_map(|event| match &event.payload {
            Payload::StepEnd { n, usage } => Some((*n, usage.is_some())),
            _ => None,
        })
        .collect();
    assert_eq!(steps.first(), Some(&(1, false)));
    assert_eq!(steps.get(1).map(|step| step.0), Some(2));
    // A closed turn is not resumed, and its calls never run again.
    complete(&session, "more").await;
    assert_eq!(harness.read("made").as_deref(), Some("ran\n"));
    let turns = names(&session)
        .await
        .iter()
        .filter(|name| *name == "turn/start")
        .count();
    assert_eq!(turns, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standing_question_is_denied_when_nobody_can_be_asked_any_more() {
    let harness = Harness::new(
        r#"{"match":"^go$","calls":[{"id":"a","name":"Bash","args":{"command":"true"}}]}
{"match":".","say":"done"}"#,
    );
    let (engine, session) = harness.session().await;
    let _answer = session.prompt(text("go")).await.unwrap();
    approval(&session, 0).await;
    let id = session.id().clone();
    engine.shutdown().await;
    drop(session);
    drop(engine);

    let engine = harness.engine();
    // No face: a headless run.
    let session = engine.open_session(&id, None, None).await.unwrap();
    complete(&session, "go on").await;
    assert!(
        result(&session, "a")
            .await
            .unwrap_err()
            .contains("nobody can be asked")
    );
    crate::harness::assert_sound(&events(&session).await);
}
