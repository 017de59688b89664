//! Checks 73, 96, 159: a secret is in no event, and a call works with its real arguments.

use terret_engine::Decision;
use terret_engine::room::log::{Payload, REPLACEMENT, TurnStatus};

use crate::harness::{
    AutoApprove, Harness, approval, assert_sound, complete, events, prompt, result, text,
};

/// Made here, so that nothing in this file has the shape of a secret.
fn secret() -> String {
    format!("sk-{}", "Ab1".repeat(10))
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_096_and_159_a_secret_in_small_pieces_is_in_no_event_and_chunks_make_the_message() {
    let secret = secret();
    let mut harness = Harness::new(&format!(
        r#"{{"match":"^go$","think":"thought {secret} ","say":"said {secret} and so on, {secret}","chunk":1,"calls":[{{"id":"a","name":"Bash","args":{{"command":"printf {secret}; echo; printf '%s' {secret} > kept"}}}}]}}
{{"match":".","say":"done"}}"#,
    ));
    harness.settings.instructions = Some(format!("The key is {secret}."));
    let (_engine, session) = harness.session().await;
    let _yes = AutoApprove::start(&session, Decision::AllowOnce);
    complete(&session, "go").await;
    complete(&session, &format!("again with {secret}")).await;

    let events = events(&session).await;
    assert_sound(&events);
    let (mut chunks, mut message) = (String::new(), None);
    for event in &events {
        let json = serde_json::to_string(&event.payload).unwrap();
        assert!(!json.contains(&secret), "{json}");
        match &event.payload {
            Payload::AssistantChunk { text } if message.is_none() => chunks.push_str(text),
            Payload::AssistantMessage { parts, .. } if message.is_none() => {
                message = Some(parts.clone());
            }
            _ => {}
        }
    }
    assert_eq!(
        chunks,
        format!("said {REPLACEMENT} and so on, {REPLACEMENT}")
    );
    let json = serde_json::to_string(&message.unwrap()).unwrap();
    assert!(json.contains(&chunks), "{json}");
    // check 96: the verdict belonged to the call, and it ran with what was really meant.
    assert_eq!(harness.read("kept").as_deref(), Some(&*secret));
    assert!(result(&session, "a").await.unwrap().contains(REPLACEMENT));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_in_a_reason_is_in_no_outcome() {
    let secret = secret();
    let harness = Harness::new(r#"{"match":"^never$","say":"x"}"#);
    let (_engine, session) = harness.session().await;
    let outcome = prompt(&session, &secret).await;
    assert_eq!(outcome.status, TurnStatus::Failed);
    assert!(!outcome.reason.unwrap().contains(&secret));
}

#[tokio::test(flavor = "multi_thread")]
async fn check_073_a_redacted_call_is_not_replayed() {
    let secret = secret();
    let harness = Harness::new(&format!(
        r#"{{"match":"^go$","calls":[{{"id":"a","name":"Bash","args":{{"command":"echo {secret} > made"}}}}]}}
{{"match":".","say":"done"}}"#,
    ));
    let (engine, session) = harness.session().await;
    let _answer = session.prompt(text("go")).await.unwrap();
    approval(&session, 0).await;
    let (_engine, session) = harness.restarted(engine, session).await;
    complete(&session, "go on").await;
    let error = result(&session, "a").await.unwrap_err();
    assert!(error.contains("redacted"), "{error}");
    assert_eq!(harness.read("made"), None);
    assert_sound(&events(&session).await);
}
