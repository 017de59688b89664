//! Nobody approves themselves: what decides about an agent refuses to run inside of it.

use anyhow::bail;
use terret_engine::room::tools::helper::lineage::{Lineage, lineage};

use crate::paths::Environment;

/// Set in everything that the agent starts.
const INSIDE: &str = "TERRET_INSIDE";

/// Refuses where this process comes from something that an agent runs: by the mark in the
/// environment, and by every ancestor, since a mark can be dropped.
pub(crate) fn refuse_inside(environment: &dyn Environment) -> anyhow::Result<()> {
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    if environment.var(INSIDE).is_some() || lineage(own, None) == Lineage::Inside {
        bail!(
            "this runs inside one of the agent's own commands, which may not decide about the agent; \
             use another terminal"
        );
    }
    Ok(())
}
