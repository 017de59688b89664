//! An answer of the Messages API as it streams in. Event and block types that are not
//! known are passed over, as the API asks of its clients.

use serde_json::Value;

use super::request::REDACTED;
use crate::calls::{CallIds, OpenCall, finish_calls, settle};
use crate::failure::ErrorBody;
use crate::http::{Decode, DecodeError, Progress};
use crate::provider::{StopReason, StreamEvent, Usage};
use crate::sse::SseEvent;

/// What the arguments of one call may weigh.
const MAX_ARGUMENTS: usize = crate::sse::MAX_EVENT_BYTES;

pub(super) struct Decoder {
    ids: CallIds,
    open: Option<Open>,
    calls: Vec<OpenCall>,
    usage: Usage,
    stop: Option<StopReason>,
    /// `message_stop` came.
    whole: bool,
}

/// The block that is being written, with its index.
struct Open {
    index: u64,
    block: OpenBlock,
}

enum OpenBlock {
    Thinking {
        signature: String,
    },
    Redacted {
        data: String,
    },
    /// The last of `calls`; `given` is an input that came with the start of the block.
    Call {
        given: Option<String>,
    },
    Other,
}

impl Decoder {
    pub(super) fn new(ids: CallIds) -> Self {
        Self {
            ids,
            open: None,
            calls: Vec::new(),
            usage: Usage::default(),
            stop: None,
            whole: false,
        }
    }

    fn start_block(&mut self, value: &Value, out: &mut Vec<StreamEvent>) {
        self.stop_block(out);
        let start = value.get("content_block").unwrap_or(&Value::Null);
        let block = match text(start, "type") {
            "text" => {
                push_text(out, text(start, "text"), StreamEvent::Text);
                OpenBlock::Other
            }
            "thinking" => {
                push_text(out, text(start, "thinking"), StreamEvent::Thinking);
                OpenBlock::Thinking {
                    signature: text(start, "signature").to_owned(),
                }
            }
            "redacted_thinking" => OpenBlock::Redacted {
                data: text(start, "data").to_owned(),
            },
            "tool_use" => {
                let call = OpenCall {
                    id: self.ids.assign(start.get("id").and_then(Value::as_str)),
                    name: text(start, "name").to_owned(),
                    json: String::new(),
                };
                out.push(StreamEvent::ToolCallStart {
                    id: call.id.clone(),
                    name: call.name.clone(),
                });
                self.calls.push(call);
                // Some servers send the whole input here and no pieces after it.
                let given = start
                    .get("input")
                    .filter(|input| {
                        !input.is_null() && *input != &Value::Object(serde_json::Map::new())
                    })
                    .map(Value::to_string);
                OpenBlock::Call { given }
            }
            _ => OpenBlock::Other,
        };
        let index = value
            .get("index")
            .and_then(Value::as_u64)
            .unwrap_or_default();
        self.open = Some(Open { index, block });
    }

    fn delta(&mut self, value: &Value, out: &mut Vec<StreamEvent>) -> Result<(), DecodeError> {
        let delta = value.get("delta").unwrap_or(&Value::Null);
        let index = value
            .get("index")
            .and_then(Value::as_u64)
            .unwrap_or_default();
        let open = self.open.as_mut().filter(|open| open.index == index);
        match (text(delta, "type"), open.map(|open| &mut open.block)) {
            ("text_delta", _) => push_text(out, text(delta, "text"), StreamEvent::Text),
            ("thinking_delta", _) => {
                push_text(out, text(delta, "thinking"), StreamEvent::Thinking);
            }
            ("signature_delta", Some(OpenBlock::Thinking { signature })) => {
                signature.push_str(text(delta, "signature"));
            }
            ("input_json_delta", Some(OpenBlock::Call { .. })) => {
                let json = text(delta, "partial_json");
                if let Some(call) = self.calls.last_mut().filter(|_| !json.is_empty()) {
                    if call.json.len() + json.len() > MAX_ARGUMENTS {
                        return Err(DecodeError::Protocol("a call is too large".to_owned()));
                    }
                    call.json.push_str(json);
                    out.push(StreamEvent::ToolCallDelta {
                        id: call.id.clone(),
                        json: json.to_owned(),
                    });
                }
            }
            ("input_json_delta", _) => {
                return Err(DecodeError::Protocol(
                    "a piece of arguments belongs to no open call".to_owned(),
                ));
            }
            _ => {}
        }
        Ok(())
    }

