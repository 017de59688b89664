//! Real wordings of real programs: those that a sandbox causes, and those that it does not.

use super::*;

fn of(text: &str) -> Option<Denial> {
    guess_within(text, Network::Closed, &[PathBuf::from("/home/me/Project")])
}

#[test]
fn a_network_that_is_not_there_is_seen_in_many_words() {
    for text in [
        "fatal: unable to access 'https://example.org/a.git/': Could not resolve host: example.org",
        "curl: (6) Could not resolve host: example.org",
        "ping: connect: Network is unreachable",
        "npm error code EAI_AGAIN\nnpm error syscall getaddrinfo\nnpm error network request to https://registry.example failed",
        "npm ERR! network This is a problem related to network connectivity.",
        "Error: getaddrinfo EAI_AGAIN registry.example",
        "Error: connect ENETUNREACH 10.0.0.1:443",
        "warning: spurious network error (3 tries remaining): [6] Could not resolve hostname",
        "  failed to download from `https://index.example/config.json`",
        "NewConnectionError('<pip._vendor.urllib3.connection>: Failed to establish a new connection: [Errno -3] Temporary failure in name resolution')",
        "E: Temporary failure resolving 'deb.example.org'",
        "dial tcp: lookup proxy.example: Temporary failure in name resolution",
        "dial tcp 1.2.3.4:443: socket: operation not permitted",
        "socket: Operation not permitted",
        "java.net.UnknownHostException: repo.example",
        "socket.gaierror: [Errno -2] Name or service not known",
        "Error: listen EPERM: operation not permitted 127.0.0.1:3000",
        "ERROR: failed to lookup address information: Temporary failure in name resolution",
    ] {
        assert_eq!(of(text), Some(Denial::Network), "{text}");
    }
}

#[test]
fn an_open_network_is_not_guessed_to_be_closed() {
    let text = "curl: (6) Could not resolve host: example.org";
    assert_eq!(guess_within(text, Network::Open, &[]), None);
}

#[test]
fn what_needs_keys_is_not_helped_by_the_network_alone() {
    for text in [
        "ssh: Could not resolve hostname example.org: Temporary failure in name resolution\nfatal: Could not read from remote repository.",
        "git@example.org: Permission denied (publickey).",
        "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
    ] {
        assert_eq!(of(text), Some(Denial::Files), "{text}");
    }
}

#[test]
fn a_file_that_may_not_be_written_is_seen() {
    for text in [
        "touch: cannot touch '/usr/local/x': Read-only file system",
        "error: could not lock config file .git/config: Read-only file system",
        "OSError: [Errno 30] Read-only file system: '/opt/x'",
        "Error: EROFS: read-only file system, open '/home/me/.config/x'",
        "bash: /home/me/notes.txt: Permission denied",
        "PermissionError: [Errno 13] Permission denied: '/home/me/.cache/x'",
        "Error: EACCES: permission denied, mkdir '/home/me/.npm/_cacache'",
        "error: failed to open `/home/me/.cargo/registry/x` (os error 13)",
        "cat: ~/.ssh/config: Permission denied",
    ] {
        assert_eq!(of(text), Some(Denial::Files), "{text}");
    }
}

#[test]
fn ordinary_failures_are_left_alone() {
    for text in [
        "",
        "test result: FAILED. 3 passed; 1 failed; 0 ignored",
        "assertion `left == right` failed\n  left: 1\n right: 2",
        "error[E0308]: mismatched types\n --> src/main.rs:3:5",
        "bash: ./run.sh: Permission denied",
        "bash: /home/me/Project/run.sh: Permission denied",
        "cat: /home/me/project/locked: Permission denied",
        "cat: /etc/shadow: Permission denied",
        "ls: cannot open directory '/root': Permission denied",
        "FAIL src/net.test.js: expected 200, got 404",
        "thread 'permissions' panicked: permission denied is shown to the user",
        "make: *** [all] Error 2",
        "bash: nosuch: command not found",
        "connect ECONNREFUSED 127.0.0.1:5432",
        "kill: (1) - Operation not permitted",
        "mount: only root can do that",
    ] {
        assert_eq!(of(text), None, "{text}");
    }
}

#[test]
fn roots_are_remembered_up_to_a_bound() {
    let text = "bash: /srv/project/run.sh: Permission denied";
    let seen = SeenRoots::default();
    assert_eq!(seen.guess(text, Network::Closed), Some(Denial::Files));
    seen.note(&["/srv/project".into()]);
    assert_eq!(seen.guess(text, Network::Closed), None);
    let others: Vec<PathBuf> = (0..SEEN).map(|n| format!("/srv/{n}").into()).collect();
    seen.note(&others);
    assert_eq!(seen.guess(text, Network::Closed), Some(Denial::Files));
}

#[test]
fn the_end_of_a_long_output_is_what_counts() {
    let long = "ä".repeat(LOOKED_AT);
    assert_eq!(of(&format!("Could not resolve host\n{long}")), None);
    assert_eq!(
        of(&format!("{long}\nCould not resolve host")),
        Some(Denial::Network)
    );
}
