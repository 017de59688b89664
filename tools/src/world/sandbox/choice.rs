//! Which provider a session gets: the one that config names, or the strongest that works
//! here, found by starting something in each.
//!
//! The search is made when something is first started or asked, and its result is kept:
//! an editor that starts Terret and does nothing pays nothing for it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::world::sandbox::bwrap::{BwrapSandbox, Shape};
use crate::world::sandbox::confine::landlock_version;
use crate::world::sandbox::docker::{DockerSandbox, DockerSettings};
use crate::world::sandbox::ground::Ground;
use crate::world::sandbox::landlock::LandlockSandbox;
use crate::world::sandbox::{
    Denial, Network, NoSandbox, Reach, Sandbox, SandboxRefusal, SandboxRequest, Wrapped,
};

/// How long a provider may take to start nothing.
const PATIENCE: Duration = Duration::from_secs(10);

/// What config says of the sandbox. Replaced as a whole when it changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SandboxSettings {
    pub provider: Choice,
    pub ground: Ground,
    /// A private folder of ours, for what a provider must have as a file.
    pub folder: PathBuf,
    pub docker: DockerSettings,
}

/// A provider by name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Choice {
    /// The strongest that works here.
    Auto,
    Bwrap,
    Landlock,
    Docker,
    /// No confinement; a library that is told nothing confines nothing.
    #[default]
    None,
}

impl Choice {
    const ALL: [Self; 5] = [
        Self::Auto,
        Self::Bwrap,
        Self::Landlock,
        Self::Docker,
        Self::None,
    ];

    /// As config names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Bwrap => "bwrap",
            Self::Landlock => "landlock",
            Self::Docker => "docker",
            Self::None => "none",
        }
    }

    /// The choice of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|choice| choice.name() == name)
    }
}

/// The provider for these settings. Does nothing yet.
pub fn provider(settings: &SandboxSettings) -> Arc<dyn Sandbox> {
    match settings.provider {
        Choice::None => Arc::new(NoSandbox),
        Choice::Docker => Arc::new(DockerSandbox::new(
            settings.docker.clone(),
            settings.ground.path.clone(),
        )),
        Choice::Auto | Choice::Bwrap | Choice::Landlock => Arc::new(Found {
            settings: settings.clone(),
            found: OnceLock::new(),
        }),
    }
}

/// A provider that is looked for at the first use.
struct Found {
    settings: SandboxSettings,
    found: OnceLock<Result<Box<dyn Sandbox>, SandboxRefusal>>,
}

impl Found {
    fn get(&self) -> Result<&dyn Sandbox, SandboxRefusal> {
        self.found
            .get_or_init(|| find(&self.settings))
            .as_ref()
            .map(AsRef::as_ref)
            .map_err(Clone::clone)
    }
}

impl Sandbox for Found {
    fn name(&self) -> &'static str {
        self.get()
            .map_or(self.settings.provider.name(), Sandbox::name)
    }

    fn wrap(&self, request: SandboxRequest) -> Result<Wrapped, SandboxRefusal> {
        self.get()?.wrap(request)
    }

    fn isolated(&self) -> bool {
        self.get().is_ok_and(Sandbox::isolated)
    }

    fn may_isolate(&self) -> bool {
        match self.found.get() {
            Some(found) => found.as_ref().is_ok_and(|sandbox| sandbox.isolated()),
            None => {
                self.settings.provider != Choice::Landlock
                    && bwrap_program(&self.settings).is_some()
            }
        }
    }

    fn shares_descriptors(&self) -> bool {
        // All that are looked for do, and asking must not look.
        true
    }

    fn guess(&self, text: &str, network: Network) -> Option<Denial> {
        self.get().ok()?.guess(text, network)
    }

    fn caveat(&self) -> Option<&'static str> {
        self.get().ok()?.caveat()
    }
}

fn find(settings: &SandboxSettings) -> Result<Box<dyn Sandbox>, SandboxRefusal> {
    let is_own_helper = crate::helper::is_answered();
    let try_bwrap = || bwrap(settings).filter(|_| is_own_helper);
    let try_landlock = || -> Option<Box<dyn Sandbox>> {
        let sandbox = LandlockSandbox::new(settings.ground.clone(), "/proc/self/exe".into());
        let works = is_own_helper && landlock_version() > 0 && starts(&sandbox, &settings.folder);
        works.then(|| Box::new(sandbox) as _)
    };
    match settings.provider {
        Choice::Bwrap => try_bwrap().ok_or_else(|| {
            SandboxRefusal(
                "bubblewrap (`bwrap`) is not installed or cannot start here, and the configuration asks for it; \
                 install it, or set `sandbox.provider` to `auto`"
                    .to_owned(),
            )
        }),
        Choice::Landlock => try_landlock().ok_or_else(|| {
            SandboxRefusal(
                "this kernel has no Landlock, and the configuration asks for it; set `sandbox.provider` to `auto`"
                    .to_owned(),
            )
        }),
        _ => Ok(try_bwrap()
            .or_else(try_landlock)
            .unwrap_or_else(|| Box::new(NoSandbox))),
    }
}

fn bwrap_program(settings: &SandboxSettings) -> Option<PathBuf> {
    settings
        .ground
        .path
        .iter()
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join("bwrap"))
        .find(|path| path.is_file())
}

/// Bubblewrap in the strongest shape that starts.
fn bwrap(settings: &SandboxSettings) -> Option<Box<dyn Sandbox>> {
    let program = bwrap_program(settings)?;
    Shape::LADDER.into_iter().find_map(|shape| {
        let sandbox = BwrapSandbox::new(
            program.clone(),
            shape,
            settings.ground.clone(),
            settings.folder.clone(),
        );
        starts(&sandbox, &settings.folder).then(|| Box::new(sandbox) as _)
    })
}

/// Whether a program that does nothing starts in it, with and without the network.
fn starts(sandbox: &dyn Sandbox, folder: &Path) -> bool {
    [Network::Closed, Network::Open].into_iter().all(|network| {
        let request = SandboxRequest {
            argv: super::tries::argv(&[]),
            cwd: "/".into(),
            reach: Reach {
                network,
                ..Reach::default()
            },
            tty: false,
        };
        sandbox
            .wrap(request)
            .is_ok_and(|wrapped| run(&wrapped, folder).is_some())
    })
}

/// Runs a wrapped program of ours to its end; its output when it ended well.
#[expect(
    clippy::disallowed_methods,
    reason = "tries a provider before any session has processes"
)]
pub(super) fn run(wrapped: &Wrapped, _folder: &Path) -> Option<Vec<u8>> {
    use std::os::unix::process::CommandExt;
    let (name, rest) = wrapped.argv.split_first()?;
    let mut child = Command::new(wrapped.program.as_ref().unwrap_or(name))
        .arg0(name)
        .args(rest)
        .current_dir("/")
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let deadline = Instant::now() + PATIENCE;
    while let Ok(None) = child.try_wait() {
        if Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    // It has ended, and prints far less than a pipe holds.
    let output = child.wait_with_output().ok()?;
    output.status.success().then_some(output.stdout)
}

#[cfg(test)]
mod tests;
