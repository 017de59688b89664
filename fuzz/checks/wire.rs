//! What must hold for any bytes that a peer may send.
//!
//! Shared by the fuzz target `wire` and the tests of the wire's own crate.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::Value;
use terret_acp::framing::{Line, LineBuffer};
use terret_acp::message::{self, Message, Outcome};
use terret_acp::{Connection, IncomingRequest, Lane, Noise, Options, RawParams, RpcError, Service};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A limit low enough that the fuzzer reaches it.
const LINE_LIMIT: usize = 512;

/// Checks everything below. The first byte says how the rest is cut into pieces.
pub(crate) fn any_bytes(data: &[u8]) {
    let Some((&cut, stream)) = data.split_first() else {
        return;
    };
    let whole = lines(&[stream]);
    let pieces: Vec<&[u8]> = stream.chunks(usize::from(cut).max(1)).collect();
    assert_eq!(lines(&pieces), whole, "the cut changes the lines");

    let mut due: HashMap<String, usize> = HashMap::new();
    for line in &whole {
        let Line::Whole(line) = line else {
            continue;
        };
        read_in_every_way(line);
        if let Some(id) = answer_due(line) {
            *due.entry(id).or_default() += 1;
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let answered = runtime.block_on(converse(&pieces));
    let mut given: HashMap<String, usize> = HashMap::new();
    for line in answered.split_terminator('\n') {
        let frame: Value = serde_json::from_str(line).expect("only JSON is written");
        assert!(frame.get("result").is_some() != frame.get("error").is_some());
        let raw: HashMap<String, Box<serde_json::value::RawValue>> =
            serde_json::from_str(line).expect("only objects are written");
        *given.entry(raw["id"].get().to_owned()).or_default() += 1;
    }
    for (id, count) in &due {
        let answers = given.get(id).copied().unwrap_or_default();
        // What could not be read is answered with a null id, beside requests that have one.
        assert!(
            answers == *count || id == "null" && answers >= *count,
            "{id}: {answers} answers of {count}"
        );
    }
}

/// The id under which a line must be answered, as it is echoed: of a request, and of what looks
/// like one but lacks its method.
fn answer_due(line: &Bytes) -> Option<String> {
    match message::parse(line, Noise::Refuse) {
        Message::Request { id, .. } | Message::Invalid { id: Some(id), .. } => {
            Some(spelled(id.as_token()))
        }
        Message::Response {
            id: Some(id),
            outcome: Outcome::Neither,
        } => Some(id.to_string()),
        _ => None,
    }
}

/// An id as it is echoed: byte for byte, but for what could split a line.
fn spelled(token: &str) -> String {
    token
        .replace('\u{85}', "\\u0085")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

fn read_in_every_way(line: &Bytes) {
    for noise in [Noise::Refuse, Noise::Skip] {
        if let Message::Request { params, .. } | Message::Notification { params, .. } =
            message::parse(line, noise)
        {
            // Nothing here may panic; whether it fits is another matter.
            let _ = params.session_id();
            let _ = terret_acp::params::protocol_version(&params);
            let _ = params.parse::<terret_acp::schema::v1::InitializeRequest>();
            let _ = params.parse::<terret_acp::schema::v1::NewSessionRequest>();
            let _ = params.parse::<terret_acp::schema::v1::PromptRequest>();
            let _ = params.parse::<terret_acp::schema::v1::SessionNotification>();
            let _ = params.to_value();
        }
    }
}

fn lines(pieces: &[&[u8]]) -> Vec<Line> {
    let mut buffer = LineBuffer::new(LINE_LIMIT);
    let mut lines = Vec::new();
    for piece in pieces {
        buffer.push(piece);
        while let Some(line) = buffer.next_line() {
            lines.push(line);
        }
    }
    lines.extend(buffer.finish());
    lines
}

/// Sends the pieces to an agent, ends the input, and gives all that it said.
async fn converse(pieces: &[&[u8]]) -> String {
    let (ours, theirs) = tokio::io::duplex(4096);
    let (reader, writer) = tokio::io::split(ours);
    let options = Options {
        line_limit: LINE_LIMIT,
        ..Options::agent()
    };
    let (_peer, driver) = Connection::serve(reader, writer, Arc::new(Odd), options);
    let driver = tokio::spawn(driver);
    let (mut output, mut input) = tokio::io::split(theirs);
    let mut answered = String::new();
    let sending = async {
        for piece in pieces {
            input.write_all(piece).await.expect("the agent reads");
        }
        input.shutdown().await.expect("the agent reads");
    };
    let (read, ()) = tokio::join!(output.read_to_string(&mut answered), sending);
    read.expect("only UTF-8 is written");
    driver.await.expect("nothing in there panics");
    answered
}

/// Answers, or does not, by the method's first letter.
struct Odd;

#[async_trait]
impl Service for Odd {
    fn lane(&self, method: &str, params: &RawParams) -> Lane {
        match method.as_bytes().last() {
            Some(b'n') => Lane::Immediate,
            Some(b'l') => Lane::Interrupt(params.session_id().unwrap_or_default()),
            _ => params.session_id().map_or(Lane::Connection, Lane::Session),
        }
    }

    async fn request(&self, call: IncomingRequest) {
        let IncomingRequest {
            method,
            params,
            responder,
        } = call;
        match method.as_bytes().first() {
            Some(b'd') => drop(responder),
            Some(b'e') => responder.finish(params.to_value()).await,
            Some(b'w') => {
                responder.cancellation().cancelled().await;
                responder.fail(RpcError::cancelled()).await;
            }
            _ => responder.fail(RpcError::method_not_found(&method)).await,
        }
    }
}
