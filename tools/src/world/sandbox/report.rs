//! What a provider enforces here, by trying (`terret doctor`).

#![expect(
    clippy::disallowed_methods,
    reason = "makes a folder to try things in, and looks at what came of it"
)]

use std::ffi::OsString;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use crate::world::sandbox::choice::{Choice, SandboxSettings, run};
use crate::world::sandbox::confine::landlock_version;
use crate::world::sandbox::landlock::GAPS;
use crate::world::sandbox::tries::{self, Try};
use crate::world::sandbox::{Network, Reach, Sandbox, SandboxRequest};

/// What was found out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The provider's name.
    pub provider: &'static str,
    pub isolated: bool,
    /// What was tried and refused.
    pub enforced: Vec<String>,
    /// What was tried and succeeded, or is known not to be enforced.
    pub open: Vec<String>,
    /// What must work and does.
    pub works: Vec<String>,
    /// What must work and does not, or why nothing could be tried.
    pub broken: Vec<String>,
}

/// Tries a provider. Starts a few processes and takes well under a second.
pub fn report(settings: &SandboxSettings, sandbox: &dyn Sandbox) -> Report {
    let mut report = Report {
        provider: sandbox.name(),
        isolated: sandbox.isolated(),
        ..Report::default()
    };
    match report.provider {
        "none" => {
            report
                .open
                .push("commands run with all your rights; approvals are the fence".to_owned());
            if settings.provider == Choice::Auto {
                report.open.push(
                    "install bubblewrap (`bwrap`) for a sandbox, or use a kernel with Landlock"
                        .to_owned(),
                );
            }
            return report;
        }
        "docker" => {
            report
                .open
                .push("not tried: a container is started with the first command".to_owned());
            report.open.extend(sandbox.caveat().map(str::to_owned));
            return report;
        }
        _ => {}
    }
    let place = match Place::new(&settings.folder) {
        Ok(place) => place,
        Err(error) => {
            report.broken.push(format!(
                "nothing could be tried in {}: {error}",
                settings.folder.display()
            ));
            return report;
        }
    };
    try_all(settings, sandbox, &place, &mut report);
    if report.provider == "landlock" {
        report.open.extend(GAPS.iter().map(|gap| (*gap).to_owned()));
    }
    match landlock_version() {
        0 => report
            .open
            .push("this kernel has no Landlock, so nothing stands behind the mounts".to_owned()),
        version if version < 6 => report.open.push(format!(
            "this kernel's Landlock (version {version}) does not close signals and abstract sockets; 6 would"
        )),
        _ => {}
    }
    report
}

