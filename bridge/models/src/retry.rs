//! Trying again, before the first byte of an answer and never after it: what a model has
//! begun to say was paid for and may have been seen. All requests to one provider share
//! one [`Backoff`], so that agents that run side by side do not come back in lockstep
//! (`Terret spec §7`, check 164, `R130`).

use std::future::Future;
use std::hash::{BuildHasher, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::emit::Emitter;
use crate::provider::{ModelError, StreamEvent};

/// A source of numbers from 0 up to 1, for spreading retries.
pub type Jitter = Arc<dyn Fn() -> f64 + Send + Sync>;

/// How often and how slowly a request is tried again.
#[derive(Clone)]
pub struct RetryPolicy {
    /// Tries in all, the first included.
    pub attempts: u32,
    /// The wait before the second try is half of this to all of it; it doubles each time.
    pub base: Duration,
    /// No wait of our own is longer.
    pub longest: Duration,
    /// A provider that asks for a longer wait ends the request instead.
    pub longest_asked: Duration,
    /// Tries of several requests stand about this far apart.
    pub spacing: Duration,
    pub jitter: Jitter,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts: 4,
            base: Duration::from_secs(1),
            longest: Duration::from_secs(30),
            longest_asked: Duration::from_secs(60),
            spacing: Duration::from_millis(100),
            jitter: Arc::new(random_fraction),
        }
    }
}

impl std::fmt::Debug for RetryPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RetryPolicy")
            .field("attempts", &self.attempts)
            .field("base", &self.base)
            .field("longest", &self.longest)
            .field("longest_asked", &self.longest_asked)
            .field("spacing", &self.spacing)
            .finish_non_exhaustive()
    }
}

/// How a try failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Trying again would change nothing, or cost twice.
    Final(ModelError),
    /// It may pass; `after` is what the provider asked to wait.
    Passing {
        error: ModelError,
        after: Option<Duration>,
    },
}

/// What all requests to one provider know of its state.
#[derive(Debug)]
pub(crate) struct Backoff {
    policy: RetryPolicy,
    shared: Mutex<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// No request starts before it, while the provider is in trouble.
    not_before: Option<Instant>,
    /// The latest try that was given a time.
    last_slot: Option<Instant>,
}

impl Backoff {
    pub(crate) fn new(policy: RetryPolicy) -> Self {
        Self {
            policy,
            shared: Mutex::new(Shared::default()),
        }
    }

    /// Makes tries until one passes, fails for good, or the tries are used up.
    pub(crate) async fn run<T, F, R>(&self, emit: &Emitter, mut attempt: F) -> Result<T, ModelError>
    where
        F: FnMut() -> R,
        R: Future<Output = Result<T, Failure>>,
    {
        let mut number = 1;
        let waiting = "another request to this provider was just told to wait".to_owned();
        self.wait(emit, number, Duration::ZERO, waiting).await;
        loop {
            let (error, after) = match attempt().await {
                Ok(value) => {
                    self.succeeded();
                    return Ok(value);
                }
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Passing { error, after }) => (error, after),
            };
            let delay = self.failed(number, after);
            if let Some(asked) = after.filter(|asked| *asked > self.policy.longest_asked) {
                let note = format!("it asks to wait {} s before the next try", asked.as_secs());
                return Err(noted(error, &note));
            }
            if number >= self.policy.attempts {
                let note = match number {
                    1 => "it was tried once".to_owned(),
                    tries => format!("it was tried {tries} times"),
                };
                return Err(noted(error, &note));
            }
            number += 1;
            tracing::debug!(attempt = number, ?delay, "a request is tried again");
            self.wait(emit, number, delay, error.to_string()).await;
        }
    }

    /// Waits for `delay` and for the provider's time, and announces each wait.
    async fn wait(&self, emit: &Emitter, attempt: u32, delay: Duration, reason: String) {
        let mut earliest = Instant::now() + delay;
        // A first try starts at once while nothing is known against it; a later one is
        // announced even when its delay is nothing. While one sleeps, another may have
        // been told to wait longer: that is heeded once for each try, or a crowd in front
        // of a provider that stays down would give up one by one instead of together.
        for only_if_held in [attempt == 1, true] {
            let now = Instant::now();
            let Some(slot) = self.slot(earliest, now, only_if_held) else {
                return;
            };
            emit.send(StreamEvent::Retry {
                attempt,
                delay: slot.saturating_duration_since(now),
                reason: reason.clone(),
            })
            .await;
            tokio::time::sleep_until(slot).await;
            earliest = slot;
        }
    }

    /// The time of the next try, apart from all others'; nothing when it may go now.
    fn slot(&self, earliest: Instant, now: Instant, only_if_held: bool) -> Option<Instant> {
        let mut shared = self.lock();
        let held = shared
            .not_before
            .filter(|time| *time > now && *time > earliest);
        if only_if_held && held.is_none() {
            return None;
        }
        let mut slot = held.map_or(earliest, |held| held.max(earliest));
        if let Some(last) = shared.last_slot {
            let gap = self.policy.spacing.mul_f64(0.5 + self.fraction());
            let next = last + gap;
            if slot < next {
                // A crowd is spread over the longest wait, not queued for ever.
                slot = if next.saturating_duration_since(slot) > self.policy.longest {
                    slot + self.policy.longest.mul_f64(self.fraction())
                } else {
                    next
                };
            }
        }
        shared.last_slot = Some(shared.last_slot.map_or(slot, |last| last.max(slot)));
        Some(slot)
    }

    /// Notes a failed try for all, and gives this request's own wait.
    fn failed(&self, number: u32, after: Option<Duration>) -> Duration {
        let own = self
            .policy
            .base
            .saturating_mul(1 << (number.saturating_sub(1)).min(16))
            .min(self.policy.longest);
        let (floor, delay) = match after {
            Some(asked) => (asked.min(self.policy.longest_asked), asked),
            None => (own / 2, own.mul_f64(0.5 + self.fraction() / 2.0)),
        };
        let until = Instant::now() + floor;
        let mut shared = self.lock();
        shared.not_before = Some(shared.not_before.map_or(until, |time| time.max(until)));
        delay
    }

    fn succeeded(&self) {
        *self.lock() = Shared::default();
    }

    fn fraction(&self) -> f64 {
        (self.policy.jitter)().clamp(0.0, 1.0)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error with a closing remark.
fn noted(error: ModelError, note: &str) -> ModelError {
    match error {
        ModelError::Status {
            provider,
            status,
            message,
        } => ModelError::Status {
            provider,
            status,
            message: format!("{message} ({note})"),
        },
        ModelError::Connect { provider, message } => ModelError::Connect {
            provider,
            message: format!("{message} ({note})"),
        },
        ModelError::Cut { provider, message } => ModelError::Cut {
            provider,
            message: format!("{message} ({note})"),
        },
        other => other,
    }
}

/// The standard library's hash keys are random for each process and differ at each call,
/// which is all that jitter needs.
fn random_fraction() -> f64 {
    let bits = std::hash::RandomState::new().build_hasher().finish();
    f64::from((bits >> 32) as u32) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests;
