//! The one runtime of a command.

use tokio::runtime::{Builder, Runtime};

/// Threads that run tasks; models and tools wait far more than they work.
const WORKERS: usize = 4;

/// Starts it.
pub(crate) fn start() -> std::io::Result<Runtime> {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    Builder::new_multi_thread()
        .worker_threads(cores.clamp(2, WORKERS))
        .enable_all()
        .build()
}
