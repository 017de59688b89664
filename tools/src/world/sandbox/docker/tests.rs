//! Arguments and failures, with a stand-in that writes down what it is asked; no engine
//! takes part.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test makes its own program, and fails by panicking"
)]

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use super::*;
use crate::world::sandbox::Reach;

struct StandIn {
    folder: tempfile::TempDir,
    root: PathBuf,
}

impl StandIn {
    /// `reply` is a piece of shell that sees the arguments.
    fn new(reply: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap().join("project");
        std::fs::create_dir(&root).unwrap();
        let bin = folder.path().join("docker");
        let log = folder.path().join("log");
        std::fs::write(
            &bin,
            format!("#!/bin/sh\necho \"$@\" >> {}\n{reply}\n", log.display()),
        )
        .unwrap();
        std::fs::set_permissions(&bin, std::fs::Permissions::from_mode(0o755)).unwrap();
        Self { folder, root }
    }

    fn sandbox(&self, change: impl FnOnce(&mut DockerSettings)) -> DockerSandbox {
        let mut settings = DockerSettings::default();
        change(&mut settings);
        DockerSandbox::new(settings, vec![self.folder.path().to_owned()])
    }

    fn log(&self) -> Vec<String> {
        std::fs::read_to_string(self.folder.path().join("log"))
            .unwrap_or_default()
            .lines()
            .map(str::to_owned)
            .collect()
    }

    fn request(&self, cwd: &Path, network: Network, tty: bool) -> SandboxRequest {
        SandboxRequest {
            argv: vec!["make".into(), "a b".into()],
            cwd: cwd.to_owned(),
            reach: Reach {
                roots: vec![self.root.clone()],
                network,
                ..Reach::default()
            },
            tty,
        }
    }
}

/// Says an id of the right form, after words on the other output.
const STARTS: &str = "if [ $1 = run ]; then echo pulling >&2; printf '%064d\\n' 7; fi";

fn id() -> String {
    format!("{:064}", 7)
}

#[test]
fn a_container_is_started_once_with_the_arguments_of_the_specification() {
    let stand_in = StandIn::new(STARTS);
    let sandbox = stand_in.sandbox(|settings| {
        settings.memory = Some("2g".to_owned());
        settings.cpus = Some("1.5".to_owned());
        settings.pids = Some(100);
        settings.user = DockerUser::Named("1000:1000".to_owned());
    });
    assert!(
        stand_in.log().is_empty(),
        "nothing starts before the first use"
    );
    let root = stand_in.root.display().to_string();
    for tty in [false, true] {
        let wrapped = sandbox
            .wrap(stand_in.request(&stand_in.root, Network::Closed, tty))
            .unwrap();
        let docker = stand_in.folder.path().join("docker").display().to_string();
        let mut expected = vec![docker.as_str(), "exec", "-i"];
        expected.extend(tty.then_some("-t"));
        let id = id();
        expected.extend(["-w", &root, &id, "make", "a b"]);
        assert_eq!(
            wrapped.argv,
            expected.iter().map(OsString::from).collect::<Vec<_>>()
        );
        assert_eq!(wrapped.program, None);
    }
    assert_eq!(
        stand_in.log(),
        [format!(
            "run -d --rm --label terret-sandbox --network none --memory 2g --cpus 1.5 --pids-limit 100 \
             --user 1000:1000 -v {root}:{root} ruby:slim sleep infinity"
        )]
    );
    drop(sandbox);
    assert_eq!(stand_in.log().last().unwrap(), &format!("rm -f {}", id()));
}

#[test]
fn our_own_user_is_the_default_and_the_image_may_keep_its_own() {
    let stand_in = StandIn::new(STARTS);
    let request = || stand_in.request(&stand_in.root, Network::Closed, false);
    stand_in.sandbox(|_| {}).wrap(request()).unwrap();
    let ours = format!(
        "--user {}:{} ",
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw()
    );
    assert!(stand_in.log().first().unwrap().contains(&ours));
    let image = stand_in.sandbox(|settings| settings.user = DockerUser::Image);
    image.wrap(request()).unwrap();
    let last_run = stand_in
        .log()
        .into_iter()
        .rfind(|line| line.starts_with("run"))
        .unwrap();
    assert!(!last_run.contains("--user"), "{last_run}");
}

