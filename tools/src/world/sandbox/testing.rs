//! Runs real programs in a provider, as a test sees them: folders of their own, and what
//! came out.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test makes its own folders and programs, and fails by panicking"
)]

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::bwrap::{BwrapSandbox, Shape};
use super::confine::landlock_version;
use super::ground::Ground;
use super::landlock::LandlockSandbox;
use super::{Network, Reach, Sandbox, SandboxRequest};
use crate::testing::lacking;

/// A root, a home with keys in it, our own folders, and a place that nobody named.
pub(super) struct Place {
    pub folder: TempDir,
    pub root: PathBuf,
    pub home: PathBuf,
    pub outside: PathBuf,
    pub reach: Reach,
    pub ground: Ground,
}

/// What a program did.
#[derive(Debug)]
pub(super) struct Ran {
    pub code: Option<i32>,
    pub text: String,
}

impl Ran {
    pub(super) fn is_ok(&self) -> bool {
        self.code == Some(0)
    }
}

impl Place {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        let make = |name: &str| {
            let path = base.join(name);
            std::fs::create_dir_all(&path).unwrap();
            path
        };
        let home = make("home");
        let hidden = make("home/.local/state/terret");
        let root = make("project");
        let outside = make("elsewhere");
        let temporary = make("home/.cache/terret/tmp/session");
        std::fs::write(outside.join("secret"), "out of reach").unwrap();
        std::fs::write(hidden.join("log"), "out of reach").unwrap();
        let mut ground = Ground::of(|name| match name {
            "HOME" => Some(home.clone().into()),
            "PATH" => std::env::var_os("PATH"),
            // The machine's own toolchains, which tests of real programs need.
            "CARGO_HOME" | "RUSTUP_HOME" | "PYENV_ROOT" | "NVM_DIR" => toolchain(name),
            _ => None,
        });
        ground.hidden = vec![hidden.clone(), home.join(".cache/terret")];
        Self {
            reach: Reach {
                roots: vec![root.clone()],
                temporary,
                network: Network::Closed,
            },
            root,
            home,
            outside,
            ground,
            folder,
        }
    }

    /// Each provider that works here; one that does not is said.
    pub(super) fn providers(&self) -> Vec<Box<dyn Sandbox>> {
        let mut providers: Vec<Box<dyn Sandbox>> = Vec::new();
        if landlock_version() > 0 {
            providers.push(Box::new(self.landlock()));
        } else {
            lacking("the kernel has no Landlock");
        }
        if let Some(bwrap) = self.needed_bwrap() {
            providers.push(Box::new(bwrap));
        }
        providers
    }

    /// As [`Self::bwrap`]; its absence is said.
    pub(super) fn needed_bwrap(&self) -> Option<BwrapSandbox> {
        let found = self.bwrap();
        if found.is_none() {
            lacking("bubblewrap is not installed, or cannot start here");
        }
        found
    }

    /// Bubblewrap in the strongest shape that starts here, if one does.
    pub(super) fn bwrap(&self) -> Option<BwrapSandbox> {
        let program = find("bwrap")?;
        Shape::LADDER.into_iter().find_map(|shape| {
            let sandbox = BwrapSandbox::new(
                program.clone(),
                shape,
                self.ground.clone(),
                self.folder.path().join("copies"),
            );
            self.run(&sandbox, &["true"]).is_ok().then_some(sandbox)
        })
    }

    pub(super) fn landlock(&self) -> LandlockSandbox {
        LandlockSandbox::new(self.ground.clone(), "/proc/self/exe".into())
    }

    pub(super) fn run(&self, sandbox: &dyn Sandbox, words: &[&str]) -> Ran {
        self.run_in(sandbox, words, &self.reach, &self.root)
    }

    pub(super) fn shell(&self, sandbox: &dyn Sandbox, script: &str) -> Ran {
        self.run(sandbox, &["bash", "-c", script])
    }

    pub(super) fn run_in(
        &self,
        sandbox: &dyn Sandbox,
        words: &[&str],
        reach: &Reach,
        cwd: &Path,
    ) -> Ran {
        let wrapped = sandbox
            .wrap(SandboxRequest {
                argv: words.iter().map(OsString::from).collect(),
                cwd: cwd.to_owned(),
                reach: reach.clone(),
                tty: false,
            })
            .unwrap();
        let (name, rest) = wrapped.argv.split_first().unwrap();
        let mut command = Command::new(wrapped.program.as_ref().unwrap_or(name));
        command
            .arg0(name)
            .args(rest)
            .current_dir(cwd)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", &self.home)
            .env("TMPDIR", &reach.temporary)
            .envs(
                self.ground
                    .toolchains
                    .iter()
                    .map(|(name, path)| (*name, path)),
            )
            .stdin(Stdio::null());
        let output = command.output().unwrap();
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.push_str(&String::from_utf8_lossy(&output.stderr));
        Ran {
            code: output.status.code(),
            text,
        }
    }
}

/// A program on the path; one that is not there is said.
pub(super) fn needed(name: &str) -> Option<PathBuf> {
    let found = find(name);
    if found.is_none() {
        lacking(&format!("`{name}` is not installed"));
    }
    found
}

/// A program on the path.
pub(super) fn find(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

fn toolchain(name: &str) -> Option<OsString> {
    std::env::var_os(name).or_else(|| {
        let folder = match name {
            "CARGO_HOME" => ".cargo",
            "RUSTUP_HOME" => ".rustup",
            "PYENV_ROOT" => ".pyenv",
            _ => ".nvm",
        };
        let path = PathBuf::from(std::env::var_os("HOME")?).join(folder);
        path.is_dir().then(|| path.into())
    })
}
