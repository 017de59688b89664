//! Takes up a changed configuration file while the engine runs. A file that is not right
//! changes nothing and is reported; the last good one stays in force.

use std::path::Path;
use std::time::{Duration, SystemTime};

use terret_engine::Engine;
use terret_engine::room::log::{Clock as _, SystemClock};

use crate::config::Config;
use crate::paths::Environment;
use crate::wiring::Setup;

/// How often the file is looked at: a `stat` costs nothing, and no watcher is needed.
const PERIOD: Duration = Duration::from_secs(1);

/// What tells a changed file from the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    modified: Option<SystemTime>,
    length: u64,
}

/// Watches from `known`, the stamp of the file that is in force, until it is dropped.
pub(crate) async fn watch(
    engine: Engine,
    mut setup: Setup,
    environment: impl Environment,
    mut known: Option<Stamp>,
) {
    let path = setup.paths.config_file();
    let stored = setup.credentials();
    let mut known_keys = None;
    let mut expires = setup.next_expiry(SystemClock.now_ms());
    loop {
        let (file, keys) = (path.clone(), stored.clone());
        let looked = tokio::task::spawn_blocking(move || (Stamp::of(&file), keys.stamp())).await;
        let Ok((now, keys)) = looked else {
            return;
        };
        // A key that was stored, changed or removed meanwhile is taken up like a setting.
        let same_keys = known_keys.replace(keys).is_none_or(|known| known == keys);
        engine.freshen_rules().await;
        let same_rules = expires.is_none_or(|at| SystemClock.now_ms() <= at);
        if now == known && same_keys && same_rules {
            tokio::time::sleep(PERIOD).await;
            continue;
        }
        known = now;
        let file = path.clone();
        let read = tokio::task::spawn_blocking(move || Config::read(&file)).await;
        let applied = match read {
            Ok(Ok(config)) => {
                let previous = std::mem::replace(&mut setup.config, config);
                setup
                    .settings(&environment)
                    .inspect_err(|_| setup.config = previous)
            }
            Ok(Err(error)) => Err(error),
            Err(_) => return,
        };
        match applied {
            Ok(settings) => {
                engine.reconfigure(settings, setup.registry(&environment));
                tracing::info!("the configuration was taken up again");
            }
            Err(error) => tracing::error!(%error, "the changed configuration was not taken up"),
        }
        expires = setup.next_expiry(SystemClock.now_ms());
    }
}

impl Stamp {
    /// Of the file as it is now; none when it is not there.
    #[expect(clippy::disallowed_methods, reason = "the operator's own file")]
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        Some(Self {
            modified: metadata.modified().ok(),
            length: metadata.len(),
        })
    }
}
