//! Makes sense of parameters that do not fit their type as they are.
//!
//! The type says where it fails; that place is mended if it is one of the loose spellings, and
//! the type is tried again. Nothing is changed that did not fail, so a null that means something
//! (`title: null` clears) stays one.

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

use super::{Fault, FaultKind, shown, version_number};

/// How many places may be mended; each costs one more reading of the value.
const MOST_REPAIRS: usize = 32;

/// The lists that clients leave out although the schema needs them.
const LISTS_THAT_MAY_BE_MISSING: [&str; 1] = ["mcpServers"];

/// Reads the value as the type, mending what is loose.
pub(super) fn parse_loosely<T: DeserializeOwned>(mut value: Value) -> Result<T, Fault> {
    let mut repairs = 0;
    loop {
        let error = match serde_path_to_error::deserialize(&value) {
            Ok(parsed) => return Ok(parsed),
            Err(error) => error,
        };
        let path = error.path().clone();
        let kind = kind_of(&error.into_inner().to_string());
        repairs += 1;
        if repairs > MOST_REPAIRS || !mend(&mut value, &path, &kind) {
            return Err(Fault {
                path: in_words(&path),
                kind,
            });
        }
    }
}

/// Mends the one place, or says that it cannot.
fn mend(value: &mut Value, path: &Path, kind: &FaultKind) -> bool {
    let mut segments: Vec<&Segment> = path.iter().collect();
    if let FaultKind::Missing(field) = kind {
        if !LISTS_THAT_MAY_BE_MISSING.contains(&field.as_str()) {
            return false;
        }
        let Some(Value::Object(parent)) = follow(value, &segments) else {
            return false;
        };
        return parent
            .insert(field.clone(), Value::Array(Vec::new()))
            .is_none();
    }
    let Some(Segment::Map { key }) = segments.pop() else {
        return false;
    };
    let at_top = segments.is_empty();
    let Some(Value::Object(parent)) = follow(value, &segments) else {
        return false;
    };
    match parent.get_mut(key) {
        Some(Value::Null) => parent.remove(key).is_some(),
        Some(version @ Value::Number(_)) if at_top && key == "protocolVersion" => {
            // The largest version that fits is one that nobody speaks, so it is answered with
            // our own, as one from the future should be.
            let fitting =
                version_number(version).map(|number| Value::from(number.min(u64::from(u16::MAX))));
            match fitting {
                Some(fitting) if fitting != *version => {
                    *version = fitting;
                    true
                }
                _ => false,
            }
        }
        _ => false,
    }
}

fn follow<'value>(value: &'value mut Value, segments: &[&Segment]) -> Option<&'value mut Value> {
    segments
        .iter()
        .try_fold(value, |at, segment| match segment {
            Segment::Map { key } => at.get_mut(key),
            Segment::Seq { index } => at.get_mut(index),
            // A variant's name is no step in the JSON of the types at hand.
            Segment::Enum { .. } => Some(at),
            Segment::Unknown => None,
        })
}

fn in_words(path: &Path) -> String {
    let mut words = String::new();
    for segment in path.iter() {
        match segment {
            Segment::Map { key } => {
                if !words.is_empty() {
                    words.push('.');
                }
                words.push_str(shown(key));
            }
            Segment::Seq { index } => {
                words.push('[');
                words.push_str(&index.to_string());
                words.push(']');
            }
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    words
}

/// Takes from a serde message what comes from the type, and leaves what comes from the value:
/// `invalid type: string "the secret", expected u16` gives `u16`.
fn kind_of(message: &str) -> FaultKind {
    if let Some(rest) = message.strip_prefix("missing field `") {
        let field = rest.split('`').next().unwrap_or_default();
        return FaultKind::Missing(field.to_owned());
    }
    let from_serde = [
        "invalid type: ",
        "invalid value: ",
        "invalid length ",
        "unknown variant `",
    ];
    let told = from_serde.iter().any(|prefix| message.starts_with(prefix));
    // The last one: the value stands before it and may hold the same words.
    match message.rsplit_once(", expected ") {
        Some((_, expected)) if told && !expected.is_empty() => {
            FaultKind::Expected(in_json_words(expected).to_owned())
        }
        _ => FaultKind::Refused,
    }
}

/// The type's words for what JSON calls otherwise.
fn in_json_words(expected: &str) -> &str {
    match expected {
        "a sequence" => "a list",
        "a map" => "an object",
        "path string" => "a string that is a path",
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number in range",
        other => other,
    }
}
