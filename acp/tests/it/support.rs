//! A raw peer over a duplex, and a service whose handlers the tests hold in their hands.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use terret_acp::{
    Connection, Ended, IncomingRequest, Lane, Options, Peer, RawParams, Responder, RpcError,
    Service,
};
use tokio::io::{
    AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf,
};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// Handlers by method name:
/// `echo` answers its parameters; `gate` waits for a permit first; `cancellable` answers -32800
/// once cancelled; `panic` panics; `drop` drops its responder; `keep` moves its responder away;
/// `updates` sends `n` updates and then answers. Everything else is unknown.
/// A lane is named by the parameters: `{"lane":"now"}`, or `sessionId`.
#[derive(Default)]
pub(crate) struct Desk {
    pub(crate) gate: Arc<Gate>,
    pub(crate) seen: Mutex<Vec<(String, Value)>>,
    pub(crate) kept: Mutex<Vec<Responder>>,
    pub(crate) peer: Mutex<Option<Peer>>,
}

pub(crate) struct Gate {
    pub(crate) permits: Semaphore,
    pub(crate) reached: Semaphore,
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            permits: Semaphore::new(0),
            reached: Semaphore::new(0),
        }
    }
}

impl Gate {
    pub(crate) async fn pass(&self) {
        self.reached.add_permits(1);
        self.permits.acquire().await.unwrap().forget();
    }

    pub(crate) fn open(&self, times: usize) {
        self.permits.add_permits(times);
    }

    /// Waits until that many handlers stand at the gate (each counted once).
    pub(crate) async fn reached(&self, times: u32) {
        soon(self.reached.acquire_many(times))
            .await
            .unwrap()
            .forget();
    }
}

impl Desk {
    pub(crate) fn seen(&self) -> Vec<(String, Value)> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn peer(&self) -> Peer {
        self.peer.lock().unwrap().clone().unwrap()
    }
}

#[async_trait]
impl Service for Desk {
    fn connected(&self, peer: &Peer) {
        *self.peer.lock().unwrap() = Some(peer.clone());
    }

    fn lane(&self, method: &str, params: &RawParams) -> Lane {
        assert_ne!(method, "panic-in-lane");
        if method == "session/cancel" {
            return Lane::Interrupt(params.session_id().unwrap_or_default());
        }
        let value = params.to_value().unwrap_or_default();
        if value["lane"] == "now" {
            return Lane::Immediate;
        }
        params.session_id().map_or(Lane::Connection, Lane::Session)
    }

    async fn request(&self, call: IncomingRequest) {
        let IncomingRequest {
            method,
            params,
            responder,
        } = call;
        self.seen
            .lock()
            .unwrap()
            .push((method.clone(), params.to_value().unwrap_or_default()));
        match method.as_str() {
            "echo" => responder.respond(&params.to_value().unwrap()).await,
            "gate" => {
                self.gate.pass().await;
                responder.respond(&params.to_value().unwrap()).await;
            }
            "cancellable" => {
                responder.cancellation().cancelled().await;
                responder.fail(RpcError::cancelled()).await;
            }
            "panic" => panic!("on purpose"),
            "drop" => drop(responder),
            "keep" => self.kept.lock().unwrap().push(responder),
            "updates" => {
                let peer = responder.peer();
                for n in 0..params.to_value().unwrap()["n"].as_u64().unwrap() {
                    peer.notify("session/update", &json!({ "sessionId": "s", "n": n }))
                        .await
                        .unwrap();
                }
                responder.respond(&json!({})).await;
            }
            "typed" => {
                responder
                    .finish(params.parse::<HashMap<String, u8>>())
                    .await
            }
            _ => responder.fail(RpcError::method_not_found(&method)).await,
        }
    }

    async fn notification(&self, method: String, params: RawParams) {
        if method == "panic" {
            panic!("on purpose");
        }
        if method == "gated" {
            self.gate.pass().await;
        }
        self.seen
            .lock()
            .unwrap()
            .push((method, params.to_value().unwrap_or_default()));
    }
}

/// The other end, which speaks in bytes.
pub(crate) struct Raw {
    pub(crate) output: BufReader<ReadHalf<DuplexStream>>,
    pub(crate) input: Option<WriteHalf<DuplexStream>>,
    pub(crate) peer: Peer,
    pub(crate) desk: Arc<Desk>,
    pub(crate) driver: JoinHandle<Ended>,
}

impl Raw {
    pub(crate) fn agent() -> Self {
        Self::with(Options::agent(), 1 << 20)
    }

    pub(crate) fn client() -> Self {
        Self::with(Options::client(), 1 << 20)
    }

    pub(crate) fn with(options: Options, pipe: usize) -> Self {
        let desk = Arc::new(Desk::default());
        Self::serving(desk, options, pipe)
    }

    pub(crate) fn serving(desk: Arc<Desk>, options: Options, pipe: usize) -> Self {
        let (ours, theirs) = tokio::io::duplex(pipe);
        let (reader, writer) = tokio::io::split(ours);
        let service: Arc<dyn Service> = Arc::clone(&desk) as _;
        let (peer, driver) = Connection::serve(reader, writer, service, options);
        let (output, input) = tokio::io::split(theirs);
        Self {
            output: BufReader::new(output),
            input: Some(input),
            peer,
            desk,
            driver: tokio::spawn(driver),
        }
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let input = self.input.as_mut().expect("the input is open");
        soon(input.write_all(bytes.as_ref())).await.unwrap();
    }

    pub(crate) async fn send_line(&mut self, line: impl AsRef<[u8]>) {
        self.send(line).await;
        self.send("\n").await;
    }

    /// The next line as it is on the wire.
    pub(crate) async fn line(&mut self) -> String {
        let mut line = String::new();
        soon(self.output.read_line(&mut line)).await.unwrap();
        assert!(
            line.ends_with('\n'),
            "a frame ends with a line end: {line:?}"
        );
        line.pop();
        line
    }

    pub(crate) async fn frame(&mut self) -> Value {
        let line = self.line().await;
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    pub(crate) async fn frames(&mut self, count: usize) -> Vec<Value> {
        let mut frames = Vec::with_capacity(count);
        for _ in 0..count {
            frames.push(self.frame().await);
        }
        frames
    }

    /// Proves that nothing else was said before: the next frame answers this.
    pub(crate) async fn assert_alive(&mut self) {
        self.send_line(
            r#"{"jsonrpc":"2.0","id":"alive?","method":"echo","params":{"lane":"now"}}"#,
        )
        .await;
        assert_eq!(
            self.line().await,
            r#"{"jsonrpc":"2.0","id":"alive?","result":{"lane":"now"}}"#
        );
    }

    /// Ends the input and gives all that is still written, and why it ended.
    pub(crate) async fn end(mut self) -> (String, Ended) {
        soon(self.input.take().expect("the input is open").shutdown())
            .await
            .unwrap();
        let mut rest = String::new();
        soon(self.output.read_to_string(&mut rest)).await.unwrap();
        (rest, soon(self.driver).await.unwrap())
    }
}

/// A test that would wait for ever fails instead.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future)
        .await
        .expect("it takes too long")
}

/// Waits for what other tasks do on their own; ends by [`soon`]'s limit.
pub(crate) async fn until(condition: impl Fn() -> bool) {
    soon(async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

pub(crate) fn request(id: u64, method: &str, params: &Value) -> String {
    format!(
        "{}\n",
        json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
    )
}

pub(crate) fn notification(method: &str, params: &Value) -> String {
    format!(
        "{}\n",
        json!({ "jsonrpc": "2.0", "method": method, "params": params })
    )
}
