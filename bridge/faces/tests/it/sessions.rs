//! New, load, resume, list, close and delete.

use serde_json::{Value, json};
use terret_fixtures::{Direction, EditorOptions, PermissionPolicy, Preset, Reply, Script};

use crate::conformance;
use crate::stage::{Setting, Stage, code, judge, place, stop_reason, text, updates};

fn answer_of(method_id: i64) -> impl Fn(&terret_fixtures::Frame) -> bool {
    move |frame| {
        frame.direction == Direction::FromAgent
            && frame.is_response()
            && frame.id().and_then(Value::as_i64) == Some(method_id)
    }
}

#[tokio::test]
async fn r113_nothing_of_a_new_session_comes_before_its_answer() {
    let stage = Stage::new(Script::new().say("hi"));
    stage.editor.initialize().await.unwrap();
    let servers = json!([{ "name": "files", "command": "/bin/true", "args": [], "env": [] }]);
    let params = json!({ "cwd": stage.workspace.root(), "mcpServers": servers });
    let id = stage
        .editor
        .start_request("session/new", params)
        .await
        .unwrap();
    let session = stage.editor.response(id).await.unwrap();
    assert_eq!(session["modes"]["currentModeId"], "ask");
    stage
        .editor
        .wait_update(0, "available_commands_update")
        .await
        .unwrap();
    let notice = stage.editor.wait_update(0, "notice").await.unwrap();
    assert!(
        notice["title"]
            .as_str()
            .unwrap()
            .contains("MCP servers are not connected"),
        "{notice}"
    );
    assert!(notice.to_string().contains("files"));
    let seen = stage.finish().await;
    let answered = place(&seen, answer_of(id));
    assert!(place(&seen, |frame| frame.update().is_some()) > answered);
}

#[tokio::test]
async fn mcp_servers_are_told_with_the_first_prompt_where_notices_are_not_known() {
    let stage = Stage::new(Setting::from(Script::new().say("hi").say("ho")).editor(Preset::bare()));
    stage.editor.initialize().await.unwrap();
    let params = json!({ "cwd": stage.workspace.root(), "mcpServers": [{ "name": "x", "command": "/x", "args": [], "env": [] }] });
    let session = stage.editor.request("session/new", params).await.unwrap()["sessionId"]
        .as_str()
        .unwrap()
        .to_owned();
    stage.editor.prompt(&session, "one").await.unwrap();
    stage.editor.prompt(&session, "two").await.unwrap();
    let seen = stage.finish().await;
    assert_eq!(
        text(&seen, "agent_message_chunk")
            .matches("MCP servers")
            .count(),
        1
    );
}

fn story() -> Script {
    let todos = json!([{ "content": "write", "status": "pending", "activeForm": "Writing" }]);
    let edit = json!({ "file_path": "notes.txt", "old_string": "two", "new_string": "2" });
    let read = json!({ "file_path": "notes.txt" });
    Script::new()
        .reply(
            Reply::new()
                .think("thinking")
                .say("Reading.")
                .call_as("r1", "Read", read),
        )
        .reply(Reply::new().say("Now a plan.").call_as(
            "t1",
            "TodoWrite",
            json!({ "todos": todos }),
        ))
        .reply(Reply::new().say("Editing.").call_as("e1", "Edit", edit))
        .say("All told.")
}

