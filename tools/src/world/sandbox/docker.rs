//! The provider `docker`: a container that sleeps, and every program is an `exec` in it
//! (`Terret spec §5.1`). The roots are mounted at their own paths, so that the file tools
//! and the programs see the same bytes.
//!
//! Its limits belong to `docker exec`: the environment does not cross, and a signal ends
//! the client on this side while the process inside goes on ([`CAVEAT`]).

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use crate::world::sandbox::guess::SeenRoots;
use crate::world::sandbox::{Denial, Network, Sandbox, SandboxRefusal, SandboxRequest, Wrapped};

/// Told in results of what was stopped.
const CAVEAT: &str = "this command runs in a container, where a stop reaches only the client outside: what it \
                      started may go on inside until the container ends with Terret";

/// How containers are started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DockerSettings {
    /// `docker`, or a program that takes the same arguments; looked for on `PATH` when it
    /// has no folder.
    pub bin: PathBuf,
    pub image: String,
    /// The container's network while a call has none.
    pub network: String,
    /// Such as `2g`.
    pub memory: Option<String>,
    /// Such as `1.5`.
    pub cpus: Option<String>,
    /// Processes at once.
    pub pids: Option<u32>,
    pub user: DockerUser,
}

/// Who programs run as inside.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum DockerUser {
    /// Our own user and group ids, so that files in the roots stay ours.
    #[default]
    Ours,
    /// What `docker run --user` takes.
    Named(String),
    /// The image's own, which is root as a rule.
    Image,
}

impl Default for DockerSettings {
    fn default() -> Self {
        Self {
            bin: "docker".into(),
            image: "ruby:slim".to_owned(),
            network: "none".to_owned(),
            memory: None,
            cpus: None,
            pids: None,
            user: DockerUser::default(),
        }
    }
}

/// What a container is for; another set of roots gets one of its own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Purpose {
    roots: Vec<PathBuf>,
    network: String,
}

/// See the module. Its containers end with it.
#[derive(Debug)]
pub struct DockerSandbox {
    settings: DockerSettings,
    /// Folders to look for the program in.
    path: Vec<PathBuf>,
    /// Ids of running containers. Held while one starts, so that programs that come at
    /// the same time start one and not several.
    containers: Mutex<BTreeMap<Purpose, String>>,
    seen: SeenRoots,
}

impl DockerSandbox {
    /// Nothing is started before the first program is.
    pub fn new(settings: DockerSettings, path: Vec<PathBuf>) -> Self {
        Self {
            settings,
            path,
            containers: Mutex::default(),
            seen: SeenRoots::default(),
        }
    }

