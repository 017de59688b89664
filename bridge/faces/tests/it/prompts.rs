//! Prompts: what is streamed, how turns end, and what cannot be asked.

use serde_json::{Value, json};
use terret_fixtures::{Direction, EditorError, Preset, Reply, Script};

use crate::stage::{Setting, Stage, code, message, place, stop_reason, text, updates};

#[tokio::test]
async fn check_166_a_turn_round_trips_with_its_chunks_before_the_answer() {
    let script = Script::new().reply(Reply::new().think("hm").say("Hello there.").usage(10, 5));
    let stage = Stage::new(script);
    let session = stage.session().await;
    let answer = stage.editor.prompt(&session, "hi").await.unwrap();
    assert_eq!(stop_reason(&answer), "end_turn");
    assert_eq!(answer["usage"]["totalTokens"], 15);
    let seen = stage.finish().await;
    assert_eq!(text(&seen, "agent_message_chunk"), "Hello there.");
    assert_eq!(text(&seen, "agent_thought_chunk"), "hm");
    assert!(
        updates(&seen, "user_message_chunk").is_empty(),
        "a live prompt is not echoed"
    );
    let chunk = &updates(&seen, "agent_message_chunk")[0];
    assert!(chunk["messageId"].is_string());
    let last_chunk = seen
        .frames
        .iter()
        .rposition(|frame| frame.update_kind() == Some("agent_message_chunk"))
        .unwrap();
    let answered = place(&seen, |frame| {
        frame.direction == Direction::FromAgent
            && frame
                .json
                .as_ref()
                .is_some_and(|json| json["result"]["stopReason"].is_string())
    });
    assert!(last_chunk < answered);
    assert_eq!(updates(&seen, "usage_update")[0]["used"], 15);
    assert_eq!(updates(&seen, "session_info_update")[0]["title"], "hi");
}

#[tokio::test]
async fn check_166_every_end_of_a_turn_has_its_stop_reason() {
    for (stop, reason) in [
        ("end", "end_turn"),
        ("length", "max_tokens"),
        ("refusal", "refusal"),
    ] {
        let stage = Stage::new(Script::new().reply(Reply::new().say("so").stop(stop)));
        let session = stage.session().await;
        let answer = stage.editor.prompt(&session, "go").await.unwrap();
        assert_eq!(stop_reason(&answer), reason);
        stage.finish().await;
    }
}

#[tokio::test]
async fn check_167_bad_lines_are_answered_and_the_loop_survives() {
    let stage = Stage::new(Script::new().say("still here"));
    let session = stage.session().await;
    let editor = &stage.editor;
    editor.send_line("{\"jsonrpc\":").await.unwrap();
    editor.send_line("[]").await.unwrap();
    editor.send_line("").await.unwrap();
    assert_eq!(
        code(&editor.request("session/what", json!({})).await.unwrap_err()),
        -32601
    );
    assert_eq!(
        code(
            &editor
                .request("_vendor/thing", json!({}))
                .await
                .unwrap_err()
        ),
        -32601
    );
    assert_eq!(
        code(
            &editor
                .request("session/prompt", json!({ "sessionId": session }))
                .await
                .unwrap_err()
        ),
        -32602
    );
    editor
        .notify("session/unheard_of", json!({}))
        .await
        .unwrap();
    assert_eq!(
        stop_reason(&editor.prompt(&session, "hi").await.unwrap()),
        "end_turn"
    );
    let seen = stage.finish().await;
    let refused = |code: i64| {
        seen.from_agent()
            .filter(|frame| {
                frame
                    .json
                    .as_ref()
                    .is_some_and(|json| json["error"]["code"] == code)
            })
            .count()
    };
    assert_eq!((refused(-32700), refused(-32600)), (1, 1));
}

#[tokio::test]
async fn r038_images_that_are_no_base64_are_refused_and_others_arrive() {
    let stage = Stage::new(Script::new().say("a picture"));
    let session = stage.session().await;
    let ask = |data: &str| json!({ "sessionId": session, "prompt": [{ "type": "image", "data": data, "mimeType": "image/png" }] });
    let error = stage
        .editor
        .request("session/prompt", ask("not base64!"))
        .await
        .unwrap_err();
    assert_eq!(code(&error), -32602);
    assert!(message(&error).contains("`prompt[0].data`"));
    assert!(!message(&error).contains("not base64!"));
    // An image alone is a prompt.
    let answer = stage
        .editor
        .request("session/prompt", ask("iVBORw0KGgo="))
        .await
        .unwrap();
    assert_eq!(stop_reason(&answer), "end_turn");
    let id = session.parse().unwrap();
    let images = stage
        .engine
        .session(&id)
        .unwrap()
        .state(|state| format!("{:?}", state.history))
        .matches("image/png")
        .count();
    assert!(images > 0);
    let audio = json!({ "sessionId": session, "prompt": [{ "type": "audio", "data": "AAAA", "mimeType": "audio/wav" }] });
    assert_eq!(
        code(
            &stage
                .editor
                .request("session/prompt", audio)
                .await
                .unwrap_err()
        ),
        -32602
    );
    stage.finish().await;
}

