//! The whole tree of a spawned program: who belongs to it, and how it ends.
//!
//! A member is found by four marks, since each alone can be shed: descent from the leader,
//! its session or group, the mark in its environment, and its hold on the output pipe.
//! Whoever was seen once is known by process id and start time, so that a daemon which
//! loses its parent stays known. Signals go by pidfd, checked against the start time, so
//! that a reused process id is never hit. The leader is not reaped before the tree is
//! gone: as long as it is a zombie, its id, group and session cannot be given away.
//!
//! A process that clears its environment, leaves session and pipe, and loses its parent
//! between two looks escapes this. Only a subreaper holds that one.
//!
//! Linux only: it reads `/proc`.

#![expect(
    clippy::disallowed_methods,
    reason = "reads /proc, which no model names"
)]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};

use crate::world::process::environment::TREE;

/// How long a killed member may take to be gone: only one that waits for a device does.
const KILL_WAIT: Duration = Duration::from_secs(2);

/// Something of a command that was still running after its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    pub pid: i32,
    /// Its command line, on one line and cut.
    pub command: String,
}

/// A spawned program with all that came from it. Dropping it kills what is left, at once.
pub struct Tree {
    leader: Child,
    pid: Pid,
    started: u64,
    mark: String,
    /// The inode of the output pipe.
    pipe: u64,
    /// Members that were seen, by process id, with their start time.
    known: HashMap<i32, u64>,
    status: Option<ExitStatus>,
}

/// A member as `/proc` shows it.
#[derive(Debug, Clone)]
struct Process {
    pid: i32,
    parent: i32,
    group: i32,
    session: i32,
    started: u64,
    dead: bool,
}

/// How thoroughly to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// By descent, session, group and mark.
    Members,
    /// Also for holders of the output pipe, which costs a look at every open file.
    Holders,
}

impl Tree {
    /// Takes a program that was just started with `mark` as [`TREE`] in its environment.
    ///
    /// # Errors
    /// When the system cannot tell about it; then it was killed.
    pub fn new(mut leader: Child, mark: String, pipe: u64) -> std::io::Result<Self> {
        let found = i32::try_from(leader.id())
            .ok()
            .and_then(Pid::from_raw)
            .and_then(|pid| Some((pid, read_stat(pid.as_raw_nonzero().get())?.started)));
        let Some((pid, started)) = found else {
            let _ = leader.kill();
            let _ = leader.wait();
            return Err(std::io::Error::other(
                "/proc does not show the started program",
            ));
        };
        Ok(Self {
            leader,
            pid,
            started,
            mark,
            pipe,
            known: HashMap::new(),
            status: None,
        })
    }

    /// The leader's process id.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// A descriptor that becomes readable when the leader ends.
    ///
    /// # Errors
    /// The system's.
    pub fn leader(&self) -> std::io::Result<OwnedFd> {
        Ok(pidfd_open(self.pid, PidfdFlags::empty())?)
    }

    /// Members that run now, the leader included. Blocks for a few milliseconds.
    pub fn members(&mut self, look: Look) -> BTreeMap<i32, u64> {
        if self.status.is_some() {
            return BTreeMap::new();
        }
        let leader = self.pid();
        let mut processes: Vec<Process> = processes();
        // Nothing that is older than the leader can have come from it.
        processes.retain(|process| process.started >= self.started && !process.dead);
        let mut members = BTreeSet::from([leader]);
        let known = &self.known;
        // Another program that we are just starting has our descriptors until it runs, and
        // whoever lost its parent is no child of ours.
        let us = i32::try_from(std::process::id()).unwrap_or_default();
        for process in &processes {
            if process.session == leader
                || process.group == leader
                || known.get(&process.pid) == Some(&process.started)
                || has_mark(process.pid, &self.mark)
                || (look == Look::Holders && process.parent != us && holds(process.pid, self.pipe))
            {
                members.insert(process.pid);
            }
        }
        loop {
            let before = members.len();
            for process in &processes {
                if members.contains(&process.parent) {
                    members.insert(process.pid);
                }
            }
            if members.len() == before {
                break;
            }
        }
        members.remove(&us);
        let running: BTreeMap<i32, u64> = processes
            .into_iter()
            .filter(|process| members.contains(&process.pid))
            .map(|process| (process.pid, process.started))
            .collect();
        self.known
            .extend(running.iter().map(|(pid, started)| (*pid, *started)));
        running
    }

    /// Names members.
    pub fn describe(members: &BTreeMap<i32, u64>) -> Vec<Leftover> {
        members
            .keys()
            .map(|pid| Leftover {
                pid: *pid,
                command: command_line(*pid),
            })
            .collect()
    }

    /// Asks every member to end, and kills what is there after `grace`. True when all are
    /// gone. Blocks up to the grace and [`KILL_WAIT`].
    pub fn end(&mut self, grace: Duration) -> bool {
        self.end_within(|| grace)
    }

