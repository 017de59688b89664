//! Who is at the other end of a socket, by what the kernel says of it.

use std::io;

use terret_engine::room::tools::helper::lineage::{Lineage, lineage};
use tokio::net::UnixStream;

/// What the other end may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// The user's own process, beside us.
    Trusted,
    /// Started by an agent of this engine or of another one, also before this engine was
    /// there, or it cannot be told that it was not: may look.
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
    // Zero is the kernel's word for a process that is not visible from here.
    let pid = credentials.pid().unwrap_or_default();
    let engine = i32::try_from(std::process::id()).ok();
    Ok(match lineage(pid, engine) {
        Lineage::Outside => Standing::Trusted,
        Lineage::Inside => Standing::Below,
    })
}
