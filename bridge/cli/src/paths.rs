//! Where things are: one folder with `--home`, the XDG folders without it.

use std::path::{Path, PathBuf};

/// The folders of an installation. None is created before it is needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Paths {
    /// `config.toml`.
    pub config: PathBuf,
    /// Session logs, blobs, index.
    pub state: PathBuf,
    /// What can be made again: full outputs of commands.
    pub cache: PathBuf,
    /// Control sockets of live engines.
    pub runtime: PathBuf,
}

/// No place for our files could be found.
#[derive(Debug, thiserror::Error)]
#[error("neither `--home`, `TERRET_HOME` nor `HOME` says where to keep sessions; set one of them")]
pub(crate) struct NoHome;

/// The environment, as far as paths depend on it; handed in, so that tests can.
pub(crate) trait Environment: Send + Sync {
    fn var(&self, name: &str) -> Option<String>;
}

impl Paths {
    /// Derives the folders.
    pub(crate) fn find(home: Option<&Path>, environment: &dyn Environment) -> Result<Self, NoHome> {
        if let Some(home) = home {
            let home = std::path::absolute(home).map_err(|_| NoHome)?;
            return Ok(Self {
                config: home.join("config"),
                state: home.join("state"),
                cache: home.join("cache"),
                runtime: home.join("run"),
            });
        }
        let absolute = |name: &str| {
            environment
                .var(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        let user = absolute("HOME");
        let folder = |variable: &str, below_home: &str| {
            absolute(variable)
                .or_else(|| user.as_ref().map(|user| user.join(below_home)))
                .map(|base| base.join("terret"))
                .ok_or(NoHome)
        };
        let state = folder("XDG_STATE_HOME", ".local/state")?;
        Ok(Self {
            config: folder("XDG_CONFIG_HOME", ".config")?,
            cache: folder("XDG_CACHE_HOME", ".cache")?,
            // Some systems have no runtime folder; the state folder is as private.
            runtime: absolute("XDG_RUNTIME_DIR")
                .map_or_else(|| state.join("run"), |base| base.join("terret")),
            state,
        })
    }

    /// The configuration file.
    pub(crate) fn config_file(&self) -> PathBuf {
        self.config.join("config.toml")
    }

    /// The folder of all jobs, as the engine keeps them.
    pub(crate) fn jobs(&self) -> PathBuf {
        self.state.join("jobs")
    }

    /// What no tool may reach.
    pub(crate) fn denied(&self) -> Vec<PathBuf> {
        vec![
            self.config.clone(),
            self.state.clone(),
            self.runtime.clone(),
        ]
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    struct Fake(&'static [(&'static str, &'static str)]);

    impl Environment for Fake {
        fn var(&self, name: &str) -> Option<String> {
            self.0
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| (*value).to_owned())
        }
    }

    #[test]
    fn a_home_holds_everything() {
        let paths = Paths::find(
            Some(Path::new("/h")),
            &Fake(&[("XDG_STATE_HOME", "/elsewhere")]),
        )
        .unwrap();
        for path in [&paths.config, &paths.state, &paths.cache, &paths.runtime] {
            assert!(path.starts_with("/h"), "{path:?}");
        }
    }

    #[test]
    fn the_xdg_folders_win_over_home() {
        let paths = Paths::find(None, &Fake(&[("HOME", "/u"), ("XDG_CONFIG_HOME", "/c")])).unwrap();
        assert_eq!(paths.config, Path::new("/c/terret"));
        assert_eq!(paths.state, Path::new("/u/.local/state/terret"));
        assert_eq!(paths.runtime, Path::new("/u/.local/state/terret/run"));
    }

    #[test]
    fn a_relative_xdg_folder_is_ignored() {
        let paths =
            Paths::find(None, &Fake(&[("HOME", "/u"), ("XDG_CACHE_HOME", "cache")])).unwrap();
        assert_eq!(paths.cache, Path::new("/u/.cache/terret"));
    }

    #[test]
    fn without_any_home_the_error_names_the_way_out() {
        let error = Paths::find(None, &Fake(&[])).unwrap_err();
        assert!(error.to_string().contains("--home"));
    }
}
