//! Programs on a terminal of their own, that live between calls (`Terret spec §5.4`).
//!
//! Each has a name within its session, a screen that is always up to date whoever reads
//! it, and one task that owns the program and drains what it writes, so that a program
//! nobody looks at never stands still. What starts goes the way of every program: through
//! the sandbox, under a supervisor, with a scrubbed environment. A program that has ended
//! keeps its name and its last screen until the terminal is closed.

mod grid;
pub mod keys;
mod parser;
mod pty;
pub mod screen;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::world::process::held::{Held, HeldState};
use crate::world::process::tree::signal_name;
use crate::world::process::{End, ProcessError, Processes, Program};
use crate::world::sandbox::Confinement;
use crate::world::terminals::keys::Keyboard;
use crate::world::terminals::pty::Pty;
use crate::world::terminals::screen::{Screen, View};

/// Terminals that a session may have at a time, ended ones included.
pub const MOST: usize = 8;
/// How long a read waits for something new, when nothing is said.
pub const WAIT: Duration = Duration::from_millis(100);
/// Characters of a name.
pub const NAME: usize = 64;

/// A program that draws is done drawing when it wrote nothing for so long.
const QUIET: Duration = Duration::from_millis(30);
/// A read gives what there is after so long, even when the program never stops.
const SETTLE: Duration = Duration::from_millis(300);
/// How long typing waits for a program that takes nothing in.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of output that are taken at a time.
const CHUNK: usize = 16 * 1024;
/// Output that is taken after the end: what the system buffers is far less.
const LAST_WORDS: usize = 1024 * 1024;

/// What the terminals of a session are like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSettings {
    pub rows: u16,
    pub columns: u16,
    /// [`MOST`] unless config says otherwise.
    pub limit: usize,
}

impl Default for TerminalSettings {
    fn default() -> Self {
        Self {
            rows: 24,
            columns: 80,
            limit: MOST,
        }
    }
}

/// Why a terminal does not do what was asked. The words are for the model.
#[derive(Debug, thiserror::Error)]
pub enum TerminalError {
    #[error("`name` is {0}; give a short name of letters, digits, `-`, `_` and `.`")]
    Name(String),
    #[error(
        "there is already a terminal named {0}; give another name, or close it with terminal_close"
    )]
    Exists(String),
    #[error(
        "{limit} terminals are open, the most that a session may have ({open}); close one with terminal_close"
    )]
    Limit { limit: usize, open: String },
    #[error("no terminal named {0} is open; open one with terminal_open")]
    NoSuchTerminal(String),
    #[error("nothing can be typed: {0}; its name is free after terminal_close")]
    Gone(String),
    #[error("{0}")]
    Program(String),
    #[error("the terminal could not be made: {0}")]
    Pty(#[source] std::io::Error),
    #[error("what was typed did not reach the program: {0}")]
    Write(#[source] std::io::Error),
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error("cancelled: {0}")]
    Cancelled(&'static str),
}

/// A program to open a terminal for.
#[derive(Debug, Clone)]
pub struct OpenTerminal {
    pub name: String,
    pub argv: Vec<OsString>,
    pub cwd: PathBuf,
    pub confinement: Confinement,
}

/// What was typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    /// Bytes that reached the terminal.
    pub sent: usize,
    /// Bytes that the text is.
    pub of: usize,
    /// Names of keys that were read in the text.
    pub keys: Vec<String>,
    /// A line is longer than the system keeps of one.
    pub overlong: bool,
}

/// What a read gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// None when there is nothing new.
    pub view: Option<View>,
    /// How the program ended, in words, when it has.
    pub ended: Option<String>,
    /// The program reads a line that is not shown as it is typed, such as a password.
    pub hidden_input: bool,
    pub rows: u16,
    pub columns: u16,
}

/// One session's terminals. Dropping it ends their programs.
pub struct Terminals {
    settings: TerminalSettings,
    open: Mutex<BTreeMap<String, Slot>>,
    tasks: TaskTracker,
    closing: CancellationToken,
    _close: DropGuard,
}

/// A name that is taken.
enum Slot {
    /// By a program that is being started.
    Opening,
    Open(Arc<Terminal>),
}

