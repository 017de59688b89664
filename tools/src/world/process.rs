//! Starts programs and ends all that came from them (`design.md §4 Processes`).
//!
//! Every program starts through the [`sandbox`] seam and hangs on a supervisor of ours
//! ([`crate::helper`]): in a session of its own, without standard input, with a scrubbed
//! [`environment`] and one pipe for both outputs, which leads straight to us. A task owns
//! each; cancel, timeout, a dropped handle and the end of the engine, of whatever kind,
//! all end the whole tree, by a request first and by force after the grace.
//!
//! [`sandbox`]: crate::world::sandbox

pub mod capture;
pub mod clean;
pub mod environment;
pub mod exchange;
mod failure;
pub mod held;
pub mod live;
mod owner;
mod pump;
mod supervised;
pub mod tree;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fd::OwnedFd;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::helper::HelperProgram;
use crate::helper::link::{Order, Streams, Word};
use crate::world::Environment;
use crate::world::process::capture::{Capture, CaptureLimits, Captured};
use crate::world::process::held::{Held, HeldState};
use crate::world::process::live::LiveSink;
use crate::world::process::owner::Launch;
use crate::world::process::pump::Pump;
use crate::world::process::tree::{Leftover, Strays};
use crate::world::sandbox::{
    Confinement, NoSandbox, Reach, Sandbox, SandboxRefusal, SandboxRequest, Wrapped,
};

/// Bytes of cleaned output for the model.
pub const SHOWN: usize = 30_000;
/// Bytes of raw output kept in a file.
pub const KEPT: u64 = 64 * 1024 * 1024;
/// Between the request to end and the kill.
pub const GRACE: Duration = Duration::from_secs(2);
/// The same when the engine ends: its editor is gone, and must not wait for what ignores
/// the request.
pub const CLOSE_GRACE: Duration = Duration::from_millis(500);
/// How long a cancelled call waits for its tree before it gives its result; the tree's
/// end goes on without it.
pub const CANCEL_WAIT: Duration = Duration::from_millis(150);
/// What [`Processes`] start with.
#[derive(Clone)]
pub struct ProcessSettings {
    pub environment: Environment,
    /// The provider to begin with.
    pub sandbox: Arc<dyn Sandbox>,
    /// The session's roots to begin with: what confined programs may write.
    pub roots: Vec<PathBuf>,
    /// Private folder for full outputs and, in its `tmp`, for temporary files; made when
    /// it is missing. Empty keeps none.
    pub scratch: PathBuf,
    /// What our own helpers are started from.
    pub helper: HelperProgram,
    /// [`GRACE`] unless a test is in a hurry.
    pub grace: Duration,
}

/// A program to start.
pub struct Program {
    pub argv: Vec<OsString>,
    pub cwd: PathBuf,
    /// The whole environment; [`Processes::environment`] is where to begin.
    pub environment: BTreeMap<OsString, OsString>,
    /// Standard input; closed when none.
    pub input: Option<OwnedFd>,
    pub confinement: Confinement,
}

/// How a foreground program is watched.
#[derive(Clone, Default)]
pub struct Watch {
    /// Wall time until the tree is ended.
    pub timeout: Option<Duration>,
    /// Takes live output.
    pub live: Option<LiveSink>,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Exited(i32),
    /// Killed by this signal, not by us.
    Signalled(i32),
    TimedOut,
    Cancelled,
}

/// A program that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    pub end: End,
    pub output: Captured,
    /// What was still running after the leader's end, and was ended then.
    pub leftovers: Vec<Leftover>,
    /// False when something of the tree was still there: its end goes on.
    pub gone: bool,
}

/// Why a program did not start.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    #[error(transparent)]
    Sandbox(#[from] SandboxRefusal),
    #[error("no program was named")]
    Empty,
    #[error("`{}` cannot be started in {}: {source}", program.to_string_lossy(), cwd.display())]
    Spawn {
        program: OsString,
        cwd: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the supervisor for a program cannot be started: {source}")]
    Supervisor {
        #[source]
        source: std::io::Error,
    },
    #[error("no more programs are started: the session has ended")]
    Closed,
    #[error("the program's supervisor was lost; what it started was killed")]
    Lost,
    #[error(
        "the program's supervisor was lost, and some of what it started does not end although it was killed; a person may look for it by `TERRET_CALL={mark}` in the environment of processes"
    )]
    Loose {
        /// What its processes carry as [`environment::TREE`].
        mark: String,
    },
}

