//! Which strings of an event are scrubbed, and how.
//!
//! The match names every field of every event, so that a new one does not compile until
//! somebody has decided about it.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::Rules;
use crate::event::{Allowance, FileChange, Part, Payload, PromptBlock, ToolSchema};
use crate::strict_json::MAX_DEPTH;

pub(super) fn scrubbed(rules: &Rules, mut payload: Payload) -> Payload {
    walk(rules, &mut payload);
    payload
}

fn walk(rules: &Rules, payload: &mut Payload) {
    match payload {
        Payload::SessionCreated {
            parent_id: _,
            root_id: _,
            depth: _,
            call_id: _,
            cwd,
            additional_directories,
        } => {
            place(rules, cwd);
            places(rules, additional_directories);
        }
        Payload::SessionForked {
            from: _,
            boundary: _,
        }
        | Payload::TurnStart { agent: _ }
        | Payload::StepEnd { n: _, usage: _ }
        | Payload::PolicyUpdated { patterns: _ } => {}
        Payload::SessionTitled { title } => text(rules, title),
        Payload::SessionCompacted {
            upto_seq: _,
            summary,
        } => text(rules, summary),
        Payload::TurnEnd { status: _, reason } => optional(rules, reason),
        Payload::StepStart { n: _, model } => place(rules, model),
        Payload::UserMessage {
            text: said,
            images: _,
            blocks,
        }
        | Payload::ContextInjected {
            text: said,
            images: _,
            blocks,
            source: _,
        } => {
            text(rules, said);
            blocks.iter_mut().for_each(|found| block(rules, found));
        }
        Payload::AssistantChunk { text: said }
        | Payload::AssistantThought { text: said }
        | Payload::CommandRun { text: said }
        | Payload::ToolOutput { id: _, text: said }
        | Payload::NoticeShown {
            severity: _,
            text: said,
        } => text(rules, said),
        Payload::AssistantMessage { parts, partial: _ } => {
            parts.iter_mut().for_each(|found| part(rules, found));
        }
        Payload::ToolCall { id: _, name, args } => {
            text(rules, name);
            value(rules, args);
        }
        Payload::ToolResult {
            id: _,
            content,
            error,
            images: _,
        } => {
            optional(rules, content);
            optional(rules, error);
        }
        Payload::FileSeen {
            call_id: _,
            path,
            hash: _,
        } => place(rules, path),
        Payload::FileChanged { call_id: _, change } => changed(rules, change),
        Payload::JobStarted {
            id: _,
            call_id: _,
            command,
            description,
            keep: _,
        } => {
            text(rules, command);
            optional(rules, description);
        }
        Payload::JobProgress {
            id: _,
            call_id: _,
            tail,
            written: _,
            notes,
        }
        | Payload::JobEnded {
            id: _,
            call_id: _,
            outcome: _,
            ran_for: _,
            written: _,
            dropped: _,
            tail,
            notes,
        } => {
            notes.iter_mut().for_each(|note| text(rules, note));
            // It begins, and while the job runs also ends, at any place of the output.
            if let Cow::Owned(clean) = rules.excerpt(tail) {
                *tail = clean;
            }
        }
        Payload::JobCollected {
            call_id: _,
            id: _,
            upto: _,
            ended: _,
        } => {}
        Payload::ApprovalRequested {
            id: _,
            call_id: _,
            name,
            args,
            title,
            reason,
            preview,
            offered_rule,
            stage: _,
        } => {
            text(rules, name);
            value(rules, args);
            text(rules, title);
            text(rules, reason);
            preview.iter_mut().for_each(|found| changed(rules, found));
            optional(rules, offered_rule);
        }
        Payload::ApprovalResolved {
            id: _,
            call_id: _,
            verdict: _,
            reason,
            by,
            scope: _,
        } => {
            optional(rules, reason);
            place(rules, by);
        }
        Payload::RuleAdded {
            id: _,
            rule,
            effect: _,
            by,
            approval: _,
            expires: _,
        } => {
            text(rules, rule);
            place(rules, by);
        }
        Payload::ToolStarted { id: _, allowed } => {
            if let Some(Allowance::Rule { layer: _, rule }) = allowed {
                text(rules, rule);
            }
        }
        Payload::RuleRemoved { id: _, by } | Payload::PlanCleared { by } => place(rules, by),
        Payload::RequestFrame { system, tools } => {
            text(rules, system);
            tools.iter_mut().for_each(|found| schema(rules, found));
        }
        Payload::OptionSet {
            option: _,
            value,
            by,
        } => {
            place(rules, value);
            place(rules, by);
        }
        Payload::RootsSet {
            additional_directories,
        } => places(rules, additional_directories),
        Payload::LogRepaired {
            kept_aside,
            dropped_bytes: _,
        } => place(rules, kept_aside),
    }
}

