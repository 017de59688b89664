//! What an engine and a helper say to each other over the socket pair between them: first
//! an order of any length with descriptors, then lines of JSON both ways.

use std::ffi::{OsStr, OsString};
use std::io::{IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, send, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Bytes of an order: the system takes far less for arguments and environment.
const LONGEST_ORDER: u64 = 64 * 1024 * 1024;
/// Bytes of a line.
const LONGEST_LINE: usize = 1024 * 1024;
/// Descriptors of an order.
const MOST_DESCRIPTORS: usize = 8;

/// Text of the system, which may be no text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Word {
    Text(String),
    Bytes(Vec<u8>),
}

/// A program to start, as its helper is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// What is executed, when that is not what `argv` begins with.
    pub program: Option<Word>,
    pub argv: Vec<Word>,
    pub cwd: Word,
    /// The whole environment; `PATH` in it is where the program is looked for.
    pub environment: Vec<(Word, Word)>,
    pub streams: Streams,
}

/// What a program's three streams are, and with that the descriptors of its order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Streams {
    /// One descriptor: where both outputs go. Standard input is empty.
    Output,
    /// Two descriptors: standard input, and where both outputs go.
    InputOutput,
    /// Three descriptors: input, output, error.
    Separate,
    /// One descriptor: a terminal's end for programs, for all three, and the controlling
    /// terminal of the program's session.
    Terminal,
}

/// What an engine asks of a supervisor that has its order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Asks the tree to end, and kills what is there after the grace. Said again it can
    /// only make the grace shorter.
    End { grace_ms: u64 },
}

/// What a supervisor tells, in this order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// The first process runs.
    Started { pid: i32 },
    /// Nothing runs: the program cannot be started. The last report.
    Failed { step: Step, errno: i32 },
    /// The first process ended.
    Ended { status: Status },
    /// What the first process left behind, and what is ended now.
    Left { members: Vec<Leftover> },
    /// Nothing is left. The last report.
    Gone,
    /// Something does not end although it was killed; [`Report::Gone`] may still follow.
    Stuck,
}

/// What failed of a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Going into the folder.
    Folder,
    /// Executing the program.
    Program,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Exited(i32),
    Signalled(i32),
}

/// Something of a command that was still running after its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leftover {
    pub pid: i32,
    /// Its command line, on one line and cut.
    pub command: String,
}

/// Takes whole lines out of a stream. Never waits.
#[derive(Debug, Default)]
pub struct Lines {
    buffer: Vec<u8>,
    ended: bool,
}

impl From<&OsStr> for Word {
    fn from(text: &OsStr) -> Self {
        match text.to_str() {
            Some(text) => Self::Text(text.to_owned()),
            None => Self::Bytes(text.as_bytes().to_owned()),
        }
    }
}

impl From<Word> for OsString {
    fn from(word: Word) -> Self {
        match word {
            Word::Text(text) => text.into(),
            Word::Bytes(bytes) => Self::from_vec(bytes),
        }
    }
}

/// Sends an order: its length together with the descriptors, then its bytes. Blocks until
/// the other side has read most of it.
///
/// # Errors
/// The system's, and too many descriptors.
pub fn give_order(
    link: &UnixStream,
    order: &impl Serialize,
    descriptors: &[BorrowedFd<'_>],
) -> std::io::Result<()> {
    let bytes = serde_json::to_vec(order)?;
    let length = (bytes.len() as u64).to_be_bytes();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(std::io::Error::other("too many descriptors for an order"));
    }
    let sent = sendmsg(
        link,
        &[IoSlice::new(&length)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    if sent != length.len() {
        return Err(std::io::ErrorKind::WriteZero.into());
    }
    tell_bytes(link, &bytes)
}

/// Waits for the order.
///
/// # Errors
/// The system's, and what is no order: the other side is gone or another program.
pub fn take_order<T: DeserializeOwned>(link: &UnixStream) -> std::io::Result<(T, Vec<OwnedFd>)> {
    let mut length = [0u8; 8];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        recvmsg(
            link,
            &mut [IoSliceMut::new(&mut length)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )
    })?;
    let descriptors: Vec<OwnedFd> = control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        })
        .flatten()
        .collect();
    let length = u64::from_be_bytes(length);
    if received.bytes != 8 || length > LONGEST_ORDER {
        return Err(std::io::ErrorKind::InvalidData.into());
    }
    let mut bytes = Vec::new();
    let read = link.take(length).read_to_end(&mut bytes)?;
    if read as u64 != length {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok((serde_json::from_slice(&bytes)?, descriptors))
}

/// Sends one line. A peer that is gone is an error and no signal.
///
/// # Errors
/// The system's.
pub fn tell(link: &UnixStream, line: &impl Serialize) -> std::io::Result<()> {
    tell_bytes(link, &line_of(line)?)
}

/// A line as it is sent.
///
/// # Errors
/// When it cannot be written as JSON.
pub fn line_of(line: &impl Serialize) -> std::io::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    Ok(bytes)
}

fn tell_bytes(link: &UnixStream, mut bytes: &[u8]) -> std::io::Result<()> {
    while !bytes.is_empty() {
        let sent = rustix::io::retry_on_intr(|| send(link, bytes, SendFlags::NOSIGNAL))?;
        bytes = bytes
            .get(sent..)
            .filter(|_| sent > 0)
            .ok_or(std::io::ErrorKind::WriteZero)?;
    }
    Ok(())
}

impl Lines {
    /// Reads what is there, once, when the stream is readable. False when it has ended.
    ///
    /// # Errors
    /// The system's, and a line without an end.
    pub fn fill(&mut self, stream: &mut impl Read) -> std::io::Result<bool> {
        let mut chunk = [0u8; 4096];
        match stream.read(&mut chunk) {
            Ok(0) => self.ended = true,
            Ok(read) => self.push(chunk.get(..read).unwrap_or_default())?,
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted
                ) => {}
            Err(error) => return Err(error),
        }
        Ok(!self.ended)
    }

    /// Takes bytes that were read elsewhere.
    ///
    /// # Errors
    /// A line without an end.
    pub fn push(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() > LONGEST_LINE && !self.buffer.contains(&b'\n') {
            return Err(std::io::ErrorKind::InvalidData.into());
        }
        Ok(())
    }

    /// The next whole line; none when there is none yet.
    ///
    /// # Errors
    /// A line that says something else.
    #[expect(
        clippy::should_implement_trait,
        reason = "what a line says differs from call to call, so this is no iterator"
    )]
    pub fn next<T: DeserializeOwned>(&mut self) -> std::io::Result<Option<T>> {
        let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') else {
            return Ok(None);
        };
        let line: Vec<u8> = self.buffer.drain(..=end).collect();
        Ok(Some(serde_json::from_slice(&line)?))
    }
}