#[test]
fn an_open_network_is_another_container() {
    let stand_in = StandIn::new(STARTS);
    let sandbox = stand_in.sandbox(|_| {});
    for network in [Network::Closed, Network::Open, Network::Open] {
        sandbox
            .wrap(stand_in.request(&stand_in.root, network, false))
            .unwrap();
    }
    let log = stand_in.log();
    assert_eq!(log.len(), 2, "{log:?}");
    assert!(log.last().unwrap().contains("--network bridge"), "{log:?}");
}

#[test]
fn programs_that_come_at_once_start_one_container() {
    let stand_in = Arc::new(StandIn::new(&format!("sleep 0.1; {STARTS}")));
    let sandbox = Arc::new(stand_in.sandbox(|_| {}));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (sandbox, stand_in) = (Arc::clone(&sandbox), Arc::clone(&stand_in));
            std::thread::spawn(move || {
                sandbox
                    .wrap(stand_in.request(&stand_in.root, Network::Closed, false))
                    .unwrap();
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(stand_in.log().len(), 1);
}

#[test]
fn a_folder_outside_the_workspace_and_no_workspace_are_refused() {
    let stand_in = StandIn::new(STARTS);
    let sandbox = stand_in.sandbox(|_| {});
    let refused = sandbox
        .wrap(stand_in.request(Path::new("/etc"), Network::Closed, false))
        .unwrap_err();
    assert!(refused.0.contains("/etc is outside"), "{refused}");
    let mut request = stand_in.request(&stand_in.root, Network::Closed, false);
    request.reach.roots.clear();
    let refused = sandbox.wrap(request).unwrap_err();
    assert!(refused.0.contains("no workspace"), "{refused}");
    assert!(stand_in.log().is_empty());
}

#[test]
fn an_engine_that_fails_says_why_and_is_asked_again() {
    for reply in [
        "echo 'Cannot connect to the Docker daemon' >&2; exit 1",
        "echo 'Cannot connect to the Docker daemon'",
    ] {
        let stand_in = StandIn::new(reply);
        let sandbox = stand_in.sandbox(|_| {});
        for _ in 0..2 {
            let refused = sandbox
                .wrap(stand_in.request(&stand_in.root, Network::Closed, false))
                .unwrap_err();
            assert!(refused.0.contains("Cannot connect"), "{refused}");
        }
        assert_eq!(stand_in.log().len(), 2);
    }
    let missing = DockerSandbox::new(DockerSettings::default(), Vec::new());
    let stand_in = StandIn::new("");
    let refused = missing
        .wrap(stand_in.request(&stand_in.root, Network::Closed, false))
        .unwrap_err();
    assert!(refused.0.contains("was not found"), "{refused}");
}

#[test]
fn a_restart_forgets_a_container_that_is_gone_and_keeps_one_that_is_not() {
    let gone = format!(
        "{STARTS}; if [ $1 = rm ]; then echo 'Error: No such container: x' >&2; exit 1; fi"
    );
    let stuck = format!("{STARTS}; if [ $1 = rm ]; then echo 'daemon is busy' >&2; exit 1; fi");
    for (reply, started) in [(gone, 2), (stuck, 1)] {
        let stand_in = StandIn::new(&reply);
        let sandbox = stand_in.sandbox(|_| {});
        let request = || stand_in.request(&stand_in.root, Network::Closed, false);
        sandbox.wrap(request()).unwrap();
        sandbox.restart();
        sandbox.wrap(request()).unwrap();
        let runs = stand_in
            .log()
            .iter()
            .filter(|line| line.starts_with("run"))
            .count();
        assert_eq!(runs, started, "{reply}");
    }
}

#[test]
fn the_limit_of_signals_is_said() {
    let stand_in = StandIn::new(STARTS);
    let sandbox = stand_in.sandbox(|_| {});
    assert!(sandbox.isolated());
    assert!(sandbox.caveat().unwrap().contains("go on inside"));
}