fn try_all(settings: &SandboxSettings, sandbox: &dyn Sandbox, place: &Place, report: &mut Report) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0");
    let port = listener
        .as_ref()
        .ok()
        .and_then(|listener| listener.local_addr().ok())
        .map_or(1, |address| address.port());
    let socket = place.root.join("socket");
    let _unix = UnixListener::bind(&socket);
    let pid = i32::try_from(std::process::id()).unwrap_or_default();
    let probe = format!(".terret-doctor-{pid}");
    let at_home = settings.ground.home.as_ref().map(|home| home.join(&probe));
    let mut all: Vec<(Try, &str)> = vec![
        (
            Try::Write(place.outside.join("made")),
            "files outside the workspace are not changed",
        ),
        (
            Try::Read(place.outside.join("secret")),
            "files outside the workspace are not read",
        ),
        (Try::Tcp(port), "the network is closed"),
        (Try::Unix(socket.clone()), "Unix sockets are closed"),
        (Try::Signal(pid), "processes outside get no signal"),
        (
            Try::Write(place.root.join(".git/config")),
            "files that run code later, such as .git/config, are not changed",
        ),
        (
            Try::Replace(place.root.join(".git/config")),
            "such files are not replaced by others",
        ),
    ];
    if let Some(path) = &at_home {
        all.push((Try::Write(path.clone()), "the home folder is not changed"));
    }
    let home = settings.ground.home.clone().unwrap_or_default();
    let key = settings
        .ground
        .secrets()
        .into_iter()
        .find(|path| path.starts_with(&home) && path.is_file());
    if let Some(key) = key {
        all.push((Try::Read(key), "keys in the home folder are not read"));
    }
    let asked: Vec<Try> = all.iter().map(|(one, _)| one.clone()).collect();
    let output = place.run(sandbox, tries::argv(&asked), Network::Closed);
    let Some(answers) = output.and_then(|output| tries::answers(&output, asked.len())) else {
        report
            .broken
            .push("a program of ours did not start in it".to_owned());
        return;
    };
    for ((one, what), succeeded) in all.iter().zip(answers) {
        // In a private folder of the same name a file can be made, which is no way out.
        let got_out = succeeded
            && match one {
                Try::Write(path) if !path.starts_with(&place.root) => path.exists(),
                _ => true,
            };
        let list = if got_out {
            &mut report.open
        } else {
            &mut report.enforced
        };
        list.push((*what).to_owned());
    }
    if let Some(path) = at_home {
        let _ = std::fs::remove_file(path);
    }
    let opened = place.run(
        sandbox,
        tries::argv(&[Try::Tcp(port), Try::Unix(socket)]),
        Network::Open,
    );
    match opened.and_then(|output| tries::answers(&output, 2)) {
        Some(answers) if answers == [true, true] => report
            .works
            .push("the network and Unix sockets, once approved".to_owned()),
        _ => report
            .broken
            .push("the network stays closed although it was approved".to_owned()),
    }
    commit(sandbox, place, report);
}

fn commit(sandbox: &dyn Sandbox, place: &Place, report: &mut Report) {
    let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
    let Some(_) = place.run(sandbox, words(&["git", "--version"]), Network::Closed) else {
        report.broken.push("`git` does not start in it".to_owned());
        return;
    };
    let done = place
        .run(
            sandbox,
            words(&[
                "git",
                "-C",
                &place.repository,
                "-c",
                "user.name=terret",
                "-c",
                "user.email=terret@localhost",
                "-c",
                "commit.gpgsign=false",
                "commit",
                "--quiet",
                "--allow-empty",
                "-m",
                "try",
            ]),
            Network::Closed,
        )
        .is_some();
    if done {
        report.works.push("an ordinary `git commit`".to_owned());
    } else {
        report
            .broken
            .push("an ordinary `git commit` fails in it".to_owned());
    }
}

/// Folders to try in; gone with it.
struct Place {
    base: PathBuf,
    root: PathBuf,
    outside: PathBuf,
    repository: String,
}

impl Place {
    fn new(folder: &Path) -> std::io::Result<Self> {
        let base = folder.join(format!("try-{}", std::process::id()));
        let (root, outside) = (base.join("root"), base.join("outside"));
        let git = root.join(".git");
        for path in [
            &outside,
            &git.join("objects"),
            &git.join("refs"),
            &git.join("hooks"),
        ] {
            std::fs::create_dir_all(path)?;
        }
        std::fs::write(outside.join("secret"), "secret")?;
        std::fs::write(git.join("HEAD"), "ref: refs/heads/main\n")?;
        std::fs::write(
            git.join("config"),
            "[core]\n\trepositoryformatversion = 0\n\tbare = false\n",
        )?;
        Ok(Self {
            root: root.canonicalize()?,
            outside: outside.canonicalize()?,
            repository: root.canonicalize()?.to_string_lossy().into_owned(),
            base,
        })
    }

    fn run(&self, sandbox: &dyn Sandbox, argv: Vec<OsString>, network: Network) -> Option<Vec<u8>> {
        let wrapped = sandbox
            .wrap(SandboxRequest {
                argv,
                cwd: self.root.clone(),
                reach: Reach {
                    roots: vec![self.root.clone()],
                    temporary: PathBuf::new(),
                    network,
                },
                tty: false,
            })
            .ok()?;
        run(&wrapped, &self.root)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.base);
    }
}
