//! Starts programs and ends all that came from them (`design.md §4 Processes`).
//!
//! Every program starts through the [`sandbox`] seam, in a session of its own, without
//! standard input, with a scrubbed [`environment`] and one pipe for both outputs. A task
//! owns each [`tree::Tree`]: cancel, timeout, a dropped handle and the end of the engine
//! all end the whole tree, by a request first and by force after the grace.

pub mod capture;
pub mod clean;
pub mod environment;
pub mod live;
mod pump;
pub mod tree;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::fd::OwnedFd;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::world::Environment;
use crate::world::process::capture::{Capture, CaptureLimits, Captured};
use crate::world::process::live::LiveSink;
use crate::world::process::pump::Pump;
use crate::world::process::tree::{Leftover, Look, Tree};
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
/// What is nearly done when the leader ends, such as `>(tee log)`, is no leftover.
const STRAGGLE: Duration = Duration::from_millis(250);

/// What [`Processes`] start with.
#[derive(Clone)]
pub struct ProcessSettings {
    pub environment: Environment,
    pub sandbox: Arc<dyn Sandbox>,
    /// Private folder for full outputs; made when it is missing. Empty keeps none.
    pub scratch: PathBuf,
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
    #[error("no more programs are started: the session has ended")]
    Closed,
    #[error("the program's keeper was lost; what it started was killed")]
    Lost,
}

/// Starts programs; owns the tasks that keep them. Dropping it ends them all.
pub struct Processes {
    settings: ProcessSettings,
    inherited: BTreeMap<OsString, OsString>,
    setsid: Option<PathBuf>,
    keepers: TaskTracker,
    closing: CancellationToken,
    _close: DropGuard,
}

/// A running program. Dropping it ends its whole tree.
pub struct Running {
    pid: i32,
    capture: Arc<Mutex<Capture>>,
    finished: oneshot::Receiver<Finished>,
    stop: CancellationToken,
    _stop: DropGuard,
}