    /// As [`Self::end`], with a grace that may grow shorter meanwhile.
    pub fn end_within(&mut self, grace: impl Fn() -> Duration) -> bool {
        if self.status.is_some() {
            return true;
        }
        let begun = Instant::now();
        let mut asked: HashMap<i32, u64> = HashMap::new();
        let mut killing = grace().is_zero();
        let mut pause = Duration::from_millis(2);
        loop {
            let members = self.members(Look::Holders);
            if members.is_empty() {
                return true;
            }
            let (elapsed, grace) = (begun.elapsed(), grace());
            killing |= elapsed >= grace;
            if elapsed >= grace + KILL_WAIT {
                tracing::warn!(
                    left = members.len(),
                    "processes do not end, although they were killed"
                );
                return false;
            }
            if killing {
                // Reaches what was forked since the look.
                let _ = kill_process_group(self.pid, Signal::KILL);
            }
            for (pid, started) in &members {
                if killing {
                    send(*pid, *started, Signal::KILL);
                } else if asked.insert(*pid, *started) != Some(*started) {
                    send(*pid, *started, Signal::TERM);
                    // A stopped process does not see the request.
                    send(*pid, *started, Signal::CONT);
                }
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(if killing { 10 } else { 25 }));
        }
    }

    /// Reaps the leader, which has ended. Afterwards the tree is no more.
    ///
    /// # Errors
    /// The system's.
    pub fn reap(&mut self) -> std::io::Result<ExitStatus> {
        if let Some(status) = self.status {
            return Ok(status);
        }
        let status = self.leader.wait()?;
        self.status = Some(status);
        Ok(status)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        if self.status.is_none() {
            // Nobody waits any more, so there is no grace.
            if self.end(Duration::ZERO) {
                let _ = self.reap();
            } else {
                let _ = self.leader.try_wait();
            }
        }
    }
}

/// A signal's name, `SIGKILL` for 9.
pub fn signal_name(number: i32) -> String {
    let name = match number {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        10 => "SIGUSR1",
        11 => "SIGSEGV",
        12 => "SIGUSR2",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        other => return format!("signal {other}"),
    };
    name.to_owned()
}

/// The signal that ended a program.
pub fn ended_by(status: ExitStatus) -> Option<i32> {
    status.signal()
}

fn send(pid: i32, started: u64, signal: Signal) {
    let Some(raw) = Pid::from_raw(pid) else {
        return;
    };
    let Ok(process) = pidfd_open(raw, PidfdFlags::empty()) else {
        return;
    };
    // The descriptor holds whoever has the id now; only the start time says who that is.
    if read_stat(pid).is_some_and(|stat| stat.started == started) {
        let _ = pidfd_send_signal(&process, signal);
    }
}

fn processes() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(Result::ok)
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter_map(read_stat)
        .collect()
}

fn read_stat(pid: i32) -> Option<Process> {
    parse_stat(
        pid,
        &std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?,
    )
}

fn parse_stat(pid: i32, stat: &str) -> Option<Process> {
    // The name may hold spaces and parentheses; the last parenthesis ends it.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let dead = matches!(fields.next()?, "Z" | "X" | "x");
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let session = fields.next()?.parse().ok()?;
    let started = fields.nth(15)?.parse().ok()?;
    Some(Process {
        pid,
        parent,
        group,
        session,
        started,
        dead,
    })
}

fn has_mark(pid: i32, mark: &str) -> bool {
    let Ok(environment) = std::fs::read(format!("/proc/{pid}/environ")) else {
        return false;
    };
    environment.split(|byte| *byte == 0).any(|variable| {
        variable
            .strip_prefix(TREE.as_bytes())
            .and_then(|rest| rest.strip_prefix(b"="))
            .is_some_and(|value| value == mark.as_bytes())
    })
}

/// Whether a process could still write into the pipe.
fn holds(pid: i32, pipe: u64) -> bool {
    let Ok(files) = std::fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    files
        .filter_map(Result::ok)
        .filter(|file| {
            // The link's own mode tells how the file is open.
            std::fs::symlink_metadata(file.path()).is_ok_and(|link| link.mode() & 0o200 != 0)
                && std::fs::read_link(file.path())
                    .is_ok_and(|target| target.as_os_str().as_bytes().starts_with(b"pipe:"))
        })
        .any(|file| std::fs::metadata(file.path()).is_ok_and(|data| data.ino() == pipe))
}

fn command_line(pid: i32) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let arguments: Vec<_> = bytes
        .split(|byte| *byte == 0)
        .filter(|part| !part.is_empty())
        .map(|part| OsStr::from_bytes(part).to_string_lossy())
        .collect();
    if arguments.is_empty() {
        // It is just ending, or hides its command line; its name is still known.
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        return match name.trim() {
            "" => "a program that is gone".to_owned(),
            name => name.chars().filter(|c| !c.is_control()).collect(),
        };
    }
    let line: String = arguments
        .join(" ")
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let mut cut: String = line.chars().take(120).collect();
    if cut.len() < line.len() {
        cut.push('…');
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat = "12 (a) b (c) S 3 4 5 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 777 0 0";
        let process = parse_stat(12, stat);
        assert_eq!(
            process.map(|p| (p.parent, p.group, p.session, p.started, p.dead)),
            Some((3, 4, 5, 777, false))
        );
    }

    #[test]
    fn signals_have_their_names() {
        assert_eq!(
            (signal_name(9), signal_name(40)),
            ("SIGKILL".to_owned(), "signal 40".to_owned())
        );
    }
}
