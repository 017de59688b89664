//! Modes and config options stay in step.

use serde_json::{Value, json};
use terret_fixtures::Script;

use crate::stage::{Stage, code, updates};

fn value<'a>(options: &'a Value, id: &str) -> &'a Value {
    let all = options.as_array().unwrap();
    &all.iter().find(|option| option["id"] == id).unwrap()["currentValue"]
}

#[tokio::test]
async fn a_mode_that_is_set_shows_in_both_views() {
    let stage = Stage::new(Script::new());
    stage.editor.initialize().await.unwrap();
    let new = json!({ "cwd": stage.workspace.root(), "mcpServers": [] });
    let answer = stage.editor.request("session/new", new).await.unwrap();
    let session = answer["sessionId"].as_str().unwrap();
    assert_eq!(value(&answer["configOptions"], "mode"), "ask");
    assert_eq!(value(&answer["configOptions"], "thinking"), "off");
    assert_eq!(value(&answer["configOptions"], "model"), "scripted:test");
    let params = json!({ "sessionId": session, "modeId": "plan" });
    assert_eq!(
        stage
            .editor
            .request("session/set_mode", params)
            .await
            .unwrap(),
        json!({})
    );
    assert_eq!(
        stage
            .editor
            .wait_update(0, "current_mode_update")
            .await
            .unwrap()["currentModeId"],
        "plan"
    );
    let update = stage
        .editor
        .wait_update(0, "config_option_update")
        .await
        .unwrap();
    assert_eq!(value(&update["configOptions"], "mode"), "plan");
    let mark = stage.editor.mark();
    let params = json!({ "sessionId": session, "configId": "mode", "value": "edits" });
    let answer = stage
        .editor
        .request("session/set_config_option", params)
        .await
        .unwrap();
    assert_eq!(value(&answer["configOptions"], "mode"), "edits");
    assert_eq!(
        answer["configOptions"].as_array().unwrap().len(),
        3,
        "the list is complete"
    );
    assert_eq!(
        stage
            .editor
            .wait_update(mark, "current_mode_update")
            .await
            .unwrap()["currentModeId"],
        "edits"
    );
    let params = json!({ "sessionId": session, "configId": "thinking", "value": "high" });
    let answer = stage
        .editor
        .request("session/set_config_option", params)
        .await
        .unwrap();
    assert_eq!(value(&answer["configOptions"], "thinking"), "high");
    let seen = stage.finish().await;
    assert_eq!(updates(&seen, "current_mode_update").len(), 2);
}

#[tokio::test]
async fn unknown_options_and_values_are_refused_by_name() {
    let stage = Stage::new(Script::new());
    let session = stage.session().await;
    for (config, new) in [
        ("mode", json!("yolo")),
        ("colour", json!("red")),
        ("mode", json!(true)),
        ("model", json!("no colon")),
    ] {
        let params = json!({ "sessionId": session, "configId": config, "value": new });
        let error = stage
            .editor
            .request("session/set_config_option", params)
            .await
            .unwrap_err();
        assert_eq!(code(&error), -32602, "{config}");
    }
    let error = stage
        .editor
        .request(
            "session/set_mode",
            json!({ "sessionId": session, "modeId": "bypass" }),
        )
        .await
        .unwrap_err();
    assert_eq!(code(&error), -32602);
    let answer = stage
        .editor
        .load_session(&session, stage.workspace.root())
        .await
        .unwrap();
    assert_eq!(
        answer["modes"]["currentModeId"], "ask",
        "nothing was changed"
    );
    stage.finish().await;
}
