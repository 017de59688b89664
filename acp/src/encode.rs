//! Writing frames: one JSON object a line, serialised once into its final buffer.
//!
//! The characters U+2028, U+2029 and U+0085 are written as escapes (R112): readers exist that
//! take them for line ends, and a frame split in two loses the end of a turn.

use std::io::{self, Write};

use bytes::Bytes;
use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter};

use crate::error::RpcError;
use crate::id::RequestId;

/// `null` in the place of an id.
const NULL_ID: &str = "null";

/// A request of ours. Parameters that are null are left out, as JSON-RPC asks.
pub(crate) fn request(
    id: u64,
    method: &str,
    params: &(impl Serialize + ?Sized),
) -> serde_json::Result<Bytes> {
    let mut frame = start();
    frame.extend_from_slice(b",\"id\":");
    frame.extend_from_slice(id.to_string().as_bytes());
    call(frame, method, params)
}

/// A notification of ours.
pub(crate) fn notification(
    method: &str,
    params: &(impl Serialize + ?Sized),
) -> serde_json::Result<Bytes> {
    call(start(), method, params)
}

/// The one answer to a request of the peer.
pub(crate) fn result(
    id: &RequestId,
    value: &(impl Serialize + ?Sized),
) -> serde_json::Result<Bytes> {
    let mut frame = start();
    put_id(&mut frame, id.as_token())?;
    frame.extend_from_slice(b",\"result\":");
    put(&mut frame, value)?;
    Ok(end(frame))
}

/// An error answer; without an id when the request's own could not be read.
pub(crate) fn error(id: Option<&RequestId>, error: &RpcError) -> Bytes {
    let mut frame = start();
    let written = put_id(&mut frame, id.map_or(NULL_ID, RequestId::as_token)).and_then(|()| {
        frame.extend_from_slice(b",\"error\":");
        put(&mut frame, error)
    });
    match written {
        Ok(()) => end(frame),
        // A `Value` and a token always have a JSON form; this answer stands in all the same, so
        // that no request is left without one.
        Err(_) => Bytes::from_static(
            b"{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32603,\"message\":\"internal error\"}}\n",
        ),
    }
}

/// The notice that an answer is no longer wanted.
pub(crate) fn cancel(id: u64) -> Bytes {
    let mut frame = start();
    frame.extend_from_slice(b",\"method\":\"$/cancel_request\",\"params\":{\"requestId\":");
    frame.extend_from_slice(id.to_string().as_bytes());
    frame.push(b'}');
    end(frame)
}

fn start() -> Vec<u8> {
    let mut frame = Vec::with_capacity(256);
    frame.extend_from_slice(b"{\"jsonrpc\":\"2.0\"");
    frame
}

fn end(mut frame: Vec<u8>) -> Bytes {
    frame.extend_from_slice(b"}\n");
    Bytes::from(frame)
}

fn call(
    mut frame: Vec<u8>,
    method: &str,
    params: &(impl Serialize + ?Sized),
) -> serde_json::Result<Bytes> {
    frame.extend_from_slice(b",\"method\":");
    put(&mut frame, method)?;
    let before = frame.len();
    frame.extend_from_slice(b",\"params\":");
    let value_starts = frame.len();
    put(&mut frame, params)?;
    if frame.get(value_starts..) == Some(b"null") {
        frame.truncate(before);
    }
    Ok(end(frame))
}

fn put_id(frame: &mut Vec<u8>, token: &str) -> serde_json::Result<()> {
    frame.extend_from_slice(b",\"id\":");
    // An id is echoed byte for byte, but for the three characters that could split the line.
    write_safely(frame, token.as_bytes()).map_err(serde_json::Error::io)
}

fn put(frame: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) -> serde_json::Result<()> {
    value.serialize(&mut serde_json::Serializer::with_formatter(
        frame,
        OneLine(CompactFormatter),
    ))
}

/// The compact form, minus everything that any reader could take for a line end.
struct OneLine(CompactFormatter);

impl Formatter for OneLine {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        write_safely(writer, fragment.as_bytes())
    }

    /// Raw JSON that is passed on (`RawValue`) may be laid out over several lines; a line end
    /// in valid JSON can only stand between tokens, where a space does as well.
    fn write_raw_fragment<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut lines = fragment.split(['\n', '\r']);
        if let Some(first) = lines.next() {
            write_safely(writer, first.as_bytes())?;
        }
        for line in lines {
            writer.write_all(b" ")?;
            write_safely(writer, line.as_bytes())?;
        }
        Ok(())
    }
}

/// Writes text of a JSON string, with U+0085 (C2 85), U+2028 and U+2029 (E2 80 A8, E2 80 A9) as
/// escapes. Text without their first bytes, nearly all of it, goes through in one piece.
fn write_safely<W: ?Sized + Write>(writer: &mut W, mut text: &[u8]) -> io::Result<()> {
    let mut from = 0;
    while let Some(offset) = text
        .get(from..)
        .and_then(|rest| memchr::memchr2(0xC2, 0xE2, rest))
    {
        let at = from + offset;
        let (escape, length): (&[u8], usize) = match text.get(at..) {
            Some([0xC2, 0x85, ..]) => (b"\\u0085", 2),
            Some([0xE2, 0x80, 0xA8, ..]) => (b"\\u2028", 3),
            Some([0xE2, 0x80, 0xA9, ..]) => (b"\\u2029", 3),
            _ => {
                from = at + 1;
                continue;
            }
        };
        writer.write_all(text.get(..at).unwrap_or_default())?;
        writer.write_all(escape)?;
        text = text.get(at + length..).unwrap_or_default();
        from = 0;
    }
    writer.write_all(text)
}

#[cfg(test)]
mod tests;
