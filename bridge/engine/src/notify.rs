//! Tells a person who looks elsewhere that an approval waits for them: after a while a
//! command of theirs is run, once for each approval, which may show a notification, say, or
//! send a message (`design.md §4 Approvals`).
//!
//! It is told what is asked for in words, without arguments and contents, and scrubbed of
//! secrets, since nobody knows where it passes that on to.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use terret_tools::call::Question;
use terret_tools::rules::shown;
use terret_tools::world::World;
use terret_tools::world::process::exchange::Exchange;
use terret_tools::world::process::{End, Program};
use terret_tools::world::sandbox::Confinement;
use tokio_util::task::AbortOnDropHandle;

use crate::core::Core;
use crate::policy::SessionPolicy;

/// How long an approval waits before a person is told, unless config says otherwise.
pub const NOTIFY_AFTER: Duration = Duration::from_secs(30);
/// What the command itself may take.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes kept of what it prints, which nobody reads.
const MOST: usize = 1024;

/// What to run, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notify {
    /// A program and its arguments; never empty.
    pub argv: Vec<String>,
    /// How long an approval waits before that.
    pub after: Duration,
}

/// Watches the approvals of one session.
pub(crate) struct Notifier {
    core: Arc<Core>,
    policy: Arc<SessionPolicy>,
    world: Arc<World>,
}

/// An approval that waits. Dropping it, when the wait is over, ends the command, too.
pub(crate) struct Waiting {
    _task: AbortOnDropHandle<()>,
}

impl Notifier {
    pub(crate) fn new(core: Arc<Core>, policy: Arc<SessionPolicy>, world: Arc<World>) -> Self {
        Self {
            core,
            policy,
            world,
        }
    }

    /// A question begins to wait; none when nobody wants to be told. Must be called on a
    /// tokio runtime.
    pub(crate) fn waiting(&self, id: &str, question: &Question) -> Option<Waiting> {
        let notify = self.policy.settings().hooks.notify.clone()?;
        let words = |text: &str| shown(&self.core.scrubber().text(text));
        let title = self.core.state(|state| state.title.clone());
        let told = json!({
            "session_id": self.core.id().as_str(),
            "session_title": title,
            "cwd": self.world.cwd().to_string_lossy(),
            "approval_id": id,
            "title": words(&question.title),
            "tool_name": words(&question.call.name),
            "reason": words(&question.reason),
            "waited_seconds": notify.after.as_secs(),
        });
        let world = Arc::clone(&self.world);
        Some(Waiting {
            _task: AbortOnDropHandle::new(tokio::spawn(async move {
                tokio::time::sleep(notify.after).await;
                tell(&world, &notify, told.to_string().into_bytes()).await;
            })),
        })
    }
}

async fn tell(world: &World, notify: &Notify, input: Vec<u8>) {
    let processes = world.processes();
    let program = Program {
        argv: notify.argv.iter().map(OsString::from).collect(),
        cwd: world.cwd(),
        environment: processes.environment().clone(),
        input: None,
        confinement: Confinement::Outside,
    };
    let exchange = Exchange {
        input,
        timeout: TIMEOUT,
        most_output: MOST,
        most_errors: MOST,
    };
    match processes.exchange(program, exchange).await {
        Ok(answered) if answered.end == End::Exited(0) => {}
        Ok(answered) => tracing::warn!(end = ?answered.end, "the command of `inbox.notify` failed"),
        Err(error) => tracing::warn!(%error, "the command of `inbox.notify` could not be run"),
    }
}