#[tokio::test]
async fn check_172_a_load_replays_the_history_and_then_answers() {
    let stage = Stage::new(story());
    let session = stage.session().await;
    let answer = stage.editor.prompt(&session, "tell").await.unwrap();
    assert_eq!(stop_reason(&answer), "end_turn");
    let live = stage.editor.transcript();
    let (second, served) = stage.second(EditorOptions::default());
    second.initialize().await.unwrap();
    let load = json!({ "sessionId": session, "cwd": stage.workspace.root(), "mcpServers": [] });
    let id = second.start_request("session/load", load).await.unwrap();
    let answer = second.response(id).await.unwrap();
    assert!(answer["configOptions"].is_array());
    second
        .wait_update(0, "available_commands_update")
        .await
        .unwrap();
    second.close_input().await;
    second.wait_closed().await.unwrap();
    served.await.unwrap();
    let replay = second.transcript();
    judge(&replay);
    // The replay comes before the answer, the commands after it (R113).
    let answered = place(&replay, answer_of(id));
    let last = replay
        .frames
        .iter()
        .rposition(|frame| frame.update_kind() == Some("agent_message_chunk"))
        .unwrap();
    assert!(last < answered);
    assert!(
        place(&replay, |frame| frame.update_kind()
            == Some("available_commands_update"))
            > answered
    );
    // The same words, cards, diffs and plan as live.
    assert_eq!(text(&replay, "user_message_chunk"), "tell");
    for kind in ["agent_message_chunk", "agent_thought_chunk"] {
        assert_eq!(text(&replay, kind), text(&live, kind), "{kind}");
    }
    let ids = |transcript| {
        let calls = updates(transcript, "tool_call");
        calls
            .iter()
            .map(|call| call["toolCallId"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(&replay), ids(&live));
    assert_eq!(ids(&live), ["r1", "e1"]);
    let plan = |transcript| updates(transcript, "plan_update");
    assert_eq!(plan(&replay), plan(&live));
    let diffs = |transcript| {
        updates(transcript, "tool_call_update")
            .iter()
            .filter(|update| update["status"] == "completed")
            .flat_map(|update| update["content"].as_array().cloned().unwrap_or_default())
            .filter(|content| content["type"] == "diff")
            .collect::<Vec<_>>()
    };
    assert_eq!(diffs(&replay), diffs(&live));
    assert_eq!(diffs(&live).len(), 1);
    stage.finish().await;
}

#[tokio::test]
async fn a_resume_replays_nothing_and_goes_on() {
    let stage = Stage::new(Script::new().say("first").say("second"));
    let session = stage.session().await;
    stage.editor.prompt(&session, "one").await.unwrap();
    stage.editor.close_input().await;
    stage.editor.wait_closed().await.unwrap();
    let (second, served) = stage.second(Preset::bare());
    second.initialize().await.unwrap();
    let params = json!({ "sessionId": session, "cwd": stage.workspace.root() });
    second.request("session/resume", params).await.unwrap();
    assert_eq!(
        stop_reason(&second.prompt(&session, "two").await.unwrap()),
        "end_turn"
    );
    second.close_input().await;
    second.wait_closed().await.unwrap();
    served.await.unwrap();
    let seen = second.transcript();
    judge(&seen);
    assert_eq!(text(&seen, "agent_message_chunk"), "second");
    assert!(updates(&seen, "user_message_chunk").is_empty());
    stage.finish().await;
}

#[tokio::test]
async fn another_folder_is_refused() {
    let stage = Stage::new(Script::new());
    let session = stage.session().await;
    let params = json!({ "sessionId": session, "cwd": "/", "mcpServers": [] });
    let error = stage
        .editor
        .request("session/load", params)
        .await
        .unwrap_err();
    assert_eq!(code(&error), -32602, "{error}");
    stage.finish().await;
}

#[tokio::test]
async fn sessions_are_listed_closed_and_deleted() {
    let stage = Stage::new(Script::new().say("hi"));
    let session = stage.session().await;
    stage.editor.prompt(&session, "remember me").await.unwrap();
    let editor = &stage.editor;
    let list = editor
        .request("session/list", json!({ "cwd": stage.workspace.root() }))
        .await
        .unwrap();
    let rows = list["sessions"].as_array().unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0]["sessionId"], session.as_str());
    assert_eq!(rows[0]["cwd"], stage.workspace.root().to_str().unwrap());
    let elsewhere = editor
        .request("session/list", json!({ "cwd": "/elsewhere" }))
        .await
        .unwrap();
    assert_eq!(elsewhere["sessions"], json!([]));
    let error = editor
        .request("session/list", json!({ "cursor": "no such cursor" }))
        .await
        .unwrap_err();
    assert_eq!(code(&error), -32602);
    assert_eq!(
        editor
            .request("session/close", json!({ "sessionId": session }))
            .await
            .unwrap(),
        json!({})
    );
    // Closed is not gone.
    editor
        .load_session(&session, stage.workspace.root())
        .await
        .unwrap();
    assert_eq!(
        editor
            .request("session/delete", json!({ "sessionId": session }))
            .await
            .unwrap(),
        json!({})
    );
    assert_eq!(
        code(
            &editor
                .load_session(&session, stage.workspace.root())
                .await
                .unwrap_err()
        ),
        -32002
    );
    for unknown in [session.as_str(), "never-there", "../../etc"] {
        assert_eq!(
            editor
                .request("session/delete", json!({ "sessionId": unknown }))
                .await
                .unwrap(),
            json!({})
        );
    }
    stage.finish().await;
}

#[tokio::test]
async fn closing_a_session_answers_its_prompt_first() {
    let stage = Stage::new(Script::new().reply(Reply::new().call("Hold", json!({}))));
    let session = stage.session().await;
    let prompt = stage.editor.start_prompt(&session, "go").await.unwrap();
    stage
        .editor
        .wait_update(0, "tool_call_update")
        .await
        .unwrap();
    let close = stage
        .editor
        .start_request("session/close", json!({ "sessionId": session }))
        .await
        .unwrap();
    assert_eq!(
        stop_reason(&stage.editor.response(prompt).await.unwrap()),
        "cancelled"
    );
    stage.editor.response(close).await.unwrap();
    let seen = stage.finish().await;
    assert!(place(&seen, answer_of(prompt)) < place(&seen, answer_of(close)));
}

