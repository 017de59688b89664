//! Approvals as permission requests.

use serde_json::{Value, json};
use terret_engine::room::tools::mode::Mode;
use terret_fixtures::{EditorOptions, PermissionPolicy, Preset, Reply, Script};

use crate::stage::{Setting, Stage, stop_reason, text, updates};

fn edit() -> Script {
    let args = json!({ "file_path": "notes.txt", "old_string": "two", "new_string": "2" });
    // The replies of one turn, in order.
    Script::new()
        .reply(Reply::new().call("Read", json!({ "file_path": "notes.txt" })))
        .reply(Reply::new().call_as("e1", "Edit", args))
        .say("Done.")
}

fn asking(policy: PermissionPolicy) -> Setting {
    let options = EditorOptions {
        permission: policy,
        ..Preset::zed().into()
    };
    Setting::from(edit()).editor(options)
}

#[tokio::test]
async fn an_allowed_edit_is_asked_with_its_diff_and_made() {
    let stage = Stage::new(asking(PermissionPolicy::AllowOnce));
    let session = stage.session().await;
    assert_eq!(
        stop_reason(&stage.editor.prompt(&session, "edit").await.unwrap()),
        "end_turn"
    );
    assert_eq!(
        std::fs::read_to_string(stage.path("notes.txt")).unwrap(),
        "one\n2\nthree\n"
    );
    let seen = stage.finish().await;
    let asked = seen
        .requests_of_agent("session/request_permission")
        .next()
        .unwrap()
        .params()
        .unwrap()
        .clone();
    let call = &asked["toolCall"];
    assert_eq!(
        (&call["kind"], &call["status"]),
        (&json!("edit"), &json!("pending"))
    );
    assert!(call["title"].as_str().unwrap().contains("notes.txt"));
    assert_eq!(call["rawInput"]["new_string"], "2");
    assert_eq!(call["content"][0]["type"], "diff");
    assert_eq!(call["content"][0]["oldText"], "one\ntwo\nthree\n");
    assert_eq!(call["content"][0]["newText"], "one\n2\nthree\n");
    let kinds: Vec<&Value> = asked["options"]
        .as_array()
        .unwrap()
        .iter()
        .map(|option| &option["kind"])
        .collect();
    assert_eq!(kinds, ["allow_once", "allow_always", "reject_once"]);
    assert!(
        asked["options"][1]["name"]
            .as_str()
            .unwrap()
            .contains("Edit(notes.txt)")
    );
}

#[tokio::test]
async fn whatever_is_not_an_offered_yes_denies() {
    for policy in [
        PermissionPolicy::RejectOnce,
        PermissionPolicy::Error,
        PermissionPolicy::UnknownOption,
    ] {
        let stage = Stage::new(asking(policy.clone()));
        let session = stage.session().await;
        assert_eq!(
            stop_reason(&stage.editor.prompt(&session, "edit").await.unwrap()),
            "end_turn"
        );
        assert_eq!(
            std::fs::read_to_string(stage.path("notes.txt")).unwrap(),
            "one\ntwo\nthree\n",
            "{policy:?}"
        );
        let seen = stage.finish().await;
        assert_eq!(
            updates(&seen, "tool_call_update").last().unwrap()["status"],
            "failed"
        );
    }
}

