//! A request as the Messages API wants it. The body borrows from the conversation: a long
//! history is written once and not copied before.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;

use crate::message::{Image, Message, NOT_SHOWN, Part, Role, ToolResult};
use crate::provider::{ModelError, Request, ThinkingLevel};
use crate::wire_id::wire_id;

/// Marks the signature of a thinking part that the provider sent encrypted, with its data
/// behind it: it has no text, and goes back as it came.
pub(super) const REDACTED: &str = "redacted_thinking:";

/// The output limit when the request sets none; all models that think allow it.
const MAX_OUTPUT: u32 = 32_000;
/// The same for the models before thinking.
const MAX_OUTPUT_OLD: u32 = 4_096;
/// The least budget that the API takes.
const LEAST_BUDGET: u32 = 1_024;

/// What a model's name says of its age, where that changes the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ModelAge {
    /// Before thinking.
    Old,
    /// Thinks within a budget of tokens.
    Budget,
    /// Decides itself how much to think, by an effort; newer ones refuse a budget.
    Adaptive,
}

impl ModelAge {
    /// Names are `claude-FAMILY-MAJOR-MINOR` or, before version 4, `claude-MAJOR-MINOR-FAMILY`,
    /// with a date or alias behind. An unknown name is taken for one with a budget.
    pub(super) fn of(model: &str) -> Self {
        let Some((_, name)) = model.rsplit_once("claude-") else {
            return Self::Budget;
        };
        let mut numbers = name
            .split(['-', '.', '@', ':'])
            .filter_map(|word| word.parse::<u32>().ok())
            .take_while(|number| *number < 1000);
        match (numbers.next(), numbers.next()) {
            (Some(3), None | Some(0..=6)) | (Some(0..=2), _) => Self::Old,
            (Some(4), Some(6..)) | (Some(5..), _) => Self::Adaptive,
            _ => Self::Budget,
        }
    }

    pub(super) fn thinks(self) -> bool {
        self != Self::Old
    }
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    max_tokens: u32,
    stream: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<Marked<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<Thinking>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<OutputConfig>,
    messages: Vec<Turn<'a>>,
}

#[derive(Serialize)]
struct Tool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Thinking {
    Enabled { budget_tokens: u32 },
    Adaptive { display: &'static str },
}

#[derive(Serialize)]
struct OutputConfig {
    effort: &'static str,
}

#[derive(Clone, Copy, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum CacheControl {
    Ephemeral,
}

#[derive(Serialize)]
struct Turn<'a> {
    role: &'static str,
    content: Vec<Marked<'a>>,
}

/// A block with the mark that ends a cached prefix.
#[derive(Serialize)]
struct Marked<'a> {
    #[serde(flatten)]
    block: Block<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block<'a> {
    Text {
        text: &'a str,
    },
    Thinking {
        thinking: &'a str,
        signature: &'a str,
    },
    RedactedThinking {
        data: &'a str,
    },
    Image {
        source: Source<'a>,
    },
    ToolUse {
        id: Cow<'a, str>,
        name: &'a str,
        input: &'a Value,
    },
    ToolResult {
        tool_use_id: Cow<'a, str>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        content: Vec<Block<'a>>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Source<'a> {
    Base64 { media_type: &'a str, data: &'a str },
}

/// The body of a request.
pub(super) fn body(provider: &str, request: &Request) -> Result<Bytes, ModelError> {
    let age = ModelAge::of(&request.model);
    let default = match age {
        ModelAge::Old => MAX_OUTPUT_OLD,
        ModelAge::Budget | ModelAge::Adaptive => MAX_OUTPUT,
    };
    let max_tokens = request.max_output.unwrap_or(default).max(1);
    let messages = request.conversation.messages();
    let (thinking, output_config) = if may_think(provider, messages) {
        thinking(age, request.thinking, max_tokens)
    } else {
        (None, None)
    };
    let mut tools: Vec<Tool<'_>> = request
        .tools
        .iter()
        .map(|tool| Tool {
            name: &tool.name,
            description: &tool.description,
            input_schema: &tool.parameters,
            cache_control: None,
        })
        .collect();
    if let Some(last) = tools.last_mut() {
        last.cache_control = Some(CacheControl::Ephemeral);
    }
    let system = if request.system.trim().is_empty() {
        Vec::new()
    } else {
        vec![Marked {
            block: Block::Text {
                text: &request.system,
            },
            cache_control: Some(CacheControl::Ephemeral),
        }]
    };
    let body = Body {
        model: &request.model,
        max_tokens,
        stream: true,
        system,
        tools,
        messages: turns(provider, messages, thinking.is_some()),
        thinking,
        output_config,
    };
    serde_json::to_vec(&body)
        .map(Bytes::from)
        .map_err(|error| ModelError::Protocol {
            provider: provider.to_owned(),
            message: format!("the request could not be written: {error}"),
        })
}

