//! Cancels: they end what they were sent for, at once, and nothing else.

use std::time::{Duration, Instant};

use serde_json::json;
use terret_fixtures::{EditorOptions, PermissionPolicy, Preset, Reply, Script};

use crate::stage::{Setting, Stage, stop_reason, text, updates};

fn never() -> EditorOptions {
    EditorOptions {
        permission: PermissionPolicy::Never,
        ..Preset::avante().into()
    }
}

#[tokio::test]
async fn r025_check_060_a_cancelled_stream_keeps_its_text_and_says_cancelled() {
    let stage = Stage::new(
        Script::new()
            .reply(Reply::on("^go$").say(&"word ".repeat(2000)).paced(5, 5))
            .reply(Reply::on("").say("fine")),
    );
    let session = stage.session().await;
    let prompt = stage.editor.start_prompt(&session, "go").await.unwrap();
    stage
        .editor
        .wait_update(0, "agent_message_chunk")
        .await
        .unwrap();
    let asked = Instant::now();
    stage.editor.cancel(&session).await.unwrap();
    assert_eq!(
        stop_reason(&stage.editor.response(prompt).await.unwrap()),
        "cancelled"
    );
    assert!(
        asked.elapsed() < Duration::from_secs(2),
        "{:?}",
        asked.elapsed()
    );
    assert_eq!(
        stop_reason(&stage.editor.prompt(&session, "again").await.unwrap()),
        "end_turn"
    );
    let seen = stage.finish().await;
    let said = text(&seen, "agent_message_chunk");
    assert!(said.starts_with("word ") && said.ends_with("fine") && said.len() < 10_000);
}

#[tokio::test]
async fn r025_a_cancelled_tool_says_cancelled_and_its_card_ends() {
    let stage = Stage::new(
        Script::new()
            .reply(Reply::on("^go$").call("Hold", json!({})))
            .reply(Reply::on("").say("fine")),
    );
    let session = stage.session().await;
    let prompt = stage.editor.start_prompt(&session, "go").await.unwrap();
    stage
        .editor
        .wait_update(0, "tool_call_update")
        .await
        .unwrap();
    stage.editor.cancel(&session).await.unwrap();
    assert_eq!(
        stop_reason(&stage.editor.response(prompt).await.unwrap()),
        "cancelled"
    );
    let seen = stage.finish().await;
    assert_eq!(
        updates(&seen, "tool_call_update").last().unwrap()["status"],
        "failed"
    );
}

#[tokio::test]
async fn check_056_r025_a_cancel_while_asking_resolves_the_question_and_takes_it_back() {
    let write = json!({ "file_path": "x.txt", "content": "x" });
    let stage = Stage::new(
        Setting::from(
            Script::new()
                .reply(Reply::on("^go$").call("Write", write))
                .reply(Reply::on("").say("fine")),
        )
        .editor(never()),
    );
    let session = stage.session().await;
    let prompt = stage.editor.start_prompt(&session, "go").await.unwrap();
    stage.editor.wait_permission(0).await.unwrap();
    stage.editor.cancel(&session).await.unwrap();
    // avante never answers the question (quirk 1).
    assert_eq!(
        stop_reason(&stage.editor.response(prompt).await.unwrap()),
        "cancelled"
    );
    assert!(!stage.path("x.txt").exists());
    let id = session.parse().unwrap();
    let log = format!("{:?}", collect(&stage, &id).await);
    assert!(
        log.contains("Cancelled") && log.contains("ApprovalResolved"),
        "{log}"
    );
    let seen = stage.finish().await;
    let taken_back = seen
        .from_agent()
        .filter(|frame| frame.method() == Some("$/cancel_request"))
        .count();
    assert_eq!(taken_back, 1);
}

async fn collect(
    stage: &Stage,
    id: &terret_engine::room::log::SessionId,
) -> Vec<terret_engine::room::log::Event> {
    let mut follower = stage.engine.session(id).unwrap().follow(0);
    let mut events = Vec::new();
    while let Some(event) = follower.ready().await {
        events.push((*event).clone());
    }
    events
}