#[tokio::test]
async fn check_168_a_new_connection_goes_on_by_prompting() {
    let script = Script::new()
        .reply(Reply::on("^write$").call_as(
            "w1",
            "Write",
            json!({ "file_path": "new.txt", "content": "hello\n" }),
        ))
        .reply(Reply::new().say("Written."))
        .reply(Reply::new().say("Written."));
    let options = EditorOptions {
        permission: PermissionPolicy::Never,
        ..EditorOptions::from(Preset::bare())
    };
    let stage = Stage::new(Setting::from(script).editor(options));
    let session = stage.session().await;
    stage.editor.start_prompt(&session, "write").await.unwrap();
    stage.editor.wait_permission(0).await.unwrap();
    // The editor goes away with a question open; the approval waits.
    stage.editor.close_input().await;
    stage.editor.wait_closed().await.unwrap();
    assert!(!stage.path("new.txt").exists());
    // Another one prompts the same session, without loading it.
    let (second, served) = stage.second(Preset::bare());
    second.initialize().await.unwrap();
    let answer = second.prompt(&session, "go on").await.unwrap();
    assert_eq!(stop_reason(&answer), "end_turn");
    assert_eq!(
        std::fs::read_to_string(stage.path("new.txt")).unwrap(),
        "hello\n"
    );
    second.close_input().await;
    second.wait_closed().await.unwrap();
    served.await.unwrap();
    let seen = second.transcript();
    conformance::check(&seen);
    // The call that the first editor knew is announced to the second before it is updated.
    assert_eq!(updates(&seen, "tool_call")[0]["toolCallId"], "w1");
    stage.engine.shutdown().await;
}

/// A resume tells nothing of the past, so output that the past left over, or that comes
/// later, belongs to a card that this client may never have heard of.
#[tokio::test]
async fn output_after_a_resume_comes_with_its_card() {
    let hold = json!({ "say": ["some output\n"] });
    let script = Script::new()
        .reply(Reply::new().call_as("c1", "Hold", hold))
        .say("done");
    let stage = Stage::new(script);
    let session = stage.session().await;
    let mark = stage.editor.mark();
    let prompt = stage.editor.start_prompt(&session, "hold").await.unwrap();
    stage
        .editor
        .wait_from(mark, "the output", |frame| {
            let is_output = frame.update_kind() == Some("tool_call_update")
                && frame.line.contains("some output");
            is_output.then_some(())
        })
        .await
        .unwrap();
    let (second, served) = stage.second(Preset::bare());
    second.initialize().await.unwrap();
    let params = json!({ "sessionId": session, "cwd": stage.workspace.root(), "mcpServers": [] });
    second.request("session/resume", params).await.unwrap();
    second.wait_update(0, "tool_call_update").await.unwrap();
    stage.gate.add_permits(1);
    stage.editor.response(prompt).await.unwrap();
    second.close_input().await;
    second.wait_closed().await.unwrap();
    served.await.unwrap();
    let seen = second.transcript();
    let first = |kind: &'static str| place(&seen, move |frame| frame.update_kind() == Some(kind));
    assert!(first("tool_call") < first("tool_call_update"), "{seen}");
    stage.finish().await;
}

/// Fifty folders with long names are more than a frame holds.
#[tokio::test]
async fn a_page_of_sessions_fits_a_frame_however_long_their_folders() {
    let stage = Stage::new(Script::new());
    stage.editor.initialize().await.unwrap();
    let mut folder = stage.workspace.root().to_owned();
    for _ in 0..7 {
        folder.push("d".repeat(200));
    }
    std::fs::create_dir_all(&folder).unwrap();
    let mut wanted = Vec::new();
    for _ in 0..40 {
        wanted.push(stage.editor.new_session(&folder).await.unwrap());
    }
    let mut seen = Vec::new();
    let mut cursor = serde_json::Value::Null;
    loop {
        let params = json!({ "cursor": cursor });
        let page = stage.editor.request("session/list", params).await.unwrap();
        let rows = page["sessions"].as_array().unwrap();
        seen.extend(
            rows.iter()
                .map(|row| row["sessionId"].as_str().unwrap().to_owned()),
        );
        cursor = page["nextCursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    wanted.sort();
    seen.sort();
    assert_eq!(seen, wanted);
    stage.finish().await;
}
