//! What happens at the same time: prompts and cancels, closing and opening, appending and
//! following.

use std::sync::{Arc, Mutex, OnceLock};

use async_trait::async_trait;
use futures::StreamExt as _;
use serde_json::Value;
use terret_engine::room::log::{HistoryPart, Part, Payload, SessionFilter, Severity, TurnStatus};
use terret_engine::room::models::{
    Capabilities, ModelError, ModelStream, Provider, Request, StopReason, StreamEvent,
};
use terret_engine::room::tools::call::{CallContext, Failure, FileChange, Output, Tool};
use terret_engine::room::tools::definition::{Approval, Concurrency, Definition, Kind, Replay};
use terret_engine::{AgentStatus, Decision, EngineError, SessionHandle};

use crate::harness::{
    Harness, approval, assert_sound, complete, events, result, status, text, wait_for, within,
};

const HANG: &str = r#"{"match":"^hang","say":"xyz","chunk":1,"delay_ms":3600000}
{"match":".","say":"ok"}"#;

/// Starts a prompt that hangs, and waits until it does.
async fn hang(session: &SessionHandle) -> terret_engine::PromptAnswer {
    let seq = session.next_seq();
    let answer = session.prompt(text("hang")).await.unwrap();
    wait_for(session, seq, |payload| {
        matches!(payload, Payload::StepStart { .. }).then_some(())
    })
    .await;
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn check_063_r026_a_prompt_sent_right_after_a_cancel_is_served() {
    for _ in 0..20 {
        let harness = Harness::new(HANG);
        let (_engine, session) = harness.session().await;
        let first = hang(&session).await;
        session.cancel("stop").await.unwrap();
        // Nobody has waited for the cancelled turn to end.
        let second = session.prompt(text("hello")).await.unwrap();
        let first = within(first.outcome()).await.unwrap();
        assert_eq!(first.status, TurnStatus::Cancelled);
        let second = within(second.outcome()).await.unwrap();
        assert_eq!(second.status, TurnStatus::Completed);
        assert!(second.end > first.end);
        assert_sound(&events(&session).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r025_a_cancel_reaches_the_prompt_that_waits_behind_a_cancelled_turn() {
    for _ in 0..20 {
        let harness = Harness::new(HANG);
        let (_engine, session) = harness.session().await;
        let first = hang(&session).await;
        session.cancel("stop").await.unwrap();
        let second = session.prompt(text("hang again")).await.unwrap();
        session.cancel("stop that too").await.unwrap();
        let third = session.prompt(text("hello")).await.unwrap();
        for (answer, expected) in [
            (first, TurnStatus::Cancelled),
            (second, TurnStatus::Cancelled),
            (third, TurnStatus::Completed),
        ] {
            assert_eq!(within(answer.outcome()).await.unwrap().status, expected);
        }
        let events = events(&session).await;
        assert_sound(&events);
        // What was said is in the log, whatever came of it.
        for words in ["hang", "hang again", "hello"] {
            assert!(
                events.iter().any(|event| matches!(
                    &event.payload,
                    Payload::UserMessage { text, .. } if text == words
                )),
                "{words}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_keeps_what_was_sent_to_the_turn_and_not_read_yet() {
    let harness = Harness::new(HANG);
    let (engine, session) = harness.session().await;
    let first = hang(&session).await;
    let second = session.prompt(text("keep this")).await.unwrap();
    let id = session.id().clone();
    engine.shutdown().await;
    assert!(within(first.outcome()).await.is_none());
    assert!(within(second.outcome()).await.is_none());
    drop(session);
    let engine = harness.engine();
    let session = engine.open_session(&id, None, None).await.unwrap();
    let kept = session.state(|state| {
        state.history.messages().iter().any(|message| {
            message
                .parts
                .iter()
                .any(|part| matches!(part, HistoryPart::Text { text } if text == "keep this"))
        })
    });
    assert!(kept, "the history lacks what the person wrote");
}

/// Cancels its session's turn behind the last piece of an answer, and before its end.
struct CancelsAtTheEnd(Arc<OnceLock<SessionHandle>>);

impl Provider for CancelsAtTheEnd {
    fn name(&self) -> &str {
        "late"
    }

    fn capabilities(&self, _model: &str) -> Capabilities {
        Capabilities::default()
    }

    fn ready(&self) -> Result<(), ModelError> {
        Ok(())
    }

    fn stream(&self, _request: Request) -> ModelStream {
        let session = self.0.get().unwrap().clone();
        let stop = async move {
            // Blocks, so that the step sees the cancel after the end and not before it.
            tokio::task::block_in_place(|| {
                tokio::runtime::Handle::current().block_on(async {
                    session.cancel("late").await.unwrap();
                    // The session answers in order, so the cancel has been handled.
                    let answer = session.prompt(text("/help")).await.unwrap();
                    within(answer.outcome()).await.unwrap();
                });
            });
            Ok(StreamEvent::Stop(StopReason::End))
        };
        futures::stream::iter([Ok(StreamEvent::Text("whole answer".to_owned()))])
            .chain(futures::stream::once(stop))
            .boxed()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn check_053_a_cancel_behind_a_whole_answer_closes_cancelled_and_keeps_it() {
    let mut harness = Harness::new("");
    harness.settings.model = Some("late:model".parse().unwrap());
    let slot = Arc::new(OnceLock::new());
    harness
        .providers
        .push(Arc::new(CancelsAtTheEnd(Arc::clone(&slot))));
    let (_engine, session) = harness.session().await;
    slot.set(session.clone()).ok().unwrap();
    let outcome = crate::harness::prompt(&session, "go").await;
    assert_eq!(outcome.status, TurnStatus::Cancelled);
    assert_eq!(outcome.reason.as_deref(), Some("late"));
    let events = events(&session).await;
    assert_sound(&events);
    assert!(events.iter().any(|event| matches!(
        &event.payload,
        Payload::AssistantMessage { parts, partial: false }
            if matches!(parts.as_slice(), [Part::Text { text }] if text == "whole answer")
    )));
}

#[tokio::test(flavor = "multi_thread")]
async fn check_057_the_status_stays_waiting_while_a_sibling_is_parked() {
    let harness = Harness::new(
        r#"{"match":"^go$","calls":[{"id":"a","name":"Bash","args":{"command":"true"}},{"id":"b","name":"Bash","args":{"command":"true"}}]}
{"match":".","say":"done"}"#,
    );
    for cancel in [false, true] {
        let (_engine, session) = harness.session().await;
        let answer = session.prompt(text("go")).await.unwrap();
        let first = approval(&session, 0).await;
        let second = wait_for(&session, 0, |payload| match payload {
            Payload::ApprovalRequested { id, call_id, .. } if call_id == "b" => Some(id.clone()),
            _ => None,
        })
        .await;
        session.decide(&first, Decision::AllowOnce, "test").unwrap();
        wait_for(&session, 0, |payload| {
            matches!(payload, Payload::ToolResult { id, .. } if id == "a").then_some(())
        })
        .await;
        assert_eq!(session.status(), AgentStatus::WaitingApproval);
        let expected = if cancel {
            session.cancel("stop").await.unwrap();
            TurnStatus::Cancelled
        } else {
            session
                .decide(&second, Decision::AllowOnce, "test")
                .unwrap();
            TurnStatus::Completed
        };
        assert_eq!(within(answer.outcome()).await.unwrap().status, expected);
        status(&session, AgentStatus::Idle).await;
        assert_sound(&events(&session).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn check_007_and_010_followers_miss_nothing_of_appends_that_race_with_them() {
    const WRITERS: usize = 4;
    const EACH: usize = 1500;
    let harness = Harness::new("");
    let (engine, session) = harness.session().await;
    let followers: Vec<_> = (0..3)
        .map(|_| {
            let mut follower = session.follow(0);
            tokio::spawn(async move {
                let mut seen = Vec::new();
                // Ends when the session is closed and all of it was given.
                while let Some(event) = follower.next().await {
                    seen.push(event.seq);
                }
                seen
            })
        })
        .collect();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let session = session.clone();
            std::thread::spawn(move || {
                for n in 0..EACH {
                    session
                        .notice(Severity::Info, &format!("{writer} {n}"))
                        .unwrap();
                }
            })
        })
        .collect();
    tokio::task::spawn_blocking(|| {
        for writer in writers {
            writer.join().unwrap();
        }
    })
    .await
    .unwrap();
    engine.close_session(session.id()).await.unwrap();
    let expected: Vec<u64> = (0..session.next_seq()).collect();
    assert!(expected.len() > WRITERS * EACH);
    for follower in followers {
        assert!(
            within(follower).await.unwrap() == expected,
            "a gap or a repeat"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_that_falls_behind_again_and_again_misses_nothing() {
    let harness = Harness::new("");
    let (_engine, session) = harness.session().await;
    let mut follower = session.follow(0);
    let mut expected = 0;
    for read in [0, 100, 2500, 700, 1900] {
        for n in 0..1500 {
            session.notice(Severity::Info, &n.to_string()).unwrap();
        }
        for _ in 0..read {
            assert_eq!(within(follower.next()).await.unwrap().seq, expected);
            expected += 1;
        }
    }
    while !follower.caught_up() {
        assert_eq!(within(follower.next()).await.unwrap().seq, expected);
        expected += 1;
    }
    assert_eq!(expected, session.next_seq());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_being_closed_can_be_opened_again_at_once() {
    let harness = Harness::new(HANG);
    let (engine, session) = harness.session().await;
    let id = session.id().clone();
    for _ in 0..20 {
        let session = engine.open_session(&id, None, None).await.unwrap();
        session.attach(None);
        let answer = hang(&session).await;
        let (closed, opened) = tokio::join!(
            engine.close_session(&id),
            engine.open_session(&id, None, None)
        );
        closed.unwrap();
        opened.unwrap();
        let outcome = within(answer.outcome()).await.unwrap();
        assert_eq!(outcome.status, TurnStatus::Cancelled);
    }
    let session = engine.open_session(&id, None, None).await.unwrap();
    assert_sound(&events(&session).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn check_116_sessions_that_race_for_the_last_place_leave_no_orphans() {
    let mut harness = Harness::new("");
    harness.settings.limits.max_agents = 1;
    let engine = harness.engine();
    let made = futures::future::join_all(
        (0..8).map(|_| engine.create_session(harness.work(), Vec::new())),
    )
    .await;
    let (made, refused): (Vec<_>, Vec<_>) = made.into_iter().partition(Result::is_ok);
    assert_eq!((made.len(), refused.len()), (1, 7));
    for refused in refused {
        assert!(matches!(
            refused,
            Err(EngineError::TooManySessions { limit: 1 })
        ));
    }
    let page = engine
        .list_sessions(SessionFilter::default())
        .await
        .unwrap();
    assert_eq!(page.sessions.len(), 1);
}

/// Gives its context away, as a call does that goes on behind its result.
struct Leaks(Arc<Mutex<Option<CallContext>>>, Definition);

#[async_trait]
impl Tool for Leaks {
    fn definition(&self) -> &Definition {
        &self.1
    }

    fn title(&self, _args: &Value) -> String {
        "Leak".to_owned()
    }

    async fn run(&self, context: &CallContext, _args: Value) -> Result<Output, Failure> {
        *self.0.lock().unwrap() = Some(context.clone());
        Ok(Output::text("done"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_has_its_result_says_and_changes_nothing_more() {
    let slot = Arc::new(Mutex::new(None));
    let definition = Definition {
        name: "Leak",
        description: String::new(),
        parameters: serde_json::json!({ "type": "object" }),
        mutating: false,
        approval: Approval::Never,
        concurrency: Concurrency::Parallel,
        replay: Replay::Safe,
        kind: Kind::Other,
    };
    let mut harness = Harness::new(
        r#"{"calls":[{"id":"a","name":"Leak","args":{}}]}
{"say":"done"}"#,
    );
    harness.settings.floor = vec!["*".to_owned()];
    let tool = Leaks(Arc::clone(&slot), definition);
    harness.table.add(Arc::new(tool)).unwrap();
    let (_engine, session) = harness.session().await;
    complete(&session, "go").await;
    assert_eq!(result(&session, "a").await, Ok("done".to_owned()));
    wait_for(&session, 0, |payload| {
        matches!(payload, Payload::SessionTitled { .. }).then_some(())
    })
    .await;
    let before = session.next_seq();
    let context = slot.lock().unwrap().take().unwrap();
    context.journal.output("a", "more");
    context
        .journal
        .file_seen("a", &harness.work().join("x"), "00");
    let change = FileChange {
        path: harness.work().join("x"),
        before: None,
        after: Some(b"late".as_slice().into()),
    };
    assert!(context.journal.file_changing("a", &change).await.is_err());
    assert_eq!(session.next_seq(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_while_a_follower_looks_for_it_does_not_end_the_follower() {
    use std::sync::atomic::{AtomicU64, Ordering};
    const ROUNDS: u64 = 6_000;
    let harness = Harness::new("");
    let (engine, session) = harness.session().await;
    let first = session.next_seq();
    let seen = Arc::new(AtomicU64::new(first));
    let mut follower = session.follow(first);
    let following = tokio::spawn({
        let seen = Arc::clone(&seen);
        async move {
            while let Some(event) = follower.next().await {
                seen.store(event.seq + 1, Ordering::Release);
            }
            follower.position()
        }
    });
    // Each append comes just when the follower has read the one before it.
    let writer = std::thread::spawn({
        let (session, following) = (session.clone(), following.abort_handle());
        move || {
            for round in 0..ROUNDS {
                session.notice(Severity::Info, "x").unwrap();
                while seen.load(Ordering::Acquire) < first + round && !following.is_finished() {
                    std::hint::spin_loop();
                }
            }
        }
    });
    tokio::task::spawn_blocking(|| writer.join().unwrap())
        .await
        .unwrap();
    engine.close_session(session.id()).await.unwrap();
    assert_eq!(within(following).await.unwrap(), session.next_seq());
}
