//! Runs commands in bash: one process a call, on pipes, with no terminal.
//!
//! The command comes on standard input as a sealed anonymous file, which the shell moves
//! out of the way before it runs anything, so it stands in no process list and no folder
//! that a sandboxed process could write to. At its end the shell reports folder and
//! variables into the same file, whose size is sealed. The status is the process's own:
//! nothing that is printed can forge it, and an unclosed quote is a syntax error and no
//! hang (checks 138 to 142).

pub mod carried;
mod remote;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use tokio_util::sync::CancellationToken;

use crate::world::process::live::LiveSink;
use crate::world::process::{End, Finished, ProcessError, Processes, Program, Watch};
use crate::world::sandbox::Confinement;
use crate::world::sandbox::guarded::Unmade;
use crate::world::shell::carried::{Carried, Report};

/// Room for the report: folder and exported variables.
const REPORT: u64 = 1024 * 1024;

/// Reads the command where descriptors are ours, and keeps the file for the report.
const LOCAL: &str = include_str!("shell/local.sh");
/// The same where they are not: the variables come with the command.
const REMOTE: &str = include_str!("shell/remote.sh");
/// Runs the command and reports into `TERRET_STATE`.
const WRAPPER: &str = include_str!("shell/wrapper.sh");
/// The same for a job, which leaves nothing to later commands.
const JOB_WRAPPER: &str = include_str!("shell/job.sh");

/// Git runs this through a shell; other programs fail to find it, which is as quick.
const NO_EDITOR: &str = "echo 'no editor can be opened here: give the text on the command line, such as git commit -m' >&2; false";

/// Where a session's commands start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShellSettings {
    /// The folder of the first command, and of those whose own has vanished.
    pub cwd: PathBuf,
    /// The shell's program; looked for when none.
    pub bash: Option<PathBuf>,
}

/// A command to run.
pub struct ShellCommand {
    pub command: String,
    pub timeout: Duration,
    /// The session's real roots, for a word when the folder is outside.
    pub roots: Vec<PathBuf>,
    /// Takes live output.
    pub live: Option<LiveSink>,
    pub confinement: Confinement,
}

/// What a session's next command starts with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellState(Carried);

/// A command that ended, and what the model should know of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellResult {
    pub finished: Finished,
    pub remarks: Vec<String>,
}

/// Why a command did not run.
#[derive(Debug, thiserror::Error)]
pub enum ShellError {
    #[error("bash was not found on this machine; install it, or name it in the config")]
    NoBash,
    #[error("the command holds a zero byte, which no shell can read")]
    ZeroByte,
    #[error("there is no folder to run the command in: {} is gone", .0.display())]
    NoFolder(PathBuf),
    #[error("the command cannot be handed to bash: {0}")]
    Handover(#[source] std::io::Error),
    #[error(transparent)]
    Process(#[from] ProcessError),
}

/// One session's shell: what its commands leave to each other.
pub struct Shell {
    settings: ShellSettings,
    bash: Option<PathBuf>,
    carried: Mutex<Carried>,
}

impl Shell {
    /// A shell with nothing carried yet.
    #[expect(
        clippy::disallowed_methods,
        reason = "where no setting says where bash is, the machine does"
    )]
    pub fn new(settings: ShellSettings) -> Self {
        let bash = settings
            .bash
            .clone()
            .or_else(|| find_bash(&std::env::var_os("PATH").unwrap_or_default()));
        Self {
            settings,
            bash,
            carried: Mutex::new(Carried::default()),
        }
    }

    /// The folder that the next command starts in.
    pub fn cwd(&self) -> PathBuf {
        self.carried()
            .cwd
            .clone()
            .unwrap_or_else(|| self.settings.cwd.clone())
    }

    /// Where the next command looks for programs.
    pub fn path(&self, processes: &Processes) -> Option<OsString> {
        let mut environment = processes.environment().clone();
        self.carried().apply(&mut environment);
        environment.remove(OsStr::new("PATH"))
    }

    /// What the next command would start with; for [`Self::restore`].
    pub fn state(&self) -> ShellState {
        ShellState(self.carried().clone())
    }

    /// Goes back to an earlier state: a command that is run once more starts where its
    /// first run did, and not where that one ended.
    pub fn restore(&self, state: ShellState) {
        *self.carried() = state.0;
    }

