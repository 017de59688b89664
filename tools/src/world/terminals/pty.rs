//! A pair of pseudo-terminal ends, and what the system says of them.
//!
//! We keep an end of the program's side open, too: without it a program that closes its
//! own for a moment would make ours fail, and a poll of it would never sleep again.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fd::OwnedFd;
use rustix::fs::{Access, OFlags, access, fcntl_getfl, fcntl_setfl};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{InputModes, LocalModes, Winsize, tcgetattr, tcsetwinsize};
use tokio::io::unix::AsyncFd;

/// Both ends, before the runtime knows of them.
pub(super) struct Ends {
    ours: OwnedFd,
    programs: OwnedFd,
}

/// A terminal as we hold it.
pub(super) struct Pty {
    ours: AsyncFd<OwnedFd>,
    programs: OwnedFd,
}

/// What the program asked of the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Modes {
    /// Input comes in whole lines.
    pub(super) lines: bool,
    /// A carriage return is a line end.
    pub(super) returns: bool,
    /// What is typed is shown.
    pub(super) echo: bool,
}

/// Makes a terminal of this size; gives both ends and one more of the program's side, to
/// be handed on.
pub(super) fn open(rows: u16, columns: u16) -> std::io::Result<(Ends, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let ours = openpt(flags)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    // By descriptor and not by name: the name may mean another terminal here.
    let programs = ioctl_tiocgptpeer(&ours, flags)?;
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&ours, size)?;
    fcntl_setfl(&ours, fcntl_getfl(&ours)? | OFlags::NONBLOCK)?;
    let given = programs.try_clone()?;
    Ok((Ends { ours, programs }, given))
}

impl Pty {
    /// Lets the runtime watch our end.
    #[expect(
        deprecated,
        reason = "deprecated for descriptors that may be closed meanwhile, which an owned one cannot be"
    )]
    pub(super) fn new(ends: Ends) -> std::io::Result<Self> {
        Ok(Self {
            ours: AsyncFd::new(ends.ours)?,
            programs: ends.programs,
        })
    }

    /// Waits for output.
    pub(super) async fn read(&self, chunk: &mut [u8]) -> std::io::Result<usize> {
        loop {
            let mut ready = self.ours.readable().await?;
            if let Ok(read) =
                ready.try_io(|ours| Ok(rustix::io::read(ours.get_ref(), &mut *chunk)?))
            {
                return read;
            }
        }
    }

    /// Output that is there; none when there is none.
    pub(super) fn try_read(&self, chunk: &mut [u8]) -> Option<usize> {
        rustix::io::read(self.ours.get_ref(), chunk)
            .ok()
            .filter(|read| *read > 0)
    }

    /// Waits until the terminal takes something, and gives how much it took.
    pub(super) async fn write(&self, bytes: &[u8]) -> std::io::Result<usize> {
        loop {
            let mut ready = self.ours.writable().await?;
            if let Ok(written) = ready.try_io(|ours| Ok(rustix::io::write(ours.get_ref(), bytes)?))
            {
                return written;
            }
        }
    }

    /// Writes what fits: an answer that nobody takes is no loss.
    pub(super) fn try_write(&self, bytes: &[u8]) {
        let _ = rustix::io::write(self.ours.get_ref(), bytes);
    }

    pub(super) fn modes(&self) -> std::io::Result<Modes> {
        let termios = tcgetattr(&self.programs)?;
        Ok(Modes {
            lines: termios.local_modes.contains(LocalModes::ICANON),
            returns: termios.input_modes.contains(InputModes::ICRNL),
            echo: termios.local_modes.contains(LocalModes::ECHO),
        })
    }
}

/// Whether the program is there and can be started, before a terminal is made for it: a
/// sandbox starts by itself, and would fail where only the screen tells.
///
/// # Errors
/// Why not, in words for the model.
pub(super) fn check(
    argv: &[OsString],
    cwd: &Path,
    environment: &BTreeMap<OsString, OsString>,
) -> Result<(), String> {
    let Some(name) = argv.first().filter(|name| !name.is_empty()) else {
        return Err("`argv` names no program; give the program and its arguments as a list, such as [\"python3\", \"-i\"]".to_owned());
    };
    if argv.iter().any(|part| part.as_bytes().contains(&0)) {
        return Err("`argv` holds a zero byte, which no program can be given".to_owned());
    }
    let shown = name.to_string_lossy();
    let found = candidates(name, cwd, environment);
    let mut denied = None;
    for path in found {
        if !path.exists() {
            continue;
        }
        if path.is_dir() {
            denied = denied.or(Some(format!("{} is a folder", path.display())));
        } else if access(&path, Access::EXEC_OK).is_err() || !has_permission(&path) {
            denied = denied.or(Some(format!(
                "{} may not be executed (permission denied); a script is started by its interpreter, such as [\"bash\", \"script.sh\"]",
                path.display()
            )));
        } else {
            return program_of(&path);
        }
    }
    Err(match denied {
        Some(why) => format!("`{shown}` cannot be started: {why}"),
        None if name.as_bytes().contains(&b'/') => {
            format!("`{shown}` cannot be started: there is no such file")
        }
        None if shown.contains(' ') => format!(
            "`{shown}` cannot be started: there is no program of that name; `argv` is a list with the program and each argument apart"
        ),
        None => format!("`{shown}` cannot be started: no folder of PATH has such a program"),
    })
}

fn candidates(
    name: &OsStr,
    cwd: &Path,
    environment: &BTreeMap<OsString, OsString>,
) -> Vec<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return vec![cwd.join(name)];
    }
    environment
        .get(OsStr::new("PATH"))
        .map(|folders| {
            std::env::split_paths(folders)
                .map(|folder| cwd.join(folder).join(name))
                .collect()
        })
        .unwrap_or_default()
}

/// The system lets root pass where nobody else would; execution needs one bit even so.
#[expect(
    clippy::disallowed_methods,
    reason = "looks at a program that is to be started"
)]
fn has_permission(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o111 != 0)
}

/// Text without a `#!` is no program, and a `#!` must name one.
#[expect(
    clippy::disallowed_methods,
    reason = "looks at a program that is to be started"
)]
fn program_of(path: &Path) -> Result<(), String> {
    let mut begin = Vec::new();
    let Ok(file) = std::fs::File::open(path) else {
        // A program that may be started and not read.
        return Ok(());
    };
    if file.take(256).read_to_end(&mut begin).is_err() {
        return Ok(());
    }
    if let Some(line) = begin.strip_prefix(b"#!") {
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        let interpreter = line.split_whitespace().next().unwrap_or_default();
        if interpreter.starts_with('/') && !Path::new(interpreter).exists() {
            return Err(format!(
                "{} cannot be started: its interpreter {interpreter} is not there",
                path.display()
            ));
        }
        return Ok(());
    }
    let is_text = begin
        .iter()
        .all(|byte| matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~'));
    if is_text {
        return Err(format!(
            "{} cannot be started: it is text that names no interpreter in a first line `#!`; start it by one, such as [\"bash\", \"script.sh\"]",
            path.display()
        ));
    }
    Ok(())
}
