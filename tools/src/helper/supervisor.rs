//! Has one foreground tree or terminal in charge. The end of the link is the end of the
//! engine, and ends the tree.

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::helper::charge::Charge;
use crate::helper::link::{Lines, Order, Report, Request, take_order, tell};
use crate::helper::{Role, begin};
use crate::world::process::GRACE;

/// What is nearly done when the leader ends, such as `>(tee log)`, is no leftover.
const STRAGGLE: Duration = Duration::from_millis(250);
/// The grace when the engine is gone: nobody waits for what ignores the request.
const ALONE_GRACE: Duration = Duration::from_millis(500);

/// Runs the helper to its end, which is the tree's.
pub(super) fn main() -> u8 {
    match supervise() {
        Ok(()) => 0,
        // Nobody is left to be told.
        Err(_) => 1,
    }
}

fn supervise() -> std::io::Result<()> {
    let link = begin(Role::Supervisor)?;
    let (order, descriptors) = take_order::<Order>(&link)?;
    let charge = match Charge::start(order, descriptors) {
        Ok(charge) => charge,
        Err(failure) => {
            return tell(
                &link,
                &Report::Failed {
                    step: failure.step,
                    errno: failure.error.raw_os_error().unwrap_or_default(),
                },
            );
        }
    };
    link.set_nonblocking(true)?;
    let mut supervisor = Supervisor {
        link: Some(link),
        lines: Lines::default(),
        charge,
        ended: None,
        is_stuck: false,
    };
    supervisor.say(&Report::Started {
        pid: supervisor.charge.leader(),
    });
    supervisor.run();
    Ok(())
}

struct Supervisor {
    /// None when the engine is gone.
    link: Option<UnixStream>,
    lines: Lines,
    charge: Charge,
    /// When the leader ended.
    ended: Option<Instant>,
    is_stuck: bool,
}

impl Supervisor {
    fn run(&mut self) {
        loop {
            let mut wait = self.charge.tick();
            if self.ended.is_none()
                && let Some(status) = self.charge.status()
            {
                self.ended = Some(Instant::now());
                self.say(&Report::Ended { status });
            }
            if self.charge.is_gone() {
                self.say(&Report::Gone);
                return;
            }
            if self.charge.is_stuck() && !self.is_stuck {
                self.is_stuck = true;
                self.say(&Report::Stuck);
            }
            if self.charge.was_asked_to_end() {
                self.charge.end(ALONE_GRACE);
            }
            if let Some(left) = self.straggling() {
                if left.is_zero() {
                    self.end_leftovers();
                    continue;
                }
                wait = Some(left);
            }
            if wait.is_none() && self.charge.is_ending() {
                // It began just now.
                wait = Some(Duration::ZERO);
            }
            self.wait(wait);
        }
    }

    /// How long what the leader left behind may still end by itself.
    fn straggling(&self) -> Option<Duration> {
        let ended = self.ended.filter(|_| !self.charge.is_ending())?;
        Some(STRAGGLE.saturating_sub(ended.elapsed()))
    }

    fn end_leftovers(&mut self) {
        let members = self.charge.leftovers();
        self.say(&Report::Left { members });
        self.charge.end(GRACE);
    }

    fn wait(&mut self, wait: Option<Duration>) {
        let timeout = wait.map(|wait| Timespec {
            tv_sec: wait.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: wait.subsec_nanos().into(),
        });
        let woken = self.charge.woken();
        let mut fds = vec![PollFd::from_borrowed_fd(woken, PollFlags::IN)];
        if let Some(link) = &self.link {
            fds.push(PollFd::new(link, PollFlags::IN));
        }
        // Interrupted is woken, too.
        let _ = poll(&mut fds, timeout.as_ref());
        let heard = fds.get(1).is_some_and(|link| !link.revents().is_empty());
        drop(fds);
        if heard {
            self.hear();
        }
    }

    fn hear(&mut self) {
        let Some(link) = &mut self.link else { return };
        let is_open = self.lines.fill(link).unwrap_or(false);
        loop {
            match self.lines.next::<Request>() {
                Ok(Some(Request::End { grace_ms })) => {
                    self.charge.end(Duration::from_millis(grace_ms));
                }
                Ok(None) => break,
                // Nobody who speaks otherwise is our engine.
                Err(_) => return self.alone(),
            }
        }
        if !is_open {
            self.alone();
        }
    }

    fn alone(&mut self) {
        self.link = None;
        self.charge.end(ALONE_GRACE);
    }

    fn say(&mut self, report: &Report) {
        if let Some(link) = &self.link
            && tell(link, report).is_err()
        {
            self.alone();
        }
    }
}