fn part(rules: &Rules, part: &mut Part) {
    match part {
        Part::Text { text: said } => text(rules, said),
        Part::Thinking {
            text: said,
            signature,
            provider: _,
        } => {
            // A signature vouches for the text as it was: a provider would refuse both.
            if let Cow::Owned(clean) = rules.text(said) {
                *said = clean;
                *signature = None;
            }
        }
        Part::ToolCall { id: _, name, args } => {
            text(rules, name);
            value(rules, args);
        }
        Part::ToolResult {
            id: _,
            content,
            error,
            images: _,
        } => {
            optional(rules, content);
            optional(rules, error);
        }
        Part::Image { image: _ } => {}
    }
}

fn block(rules: &Rules, block: &mut PromptBlock) {
    match block {
        PromptBlock::Text { text: said } => text(rules, said),
        PromptBlock::ResourceLink { uri, name } => {
            text(rules, uri);
            text(rules, name);
        }
        PromptBlock::Resource {
            uri,
            mime_type: _,
            text: said,
        } => {
            text(rules, uri);
            text(rules, said);
        }
        PromptBlock::Image { image: _ } => {}
    }
}

fn schema(rules: &Rules, schema: &mut ToolSchema) {
    let ToolSchema {
        name,
        description,
        parameters,
    } = schema;
    text(rules, name);
    text(rules, description);
    value(rules, parameters);
}

fn changed(rules: &Rules, change: &mut FileChange) {
    let FileChange {
        path,
        before: _,
        after: _,
    } = change;
    place(rules, path);
}

fn text(rules: &Rules, text: &mut String) {
    if let Cow::Owned(clean) = rules.text(text) {
        *text = clean;
    }
}

fn optional(rules: &Rules, found: &mut Option<String>) {
    if let Some(found) = found {
        text(rules, found);
    }
}

/// A reference that a pattern may not break; see [`super::Scrubber::payload`].
fn place(rules: &Rules, text: &mut String) {
    if let Cow::Owned(clean) = rules.place(text) {
        *text = clean;
    }
}

fn places(rules: &Rules, texts: &mut [String]) {
    texts.iter_mut().for_each(|text| place(rules, text));
}

/// Every string of a JSON value, keys included. Keys that become alike are told apart by a
/// number behind them, in their order, so that nothing is lost and no append fails.
pub(super) fn value(rules: &Rules, value: &mut Value) {
    deep(rules, value, 0);
}

fn deep(rules: &Rules, value: &mut Value, depth: usize) {
    // Nothing that nests deeper can be stored.
    if depth > MAX_DEPTH {
        return;
    }
    match value {
        Value::String(found) => text(rules, found),
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| deep(rules, item, depth + 1)),
        Value::Object(map) => {
            map.values_mut()
                .for_each(|value| deep(rules, value, depth + 1));
            if map
                .keys()
                .any(|key| matches!(rules.text(key), Cow::Owned(_)))
            {
                *map = with_clean_keys(rules, std::mem::take(map));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn with_clean_keys(rules: &Rules, map: Map<String, Value>) -> Map<String, Value> {
    // Keys that stay keep their names, whatever the others become.
    let mut taken: std::collections::HashSet<String> = map
        .keys()
        .filter(|key| matches!(rules.text(key), Cow::Borrowed(_)))
        .cloned()
        .collect();
    let mut clean = Map::with_capacity(map.len());
    for (key, value) in map {
        let name = match rules.text(&key) {
            Cow::Borrowed(_) => key,
            Cow::Owned(name) => {
                let mut free = name.clone();
                let mut number = 2_u64;
                while taken.contains(&free) {
                    free = format!("{name}-{number}");
                    number += 1;
                }
                taken.insert(free.clone());
                free
            }
        };
        clean.insert(name, value);
    }
    clean
}