#[tokio::test]
async fn r036_links_reach_the_model_as_decoded_absolute_paths() {
    let stage = Stage::new(
        Script::new()
            .reply(Reply::on("é#.txt").say("seen"))
            .reply(Reply::new().say("not seen")),
    );
    let session = stage.session().await;
    let prompt = json!([
        { "type": "text", "text": "look" },
        { "type": "resource_link", "uri": "file:///tmp/a%20b/%C3%A9%23.txt", "name": "é#.txt" },
    ]);
    stage
        .editor
        .request(
            "session/prompt",
            json!({ "sessionId": session, "prompt": prompt }),
        )
        .await
        .unwrap();
    let id = session.parse().unwrap();
    let history = stage
        .engine
        .session(&id)
        .unwrap()
        .state(|state| format!("{:?}", state.history));
    assert!(history.contains("/tmp/a b/é#.txt"), "{history}");
    assert!(
        history.contains("cannot be read"),
        "a link that leads nowhere is said to: {history}"
    );
    let seen = stage.finish().await;
    assert_eq!(text(&seen, "agent_message_chunk"), "seen");
}

#[tokio::test]
async fn r059_a_failure_of_the_provider_is_an_error_and_text() {
    for (reply, shown) in [
        (Reply::new().fail(401, 9), -32000),
        (Reply::new().fail(500, 9), -32603),
        (Reply::new().say("half a sentence").cut_after(4), -32603),
    ] {
        for preset in [Preset::bare(), Preset::full()] {
            let stage = Stage::new(
                Setting::from(Script::new().reply(reply.clone())).editor(preset.clone()),
            );
            let session = stage.session().await;
            let error = stage.editor.prompt(&session, "hi").await.unwrap_err();
            assert_eq!(code(&error), shown, "{error}");
            let said = message(&error).to_owned();
            assert!(said.len() > 10);
            let seen = stage.finish().await;
            if preset.name == "full" {
                let notices = updates(&seen, "notice");
                assert!(
                    notices.iter().any(|notice| notice["severity"] == "error"),
                    "{seen}"
                );
            } else {
                assert!(text(&seen, "agent_message_chunk").contains(&said), "{seen}");
            }
        }
    }
}

#[tokio::test]
async fn r114_a_second_prompt_steers_and_both_are_answered() {
    let script = Script::new()
        .reply(Reply::on("^start$").call("Hold", json!({})))
        .reply(Reply::on("and this").say("both done"))
        .reply(Reply::new().say("only one"));
    let stage = Stage::new(script);
    let session = stage.session().await;
    let first = stage.editor.start_prompt(&session, "start").await.unwrap();
    stage.editor.wait_update(0, "tool_call").await.unwrap();
    let second = stage
        .editor
        .start_prompt(&session, "and this")
        .await
        .unwrap();
    // Answered at once and behind it, so the steer is with the engine now.
    stage.editor.prompt(&session, "/mode").await.unwrap();
    stage.gate.add_permits(1);
    assert_eq!(
        stop_reason(&stage.editor.response(first).await.unwrap()),
        "end_turn"
    );
    assert_eq!(
        stop_reason(&stage.editor.response(second).await.unwrap()),
        "end_turn"
    );
    let id = session.parse().unwrap();
    let history = stage
        .engine
        .session(&id)
        .unwrap()
        .state(|state| format!("{:?}", state.history));
    assert!(history.contains("and this"));
    let seen = stage.finish().await;
    assert!(
        text(&seen, "agent_message_chunk").ends_with("both done"),
        "{seen}"
    );
}

#[tokio::test]
async fn slash_commands_are_answered_as_messages_without_a_model() {
    let setting = Setting {
        model: None,
        ..Setting::from(Script::new())
    };
    let stage = Stage::new(setting);
    let session = stage.session().await;
    let answer = stage.editor.prompt(&session, "/help").await.unwrap();
    assert_eq!(stop_reason(&answer), "end_turn");
    let commands = stage
        .editor
        .wait_update(0, "available_commands_update")
        .await
        .unwrap();
    assert!(
        commands["availableCommands"]
            .as_array()
            .unwrap()
            .iter()
            .any(|command| command["name"] == "plan")
    );
    let seen = stage.finish().await;
    assert!(
        text(&seen, "agent_message_chunk").contains("`/plan clear`")
            || text(&seen, "agent_message_chunk").contains("/plan")
    );
}

#[tokio::test]
async fn a_session_starts_without_a_key_and_its_prompt_says_what_to_do() {
    let setting = Setting {
        model: None,
        ..Setting::from(Script::new())
    }
    .editor(Preset::toad());
    let stage = Stage::new(setting);
    let session = stage.session().await;
    let error = stage.editor.prompt(&session, "hi").await.unwrap_err();
    assert_eq!(code(&error), -32000);
    let said = message(&error).to_owned();
    assert!(said.contains("ANTHROPIC_API_KEY"), "{said}");
    let error = stage
        .editor
        .request("authenticate", json!({ "methodId": "api-key" }))
        .await
        .unwrap_err();
    assert_eq!(code(&error), -32000);
    let seen = stage.finish().await;
    assert!(text(&seen, "agent_message_chunk").contains(&said));
}

#[tokio::test]
async fn unknown_sessions_are_told_from_missing_ones() {
    let stage = Stage::new(Script::new());
    stage.session().await;
    let editor = &stage.editor;
    for method in [
        "session/prompt",
        "session/load",
        "session/resume",
        "session/close",
        "session/set_mode",
    ] {
        let mut params = json!({ "sessionId": "nope", "cwd": stage.workspace.root(), "mcpServers": [], "modeId": "ask",
            "prompt": [{ "type": "text", "text": "x" }] });
        let error = editor.request(method, params.clone()).await.unwrap_err();
        assert_eq!(code(&error), -32002, "{method}");
        let EditorError::Refused { data, .. } = error else {
            unreachable!()
        };
        assert_eq!(*data, json!({ "sessionId": "nope" }));
        params["sessionId"] = Value::Null;
        assert_eq!(
            code(&editor.request(method, params).await.unwrap_err()),
            -32602,
            "{method}"
        );
    }
    stage.finish().await;
}