#[tokio::test]
async fn check_063_r104_cancels_of_an_idle_or_unknown_session_leave_nothing_behind() {
    let stage = Stage::new(Script::new().say("one").say("two"));
    let session = stage.session().await;
    stage.editor.cancel("no-such-session").await.unwrap();
    stage.editor.cancel(&session).await.unwrap();
    stage.editor.cancel(&session).await.unwrap();
    assert_eq!(
        stop_reason(&stage.editor.prompt(&session, "hi").await.unwrap()),
        "end_turn"
    );
    stage.editor.cancel(&session).await.unwrap();
    assert_eq!(
        stop_reason(&stage.editor.prompt(&session, "hi").await.unwrap()),
        "end_turn"
    );
    let seen = stage.finish().await;
    assert_eq!(text(&seen, "agent_message_chunk"), "onetwo");
}

#[tokio::test]
async fn r104_a_cancel_and_a_prompt_in_one_chunk_on_an_idle_session() {
    let stage = Stage::new(Script::new().reply(Reply::on("").say("fine")));
    let session = stage.session().await;
    let cancel =
        json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": session } });
    let prompt = json!({ "jsonrpc": "2.0", "id": "p", "method": "session/prompt",
        "params": { "sessionId": session, "prompt": [{ "type": "text", "text": "hi" }] } });
    stage
        .editor
        .send_bytes(format!("{cancel}\n{prompt}\n").as_bytes())
        .await
        .unwrap();
    let answer = stage
        .editor
        .wait_for("the answer", |frame| {
            let json = frame.json.as_ref()?;
            (json["id"] == "p" && frame.is_response()).then(|| json.clone())
        })
        .await
        .unwrap();
    assert_eq!(answer["result"]["stopReason"], "end_turn");
    stage.editor.close_input().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn r104_a_cancel_ends_the_turn_before_it_and_not_the_prompt_behind_it() {
    let script = Script::new()
        .reply(Reply::on("^first$").call("Hold", json!({})))
        .say("second ran")
        .say("second ran");
    let stage = Stage::new(script);
    let session = stage.session().await;
    let first = stage.editor.start_prompt(&session, "first").await.unwrap();
    stage
        .editor
        .wait_update(0, "tool_call_update")
        .await
        .unwrap();
    let line = |value: serde_json::Value| format!("{value}\n");
    let chunk = line(
        json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": session } }),
    ) + &line(
        json!({ "jsonrpc": "2.0", "id": 900, "method": "session/prompt",
            "params": { "sessionId": session, "prompt": [{ "type": "text", "text": "second" }] } }),
    );
    stage.editor.send_bytes(chunk.as_bytes()).await.unwrap();
    assert_eq!(
        stop_reason(&stage.editor.response(first).await.unwrap()),
        "cancelled"
    );
    assert_eq!(
        stop_reason(&stage.editor.response(900).await.unwrap()),
        "end_turn"
    );
    assert_eq!(
        text(&stage.editor.transcript(), "agent_message_chunk"),
        "second ran"
    );
    stage.editor.close_input().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn r104_prompts_and_their_cancel_in_one_chunk_are_cancelled_together() {
    let stage = Stage::new(
        Script::new()
            .reply(Reply::on("^[ab]").call("Hold", json!({})))
            .reply(Reply::on("").say("fine")),
    );
    let session = stage.session().await;
    let prompt = |id: i64, text: &str| {
        let params = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": text }] });
        format!(
            "{}\n",
            json!({ "jsonrpc": "2.0", "id": id, "method": "session/prompt", "params": params })
        )
    };
    let cancel = format!(
        "{}\n",
        json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": session } })
    );
    let chunk = prompt(901, "a") + &prompt(902, "b") + &cancel + &prompt(903, "c");
    stage.editor.send_bytes(chunk.as_bytes()).await.unwrap();
    assert_eq!(
        stop_reason(&stage.editor.response(901).await.unwrap()),
        "cancelled"
    );
    assert_eq!(
        stop_reason(&stage.editor.response(902).await.unwrap()),
        "cancelled"
    );
    assert_eq!(
        stop_reason(&stage.editor.response(903).await.unwrap()),
        "end_turn"
    );
    stage.editor.close_input().await;
}

#[tokio::test]
async fn a_request_that_is_taken_back_cancels_its_turn() {
    let stage = Stage::new(Script::new().reply(Reply::new().call("Hold", json!({}))));
    let session = stage.session().await;
    let prompt = stage.editor.start_prompt(&session, "go").await.unwrap();
    stage
        .editor
        .wait_update(0, "tool_call_update")
        .await
        .unwrap();
    stage
        .editor
        .notify("$/cancel_request", json!({ "requestId": prompt }))
        .await
        .unwrap();
    assert_eq!(
        stop_reason(&stage.editor.response(prompt).await.unwrap()),
        "cancelled"
    );
    stage.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn r026_after_a_cancel_at_any_point_the_next_prompt_is_served() {
    let mut script = Script::new()
        .reply(Reply::on("^stream").say(&"text ".repeat(40)).paced(10, 1))
        .reply(Reply::on("^tool").call("Hold", json!({})))
        .reply(Reply::on("^write").call("Write", json!({ "file_path": "x.txt", "content": "x" })));
    for _ in 0..400 {
        script = script.say("served");
    }
    let stage = Stage::new(Setting::from(script).editor(never()));
    let session = stage.session().await;
    for round in 0..40_u32 {
        let text = ["stream", "tool", "write"][round as usize % 3];
        let prompt = stage.editor.start_prompt(&session, text).await.unwrap();
        // Another point of the turn each time, by turns of the scheduler and not the clock.
        for _ in 0..(round * 7) % 60 {
            tokio::task::yield_now().await;
        }
        stage.editor.cancel(&session).await.unwrap();
        assert_eq!(
            stop_reason(&stage.editor.response(prompt).await.unwrap()),
            "cancelled",
            "round {round}"
        );
        let next = stage.editor.prompt(&session, "next").await.unwrap();
        assert_eq!(stop_reason(&next), "end_turn", "round {round}");
    }
    stage.finish().await;
}

#[tokio::test]
async fn the_end_of_the_connection_leaves_the_turn_open() {
    let stage = Stage::new(Script::new().reply(Reply::new().call("Hold", json!({}))));
    let session = stage.session().await;
    stage.editor.start_prompt(&session, "go").await.unwrap();
    stage
        .editor
        .wait_update(0, "tool_call_update")
        .await
        .unwrap();
    stage.editor.close_input().await;
    let asked = Instant::now();
    stage.editor.wait_closed().await.unwrap();
    let id = session.parse().unwrap();
    let handle = stage.engine.session(&id).unwrap();
    assert!(
        handle.state(|state| state.turn.open.is_some()),
        "no cancel is made up"
    );
    stage.engine.shutdown().await;
    assert!(asked.elapsed() < Duration::from_secs(2));
    assert!(handle.state(|state| state.turn.open.is_some()));
}

/// A client that gives up says so and goes in the same breath (hrns does at its time limit).
/// What it cancelled must not be found open, and resumed, by the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn r025_a_cancel_right_before_the_end_of_input_still_cancels() {
    for _ in 0..20 {
        let stage = Stage::new(Script::new().reply(Reply::on("").call("Hold", json!({}))));
        let session = stage.session().await;
        let prompt = stage.editor.start_prompt(&session, "go").await.unwrap();
        stage
            .editor
            .wait_update(0, "tool_call_update")
            .await
            .unwrap();
        let cancel = json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": session } });
        stage
            .editor
            .send_bytes(format!("{cancel}\n").as_bytes())
            .await
            .unwrap();
        stage.editor.close_input().await;
        assert_eq!(
            stop_reason(&stage.editor.response(prompt).await.unwrap()),
            "cancelled"
        );
        let id = session.parse().unwrap();
        let handle = stage.engine.session(&id).unwrap();
        assert!(handle.state(|state| state.turn.open.is_none()));
    }
}