    /// Ends all containers; the next program starts a new one.
    pub fn restart(&self) {
        let mut containers = self.lock();
        containers.retain(|_, id| !self.remove(id));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Purpose, String>> {
        self.containers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Looked for each time: a path from a shorter list must not stay in force.
    fn bin(&self) -> Result<PathBuf, SandboxRefusal> {
        let bin = &self.settings.bin;
        let found = if bin.components().count() > 1 {
            Some(bin.clone())
        } else {
            self.path
                .iter()
                .map(|folder| folder.join(bin))
                .find(|path| path.is_file())
        };
        found.filter(|path| path.is_absolute()).ok_or_else(|| {
            SandboxRefusal(format!(
                "the container program `{}` was not found; install it, name it as `sandbox.docker.bin`, or choose \
                 another `sandbox.provider`",
                bin.display()
            ))
        })
    }

    /// The running container for a purpose; started when there is none.
    fn container(&self, purpose: Purpose) -> Result<String, SandboxRefusal> {
        let mut containers = self.lock();
        if let Some(id) = containers.get(&purpose) {
            return Ok(id.clone());
        }
        let id = self.start(&purpose)?;
        containers.insert(purpose, id.clone());
        Ok(id)
    }

    fn run_argv(&self, purpose: &Purpose) -> Vec<OsString> {
        let settings = &self.settings;
        let mut argv: Vec<OsString> = [
            "run",
            "-d",
            "--rm",
            "--label",
            "terret-sandbox",
            "--network",
        ]
        .map(OsString::from)
        .to_vec();
        argv.push(purpose.network.clone().into());
        let pids = settings.pids.map(|pids| pids.to_string());
        for (flag, value) in [
            ("--memory", &settings.memory),
            ("--cpus", &settings.cpus),
            ("--pids-limit", &pids),
        ] {
            if let Some(value) = value {
                argv.push(flag.into());
                argv.push(value.into());
            }
        }
        let user = match &settings.user {
            DockerUser::Ours => Some(format!(
                "{}:{}",
                rustix::process::getuid().as_raw(),
                rustix::process::getgid().as_raw()
            )),
            DockerUser::Named(user) => Some(user.clone()),
            DockerUser::Image => None,
        };
        if let Some(user) = user {
            argv.push("--user".into());
            argv.push(user.into());
        }
        for root in &purpose.roots {
            let mut mount = root.clone().into_os_string();
            mount.push(":");
            mount.push(root);
            argv.push("-v".into());
            argv.push(mount);
        }
        argv.extend([settings.image.as_str(), "sleep", "infinity"].map(OsString::from));
        argv
    }

    fn start(&self, purpose: &Purpose) -> Result<String, SandboxRefusal> {
        let bin = self.bin()?;
        let failed = |why: String| {
            SandboxRefusal(format!(
                "no container could be started from `{}`: {why}; see whether the engine runs, or choose another \
                 `sandbox.provider`",
                self.settings.image
            ))
        };
        let (ok, text) =
            run(&bin, &self.run_argv(purpose)).map_err(|error| failed(error.to_string()))?;
        let id = text
            .lines()
            .map(str::trim)
            .rfind(|line| line.len() == 64 && line.bytes().all(|byte| byte.is_ascii_hexdigit()));
        match id {
            Some(id) if ok => Ok(id.to_owned()),
            _ => Err(failed(last_words(&text))),
        }
    }

    /// Whether the container is gone. One that could not be removed is kept and said.
    fn remove(&self, id: &str) -> bool {
        let Ok(bin) = self.bin() else {
            return false;
        };
        let argv = ["rm", "-f", id].map(OsString::from);
        match run(&bin, &argv) {
            Ok((true, _)) => true,
            Ok((false, text)) if text.to_lowercase().contains("no such container") => true,
            Ok((false, text)) => {
                tracing::warn!(id, why = last_words(&text), "a container was not removed");
                false
            }
            Err(error) => {
                tracing::warn!(id, %error, "a container was not removed");
                false
            }
        }
    }
}

impl Sandbox for DockerSandbox {
    fn name(&self) -> &'static str {
        "docker"
    }

    fn wrap(&self, request: SandboxRequest) -> Result<Wrapped, SandboxRefusal> {
        let mut roots: Vec<PathBuf> = Vec::new();
        for root in &request.reach.roots {
            if is_ambiguous(root) {
                return Err(SandboxRefusal(format!(
                    "the folder {} has a colon in its name, which a container's mount cannot have",
                    root.display()
                )));
            }
            roots.push(root.clone());
        }
        let Some(first) = roots.first() else {
            return Err(SandboxRefusal(
                "there is no workspace that a container could be given".to_owned(),
            ));
        };
        let cwd = if request.cwd.as_os_str().is_empty() {
            first.clone()
        } else {
            request.cwd.clone()
        };
        if !roots.iter().any(|root| cwd.starts_with(root)) {
            return Err(SandboxRefusal(format!(
                "the folder {} is outside the workspace, which is all that the container has",
                cwd.display()
            )));
        }
        self.seen.note(&roots);
        let purpose = Purpose {
            roots,
            network: match request.reach.network {
                Network::Closed => self.settings.network.clone(),
                Network::Open => "bridge".to_owned(),
            },
        };
        let id = self.container(purpose)?;
        let mut argv: Vec<OsString> = vec![self.bin()?.into(), "exec".into(), "-i".into()];
        if request.tty {
            argv.push("-t".into());
        }
        argv.push("-w".into());
        argv.push(cwd.into());
        argv.push(id.into());
        argv.extend(request.argv);
        Ok(Wrapped::unchanged(argv))
    }

    fn isolated(&self) -> bool {
        true
    }

    fn guess(&self, text: &str, network: Network) -> Option<Denial> {
        self.seen.guess(text, network)
    }

    fn shares_descriptors(&self) -> bool {
        false
    }

    fn caveat(&self) -> Option<&'static str> {
        Some(CAVEAT)
    }

    fn close(&self) {
        self.restart();
    }
}

impl Drop for DockerSandbox {
    fn drop(&mut self) {
        self.restart();
    }
}

/// A mount is written `from:to`.
fn is_ambiguous(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().contains(&b':')
}

/// Runs the client to its end; both outputs are one text.
#[expect(
    clippy::disallowed_methods,
    reason = "starts and ends containers; programs in them go through Processes"
)]
fn run(bin: &Path, argv: &[impl AsRef<OsStr>]) -> std::io::Result<(bool, String)> {
    let output = Command::new(bin).args(argv).stdin(Stdio::null()).output()?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    // What is asked for stands last in the merged text, as the client prints it at the end.
    let errors = String::from_utf8_lossy(&output.stderr);
    Ok((output.status.success(), format!("{errors}\n{text}")))
}

fn last_words(text: &str) -> String {
    text.lines()
        .map(str::trim)
        .rfind(|line| !line.is_empty())
        .unwrap_or("it said nothing")
        .chars()
        .take(300)
        .collect()
}

#[cfg(test)]
mod tests;
