//! One event as one line of bytes, and the chain that binds each line to all before it.
//!
//! A line is, without any other spaces and followed by one newline:
//!
//! ```text
//! {"v":1,"seq":7,"at":1764527640123,"type":"turn/start","payload":{…},"chain":"<64 hex>"}
//! ```
//!
//! `chain` is the lower-case hexadecimal SHA-256 over the 64 characters of the line
//! before it (64 times `0` for the first line), followed by this line's own bytes up
//! to and without `,"chain"`. So anyone can check a log with a shell:
//!
//! ```text
//! prev=$(printf '0%.0s' $(seq 64))
//! while IFS= read -r line; do
//!   body=${line%,\"chain\":*}; chain=${line##*\"chain\":\"}; chain=${chain%\"\}}
//!   [ "$(printf '%s%s' "$prev" "$body" | sha256sum | cut -c1-64)" = "$chain" ] || echo "broken: $line"
//!   prev=$chain
//! done < session.jsonl
//! ```

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::error::{AppendError, StoreError};
use crate::event::{Event, Part, Payload, StepUsage};
use crate::id::SessionId;
use crate::{hex, strict_json};

/// The number of the format that is written here.
pub const FORMAT_VERSION: u64 = 1;

/// The longest line, in bytes, its newline counted.
pub const MAX_LINE_BYTES: usize = 32 * 1024 * 1024;

/// The hexadecimal hash that a line ends with.
pub(crate) type Chain = [u8; 64];

/// What the first line's hash is made with.
pub(crate) const GENESIS: Chain = [b'0'; 64];

const CHAIN_KEY: &[u8] = br#","chain":""#;
/// Bytes of a line after its body: the key, the hash, the closing quote and brace.
const TAIL: usize = CHAIN_KEY.len() + 64 + 2;

/// Why a line is not the one that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BadLine {
    /// It does not even have the form of a line: a torn write, or junk.
    Junk(String),
    /// It has the form of a line but not the right place, hash or content.
    Wrong(String),
    /// A format or an event type of a newer version.
    Newer(String),
}

impl BadLine {
    pub(crate) fn why(&self) -> &str {
        match self {
            Self::Junk(why) | Self::Wrong(why) | Self::Newer(why) => why,
        }
    }

    pub(crate) fn into_error(self, id: &SessionId, seq: u64) -> StoreError {
        match self {
            Self::Newer(found) => StoreError::Newer {
                id: id.clone(),
                found,
            },
            Self::Junk(why) | Self::Wrong(why) => StoreError::Broken {
                id: id.clone(),
                seq,
                why,
            },
        }
    }
}

/// Adds the line of an event to `buffer` and gives its hash. On an error the buffer
/// is as it was.
pub(crate) fn encode(
    buffer: &mut Vec<u8>,
    event: &Event,
    before: &Chain,
) -> Result<Chain, AppendError> {
    check(&event.payload)?;
    let start = buffer.len();
    let result = encode_body(buffer, event);
    let size = buffer.len() - start + TAIL + 1;
    let result = match result {
        Ok(()) if size > MAX_LINE_BYTES => Err(AppendError::TooLarge {
            bytes: size as u64,
            limit: MAX_LINE_BYTES as u64,
        }),
        other => other,
    };
    if let Err(error) = result {
        buffer.truncate(start);
        return Err(error);
    }
    let chain = chain_of(before, buffer.get(start..).unwrap_or_default());
    buffer.extend_from_slice(CHAIN_KEY);
    buffer.extend_from_slice(&chain);
    buffer.extend_from_slice(b"\"}\n");
    Ok(chain)
}

fn encode_body(buffer: &mut Vec<u8>, event: &Event) -> Result<(), AppendError> {
    use std::io::Write as _;

    write!(
        buffer,
        r#"{{"v":{FORMAT_VERSION},"seq":{},"at":{}"#,
        event.seq, event.at
    )
    .map_err(serde_json::Error::io)?;
    let brace = buffer.len();
    // `{"type":…,"payload":…}`: its opening brace becomes the comma that joins it, and
    // its closing brace comes after the chain.
    serde_json::to_writer(&mut *buffer, &event.payload)?;
    if let Some(byte) = buffer.get_mut(brace) {
        *byte = b',';
    }
    buffer.pop();
    Ok(())
}

/// Reads a line without its newline, which is event `seq` and follows the line with
/// the hash `before`; where that is not known, the hash is not checked. The line's
/// bytes are scratched.
pub(crate) fn decode(
    line: &mut [u8],
    seq: u64,
    before: Option<&Chain>,
) -> Result<(Event, Chain), BadLine> {
    let header = header(line)?;
    if header.version != FORMAT_VERSION {
        return Err(BadLine::Newer(format!("format {}", header.version)));
    }
    let (body_len, chain) = split_chain(line)
        .ok_or_else(|| BadLine::Junk("the line does not end with a chain hash".into()))?;
    if header.seq != seq {
        return Err(BadLine::Wrong(format!(
            "its number is {} where {seq} was expected",
            header.seq
        )));
    }
    if before
        .is_some_and(|before| chain_of(before, line.get(..body_len).unwrap_or_default()) != chain)
    {
        return Err(BadLine::Wrong(
            "its chain hash does not fit its bytes and the line before".into(),
        ));
    }
    // `,"type":…,"payload":{…},"chain…` becomes `{"type":…,"payload":{…}}`.
    if let Some(byte) = line.get_mut(header.length) {
        *byte = b'{';
    }
    if let Some(byte) = line.get_mut(body_len) {
        *byte = b'}';
    }
    let text = line.get(header.length..=body_len).unwrap_or_default();
    match serde_json::from_slice::<Payload>(text) {
        Ok(payload) => Ok((
            Event {
                seq,
                at: header.at,
                payload,
            },
            chain,
        )),
        Err(error) => match type_name(text) {
            Some(name) if !crate::catalogue::is_known(&name) => {
                Err(BadLine::Newer(format!("event type `{name}`")))
            }
            _ => Err(BadLine::Wrong(format!(
                "its content is not that of its type: {error}"
            ))),
        },
    }
}