    /// The program of a job: a shell of its own with the folder and variables of the
    /// moment, which leaves nothing to later commands. Confined as commands are.
    ///
    /// # Errors
    /// [`ShellError`] when there is no shell or no folder to start in.
    pub fn job(
        &self,
        processes: &Processes,
        command: &str,
    ) -> Result<(Program, Vec<String>), ShellError> {
        let bash = self.bash.as_ref().ok_or(ShellError::NoBash)?;
        let mut remarks = Vec::new();
        let cwd = self.folder(&mut remarks)?;
        let mut environment = base_environment(processes.environment());
        self.carried().apply(&mut environment);
        environment.insert("PWD".into(), cwd.clone().into());
        let rest = if processes.sandbox().shares_descriptors() {
            Vec::new()
        } else {
            remote::variables(FIXED, &self.carried())
        };
        let (input, _, _) = handover(command, &rest, 0)?;
        let program = Program {
            argv: argv(bash, &[JOB_WRAPPER]),
            cwd,
            environment,
            input: Some(input),
            confinement: Confinement::default(),
        };
        Ok((program, remarks))
    }

    /// Runs one command to its end, its timeout or a cancel. One that runs outside of the
    /// sandbox gets the folder and none of the variables that commands inside exported:
    /// these must not choose what runs where they could not.
    ///
    /// # Errors
    /// [`ShellError`]; then nothing ran.
    pub async fn run(
        &self,
        processes: &Processes,
        command: ShellCommand,
        cancel: &CancellationToken,
    ) -> Result<ShellResult, ShellError> {
        let bash = self.bash.as_ref().ok_or(ShellError::NoBash)?;
        let mut remarks = Vec::new();
        let cwd = self.folder(&mut remarks)?;
        let base = base_environment(processes.environment());
        let mut given = base.clone();
        match command.confinement {
            Confinement::Sandboxed { .. } => self.carried().apply(&mut given),
            Confinement::Outside if self.carried().has_variables() => remarks.push(
                "outside of the sandbox the command had none of the variables that earlier commands exported"
                    .to_owned(),
            ),
            Confinement::Outside => {}
        }
        given.insert("PWD".into(), cwd.clone().into());
        let is_remote = command.confinement != Confinement::Outside
            && !processes.sandbox().shares_descriptors();
        let report_path = report_path();
        let (script, rest, room) = if is_remote {
            let mut rest = report_path.clone().into_bytes();
            rest.push(0);
            rest.extend(remote::variables(FIXED, &self.carried()));
            (REMOTE, rest, 0)
        } else {
            (LOCAL, Vec::new(), REPORT)
        };
        let (input, file, report_at) = handover(&command.command, &rest, room)?;
        let program = Program {
            argv: argv(bash, &[script, WRAPPER]),
            cwd: cwd.clone(),
            environment: given.clone(),
            input: Some(input),
            confinement: command.confinement,
        };
        let watch = Watch {
            timeout: Some(command.timeout),
            live: command.live,
        };
        // Where such files are protected, a person counts on it; those that are new cannot be.
        let is_guarded =
            command.confinement != Confinement::Outside && processes.sandbox().may_isolate();
        let roots = if is_guarded {
            command.roots.clone()
        } else {
            Vec::new()
        };
        let unmade = tokio::task::spawn_blocking(move || Unmade::of(&roots))
            .await
            .unwrap_or_default();
        let finished = processes
            .start(program, watch)
            .await?
            .finish(cancel)
            .await?;
        let made = tokio::task::spawn_blocking(move || unmade.made())
            .await
            .unwrap_or_default();
        remarks.extend(made.iter().map(|name| made_remark(name)));
        // A report of a command that we ended says where it was, not where it meant to be.
        if matches!(finished.end, End::Exited(_)) {
            let reported = if is_remote {
                let confinement = command.confinement;
                remote::reports(processes, &report_path, &cwd, confinement, cancel)
                    .await
                    .map(|reports| {
                        let mut carried = self.carried();
                        let base = remote::base(&reports.begin, &carried);
                        carried.update(reports.end, &reports.begin.exported, &base)
                    })
            } else {
                read_report(&file, report_at)
                    .map(|report| self.carried().update(report, &given, &base))
            };
            remarks.extend(reported.unwrap_or_else(|| {
                vec![format!(
                    "the shell was replaced or lost its way to report, so later commands start in {} with the variables of before",
                    self.cwd().display()
                )]
            }));
        }
        let folder = self.cwd();
        if folder != cwd && !command.roots.iter().any(|root| folder.starts_with(root)) {
            remarks.push(format!(
                "the folder is now {}, which is outside the workspace",
                folder.display()
            ));
        }
        Ok(ShellResult { finished, remarks })
    }

    fn carried(&self) -> std::sync::MutexGuard<'_, Carried> {
        self.carried.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn folder(&self, remarks: &mut Vec<String>) -> Result<PathBuf, ShellError> {
        let cwd = self.cwd();
        if cwd.is_dir() {
            return Ok(cwd);
        }
        let fallback = &self.settings.cwd;
        if !fallback.is_dir() {
            return Err(ShellError::NoFolder(fallback.clone()));
        }
        remarks.push(format!(
            "notice: the folder {} is gone, so the command ran in {}",
            cwd.display(),
            fallback.display()
        ));
        self.carried().cwd = None;
        Ok(fallback.clone())
    }
}