#[tokio::test]
async fn more_reach_for_a_call_that_runs_is_asked_with_its_reason_and_without_always() {
    let reason = "it looks as if the sandbox had kept the network from it";
    let script = Script::new()
        .reply(Reply::new().call_as("h1", "Hold", json!({ "reach": reason })))
        .say("Done.");
    let options = EditorOptions {
        permission: PermissionPolicy::AllowOnce,
        ..Preset::zed().into()
    };
    let stage = Stage::new(Setting::from(script).editor(options));
    let session = stage.session().await;
    let answer = stage.editor.prompt(&session, "go").await.unwrap();
    assert_eq!(stop_reason(&answer), "end_turn");
    let seen = stage.finish().await;
    let asked: Vec<Value> = seen
        .requests_of_agent("session/request_permission")
        .map(|request| request.params().unwrap().clone())
        .collect();
    assert_eq!(asked.len(), 1);
    assert!(asked[0]["toolCall"]["content"].to_string().contains(reason));
    let kinds: Vec<&Value> = asked[0]["options"]
        .as_array()
        .unwrap()
        .iter()
        .map(|option| &option["kind"])
        .collect();
    assert_eq!(kinds, ["allow_once", "reject_once"]);
    // The card waits for the person and runs again afterwards.
    let states: Vec<Value> = updates(&seen, "tool_call_update")
        .iter()
        .map(|update| update["status"].clone())
        .filter(|status| !status.is_null())
        .collect();
    assert_eq!(states, ["in_progress", "in_progress", "completed"]);
}

#[tokio::test]
async fn a_decision_elsewhere_takes_the_question_back() {
    let stage = Stage::new(asking(PermissionPolicy::Never));
    let session = stage.session().await;
    let prompt = stage.editor.start_prompt(&session, "edit").await.unwrap();
    let asked = stage.editor.wait_permission(0).await.unwrap();
    let handle = stage.engine.session(&session.parse().unwrap()).unwrap();
    let waiting = handle.state(|state| state.approvals.pending()[0].id.clone());
    handle
        .decide(&waiting, terret_engine::Decision::AllowOnce, "inbox")
        .unwrap();
    assert_eq!(
        stop_reason(&stage.editor.response(prompt).await.unwrap()),
        "end_turn"
    );
    let seen = stage.finish().await;
    let notice = seen
        .from_agent()
        .find(|frame| frame.method() == Some("$/cancel_request"))
        .unwrap();
    assert_eq!(notice.params().unwrap()["requestId"], asked.id);
}

#[tokio::test]
async fn a_granted_rule_settles_what_it_covers() {
    let args = |n: u32| json!({ "file_path": "many.txt", "content": format!("{n}\n") });
    let reply = (0..3).fold(Reply::on("^go$"), |reply, n| {
        reply.call_as(&format!("w{n}"), "Write", args(n))
    });
    let options = EditorOptions {
        permission: PermissionPolicy::AllowAlways,
        ..Preset::zed().into()
    };
    let stage = Stage::new(
        Setting::from(Script::new().reply(reply).reply(Reply::on("").say("Done."))).editor(options),
    );
    let session = stage.session().await;
    stage.editor.prompt(&session, "go").await.unwrap();
    assert_eq!(
        std::fs::read_to_string(stage.path("many.txt")).unwrap(),
        "2\n"
    );
    let seen = stage.finish().await;
    assert_eq!(
        seen.requests_of_agent("session/request_permission").count(),
        1
    );
}

#[tokio::test]
async fn a_new_file_has_no_old_text() {
    let args = json!({ "file_path": "new.txt", "content": "hello\n" });
    let script = Script::new()
        .reply(Reply::on("^go$").call("Write", args))
        .reply(Reply::on("").say("Done."));
    let stage = Stage::new(script);
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
    let diff = &asked["toolCall"]["content"][0];
    assert!(diff["oldText"].is_null());
    assert_eq!(diff["newText"], "hello\n");
    let last = updates(&seen, "tool_call_update").last().unwrap().clone();
    assert_eq!(last["content"][0]["newText"], "hello\n");
}

#[tokio::test]
async fn what_is_shown_for_a_decision_hides_nothing() {
    let args = json!({ "file_path": "a\u{202e}txt.exe", "content": "x" });
    let script = Script::new()
        .reply(Reply::on("^go$").call("Write", args))
        .reply(Reply::on("").say("Done."));
    let options = EditorOptions {
        permission: PermissionPolicy::RejectOnce,
        ..EditorOptions::default()
    };
    let stage = Stage::new(Setting::from(script).editor(options));
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
    let title = asked["toolCall"]["title"].as_str().unwrap();
    assert!(
        title.contains("\\u{202e}") && !title.contains('\u{202e}'),
        "{title}"
    );
}

