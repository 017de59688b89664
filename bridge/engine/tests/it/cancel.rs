//! Checks D: cancel and status.

use std::time::{Duration, Instant};

use terret_engine::room::log::{Part, Payload, TurnStatus, Verdict};
use terret_engine::{AgentStatus, Decision};

use crate::harness::{
    AutoApprove, Harness, approval, complete, events, names, result, status, text, wait_for, within,
};

/// The bound of check 60, with room for a busy machine: the point is that nothing waits
/// for the stream, the command or the person.
const SOON: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread")]
async fn check_049_and_060_a_cancel_ends_a_stream_and_keeps_what_was_said() {
    let harness = Harness::new(r#"{"say":"one two three","chunk":4,"delay_ms":3600000}"#);
    let (_engine, session) = harness.session().await;
    let answer = session.prompt(text("talk")).await.unwrap();
    wait_for(&session, 0, |payload| {
        matches!(payload, Payload::StepStart { .. }).then_some(())
    })
    .await;
    let before = Instant::now();
    session.cancel("stop it").await.unwrap();
    let outcome = within(answer.outcome()).await.unwrap();
    assert!(before.elapsed() < SOON);
    assert_eq!(
        (outcome.status, outcome.reason.as_deref()),
        (TurnStatus::Cancelled, Some("stop it"))
    );
    assert_eq!(session.status(), AgentStatus::Idle);
}

#[tokio::test(flavor = "multi_thread")]
async fn check_060_partial_text_is_kept_and_marked() {
    // The first chunk comes at once after its delay; the cancel comes when it was seen.
    let harness =
        Harness::new(r#"{"say":"spoken, and then nothing more","chunk":7,"delay_ms":150}"#);
    let (_engine, session) = harness.session().await;
    let answer = session.prompt(text("talk")).await.unwrap();
    wait_for(&session, 0, |payload| {
        matches!(payload, Payload::AssistantChunk { .. }).then_some(())
    })
    .await;
    session.cancel("enough").await.unwrap();
    assert_eq!(
        within(answer.outcome()).await.unwrap().status,
        TurnStatus::Cancelled
    );
    let kept = events(&session)
        .await
        .into_iter()
        .find_map(|event| match event.payload {
            Payload::AssistantMessage { parts, partial } => Some((parts, partial)),
            _ => None,
        });
    let (parts, partial) = kept.unwrap();
    assert!(partial);
    assert!(matches!(&parts[0], Part::Text { text } if text.starts_with("spoken,")));
}

#[tokio::test(flavor = "multi_thread")]
async fn check_051_calls_that_did_not_start_get_the_synthetic_result() {
    let harness = Harness::new(
        r#"{"calls":[{"id":"a","name":"Bash","args":{"command":"sleep 3600"}},{"id":"b","name":"Bash","args":{"command":"touch made"}}]}
{"say":"never"}"#,
    );
    let (_engine, session) = harness.session().await;
    let _approve = AutoApprove::start(&session, Decision::AllowOnce);
    let answer = session.prompt(text("run")).await.unwrap();
    wait_for(&session, 0, |payload| {
        matches!(payload, Payload::ToolStarted { id, .. } if id == "a").then_some(())
    })
    .await;
    let before = Instant::now();
    session.cancel("stop").await.unwrap();
    assert_eq!(
        within(answer.outcome()).await.unwrap().status,
        TurnStatus::Cancelled
    );
    assert!(
        before.elapsed() < SOON,
        "r027: a blocked tool does not hold the turn"
    );
    assert_eq!(
        result(&session, "b").await,
        Err("cancelled before execution".to_owned())
    );
    assert!(
        result(&session, "a").await.is_err()
            || result(&session, "a").await.unwrap().contains("cancel")
    );
    assert_eq!(harness.read("made"), None);
    let calls = names(&session)
        .await
        .iter()
        .filter(|name| *name == "tool/call")
        .count();
    assert_eq!(calls, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn check_055_and_063_r104_a_cancel_never_reaches_the_next_prompt() {
    let harness = Harness::new(r#"{"match":".","say":"ok"}"#);
    let (_engine, session) = harness.session().await;
    session.cancel("early").await.unwrap();
    session.cancel("earlier").await.unwrap();
    complete(&session, "one").await;
    session.cancel("late").await.unwrap();
    complete(&session, "two").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_056_and_098_a_cancel_resolves_every_waiting_approval_as_cancelled() {
    let harness = Harness::new(
        r#"{"calls":[{"id":"a","name":"Bash","args":{"command":"true"}},{"id":"b","name":"Bash","args":{"command":"false"}}]}"#,
    );
    let (_engine, session) = harness.session().await;
    let answer = session.prompt(text("run")).await.unwrap();
    approval(&session, 0).await;
    assert_eq!(session.status(), AgentStatus::WaitingApproval);
    session.cancel("stop").await.unwrap();
    assert_eq!(
        within(answer.outcome()).await.unwrap().status,
        TurnStatus::Cancelled
    );
    let mut asked = Vec::new();
    let mut settled = Vec::new();
    for event in events(&session).await {
        match event.payload {
            Payload::ApprovalRequested { id, .. } => asked.push(id),
            Payload::ApprovalResolved {
                id, verdict, by, ..
            } => {
                assert_eq!((verdict, by.as_str()), (Verdict::Cancelled, "cancel"));
                settled.push(id);
            }
            _ => {}
        }
    }
    settled.sort();
    asked.sort();
    assert!(!asked.is_empty());
    assert_eq!(asked, settled);
    for call in ["a", "b"] {
        assert!(result(&session, call).await.is_err());
    }
    assert!(session.state(|state| state.approvals.is_empty()));
}

#[tokio::test(flavor = "multi_thread")]
async fn check_057_the_status_after_a_verdict_is_running_again() {
    let harness =
        Harness::new(r#"{"calls":[{"id":"a","name":"Bash","args":{"command":"sleep 3600"}}]}"#);
    let (_engine, session) = harness.session().await;
    let answer = session.prompt(text("run")).await.unwrap();
    let id = approval(&session, 0).await;
    session.decide(&id, Decision::AllowOnce, "test").unwrap();
    status(&session, AgentStatus::Running).await;
    session.cancel("stop").await.unwrap();
    status(&session, AgentStatus::Idle).await;
    within(answer.outcome()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn check_061_a_cancel_ends_the_command_and_its_children() {
    let harness = Harness::new(
        r#"{"calls":[{"id":"a","name":"Bash","args":{"command":"sleep 3601 & echo $! > child; echo $$ > parent; wait"}}]}"#,
    );
    let (_engine, session) = harness.session().await;
    let _approve = AutoApprove::start(&session, Decision::AllowOnce);
    let answer = session.prompt(text("run")).await.unwrap();
    let pid = within(async {
        loop {
            if let Some(pid) = harness
                .read("parent")
                .and_then(|pid| pid.trim().parse::<u32>().ok())
            {
                return pid;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    let child: u32 = harness.read("child").unwrap().trim().parse().unwrap();
    session.cancel("stop").await.unwrap();
    within(answer.outcome()).await.unwrap();
    for pid in [pid, child] {
        assert!(gone(pid), "process {pid} is still there");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r025_every_interrupted_prompt_answers_cancelled() {
    let scripts = [
        // A stream, a tool, an approval, a retry's sleep.
        r#"{"say":"xyz","chunk":1,"delay_ms":3600000}"#,
        r#"{"calls":[{"id":"a","name":"Glob","args":{"pattern":"*"}}],"say":"yes","chunk":1,"delay_ms":3600000}"#,
        r#"{"calls":[{"id":"a","name":"Bash","args":{"command":"true"}}]}"#,
        r#"{"fail":{"status":529,"retry_after":60,"times":3}}"#,
    ];
    for script in scripts {
        let harness = Harness::new(script);
        let (_engine, session) = harness.session().await;
        let answer = session.prompt(text("go")).await.unwrap();
        wait_for(&session, 0, |payload| {
            matches!(payload, Payload::StepStart { .. }).then_some(())
        })
        .await;
        session.cancel("stop").await.unwrap();
        assert_eq!(
            within(answer.outcome()).await.unwrap().status,
            TurnStatus::Cancelled,
            "{script}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r026_after_any_cancel_the_next_prompt_is_served() {
    let harness = Harness::new(
        r#"{"match":"^slow","say":"a b c d e f","chunk":2,"delay_ms":2}
{"match":"^next","say":"ok"}"#,
    );
    let (_engine, session) = harness.session().await;
    for round in 0..60u64 {
        let answer = session.prompt(text("slow")).await.unwrap();
        // Cancels at another point of the turn each time, from before it starts on.
        for _ in 0..round * 7 {
            tokio::task::yield_now().await;
        }
        session.cancel("stop").await.unwrap();
        let outcome = within(answer.outcome()).await.unwrap();
        assert!(
            matches!(
                outcome.status,
                TurnStatus::Cancelled | TurnStatus::Completed
            ),
            "{outcome:?}"
        );
        complete(&session, "next").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r102_a_cancel_ends_the_turn_and_nothing_else() {
    let harness = Harness::new(
        r#"{"match":"^grant$","calls":[{"id":"a","name":"Bash","args":{"command":"true"}},{"id":"t","name":"TodoWrite","args":{"todos":[{"content":"one","status":"in_progress","activeForm":"doing one"}]}}]}
{"match":"todo|one","say":"set"}
{"match":"^hang$","say":"xyz","chunk":1,"delay_ms":3600000}
{"match":"^again$","calls":[{"id":"b","name":"Bash","args":{"command":"true"}}]}
{"match":".","say":"done"}"#,
    );
    let (_engine, session) = harness.session().await;
    let answer = session.prompt(text("grant")).await.unwrap();
    let id = approval(&session, 0).await;
    session
        .decide(
            &id,
            Decision::AllowAlways(terret_log::GrantScope::Session),
            "test",
        )
        .unwrap();
    within(answer.outcome()).await.unwrap();
    let seq = session.next_seq();
    let hang = session.prompt(text("hang")).await.unwrap();
    wait_for(&session, seq, |payload| {
        matches!(payload, Payload::StepStart { .. }).then_some(())
    })
    .await;
    session.cancel("stopped by the user").await.unwrap();
    within(hang.outcome()).await.unwrap();
    // The grant still holds, so this asks nobody; the plan and the history are there.
    complete(&session, "again").await;
    assert_eq!(session.state(|state| state.plan.entries().len()), 1);
    assert!(session.state(|state| state.history.messages().len() > 4));
}

fn gone(pid: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat
            .rsplit(')')
            .next()
            .is_some_and(|rest| rest.trim_start().starts_with('Z')),
        Err(_) => true,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn check_060_a_hook_that_hangs_holds_no_cancel() {
    use std::sync::Arc;

    use async_trait::async_trait;
    use terret_engine::hooks::{Rejected, TurnHook};
    use terret_engine::input::Claim;
    use terret_engine::room::models::Request;

    /// Hangs before the step, or before the request.
    struct Hangs {
        in_step: bool,
        reached: Arc<tokio::sync::Notify>,
    }

    #[async_trait]
    impl TurnHook for Hangs {
        async fn before_step(&self, claim: Vec<Claim>) -> Result<Vec<Claim>, Rejected> {
            if self.in_step {
                self.reached.notify_one();
                std::future::pending::<()>().await;
            }
            Ok(claim)
        }

        async fn before_request(&self, request: Request) -> Request {
            self.reached.notify_one();
            std::future::pending::<()>().await;
            request
        }
    }

    for in_step in [true, false] {
        let mut harness = Harness::new(r#"{"say":"never"}"#);
        let reached = Arc::new(tokio::sync::Notify::new());
        harness.turn_hooks.push(Arc::new(Hangs {
            in_step,
            reached: Arc::clone(&reached),
        }));
        let (_engine, session) = harness.session().await;
        let answer = session.prompt(text("kept")).await.unwrap();
        within(reached.notified()).await;
        session.cancel("stop").await.unwrap();
        assert_eq!(
            within(answer.outcome()).await.unwrap().status,
            TurnStatus::Cancelled
        );
        let kept = events(&session).await.into_iter().any(
            |event| matches!(event.payload, Payload::UserMessage { text, .. } if text == "kept"),
        );
        assert!(kept, "what was asked is in the log");
    }
}