impl Default for ProcessSettings {
    fn default() -> Self {
        Self {
            environment: Environment::default(),
            sandbox: Arc::new(NoSandbox),
            scratch: PathBuf::new(),
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
        let inherited = environment::scrubbed(std::env::vars_os(), &settings.environment);
        let closing = CancellationToken::new();
        Self {
            settings,
            inherited,
            // With it a program has no terminal that it could ask a person on.
            setsid: ["/usr/bin/setsid", "/bin/setsid"]
                .into_iter()
                .map(PathBuf::from)
                .find(|path| path.is_file()),
            keepers: TaskTracker::new(),
            _close: closing.clone().drop_guard(),
            closing,
        }
    }

    /// What every program's environment begins with.
    pub fn environment(&self) -> &BTreeMap<OsString, OsString> {
        &self.inherited
    }

    /// The provider that programs start in.
    pub fn sandbox(&self) -> &dyn Sandbox {
        self.settings.sandbox.as_ref()
    }

    /// Starts a program. Must be called on a tokio runtime.
    ///
    /// # Errors
    /// [`ProcessError`]; then nothing runs.
    #[expect(
        clippy::disallowed_methods,
        reason = "a mark that nobody can guess and no replay needs"
    )]
    pub async fn start(&self, program: Program, watch: Watch) -> Result<Running, ProcessError> {
        if self.closing.is_cancelled() {
            return Err(ProcessError::Closed);
        }
        let wrapped = match program.confinement {
            Confinement::Sandboxed { network } => self.settings.sandbox.wrap(SandboxRequest {
                argv: program.argv,
                cwd: program.cwd.clone(),
                reach: Reach {
                    network,
                    ..Reach::default()
                },
                tty: false,
            })?,
            Confinement::Outside => Wrapped::unchanged(program.argv),
        };
        let mark = uuid::Uuid::new_v4().simple().to_string();
        let scratch = &self.settings.scratch;
        let path = if scratch.as_os_str().is_empty() {
            PathBuf::new()
        } else {
            scratch.join(format!("output-{mark}.txt"))
        };
        let mut variables = program.environment;
        variables.insert(environment::TREE.into(), mark.clone().into());
        let launch = Launch {
            argv: wrapped.argv,
            cwd: program.cwd,
            variables,
            input: program.input,
            mark,
            setsid: self.setsid.clone(),
            scratch: self.settings.scratch.clone(),
        };
        let (tree, output) = tokio::task::spawn_blocking(move || launch.start())
            .await
            .map_err(|_| ProcessError::Lost)??;
        let pid = tree.pid();
        let failed = |source| ProcessError::Spawn {
            program: OsString::from("/proc"),
            cwd: PathBuf::from("/"),
            source,
        };
        let leader = tree.leader().and_then(watched).map_err(failed)?;
        let capture = Arc::new(Mutex::new(Capture::new(CaptureLimits {
            shown: SHOWN,
            file: KEPT,
            path,
        })));
        let pump = Pump::start(output, Arc::clone(&capture), watch.live).map_err(failed)?;
        let stop = self.closing.child_token();
        let (tell, finished) = oneshot::channel();
        let keeper = Keeper {
            tree,
            leader,
            pump,
            capture: Arc::clone(&capture),
            stop: stop.clone(),
            closing: self.closing.clone(),
            timeout: watch.timeout,
            grace: self.settings.grace,
        };
        self.keepers.spawn(async move {
            // Nobody may be waiting any more.
            let _ = tell.send(keeper.keep().await);
        });
        Ok(Running {
            pid,
            capture,
            finished,
            _stop: stop.clone().drop_guard(),
            stop,
        })
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
    /// [`ProcessError::Lost`] when the runtime went away.
    pub async fn finish(mut self, cancel: &CancellationToken) -> Result<Finished, ProcessError> {
        tokio::select! {
            finished = &mut self.finished => return finished.map_err(|_| ProcessError::Lost),
            () = cancel.cancelled() => self.stop.cancel(),
        }
        match tokio::time::timeout(CANCEL_WAIT, &mut self.finished).await {
            Ok(finished) => finished.map_err(|_| ProcessError::Lost),
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

/// Lets the runtime tell when the descriptor is readable.
#[expect(
    deprecated,
    reason = "deprecated for descriptors that may be closed meanwhile, which an owned one cannot be"
)]
fn watched(descriptor: OwnedFd) -> std::io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::new(descriptor)
}

/// All that a spawn needs, for the blocking pool.
struct Launch {
    argv: Vec<OsString>,
    cwd: PathBuf,
    variables: BTreeMap<OsString, OsString>,
    input: Option<OwnedFd>,
    mark: String,
    setsid: Option<PathBuf>,
    scratch: PathBuf,
}

impl Launch {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that starts programs"
    )]
    fn start(self) -> Result<(Tree, std::io::PipeReader), ProcessError> {
        let Some((name, rest)) = self.argv.split_first() else {
            return Err(ProcessError::Empty);
        };
        let failed = |source| ProcessError::Spawn {
            program: name.clone(),
            cwd: self.cwd.clone(),
            source,
        };
        private_folder(&self.scratch).map_err(failed)?;
        let (reader, writer) = std::io::pipe().map_err(failed)?;
        let pipe = std::fs::File::from(OwnedFd::from(reader.try_clone().map_err(failed)?))
            .metadata()
            .map_err(failed)?
            .ino();
        let mut command = match &self.setsid {
            Some(setsid) => {
                find(name, &self.variables, &self.cwd).map_err(failed)?;
                let mut command = Command::new(setsid);
                command.arg("--").arg(name);
                command
            }
            None => {
                let mut command = Command::new(name);
                command.process_group(0);
                command
            }
        };
        command
            .args(rest)
            .current_dir(&self.cwd)
            .env_clear()
            .envs(&self.variables)
            .stdin(self.input.map_or_else(Stdio::null, Stdio::from))
            .stdout(writer.try_clone().map_err(failed)?)
            .stderr(writer);
        let child = command.spawn().map_err(failed)?;
        // It holds the pipe's other end, and the output would never end.
        drop(command);
        Ok((Tree::new(child, self.mark, pipe).map_err(failed)?, reader))
    }
}

