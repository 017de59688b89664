//! What several test modules share.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use serde_json::json;

use crate::http::{Decode, DecodeError, Progress};
use crate::message::{Conversation, Image, Message, Part, Role, ToolCall, ToolResult, ToolSpec};
use crate::provider::{Request, StreamEvent, ThinkingLevel};
use crate::sse::SseParser;

/// Feeds a body to a decoder in pieces of `size` bytes, as the reading of an answer does.
pub(crate) fn decode(
    mut decoder: impl Decode,
    body: &[u8],
    size: usize,
) -> (Vec<StreamEvent>, Result<(), DecodeError>) {
    let mut parser = SseParser::default();
    let mut out = Vec::new();
    let mut events = Vec::new();
    'reading: for piece in body.chunks(size) {
        parser.push(piece, &mut events).unwrap();
        for event in events.drain(..) {
            match decoder.event(&event, &mut out) {
                Ok(Progress::Done) => break 'reading,
                Ok(_) => {}
                Err(error) => return (out, Err(error)),
            }
        }
    }
    let ended = decoder.end(&mut out);
    (out, ended)
}

/// The events of a body that must be whole, the same for any size of its pieces.
pub(crate) fn decode_whole<D: Decode>(decoder: impl Fn() -> D, body: &str) -> Vec<StreamEvent> {
    let (whole, ended) = decode(decoder(), body.as_bytes(), usize::MAX);
    ended.unwrap();
    for size in [1, 2, 3, 7, 61] {
        assert_eq!(decode(decoder(), body.as_bytes(), size).0, whole);
    }
    whole
}

pub(crate) fn image() -> Image {
    Image {
        mime_type: "image/png".to_owned(),
        base64: "aW1n".into(),
        digest: "00".repeat(32),
    }
}

fn thinking(provider: &str, text: &str, signature: Option<&str>) -> Part {
    Part::Thinking {
        text: text.to_owned(),
        signature: signature.map(str::to_owned),
        provider: provider.to_owned(),
    }
}

fn call(id: &str, name: &str, args: serde_json::Value) -> Part {
    Part::ToolCall(ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        args,
    })
}

fn result(id: &str, content: Result<&str, &str>, images: Vec<Image>) -> Arc<Message> {
    Arc::new(Message {
        role: Role::Tool,
        parts: vec![Part::ToolResult(ToolResult {
            call_id: id.to_owned(),
            content: content.map(str::to_owned).map_err(str::to_owned),
            images,
        })],
    })
}

fn message(role: Role, parts: Vec<Part>) -> Arc<Message> {
    Arc::new(Message { role, parts })
}

/// A conversation with every kind of part, from two providers, in the middle of a loop.
pub(crate) fn every_part() -> Conversation {
    [
        message(
            Role::User,
            vec![
                Part::Text("Look at this.".to_owned()),
                Part::Image(image()),
                Part::Text(" \n".to_owned()),
            ],
        ),
        message(
            Role::Assistant,
            vec![
                thinking("elsewhere", "Not to be sent.", Some("sig")),
                Part::Text("An answer of another model.".to_owned()),
            ],
        ),
        Arc::new(Message::user("Go on.")),
        message(
            Role::Assistant,
            vec![
                thinking("anthropic", "Two files.", Some("c2ln")),
                thinking("anthropic", "", Some("redacted_thinking:b3BhcXVl")),
                thinking("anthropic", "Without a signature.", None),
                Part::Text("I read both.".to_owned()),
                call("toolu_1", "Read", json!({"file_path": "a.txt"})),
                call("functions.Shot:1", "Shot", json!({})),
                call("toolu_3", "Bash", json!({"command": "false"})),
            ],
        ),
        result("toolu_1", Ok("one\n"), vec![]),
        result("functions.Shot:1", Ok(""), vec![image()]),
        result("toolu_3", Err("exit status 1"), vec![]),
        Arc::new(Message::user("And hurry.")),
    ]
    .into_iter()
    .collect()
}

/// A request with that conversation, tools and a system prompt.
pub(crate) fn request(model: &str, conversation: Conversation) -> Request {
    let tool = |name: &str| ToolSpec {
        name: name.to_owned(),
        description: format!("Does {name}."),
        parameters: json!({"type": "object", "properties": {"file_path": {"type": "string"}}}),
    };
    Request {
        model: model.to_owned(),
        system: "Be brief.".into(),
        tools: vec![tool("Read"), tool("Bash")].into(),
        conversation,
        thinking: ThinkingLevel::Off,
        max_output: None,
    }
}

/// What was called, as `id name args` or `id name !`.
pub(crate) fn calls_of(events: &[StreamEvent]) -> Vec<String> {
    events
        .iter()
        .filter_map(|event| match event {
            StreamEvent::ToolCallEnd(Ok(call)) => {
                Some(format!("{} {} {}", call.id, call.name, call.args))
            }
            StreamEvent::ToolCallEnd(Err(bad)) => Some(format!("{} {} !", bad.id, bad.name)),
            _ => None,
        })
        .collect()
}
