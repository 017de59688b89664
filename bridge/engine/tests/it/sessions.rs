//! Sessions as the engine keeps them.

use terret_engine::EngineError;
use terret_engine::room::log::{SessionFilter, SessionId};

use crate::harness::{Harness, complete};

#[tokio::test(flavor = "multi_thread")]
async fn check_011_an_unknown_session_is_an_error_and_a_live_one_is_given_as_it_is() {
    let harness = Harness::new(r#"{"match":".","say":"ok"}"#);
    let (engine, session) = harness.session().await;
    let unknown: SessionId = "nobody".parse().unwrap();
    assert!(matches!(
        engine.open_session(&unknown, None, None).await,
        Err(EngineError::UnknownSession(_))
    ));
    let seq = session.next_seq();
    let same = engine.open_session(session.id(), None, None).await.unwrap();
    assert_eq!(same.next_seq(), seq);
}

#[tokio::test(flavor = "multi_thread")]
async fn check_020_a_second_engine_is_refused_and_told_who_holds_the_session() {
    let harness = Harness::new(r#"{"match":".","say":"ok"}"#);
    let (_engine, session) = harness.session().await;
    let other = harness.engine();
    let refused = other.open_session(session.id(), None, None).await;
    assert!(matches!(refused, Err(EngineError::Held { .. })));
    // Another session in the same folder is no problem (quirk 6).
    let second = other
        .create_session(harness.work(), Vec::new())
        .await
        .unwrap();
    second.attach(None);
    complete(&second, "hello").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_listed_with_its_title_and_gone_when_deleted() {
    let harness = Harness::new(r#"{"match":".","say":"ok"}"#);
    let (engine, session) = harness.session().await;
    complete(
        &session,
        "Make the parser faster, please, and keep all of its tests",
    )
    .await;
    let filter = || SessionFilter {
        limit: 10,
        ..SessionFilter::default()
    };
    let page = engine.list_sessions(filter()).await.unwrap();
    assert_eq!(page.sessions.len(), 1);
    let title = page.sessions[0].title.clone().unwrap();
    assert!(
        title.starts_with("Make the parser faster") && title.chars().count() <= 80,
        "{title}"
    );
    let id = session.id().clone();
    engine.delete_session(&id).await.unwrap();
    engine.delete_session(&id).await.unwrap();
    assert!(
        engine
            .list_sessions(filter())
            .await
            .unwrap()
            .sessions
            .is_empty()
    );
    assert!(engine.open_session(&id, None, None).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_folder_leaves_no_session_behind() {
    let harness = Harness::new("");
    let engine = harness.engine();
    let refused = engine
        .create_session(harness.work().join("missing"), Vec::new())
        .await;
    assert!(matches!(refused, Err(EngineError::BadFolder { .. })));
    let page = engine
        .list_sessions(SessionFilter {
            limit: 10,
            ..SessionFilter::default()
        })
        .await
        .unwrap();
    assert!(page.sessions.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cap_on_live_sessions_is_told_and_freed() {
    let mut harness = Harness::new("");
    harness.settings.limits.max_agents = 1;
    let (engine, session) = harness.session().await;
    let refused = engine.create_session(harness.work(), Vec::new()).await;
    assert!(matches!(
        refused,
        Err(EngineError::TooManySessions { limit: 1 })
    ));
    engine.close_session(session.id()).await.unwrap();
    assert!(
        engine
            .create_session(harness.work(), Vec::new())
            .await
            .is_ok()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_opens_only_in_its_own_folder() {
    let harness = Harness::new("");
    let (engine, session) = harness.session().await;
    let other = tempfile::tempdir().unwrap();
    let refused = engine
        .open_session(session.id(), Some(other.path().to_owned()), None)
        .await;
    assert!(matches!(refused, Err(EngineError::OtherFolder { .. })));
    assert!(
        engine
            .open_session(session.id(), Some(harness.work()), None)
            .await
            .is_ok()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn check_010_a_late_follower_reads_what_a_live_one_did() {
    let words: Vec<String> = (0..3000).map(|n| format!("w{n}")).collect();
    let harness = Harness::new(&format!("{{\"say\":\"{}\",\"chunk\":6}}", words.join(" ")));
    let (_engine, session) = harness.session().await;
    let mut live = session.follow(0);
    complete(&session, "talk").await;
    // The title comes after the answer.
    crate::harness::wait_for(&session, 0, |payload| {
        matches!(
            payload,
            terret_engine::room::log::Payload::SessionTitled { .. }
        )
        .then_some(())
    })
    .await;
    let mut from_live = Vec::new();
    while !live.caught_up() {
        from_live.push((*live.next().await.unwrap()).clone());
    }
    let from_file = crate::harness::events(&session).await;
    assert!(
        from_file.len() > 2000,
        "more than memory keeps: {}",
        from_file.len()
    );
    assert_eq!(from_live, from_file);
    for (place, event) in from_file.iter().enumerate() {
        assert_eq!(event.seq, place as u64);
    }
    let middle = from_file.len() as u64 / 2;
    let mut late = session.follow(middle);
    assert_eq!(late.next().await.unwrap().seq, middle);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_opening_holds_neither_the_log_nor_a_place() {
    let mut harness = Harness::new("");
    harness.settings.limits.max_agents = 1;
    let (engine, session) = harness.session().await;
    let id = session.id().clone();
    engine.close_session(&id).await.unwrap();
    drop(session);
    let other = tempfile::tempdir().unwrap();
    let refused = engine
        .open_session(&id, Some(other.path().to_owned()), None)
        .await;
    assert!(matches!(refused, Err(EngineError::OtherFolder { .. })));
    assert!(engine.session(&id).is_none());
    // Neither another process nor another session is kept out by it.
    let second = harness.engine();
    second.open_session(&id, None, None).await.unwrap();
    engine
        .create_session(harness.work(), Vec::new())
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn folders_that_are_gone_do_not_keep_a_session_shut_when_others_are_named() {
    let harness = Harness::new("");
    let engine = harness.engine();
    let (old, new) = (harness.work().join("old"), harness.work().join("new"));
    std::fs::create_dir(&old).unwrap();
    std::fs::create_dir(&new).unwrap();
    let session = engine
        .create_session(harness.work(), vec![old.clone()])
        .await
        .unwrap();
    let id = session.id().clone();
    engine.close_session(&id).await.unwrap();
    drop(session);
    std::fs::remove_dir(&old).unwrap();
    assert!(matches!(
        engine.open_session(&id, None, None).await,
        Err(EngineError::BadFolder { .. })
    ));
    let session = engine
        .open_session(&id, None, Some(vec![new.clone()]))
        .await
        .unwrap();
    assert_eq!(session.world().roots().len(), 2);
    // And they are the ones from now on.
    engine.close_session(&id).await.unwrap();
    drop(session);
    let session = engine.open_session(&id, None, None).await.unwrap();
    assert!(
        session.world().roots()[1].ends_with("new"),
        "{:?}",
        session.world().roots()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn check_058_closing_a_session_that_waits_settles_everything_and_frees_its_place() {
    let mut harness =
        Harness::new(r#"{"calls":[{"id":"a","name":"Bash","args":{"command":"true"}}]}"#);
    harness.settings.limits.max_agents = 1;
    let (engine, session) = harness.session().await;
    let answer = session.prompt(crate::harness::text("go")).await.unwrap();
    let approval = crate::harness::approval(&session, 0).await;
    engine.close_session(session.id()).await.unwrap();
    let outcome = crate::harness::within(answer.outcome()).await.unwrap();
    assert_eq!(
        outcome.status,
        terret_engine::room::log::TurnStatus::Cancelled
    );
    crate::harness::assert_sound(&crate::harness::events(&session).await);
    assert!(
        session
            .decide(&approval, terret_engine::Decision::AllowOnce, "late")
            .is_err()
    );
    // Its id and its place are free.
    engine.open_session(session.id(), None, None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_session_leaves_no_outputs_of_its_commands() {
    let harness = Harness::new("");
    let (engine, session) = harness.session().await;
    let outputs = session.world().scratch().to_owned();
    std::fs::create_dir_all(&outputs).unwrap();
    std::fs::write(outputs.join("output-1.txt"), "secret").unwrap();
    engine.delete_session(session.id()).await.unwrap();
    assert!(!outputs.exists());
}

/// There are no disposers here; what can break at a session's end is what its turn drops.
#[tokio::test(flavor = "multi_thread")]
async fn check_059_a_session_whose_end_breaks_still_frees_its_place() {
    use std::sync::Arc;

    use async_trait::async_trait;
    use terret_engine::hooks::{Rejected, TurnHook};
    use terret_engine::input::Claim;

    struct BreaksWhenDropped;

    impl Drop for BreaksWhenDropped {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                panic!("what a turn held breaks when it is dropped");
            }
        }
    }

    struct Hook(Arc<tokio::sync::Notify>);

    #[async_trait]
    impl TurnHook for Hook {
        async fn before_step(&self, claim: Vec<Claim>) -> Result<Vec<Claim>, Rejected> {
            let _held = BreaksWhenDropped;
            self.0.notify_one();
            std::future::pending::<()>().await;
            Ok(claim)
        }
    }

    let reached = Arc::new(tokio::sync::Notify::new());
    let mut harness = Harness::new(r#"{"say":"never"}"#);
    harness.settings.limits.max_agents = 1;
    harness
        .turn_hooks
        .push(Arc::new(Hook(Arc::clone(&reached))));
    let (engine, session) = harness.session().await;
    let _answer = session.prompt(crate::harness::text("go")).await.unwrap();
    crate::harness::within(reached.notified()).await;
    let id = session.id().clone();
    crate::harness::within(engine.close_session(&id))
        .await
        .unwrap();
    assert_eq!(session.status(), terret_engine::AgentStatus::Done);
    assert!(engine.session(&id).is_none());
    engine
        .create_session(harness.work(), Vec::new())
        .await
        .unwrap();
}