#[tokio::test]
async fn large_changes_stay_within_a_frame() {
    let content = "\u{1}line with \"quotes\"\n".repeat(20_000);
    let args = json!({ "file_path": "large.txt", "content": content });
    let script = Script::new()
        .reply(Reply::on("^go$").call("Write", args))
        .reply(Reply::on("").say("Done."));
    let stage = Stage::new(script);
    let session = stage.session().await;
    stage.editor.prompt(&session, "go").await.unwrap();
    assert_eq!(
        std::fs::read_to_string(stage.path("large.txt")).unwrap(),
        content
    );
    stage
        .editor
        .load_session(&session, stage.workspace.root())
        .await
        .unwrap();
    let seen = stage.finish().await;
    assert!(text(&seen, "agent_message_chunk").starts_with("Done."));
}

#[tokio::test]
async fn a_change_with_invisible_characters_says_so() {
    let args = json!({ "file_path": "x.rs", "content": "if access\u{202e} {}\n" });
    let script = Script::new()
        .reply(Reply::on("^go$").call("Write", args))
        .reply(Reply::on("").say("Done."));
    let stage = Stage::new(script);
    let session = stage.session().await;
    stage.editor.prompt(&session, "go").await.unwrap();
    let seen = stage.finish().await;
    let asked = seen
        .requests_of_agent("session/request_permission")
        .next()
        .unwrap()
        .line
        .clone();
    assert!(asked.contains("invisible characters"), "{asked}");
}

#[tokio::test]
async fn a_command_is_asked_with_its_words_and_shown_with_its_end() {
    let args = json!({ "command": "printf 'a b'; exit 3" });
    let script = Script::new()
        .reply(Reply::on("^go$").call_as("b1", "Bash", args))
        .reply(Reply::on("").say("Done."));
    let stage = Stage::new(Setting::from(script).editor(Preset::zed()));
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
    let call = &asked["toolCall"];
    assert_eq!(call["kind"], "execute");
    assert_eq!(call["rawInput"]["command"], "printf 'a b'; exit 3");
    assert!(
        call["content"][0]["content"]["text"]
            .as_str()
            .unwrap()
            .contains("printf 'a b'; exit 3")
    );
    let all = updates(&seen, "tool_call_update");
    let output: String = all
        .iter()
        .map(|update| {
            update["_meta"]["terminal_output"]["data"]
                .as_str()
                .unwrap_or_default()
        })
        .collect();
    assert!(output.starts_with("a b"), "{output}");
    let exit = all
        .iter()
        .find_map(|update| update["_meta"].get("terminal_exit"))
        .unwrap();
    assert_eq!(
        (&exit["terminal_id"], &exit["exit_code"]),
        (&json!("b1"), &json!(3))
    );
}

#[tokio::test]
async fn a_command_of_many_bytes_is_asked_about_to_its_very_end() {
    let command = format!("echo {}; touch danger", "x".repeat(15_000));
    let script = Script::new()
        .reply(Reply::on("^go$").call("Bash", json!({ "command": command })))
        .reply(Reply::on("").say("Done."));
    let options = EditorOptions {
        permission: PermissionPolicy::RejectOnce,
        ..Preset::bare().into()
    };
    let stage = Stage::new(Setting::from(script).editor(options));
    let session = stage.session().await;
    stage.editor.prompt(&session, "go").await.unwrap();
    assert!(!stage.path("danger").exists());
    let seen = stage.finish().await;
    let asked = seen
        .requests_of_agent("session/request_permission")
        .next()
        .unwrap()
        .params()
        .unwrap()
        .clone();
    assert!(
        asked["toolCall"]["content"][0]
            .to_string()
            .contains(&command),
        "the whole command is shown (R007)"
    );
}

