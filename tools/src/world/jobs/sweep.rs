//! Kills what a job left behind when its keeper was killed: whatever carries the job's
//! mark in its environment, with all below it. No process id comes from a file, so nothing
//! else can be hit.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::helper::members::{self, Process};
use crate::world::process::environment::TREE;

/// A killed process is gone in far less, unless it waits for a device.
const PATIENCE: Duration = Duration::from_secs(2);

/// Kills all that carries the mark and waits until it is gone. True when it is. Blocks.
pub(crate) fn sweep(mark: &str) -> bool {
    // A mark that somebody could have by chance names nothing.
    if mark.len() < 32 || !mark.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return true;
    }
    let begun = Instant::now();
    loop {
        let found = marked(mark);
        if found.is_empty() {
            return true;
        }
        for process in &found {
            members::send(process, Signal::KILL);
        }
        if begun.elapsed() >= PATIENCE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What carries the mark, and what came from it.
pub(crate) fn marked(mark: &str) -> Vec<Process> {
    let mut children: HashMap<i32, Vec<Process>> = HashMap::new();
    let mut found = Vec::new();
    for process in members::all() {
        if process.dead {
            continue;
        }
        if carries(process.pid, mark) {
            found.push(process);
        }
        children.entry(process.parent).or_default().push(process);
    }
    let mut next = 0;
    while let Some(parent) = found.get(next).map(|process: &Process| process.pid) {
        next += 1;
        for child in children.remove(&parent).unwrap_or_default() {
            if !found.iter().any(|process| process.pid == child.pid) {
                found.push(child);
            }
        }
    }
    found
}

#[expect(
    clippy::disallowed_methods,
    reason = "reads /proc, which no model names"
)]
fn carries(pid: i32, mark: &str) -> bool {
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
