//! Who is at the other end of a socket, by what the kernel says of it.

use std::io;

use tokio::net::UnixStream;

/// A chain of parents is followed no further: real ones are far shorter.
const MOST_PARENTS: usize = 512;

/// What the other end may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// The user's own process, beside us.
    Trusted,
    /// Started by the engine, or it cannot be told that it was not: may look.
    Below,
    /// Another user's.
    Stranger,
}

/// Judges a peer by its credentials of the moment it connected.
///
/// # Errors
/// When the kernel does not say who it is.
pub(super) fn standing(stream: &UnixStream) -> io::Result<Standing> {
    let credentials = stream.peer_cred()?;
    if credentials.uid() != rustix::process::geteuid().as_raw() {
        return Ok(Standing::Stranger);
    }
    let Some(pid) = credentials.pid().and_then(|pid| u32::try_from(pid).ok()) else {
        return Ok(Standing::Below);
    };
    Ok(if descends(pid, std::process::id(), parent_of) {
        Standing::Below
    } else {
        Standing::Trusted
    })
}

/// Whether `pid` is `ancestor` or comes from it. A chain that cannot be followed to its
/// root counts as coming from it: a process that hides its parents gets no say.
fn descends(pid: u32, ancestor: u32, parent_of: impl Fn(u32) -> Option<u32>) -> bool {
    if pid == ancestor {
        // The engine itself, as in a test or a face in its process.
        return false;
    }
    let mut at = pid;
    for _ in 0..MOST_PARENTS {
        if at == ancestor {
            return true;
        }
        if at <= 1 {
            return false;
        }
        match parent_of(at) {
            Some(parent) => at = parent,
            None => return true,
        }
    }
    true
}

#[expect(
    clippy::disallowed_methods,
    reason = "reads /proc, which nobody outside names"
)]
fn parent_of(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status
        .lines()
        .find_map(|line| line.strip_prefix("PPid:"))?
        .trim()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descent_is_followed_to_the_root() {
        let parents = |pid: u32| match pid {
            50 => Some(40),
            40 => Some(30),
            30 => Some(1),
            60 => Some(1),
            70 => Some(71),
            71 => Some(70),
            _ => None,
        };
        assert!(descends(50, 30, parents));
        assert!(descends(40, 30, parents));
        assert!(!descends(60, 30, parents));
        assert!(!descends(30, 30, parents), "the engine itself");
        assert!(descends(70, 30, parents), "a loop is no proof");
        assert!(
            descends(99, 30, parents),
            "a process that is gone is no proof"
        );
    }

    #[test]
    fn our_own_parent_is_known() {
        assert!(parent_of(std::process::id()).is_some());
    }
}
