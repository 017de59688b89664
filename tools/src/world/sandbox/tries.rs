//! What is tried from inside, for `terret doctor`: our helper confines itself and then,
//! in the place of becoming a program, tries to get out by plain calls. No other program
//! is needed for it, and none can stand in the way.

#![expect(
    clippy::disallowed_methods,
    reason = "tries in a confined process what must fail there"
)]

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// In the place of a program's name, what makes the helper try things.
pub const TRIES: &str = "terret-sandbox-tries";

/// One thing to try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Try {
    /// Make a file or add nothing to it.
    Write(PathBuf),
    /// Read a first byte.
    Read(PathBuf),
    /// Connect to a port of the loopback.
    Tcp(u16),
    /// Connect to a socket by its path.
    Unix(PathBuf),
    /// Ask whether a process could be signalled.
    Signal(i32),
    /// Put a file in the place of another, or of nothing.
    Replace(PathBuf),
}

impl Try {
    fn words(&self) -> [OsString; 2] {
        let (what, with): (&str, OsString) = match self {
            Self::Write(path) => ("write", path.into()),
            Self::Read(path) => ("read", path.into()),
            Self::Tcp(port) => ("tcp", port.to_string().into()),
            Self::Unix(path) => ("unix", path.into()),
            Self::Signal(pid) => ("signal", pid.to_string().into()),
            Self::Replace(path) => ("replace", path.into()),
        };
        [what.into(), with]
    }

    fn parse(what: &OsStr, with: &OsStr) -> Option<Self> {
        Some(match what.to_str()? {
            "write" => Self::Write(with.into()),
            "read" => Self::Read(with.into()),
            "tcp" => Self::Tcp(with.to_str()?.parse().ok()?),
            "unix" => Self::Unix(with.into()),
            "signal" => Self::Signal(with.to_str()?.parse().ok()?),
            "replace" => Self::Replace(with.into()),
            _ => return None,
        })
    }

    fn succeeds(&self) -> bool {
        match self {
            Self::Write(path) => std::fs::OpenOptions::new()
                .append(true)
                .create(true)
                .open(path)
                .is_ok(),
            Self::Read(path) => std::fs::File::open(path)
                .and_then(|mut file| file.read(&mut [0]))
                .is_ok_and(|read| read > 0),
            Self::Tcp(port) => std::net::TcpStream::connect(("127.0.0.1", *port)).is_ok(),
            Self::Unix(path) => UnixStream::connect(path).is_ok(),
            Self::Signal(pid) => rustix::process::Pid::from_raw(*pid)
                .is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok()),
            Self::Replace(path) => replace(path).is_ok(),
        }
    }
}

fn replace(path: &Path) -> std::io::Result<()> {
    let mut other = path.as_os_str().to_owned();
    other.push(".terret-try");
    std::fs::write(&other, "")?;
    let renamed = std::fs::rename(&other, path);
    if renamed.is_err() {
        std::fs::remove_file(&other)?;
    }
    renamed
}

/// The program and arguments that try these things.
pub fn argv(tries: &[Try]) -> Vec<OsString> {
    std::iter::once(TRIES.into())
        .chain(tries.iter().flat_map(Try::words))
        .collect()
}

/// What succeeded, from the program's output; none when it does not fit.
pub fn answers(output: &[u8], tries: usize) -> Option<Vec<bool>> {
    let line = output.split(|byte| *byte == b'\n').next()?;
    (line.len() == tries).then(|| line.iter().map(|byte| *byte == b'1').collect())
}

/// Tries what the arguments say, and prints one digit for each.
pub(super) fn main(words: &[OsString]) -> u8 {
    let line: String = words
        .chunks_exact(2)
        .filter_map(|pair| match pair {
            [what, with] => Try::parse(what, with),
            _ => None,
        })
        .map(|one| if one.succeeds() { '1' } else { '0' })
        .chain(['\n'])
        .collect();
    u8::from(std::io::stdout().write_all(line.as_bytes()).is_err())
}
