//! Time as a seam, so that tests and replays decide what `at` says.

use std::time::{SystemTime, UNIX_EPOCH};

/// Where the log takes its time from.
pub trait Clock: Send + Sync {
    /// Unix time in milliseconds.
    fn now_ms(&self) -> u64;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the seam's end at the machine")]
    fn now_ms(&self) -> u64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |passed| {
                u64::try_from(passed.as_millis()).unwrap_or(u64::MAX)
            })
    }
}
