//! What a session has cost so far.

use crate::event::{Event, Payload};

/// Sums over all `step/end` events. A step without usage counts as a step that cost
/// nothing (`Terret spec §1.13`, check 15).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct UsageTotals {
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    pub cached_read_tokens: u64,
    pub cached_write_tokens: u64,
    pub thought_tokens: u64,
    /// In the currency of the provider's prices.
    pub cost: f64,
    pub steps: u64,
    /// Steps that named tokens but no cost, so `cost` is a lower bound.
    pub unpriced_steps: u64,
    /// Tokens in the context after the last step; nothing is known right after a
    /// compaction or before the first step.
    pub context_tokens: Option<u64>,
}

impl UsageTotals {
    /// Takes the next event of the log.
    pub fn apply(&mut self, event: &Event) {
        match &event.payload {
            Payload::StepEnd { usage, .. } => {
                self.steps += 1;
                let Some(usage) = usage else { return };
                self.prompt_tokens = self.prompt_tokens.saturating_add(usage.prompt_tokens);
                self.completion_tokens = self
                    .completion_tokens
                    .saturating_add(usage.completion_tokens);
                self.cached_read_tokens = self
                    .cached_read_tokens
                    .saturating_add(usage.cached_read_tokens);
                self.cached_write_tokens = self
                    .cached_write_tokens
                    .saturating_add(usage.cached_write_tokens);
                self.thought_tokens = self.thought_tokens.saturating_add(usage.thought_tokens);
                match usage.cost {
                    Some(cost) => self.cost += cost,
                    None => self.unpriced_steps += 1,
                }
                self.context_tokens =
                    Some(usage.prompt_tokens.saturating_add(usage.completion_tokens));
            }
            Payload::SessionCompacted { .. } => self.context_tokens = None,
            _ => {}
        }
    }
}