/// The hash that a line claims, unchecked: where a reader that skips takes up.
pub(crate) fn claimed_chain(line: &[u8]) -> Option<Chain> {
    split_chain(line).map(|(_, chain)| chain)
}

/// The number that a line claims, when it has the form of a line.
pub(crate) fn claimed_seq(line: &[u8]) -> Option<u64> {
    split_chain(line)?;
    header(line).ok().map(|header| header.seq)
}

/// The type and the payload's own JSON in a line of the right form.
pub(crate) fn raw_payload(line: &[u8]) -> Option<(&str, &[u8])> {
    let (body_len, _) = split_chain(line)?;
    let rest = line
        .get(header(line).ok()?.length..body_len)?
        .strip_prefix(br#","type":""#)?;
    let end = rest.iter().position(|byte| *byte == b'"')?;
    let (name, rest) = rest.split_at_checked(end)?;
    Some((
        std::str::from_utf8(name).ok()?,
        rest.strip_prefix(br#"","payload":"#)?,
    ))
}

fn chain_of(before: &Chain, body: &[u8]) -> Chain {
    hex::digits(
        &Sha256::new()
            .chain_update(before)
            .chain_update(body)
            .finalize()
            .into(),
    )
}

fn split_chain(line: &[u8]) -> Option<(usize, Chain)> {
    let (body, tail) = line.split_at_checked(line.len().checked_sub(TAIL)?)?;
    let hash = tail.strip_prefix(CHAIN_KEY)?.strip_suffix(b"\"}")?;
    if !hex::is_hash(hash) {
        return None;
    }
    Some((body.len(), hash.try_into().ok()?))
}

struct Header {
    version: u64,
    seq: u64,
    at: u64,
    /// Bytes up to the comma before `"type"`.
    length: usize,
}

fn header(line: &[u8]) -> Result<Header, BadLine> {
    let junk = || BadLine::Junk("it does not begin like an event".into());
    let (version, rest) = number_after(line, br#"{"v":"#).ok_or_else(junk)?;
    if version != FORMAT_VERSION {
        // A newer format may order the rest as it likes.
        return Ok(Header {
            version,
            seq: 0,
            at: 0,
            length: 0,
        });
    }
    let (seq, rest) = number_after(rest, br#","seq":"#).ok_or_else(junk)?;
    let (at, rest) = number_after(rest, br#","at":"#).ok_or_else(junk)?;
    if !rest.starts_with(br#","type":""#) {
        return Err(junk());
    }
    Ok(Header {
        version,
        seq,
        at,
        length: line.len() - rest.len(),
    })
}

fn number_after<'a>(text: &'a [u8], key: &[u8]) -> Option<(u64, &'a [u8])> {
    let rest = text.strip_prefix(key)?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, rest) = rest.split_at_checked(digits)?;
    if number.len() > 1 && number.first() == Some(&b'0') {
        return None;
    }
    Some((std::str::from_utf8(number).ok()?.parse().ok()?, rest))
}

fn type_name(text: &[u8]) -> Option<String> {
    let rest = text.strip_prefix(br#"{"type":""#)?;
    let end = rest.iter().position(|byte| *byte == b'"')?;
    rest.get(..end)
        .and_then(|name| String::from_utf8(name.to_vec()).ok())
}

/// What JSON cannot hold, or could not be read back from a line (check 4).
pub(crate) fn check(payload: &Payload) -> Result<(), AppendError> {
    let event = payload.type_name();
    let deep = |value: &Value| {
        if strict_json::fits_depth(value) {
            Ok(())
        } else {
            Err(AppendError::TooDeep {
                event,
                limit: strict_json::MAX_DEPTH,
            })
        }
    };
    match payload {
        Payload::ToolCall { args, .. } | Payload::ApprovalRequested { args, .. } => deep(args),
        Payload::RequestFrame { tools, .. } => {
            tools.iter().try_for_each(|tool| deep(&tool.parameters))
        }
        Payload::AssistantMessage { parts, .. } => parts.iter().try_for_each(|part| match part {
            Part::ToolCall { args, .. } => deep(args),
            _ => Ok(()),
        }),
        Payload::StepEnd {
            usage: Some(StepUsage {
                cost: Some(cost), ..
            }),
            ..
        } if !cost.is_finite() => Err(AppendError::NotFinite {
            event,
            field: "usage.cost",
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
