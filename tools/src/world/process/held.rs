//! A program that runs on a terminal of ours: the other end belongs to whoever started it.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::world::process::tree::Leftover;
use crate::world::process::{End, ProcessError};

/// A running program on a terminal. Dropping it ends its whole tree.
#[derive(Debug)]
pub struct Held {
    pub(super) pid: i32,
    pub(super) state: watch::Receiver<HeldState>,
    pub(super) stop: CancellationToken,
    pub(super) _stop: DropGuard,
}

/// Where a held program stands.
#[derive(Debug, Clone, Default)]
pub struct HeldState {
    /// How its first process ended, or why it was ended.
    pub ended: Option<End>,
    /// Nothing more will be told: all of it is gone, or `stuck` says otherwise.
    pub is_over: bool,
    /// What was still running after the end of the first process, and was ended then.
    pub leftovers: Vec<Leftover>,
    /// Something does not end although it was killed.
    pub is_stuck: bool,
    /// Its supervisor was lost.
    pub lost: Option<Arc<ProcessError>>,
}

impl Held {
    /// The leader's process id.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Where it stands now.
    pub fn state(&self) -> HeldState {
        self.state.borrow().clone()
    }

    /// Tells of every change of [`Self::state`].
    pub fn changes(&self) -> watch::Receiver<HeldState> {
        self.state.clone()
    }

    /// Asks for the end of the whole tree; [`Self::over`] waits for it.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Waits until its first process has ended.
    pub async fn ended(&self) -> HeldState {
        self.until(|state| state.ended.is_some() || state.is_over)
            .await
    }

    /// Waits until nothing of it is left.
    pub async fn over(&self) -> HeldState {
        self.until(|state| state.is_over).await
    }

    async fn until(&self, is_so: impl FnMut(&HeldState) -> bool) -> HeldState {
        let mut state = self.state.clone();
        let waited = state.wait_for(is_so).await.map(|state| state.clone());
        // The owner is gone with the runtime.
        waited.unwrap_or_else(|_| HeldState {
            is_over: true,
            ..self.state()
        })
    }
}
