//! Commands in the client's terminals, which run what they are given.

use std::time::Duration;

use serde_json::{Value, json};
use terret_engine::room::log::Payload;
use terret_fixtures::{Direction, EditorOptions, Frame, Reply, Script, Terminals, Transcript};

use crate::stage::{Setting, Stage, place, stop_reason};

fn setting(args: Value) -> Setting {
    let options = EditorOptions {
        terminals: Terminals {
            run: true,
            ..Terminals::default()
        },
        limit: Duration::from_secs(30),
        ..EditorOptions::default()
    };
    let script = Script::new()
        .reply(Reply::on("^go$").call_as("b1", "Bash", args))
        .reply(Reply::on("").say("done"));
    let mut setting = Setting::from(script).editor(options);
    setting.editor_terminal = true;
    setting
}

fn count(seen: &Transcript, method: &str) -> usize {
    seen.requests_of_agent(method).count()
}

/// Each terminal that was made was released, once.
fn released(seen: &Transcript, terminals: usize) {
    assert_eq!(count(seen, "terminal/create"), terminals, "{seen}");
    assert_eq!(count(seen, "terminal/release"), terminals, "{seen}");
}

/// The call's result, as the model was given it.
async fn result(stage: &Stage, session: &str) -> String {
    let mut follower = stage
        .engine
        .session(&session.parse().unwrap())
        .unwrap()
        .follow(0);
    while let Some(event) = follower.ready().await {
        if let Payload::ToolResult { content, error, .. } = &event.payload {
            return content.clone().or(error.clone()).unwrap();
        }
    }
    panic!("no result");
}

