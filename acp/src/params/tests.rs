#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::json;

use super::*;
use crate::schema::v1::{
    InitializeRequest, LoadSessionRequest, NewSessionRequest, PromptRequest, ResumeSessionRequest,
    SetSessionModeRequest,
};

fn raw(value: &Value) -> RawParams {
    RawParams::from_value(value).unwrap()
}

fn parsed<T: DeserializeOwned>(value: &Value) -> T {
    parse(&raw(value)).unwrap_or_else(|error| unreachable!("{error}: {value}"))
}

fn refused<T: DeserializeOwned>(value: &Value) -> String {
    let Err(error) = parse::<T>(&raw(value)) else {
        unreachable!("it should not fit: {value}");
    };
    assert_eq!(error.code, crate::ErrorCode::InvalidParams);
    assert!(
        !error.message.contains("secret"),
        "content came back: {error}"
    );
    error.message.into_owned()
}

#[test]
fn r116_every_harmless_variant_of_initialize_is_understood() {
    for variant in [
        json!({ "protocolVersion": 1 }),
        json!({ "protocolVersion": 1, "clientCapabilities": null, "clientInfo": null, "_meta": null }),
        json!({ "protocolVersion": 1, "clientCapabilities": {}, "extra": [1], "clientInfo": { "name": "x", "version": "1", "extra": 1 } }),
        json!({ "protocolVersion": 1, "clientCapabilities": { "fs": null, "terminal": null, "unknown": {} } }),
        json!({ "protocolVersion": 1, "clientCapabilities": { "fs": { "readTextFile": null, "x": 1 } } }),
        json!({ "protocolVersion": 1, "clientInfo": { "name": "x" } }),
        json!({ "protocolVersion": 0 }),
        json!({ "protocolVersion": 9 }),
        json!({ "protocolVersion": 65535 }),
        json!({ "protocolVersion": 65536 }),
        json!({ "protocolVersion": u64::MAX }),
        json!({ "protocolVersion": 1.0 }),
        json!({ "protocolVersion": -3 }),
        json!({ "protocolVersion": 1e300 }),
        json!({ "protocolVersion": 2, "info": { "name": "x", "version": "1" }, "capabilities": {} }),
    ] {
        let initialize: InitializeRequest = parsed(&variant);
        let clamped = protocol_version(&raw(&variant)).unwrap().min(65535);
        assert_eq!(
            json!(initialize.protocol_version),
            json!(clamped),
            "{variant}"
        );
    }
    for (variant, message) in [
        (json!({}), "`protocolVersion` is missing"),
        (json!(null), "`protocolVersion` is missing"),
        (
            json!({ "protocolVersion": "secret" }),
            "`protocolVersion` must be ",
        ),
        (
            json!({ "protocolVersion": null }),
            "`protocolVersion` is missing",
        ),
        (
            json!({ "protocolVersion": ["secret"] }),
            "`protocolVersion` must be ",
        ),
        (json!(["secret"]), "the parameters must be an object"),
        (json!("secret"), "the parameters must be an object"),
    ] {
        let told = refused::<InitializeRequest>(&variant);
        assert!(told.starts_with(message), "{told}");
        assert!(protocol_version(&raw(&variant)).is_err());
    }
}

#[test]
fn r116_sessions_start_without_the_lists_and_with_null_for_what_is_optional() {
    let new: NewSessionRequest = parsed(&json!({ "cwd": "/" }));
    assert!(new.mcp_servers.is_empty());
    parsed::<NewSessionRequest>(&json!({ "cwd": "/", "mcpServers": null }));
    parsed::<NewSessionRequest>(
        &json!({ "cwd": "/", "mcpServers": [], "additionalDirectories": null, "systemPrompt": null, "x": 1 }),
    );
    parsed::<LoadSessionRequest>(&json!({ "sessionId": "s", "cwd": "/" }));
    parsed::<LoadSessionRequest>(
        &json!({ "sessionId": "s", "cwd": "/", "mcpServers": null, "_meta": null }),
    );
    parsed::<ResumeSessionRequest>(&json!({ "sessionId": "s", "cwd": "/", "mcpServers": null }));
}

#[test]
fn r116_an_error_names_the_field_and_repeats_nothing() {
    let told = [
        refused::<NewSessionRequest>(&json!({ "mcpServers": [] })),
        refused::<NewSessionRequest>(&json!({ "cwd": { "secret": "secret" } })),
        refused::<NewSessionRequest>(
            &json!({ "cwd": "/", "mcpServers": "secret, expected secret" }),
        ),
        refused::<LoadSessionRequest>(&json!({ "sessionId": 7, "cwd": "/" })),
        refused::<PromptRequest>(&json!({ "sessionId": null, "prompt": [] })),
        refused::<PromptRequest>(&json!({ "sessionId": "s" })),
        refused::<PromptRequest>(&json!({ "sessionId": "s", "prompt": "secret" })),
        refused::<PromptRequest>(
            &json!({ "sessionId": "s", "prompt": [{ "type": "text", "text": ["secret"] }] }),
        ),
        refused::<PromptRequest>(&json!({ "sessionId": "s", "prompt": [{ "type": "secret" }] })),
        refused::<PromptRequest>(&json!({ "sessionId": "s", "prompt": [{ "type": "text" }] })),
        refused::<SetSessionModeRequest>(&json!({ "sessionId": "s", "mode": "secret" })),
        refused::<std::collections::HashMap<String, u8>>(&json!({ "my secret key": "x" })),
    ];
    insta::assert_json_snapshot!(told);
}

#[test]
fn a_null_that_means_something_stays() {
    #[derive(Deserialize)]
    struct Patch {
        title: Option<Value>,
        raw: Value,
        count: u8,
    }
    // `count` is too loose to be read, and mending it must not touch the rest.
    assert!(parse::<Patch>(&raw(&json!({ "title": null, "raw": null, "count": null }))).is_err());
    let patch: Patch = parsed(&json!({ "title": null, "raw": { "x": null }, "count": 1 }));
    assert_eq!(
        (patch.title, patch.raw, patch.count),
        (None, json!({ "x": null }), 1)
    );
}

#[test]
fn mending_ends() {
    #[derive(Debug, Deserialize)]
    struct Many {
        #[serde(default, rename = "a")]
        _a: Vec<Inner>,
    }
    #[derive(Debug, Deserialize)]
    struct Inner {
        #[serde(default, rename = "b")]
        _b: u8,
    }
    let nulls = |count: usize| json!({ "a": vec![json!({ "b": null }); count] });
    parsed::<Many>(&nulls(30));
    assert_eq!(
        refused::<Many>(&nulls(10_000)),
        "`a[32].b` must be a whole number in range"
    );
}

#[test]
fn the_session_is_found_without_reading_the_rest() {
    assert_eq!(
        raw(&json!({ "x": [1, { "sessionId": "no" }], "sessionId": "yes" }))
            .session_id()
            .as_deref(),
        Some("yes")
    );
    for value in [
        json!({}),
        json!({ "sessionId": 7 }),
        json!({ "sessionId": null }),
        json!([]),
        json!(null),
    ] {
        assert_eq!(raw(&value).session_id(), None);
    }
}
