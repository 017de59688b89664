//! Checks B 26, 27, 29: nothing reaches a model that the log does not hold.

use std::sync::Arc;

use async_trait::async_trait;
use terret_engine::hooks::TurnHook;
use terret_engine::room::log::TurnStatus;
use terret_engine::room::models::{Message, Request};

use crate::harness::{Harness, complete, names, prompt};

/// What a hook does to the request.
enum Tamper {
    Message,
    System,
    Tool,
}

#[async_trait]
impl TurnHook for Tamper {
    async fn before_request(&self, mut request: Request) -> Request {
        match self {
            Self::Message => request
                .conversation
                .push(Arc::new(Message::user("unlogged"))),
            Self::System => request.system = format!("{} and more", request.system).into(),
            Self::Tool => {
                let mut tools = request.tools.to_vec();
                tools[0].description.push('!');
                request.tools = tools.into();
            }
        }
        request
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn check_026_and_029_tampering_fails_the_turn_before_the_model_is_called() {
    for tamper in [Tamper::Message, Tamper::System, Tamper::Tool] {
        let mut harness = Harness::new(r#"{"say":"must not be said"}"#);
        harness.turn_hooks.push(Arc::new(tamper));
        let (_engine, session) = harness.session().await;
        let outcome = prompt(&session, "hello").await;
        assert_eq!(outcome.status, TurnStatus::Failed);
        assert!(outcome.reason.unwrap().contains("log invariant"));
        assert!(
            !names(&session)
                .await
                .contains(&"assistant/message".to_owned())
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn check_012_a_reload_gives_the_same_history_to_the_byte() {
    let harness = Harness::new(
        r#"{"match":"^one$","think":"hm","say":"a","calls":[{"id":"c1","name":"Glob","args":{"pattern":"*"}},{"id":"c2","name":"Nope","args":{}}]}
{"match":".","say":"done"}"#,
    );
    harness.write("x.txt", "");
    let (engine, session) = harness.session().await;
    complete(&session, "one").await;
    complete(&session, "two").await;
    let id = session.id().clone();
    let before = session.state(|state| (state.history.digest(), state.history.messages().to_vec()));
    drop(session);
    engine.shutdown().await;
    drop(engine);
    let engine = harness.engine();
    let session = engine.open_session(&id, None, None).await.unwrap();
    let after = session.state(|state| (state.history.digest(), state.history.messages().to_vec()));
    assert_eq!(before, after);
    session.attach(None);
    complete(&session, "three").await;
}
