//! What is left of a tree whose supervisor was lost, and how signals are called.
//!
//! Without a supervisor nothing holds a tree together. What came from a program is still
//! known by its mark in the environment, by its hold on the output pipe, and by its
//! descent from either; what has shed all three is not found any more. What has the mark
//! is killed with its group, for it may fork faster than it is found.

#![expect(
    clippy::disallowed_methods,
    reason = "reads /proc, which no model names"
)]

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::helper::charge::KILL_WAIT;
pub use crate::helper::link::Leftover;
use crate::helper::members::{self, Process};
use crate::world::process::environment::TREE;

/// What a lost tree is known by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strays {
    /// The value of [`TREE`] in its environment, which nobody can guess.
    pub mark: String,
    /// The inode of its output pipe, as long as this process holds the other end.
    pub pipe: Option<u64>,
}

impl Strays {
    /// What runs of it now. Looks at every process of the machine.
    pub fn find(&self) -> Vec<Process> {
        self.members()
            .into_iter()
            .map(|(process, _)| process)
            .collect()
    }

    /// Kills all that is found until nothing is. True when nothing is left. Blocks up to
    /// [`KILL_WAIT`].
    pub fn kill(&self) -> bool {
        let begun = Instant::now();
        loop {
            let found = self.members();
            if found.is_empty() {
                return true;
            }
            if begun.elapsed() >= KILL_WAIT {
                tracing::warn!(
                    left = found.len(),
                    "processes do not end, although they were killed"
                );
                return false;
            }
            let mut groups = BTreeSet::new();
            for (process, is_marked) in &found {
                if !is_marked {
                    members::send(process, Signal::KILL);
                } else if groups.insert(process.group) {
                    // The leader began a session, so who has its mark is in a group of the
                    // tree's, with nobody else.
                    members::kill_with_group(process);
                }
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// What runs of it, and whether it has the mark.
    fn members(&self) -> Vec<(Process, bool)> {
        let us = i32::try_from(std::process::id()).unwrap_or_default();
        let mut processes = members::all();
        processes.retain(|process| process.pid != us);
        let marked: BTreeSet<i32> = processes
            .iter()
            .filter(|process| has_mark(process.pid, &self.mark))
            .map(|process| process.pid)
            .collect();
        let mut found = marked.clone();
        if let Some(pipe) = self.pipe {
            let holders = processes
                .iter()
                // Another helper that we are just starting has our descriptors for a moment.
                .filter(|process| process.parent != us && holds(process.pid, pipe));
            found.extend(holders.map(|process| process.pid));
        }
        loop {
            let before = found.len();
            for process in &processes {
                if found.contains(&process.parent) {
                    found.insert(process.pid);
                }
            }
            if found.len() == before {
                break;
            }
        }
        processes
            .into_iter()
            .filter(|process| !process.dead && found.contains(&process.pid))
            .map(|process| (process, marked.contains(&process.pid)))
            .collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_their_names() {
        assert_eq!(
            (signal_name(9), signal_name(40)),
            ("SIGKILL".to_owned(), "signal 40".to_owned())
        );
    }
}
