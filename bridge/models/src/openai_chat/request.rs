//! A request as Chat Completions servers take it. The body borrows from the conversation.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;

use crate::message::{Image, Message, NOT_SHOWN, Part, Role};
use crate::provider::{ModelError, Request, ThinkingLevel};
use crate::wire_id::wire_id;

/// Servers whose dialect differs where it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Server {
    OpenAi,
    OpenRouter,
    Other,
}

impl Server {
    pub(super) fn of(base_url: &str) -> Self {
        let host = reqwest::Url::parse(base_url)
            .ok()
            .and_then(|url| url.host_str().map(str::to_owned))
            .unwrap_or_default();
        match host.as_str() {
            "api.openai.com" => Self::OpenAi,
            "openrouter.ai" => Self::OpenRouter,
            _ => Self::Other,
        }
    }
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    stream: bool,
    stream_options: StreamOptions,
    /// OpenRouter's own switch for the cost of a request.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Include>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    messages: Vec<Wire<'a>>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
struct Include {
    include: bool,
}

#[derive(Serialize)]
#[serde(tag = "type", content = "function", rename_all = "snake_case")]
enum Tool<'a> {
    Function {
        name: &'a str,
        description: &'a str,
        parameters: &'a Value,
    },
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "snake_case")]
enum Wire<'a> {
    System {
        content: &'a str,
    },
    User {
        content: Content<'a>,
    },
    Assistant {
        content: Option<Cow<'a, str>>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<Call<'a>>,
    },
    Tool {
        tool_call_id: Cow<'a, str>,
        content: Cow<'a, str>,
    },
}

/// A text where there is nothing else, since many servers take only that.
#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Text(Cow<'a, str>),
    Pieces(Vec<Piece<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Piece<'a> {
    Text { text: &'a str },
    ImageUrl { image_url: ImageUrl },
}

#[derive(Serialize)]
struct ImageUrl {
    url: String,
}

#[derive(Serialize)]
struct Call<'a> {
    id: Cow<'a, str>,
    r#type: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    arguments: String,
}

/// The body of a request.
pub(super) fn body(provider: &str, server: Server, request: &Request) -> Result<Bytes, ModelError> {
    let openai = server == Server::OpenAi;
    let body = Body {
        model: &request.model,
        stream: true,
        stream_options: StreamOptions {
            include_usage: true,
        },
        usage: (server == Server::OpenRouter).then_some(Include { include: true }),
        // OpenAI's models that think refuse the older name; other servers know no other.
        max_tokens: request.max_output.filter(|_| !openai),
        max_completion_tokens: request.max_output.filter(|_| openai),
        reasoning_effort: match request.thinking {
            ThinkingLevel::Off => None,
            level => Some(level.name()),
        },
        tools: request
            .tools
            .iter()
            .map(|tool| Tool::Function {
                name: &tool.name,
                description: &tool.description,
                parameters: &tool.parameters,
            })
            .collect(),
        messages: messages(request),
    };
    serde_json::to_vec(&body)
        .map(Bytes::from)
        .map_err(|error| ModelError::Protocol {
            provider: provider.to_owned(),
            message: format!("the request could not be written: {error}"),
        })
}

fn messages(request: &Request) -> Vec<Wire<'_>> {
    let mut wire = Vec::new();
    if !request.system.trim().is_empty() {
        wire.push(Wire::System {
            content: &request.system,
        });
    }
    // What the user's side says until the next answer: some servers insist that the sides
    // take turns, and images of tool results have no place but after all the results.
    let mut pieces = Vec::new();
    // An image may stand in the history of a session whose model was changed, or come from
    // a tool: a server whose model is blind refuses the whole request.
    let sees = super::known(&request.model.to_lowercase()).images;
    for message in request.conversation.messages() {
        match message.role {
            Role::User => pieces.extend(message.parts.iter().filter_map(|part| piece(part, sees))),
            Role::Tool => results(message, sees, &mut wire, &mut pieces),
            Role::Assistant => {
                flush(&mut pieces, &mut wire);
                wire.extend(answer(message));
            }
        }
    }
    flush(&mut pieces, &mut wire);
    wire
}

fn piece(part: &Part, sees: bool) -> Option<Piece<'_>> {
    match part {
        Part::Text(text) => Some(Piece::Text { text }).filter(|_| !text.is_empty()),
        Part::Image(image) => Some(image_piece(image, sees)),
        Part::Thinking { .. } | Part::ToolCall(_) | Part::ToolResult(_) => None,
    }
}

fn image_piece(image: &Image, sees: bool) -> Piece<'_> {
    if !sees || !image.can_be_sent() {
        return Piece::Text { text: NOT_SHOWN };
    }
    Piece::ImageUrl {
        image_url: ImageUrl {
            url: format!("data:{};base64,{}", image.mime_type, image.base64),
        },
    }
}

fn results<'a>(
    message: &'a Arc<Message>,
    sees: bool,
    wire: &mut Vec<Wire<'a>>,
    pieces: &mut Vec<Piece<'a>>,
) {
    for part in &message.parts {
        let Part::ToolResult(result) = part else {
            continue;
        };
        wire.push(Wire::Tool {
            tool_call_id: wire_id(&result.call_id),
            content: match &result.content {
                Ok(text) => Cow::Borrowed(text.as_str()),
                Err(text) => Cow::Owned(format!("Error: {text}")),
            },
        });
        if !result.images.is_empty() {
            pieces.push(Piece::Text {
                text: "Images of the tool result:",
            });
            pieces.extend(result.images.iter().map(|image| image_piece(image, sees)));
        }
    }
}

fn flush<'a>(pieces: &mut Vec<Piece<'a>>, wire: &mut Vec<Wire<'a>>) {
    if pieces.is_empty() {
        return;
    }
    let pieces = std::mem::take(pieces);
    let texts: Option<Vec<&'a str>> = pieces
        .iter()
        .map(|piece| match piece {
            Piece::Text { text } => Some(*text),
            Piece::ImageUrl { .. } => None,
        })
        .collect();
    let content = match texts.as_deref() {
        Some([text]) => Content::Text(Cow::Borrowed(text)),
        Some(texts) => Content::Text(Cow::Owned(texts.join("\n\n"))),
        None => Content::Pieces(pieces),
    };
    wire.push(Wire::User { content });
}

/// An answer without text and calls (thinking alone) is left out: servers refuse it.
fn answer(message: &Message) -> Option<Wire<'_>> {
    let mut texts = message.parts.iter().filter_map(|part| match part {
        Part::Text(text) if !text.is_empty() => Some(text.as_str()),
        _ => None,
    });
    let content = texts.next().map(|first| {
        texts.fold(Cow::Borrowed(first), |mut all, text| {
            all.to_mut().push_str(text);
            all
        })
    });
    let tool_calls: Vec<Call<'_>> = message
        .parts
        .iter()
        .filter_map(|part| match part {
            Part::ToolCall(call) => Some(Call {
                id: wire_id(&call.id),
                r#type: "function",
                function: Function {
                    name: &call.name,
                    arguments: call.args.to_string(),
                },
            }),
            _ => None,
        })
        .collect();
    (content.is_some() || !tool_calls.is_empty()).then_some(Wire::Assistant {
        content,
        tool_calls,
    })
}
