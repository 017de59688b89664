//! Slash commands and options.

use terret_engine::OptionError;
use terret_engine::room::log::{Payload, TurnStatus};

use crate::harness::{Harness, complete, events, prompt};

async fn last_notice(session: &terret_engine::SessionHandle) -> String {
    events(session)
        .await
        .into_iter()
        .rev()
        .find_map(|event| match event.payload {
            Payload::NoticeShown { text, .. } => Some(text),
            _ => None,
        })
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_answer_without_a_model_and_stay_out_of_the_history() {
    let harness = Harness::new("");
    let (_engine, session) = harness.session().await;
    for (command, expected) in [
        ("/help", "/compact"),
        ("/mode", "`ask`"),
        ("/mode plan", "now `plan`"),
        ("/mode fast", "use one of"),
        ("/model", "scripted:"),
        ("/model nothing", "provider:model"),
        ("/plan", "empty"),
        ("/plan what", "not known"),
        ("/compact", "not available yet"),
    ] {
        assert_eq!(
            prompt(&session, command).await.status,
            TurnStatus::Completed,
            "{command}"
        );
        let notice = last_notice(&session).await;
        assert!(notice.contains(expected), "{command}: {notice}");
    }
    assert!(session.state(|state| state.history.messages().is_empty()));
    assert_eq!(session.options().mode.name(), "plan");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_is_no_command() {
    let harness = Harness::new(r#"{"match":"^/usr/bin/env is","say":"yes"}"#);
    let (_engine, session) = harness.session().await;
    complete(&session, "/usr/bin/env is what?").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r086_the_plan_command_counts_what_is_open_and_clears_it() {
    let harness = Harness::new(
        r#"{"match":"^set$","calls":[{"id":"t","name":"TodoWrite","args":{"todos":[{"content":"one","status":"completed","activeForm":"doing one"},{"content":"two","status":"pending","activeForm":"doing two"}]}}]}
{"match":".","say":"done"}"#,
    );
    let (_engine, session) = harness.session().await;
    complete(&session, "set").await;
    prompt(&session, "/plan").await;
    assert!(last_notice(&session).await.starts_with("1 step open"));
    prompt(&session, "/plan clear").await;
    assert!(session.state(|state| state.plan.entries().is_empty()));
}

#[tokio::test(flavor = "multi_thread")]
async fn options_are_durable_and_wrong_ones_are_told() {
    let harness = Harness::new(r#"{"match":".","say":"ok"}"#);
    let (engine, session) = harness.session().await;
    session.set_option("mode", "edits", "test").unwrap();
    session.set_option("mode", "edits", "test").unwrap();
    assert!(matches!(
        session.set_option("mode", "bypass", "test"),
        Err(OptionError::Value { .. })
    ));
    assert!(matches!(
        session.set_option("colour", "red", "test"),
        Err(OptionError::Unknown(_))
    ));
    assert!(matches!(
        session.set_option("model", "nobody:x", "test"),
        Err(OptionError::Refused(_))
    ));
    let sets = events(&session)
        .await
        .iter()
        .filter(|event| matches!(event.payload, Payload::OptionSet { .. }))
        .count();
    assert_eq!(sets, 1);
    let id = session.id().clone();
    drop(session);
    engine.shutdown().await;
    drop(engine);
    let engine = harness.engine();
    let session = engine.open_session(&id, None, None).await.unwrap();
    assert_eq!(session.options().mode.name(), "edits");
}