/// `setsid` would start and fail in words of its own where the program is missing.
fn find(name: &OsStr, variables: &BTreeMap<OsString, OsString>, cwd: &Path) -> std::io::Result<()> {
    let path = Path::new(name);
    let missing = || std::io::Error::from(std::io::ErrorKind::NotFound);
    let found = if path.components().count() > 1 {
        cwd.join(path).is_file()
    } else {
        let folders = variables.get(OsStr::new("PATH")).ok_or_else(missing)?;
        std::env::split_paths(folders).any(|folder| cwd.join(folder).join(path).is_file())
    };
    if found { Ok(()) } else { Err(missing()) }
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

/// Owns one tree from start to end.
struct Keeper {
    tree: Tree,
    leader: AsyncFd<OwnedFd>,
    pump: Pump,
    capture: Arc<Mutex<Capture>>,
    stop: CancellationToken,
    closing: CancellationToken,
    timeout: Option<Duration>,
    grace: Duration,
}

impl Keeper {
    async fn keep(self) -> Finished {
        let timeout = async {
            match self.timeout {
                Some(timeout) => tokio::time::sleep(timeout).await,
                None => std::future::pending().await,
            }
        };
        let stopped = tokio::select! {
            biased;
            ended = self.leader.readable() => {
                if let Err(error) = ended {
                    tracing::warn!(%error, "the end of a program cannot be awaited; it is ended");
                }
                None
            }
            () = self.stop.cancelled() => Some(End::Cancelled),
            () = timeout => Some(End::TimedOut),
        };
        let Self {
            tree,
            mut pump,
            capture,
            grace,
            leader,
            closing,
            ..
        } = self;
        // The runtime must not look at the descriptor of a process that is gone.
        drop(leader);
        let (tree, leftovers) = match stopped {
            None => leftovers(tree, &mut pump).await,
            Some(_) => (Some(tree), Vec::new()),
        };
        let is_quiet = stopped.is_none() && leftovers.is_empty();
        let ended = tokio::task::spawn_blocking(move || {
            let mut tree = tree?;
            let gone = is_quiet
                || tree.end_within(|| {
                    if closing.is_cancelled() {
                        grace.min(CLOSE_GRACE)
                    } else {
                        grace
                    }
                });
            if gone { tree.reap().ok() } else { None }
        })
        .await;
        let status = ended.ok().flatten();
        pump.stop().await;
        let end = stopped.unwrap_or_else(|| match status {
            Some(status) => match (status.code(), tree::ended_by(status)) {
                (Some(code), _) => End::Exited(code),
                (None, Some(signal)) => End::Signalled(signal),
                (None, None) => End::Signalled(0),
            },
            None => End::Signalled(0),
        });
        let output = capture
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .finish();
        Finished {
            end,
            output,
            leftovers,
            gone: status.is_some(),
        }
    }
}

/// Members that outlive the leader by more than a moment. The tree is lost only with the
/// runtime, and ended then.
async fn leftovers(mut tree: Tree, pump: &mut Pump) -> (Option<Tree>, Vec<Leftover>) {
    let begun = tokio::time::Instant::now();
    loop {
        // Who still holds the output is looked for only where someone does.
        let ended = tokio::time::timeout(Duration::from_millis(10), pump.ended())
            .await
            .is_ok();
        let late = begun.elapsed() >= STRAGGLE;
        let looked = tokio::task::spawn_blocking(move || {
            let mut members = tree.members(if ended { Look::Members } else { Look::Holders });
            members.remove(&tree.pid());
            let named = if late {
                Tree::describe(&members)
            } else {
                Vec::new()
            };
            (tree, members.is_empty(), named)
        })
        .await;
        let Ok((kept, is_alone, named)) = looked else {
            return (None, Vec::new());
        };
        if is_alone || late {
            return (Some(kept), named);
        }
        tree = kept;
        if ended {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[cfg(test)]
mod tests;
