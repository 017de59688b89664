//! The tree of processes that a helper is in charge of.
//!
//! The helper is a subreaper, so whatever comes from the leader stays below it: a process
//! may leave session, group, environment, pipe and parent, and is still found by descent.
//! When the system says that there are no children left, the tree is gone; no look can be
//! as sure. A signal goes to who was seen, by process id and start time.
//!
//! Nothing here waits. Whoever is in charge waits until [`Charge::woken`] is readable or
//! the time that [`Charge::tick`] gave has passed, and calls [`Charge::tick`] again.

#![expect(
    clippy::disallowed_methods,
    reason = "starts the leader, for an engine that asked for it"
)]

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::Read;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, WaitOptions, getpid, getppid, kill_process_group, set_child_subreaper,
    set_parent_process_death_signal, wait,
};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};

use crate::helper::link::{Leftover, Order, Status, Step, Streams};
use crate::helper::members::{self, Process};

/// How long a killed member may take to be gone: only one that waits for a device does.
pub const KILL_WAIT: Duration = Duration::from_secs(2);
/// Members that are named; there may be more.
const NAMED: usize = 64;
/// How long new members are killed without a pause.
const HUNT: Duration = Duration::from_millis(250);
/// How long one look at the members takes at most. There may be tens of thousands, with a
/// machine that hardly gets to us, and whoever waits for an answer gives up.
const LOOK: Duration = Duration::from_millis(250);

/// A leader with all that came from it. There is one in a process: it reaps every child.
#[derive(Debug)]
pub struct Charge {
    leader: i32,
    terminal: bool,
    status: Option<Status>,
    gone: bool,
    ending: Option<Ending>,
    signals: Signals,
}

/// Why there is no leader.
#[derive(Debug)]
pub struct StartFailure {
    pub step: Step,
    pub error: std::io::Error,
}

/// Where the end of a tree stands.
#[derive(Debug)]
struct Ending {
    begun: Instant,
    grace: Duration,
    asked: HashMap<i32, u64>,
    /// When the newest of those that were asked first had started. What is newer may be
    /// what the asked need to end in good order, such as the programs of a `trap`.
    newest: Option<u64>,
    /// From when on members are killed.
    killing: Option<Instant>,
    pause: Duration,
}

/// What wakes the one who is in charge.
#[derive(Debug)]
struct Signals {
    woken: UnixStream,
    asked_to_end: Arc<AtomicBool>,
}

impl Charge {
    /// Starts the leader as it was ordered: in a session of its own, with nothing but its
    /// three streams, no signal blocked or ignored, and killed when this process is.
    ///
    /// # Errors
    /// [`StartFailure`]; then nothing runs.
    pub fn start(order: Order, descriptors: Vec<OwnedFd>) -> Result<Self, StartFailure> {
        let failed = |step| move |error| StartFailure { step, error };
        set_child_subreaper(Some(getpid())).map_err(|error| failed(Step::Program)(error.into()))?;
        let signals = Signals::listen().map_err(failed(Step::Program))?;
        let terminal = order.streams == Streams::Terminal;
        let mut command = command(order, descriptors)?;
        let child = command.spawn().map_err(failed(Step::Program))?;
        // Here the last of our copies of the leader's descriptors are closed.
        drop(command);
        // A folder that is in use cannot be unmounted.
        let _ = rustix::process::chdir("/");
        Ok(Self {
            // A process id is never larger.
            leader: i32::try_from(child.id()).unwrap_or(i32::MAX),
            terminal,
            status: None,
            gone: false,
            ending: None,
            signals,
        })
    }

    /// The leader's process id.
    pub fn leader(&self) -> i32 {
        self.leader
    }

