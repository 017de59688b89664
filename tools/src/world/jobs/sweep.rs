//! Kills what a job left behind when its keeper was killed: whatever carries the job's
//! mark in its environment, with all below it. No process id comes from a file, so nothing
//! else can be hit.

use crate::world::process::tree::Strays;

/// Kills all that carries the mark and waits until it is gone. True when it is. Blocks.
pub(crate) fn sweep(mark: &str) -> bool {
    // A mark that somebody could have by chance names nothing.
    if mark.len() < 32 || !mark.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return true;
    }
    strays(mark).kill()
}

/// What carries the mark, and what came from it.
pub(crate) fn strays(mark: &str) -> Strays {
    Strays {
        mark: mark.to_owned(),
        pipe: None,
    }
}