#[tokio::test]
async fn a_plan_is_asked_about_with_its_text_and_the_mode_that_follows() {
    let script = Script::new()
        .reply(Reply::new().call_as(
            "p1",
            "ExitPlanMode",
            json!({ "plan": "# Plan\n1. tidy up" }),
        ))
        .say("Begun.");
    let mut setting = Setting::from(script).editor(EditorOptions {
        permission: PermissionPolicy::AllowAlways,
        ..Preset::zed().into()
    });
    setting.mode = Mode::Plan;
    let stage = Stage::new(setting);
    let session = stage.session().await;
    let answer = stage.editor.prompt(&session, "plan it").await.unwrap();
    assert_eq!(stop_reason(&answer), "end_turn");
    let seen = stage.finish().await;
    let asked = seen
        .requests_of_agent("session/request_permission")
        .next()
        .unwrap()
        .params()
        .unwrap()
        .clone();
    assert_eq!(asked["toolCall"]["kind"], "switch_mode");
    assert!(
        asked["toolCall"]["content"]
            .to_string()
            .contains("1. tidy up")
    );
    let names: Vec<&str> = asked["options"]
        .as_array()
        .unwrap()
        .iter()
        .map(|option| option["name"].as_str().unwrap())
        .collect();
    assert!(names[0].contains("`ask`") && names[1].contains("`edits`"));
    // The mode is told in both of its forms.
    let mode = updates(&seen, "current_mode_update");
    assert_eq!(mode.last().unwrap()["currentModeId"], "edits");
    let options = updates(&seen, "config_option_update");
    assert!(options.last().unwrap().to_string().contains("\"edits\""));
}

fn refusing_with_words(elicitation: Value, forms: bool) -> Setting {
    let script = Script::new()
        .reply(Reply::new().call_as("b1", "Bash", json!({ "command": "touch made" })))
        .say("I see.");
    let mut preset = Preset::full();
    preset.client_info = Some(json!({ "name": "vscode-acp", "version": "0.2.0" }));
    if !forms {
        preset.capabilities["elicitation"] = Value::Null;
    }
    Setting::from(script).editor(EditorOptions {
        permission: PermissionPolicy::Never,
        elicitation,
        ..preset.into()
    })
}

/// Refuses the first question with words, and gives the answer to the prompt.
async fn refused(stage: &Stage) -> Value {
    let session = stage.session().await;
    let prompt = stage.editor.start_prompt(&session, "go").await.unwrap();
    let asked = stage.editor.wait_permission(0).await.unwrap();
    let names = asked.params["options"].to_string();
    assert!(names.contains("in this project"), "{names}");
    let chosen = json!({ "outcome": { "outcome": "selected", "optionId": "reject_why" } });
    stage.editor.answer(&asked.id, chosen).await.unwrap();
    stage.editor.response(prompt).await.unwrap()
}

#[tokio::test]
async fn a_refusal_asks_for_its_reason_where_there_are_forms() {
    let given = json!({ "action": "accept", "content": { "reason": " not on Mondays " } });
    let stage = Stage::new(refusing_with_words(given, true));
    assert_eq!(stop_reason(&refused(&stage).await), "end_turn");
    assert!(!stage.path("made").exists());
    let seen = stage.finish().await;
    let failed = updates(&seen, "tool_call_update");
    assert!(
        failed
            .iter()
            .any(|update| update.to_string().contains("denied: not on Mondays"))
    );
    // The model read it and answered.
    assert!(text(&seen, "agent_message_chunk").contains("I see."));
}

#[tokio::test]
async fn a_refusal_without_a_form_or_without_words_ends_the_turn() {
    for (answer, forms) in [
        (json!({ "action": "decline" }), true),
        (json!({ "action": "accept", "content": {} }), true),
        (json!("what?"), true),
        (Value::Null, false),
    ] {
        let stage = Stage::new(refusing_with_words(answer, forms));
        assert_eq!(stop_reason(&refused(&stage).await), "end_turn");
        assert!(!stage.path("made").exists());
        let seen = stage.finish().await;
        assert_eq!(
            seen.requests_of_agent("elicitation/create").count(),
            usize::from(forms)
        );
        assert!(!text(&seen, "agent_message_chunk").contains("I see."));
    }
}
