//! The one runtime of a command.

use rustix::thread::sched_getaffinity;
use tokio::runtime::{Builder, Runtime};

/// Threads that run tasks; models and tools wait far more than they work.
const WORKERS: usize = 4;

/// Starts it.
pub(crate) fn start() -> std::io::Result<Runtime> {
    // The standard library would read quotas from a dozen files first, for a number that
    // hardly matters below this ceiling.
    let cores = sched_getaffinity(None).map_or(2, |set| set.count() as usize);
    Builder::new_multi_thread()
        .worker_threads(cores.clamp(2, WORKERS))
        .enable_all()
        .build()
}
