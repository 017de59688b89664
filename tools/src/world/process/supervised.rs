//! The engine's side of one supervisor: its reports, what is asked of it, and its end.

use std::process::Child;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use tokio::io::unix::AsyncFd;
use tokio::net::UnixStream;

use crate::helper::Helper;
use crate::helper::link::{Lines, Report, Request, line_of};

/// How long a supervisor may take to end its tree when nobody can wait for it properly.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// A running supervisor. Dropping it ends its tree, and blocks for that up to a second:
/// only where the runtime itself ends does nobody wait in a better way.
#[derive(Debug)]
pub(super) struct Supervised {
    child: Child,
    ended: AsyncFd<OwnedFd>,
    link: UnixStream,
    lines: Lines,
    is_reaped: bool,
}

impl Supervised {
    /// Takes a helper that was just started. Must be called on a runtime.
    ///
    /// # Errors
    /// The system's; then the helper is gone.
    pub(super) fn new(helper: Helper) -> std::io::Result<Self> {
        let Helper { mut child, link } = helper;
        let taken = (|| {
            let pid = i32::try_from(child.id())
                .ok()
                .and_then(Pid::from_raw)
                .ok_or(std::io::ErrorKind::NotFound)?;
            let ended = watched(pidfd_open(pid, PidfdFlags::empty())?)?;
            link.set_nonblocking(true)?;
            Ok((ended, UnixStream::from_std(link)?))
        })();
        match taken {
            Ok((ended, link)) => Ok(Self {
                child,
                ended,
                link,
                lines: Lines::default(),
                is_reaped: false,
            }),
            Err(error) => {
                // Its leader goes with it.
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// The next report; none when the supervisor is gone or speaks otherwise. Nothing is
    /// lost when the wait is given up.
    pub(super) async fn report(&mut self) -> Option<Report> {
        loop {
            match self.lines.next() {
                Ok(Some(report)) => return Some(report),
                Ok(None) => {}
                Err(_) => return None,
            }
            self.link.readable().await.ok()?;
            let mut chunk = [0u8; 1024];
            match self.link.try_read(&mut chunk) {
                Ok(0) => return None,
                Ok(read) => self.lines.push(chunk.get(..read)?).ok()?,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return None,
            }
        }
    }

    /// Asks it to end its tree. A supervisor that cannot be told is gone, which its next
    /// report says.
    pub(super) fn end(&self, grace: Duration) {
        let request = Request::End {
            grace_ms: grace.as_millis().try_into().unwrap_or(u64::MAX),
        };
        if let Ok(line) = line_of(&request) {
            let _ = self.link.try_write(&line);
        }
    }

    /// Lets it go on, when something has stopped it.
    pub(super) fn resume(&self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
            && !self.is_reaped
        {
            // It was not reaped, so the process id is still its own.
            let _ = kill_process(pid, Signal::CONT);
        }
    }

    /// Kills it, and its leader with it.
    pub(super) fn kill(&mut self) {
        let _ = self.child.kill();
    }

    /// Waits for its end, so that no zombie is left.
    pub(super) async fn reap(&mut self) {
        if self.ended.readable().await.is_ok() {
            // Ended means that this does not block.
            let _ = self.child.wait();
            self.is_reaped = true;
        }
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        if self.is_reaped {
            return;
        }
        let _ = rustix::net::shutdown(&self.link, rustix::net::Shutdown::Both);
        let wait = Timespec {
            tv_sec: LAST_WAIT.as_secs().try_into().unwrap_or_default(),
            tv_nsec: 0,
        };
        let ended = self.ended.get_ref();
        let is_over = poll(&mut [PollFd::new(ended, PollFlags::IN)], Some(&wait));
        if is_over != Ok(1) {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// Lets the runtime tell when the descriptor is readable.
#[expect(
    deprecated,
    reason = "deprecated for descriptors that may be closed meanwhile, which an owned one cannot be"
)]
fn watched(descriptor: OwnedFd) -> std::io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::new(descriptor)
}