/// No profile and no start-up file is read: their noise is not the command's.
fn argv(bash: &Path, scripts: &[&str]) -> Vec<OsString> {
    // On one line, so that the lines that bash names are the command's.
    let script: Vec<&str> = scripts.iter().map(|script| script.trim_end()).collect();
    let script = OsString::from(script.join(" "));
    [
        bash.as_os_str(),
        "--noprofile".as_ref(),
        "--norc".as_ref(),
        "-c".as_ref(),
        script.as_os_str(),
        "bash".as_ref(),
    ]
    .map(OsStr::to_owned)
    .to_vec()
}

/// What a shell has where nobody can type: what would wait for a person fails at once or
/// prints instead.
const FIXED: &[(&str, &str)] = &[
    ("TERM", "dumb"),
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("MANPAGER", "cat"),
    ("SYSTEMD_PAGER", "cat"),
    ("GIT_TERMINAL_PROMPT", "0"),
    // No window for a password either: it would wait on the person's screen.
    ("GIT_ASKPASS", ""),
    ("SSH_ASKPASS", ""),
    ("SSH_ASKPASS_REQUIRE", "never"),
    ("GCM_INTERACTIVE", "never"),
    ("PIP_NO_INPUT", "1"),
    ("DEBIAN_FRONTEND", "noninteractive"),
    ("EDITOR", NO_EDITOR),
    ("VISUAL", NO_EDITOR),
    ("GIT_EDITOR", NO_EDITOR),
    ("GIT_SEQUENCE_EDITOR", NO_EDITOR),
];

/// What runs code later is new in the workspace: the person is to know.
fn made_remark(name: &Path) -> String {
    format!(
        "the command made `{}`, which other programs may run code from ({}); have a person look at it before they do",
        name.display(),
        crate::world::protection::reason(name)
            .unwrap_or("git is told by it where its configuration is")
    )
}

/// A shell's environment before anything is carried.
fn base_environment(environment: &BTreeMap<OsString, OsString>) -> BTreeMap<OsString, OsString> {
    let mut base = environment.clone();
    base.extend(
        FIXED
            .iter()
            .map(|(name, value)| (OsString::from(name), OsString::from(value))),
    );
    base
}

/// The anonymous file with the command, twice: for the shell, and for us to read the
/// report from, which begins where it says and has `room` bytes. `rest` follows the
/// command and the zero byte that ends it.
fn handover(
    command: &str,
    rest: &[u8],
    room: u64,
) -> Result<(OwnedFd, std::fs::File, u64), ShellError> {
    if command.contains('\0') {
        return Err(ShellError::ZeroByte);
    }
    let make = || -> std::io::Result<(OwnedFd, std::fs::File, u64)> {
        let file = std::fs::File::from(memfd_create(
            "command",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )?);
        let after = command.len() as u64 + 1;
        let begin = after + rest.len() as u64;
        file.set_len(begin + room)?;
        file.write_all_at(command.as_bytes(), 0)?;
        file.write_all_at(rest, after)?;
        fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
        Ok((OwnedFd::from(file.try_clone()?), file, begin))
    };
    make().map_err(ShellError::Handover)
}

/// Where a command reports whose shell has no descriptor of ours. Nobody can guess it.
#[expect(
    clippy::disallowed_methods,
    reason = "a name that nobody can guess and no replay needs"
)]
fn report_path() -> String {
    format!("/tmp/.terret-{}", uuid::Uuid::new_v4().simple())
}

/// Memory is read here and no disk.
fn read_report(file: &std::fs::File, at: u64) -> Option<Report> {
    let mut bytes = Vec::new();
    let mut chunk = [0u8; 16 * 1024];
    let mut offset = at;
    loop {
        let read = file.read_at(&mut chunk, offset).ok()?;
        let piece = chunk.get(..read)?;
        bytes.extend_from_slice(piece);
        offset += read as u64;
        // The rest is zeros: two of them end every report.
        if read == 0 || piece.ends_with(&[0, 0]) {
            return Report::parse(&bytes);
        }
    }
}

/// Where bash is when no setting says so: in the usual places, else in a folder of this
/// `PATH`.
pub fn find_bash(path: &OsStr) -> Option<PathBuf> {
    let fixed = [
        "/bin/bash",
        "/usr/bin/bash",
        "/usr/local/bin/bash",
        "/run/current-system/sw/bin/bash",
    ];
    fixed
        .iter()
        .map(PathBuf::from)
        .find(|path| path.is_file())
        .or_else(|| {
            std::env::split_paths(path)
                .filter(|folder| folder.is_absolute())
                .map(|folder| folder.join("bash"))
                .find(|path: &PathBuf| Path::is_file(path))
        })
}

#[cfg(test)]
mod tests;
