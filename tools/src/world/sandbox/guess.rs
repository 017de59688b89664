//! Reads a failure's output for signs that the sandbox caused it (`design: Sandbox`).
//!
//! It is a guess, and is called one: the output may be that of any program, in any
//! wording, and may lie. So the table holds what programs print when a socket or a file is
//! refused, and each sign is long enough not to stand in an ordinary failure by chance. A
//! wrong guess costs a person one question; a missed one costs the model a detour.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::world::sandbox::{Denial, Network};

/// Bytes of output that are looked at, from the end: a program says why it failed last.
const LOOKED_AT: usize = 64 * 1024;

/// Roots that are remembered, of all sessions.
const SEEN: usize = 256;

/// What a program prints when the network is not there. Lower case.
const NETWORK: &[&str] = &[
    // The resolver, by libraries and languages.
    "could not resolve host",
    "couldn't resolve host",
    "temporary failure in name resolution",
    "name or service not known",
    "temporary failure resolving",
    "nodename nor servname provided",
    "getaddrinfo eai_again",
    "getaddrinfo enotfound",
    "dns error: failed to lookup address",
    "failed to lookup address information",
    "no address associated with hostname",
    "unknownhostexception",
    "socket.gaierror",
    // The way there.
    "network is unreachable",
    "enetunreach",
    "no route to host",
    // The socket itself.
    "socket: operation not permitted",
    "can't create socket: operation not permitted",
    "cannot create socket: operation not permitted",
    "failed to create socket",
    "unable to create socket",
    "immediate connect fail",
    "could not create socket",
    // Package managers, where they say no more than this.
    "spurious network error",
    "network failure seems to have happened",
    "err_socket_timeout",
    "npm error network",
    "npm err! network",
    "failed to establish a new connection",
    "proxyconnect tcp",
    "unable to access 'http",
    "failed to download from `http",
    "unable to connect to deb.debian.org",
];

/// Of the above, where the failure is a dial and not a test's own: Go's words.
const DIAL: &[(&str, &str)] = &[
    ("dial tcp", "operation not permitted"),
    ("dial udp", "operation not permitted"),
    ("lookup ", "operation not permitted"),
    ("socket", "eperm"),
    ("connect", "eperm"),
    ("listen", "eperm"),
    ("socket", "permissionerror: [errno 1]"),
];

/// What needs keys or a socket of the person's besides the network, so that opening the
/// network alone would not help.
const NEEDS_MORE: &[&str] = &[
    "ssh: could not resolve hostname",
    "could not read from remote repository",
    "permission denied (publickey",
    "host key verification failed",
    "could not open a connection to your authentication agent",
    "cannot connect to the docker daemon",
    "error connecting to agent",
];

/// What a program prints when it may not write.
const FILES: &[&str] = &[
    "read-only file system",
    "erofs",
    "(os error 30)",
    "errno 30",
];

/// What comes with a path that says whether it lies outside.
const REFUSED: &[&str] = &[
    "permission denied",
    "eacces",
    "operation not permitted",
    "eperm",
    "(os error 13)",
    "errno 13",
];

/// Places of the system that a program which may not read or write them was kept from by
/// its user already, sandbox or not.
const SYSTEM: &[&str] = &[
    "/etc", "/usr", "/bin", "/sbin", "/lib", "/proc", "/sys", "/boot", "/root",
];

/// The roots that programs were started with, newest last: a refusal there is an ordinary
/// one, such as of a script that is not executable.
#[derive(Debug, Default)]
pub struct SeenRoots(Mutex<Vec<PathBuf>>);

impl SeenRoots {
    /// Notes a program's roots.
    pub fn note(&self, roots: &[PathBuf]) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for root in roots {
            if !seen.contains(root) {
                seen.push(root.clone());
            }
        }
        let old = seen.len().saturating_sub(SEEN);
        seen.drain(..old);
    }

    /// Judges an output. `network` is what the call had.
    pub fn guess(&self, text: &str, network: Network) -> Option<Denial> {
        let seen = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        guess_within(text, network, &seen)
    }
}

/// Judges an output of a program that could write in these folders.
pub fn guess_within(text: &str, network: Network, writable: &[PathBuf]) -> Option<Denial> {
    let text = tail(text).to_lowercase();
    if contains(&text, NEEDS_MORE) {
        return Some(Denial::Files);
    }
    if network == Network::Closed && (contains(&text, NETWORK) || text.lines().any(is_dial)) {
        return Some(Denial::Network);
    }
    if text.lines().any(|line| is_refused(line, writable)) {
        return Some(Denial::Files);
    }
    None
}

fn tail(text: &str) -> &str {
    let mut start = text.len().saturating_sub(LOOKED_AT);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    text.get(start..).unwrap_or_default()
}

fn contains(text: &str, signs: &[&str]) -> bool {
    signs.iter().any(|sign| text.contains(sign))
}

fn is_dial(line: &str) -> bool {
    DIAL.iter()
        .any(|(one, other)| line.contains(one) && line.contains(other))
}

fn is_refused(line: &str, writable: &[PathBuf]) -> bool {
    let is_read_only = contains(line, FILES);
    if !is_read_only && !contains(line, REFUSED) {
        return false;
    }
    let mut paths = paths(line).peekable();
    if paths.peek().is_none() {
        // Nothing but the sandbox's mounts is read-only here, as a rule.
        return is_read_only;
    }
    paths.any(|path| {
        let path = Path::new(path);
        let is_ours = writable.iter().any(|folder| starts_with(path, folder));
        let is_systems = SYSTEM.iter().any(|folder| path.starts_with(folder));
        if is_read_only {
            return !is_systems || !path.starts_with("/proc") && !path.starts_with("/sys");
        }
        !is_ours && !is_systems && !path.starts_with("/tmp") && !path.starts_with("/dev")
    })
}

/// The line is in lower case already.
fn starts_with(path: &Path, folder: &Path) -> bool {
    path.starts_with(folder.to_string_lossy().to_lowercase())
}

/// Absolute paths in a line, and those of the home folder.
fn paths(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| c.is_whitespace() || "'\"`()[]<>,;=‘’“”".contains(c))
        .map(|word| word.trim_end_matches([':', '.', '!']))
        .filter(|word| (word.starts_with('/') || word.starts_with("~/")) && word.len() > 2)
}

#[cfg(test)]
mod tests;