/// A terminal with its program.
struct Terminal {
    name: String,
    pid: i32,
    screen: Mutex<Screen>,
    /// None once the program has ended.
    pty: Mutex<Option<Arc<Pty>>>,
    /// Changes with everything that a read may wait for.
    changed: watch::Sender<Progress>,
    stop: CancellationToken,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Progress {
    /// Pieces of output so far.
    pieces: u64,
    /// How it ended, once nothing of it is left.
    ended: Option<End>,
}

impl Terminals {
    /// No terminals yet.
    pub fn new(settings: TerminalSettings) -> Self {
        let closing = CancellationToken::new();
        Self {
            settings,
            open: Mutex::default(),
            tasks: TaskTracker::new(),
            _close: closing.clone().drop_guard(),
            closing,
        }
    }

    /// Starts a program on a new terminal, and gives its process id.
    ///
    /// # Errors
    /// [`TerminalError`]; then no name is taken and nothing runs (check 148).
    pub async fn open(
        &self,
        processes: &Processes,
        request: OpenTerminal,
    ) -> Result<i32, TerminalError> {
        let name = request.name.clone();
        self.take(&name)?;
        // Whatever becomes of this call, the name is not left to nobody.
        let slot = Taken {
            terminals: self,
            name: &name,
            kept: false,
        };
        let terminal = self.start(processes, request).await?;
        let pid = terminal.pid;
        slot.keep(terminal);
        Ok(pid)
    }

    /// Types text; see [`keys`] for what is a key in it.
    ///
    /// # Errors
    /// [`TerminalError::NoSuchTerminal`], [`TerminalError::Gone`] when the program has
    /// ended, which is looked at first, or the system's refusal.
    pub async fn input(
        &self,
        name: &str,
        text: &str,
        cancel: &CancellationToken,
    ) -> Result<Input, TerminalError> {
        let terminal = self.find(name)?;
        let Some(pty) = terminal.pty() else {
            return Err(TerminalError::Gone(terminal.ending()));
        };
        let modes = pty.modes().map_err(TerminalError::Pty)?;
        let typed = keys::typed(
            text,
            Keyboard {
                application: terminal.screen().application_keys(),
                line_feed: modes.lines && !modes.returns,
            },
        );
        let overlong = modes.lines
            && typed
                .bytes
                .split(|byte| matches!(byte, b'\r' | b'\n'))
                .any(|line| line.len() > keys::LINE);
        let of = typed.bytes.len();
        let mut sent = 0;
        while let Some(rest) = typed.bytes.get(sent..).filter(|rest| !rest.is_empty()) {
            let mut progress = terminal.changed.subscribe();
            let written = tokio::select! {
                written = timeout(PATIENCE, pty.write(rest)) => written,
                _ = progress.wait_for(|progress| progress.ended.is_some()) => {
                    return Err(TerminalError::Gone(terminal.ending()));
                }
                () = cancel.cancelled() => return Err(TerminalError::Cancelled("part of the text may have been typed")),
            };
            match written {
                Ok(written) => sent += written.map_err(TerminalError::Write)?,
                // The program takes nothing in: what is left out is told.
                Err(_) => break,
            }
        }
        Ok(Input {
            sent,
            of,
            keys: typed.keys,
            overlong,
        })
    }

    /// What is new on a terminal; waits up to `wait` while nothing is.
    ///
    /// # Errors
    /// [`TerminalError::NoSuchTerminal`], or the cancel of the call.
    pub async fn read(
        &self,
        name: &str,
        wait: Duration,
        cancel: &CancellationToken,
    ) -> Result<Reading, TerminalError> {
        let terminal = self.find(name)?;
        let mut changed = terminal.changed.subscribe();
        let news = terminal.news(&mut changed, Instant::now() + wait);
        tokio::select! {
            () = news => {}
            () = cancel.cancelled() => return Err(TerminalError::Cancelled("nothing was read")),
        }
        let ended = terminal.changed.borrow().ended.is_some();
        let modes = terminal.pty().and_then(|pty| pty.modes().ok());
        let view = terminal.screen().read();
        Ok(Reading {
            hidden_input: modes.is_some_and(|modes| modes.lines && !modes.echo),
            view,
            ended: ended.then(|| terminal.ending()),
            rows: self.settings.rows,
            columns: self.settings.columns,
        })
    }