/// Starts programs; owns the tasks that keep them. Dropping it ends them all.
pub struct Processes {
    settings: ProcessSettings,
    inherited: BTreeMap<OsString, OsString>,
    temporary: PathBuf,
    /// The provider and the roots, which may change while programs run.
    confinement: Mutex<(Arc<dyn Sandbox>, Vec<PathBuf>)>,
    keepers: TaskTracker,
    closing: CancellationToken,
    _close: DropGuard,
}

/// A program that passed the sandbox, for a helper to start.
#[derive(Debug)]
pub struct Prepared {
    /// What the helper is told; its descriptors are `input`, if there is one, and the
    /// output, or the terminal.
    pub order: Order,
    /// What its tree carries as [`environment::TREE`].
    pub mark: String,
    pub input: Option<OwnedFd>,
}

/// A running program. Dropping it ends its whole tree.
pub struct Running {
    pid: i32,
    capture: Arc<Mutex<Capture>>,
    finished: oneshot::Receiver<Result<Finished, ProcessError>>,
    stop: CancellationToken,
    _stop: DropGuard,
}

impl Default for ProcessSettings {
    fn default() -> Self {
        Self {
            environment: Environment::default(),
            sandbox: Arc::new(NoSandbox),
            roots: Vec::new(),
            scratch: PathBuf::new(),
            helper: HelperProgram::default(),
            grace: GRACE,
        }
    }
}

