//! `initialize`: versions, leniency, and what is promised.

use serde_json::{Value, json};
use terret_fixtures::{Preset, Script};

use crate::stage::{Setting, Stage, code, message};

#[tokio::test]
async fn r116_handshakes_of_every_shape_are_answered_with_our_version() {
    for params in [
        json!({ "protocolVersion": 1 }),
        json!({ "protocolVersion": 0 }),
        json!({ "protocolVersion": 9, "clientInfo": null, "clientCapabilities": null }),
        json!({ "protocolVersion": 65535 }),
        json!({ "protocolVersion": 1e300, "extra": { "keys": [] } }),
        json!({ "protocolVersion": 1, "clientCapabilities": { "fs": "yes", "terminal": 3, "new": {} }, "_meta": null }),
        json!({ "protocolVersion": 2, "info": { "name": "v2", "version": "1" }, "capabilities": {} }),
    ] {
        let stage = Stage::new(Script::new());
        let answer = stage
            .editor
            .request("initialize", params.clone())
            .await
            .unwrap();
        assert_eq!(answer["protocolVersion"], 1, "{params}");
        // A session starts, whatever is missing or null.
        let new =
            json!({ "cwd": stage.workspace.root(), "additionalDirectories": null, "unknown": 1 });
        let session = stage.editor.request("session/new", new).await.unwrap();
        assert!(session["sessionId"].is_string());
        let load = json!({ "sessionId": session["sessionId"], "cwd": stage.workspace.root(), "mcpServers": null });
        stage.editor.request("session/load", load).await.unwrap();
        stage.finish().await;
    }
}

#[tokio::test]
async fn r116_wrong_types_are_refused_by_the_field_at_fault() {
    let stage = Stage::new(Script::new());
    for params in [
        json!({}),
        json!({ "protocolVersion": "1" }),
        json!({ "protocolVersion": null }),
    ] {
        let error = stage
            .editor
            .request("initialize", params)
            .await
            .unwrap_err();
        assert_eq!(code(&error), -32602);
        assert!(message(&error).contains("protocolVersion"));
    }
    stage.editor.initialize().await.unwrap();
    for (params, field) in [
        (json!({}), "`cwd`"),
        (json!({ "cwd": 3 }), "`cwd`"),
        (json!({ "cwd": "relative/path" }), "`cwd`"),
        (json!({ "cwd": "/no/such/folder/anywhere" }), "`cwd`"),
        (json!({ "cwd": "/", "mcpServers": "x" }), "`mcpServers`"),
        (
            json!({ "cwd": "/", "additionalDirectories": ["rel"] }),
            "`additionalDirectories[0]`",
        ),
        (
            json!({ "cwd": "/", "systemPrompt": { "mode": "append", "content": [] } }),
            "`systemPrompt`",
        ),
    ] {
        let error = stage
            .editor
            .request("session/new", params)
            .await
            .unwrap_err();
        assert_eq!(code(&error), -32602, "{error}");
        assert!(message(&error).contains(field), "{error}");
    }
    stage.finish().await;
}

#[tokio::test]
async fn nothing_is_answered_before_initialize_and_one_is_enough() {
    let stage = Stage::new(Script::new());
    let new = json!({ "cwd": stage.workspace.root(), "mcpServers": [] });
    let error = stage
        .editor
        .request("session/new", new.clone())
        .await
        .unwrap_err();
    assert_eq!(code(&error), -32600);
    assert!(message(&error).contains("initialize"));
    // All in one go, as a script would pipe it.
    let first = stage
        .editor
        .start_request("initialize", json!({ "protocolVersion": 1 }))
        .await
        .unwrap();
    let second = stage
        .editor
        .start_request("session/new", new)
        .await
        .unwrap();
    stage.editor.response(first).await.unwrap();
    stage.editor.response(second).await.unwrap();
    let error = stage.editor.initialize().await.unwrap_err();
    assert_eq!(code(&error), -32600);
    stage.finish().await;
}

#[tokio::test]
async fn what_is_promised_is_true() {
    let stage = Stage::new(Script::new());
    let answer = stage.editor.initialize().await.unwrap();
    let capabilities = &answer["agentCapabilities"];
    assert_eq!(capabilities["loadSession"], true);
    assert_eq!(
        capabilities["promptCapabilities"],
        json!({ "image": true, "audio": false, "embeddedContext": true })
    );
    assert_eq!(
        capabilities["mcpCapabilities"],
        json!({ "http": false, "sse": false })
    );
    for capability in ["list", "resume", "close", "delete", "additionalDirectories"] {
        assert_eq!(
            capabilities["sessionCapabilities"][capability],
            json!({}),
            "{capability}"
        );
    }
    assert_eq!(
        answer["agentInfo"],
        json!({ "name": "terret", "title": "Terret", "version": "1.2.3" })
    );
    let ids: Vec<&Value> = answer["authMethods"]
        .as_array()
        .unwrap()
        .iter()
        .map(|method| &method["id"])
        .collect();
    assert_eq!(ids, ["api-key", "terminal"]);
    assert_eq!(
        stage
            .editor
            .request("authenticate", json!({ "methodId": "api-key" }))
            .await
            .unwrap(),
        json!({})
    );
    let error = stage
        .editor
        .request("authenticate", json!({ "methodId": "nope" }))
        .await
        .unwrap_err();
    assert_eq!(code(&error), -32602);
    stage.finish().await;
}

#[tokio::test]
async fn a_client_without_a_terminal_is_offered_the_key_alone() {
    let stage = Stage::new(Setting::from(Script::new()).editor(Preset::bare()));
    let answer = stage.editor.initialize().await.unwrap();
    assert_eq!(answer["authMethods"].as_array().unwrap().len(), 1);
    stage.finish().await;
}
