//! Commands that are shown in a terminal of the editor (`ACP terminal/create`).
//!
//! The editor's terminal shows a relay of ours ([`crate::helper::relay`]), and the command
//! runs where every command does: in the session's sandbox, under a supervisor, with our
//! scrubbed environment and not the editor's, with the folder and variables of the shell.
//! So nothing of a command depends on how an editor starts programs, or whether it takes
//! care of them; and where its terminal fails, the command only is not shown there.
//!
//! Who closes the terminal, kills it or interrupts it there stops the command.

use std::os::fd::AsRawFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use rustix::fs::{Mode, OFlags};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::helper::{self, Role, relay};
use crate::world::editor::EditorError;
use crate::world::process::End;
use crate::world::process::live::LiveSink;

/// Bytes of output that the editor is asked to keep.
pub const OUTPUT_LIMIT: u64 = 128 * 1024;

/// How long an editor may take to open a terminal and start the relay in it.
const OPENING: Duration = Duration::from_secs(5);
/// How long the relay may take to print the rest, once the command has ended.
const CLOSING: Duration = Duration::from_secs(1);
/// Pieces of output that wait for the relay; it is a terminal's speed that they wait for.
const WAITING: usize = 64;
/// Tries for a folder's name.
const TRIES: u32 = 10_000;

/// Terminals as the editor has them. The face that speaks to the editor implements it.
#[async_trait]
pub trait EditorTerminals: Send + Sync {
    /// Whether commands are to be shown there: the editor can, and config says so.
    fn are_wanted(&self) -> bool;

    /// Opens a terminal that runs a program, and shows it on the call's card.
    ///
    /// # Errors
    /// Why there is none; then none is left behind either.
    async fn open(&self, program: EditorProgram) -> Result<EditorTerminal, EditorError>;
}

/// What an editor is to run in a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditorProgram {
    /// The call that it is shown for.
    pub call_id: String,
    pub program: PathBuf,
    pub arguments: Vec<String>,
    pub cwd: PathBuf,
    /// Bytes of output to keep.
    pub output_limit: u64,
}

/// A terminal of the editor. Dropping it kills what runs there and releases it.
#[derive(Debug)]
pub struct EditorTerminal {
    exited: CancellationToken,
    _release: DropGuard,
}

impl EditorTerminal {
    /// `exited` fires when the program has ended; `release` is dropped with this.
    pub fn new(exited: CancellationToken, release: DropGuard) -> Self {
        Self {
            exited,
            _release: release,
        }
    }
}

/// Where a session's commands are shown.
pub struct Display {
    terminals: Option<Arc<dyn EditorTerminals>>,
    /// The editor's terminals do not do what they should.
    is_broken: AtomicBool,
}

/// Where one command is shown, if anywhere.
pub struct Showing {
    shown: Option<Shown>,
    cancel: CancellationToken,
    remark: Option<String>,
}

impl Display {
    /// With the editor's terminals, where there is one.
    pub fn new(terminals: Option<Arc<dyn EditorTerminals>>) -> Self {
        Self {
            terminals,
            is_broken: AtomicBool::new(false),
        }
    }

    /// Shows a command where config wants it. An editor that fails is told of once, and
    /// not tried again.
    pub async fn show(
        &self,
        call_id: &str,
        (scratch, cwd): (&Path, &Path),
        cancel: &CancellationToken,
    ) -> Showing {
        let mut showing = Showing {
            shown: None,
            cancel: cancel.clone(),
            remark: None,
        };
        let wanted = self
            .terminals
            .as_ref()
            .filter(|terminals| terminals.are_wanted())
            .filter(|_| !self.is_broken.load(Ordering::Relaxed));
        let Some(terminals) = wanted else {
            return showing;
        };
        match show(terminals.as_ref(), call_id, scratch, cwd, cancel).await {
            Ok(shown) => {
                showing.cancel = shown.cancel.clone();
                showing.shown = Some(shown);
            }
            Err(_) if cancel.is_cancelled() => {}
            Err(why) => {
                self.is_broken.store(true, Ordering::Relaxed);
                showing.remark = Some(format!(
                    "not shown in the editor's terminal, and neither are later commands: {why}"
                ));
            }
        }
        showing
    }
}

