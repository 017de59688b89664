//! Every frame that we send fits the JSON schema that the types of the protocol generate.

#![expect(
    clippy::disallowed_types,
    reason = "a constant table of schemas, compiled once"
)]

use std::collections::HashMap;
use std::sync::LazyLock;

use jsonschema::Validator;
use schemars::JsonSchema;
use serde_json::Value;
use terret_acp::schema::v1;
use terret_fixtures::{Direction, Transcript};

static SCHEMAS: LazyLock<HashMap<&'static str, Validator>> = LazyLock::new(|| {
    HashMap::from([
        ("initialize", schema::<v1::InitializeResponse>()),
        ("authenticate", schema::<v1::AuthenticateResponse>()),
        ("session/new", schema::<v1::NewSessionResponse>()),
        ("session/load", schema::<v1::LoadSessionResponse>()),
        ("session/resume", schema::<v1::ResumeSessionResponse>()),
        ("session/list", schema::<v1::ListSessionsResponse>()),
        ("session/close", schema::<v1::CloseSessionResponse>()),
        ("session/delete", schema::<v1::DeleteSessionResponse>()),
        ("session/set_mode", schema::<v1::SetSessionModeResponse>()),
        (
            "session/set_config_option",
            schema::<v1::SetSessionConfigOptionResponse>(),
        ),
        ("session/prompt", schema::<v1::PromptResponse>()),
        ("session/update", schema::<v1::SessionNotification>()),
        (
            "session/request_permission",
            schema::<v1::RequestPermissionRequest>(),
        ),
        (
            "elicitation/create",
            schema::<v1::CreateElicitationRequest>(),
        ),
        ("fs/read_text_file", schema::<v1::ReadTextFileRequest>()),
        ("fs/write_text_file", schema::<v1::WriteTextFileRequest>()),
        ("terminal/create", schema::<v1::CreateTerminalRequest>()),
        (
            "terminal/wait_for_exit",
            schema::<v1::WaitForTerminalExitRequest>(),
        ),
        ("terminal/kill", schema::<v1::KillTerminalRequest>()),
        ("terminal/release", schema::<v1::ReleaseTerminalRequest>()),
        ("error", schema::<v1::Error>()),
    ])
});

fn schema<T: JsonSchema>() -> Validator {
    let schema = schemars::schema_for!(T);
    jsonschema::validator_for(schema.as_value()).unwrap()
}

/// Holds all frames of the agent to their schema.
pub(crate) fn check(transcript: &Transcript) {
    let mut asked: HashMap<String, String> = HashMap::new();
    for frame in &transcript.frames {
        if frame.direction == Direction::ToAgent {
            if let (Some(id), Some(method)) = (frame.id(), frame.method()) {
                asked.insert(id.to_string(), method.to_owned());
            }
            continue;
        }
        let Some(json) = &frame.json else {
            panic!("not JSON: {}", frame.line)
        };
        if let Some(error) = json.get("error") {
            fits("error", error, &frame.line);
        } else if let Some(result) = json.get("result") {
            let method = asked
                .get(&json["id"].to_string())
                .map(String::as_str)
                .unwrap_or_default();
            fits(method, result, &frame.line);
        } else if frame.method() != Some("$/cancel_request") {
            fits(frame.method().unwrap(), &json["params"], &frame.line);
        }
    }
}

fn fits(name: &str, value: &Value, line: &str) {
    let Some(validator) = SCHEMAS.get(name) else {
        panic!("no schema for `{name}`: {line}")
    };
    if let Err(error) = validator.validate(value) {
        panic!("`{name}` does not fit: {error}\n{line}");
    }
}

#[test]
fn a_frame_that_does_not_fit_is_noticed() {
    let update = |update: Value| serde_json::json!({ "sessionId": "s", "update": update });
    let validator = &SCHEMAS["session/update"];
    assert!(validator.is_valid(&update(
        serde_json::json!({ "sessionUpdate": "plan", "entries": [] })
    )));
    assert!(!validator.is_valid(&update(serde_json::json!({ "sessionUpdate": "plan" }))));
    assert!(!validator.is_valid(&update(
        serde_json::json!({ "sessionUpdate": "tool_call", "title": "x" })
    )));
}