impl Processes {
    /// With our own environment, scrubbed once.
    #[expect(
        clippy::disallowed_methods,
        reason = "programs inherit this process's environment, scrubbed"
    )]
    pub fn new(settings: ProcessSettings) -> Self {
        let mut inherited = environment::scrubbed(std::env::vars_os(), &settings.environment);
        let temporary = if settings.scratch.as_os_str().is_empty() {
            PathBuf::new()
        } else {
            settings.scratch.join("tmp")
        };
        for name in ["TMPDIR", "TMP", "TEMP"] {
            let is_set = name == "TMPDIR" || inherited.contains_key(OsStr::new(name));
            if is_set && temporary.is_absolute() && !settings.environment.set.contains_key(name) {
                inherited.insert(name.into(), temporary.clone().into());
            }
        }
        let closing = CancellationToken::new();
        Self {
            confinement: Mutex::new((Arc::clone(&settings.sandbox), settings.roots.clone())),
            settings,
            inherited,
            temporary,
            keepers: TaskTracker::new(),
            _close: closing.clone().drop_guard(),
            closing,
        }
    }

    /// What every program's environment begins with.
    pub fn environment(&self) -> &BTreeMap<OsString, OsString> {
        &self.inherited
    }

    /// The private folder for temporary files, `TMPDIR` of every program; empty for none.
    pub fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// The program that helpers are started from.
    pub fn helper(&self) -> &HelperProgram {
        &self.settings.helper
    }

    /// The provider that programs start in.
    pub fn sandbox(&self) -> Arc<dyn Sandbox> {
        Arc::clone(&self.confinement().0)
    }

    /// Changes the provider for what starts from now on.
    pub fn set_sandbox(&self, sandbox: Arc<dyn Sandbox>) {
        self.confinement().0 = sandbox;
    }

    /// Changes the folders that confined programs may work in, for what starts from now on.
    pub fn set_roots(&self, roots: Vec<PathBuf>) {
        self.confinement().1 = roots;
    }

    fn confinement(&self) -> MutexGuard<'_, (Arc<dyn Sandbox>, Vec<PathBuf>)> {
        self.confinement
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes a program through the sandbox and makes the order for its helper. Whoever
    /// starts the helper owns what runs; [`Self::start`] and [`Self::start_on_terminal`]
    /// do both.
    ///
    /// # Errors
    /// [`ProcessError`] when the sandbox refuses or its folders cannot be made.
    #[expect(
        clippy::disallowed_methods,
        reason = "a mark that nobody can guess and no replay needs"
    )]
    pub async fn prepare(
        &self,
        program: Program,
        is_terminal: bool,
    ) -> Result<Prepared, ProcessError> {
        if self.closing.is_cancelled() {
            return Err(ProcessError::Closed);
        }
        let mark = uuid::Uuid::new_v4().simple().to_string();
        let (sandbox, roots) = self.confinement().clone();
        let temporary = self.temporary.clone();
        // A provider may have to start something first.
        tokio::task::spawn_blocking(move || {
            prepared(
                program,
                is_terminal,
                mark,
                sandbox.as_ref(),
                roots,
                temporary,
            )
        })
        .await
        .map_err(|_| ProcessError::Lost)?
    }

    /// Starts a program. Must be called on a tokio runtime.
    ///
    /// # Errors
    /// [`ProcessError`]; then nothing runs.
    pub async fn start(&self, program: Program, watch: Watch) -> Result<Running, ProcessError> {
        // Given up half-way, this ends what was started meanwhile.
        let stop = self.closing.child_token();
        let guard = stop.clone().drop_guard();
        let prepared = self.prepare(program, false).await?;
        let path = if self.settings.scratch.as_os_str().is_empty() {
            PathBuf::new()
        } else {
            self.settings
                .scratch
                .join(format!("output-{}.txt", prepared.mark))
        };
        let capture = Arc::new(Mutex::new(Capture::new(CaptureLimits {
            shown: SHOWN,
            file: KEPT,
            path,
        })));
        let (output, writer) =
            std::io::pipe().map_err(|source| ProcessError::Supervisor { source })?;
        let writer = OwnedFd::from(writer);
        let strays = Strays {
            mark: prepared.mark,
            pipe: rustix::fs::fstat(&writer).ok().map(|stat| stat.st_ino),
        };
        let launch = self.launch(
            prepared.order,
            prepared.input.into_iter().chain([writer]).collect(),
            strays,
            stop.clone(),
        );
        let (told, started) = oneshot::channel();
        let (tell, finished) = oneshot::channel();
        let kept = Arc::clone(&capture);
        self.keepers.spawn(async move {
            let begun = match launch.start().await {
                Ok(owner) => Pump::start(output, Arc::clone(&kept), watch.live)
                    .map(|pump| (owner, pump))
                    .map_err(|source| ProcessError::Supervisor { source }),
                Err(error) => Err(error),
            };
            let (mut owner, pump) = match begun {
                Ok(begun) => begun,
                Err(error) => {
                    let _ = told.send(Err(error));
                    return;
                }
            };
            // Nobody may be waiting any more; then the stop was said.
            let _ = told.send(Ok(owner.pid()));
            let outcome = owner.watch(watch.timeout, |_| {}).await;
            pump.stop().await;
            let _ = tell.send(outcome.map(|outcome| Finished {
                end: outcome.end,
                output: kept.lock().unwrap_or_else(PoisonError::into_inner).finish(),
                leftovers: outcome.leftovers,
                gone: outcome.gone,
            }));
            owner.rest().await;
        });
        let pid = started.await.map_err(|_| ProcessError::Lost)??;
        Ok(Running {
            pid,
            capture,
            finished,
            stop,
            _stop: guard,
        })
    }

    /// Starts a program on a terminal, which is given by the end that programs have. Must
    /// be called on a tokio runtime. [`Program::input`] is not used.
    ///
    /// # Errors
    /// [`ProcessError`]; then nothing runs.
    pub async fn start_on_terminal(
        &self,
        program: Program,
        terminal: OwnedFd,
    ) -> Result<Held, ProcessError> {
        let stop = self.closing.child_token();
        let guard = stop.clone().drop_guard();
        let prepared = self.prepare(program, true).await?;
        let strays = Strays {
            mark: prepared.mark,
            pipe: None,
        };
        let launch = self.launch(prepared.order, vec![terminal], strays, stop.clone());
        let (told, started) = oneshot::channel();
        let (tell, state) = watch::channel(HeldState::default());
        self.keepers.spawn(async move {
            let mut owner = match launch.start().await {
                Ok(owner) => owner,
                Err(error) => {
                    let _ = told.send(Err(error));
                    return;
                }
            };
            let _ = told.send(Ok(owner.pid()));
            let outcome = owner
                .watch(None, |end| {
                    tell.send_modify(|state| state.ended = Some(end))
                })
                .await;
            tell.send_modify(|state| {
                state.is_over = true;
                match outcome {
                    Ok(outcome) => {
                        state.ended = Some(outcome.end);
                        state.leftovers = outcome.leftovers;
                        state.is_stuck = !outcome.gone;
                    }
                    Err(error) => state.lost = Some(Arc::new(error)),
                }
            });
            owner.rest().await;
        });
        let pid = started.await.map_err(|_| ProcessError::Lost)??;
        Ok(Held {
            pid,
            state,
            stop,
            _stop: guard,
        })
    }

    fn launch(
        &self,
        order: Order,
        descriptors: Vec<OwnedFd>,
        strays: Strays,
        stop: CancellationToken,
    ) -> Launch {
        Launch {
            helper: self.settings.helper.clone(),
            order,
            descriptors,
            strays,
            stop,
            closing: self.closing.clone(),
            grace: self.settings.grace,
        }
    }

    /// Ends everything and waits until it is gone.
    pub async fn shutdown(&self) {
        self.closing.cancel();
        self.keepers.close();
        self.keepers.wait().await;
    }
}

