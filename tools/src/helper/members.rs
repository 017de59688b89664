//! Who belongs to a tree of processes, as `/proc` shows it, and signals that never reach
//! another one that got a process id again.
//!
//! Linux only.

#![expect(
    clippy::disallowed_methods,
    reason = "reads /proc, which no model names"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;

use rustix::process::{
    Pid, PidfdFlags, Signal, getpgrp, kill_process_group, pidfd_open, pidfd_send_signal,
};

/// Characters of a command line that people and models read.
const COMMAND: usize = 120;

/// A process as `/proc` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    pub parent: i32,
    pub group: i32,
    pub session: i32,
    /// In ticks since the machine's start; with the id it names a process for good.
    pub started: u64,
    /// It has ended with all its threads, and its parent has not noticed.
    pub dead: bool,
}

/// All processes that are visible.
pub fn all() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(Result::ok)
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter_map(look)
        .collect()
}

/// One process.
pub fn look(pid: i32) -> Option<Process> {
    parse(
        pid,
        &std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?,
    )
}

/// Everything below a process, dead ones included, by a look at every process.
pub fn descendants(root: i32) -> Vec<Process> {
    let mut children: BTreeMap<i32, Vec<Process>> = BTreeMap::new();
    for process in all() {
        children.entry(process.parent).or_default().push(process);
    }
    let mut found: Vec<Process> = Vec::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        for child in children.remove(&parent).unwrap_or_default() {
            parents.push(child.pid);
            found.push(child);
        }
    }
    found
}

/// Visits everything below a process, parents first, by the lists of children that most
/// kernels keep: quick enough to keep up with what forks all the time. Each is visited as
/// it is found, so a visitor that kills does so before the rest is looked for. Ends early
/// when the visitor breaks. A list that changes meanwhile may lack some.
pub fn visit_descendants(root: i32, mut visitor: impl FnMut(&Process) -> ControlFlow<()>) {
    let mut seen: BTreeSet<i32> = BTreeSet::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        let Some(children) = children(parent) else {
            if parent == root {
                let _ = descendants(root).iter().try_for_each(&mut visitor);
                return;
            }
            continue;
        };
        for child in children.into_iter().filter_map(look) {
            // The list may be older than another process's claim to this id; a child that
            // lost its parent meanwhile is found at the next look.
            if child.parent != parent || !seen.insert(child.pid) {
                continue;
            }
            if visitor(&child).is_break() {
                return;
            }
            parents.push(child.pid);
        }
    }
}

/// The children of all threads of a process; none where the kernel keeps no such list, or
/// the process is gone.
fn children(pid: i32) -> Option<Vec<i32>> {
    let mut children = Vec::new();
    for thread in std::fs::read_dir(format!("/proc/{pid}/task")).ok()? {
        let path = thread.ok()?.path().join("children");
        // A thread may end meanwhile; its children are then another one's.
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(_) if path.parent().is_some_and(|thread| !thread.exists()) => continue,
            Err(_) => return None,
        };
        children.extend(
            text.split_ascii_whitespace()
                .filter_map(|pid| pid.parse::<i32>().ok()),
        );
    }
    Some(children)
}

/// Sends a signal to a process that was seen, and to none that has its id since.
pub fn send(process: &Process, signal: Signal) {
    let Some(pid) = Pid::from_raw(process.pid) else {
        return;
    };
    let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else {
        return;
    };
    // The handle holds whoever has the id now; only the start time says who that is.
    if look(process.pid).is_some_and(|now| now.started == process.started) {
        let _ = pidfd_send_signal(&handle, signal);
    }
}

/// Kills a process together with its group, and with what is being forked in there: one
/// by one, they may fork faster than they are found. Only for a process whose whole group
/// is to go. Our own group is left alone, and then the process goes by itself.
pub fn kill_with_group(process: &Process) {
    // What is stopped neither ends nor leaves its group, so the number is still the group's.
    send(process, Signal::STOP);
    if let Some(now) = look(process.pid)
        && now.started == process.started
        && now.group > 1
        && let Some(group) = Pid::from_raw(now.group)
        && group != getpgrp()
    {
        let _ = kill_process_group(group, Signal::KILL);
    }
    send(process, Signal::KILL);
}

/// Whether a process is bubblewrap's own, the first of a process list: it ends with the
/// last of them.
pub fn keeps_a_sandbox(pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mut lines = status.lines();
    let is_bwrap = lines
        .next()
        .and_then(|line| line.strip_prefix("Name:"))
        .is_some_and(|name| name.trim() == "bwrap");
    is_bwrap
        && lines
            .find_map(|line| line.strip_prefix("NSpid:"))
            .is_some_and(|ids| ids.split_whitespace().next_back() == Some("1"))
}

/// A process's command line for people: one line, cut.
pub fn command_line(pid: i32) -> String {
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
    let mut cut: String = line.chars().take(COMMAND).collect();
    if cut.len() < line.len() {
        cut.push('…');
    }
    cut
}

fn parse(pid: i32, stat: &str) -> Option<Process> {
    // The name may hold spaces and parentheses; the last parenthesis ends it.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let has_ended = matches!(fields.next()?, "Z" | "X" | "x");
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let session = fields.next()?.parse().ok()?;
    // A first thread that has ended alone shows the same letter.
    let threads: u32 = fields.nth(13)?.parse().ok()?;
    let started = fields.nth(1)?.parse().ok()?;
    Some(Process {
        pid,
        parent,
        group,
        session,
        started,
        dead: has_ended && threads <= 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat = "12 (a) b (c) S 3 4 5 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 777 0 0";
        assert_eq!(
            parse(12, stat),
            Some(Process {
                pid: 12,
                parent: 3,
                group: 4,
                session: 5,
                started: 777,
                dead: false
            })
        );
    }

    #[test]
    fn a_process_whose_first_thread_has_ended_is_not_dead() {
        let with_threads = |state: &str, threads: u32| {
            let stat =
                format!("12 (a) {state} 3 4 5 0 -1 0 0 0 0 0 0 0 0 0 20 0 {threads} 0 777 0");
            parse(12, &stat).map(|process| process.dead)
        };
        assert_eq!(with_threads("Z", 1), Some(true));
        assert_eq!(with_threads("Z", 2), Some(false));
        assert_eq!(with_threads("S", 1), Some(false));
    }

    #[test]
    fn both_looks_find_the_same_children() {
        let us = i32::try_from(std::process::id()).unwrap_or_default();
        let parent = look(us).map_or(0, |process| process.parent);
        let mut visited = Vec::new();
        visit_descendants(parent, |process| {
            visited.push(*process);
            ControlFlow::Continue(())
        });
        for found in [descendants(parent), visited] {
            assert!(found.iter().any(|process| process.pid == us), "{found:?}");
        }
    }
}
