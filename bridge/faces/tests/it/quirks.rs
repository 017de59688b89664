//! The quirks of real clients, by their number in the list of what was seen on the wire.
//! Those about files are in `files.rs` (3, 4), and 5 is kept by running no client terminal.

use serde_json::{Value, json};
use terret_fixtures::{EditorOptions, PermissionPolicy, Preset, Reply, Script, UnknownRequests};

use crate::stage::{Setting, Stage, code, message, scripted, stop_reason, text, updates};

fn write() -> Script {
    let args = json!({ "file_path": "x.txt", "content": "x\n" });
    Script::new()
        .reply(Reply::on("^go$").call_as("w1", "Write", args))
        .say("Done.")
        .say("Done.")
        .say("Done.")
}

#[tokio::test]
async fn quirk_01_a_question_that_is_never_answered_does_not_hold_up_a_cancel() {
    let options = EditorOptions {
        permission: PermissionPolicy::Never,
        ..Preset::avante().into()
    };
    let stage = Stage::new(Setting::from(write()).editor(options));
    let session = stage.session().await;
    let prompt = stage.editor.start_prompt(&session, "go").await.unwrap();
    stage.editor.wait_permission(0).await.unwrap();
    stage.editor.cancel(&session).await.unwrap();
    assert_eq!(
        stop_reason(&stage.editor.response(prompt).await.unwrap()),
        "cancelled"
    );
    stage.finish().await;
}

#[tokio::test]
async fn quirk_01_the_outcome_cancelled_before_the_cancel_is_a_cancel_of_the_turn() {
    let args = json!({ "file_path": "x.txt", "content": "x\n" });
    let other = json!({ "file_path": "y.txt", "content": "y\n" });
    let both = Reply::on("^go$")
        .call_as("w1", "Write", args)
        .call_as("w2", "Write", other);
    let options = EditorOptions {
        permission: PermissionPolicy::Cancelled,
        ..Preset::agent_shell().into()
    };
    let stage = Stage::new(
        Setting::from(
            Script::new()
                .reply(both)
                .say("no")
                .reply(Reply::on("").say("fine")),
        )
        .editor(options),
    );
    let session = stage.session().await;
    assert_eq!(
        stop_reason(&stage.editor.prompt(&session, "go").await.unwrap()),
        "cancelled"
    );
    // Its cancel comes late, and touches nothing.
    stage.editor.cancel(&session).await.unwrap();
    assert!(!stage.path("x.txt").exists() && !stage.path("y.txt").exists());
    assert_eq!(
        stop_reason(&stage.editor.prompt(&session, "next").await.unwrap()),
        "end_turn"
    );
    stage.finish().await;
}

#[tokio::test]
async fn quirk_02_errors_without_an_id_are_ignored() {
    let stage =
        Stage::new(Setting::from(Script::new().say("one").say("two")).editor(Preset::toad()));
    let session = stage.session().await;
    let error =
        json!({ "jsonrpc": "2.0", "id": null, "error": { "code": -32601, "message": "unknown" } });
    stage.editor.send_line(&error.to_string()).await.unwrap();
    stage.editor.prompt(&session, "hi").await.unwrap();
    stage.editor.send_line(&error.to_string()).await.unwrap();
    assert_eq!(
        stop_reason(&stage.editor.prompt(&session, "hi").await.unwrap()),
        "end_turn"
    );
    stage.finish().await;
}

#[tokio::test]
async fn quirk_05_commands_never_run_in_the_client_s_terminal() {
    let stage = Stage::new(
        Setting::from(
            Script::new()
                .reply(Reply::on("^go$").call("Hold", json!({})))
                .reply(Reply::on("").say("x")),
        )
        .editor(Preset::vscode_acp()),
    );
    let session = stage.session().await;
    stage.gate.add_permits(1);
    stage.editor.prompt(&session, "go").await.unwrap();
    let seen = stage.finish().await;
    assert_eq!(seen.requests_of_agent("terminal/create").count(), 0);
}