impl Showing {
    /// A sink for live output that is shown there, too, after the command itself.
    pub fn live(&self, command: &str, further: LiveSink) -> LiveSink {
        let Some(shown) = &self.shown else {
            return further;
        };
        let live = shown.live(further);
        live(&format!("$ {}\n", command.trim_end()));
        live
    }

    /// What the command is cancelled by: the call, or somebody at the terminal.
    pub fn cancel(&self) -> &CancellationToken {
        &self.cancel
    }

    /// Ends what is shown as the command ended, and gives what the model should know.
    pub async fn finish(self, end: End) -> Option<String> {
        match self.shown {
            Some(shown) => shown.finish(end).await,
            None => self.remark,
        }
    }
}

/// A command that is shown in the editor's terminal.
struct Shown {
    terminal: EditorTerminal,
    pieces: mpsc::Sender<Told>,
    /// Fires when the relay is gone before the command.
    stopped: CancellationToken,
    /// Fires with the call's own cancel, and when the relay is gone.
    cancel: CancellationToken,
    /// Owns the connection.
    _talk: tokio_util::task::AbortOnDropHandle<()>,
    _folder: Folder,
}

/// One message to the relay.
enum Told {
    Piece(String),
    End(u8),
}

/// Opens a terminal for a call and waits until its relay is there. `scratch` is private to
/// us; the relay is started from a name in it.
///
/// # Errors
/// Why the command is not shown, in words for the ledger. It runs all the same.
async fn show(
    terminals: &dyn EditorTerminals,
    call_id: &str,
    scratch: &Path,
    cwd: &Path,
    cancel: &CancellationToken,
) -> Result<Shown, String> {
    if !helper::is_available() {
        // The editor would start the whole program.
        return Err("this program is none of its own helpers".to_owned());
    }
    let opened = async {
        let (folder, listener) = {
            let scratch = scratch.to_owned();
            tokio::task::spawn_blocking(move || Folder::make(&scratch))
                .await
                .map_err(|error| error.to_string())?
                .map_err(|error| error.to_string())?
        };
        let listener = UnixListener::from_std(listener).map_err(|error| error.to_string())?;
        let program = EditorProgram {
            call_id: call_id.to_owned(),
            program: folder.program(),
            arguments: vec![folder.socket().to_string_lossy().into_owned()],
            cwd: cwd.to_owned(),
            output_limit: OUTPUT_LIMIT,
        };
        let terminal = terminals
            .open(program)
            .await
            .map_err(|error| error.to_string())?;
        let link = tokio::select! {
            link = accept(&listener) => link.map_err(|error| error.to_string())?,
            () = terminal.exited.cancelled() => {
                return Err("it did not start what it was given".to_owned());
            }
        };
        Ok((folder, terminal, link))
    };
    let opened = tokio::select! {
        opened = timeout(OPENING, opened) => {
            opened.unwrap_or_else(|_| Err(format!("it was not ready within {} s", OPENING.as_secs())))
        }
        () = cancel.cancelled() => Err("the call was cancelled".to_owned()),
    };
    let (folder, terminal, link) = opened?;
    let (pieces, told) = mpsc::channel(WAITING);
    let (stopped, cancel) = (CancellationToken::new(), cancel.child_token());
    let talk = tokio::spawn(talk(link, told, stopped.clone(), cancel.clone()));
    Ok(Shown {
        terminal,
        pieces,
        stopped,
        cancel,
        _talk: tokio_util::task::AbortOnDropHandle::new(talk),
        _folder: folder,
    })
}

impl Shown {
    /// A sink for live output that tells the relay, too.
    fn live(&self, further: LiveSink) -> LiveSink {
        let pieces = self.pieces.clone();
        Arc::new(move |text: &str| {
            let end = text.floor_char_boundary(relay::PIECE);
            let piece = text.get(..end).unwrap_or_default().to_owned();
            // A terminal that does not keep up shows less; the result has both ends.
            let _ = pieces.try_send(Told::Piece(piece));
            further(text);
        })
    }

