//! Input that waits for a step. It is open while a turn can still take it; the turn
//! closes it only when it is empty, so that no input falls between two turns (check 45).

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::input::Input;

/// The inbox of one session's agent.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    state: Mutex<State>,
    /// Wakes a turn that is held.
    pushed: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Input>,
    /// A turn runs that will drain what is pushed.
    open: bool,
}

impl Inbox {
    /// A turn begins to drain.
    pub(crate) fn open(&self) {
        self.lock().open = true;
    }

    /// Adds input for the running turn; gives it back when none will take it.
    pub(crate) fn push(&self, input: Input) -> Result<(), Input> {
        let mut state = self.lock();
        if !state.open {
            return Err(input);
        }
        state.waiting.push_back(input);
        drop(state);
        self.pushed.notify_one();
        Ok(())
    }

    /// Waits until something waits here. Cancel-safe.
    pub(crate) async fn filled(&self) {
        loop {
            let pushed = self.pushed.notified();
            if !self.lock().waiting.is_empty() {
                return;
            }
            pushed.await;
        }
    }

    /// Leaves input for the next step, whether a turn runs or not.
    pub(crate) fn leave(&self, input: Input) {
        self.lock().waiting.push_back(input);
    }

    /// Takes everything.
    pub(crate) fn drain(&self) -> Vec<Input> {
        self.lock().waiting.drain(..).collect()
    }

    /// Puts drained input back in front (check 39).
    pub(crate) fn put_back(&self, inputs: Vec<Input>) {
        let mut state = self.lock();
        for input in inputs.into_iter().rev() {
            state.waiting.push_front(input);
        }
    }

    /// Closes when nothing waits; false means that the turn has to go on.
    pub(crate) fn close_if_empty(&self) -> bool {
        let mut state = self.lock();
        if state.waiting.is_empty() {
            state.open = false;
        }
        !state.open
    }

    /// Closes whatever waits; the turn is over. What waits stays for the next one.
    pub(crate) fn close(&self) {
        self.lock().open = false;
    }

    /// Closes and takes everything, as one act: what comes later belongs to another turn.
    pub(crate) fn close_and_drain(&self) -> Vec<Input> {
        let mut state = self.lock();
        state.open = false;
        state.waiting.drain(..).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
