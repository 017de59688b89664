//! What one session's tools act on: its roots, files, search and shell.
//!
//! Nothing outside this module touches files or processes. Every path that a model names
//! goes through [`World::resolve`] or a method of [`files::Files`], which decide by the
//! real path (`Terret spec §5.5`).

pub mod editor;
pub mod editor_terminal;
pub mod files;
pub mod jobs;
mod open;
pub mod paths;
mod place;
pub mod process;
pub mod protection;
pub mod replace;
pub mod sandbox;
pub mod search;
pub mod shell;
pub mod terminals;
pub mod text;
mod utf8;
pub mod web;
pub mod window;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::helper::HelperProgram;
use crate::world::editor::EditorFiles;
use crate::world::editor_terminal::{Display, EditorTerminals};
use crate::world::files::{FileError, FileHook, FileOperation, Files};
use crate::world::jobs::unavailable::NoJobs;
use crate::world::jobs::{Jobs, JobsSettings, KeptJobs};
use crate::world::paths::Root;
use crate::world::process::{ProcessSettings, Processes};
use crate::world::sandbox::{NoSandbox, Sandbox};
use crate::world::shell::{Shell, ShellSettings};
use crate::world::terminals::{TerminalSettings, Terminals};
use crate::world::web::{Web, WebSettings};

/// What a [`World`] is made from.
#[derive(Default)]
pub struct WorldSettings {
    /// The session's folder; must exist. Relative paths start here.
    pub cwd: PathBuf,
    /// Further folders that the session may work in; each must exist.
    pub additional_directories: Vec<PathBuf>,
    /// Our private folder for full outputs. Tools can read in it and not write.
    pub scratch: PathBuf,
    /// Folders that no tool may reach even inside the roots: our state and runtime folders.
    pub denied: Vec<PathBuf>,
    /// The open buffers, where the client offers them.
    pub editor: Option<Arc<dyn EditorFiles>>,
    /// Where commands may be shown, where the client offers it.
    pub editor_terminals: Option<Arc<dyn EditorTerminals>>,
    /// What commands find in their environment.
    pub environment: Environment,
    /// What programs start in; none is no sandbox.
    pub sandbox: Option<Arc<dyn Sandbox>>,
    /// What our own helpers are started from.
    pub helper: HelperProgram,
    /// The shell's program; looked for when none.
    pub bash: Option<PathBuf>,
    /// Where jobs are kept and how many; without it none can be started. The folder
    /// belongs below one that is `denied`.
    pub jobs: Option<JobsSettings>,
    /// What keeps the session's jobs in the place of that.
    pub job_provider: Option<Arc<dyn Jobs>>,
    /// What terminals are like.
    pub terminals: TerminalSettings,
    /// What may be fetched, and how.
    pub web: WebSettings,
    /// Asked before each file operation, in order.
    pub hooks: Vec<Arc<dyn FileHook>>,
}

/// The environment of what the session starts: ours without secrets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    /// Names that pass although they look like secrets.
    pub keep: Vec<String>,
    /// Names that do not pass although they do not look like secrets: those that config
    /// takes keys from. `keep` wins.
    pub hide: Vec<String>,
    /// Variables set for every command.
    pub set: BTreeMap<String, String>,
}

/// Why a world cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    #[error("the folder {} cannot be used as a workspace: {source}; open an existing folder", path.display())]
    Root {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{} is not a folder; a workspace is a folder", path.display())]
    NotAFolder { path: PathBuf },
}

/// One session's world. Shared by its calls.
pub struct World {
    files: Files,
    scratch: PathBuf,
    environment: Environment,
    processes: Arc<Processes>,
    shell: Shell,
    jobs: Arc<dyn Jobs>,
    terminals: Terminals,
    display: Display,
    web: Web,
}

impl World {
    /// Checks the folders and takes their real paths.
    ///
    /// # Errors
    /// [`WorldError`] when a root is missing or no folder.
    pub fn new(settings: WorldSettings) -> Result<Self, WorldError> {
        let scratch = settings
            .scratch
            .canonicalize()
            .unwrap_or_else(|_| settings.scratch.clone());
        let roots = Self::roots_of(&settings.cwd, &settings.additional_directories)?;
        let files = Files::new(
            roots,
            scratch.clone(),
            &settings.denied,
            settings.editor,
            settings.hooks,
        );
        let processes = Arc::new(Processes::new(ProcessSettings {
            environment: settings.environment.clone(),
            sandbox: settings.sandbox.unwrap_or_else(|| Arc::new(NoSandbox)),
            roots: real_paths(&files),
            scratch: scratch.clone(),
            helper: settings.helper,
            ..ProcessSettings::default()
        }));
        let jobs: Arc<dyn Jobs> = match (settings.job_provider, settings.jobs) {
            (Some(provider), _) => provider,
            (None, Some(settings)) => Arc::new(KeptJobs::new(settings, Arc::clone(&processes))),
            (None, None) => Arc::new(NoJobs::new("this session keeps none")),
        };
        let shell = Shell::new(ShellSettings {
            cwd: files.cwd(),
            bash: settings.bash,
        });
        Ok(Self {
            files,
            scratch,
            environment: settings.environment,
            processes,
            shell,
            jobs,
            terminals: Terminals::new(settings.terminals),
            display: Display::new(settings.editor_terminals),
            web: Web::new(settings.web),
        })
    }