    /// Ends a terminal's program with all that came from it, and frees the name; waits
    /// until it is gone. False when no terminal has the name.
    pub async fn close(&self, name: &str, cancel: &CancellationToken) -> bool {
        let terminal = {
            let mut open = self.slots();
            match open.get(name) {
                Some(Slot::Open(terminal)) => {
                    let terminal = Arc::clone(terminal);
                    open.remove(name);
                    terminal
                }
                Some(Slot::Opening) | None => return false,
            }
        };
        terminal.stop.cancel();
        let mut changed = terminal.changed.subscribe();
        tokio::select! {
            _ = changed.wait_for(|progress| progress.ended.is_some()) => {}
            // Its end goes on without us.
            () = cancel.cancelled() => {}
        }
        true
    }

    /// Whether a terminal has this name.
    pub fn is_open(&self, name: &str) -> bool {
        self.find(name).is_ok()
    }

    /// Ends all programs, and waits until they are gone.
    pub async fn shutdown(&self) {
        self.closing.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.slots().clear();
    }

    fn slots(&self) -> MutexGuard<'_, BTreeMap<String, Slot>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, name: &str) -> Result<Arc<Terminal>, TerminalError> {
        match self.slots().get(name) {
            Some(Slot::Open(terminal)) => Ok(Arc::clone(terminal)),
            Some(Slot::Opening) | None => Err(TerminalError::NoSuchTerminal(keys::shown(name))),
        }
    }

    fn take(&self, name: &str) -> Result<(), TerminalError> {
        check_name(name)?;
        let mut open = self.slots();
        if open.contains_key(name) {
            return Err(TerminalError::Exists(name.to_owned()));
        }
        if open.len() >= self.settings.limit {
            let names: Vec<&str> = open.keys().map(String::as_str).collect();
            return Err(TerminalError::Limit {
                limit: self.settings.limit,
                open: names.join(", "),
            });
        }
        open.insert(name.to_owned(), Slot::Opening);
        Ok(())
    }

    async fn start(
        &self,
        processes: &Processes,
        request: OpenTerminal,
    ) -> Result<Arc<Terminal>, TerminalError> {
        let TerminalSettings { rows, columns, .. } = self.settings;
        let environment = environment(processes.environment(), &request.cwd);
        let (argv, cwd) = (request.argv.clone(), request.cwd.clone());
        let searched = environment.clone();
        // Looking for a program and making a terminal touch the disk.
        let (pty, slave) = tokio::task::spawn_blocking(move || {
            pty::check(&argv, &cwd, &searched).map_err(TerminalError::Program)?;
            pty::open(rows, columns).map_err(TerminalError::Pty)
        })
        .await
        .map_err(|_| ProcessError::Lost)??;
        let program = Program {
            argv: request.argv,
            cwd: request.cwd,
            environment,
            input: None,
            confinement: request.confinement,
        };
        let running = processes.start_on_terminal(program, slave).await?;
        let pty = Arc::new(Pty::new(pty).map_err(TerminalError::Pty)?);
        let terminal = Arc::new(Terminal {
            name: request.name,
            pid: running.pid(),
            screen: Mutex::new(Screen::new(rows.into(), columns.into())),
            pty: Mutex::new(Some(Arc::clone(&pty))),
            changed: watch::Sender::new(Progress::default()),
            stop: self.closing.child_token(),
        });
        self.tasks.spawn(Arc::clone(&terminal).keep(running, pty));
        Ok(terminal)
    }
}

/// A name that goes back unless a terminal comes of it.
struct Taken<'a> {
    terminals: &'a Terminals,
    name: &'a str,
    kept: bool,
}

impl Taken<'_> {
    fn keep(mut self, terminal: Arc<Terminal>) {
        self.kept = true;
        self.terminals
            .slots()
            .insert(self.name.to_owned(), Slot::Open(terminal));
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if !self.kept {
            self.terminals.slots().remove(self.name);
        }
    }
}