fn holds_terminal(frame: &Frame) -> bool {
    frame.line.contains(r#""type":"terminal""#) && frame.line.contains(r#""toolCallId":"b1""#)
}

/// Waits until the card holds the terminal, so that the command runs.
async fn begun(stage: &Stage) {
    stage
        .editor
        .wait_for("the card with the terminal", |frame| {
            (frame.direction == Direction::FromAgent && holds_terminal(frame)).then_some(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_command_is_shown_in_the_clients_terminal() {
    let command = "echo shown; echo late; exit 3";
    let stage = Stage::new(setting(json!({ "command": command })));
    let session = stage.session().await;
    let answer = stage.editor.prompt(&session, "go").await.unwrap();
    assert_eq!(stop_reason(&answer), "end_turn");
    // The result is what it is without the editor's terminal.
    assert_eq!(
        result(&stage, &session).await,
        "shown\nlate\n--- terret ---\nexit status 3"
    );
    stage
        .editor
        .wait_for("the release", |frame| {
            (frame.method() == Some("terminal/release")).then_some(())
        })
        .await
        .unwrap();
    let output = stage.editor.terminal_output("terminal-1").unwrap();
    assert_eq!(output, format!("$ {command}\nshown\nlate\n"));
    let seen = stage.finish().await;
    released(&seen, 1);
    assert_eq!(count(&seen, "terminal/kill"), 0);
    let create = seen.requests_of_agent("terminal/create").next().unwrap();
    let params = create.params().unwrap();
    assert_eq!(params["sessionId"], session.as_str());
    // One program and one argument, which no shell can take apart.
    assert!(
        params["command"]
            .as_str()
            .unwrap()
            .ends_with("/terret-relay")
    );
    assert_eq!(params["args"].as_array().unwrap().len(), 1);
    assert!(params["outputByteLimit"].as_u64().is_some());
    // The command line holds no variables, and nothing of the command.
    assert!(params.get("env").is_none() && !create.line.contains("late"));
    let held = place(&seen, holds_terminal);
    let gone = place(&seen, |frame| frame.method() == Some("terminal/release"));
    assert!(held < gone, "released before it was shown");
    let exit = seen
        .frames
        .iter()
        .rfind(|frame| frame.line.contains("exitCode"));
    assert!(exit.unwrap().line.contains(r#""exitCode":3"#));
    let end = seen.frames.iter().rfind(|frame| {
        frame.line.contains(r#""toolCallId":"b1""#) && frame.line.contains(r#""completed""#)
    });
    assert!(!end.unwrap().line.contains("content"), "{seen}");
}

#[tokio::test]
async fn quirk_05_without_the_setting_no_terminal_is_made() {
    let mut setting = setting(json!({ "command": "echo hi" }));
    setting.editor_terminal = false;
    let stage = Stage::new(setting);
    let session = stage.session().await;
    stage.editor.prompt(&session, "go").await.unwrap();
    assert_eq!(result(&stage, &session).await, "hi\n");
    released(&stage.finish().await, 0);
}

#[tokio::test]
async fn the_folder_and_variables_are_carried() {
    let options = setting(json!({})).editor;
    let script = Script::new()
        .reply(Reply::on("^one$").call_as("b1", "Bash", json!({"command": "cd /; export X=7"})))
        .reply(Reply::on("^two$").call_as("b2", "Bash", json!({"command": "echo at $PWD with $X"})))
        .reply(Reply::on("").say("done"));
    let mut carried = Setting::from(script).editor(options);
    carried.editor_terminal = true;
    let stage = Stage::new(carried);
    let session = stage.session().await;
    stage.editor.prompt(&session, "one").await.unwrap();
    stage.editor.prompt(&session, "two").await.unwrap();
    let output = stage.editor.terminal_output("terminal-2").unwrap();
    assert!(output.ends_with("\nat / with 7\n"), "{output}");
    released(&stage.finish().await, 2);
}

#[tokio::test]
async fn a_cancelled_command_leaves_no_terminal() {
    let stage = Stage::new(setting(json!({ "command": "echo on; sleep 600" })));
    let session = stage.session().await;
    let prompt = stage.editor.start_prompt(&session, "go").await.unwrap();
    begun(&stage).await;
    stage.editor.cancel(&session).await.unwrap();
    let answer = stage.editor.response(prompt).await.unwrap();
    assert_eq!(stop_reason(&answer), "cancelled");
    let seen = stage.finish().await;
    released(&seen, 1);
}

#[tokio::test]
async fn a_command_that_takes_too_long_leaves_no_terminal() {
    let args = json!({ "command": "echo on; sleep 600", "timeout": 500 });
    let stage = Stage::new(setting(args));
    let session = stage.session().await;
    stage.editor.prompt(&session, "go").await.unwrap();
    let text = result(&stage, &session).await;
    assert!(text.contains("still running after 500 ms"), "{text}");
    released(&stage.finish().await, 1);
}

#[tokio::test]
async fn who_kills_the_terminal_stops_the_command() {
    let stage = Stage::new(setting(json!({ "command": "echo on; sleep 600" })));
    let session = stage.session().await;
    let prompt = stage.editor.start_prompt(&session, "go").await.unwrap();
    begun(&stage).await;
    stage.editor.kill_terminal("terminal-1");
    let answer = stage.editor.response(prompt).await.unwrap();
    assert_eq!(stop_reason(&answer), "end_turn");
    let text = result(&stage, &session).await;
    assert!(text.contains("stopped in the editor's terminal"), "{text}");
    released(&stage.finish().await, 1);
}

#[tokio::test]
async fn a_terminal_that_runs_nothing_is_told_of_once_and_the_command_runs() {
    let mut broken = setting(json!({ "command": "echo real" }));
    broken.editor.terminals.run = false;
    broken.script = Script::new()
        .reply(Reply::on("^(go|again)$").call("Bash", json!({"command": "echo real"})))
        .reply(Reply::on("").say("done"));
    let stage = Stage::new(broken);
    let session = stage.session().await;
    stage.editor.prompt(&session, "go").await.unwrap();
    let text = result(&stage, &session).await;
    assert!(
        text.starts_with("real\n--- terret ---\nnot shown in the editor's terminal"),
        "{text}"
    );
    stage.editor.prompt(&session, "again").await.unwrap();
    released(&stage.finish().await, 1);
}

#[tokio::test]
async fn a_client_that_refuses_is_told_of() {
    let mut refusing = setting(json!({ "command": "echo real" }));
    // Capable by its word, and knows no such request.
    refusing.editor.preset.capabilities = json!({"terminal": true});
    refusing.editor.terminals.refuse = true;
    let stage = Stage::new(refusing);
    let session = stage.session().await;
    stage.editor.prompt(&session, "go").await.unwrap();
    let text = result(&stage, &session).await;
    assert!(
        text.contains("not shown in the editor's terminal"),
        "{text}"
    );
    let seen = stage.finish().await;
    assert_eq!(count(&seen, "terminal/create"), 1);
    assert_eq!(count(&seen, "terminal/release"), 0);
}

#[tokio::test]
async fn a_closed_session_releases_its_terminals() {
    let stage = Stage::new(setting(json!({ "command": "echo on; sleep 600" })));
    let session = stage.session().await;
    let prompt = stage.editor.start_prompt(&session, "go").await.unwrap();
    begun(&stage).await;
    let params = json!({ "sessionId": session });
    stage.editor.request("session/close", params).await.unwrap();
    let _answer = stage.editor.response(prompt).await;
    released(&stage.finish().await, 1);
}

#[tokio::test]
async fn an_editor_that_leaves_takes_the_command_along() {
    let stage = Stage::new(setting(
        json!({ "command": "echo $$ > pid; echo on; exec sleep 600" }),
    ));
    let session = stage.session().await;
    let _prompt = stage.editor.start_prompt(&session, "go").await.unwrap();
    begun(&stage).await;
    let pid = loop {
        let output = stage.editor.terminal_output("terminal-1").unwrap();
        if output.ends_with("\non\n") {
            break std::fs::read_to_string(stage.path("pid")).unwrap();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    // The turn stays open, to be resumed, so that its card has no end.
    stage.editor.close_input().await;
    stage.editor.wait_closed().await.unwrap();
    stage.engine.shutdown().await;
    assert_eq!(count(&stage.editor.transcript(), "terminal/create"), 1);
    let gone = !std::path::Path::new(&format!("/proc/{}", pid.trim())).exists();
    assert!(gone, "the command outlived the session");
}
