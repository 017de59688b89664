//! Whether a process comes from something that an agent runs: nobody approves themselves
//! (`design.md §4 Permissions`).
//!
//! A process can drop a variable, leave its session and lose its parent. It cannot lose our
//! helper: that is a subreaper, so whatever comes from what it started stays below it. So
//! every ancestor is looked at, for a helper's name and for the marks in the environment that
//! it was started with. Without a sandbox this is a fence and no wall: a program that asks
//! another one of the user's, such as a running terminal, to act for it leaves no trace here.

#![expect(
    clippy::disallowed_methods,
    reason = "reads /proc, which nobody outside names"
)]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::helper::{Role, members};
use crate::world::process::environment::{INSIDE, TREE};

/// A chain of parents is followed no further: real ones are far shorter.
const MOST_PARENTS: usize = 512;
/// Bytes of an environment or a command line; the system's own bound is higher.
const MOST_BYTES: u64 = 4 * 1024 * 1024;

/// What is known of where a process comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lineage {
    /// From nothing of ours, up to the first process.
    Outside,
    /// From what an agent runs, or it cannot be told that it does not: a process that hides
    /// its parents gets no say.
    Inside,
}

/// Looks at a process and its ancestors. Also inside is what comes from `engine`, the process
/// that is asked, but not the engine itself.
pub fn lineage(pid: i32, engine: Option<i32>) -> Lineage {
    follow(
        pid,
        |pid| members::look(pid).map(|process| process.parent),
        |at| Some(at) == engine && at != pid,
        is_marked,
    )
}

fn follow(
    pid: i32,
    parent_of: impl Fn(i32) -> Option<i32>,
    is_engine: impl Fn(i32) -> bool,
    is_marked: impl Fn(i32) -> bool,
) -> Lineage {
    // The kernel's word for a process that is not visible from here.
    if pid <= 0 {
        return Lineage::Inside;
    }
    let mut at = pid;
    for _ in 0..MOST_PARENTS {
        if is_engine(at) || is_marked(at) {
            return Lineage::Inside;
        }
        if at == 1 {
            return Lineage::Outside;
        }
        match parent_of(at) {
            // The first of those that are visible: what started it is beyond our list.
            Some(0) => return Lineage::Outside,
            Some(parent) => at = parent,
            None => return Lineage::Inside,
        }
    }
    Lineage::Inside
}

/// A helper by its name, or a process that was started with our marks. What cannot be read
/// belongs to another user, whom no agent of ours runs as.
fn is_marked(pid: i32) -> bool {
    let is_helper = read(pid, "cmdline").is_some_and(|line| {
        let name = line.split(|byte| *byte == 0).next().unwrap_or_default();
        Path::new(OsStr::from_bytes(name))
            .file_name()
            .is_some_and(|name| HELPERS.iter().any(|role| name == role.name()))
    });
    is_helper || read(pid, "environ").is_some_and(|environment| has_mark(&environment))
}

/// What runs programs for an agent. The relay is the editor's.
const HELPERS: [Role; 3] = [Role::Supervisor, Role::Keeper, Role::Sandbox];

fn has_mark(environment: &[u8]) -> bool {
    environment.split(|byte| *byte == 0).any(|variable| {
        [INSIDE, TREE].iter().any(|name| {
            variable
                .strip_prefix(name.as_bytes())
                .is_some_and(|rest| rest.starts_with(b"="))
        })
    })
}

fn read(pid: i32, name: &str) -> Option<Vec<u8>> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    let file = std::fs::File::open(format!("/proc/{pid}/{name}")).ok()?;
    file.take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::os::unix::process::CommandExt as _;
    use std::process::{Child, Command, Stdio};

    use super::*;

    const fn parents(pid: i32) -> Option<i32> {
        match pid {
            50 => Some(40),
            40 => Some(30),
            30 | 60 => Some(1),
            1 | 80 => Some(0),
            70 => Some(71),
            71 => Some(70),
            _ => None,
        }
    }

    fn of(pid: i32, engine: i32, marked: i32) -> Lineage {
        follow(
            pid,
            parents,
            |at| at == engine && at != pid,
            |at| at == marked,
        )
    }

    #[test]
    fn descent_is_followed_to_the_root() {
        assert_eq!(of(50, 30, -1), Lineage::Inside);
        assert_eq!(of(50, -1, 40), Lineage::Inside);
        assert_eq!(of(50, -1, -1), Lineage::Outside);
        assert_eq!(of(60, 30, 40), Lineage::Outside);
        assert_eq!(of(30, 30, -1), Lineage::Outside, "the engine itself");
        assert_eq!(of(80, -1, -1), Lineage::Outside, "the first in a container");
        assert_eq!(of(70, 30, -1), Lineage::Inside, "a loop is no proof");
        assert_eq!(
            of(99, 30, -1),
            Lineage::Inside,
            "nor is a process that is gone"
        );
        assert_eq!(
            of(0, 30, -1),
            Lineage::Inside,
            "nor one that is not visible"
        );
    }

    struct Alive(Child);

    impl Drop for Alive {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn sleeping(change: impl FnOnce(&mut Command)) -> Lineage {
        let mut command = Command::new("sleep");
        command.arg("600").stdin(Stdio::null()).env_clear();
        change(&mut command);
        let child = Alive(command.spawn().unwrap());
        // Its name and environment are those of before until it is executed, which the end
        // of `spawn` says.
        let pid = i32::try_from(child.0.id()).unwrap();
        follow(pid, |_| Some(1), |_| false, |at| at == pid && is_marked(at))
    }

    #[test]
    fn a_helper_and_what_has_our_marks_are_known() {
        assert_eq!(sleeping(|_| {}), Lineage::Outside);
        for name in ["TERRET_INSIDE", "TERRET_CALL"] {
            let marked = sleeping(|command| {
                command.env("A", "b").env(name, "1");
            });
            assert_eq!(marked, Lineage::Inside, "{name}");
        }
        let named = sleeping(|command| {
            command.env("TERRET_INSIDE_OUT", "1");
        });
        assert_eq!(named, Lineage::Outside);
        for role in HELPERS {
            let helper = sleeping(|command| {
                command.arg0(format!("/anywhere/{}", role.name()));
            });
            assert_eq!(helper, Lineage::Inside);
        }
    }
}