    /// Replaces the further folders; what runs keeps what it opened.
    ///
    /// # Errors
    /// [`WorldError`]; then nothing changed.
    pub fn set_additional_directories(&self, directories: &[PathBuf]) -> Result<(), WorldError> {
        let roots = Self::roots_of(self.files.given_cwd().as_path(), directories)?;
        self.files.set_roots(roots);
        self.processes.set_roots(self.roots());
        Ok(())
    }

    /// The real path of the session's folder.
    pub fn cwd(&self) -> PathBuf {
        self.files.cwd()
    }

    /// The real paths of all roots, the session's folder first.
    pub fn roots(&self) -> Vec<PathBuf> {
        real_paths(&self.files)
    }

    /// The private folder for full outputs.
    pub fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// What commands find in their environment.
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// Starts this session's programs, and ends them with it.
    pub fn processes(&self) -> &Arc<Processes> {
        &self.processes
    }

    /// Changes the provider that programs start in from now on; what runs is not touched.
    pub fn set_sandbox(&self, sandbox: Arc<dyn Sandbox>) {
        self.processes.set_sandbox(sandbox);
    }

    /// What this session's commands leave to each other.
    pub fn shell(&self) -> &Shell {
        &self.shell
    }

    /// This session's jobs. Whoever drops the world lets go of them; a session that is
    /// only put out of memory keeps it as long as one runs.
    pub fn jobs(&self) -> &Arc<dyn Jobs> {
        &self.jobs
    }

    /// Programs on terminals that live between calls.
    pub fn terminals(&self) -> &Terminals {
        &self.terminals
    }

    /// Where commands are shown beside the call's card.
    pub fn display(&self) -> &Display {
        &self.display
    }

    /// Ends all that runs in this world, and waits until it is gone.
    pub async fn shutdown(&self) {
        self.terminals.shutdown().await;
        self.processes.shutdown().await;
    }

    /// What this session may fetch.
    pub fn web(&self) -> &Web {
        &self.web
    }

    /// The file system as this session sees it.
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// The real path behind a path that a model named, when the session may read there.
    ///
    /// # Errors
    /// `<path> is outside the granted workspace`, a hook's veto, or the system's refusal.
    pub fn resolve(&self, path: impl AsRef<Path>) -> Result<PathBuf, FileError> {
        self.files.resolve(path.as_ref(), FileOperation::Read)
    }

    /// Why writing this path is always asked for, if it is.
    pub fn protection(&self, path: impl AsRef<Path>) -> Option<&'static str> {
        self.files.protection(path.as_ref())
    }

    /// The path as rules and titles show it: relative to the session's folder when inside.
    pub fn relative(&self, path: impl AsRef<Path>) -> String {
        self.files.relative(path.as_ref())
    }

    fn roots_of(cwd: &Path, directories: &[PathBuf]) -> Result<Vec<Root>, WorldError> {
        let mut roots: Vec<Root> = Vec::with_capacity(directories.len() + 1);
        for given in std::iter::once(cwd).chain(directories.iter().map(PathBuf::as_path)) {
            let real = given.canonicalize().map_err(|source| WorldError::Root {
                path: given.to_owned(),
                source,
            })?;
            if !real.is_dir() {
                return Err(WorldError::NotAFolder {
                    path: given.to_owned(),
                });
            }
            if !roots.iter().any(|root| root.real == real) {
                roots.push(Root {
                    given: given.to_owned(),
                    real,
                });
            }
        }
        Ok(roots)
    }
}

fn real_paths(files: &Files) -> Vec<PathBuf> {
    files.roots().iter().map(|root| root.real.clone()).collect()
}

/// Whether a path that a person pointed at can be opened; a look alone, of any path,
/// since the person named it and nothing of it reaches the model.
///
/// # Errors
/// Why it cannot, in the system's words.
#[expect(
    clippy::disallowed_methods,
    reason = "a person named it, and nothing of it reaches the model"
)]
pub fn look(path: &Path) -> std::io::Result<()> {
    let metadata = std::fs::metadata(path)?;
    // Opening a pipe or a device could wait for ever or do something.
    if metadata.is_file() {
        std::fs::File::open(path)?;
    }
    Ok(())
}

/// Removes a session's scratch folder with all that its commands left there. One that is
/// not there is fine.
///
/// # Errors
/// Why it is still there, in the system's words.
#[expect(
    clippy::disallowed_methods,
    reason = "what was made by a session's world ends with the session"
)]
pub fn discard(scratch: &Path) -> std::io::Result<()> {
    match std::fs::remove_dir_all(scratch) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Whether two paths lead to one folder.
pub fn same_folder(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => one == other,
    }
}

#[cfg(test)]
mod tests;
