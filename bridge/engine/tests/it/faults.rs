//! A log that cannot be written: the prompt is answered, nothing is half done, and the
//! session goes on as soon as it can.

use std::sync::{Arc, Mutex, OnceLock};

use async_trait::async_trait;
use terret_engine::hooks::{Rejected, TurnHook};
use terret_engine::input::Claim;
use terret_engine::room::log::{Payload, TurnStatus, Verdict};
use terret_engine::room::models::Request;
use terret_engine::room::tools::call::{Call, CallResult, Fault};
use terret_engine::room::tools::pipeline::{Admission, CallHook, Next, Veto};
use terret_engine::{AgentStatus, ApprovalError, Decision};

use crate::harness::{
    AutoApprove, Harness, LogAway, approval, assert_sound, complete, events, prompt, result,
    status, text, wait_for, within,
};

/// Where the log goes away.
#[derive(Debug, Clone, Copy, PartialEq)]
enum At {
    BeforeStep,
    BeforeRequest,
    BeforeCall,
    AroundCall,
    AfterCall,
}

/// Takes the log away, once, when the turn comes to the place.
struct Taker {
    at: At,
    log: Arc<OnceLock<LogAway>>,
    done: Mutex<bool>,
}

impl Taker {
    fn pass(&self, at: At) {
        let mut done = self.done.lock().unwrap();
        if let (true, false, Some(log)) = (self.at == at, *done, self.log.get()) {
            log.take();
            *done = true;
        }
    }
}

#[async_trait]
impl TurnHook for Taker {
    async fn before_step(&self, claim: Vec<Claim>) -> Result<Vec<Claim>, Rejected> {
        self.pass(At::BeforeStep);
        Ok(claim)
    }

    async fn before_request(&self, request: Request) -> Request {
        self.pass(At::BeforeRequest);
        request
    }
}

#[async_trait]
impl CallHook for Taker {
    async fn before(&self, call: Call) -> Result<Admission, Veto> {
        self.pass(At::BeforeCall);
        Ok(call.into())
    }

    async fn around(&self, call: Call, next: Next<'_>) -> Result<CallResult, Fault> {
        self.pass(At::AroundCall);
        next.run(call).await
    }

    async fn after(&self, _call: &Call, result: CallResult) -> CallResult {
        self.pass(At::AfterCall);
        result
    }
}

fn taking(harness: &mut Harness, at: At) -> Arc<OnceLock<LogAway>> {
    let log = Arc::new(OnceLock::new());
    let taker = Arc::new(Taker {
        at,
        log: Arc::clone(&log),
        done: Mutex::new(false),
    });
    harness.turn_hooks.push(Arc::clone(&taker) as _);
    harness.call_hooks.push(taker);
    log
}

