//! Our own small programs: this binary, started again under another name
//! (`design.md §3`). [`dispatch`] looks at the name before anything else starts, so a
//! helper is single-threaded, small and quick, and there is one file to install.
//!
//! A helper has one end of a socket pair as its standard input, the [`link`]: an order
//! with descriptors comes first, reports go back, and the link's end says that whoever
//! gave the order is gone. Nothing is passed on its command line or in its environment.

#![expect(
    clippy::disallowed_methods,
    reason = "starts our own binary as a helper, and ends it before main where that is a test's"
)]

pub mod charge;
mod keeper;
pub mod lineage;
pub mod link;
pub mod members;
pub mod relay;
mod supervisor;

use std::ffi::OsStr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;

/// How long a helper may take to read its order.
const ORDER_WAIT: Duration = Duration::from_secs(10);

/// Set by [`dispatch`]: a program that never asks is none of its own helpers.
static ANSWERS: AtomicBool = AtomicBool::new(false);

/// What a helper is for; its name is what it is called by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Has a foreground tree or a terminal in charge, and ends it with the engine.
    Supervisor,
    /// Confines itself, and becomes a program; no link, since it is the program's process.
    Sandbox,
    /// Keeps a job, which outlives the engine.
    Keeper,
    /// Shows a command in a terminal of the editor, which starts it.
    Relay,
}

/// The program that helpers are started from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum HelperProgram {
    /// The running one, also when its file was replaced meanwhile. It must call
    /// [`dispatch`].
    #[default]
    Ourselves,
    /// Another binary that calls [`dispatch`].
    At(PathBuf),
}

/// A helper that was started and has its order. Whoever holds it has to wait for it.
#[derive(Debug)]
pub struct Helper {
    pub child: Child,
    /// Blocking; without a time limit for reads.
    pub link: UnixStream,
}

impl Role {
    /// The name it is called by, as `argv[0]`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Supervisor => "terret-supervisor",
            Self::Sandbox => crate::world::sandbox::order::HELPER,
            Self::Keeper => "terret-keeper",
            Self::Relay => "terret-relay",
        }
    }

    fn named(name: &OsStr) -> Option<Self> {
        [Self::Supervisor, Self::Sandbox, Self::Keeper, Self::Relay]
            .into_iter()
            .find(|role| name == role.name())
    }

    fn main(self) -> u8 {
        match self {
            Self::Supervisor => supervisor::main(),
            Self::Sandbox => crate::world::sandbox::confine::main(),
            Self::Keeper => keeper::main(),
            Self::Relay => relay::main(std::env::args_os().skip(1)),
        }
    }
}

/// Acts as a helper when this process was called by a helper's name; then the process is
/// to end with this code. The first thing that a binary's `main` does.
pub fn dispatch() -> Option<ExitCode> {
    run().map(ExitCode::from)
}

/// [`dispatch`] for a test binary, which has no `main` of its own: runs before it and does
/// not come back in a helper. Use it by [`own_helpers!`](crate::own_helpers).
pub extern "C" fn before_main() {
    if let Some(code) = run() {
        std::process::exit(code.into());
    }
}

/// Whether this program is its own helpers: [`dispatch`] was called.
pub fn is_available() -> bool {
    ANSWERS.load(Ordering::Relaxed)
}

fn run() -> Option<u8> {
    ANSWERS.store(true, Ordering::Relaxed);
    let called = std::env::args_os().next()?;
    let name = std::path::Path::new(&called).file_name()?;
    Role::named(name).map(Role::main)
}

/// Whether this program is its own helper: it called [`dispatch`].
pub fn is_answered() -> bool {
    ANSWERS.load(Ordering::Relaxed)
}

/// Makes a test binary or a benchmark its own helper: named once at the top of it.
#[macro_export]
macro_rules! own_helpers {
    () => {
        const _: () = {
            // Called by the loader before the test harness, which has a `main` that is
            // not ours and would run all tests again in a helper.
            #[used]
            #[expect(unsafe_code, reason = "a place in a section that the loader reads")]
            // SAFETY: the section holds pointers to functions of this kind.
            #[unsafe(link_section = ".init_array")]
            static BEFORE_MAIN: extern "C" fn() = $crate::helper::before_main;
        };
    };
}

impl HelperProgram {
    /// Starts a helper and gives it its order. Blocks until the order was taken, a
    /// millisecond usually.
    ///
    /// # Errors
    /// The system's; then no helper runs.
    pub fn start(
        &self,
        role: Role,
        order: &impl Serialize,
        descriptors: &[BorrowedFd<'_>],
    ) -> std::io::Result<Helper> {
        let program = match self {
            // Without this a forgotten call would start the whole program again and again.
            Self::Ourselves if !ANSWERS.load(Ordering::Relaxed) => {
                return Err(std::io::Error::other(
                    "this program is none of its own helpers: its `main` has to call \
                     `terret_tools::helper::dispatch` first",
                ));
            }
            Self::Ourselves => OsStr::new("/proc/self/exe"),
            Self::At(path) => path.as_os_str(),
        };
        let (ours, theirs) = UnixStream::pair()?;
        let mut child = Command::new(program)
            .arg0(role.name())
            // It needs none, and what it has can be read by what it starts.
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let given = ours
            .set_write_timeout(Some(ORDER_WAIT))
            .and_then(|()| link::give_order(&ours, order, descriptors));
        if let Err(error) = given {
            let _ = child.kill();
            let _ = child.wait();
            return Err(error);
        }
        Ok(Helper { child, link: ours })
    }
}

/// What every helper does first: nothing that it was born with may reach what it starts.
/// Gives its end of the link.
///
/// # Errors
/// When it was not started with a link.
pub fn begin(role: Role) -> std::io::Result<UnixStream> {
    close_inherited();
    // Out of reach of what ends the engine's group, and of its terminal. It fails only
    // where it is a session's leader already.
    let _ = rustix::process::setsid();
    if let Ok(name) = std::ffi::CString::new(role.name()) {
        // For people who look at a list of processes; cut to 15 bytes by the system.
        let _ = rustix::thread::set_name(&name);
    }
    let link = UnixStream::from(rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?);
    // A leader gets an input of its own; ours must not be held by anything else.
    let nothing = std::fs::File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nothing)?;
    link.peer_addr()?;
    Ok(link)
}

/// Closes what leaked into us from whoever started the engine.
fn close_inherited() {
    #[expect(
        unsafe_code,
        reason = "no safe crate in use closes a range of descriptors"
    )]
    // SAFETY: nothing was opened yet, so no owner of a descriptor above 2 exists.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, 0u32) };
    if closed == 0 {
        return;
    }
    // A kernel before 5.9.
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        return;
    };
    let open: Vec<i32> = entries
        .filter_map(Result::ok)
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|descriptor| *descriptor > 2)
        .collect();
    for descriptor in open {
        #[expect(unsafe_code, reason = "closes what nobody owns")]
        // SAFETY: as above; the folder's own descriptor is closed already, which is no harm.
        unsafe {
            libc::close(descriptor);
        }
    }
}

#[cfg(test)]
mod tests;