#[tokio::test]
async fn quirk_06_two_connections_work_in_one_folder() {
    let stage = Stage::new(Setting::from(Script::new().say("one")).editor(Preset::avante()));
    let session = stage.session().await;
    let (second, served) = stage.second(Preset::avante());
    second.initialize().await.unwrap();
    let other = second.new_session(stage.workspace.root()).await.unwrap();
    assert_ne!(session, other);
    let (a, b) = tokio::join!(
        stage.editor.prompt(&session, "hi"),
        second.prompt(&other, "hi")
    );
    assert_eq!(
        (stop_reason(&a.unwrap()), stop_reason(&b.unwrap())),
        ("end_turn", "end_turn")
    );
    second.close_input().await;
    second.wait_closed().await.unwrap();
    served.await.unwrap();
    stage.finish().await;
}

#[tokio::test]
async fn quirk_07_a_prompt_for_no_session_is_a_fault_of_the_parameters() {
    let stage = Stage::new(Setting::from(Script::new()).editor(Preset::toad()));
    stage.editor.initialize().await.unwrap();
    for id in [Value::Null, json!(3)] {
        let params = json!({ "sessionId": id, "prompt": [{ "type": "text", "text": "hi" }] });
        let error = stage
            .editor
            .request("session/prompt", params)
            .await
            .unwrap_err();
        assert_eq!(code(&error), -32602);
        assert!(message(&error).contains("sessionId"));
    }
    stage.finish().await;
}

#[tokio::test]
async fn quirk_08_nobody_has_to_authenticate_where_a_model_is_ready() {
    let stage = Stage::new(Setting::from(Script::new().say("hi")).editor(Preset::acpx()));
    let session = stage.session().await;
    assert_eq!(
        stop_reason(&stage.editor.prompt(&session, "hi").await.unwrap()),
        "end_turn"
    );
    stage.finish().await;
}

#[tokio::test]
async fn quirk_09_the_text_may_be_in_any_block() {
    let stage = Stage::new(
        Script::new()
            .reply(Reply::on("the question").say("seen"))
            .say("not seen"),
    );
    let session = stage.session().await;
    let prompt = json!([
        { "type": "resource", "resource": { "uri": "file:///rules.md", "text": "be good" } },
        { "type": "text", "text": "the question" },
        { "type": "resource_link", "uri": "/bare/path.py", "name": "path.py" },
    ]);
    stage
        .editor
        .request(
            "session/prompt",
            json!({ "sessionId": session, "prompt": prompt }),
        )
        .await
        .unwrap();
    let seen = stage.finish().await;
    assert_eq!(text(&seen, "agent_message_chunk"), "seen");
}

#[tokio::test]
async fn quirk_10_a_client_without_a_name_is_asked_by_permission_requests() {
    let stage = Stage::new(Setting::from(write()).editor(Preset::marimo()));
    let session = stage.session().await;
    stage.editor.prompt(&session, "go").await.unwrap();
    assert!(stage.path("x.txt").exists());
    let seen = stage.finish().await;
    assert_eq!(seen.requests_of_agent("elicitation/create").count(), 0);
}

#[tokio::test]
async fn quirk_11_only_advertised_methods_are_called_and_modes_have_their_schema_name() {
    let mut preset = Preset::avante();
    preset.unknown_requests = UnknownRequests::Silent;
    let stage = Stage::new(Setting::from(write()).editor(preset));
    let session = stage.session().await;
    stage
        .editor
        .request(
            "session/set_mode",
            json!({ "sessionId": session, "modeId": "edits" }),
        )
        .await
        .unwrap();
    stage.editor.prompt(&session, "go").await.unwrap();
    let seen = stage.finish().await;
    assert_eq!(
        updates(&seen, "current_mode_update")[0]["currentModeId"],
        "edits"
    );
    for frame in seen.from_agent().filter(|frame| frame.is_request()) {
        let method = frame.method().unwrap();
        assert!(
            matches!(
                method,
                "fs/read_text_file" | "fs/write_text_file" | "session/request_permission"
            ),
            "{method}"
        );
    }
}

#[tokio::test]
async fn quirk_12_the_way_to_sign_in_names_a_line_and_needs_no_environment() {
    let stage = Stage::new(Setting::from(Script::new()).editor(Preset::hrns()));
    let answer = stage.editor.initialize().await.unwrap();
    assert_eq!(
        answer["authMethods"][0]["description"],
        "Set ANTHROPIC_API_KEY"
    );
    stage.finish().await;
}

