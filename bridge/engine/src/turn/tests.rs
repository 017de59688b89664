//! The guards of a turn that no face can reach, since a session resumes by itself.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on should stop at the place"
)]

use terret_log::SystemClock;
use terret_models::{Registry, ThinkingLevel};
use terret_tools::mode::Mode;
use terret_tools::table::Table;

use super::*;
use crate::{Engine, EngineParts, Limits, Places, SessionHandle, Settings};

async fn session(folder: &std::path::Path) -> SessionHandle {
    let engine = Engine::new(EngineParts {
        places: Places {
            state: folder.join("state"),
            scratch: folder.join("scratch"),
            denied: Vec::new(),
        },
        settings: Settings {
            model: None,
            offered_models: Vec::new(),
            thinking: ThinkingLevel::Off,
            mode: Mode::Ask,
            floor: Vec::new(),
            rules: Vec::new(),
            limits: Limits::default(),
            environment_allow: Vec::new(),
            environment_hide: Vec::new(),
            instructions: None,
        },
        registry: Registry::new(Vec::new()),
        clock: Arc::new(SystemClock),
        scrubber: terret_log::Scrubber::default(),
        table: Table::new(),
        call_hooks: Vec::new(),
        turn_hooks: Vec::new(),
    });
    engine
        .create_session(folder.to_owned(), Vec::new())
        .await
        .unwrap()
}

#[tokio::test]
async fn checks_040_and_041_a_turn_beside_an_open_one_is_refused_and_appends_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path()).await;
    let parts = session.turn_parts();
    let start = Payload::TurnStart {
        agent: "agent".to_owned(),
    };
    parts.core.append(start).unwrap();
    let before = session.next_seq();
    let refused = run(&parts, Some(Input::notice("hello")), &Stop::default()).await;
    assert!(refused.unwrap_err().0.contains("open turn"));
    assert_eq!(session.next_seq(), before);
}

#[tokio::test]
async fn check_036_and_074_a_turn_without_input_closes_empty_without_a_step() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path()).await;
    let parts = session.turn_parts();
    let outcome = run(&parts, None, &Stop::default()).await.unwrap();
    assert_eq!(outcome.status, TurnStatus::Empty);
    let start = Payload::TurnStart {
        agent: "agent".to_owned(),
    };
    parts.core.append(start).unwrap();
    let outcome = resume(&parts, None, &Stop::default()).await.unwrap();
    assert_eq!(outcome.status, TurnStatus::Empty);
    assert_eq!(session.state(|state| state.usage.steps), 0);
    assert!(!session.state(|state| state.turn.is_open()));
}

#[tokio::test]
async fn a_resumed_turn_takes_back_a_question_that_nobody_waits_for() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path()).await;
    let parts = session.turn_parts();
    for payload in [
        Payload::TurnStart {
            agent: "agent".to_owned(),
        },
        // "Go on after 100 steps?", asked by a turn that a crash ended.
        Payload::ApprovalRequested {
            id: "a2".to_owned(),
            call_id: "continue-2".to_owned(),
            name: "continue".to_owned(),
            args: serde_json::json!({}),
            title: String::new(),
            reason: String::new(),
            preview: Vec::new(),
            offered_rule: None,
            stage: terret_log::ApprovalStage::Call,
        },
    ] {
        parts.core.append(payload).unwrap();
    }
    let mut follower = session.follow(session.next_seq());
    let _outcome = resume(&parts, None, &Stop::default()).await.unwrap();
    let first = follower.next().await.unwrap();
    assert!(
        matches!(
            &first.payload,
            Payload::ApprovalResolved { id, verdict: terret_log::Verdict::Cancelled, .. }
                if id == "a2"
        ),
        "{first:?}"
    );
}

#[tokio::test]
async fn checks_073_and_075_redaction_is_seen_in_a_name_a_value_and_a_key() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path()).await;
    let parts = session.turn_parts();
    let judged = |name: &str, args: serde_json::Value| {
        let call = OwedCall {
            id: "a".to_owned(),
            name: name.to_owned(),
            args,
            announced: false,
            started: false,
        };
        was_redacted(&parts.core, &call)
    };
    use serde_json::json;
    assert!(!judged("Bash", json!({"command": ["x", {"y": 1}]})));
    assert!(judged("[REDACTED]", json!({})));
    assert!(judged(
        "Bash",
        json!({"a": ["x", {"y": "an [REDACTED] b"}]})
    ));
    assert!(judged("Bash", json!({"a": {"[REDACTED]-2": 1}})));
}