impl Running {
    /// The leader's process id.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Waits for the end. When `cancel` fires, the tree is asked to end, and the result
    /// comes within [`CANCEL_WAIT`] even when the tree takes longer.
    ///
    /// # Errors
    /// [`ProcessError::Lost`] when its supervisor was killed or the runtime went away, and
    /// [`ProcessError::Loose`] when some of the tree is still there then.
    pub async fn finish(mut self, cancel: &CancellationToken) -> Result<Finished, ProcessError> {
        tokio::select! {
            finished = &mut self.finished => return finished.unwrap_or(Err(ProcessError::Lost)),
            () = cancel.cancelled() => self.stop.cancel(),
        }
        match tokio::time::timeout(CANCEL_WAIT, &mut self.finished).await {
            Ok(finished) => finished.unwrap_or(Err(ProcessError::Lost)),
            Err(_) => Ok(Finished {
                end: End::Cancelled,
                output: self
                    .capture
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .so_far(),
                leftovers: Vec::new(),
                gone: false,
            }),
        }
    }
}

/// Passes a program through the sandbox. Blocks.
fn prepared(
    program: Program,
    is_terminal: bool,
    mark: String,
    sandbox: &dyn Sandbox,
    roots: Vec<PathBuf>,
    temporary: PathBuf,
) -> Result<Prepared, ProcessError> {
    let Program {
        argv,
        cwd,
        mut environment,
        input,
        confinement,
    } = program;
    let name = argv.first().cloned().ok_or(ProcessError::Empty)?;
    let failed = |source| ProcessError::Spawn {
        program: name.clone(),
        cwd: cwd.clone(),
        source,
    };
    private_folder(&temporary).map_err(failed)?;
    let wrapped = match confinement {
        Confinement::Sandboxed { network } => sandbox.wrap(SandboxRequest {
            argv,
            cwd: cwd.clone(),
            reach: Reach {
                roots,
                temporary,
                network,
            },
            tty: is_terminal,
        })?,
        Confinement::Outside => Wrapped::unchanged(argv),
    };
    if wrapped.argv.is_empty() {
        return Err(ProcessError::Empty);
    }
    environment.insert(environment::TREE.into(), mark.clone().into());
    let mut words = wrapped
        .argv
        .iter()
        .chain(&wrapped.program)
        .chain(environment.iter().flat_map(|(name, value)| [name, value]));
    if words.any(|word| word.as_bytes().contains(&0)) {
        return Err(failed(std::io::Error::new(
            std::io::ErrorKind::InvalidInput,
            "an argument or a variable holds a zero byte",
        )));
    }
    let order = Order {
        program: wrapped.program.as_deref().map(Word::from),
        argv: wrapped
            .argv
            .iter()
            .map(|word| word.as_os_str().into())
            .collect(),
        cwd: cwd.as_os_str().into(),
        environment: environment
            .iter()
            .map(|(name, value)| (name.as_os_str().into(), value.as_os_str().into()))
            .collect(),
        streams: match (is_terminal, &input) {
            (true, _) => Streams::Terminal,
            (false, Some(_)) => Streams::InputOutput,
            (false, None) => Streams::Output,
        },
    };
    Ok(Prepared { order, mark, input })
}

fn private_folder(path: &Path) -> std::io::Result<()> {
    if path.as_os_str().is_empty() || path.is_dir() {
        return Ok(());
    }
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
}

#[cfg(test)]
mod tests;