#[tokio::test]
async fn quirk_13_the_diff_is_in_the_question_and_in_the_card() {
    let stage = Stage::new(Setting::from(write()).editor(Preset::toad()));
    let session = stage.session().await;
    stage.editor.prompt(&session, "go").await.unwrap();
    let seen = stage.finish().await;
    let asked = seen
        .requests_of_agent("session/request_permission")
        .next()
        .unwrap()
        .params()
        .unwrap()
        .clone();
    let in_card = updates(&seen, "tool_call_update")
        .iter()
        .any(|update| update["content"][0]["type"] == "diff");
    assert_eq!(asked["toolCall"]["content"][0]["type"], "diff");
    assert!(in_card);
}

#[tokio::test]
async fn quirk_14_a_client_that_drops_plans_gets_the_list_as_a_card() {
    let list = json!({ "todos": [{ "content": "one thing", "status": "in_progress", "activeForm": "Doing" }] });
    let script = Script::new()
        .reply(Reply::on("^go$").call("TodoWrite", list))
        .reply(Reply::on("").say("Done."));
    let stage = Stage::new(Setting::from(script).editor(Preset::codecompanion()));
    let session = stage.session().await;
    stage.editor.prompt(&session, "go").await.unwrap();
    let seen = stage.finish().await;
    assert_eq!(updates(&seen, "tool_call").len(), 1);
    let end = updates(&seen, "tool_call_update").last().unwrap().clone();
    assert!(
        end["content"][0]["content"]["text"]
            .as_str()
            .unwrap()
            .contains("[~] one thing"),
        "{end}"
    );
}

#[tokio::test]
async fn quirk_15_titles_are_words_with_no_colon_first() {
    let stage = Stage::new(Setting::from(write()).editor(Preset::codecompanion()));
    let session = stage.session().await;
    stage.editor.prompt(&session, "go").await.unwrap();
    let seen = stage.finish().await;
    for call in updates(&seen, "tool_call") {
        let title = call["title"].as_str().unwrap();
        assert!(!title.is_empty() && !title.contains(':'), "{title}");
    }
}

#[tokio::test]
async fn quirk_16_errors_are_said_in_text_too() {
    let setting = Setting {
        model: Some(scripted()),
        ..Setting::from(Script::new().reply(Reply::new().fail(500, 9)))
    };
    let stage = Stage::new(setting.editor(Preset::toad()));
    let session = stage.session().await;
    let error = stage.editor.prompt(&session, "hi").await.unwrap_err();
    let seen = stage.finish().await;
    assert!(text(&seen, "agent_message_chunk").contains(message(&error)));
}

#[tokio::test]
async fn quirk_17_one_option_of_a_kind_and_both_simple_ones_always() {
    let stage = Stage::new(Setting::from(write()).editor(Preset::agent_shell()));
    let session = stage.session().await;
    stage.editor.prompt(&session, "go").await.unwrap();
    let seen = stage.finish().await;
    let asked = seen
        .requests_of_agent("session/request_permission")
        .next()
        .unwrap()
        .params()
        .unwrap()
        .clone();
    let mut kinds: Vec<&str> = asked["options"]
        .as_array()
        .unwrap()
        .iter()
        .map(|option| option["kind"].as_str().unwrap())
        .collect();
    assert!(kinds.contains(&"allow_once") && kinds.contains(&"reject_once"));
    let all = kinds.len();
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(kinds.len(), all);
}

#[tokio::test]
async fn clients_that_show_one_question_get_one_at_a_time() {
    let call = |n: u32| json!({ "file_path": format!("{n}.txt"), "content": "x" });
    let both = Reply::on("^go$")
        .call_as("w1", "Write", call(1))
        .call_as("w2", "Write", call(2));
    let options = EditorOptions {
        permission: PermissionPolicy::AllowOnce,
        ..Preset::toad().into()
    };
    let stage = Stage::new(
        Setting::from(Script::new().reply(both).reply(Reply::on("").say("Done."))).editor(options),
    );
    let session = stage.session().await;
    stage.editor.prompt(&session, "go").await.unwrap();
    let seen = stage.finish().await;
    let mut open = 0_i32;
    for frame in &seen.frames {
        if frame.method() == Some("session/request_permission") {
            open += 1;
        } else if frame.is_response()
            && frame
                .json
                .as_ref()
                .unwrap()
                .pointer("/result/outcome")
                .is_some()
        {
            open -= 1;
        }
        assert!(open <= 1, "{seen}");
    }
}
