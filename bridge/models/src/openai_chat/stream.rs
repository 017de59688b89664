//! An answer of a Chat Completions server as it streams in.

use serde_json::Value;

use super::fragments::Fragments;
use crate::calls::{CallIds, finish_calls, settle};
use crate::failure::ErrorBody;
use crate::http::{Decode, DecodeError, Progress};
use crate::provider::{StopReason, StreamEvent, Usage};
use crate::sse::SseEvent;

pub(super) struct Decoder {
    fragments: Fragments,
    thinking: bool,
    usage: Option<Usage>,
    stop: Option<StopReason>,
    /// `[DONE]` came.
    done: bool,
    /// Anything of an answer came.
    begun: bool,
}

impl Decoder {
    pub(super) fn new(ids: CallIds) -> Self {
        Self {
            fragments: Fragments::new(ids),
            thinking: false,
            usage: None,
            stop: None,
            done: false,
            begun: false,
        }
    }

    fn choice(&mut self, choice: &Value, out: &mut Vec<StreamEvent>) -> Result<(), DecodeError> {
        if let Some(error) = choice.get("error").filter(|error| !error.is_null()) {
            return Err(reported(error));
        }
        // A server that does not stream sends the same under another name.
        let delta = ["delta", "message"]
            .iter()
            .find_map(|key| choice.get(key))
            .unwrap_or(&Value::Null);
        let thought = thought_of(delta);
        if !thought.is_empty() {
            self.thinking = true;
            out.push(StreamEvent::Thinking(thought));
        }
        let mut thought_inside = String::new();
        let mut said = String::new();
        read_content(delta.get("content"), &mut said, &mut thought_inside);
        if !thought_inside.is_empty() {
            self.thinking = true;
            out.push(StreamEvent::Thinking(thought_inside));
        }
        let refusal = text(delta, "refusal");
        said.push_str(refusal);
        if !said.is_empty() {
            self.end_thinking(out);
            self.begun = true;
            out.push(StreamEvent::Text(said));
        }
        if let Some(Value::Array(fragments)) = delta.get("tool_calls")
            && !fragments.is_empty()
        {
            self.end_thinking(out);
            self.begun = true;
            for fragment in fragments {
                self.fragments.take(fragment, out)?;
            }
        }
        if let Some(reason) = choice.get("finish_reason").and_then(Value::as_str) {
            self.finish(reason)?;
        }
        if !refusal.is_empty() {
            self.stop = Some(StopReason::Refusal);
        }
        Ok(())
    }

    fn finish(&mut self, reason: &str) -> Result<(), DecodeError> {
        // The first reason counts, except that a server may repeat it as it closes.
        let stop = match reason {
            "" => return Ok(()),
            "stop" | "eos" | "end_turn" | "stop_sequence" => StopReason::End,
            "tool_calls" | "function_call" | "tool_use" => StopReason::ToolUse,
            "length" | "max_tokens" | "model_length" => StopReason::Length,
            "content_filter" | "refusal" | "safety" => StopReason::Refusal,
            "error" | "insufficient_system_resource" => {
                return Err(DecodeError::Reported(ErrorBody {
                    message: "the provider broke the answer off".to_owned(),
                    status: Some(503),
                    ..ErrorBody::default()
                }));
            }
            other => {
                tracing::warn!(
                    reason = other,
                    "an unknown finish reason is taken for the end"
                );
                StopReason::End
            }
        };
        self.stop.get_or_insert(stop);
        Ok(())
    }

    fn end_thinking(&mut self, out: &mut Vec<StreamEvent>) {
        if std::mem::take(&mut self.thinking) {
            self.begun = true;
            out.push(StreamEvent::ThinkingEnd { signature: None });
        }
    }