#[tokio::test(flavor = "multi_thread")]
async fn check_006_and_072_a_log_that_fails_anywhere_answers_the_prompt_and_the_next_one_goes_on() {
    for at in [
        At::BeforeStep,
        At::BeforeRequest,
        At::BeforeCall,
        At::AroundCall,
        At::AfterCall,
    ] {
        let mut harness = Harness::new(
            r#"{"match":"^go$","say":"I look","calls":[{"id":"a","name":"Bash","args":{"command":"echo ran >> made"}}]}
{"match":".","say":"done"}"#,
        );
        let log = taking(&mut harness, at);
        let (_engine, session) = harness.session().await;
        let _approve = AutoApprove::start(&session, Decision::AllowOnce);
        let away = log.get_or_init(|| LogAway::of(&harness, &session));
        let outcome = prompt(&session, "go").await;
        assert_eq!(outcome.status, TurnStatus::Failed, "{at:?}");
        assert!(outcome.reason.unwrap().contains("log"), "{at:?}");
        status(&session, AgentStatus::Idle).await;
        // Still away: the next one is answered all the same, and leaves no end behind.
        assert_eq!(prompt(&session, "again").await.status, TurnStatus::Failed);
        away.give_back();
        complete(&session, "go on").await;
        let events = events(&session).await;
        assert_sound(&events);
        // Nothing ran twice.
        assert_ne!(
            harness.read("made").as_deref(),
            Some("ran\nran\n"),
            "{at:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_beside_a_waiting_call_leaves_nothing_waiting_and_the_question_stands() {
    let mut harness = Harness::new(
        r#"{"match":"^go$","calls":[{"id":"a","name":"Bash","args":{"command":"true"}},{"id":"b","name":"Bash","args":{"command":"false || true"}}]}
{"match":".","say":"done"}"#,
    );
    let log = taking(&mut harness, At::AroundCall);
    let (_engine, session) = harness.session().await;
    let away = log.get_or_init(|| LogAway::of(&harness, &session));
    let answer = session.prompt(text("go")).await.unwrap();
    let first = approval(&session, 0).await;
    let second = wait_for(&session, 0, |payload| match payload {
        Payload::ApprovalRequested { id, call_id, .. } if call_id == "b" => Some(id.clone()),
        _ => None,
    })
    .await;
    session.decide(&first, Decision::AllowOnce, "test").unwrap();
    let outcome = within(answer.outcome()).await.unwrap();
    assert_eq!(outcome.status, TurnStatus::Failed);
    status(&session, AgentStatus::Idle).await;
    away.give_back();
    // Nobody waits for it now, so deciding it decides nothing.
    let late = session.decide(&second, Decision::AllowOnce, "test");
    assert!(
        matches!(late, Err(ApprovalError::NotWaiting(_))),
        "{late:?}"
    );

    let answer = session.prompt(text("go on")).await.unwrap();
    status(&session, AgentStatus::WaitingApproval).await;
    session
        .decide(&second, Decision::AllowOnce, "test")
        .unwrap();
    // check 69: `a` has its verdict and is not asked again.
    let outcome = within(answer.outcome()).await.unwrap();
    assert_eq!(
        outcome.status,
        TurnStatus::Completed,
        "{:?}",
        outcome.reason
    );
    assert!(result(&session, "a").await.is_ok());
    assert!(result(&session, "b").await.is_ok());
    let events = events(&session).await;
    assert_sound(&events);
    let asked = events
        .iter()
        .filter(|event| matches!(event.payload, Payload::ApprovalRequested { .. }))
        .count();
    assert_eq!(asked, 2);
    // A wait of the next turn ends as running again: no ghost waits beside it (check 57).
    assert_eq!(session.status(), AgentStatus::Idle);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_verdict_that_cannot_be_logged_decides_nothing() {
    let harness = Harness::new(
        r#"{"match":"^go$","calls":[{"id":"a","name":"Bash","args":{"command":"echo ran > made"}}]}
{"match":".","say":"done"}"#,
    );
    let (_engine, session) = harness.session().await;
    let answer = session.prompt(text("go")).await.unwrap();
    let id = approval(&session, 0).await;
    let away = LogAway::of(&harness, &session);
    away.take();
    let failed = session.decide(&id, Decision::AllowOnce, "test");
    assert!(matches!(failed, Err(ApprovalError::Fault(_))), "{failed:?}");
    assert_eq!(session.status(), AgentStatus::WaitingApproval);
    assert_eq!(harness.read("made"), None);
    away.give_back();
    session.decide(&id, Decision::AllowOnce, "test").unwrap();
    let outcome = within(answer.outcome()).await.unwrap();
    assert_eq!(outcome.status, TurnStatus::Completed);
    assert_eq!(harness.read("made").as_deref(), Some("ran\n"));
    assert_sound(&events(&session).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn check_056_a_failed_turn_takes_its_open_questions_back() {
    struct Breaks;
    #[async_trait]
    impl CallHook for Breaks {
        async fn around(&self, _call: Call, _next: Next<'_>) -> Result<CallResult, Fault> {
            Err(Fault("it broke".to_owned()))
        }
    }
    let mut harness = Harness::new(
        r#"{"calls":[{"id":"a","name":"Bash","args":{"command":"true"}},{"id":"b","name":"Bash","args":{"command":"true"}}]}"#,
    );
    harness.call_hooks.push(Arc::new(Breaks));
    let (_engine, session) = harness.session().await;
    let answer = session.prompt(text("go")).await.unwrap();
    let first = approval(&session, 0).await;
    wait_for(&session, 0, |payload| match payload {
        Payload::ApprovalRequested { call_id, .. } if call_id == "b" => Some(()),
        _ => None,
    })
    .await;
    session.decide(&first, Decision::AllowOnce, "test").unwrap();
    let outcome = within(answer.outcome()).await.unwrap();
    assert_eq!(outcome.status, TurnStatus::Failed);
    assert!(outcome.reason.unwrap().contains("it broke"));
    let events = events(&session).await;
    assert_sound(&events);
    let verdicts: Vec<Verdict> = events
        .iter()
        .filter_map(|event| match &event.payload {
            Payload::ApprovalResolved { verdict, .. } => Some(*verdict),
            _ => None,
        })
        .collect();
    assert_eq!(verdicts, [Verdict::Approved, Verdict::Cancelled]);
    assert_eq!(session.status(), AgentStatus::Idle);
}