    fn stop_block(&mut self, out: &mut Vec<StreamEvent>) {
        match self.open.take().map(|open| open.block) {
            Some(OpenBlock::Thinking { signature }) => out.push(StreamEvent::ThinkingEnd {
                signature: Some(signature).filter(|signature| !signature.is_empty()),
            }),
            Some(OpenBlock::Redacted { data }) => out.push(StreamEvent::ThinkingEnd {
                signature: Some(format!("{REDACTED}{data}")),
            }),
            Some(OpenBlock::Call { given: Some(json) }) => {
                if let Some(call) = self.calls.last_mut().filter(|call| call.json.is_empty()) {
                    out.push(StreamEvent::ToolCallDelta {
                        id: call.id.clone(),
                        json: json.clone(),
                    });
                    call.json = json;
                }
            }
            _ => {}
        }
    }

    /// Figures are totals so far; one that is missing keeps its last value.
    fn take_usage(&mut self, usage: Option<&Value>, out: &mut Vec<StreamEvent>) {
        let Some(usage) = usage.filter(|usage| usage.is_object()) else {
            return;
        };
        let number = |key: &str| usage.get(key).and_then(Value::as_u64);
        let cached = self
            .usage
            .cached_read
            .saturating_add(self.usage.cached_write);
        let plain = self.usage.input.saturating_sub(cached);
        let plain = number("input_tokens").unwrap_or(plain);
        let now = &mut self.usage;
        now.cached_read = number("cache_read_input_tokens").unwrap_or(now.cached_read);
        now.cached_write = number("cache_creation_input_tokens").unwrap_or(now.cached_write);
        now.input = plain
            .saturating_add(now.cached_read)
            .saturating_add(now.cached_write);
        now.output = number("output_tokens").unwrap_or(now.output);
        now.thinking = usage
            .pointer("/output_tokens_details/thinking_tokens")
            .and_then(Value::as_u64)
            .unwrap_or(now.thinking);
        out.push(StreamEvent::Usage(*now));
    }

    fn take_stop(&mut self, reason: Option<&Value>) {
        let Some(reason) = reason.and_then(Value::as_str) else {
            return;
        };
        self.stop = Some(match reason {
            "end_turn" | "stop_sequence" => StopReason::End,
            "tool_use" => StopReason::ToolUse,
            // A paused turn is for tools of the provider's own, which are never asked for:
            // like a full context it means that the answer is not at its end.
            "max_tokens" | "model_context_window_exceeded" | "pause_turn" => StopReason::Length,
            "refusal" => StopReason::Refusal,
            other => {
                tracing::warn!(
                    reason = other,
                    "an unknown stop reason is taken for the end"
                );
                StopReason::End
            }
        });
    }
}

impl Decode for Decoder {
    fn event(
        &mut self,
        event: &SseEvent,
        out: &mut Vec<StreamEvent>,
    ) -> Result<Progress, DecodeError> {
        let value: Value = match serde_json::from_str(&event.data) {
            Ok(value) => value,
            Err(_) if event.event == "ping" => return Ok(Progress::More),
            Err(error) => {
                return Err(DecodeError::Protocol(format!(
                    "an event is no JSON ({error})"
                )));
            }
        };
        let kind = match text(&value, "type") {
            "" => event.event.as_str(),
            kind => kind,
        };
        match kind {
            "message_start" => self.take_usage(value.pointer("/message/usage"), out),
            "content_block_start" => self.start_block(&value, out),
            "content_block_delta" => self.delta(&value, out)?,
            "content_block_stop" => self.stop_block(out),
            "message_delta" => {
                self.take_stop(value.pointer("/delta/stop_reason"));
                self.take_usage(value.get("usage"), out);
            }
            "message_stop" => {
                self.whole = true;
                return Ok(Progress::Done);
            }
            "error" => {
                return Err(DecodeError::Reported(
                    ErrorBody::of(&value).unwrap_or_default(),
                ));
            }
            _ => {
                if event.event.is_empty()
                    && value.get("error").is_some_and(|error| !error.is_null())
                {
                    return Err(DecodeError::Reported(
                        ErrorBody::of(&value).unwrap_or_default(),
                    ));
                }
            }
        }
        Ok(Progress::More)
    }

    fn end(&mut self, out: &mut Vec<StreamEvent>) -> Result<(), DecodeError> {
        if !self.whole {
            return Err(DecodeError::Unfinished);
        }
        self.stop_block(out);
        let stop = settle(self.stop.unwrap_or(StopReason::End), !self.calls.is_empty());
        finish_calls(std::mem::take(&mut self.calls).into_iter(), stop, out);
        out.push(StreamEvent::Stop(stop));
        Ok(())
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn push_text(out: &mut Vec<StreamEvent>, text: &str, event: impl Fn(String) -> StreamEvent) {
    if !text.is_empty() {
        out.push(event(text.to_owned()));
    }
}