fn thinking(
    age: ModelAge,
    level: ThinkingLevel,
    max_tokens: u32,
) -> (Option<Thinking>, Option<OutputConfig>) {
    let (budget, effort) = match level {
        ThinkingLevel::Off => return (None, None),
        ThinkingLevel::Low => (4_096, "low"),
        ThinkingLevel::Medium => (10_240, "medium"),
        ThinkingLevel::High => (24_576, "high"),
    };
    match age {
        ModelAge::Old => (None, None),
        ModelAge::Adaptive => (
            // The newest models leave the text of their thinking out unless asked.
            Some(Thinking::Adaptive {
                display: "summarized",
            }),
            Some(OutputConfig { effort }),
        ),
        // The budget is a part of the output limit, and must leave room for the answer.
        ModelAge::Budget => {
            let budget = budget.min(max_tokens / 4 * 3);
            let thinking = (budget >= LEAST_BUDGET).then_some(Thinking::Enabled {
                budget_tokens: budget,
            });
            (thinking, None)
        }
    }
}

/// In the middle of a tool loop the API wants each answer to begin with its thinking. Where
/// the loop was begun without, or by another provider, it goes on without. The loop is what
/// stands after the last answer that made no calls.
fn may_think(provider: &str, messages: &[Arc<Message>]) -> bool {
    messages
        .iter()
        .rev()
        .filter(|message| message.role == Role::Assistant)
        .take_while(|message| {
            message
                .parts
                .iter()
                .any(|part| matches!(part, Part::ToolCall(_)))
        })
        .all(|message| {
            message
                .parts
                .first()
                .is_some_and(|part| thinking_block(provider, part).is_some())
        })
}

/// The thinking of this provider; what has no signature cannot be sent back.
fn thinking_block<'a>(own: &str, part: &'a Part) -> Option<Block<'a>> {
    let Part::Thinking {
        text,
        signature: Some(signature),
        provider,
    } = part
    else {
        return None;
    };
    (provider == own).then(|| match signature.strip_prefix(REDACTED) {
        Some(data) => Block::RedactedThinking { data },
        None => Block::Thinking {
            thinking: text,
            signature,
        },
    })
}

/// The conversation as turns of two sides. Tool results are the user's, all results of an
/// answer in one turn and before its other parts, as the API demands.
fn turns<'a>(provider: &str, messages: &'a [Arc<Message>], with_thinking: bool) -> Vec<Turn<'a>> {
    let mut turns: Vec<Turn<'a>> = Vec::new();
    for message in messages {
        let role = match message.role {
            Role::User | Role::Tool => "user",
            Role::Assistant => "assistant",
        };
        let mut blocks: Vec<Marked<'a>> = message
            .parts
            .iter()
            .filter_map(|part| block(provider, part, with_thinking))
            .map(|block| Marked {
                block,
                cache_control: None,
            })
            .collect();
        // The API refuses an answer that ends with its thinking, as one does whose text is
        // blank or that the length limit cut; each later request would be refused with it.
        while blocks.last().is_some_and(|last| is_thinking(&last.block)) {
            blocks.pop();
        }
        if blocks.is_empty() {
            continue;
        }
        match turns.last_mut() {
            Some(last) if last.role == role => last.content.extend(blocks),
            _ => turns.push(Turn {
                role,
                content: blocks,
            }),
        }
    }
    for turn in &mut turns {
        // A stable sort: results keep their order, and so does the rest.
        turn.content
            .sort_by_key(|marked| turn.role == "user" && !is_result(&marked.block));
    }
    // The end of the request and the end of the one before it: the first is written to the
    // cache, the second is read even when many results came in between.
    for turn in turns
        .iter_mut()
        .rev()
        .filter(|turn| turn.role == "user")
        .take(2)
    {
        if let Some(last) = turn.content.last_mut() {
            last.cache_control = Some(CacheControl::Ephemeral);
        }
    }
    turns
}

fn is_thinking(block: &Block<'_>) -> bool {
    matches!(
        block,
        Block::Thinking { .. } | Block::RedactedThinking { .. }
    )
}

fn is_result(block: &Block<'_>) -> bool {
    matches!(block, Block::ToolResult { .. })
}

fn block<'a>(provider: &str, part: &'a Part, with_thinking: bool) -> Option<Block<'a>> {
    match part {
        Part::Text(text) => text_block(text),
        Part::Thinking { .. } if with_thinking => thinking_block(provider, part),
        Part::Thinking { .. } => None,
        Part::Image(image) => Some(image_block(image)),
        Part::ToolCall(call) => Some(Block::ToolUse {
            id: wire_id(&call.id),
            name: &call.name,
            input: &call.args,
        }),
        Part::ToolResult(result) => Some(result_block(result)),
    }
}

/// The API refuses texts without a visible character.
fn text_block(text: &str) -> Option<Block<'_>> {
    (!text.trim().is_empty()).then_some(Block::Text { text })
}

fn image_block(image: &Image) -> Block<'_> {
    if !image.can_be_sent() {
        return Block::Text { text: NOT_SHOWN };
    }
    Block::Image {
        source: Source::Base64 {
            media_type: &image.mime_type,
            data: &image.base64,
        },
    }
}

fn result_block(result: &ToolResult) -> Block<'_> {
    let (Ok(text) | Err(text)) = &result.content;
    Block::ToolResult {
        tool_use_id: wire_id(&result.call_id),
        content: text_block(text)
            .into_iter()
            .chain(result.images.iter().map(image_block))
            .collect(),
        is_error: result.content.is_err(),
    }
}
