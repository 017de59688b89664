//! The guards of a turn that no face can reach, since a session resumes by itself.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test that cannot go on should stop at the place"
)]

use terret_log::SystemClock;
use terret_models::{Registry, ThinkingLevel};
use terret_tools::mode::Mode;
use terret_tools::table::Table;
use terret_tools::world::web::WebSettings;

use super::*;
use crate::{Engine, EngineParts, JobSettings, Limits, Places, SessionHandle, Settings};

async fn session(folder: &std::path::Path) -> SessionHandle {
    session_with(folder, None, JobSettings::default()).await
}

async fn session_with(
    folder: &std::path::Path,
    model: Option<terret_models::ModelName>,
    jobs: JobSettings,
) -> SessionHandle {
    let engine = Engine::new(EngineParts {
        places: Places {
            state: folder.join("state"),
            scratch: folder.join("scratch"),
            denied: Vec::new(),
        },
        settings: Settings {
            model,
            offered_models: Vec::new(),
            thinking: ThinkingLevel::Off,
            mode: Mode::Ask,
            bypass: false,
            floor: Vec::new(),
            rules: Default::default(),
            user_rules: None,
            limits: Limits::default(),
            jobs,
            environment_allow: Vec::new(),
            environment_hide: Vec::new(),
            sandbox: Default::default(),
            web: WebSettings::default(),
            unattended: Default::default(),
            project_sources: Vec::new(),
            hooks: Default::default(),
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

/// A session that holds its turns, and whose model says these texts one after the other.
async fn holding(folder: &std::path::Path, says: &[&str]) -> SessionHandle {
    let script: String = says
        .iter()
        .map(|say| format!("{}\n", serde_json::json!({ "say": say })))
        .collect();
    let file = folder.join("script.jsonl");
    tokio::fs::write(&file, script).await.unwrap();
    let model = format!("scripted:{}", file.display()).parse().unwrap();
    let jobs = JobSettings {
        turn: JobsTurn::Hold,
        ..JobSettings::default()
    };
    session_with(folder, Some(model), jobs).await
}

async fn say(session: &SessionHandle, text: &str) -> crate::PromptAnswer {
    let blocks = vec![crate::InputBlock::Text(text.to_owned())];
    session.prompt(blocks).await.unwrap()
}

async fn outcome(answer: crate::PromptAnswer) -> TurnOutcome {
    let patience = std::time::Duration::from_secs(30);
    tokio::time::timeout(patience, answer.outcome())
        .await
        .unwrap()
        .unwrap()
}

/// Waits until so many steps are over.
async fn steps_over(session: &SessionHandle, steps: u64) {
    let mut follower = session.follow(0);
    let patience = std::time::Duration::from_secs(30);
    let wait = async {
        let mut over = 0;
        while over < steps {
            let event = follower.next().await.unwrap();
            over += u64::from(matches!(event.payload, Payload::StepEnd { .. }));
        }
    };
    tokio::time::timeout(patience, wait).await.unwrap();
}

fn start_job(session: &SessionHandle, n: u8) -> String {
    let job = crate::jobs::tests::job(n, crate::jobs::tests::RUNNING);
    let core = &session.turn_parts().core;
    core.append(crate::jobs::started_event(&job.call_id, &job))
        .unwrap();
    job.id.to_string()
}

fn end_job(session: &SessionHandle, n: u8) {
    let job = crate::jobs::tests::job(n, terret_tools::world::jobs::JobState::Exited(0));
    let core = &session.turn_parts().core;
    core.append_if(|state| crate::jobs::ended_event(state, &job))
        .unwrap();
}

fn last_text(session: &SessionHandle) -> Vec<String> {
    session.state(|state| {
        state
            .history
            .messages()
            .iter()
            .flat_map(|message| &message.parts)
            .filter_map(|part| match part {
                Part::Text { text } => Some(text.clone()),
                _ => None,
            })
            .collect()
    })
}

#[tokio::test]
async fn a_turn_is_held_until_a_job_that_the_model_named_ends() {
    let folder = tempfile::tempdir().unwrap();
    let named = "I wait for job-0000000000000002.";
    let session = holding(folder.path(), &[named, "It is done."]).await;
    start_job(&session, 1);
    start_job(&session, 2);
    let answer = say(&session, "build it").await;
    steps_over(&session, 1).await;
    // One that it did not name does not end the hold.
    end_job(&session, 1);
    assert_eq!(session.status(), AgentStatus::Running);
    assert_eq!(session.state(|state| state.usage.steps), 1);
    end_job(&session, 2);
    let outcome = outcome(answer).await;
    assert_eq!(outcome.status, TurnStatus::Completed);
    assert_eq!(session.state(|state| state.usage.steps), 2);
    let texts = last_text(&session);
    let line = texts
        .iter()
        .find(|text| text.contains("ended since"))
        .unwrap();
    assert!(line.contains("job-0000000000000001"), "{line}");
    assert!(
        line.contains("job-0000000000000002 (`make part2`) exited"),
        "{line}"
    );
    assert_eq!(texts.last().unwrap(), "It is done.");
}

#[tokio::test]
async fn a_turn_that_names_no_job_is_not_held() {
    let folder = tempfile::tempdir().unwrap();
    let session = holding(folder.path(), &["The build goes on."]).await;
    start_job(&session, 1);
    let answer = say(&session, "build it").await;
    assert_eq!(outcome(answer).await.status, TurnStatus::Completed);
    assert_eq!(session.state(|state| state.usage.steps), 1);
}

#[tokio::test]
async fn a_cancel_and_a_prompt_end_a_hold() {
    let folder = tempfile::tempdir().unwrap();
    let named = "I wait for job-0000000000000001.";
    let session = holding(folder.path(), &[named, "Hello.", named]).await;
    start_job(&session, 1);
    let first = say(&session, "build it").await;
    steps_over(&session, 1).await;
    let second = say(&session, "hello?").await;
    for answer in [first, second] {
        assert_eq!(outcome(answer).await.status, TurnStatus::Completed);
    }
    assert_eq!(session.state(|state| state.usage.steps), 2);
    let held = say(&session, "wait then").await;
    steps_over(&session, 3).await;
    let begun = std::time::Instant::now();
    session.cancel("enough").await.unwrap();
    assert_eq!(outcome(held).await.status, TurnStatus::Cancelled);
    let took = begun.elapsed();
    assert!(took < std::time::Duration::from_secs(2), "{took:?}");
    assert_eq!(session.state(|state| state.jobs.running().count()), 1);
}

#[tokio::test]
async fn a_turn_that_a_crash_left_held_is_held_again() {
    let folder = tempfile::tempdir().unwrap();
    let named = "I wait for job-0000000000000001.";
    let session = holding(folder.path(), &[named, "It is done."]).await;
    start_job(&session, 1);
    let parts = session.turn_parts();
    for payload in [
        Payload::TurnStart {
            agent: "agent".to_owned(),
        },
        Payload::StepStart {
            n: 1,
            model: "scripted:x".to_owned(),
        },
        Payload::UserMessage {
            text: "build it".to_owned(),
            images: Vec::new(),
            blocks: Vec::new(),
        },
        Payload::AssistantMessage {
            parts: vec![Part::Text {
                text: named.to_owned(),
            }],
            partial: false,
        },
    ] {
        parts.core.append(payload).unwrap();
    }
    let answer = session.wake().await.unwrap();
    steps_over(&session, 1).await;
    assert!(session.state(|state| state.turn.is_open()));
    end_job(&session, 1);
    assert_eq!(outcome(answer).await.status, TurnStatus::Completed);
    assert_eq!(last_text(&session).last().unwrap(), "It is done.");
}
