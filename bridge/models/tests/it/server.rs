//! A server that answers each request with the next script of a list. It speaks just
//! enough HTTP, over a bare socket, so that a test can break it anywhere.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// One step of an answer.
#[derive(Clone)]
pub(crate) enum Step {
    /// The head of a stream of events, its body in chunks.
    Events,
    /// A whole answer with this status, headers and body.
    Whole(u16, Vec<(&'static str, &'static str)>, String),
    /// A part of the body, in chunks of this many bytes.
    Body(String, usize),
    Wait(Duration),
    /// The end of the body.
    End,
    /// The connection is closed with a reset, wherever it stands.
    Reset,
    /// Nothing more is sent, and the connection stays open until the client leaves.
    Stall,
}

/// What the server saw of one request.
pub(crate) struct Seen {
    pub(crate) at: Instant,
    /// The client's port: the same for two requests over one connection.
    pub(crate) from: u16,
    pub(crate) head: String,
    pub(crate) body: Value,
}

pub(crate) struct Server {
    pub(crate) url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    /// Told when a client leaves a stalled answer.
    pub(crate) left: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    /// Answers the n-th request by the n-th script, and all later ones by the last.
    pub(crate) async fn start(scripts: Vec<Vec<Step>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let left = Arc::new(Notify::new());
        let (all, leaving) = (seen.clone(), left.clone());
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                connections.spawn(serve(stream, scripts.clone(), all.clone(), leaving.clone()));
            }
        });
        Self {
            url,
            seen,
            left,
            task,
        }
    }

    /// One answer for every request: a stream of events that ends well.
    pub(crate) async fn saying(body: &str) -> Self {
        Self::start(vec![events(body)]).await
    }

    pub(crate) fn seen(&self) -> std::sync::MutexGuard<'_, Vec<Seen>> {
        self.seen.lock().unwrap()
    }
}

/// A stream of events that ends well.
pub(crate) fn events(body: &str) -> Vec<Step> {
    vec![
        Step::Events,
        Step::Body(body.to_owned(), usize::MAX),
        Step::End,
    ]
}

/// A whole answer of JSON.
pub(crate) fn json(status: u16, body: &str) -> Vec<Step> {
    let headers = vec![("content-type", "application/json")];
    vec![Step::Whole(status, headers, body.to_owned())]
}

async fn serve(
    stream: TcpStream,
    scripts: Vec<Vec<Step>>,
    seen: Arc<Mutex<Vec<Seen>>>,
    left: Arc<Notify>,
) {
    let from = stream.peer_addr().unwrap().port();
    let mut stream = BufReader::new(stream);
    while let Some((head, body)) = read_request(&mut stream).await {
        let number = {
            let mut seen = seen.lock().unwrap();
            seen.push(Seen {
                at: Instant::now(),
                from,
                head,
                body,
            });
            seen.len() - 1
        };
        let script = scripts.get(number).or(scripts.last()).cloned().unwrap();
        for step in script {
            if play(&mut stream, step, &left).await.is_none() {
                return;
            }
        }
    }
}

async fn read_request(stream: &mut BufReader<TcpStream>) -> Option<(String, Value)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).await.ok()? == 0 {
            return None;
        }
    }
    let length = head
        .lines()
        .find_map(|line| {
            line.to_lowercase()
                .strip_prefix("content-length: ")?
                .parse()
                .ok()
        })
        .unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some((head, serde_json::from_slice(&body).unwrap()))
}

/// Nothing when the connection is over.
async fn play(stream: &mut BufReader<TcpStream>, step: Step, left: &Notify) -> Option<()> {
    match step {
        Step::Events => {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                        transfer-encoding: chunked\r\n\r\n";
            stream.write_all(head.as_bytes()).await.ok()?;
        }
        Step::Whole(status, headers, body) => {
            let mut head = format!(
                "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {}\r\n",
                body.len()
            );
            for (name, value) in headers {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
            stream
                .write_all(format!("{head}\r\n{body}").as_bytes())
                .await
                .ok()?;
            stream.shutdown().await.ok()?;
        }
        Step::Body(body, size) => {
            for piece in body.as_bytes().chunks(size) {
                let mut chunk = format!("{:x}\r\n", piece.len()).into_bytes();
                chunk.extend_from_slice(piece);
                chunk.extend_from_slice(b"\r\n");
                stream.write_all(&chunk).await.ok()?;
            }
            stream.flush().await.ok()?;
        }
        Step::Wait(time) => tokio::time::sleep(time).await,
        Step::End => stream.write_all(b"0\r\n\r\n").await.ok()?,
        Step::Reset => {
            // What is read before, so that the client sees it and then the break.
            tokio::time::sleep(Duration::from_millis(30)).await;
            stream.get_ref().set_zero_linger().ok()?;
            return None;
        }
        Step::Stall => {
            let mut byte = [0];
            // Ends when the client goes.
            let _ = stream.read(&mut byte).await;
            left.notify_one();
            return None;
        }
    }
    Some(())
}