    /// Becomes readable when something of the tree ended or this process was asked to end.
    pub fn woken(&self) -> BorrowedFd<'_> {
        self.signals.woken.as_fd()
    }

    /// How the leader ended, once it has.
    pub fn status(&self) -> Option<Status> {
        self.status
    }

    /// Whether nothing is left.
    pub fn is_gone(&self) -> bool {
        self.gone
    }

    /// Whether [`Charge::end`] was said.
    pub fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// Whether something is still there long after it was killed.
    pub fn is_stuck(&self) -> bool {
        self.ending.as_ref().is_some_and(|ending| {
            !self.gone
                && ending
                    .killing
                    .is_some_and(|since| since.elapsed() >= KILL_WAIT)
        })
    }

    /// Whether this process was asked to end, by a signal.
    pub fn was_asked_to_end(&self) -> bool {
        self.signals.asked_to_end.load(Ordering::Relaxed)
    }

    /// What runs besides the leader, in words; some of it, where there is very much.
    pub fn leftovers(&self) -> Vec<Leftover> {
        let is_named = |process: &Process| {
            !process.dead
                && process.pid != self.leader
                // What keeps a sandbox's process list is no program of the command's.
                && !members::keeps_a_sandbox(process.pid)
        };
        let begun = Instant::now();
        let mut found = Vec::new();
        members::visit_descendants(own_pid(), |process| {
            if is_named(process) {
                found.push(*process);
            }
            if found.len() >= NAMED || begun.elapsed() >= LOOK {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        if found.len() < NAMED && begun.elapsed() < LOOK {
            // Few enough for a look at every process, which lacks none.
            found = members::descendants(own_pid());
            found.retain(is_named);
        }
        found
            .into_iter()
            .take(NAMED)
            .map(|process| Leftover {
                pid: process.pid,
                command: members::command_line(process.pid),
            })
            .collect()
    }

    /// Begins to end the tree: asks every member that is there, and kills what is there after
    /// the grace.
    /// Said again it can only make the grace shorter.
    pub fn end(&mut self, grace: Duration) {
        match &mut self.ending {
            Some(ending) => ending.grace = ending.grace.min(grace),
            None => {
                self.ending = Some(Ending {
                    begun: Instant::now(),
                    grace,
                    asked: HashMap::new(),
                    newest: None,
                    killing: None,
                    pause: Duration::from_millis(2),
                });
            }
        }
    }

    /// Reaps what ended and goes on with an end that has begun. Gives how long to wait at
    /// most for the next call; none when only [`Charge::woken`] matters.
    pub fn tick(&mut self) -> Option<Duration> {
        self.signals.clear();
        self.reap();
        if self.gone {
            return None;
        }
        let ending = self.ending.as_mut()?;
        if ending.killing.is_none() && ending.begun.elapsed() >= ending.grace {
            ending.killing = Some(Instant::now());
            ending.pause = Duration::from_millis(1);
        }
        match ending.killing {
            Some(since) => self.kill(since),
            None => self.ask(),
        }
    }

    /// All are looked for before one is asked: a parent that ends starts new ones.
    fn ask(&mut self) -> Option<Duration> {
        let terminal = self.terminal;
        let ending = self.ending.as_mut()?;
        let begun = Instant::now();
        let is_late =
            |ending: &Ending| begun.elapsed() >= LOOK || ending.begun.elapsed() >= ending.grace;
        let mut found = Vec::new();
        members::visit_descendants(own_pid(), |process| {
            if !process.dead
                && !ending.asked.contains_key(&process.pid)
                && ending.newest.is_none_or(|newest| process.started < newest)
            {
                found.push(*process);
            }
            // What is not asked is killed.
            if is_late(ending) {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        let newest = found.iter().map(|process| process.started).max();
        ending.newest = ending.newest.or(newest);
        for process in &found {
            if is_late(ending) {
                break;
            }
            ending.asked.insert(process.pid, process.started);
            if terminal {
                // A shell with a terminal ignores the other request.
                members::send(process, Signal::HUP);
            }
            members::send(process, Signal::TERM);
            // A stopped process does not see the request.
            members::send(process, Signal::CONT);
        }
        ending.pause = (ending.pause * 2).min(Duration::from_millis(50));
        Some(
            ending
                .pause
                .min(ending.grace.saturating_sub(ending.begun.elapsed())),
        )
    }

    /// What forks while it is looked for is followed without a pause, for a while. Parents
    /// are killed before their children are looked for: with its first process a sandbox's
    /// process list goes at once, and with our child a group, however many they are.
    fn kill(&mut self, since: Instant) -> Option<Duration> {
        let mut killed: HashMap<i32, u64> = HashMap::new();
        loop {
            let mut fresh = false;
            let begun = Instant::now();
            members::visit_descendants(own_pid(), |process| {
                fresh |= killed.insert(process.pid, process.started) != Some(process.started);
                kill(process);
                if begun.elapsed() >= LOOK {
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            });
            self.reap();
            if self.gone {
                return None;
            }
            if !fresh || since.elapsed() >= HUNT {
                break;
            }
        }
        let ending = self.ending.as_mut()?;
        ending.pause = if since.elapsed() >= KILL_WAIT {
            // It waits for a device; its end wakes us.
            Duration::from_secs(2)
        } else {
            (ending.pause * 2).min(Duration::from_millis(10))
        };
        Some(ending.pause)
    }

    fn reap(&mut self) {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    if pid.as_raw_nonzero().get() != self.leader {
                        continue;
                    }
                    self.status = Some(match (status.exit_status(), status.terminating_signal()) {
                        (Some(code), _) => Status::Exited(code),
                        (None, Some(signal)) => Status::Signalled(signal),
                        // Neither is only told of one that goes on.
                        (None, None) => continue,
                    });
                }
                Ok(None) => return,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => {
                    self.gone = true;
                    return;
                }
            }
        }
    }
}

/// A group goes at once, with what is being forked in it. Only a child of ours is sure to
/// hold its group's number, since nobody else can reap it.
fn kill(process: &Process) {
    if process.parent == own_pid()
        && process.group > 1
        && let Some(group) = Pid::from_raw(process.group)
        && group != rustix::process::getpgrp()
    {
        let _ = kill_process_group(group, Signal::KILL);
    }
    if !process.dead {
        members::send(process, Signal::KILL);
    }
}

fn own_pid() -> i32 {
    getpid().as_raw_nonzero().get()
}

fn command(order: Order, descriptors: Vec<OwnedFd>) -> Result<Command, StartFailure> {
    let invalid = |what: &str| StartFailure {
        step: Step::Program,
        error: std::io::Error::new(std::io::ErrorKind::InvalidInput, what),
    };
    // Gone into here, so that its failure is told apart from the program's.
    let cwd = OsString::from(order.cwd);
    rustix::process::chdir(&cwd).map_err(|error| StartFailure {
        step: Step::Folder,
        error: error.into(),
    })?;
    let mut argv = order.argv.into_iter().map(OsString::from);
    let name = argv.next().ok_or_else(|| invalid("no program"))?;
    let mut command = Command::new(order.program.map_or_else(|| name.clone(), Into::into));
    command
        .arg0(name)
        .args(argv)
        .env_clear()
        .envs(order.environment.into_iter().map(|(name, value)| {
            let pair: (OsString, OsString) = (name.into(), value.into());
            pair
        }));
    let mut descriptors = descriptors.into_iter();
    let mut next = || {
        descriptors
            .next()
            .ok_or_else(|| invalid("a descriptor is missing"))
    };
    let copy = |descriptor: &OwnedFd| {
        descriptor.try_clone().map_err(|error| StartFailure {
            step: Step::Program,
            error,
        })
    };
    match order.streams {
        Streams::Output => {
            let output = next()?;
            command
                .stdin(Stdio::null())
                .stdout(copy(&output)?)
                .stderr(output);
        }
        Streams::InputOutput => {
            command.stdin(next()?);
            let output = next()?;
            command.stdout(copy(&output)?).stderr(output);
        }
        Streams::Separate => {
            command.stdin(next()?).stdout(next()?).stderr(next()?);
        }
        Streams::Terminal => {
            let terminal = next()?;
            command
                .stdin(copy(&terminal)?)
                .stdout(copy(&terminal)?)
                .stderr(terminal);
        }
    }
    let helper = getpid();
    let terminal = order.streams == Streams::Terminal;
    let prepare = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if getppid() != Some(helper) {
            // Killed before we could ask to be told.
            return Err(rustix::io::Errno::SRCH.into());
        }
        rustix::process::setsid()?;
        if terminal {
            rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
        }
        reset_signals();
        Ok(())
    };
    #[expect(unsafe_code, reason = "no safe way to act between fork and exec")]
    // SAFETY: a helper has one thread, and the closure makes system calls alone.
    unsafe {
        command.pre_exec(prepare);
    }
    Ok(command)
}

/// What the engine was started to ignore, as `nohup` does, is none of a program's affair.
fn reset_signals() {
    for signal in 1..=libc::SIGRTMAX() {
        #[expect(unsafe_code, reason = "no safe crate in use resets a disposition")]
        // SAFETY: the default is no handler of ours; for what cannot be set it fails.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
        }
    }
}

impl Signals {
    fn listen() -> std::io::Result<Self> {
        let (woken, wake) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        let asked_to_end = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&asked_to_end))?;
            signal_hook::low_level::pipe::register(signal, wake.try_clone()?)?;
        }
        signal_hook::low_level::pipe::register(SIGCHLD, wake)?;
        Ok(Self {
            woken,
            asked_to_end,
        })
    }

    fn clear(&self) {
        let mut bytes = [0u8; 64];
        while (&self.woken)
            .read(&mut bytes)
            .is_ok_and(|read| read == bytes.len())
        {}
    }
}