    fn take_usage(&mut self, value: &Value) {
        let usage = match value.get("usage") {
            Some(usage) if usage.is_object() => usage,
            _ => match value.pointer("/x_groq/usage") {
                Some(usage) if usage.is_object() => usage,
                _ => return,
            },
        };
        let number = |paths: &[&str]| {
            paths
                .iter()
                .find_map(|path| usage.pointer(path).and_then(Value::as_u64))
                .unwrap_or_default()
        };
        let cost = usage.get("cost").and_then(|cost| match cost {
            Value::String(cost) => cost.parse().ok(),
            cost => cost.as_f64(),
        });
        self.usage = Some(Usage {
            input: number(&["/prompt_tokens"]),
            output: number(&["/completion_tokens"]),
            cached_read: number(&[
                "/prompt_tokens_details/cached_tokens",
                "/prompt_cache_hit_tokens",
            ]),
            cached_write: number(&["/prompt_tokens_details/cache_write_tokens"]),
            thinking: number(&["/completion_tokens_details/reasoning_tokens"]),
            cost: cost.filter(|cost: &f64| cost.is_finite()),
        });
    }
}

impl Decode for Decoder {
    fn event(
        &mut self,
        event: &SseEvent,
        out: &mut Vec<StreamEvent>,
    ) -> Result<Progress, DecodeError> {
        let data = event.data.trim();
        if data == "[DONE]" {
            self.done = true;
            return Ok(Progress::Done);
        }
        if data.is_empty() {
            return Ok(Progress::More);
        }
        let value: Value = serde_json::from_str(data)
            .map_err(|error| DecodeError::Protocol(format!("a chunk is no JSON ({error})")))?;
        let failed = value.get("error").is_some_and(|error| !error.is_null());
        if failed || event.event == "error" {
            return Err(reported(&value));
        }
        self.take_usage(&value);
        let choices = value.get("choices").and_then(Value::as_array);
        for choice in choices.into_iter().flatten() {
            // Only one answer is asked for.
            if choice.get("index").and_then(Value::as_u64).unwrap_or(0) == 0 {
                self.choice(choice, out)?;
            }
        }
        Ok(if self.stop.is_some() {
            Progress::Whole
        } else {
            Progress::More
        })
    }

    fn end(&mut self, out: &mut Vec<StreamEvent>) -> Result<(), DecodeError> {
        self.end_thinking(out);
        let stop = match self.stop {
            Some(stop) => stop,
            None if self.done && self.begun => StopReason::End,
            None if self.done => {
                return Err(DecodeError::Protocol("its answer holds nothing".to_owned()));
            }
            None => return Err(DecodeError::Unfinished),
        };
        let calls = self.fragments.finish(out);
        let stop = settle(stop, !calls.is_empty());
        finish_calls(calls.into_iter(), stop, out);
        out.extend(self.usage.map(StreamEvent::Usage));
        out.push(StreamEvent::Stop(stop));
        Ok(())
    }
}

fn reported(value: &Value) -> DecodeError {
    DecodeError::Reported(ErrorBody::of(value).unwrap_or_default())
}

/// The thinking in a delta, under whichever of its names the server uses; those that send
/// it under several send the same text.
fn thought_of(delta: &Value) -> String {
    let plain = ["reasoning_content", "reasoning"]
        .iter()
        .map(|key| text(delta, key))
        .find(|text| !text.is_empty());
    if let Some(plain) = plain {
        return plain.to_owned();
    }
    let details = delta.get("reasoning_details").and_then(Value::as_array);
    details
        .into_iter()
        .flatten()
        .map(|detail| match text(detail, "text") {
            "" => text(detail, "summary"),
            text => text,
        })
        .collect()
}

/// Content is a text, or with some servers a list of typed pieces.
fn read_content(content: Option<&Value>, said: &mut String, thought: &mut String) {
    match content {
        Some(Value::String(text)) => said.push_str(text),
        Some(Value::Array(pieces)) => {
            for piece in pieces {
                match piece.get("thinking") {
                    Some(inner) => {
                        let mut none = String::new();
                        read_content(Some(inner), thought, &mut none);
                    }
                    None => said.push_str(text(piece, "text")),
                }
            }
        }
        _ => {}
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}