impl Terminal {
    /// Owns the program: drains what it writes until it has ended.
    async fn keep(self: Arc<Self>, running: Held, pty: Arc<Pty>) {
        let mut chunk = vec![0; CHUNK];
        let finished = {
            let mut finished = pin!(self.over(&running));
            loop {
                tokio::select! {
                    finished = &mut finished => break finished,
                    read = pty.read(&mut chunk) => match read {
                        Ok(read) => {
                            self.take(chunk.get(..read).unwrap_or_default(), &pty);
                            // Of a program that writes without end a read never waits, and
                            // what this worker is to do next waits for us: the stop, too.
                            tokio::task::yield_now().await;
                        }
                        Err(error) => {
                            tracing::warn!(%error, "a terminal cannot be read any more");
                            break finished.await;
                        }
                    }
                }
            }
        };
        let mut left = LAST_WORDS;
        while let Some(read) = pty.try_read(&mut chunk).filter(|_| left > 0) {
            left = left.saturating_sub(read);
            self.take(chunk.get(..read).unwrap_or_default(), &pty);
        }
        *self.pty.lock().unwrap_or_else(PoisonError::into_inner) = None;
        drop(pty);
        if finished.is_stuck {
            tracing::warn!(pid = self.pid, "a terminal's program does not end");
        }
        if let Some(error) = finished.lost {
            tracing::warn!(%error, "a terminal's program was lost");
        }
        self.changed.send_modify(|progress| {
            progress.ended = Some(finished.ended.unwrap_or(End::Signalled(0)));
        });
    }

    /// Waits until nothing of the program is left, and ends it when it is to stop.
    async fn over(&self, running: &Held) -> HeldState {
        tokio::select! {
            over = running.over() => return over,
            () = self.stop.cancelled() => running.stop(),
        }
        running.over().await
    }

    fn take(&self, bytes: &[u8], pty: &Pty) {
        let answers = {
            let mut screen = self.screen();
            screen.push(bytes);
            screen.take_answers()
        };
        if !answers.is_empty() {
            pty.try_write(&answers);
        }
        self.changed.send_modify(|progress| progress.pieces += 1);
    }

    /// Waits for something new or the end, and then for a program that is drawing.
    async fn news(&self, changed: &mut watch::Receiver<Progress>, deadline: Instant) {
        loop {
            let ended = changed.borrow_and_update().ended.is_some();
            if ended || self.screen().look().is_some() {
                break;
            }
            match timeout_at(deadline, changed.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return,
            }
        }
        let latest = Instant::now() + SETTLE;
        while changed.borrow_and_update().ended.is_none() {
            // A program that writes all the time always has a change, and of a change that
            // is there a timeout that is over makes nothing.
            let now = Instant::now();
            let quiet = latest.min(now + QUIET);
            if now >= latest || !matches!(timeout_at(quiet, changed.changed()).await, Ok(Ok(()))) {
                return;
            }
        }
    }

    fn screen(&self) -> MutexGuard<'_, Screen> {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pty(&self) -> Option<Arc<Pty>> {
        self.pty
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// How the program ended, in words.
    fn ending(&self) -> String {
        let how = match self.changed.borrow().ended {
            Some(End::Exited(status)) => format!("with exit status {status}"),
            Some(End::Signalled(0)) | None => "without a status".to_owned(),
            Some(End::Signalled(signal)) => format!("by {}", signal_name(signal)),
            Some(End::TimedOut | End::Cancelled) => "because it was stopped".to_owned(),
        };
        format!("the program in terminal {} has ended {how}", self.name)
    }
}

/// What a program on a terminal finds: nothing that keeps it from using the terminal.
fn environment(
    inherited: &BTreeMap<OsString, OsString>,
    cwd: &std::path::Path,
) -> BTreeMap<OsString, OsString> {
    let mut environment = inherited.clone();
    // The size is the terminal's own to tell.
    for name in ["COLUMNS", "LINES", "TERMCAP", "TERM_PROGRAM", "COLORTERM"] {
        environment.remove(std::ffi::OsStr::new(name));
    }
    environment.insert("TERM".into(), "xterm".into());
    environment.insert("PWD".into(), cwd.into());
    environment
}

/// Rules and titles show the name, so it must be what it looks like.
fn check_name(name: &str) -> Result<(), TerminalError> {
    if name.trim().is_empty() {
        return Err(TerminalError::Name("empty".to_owned()));
    }
    let length = name.chars().count();
    if length > NAME {
        return Err(TerminalError::Name(format!(
            "{length} characters long, and {NAME} are the most"
        )));
    }
    let odd = name.chars().find(|character| {
        character.is_control() || keys::reorders(*character) || matches!(character, ':' | '(' | ')')
    });
    match odd {
        Some(odd) => Err(TerminalError::Name(format!(
            "a text with the character {odd:?} in it"
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