    /// Ends the relay as the command ended, and lets go of the terminal. Says so when it
    /// was there that the command was stopped.
    async fn finish(self, end: End) -> Option<String> {
        if self.stopped.is_cancelled() {
            return Some("the command was stopped in the editor's terminal".to_owned());
        }
        let code = match end {
            End::Exited(status) => u8::try_from(status & 0xff).unwrap_or(1),
            End::Signalled(signal) => u8::try_from(128 + (signal & 0x7f)).unwrap_or(1),
            End::TimedOut | End::Cancelled => 143,
        };
        let printed = async {
            if self.pieces.send(Told::End(code)).await.is_ok() {
                self.terminal.exited.cancelled().await;
            }
        };
        // An editor that never tells of the end is not waited for.
        let _ = timeout(CLOSING, printed).await;
        None
    }
}

/// The first connection of our own user.
async fn accept(listener: &UnixListener) -> std::io::Result<UnixStream> {
    loop {
        let (link, _) = listener.accept().await?;
        if link.peer_cred()?.uid() == rustix::process::geteuid().as_raw() {
            return Ok(link);
        }
    }
}

async fn talk(
    link: UnixStream,
    mut told: mpsc::Receiver<Told>,
    stopped: CancellationToken,
    cancel: CancellationToken,
) {
    let (mut heard, mut said) = link.into_split();
    let speak = async {
        while let Some(told) = told.recv().await {
            let bytes = match &told {
                Told::Piece(piece) => {
                    let length = u32::try_from(piece.len()).unwrap_or_default().to_le_bytes();
                    [&[relay::OUTPUT], length.as_slice(), piece.as_bytes()].concat()
                }
                Told::End(code) => vec![relay::END, *code],
            };
            if said.write_all(&bytes).await.is_err() {
                return;
            }
            if matches!(told, Told::End(_)) {
                // What comes now is the relay's own end.
                std::future::pending::<()>().await;
            }
        }
    };
    let mut nothing = [0; 1];
    tokio::select! {
        () = speak => {}
        _ = heard.read(&mut nothing) => {}
    }
    stopped.cancel();
    cancel.cancel();
}

/// A private folder with the relay's name and the socket in it; removed with this.
struct Folder(PathBuf);

impl Folder {
    fn make(scratch: &Path) -> std::io::Result<(Self, std::os::unix::net::UnixListener)> {
        let mut builder = std::fs::DirBuilder::new();
        builder.mode(0o700);
        builder.recursive(true).create(scratch)?;
        builder.recursive(false);
        let mut number = 0;
        let folder = loop {
            let path = scratch.join(format!("terminal-{number}"));
            match builder.create(&path) {
                Ok(()) => break Self(path),
                Err(error)
                    if error.kind() == std::io::ErrorKind::AlreadyExists && number < TRIES =>
                {
                    number += 1;
                }
                Err(error) => return Err(error),
            }
        };
        // Found by the process and not by its path: our file may have been replaced.
        let ourselves = format!("/proc/{}/exe", std::process::id());
        std::os::unix::fs::symlink(ourselves, folder.program())?;
        // By descriptor: the path may be longer than a socket's may be.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(&folder.0, flags, Mode::empty())?;
        let by_descriptor = format!("/proc/self/fd/{}", opened.as_raw_fd());
        let listener =
            std::os::unix::net::UnixListener::bind(Path::new(&by_descriptor).join(SOCKET))?;
        listener.set_nonblocking(true)?;
        Ok((folder, listener))
    }

    fn program(&self) -> PathBuf {
        self.0.join(Role::Relay.name())
    }

    fn socket(&self) -> PathBuf {
        self.0.join(SOCKET)
    }
}

/// The socket's name in its folder.
const SOCKET: &str = "socket";

impl Drop for Folder {
    #[expect(clippy::disallowed_methods, reason = "a private folder of ours")]
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(%error, "a folder for the editor's terminal was not removed");
        }
    }
}
