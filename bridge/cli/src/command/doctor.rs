//! `terret doctor`: tries what an agent needs and says what works, what does not, and
//! what to do about it.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use terret_engine::Engine;
use terret_engine::room::log::{Index, Payload, SessionId, Store, SystemClock};

use terret_engine::room::tools::world::sandbox::choice;
use terret_engine::room::tools::world::sandbox::report::report;
use terret_engine::room::tools::world::shell::find_bash;

use crate::config::ConfigError;
use crate::credentials::{Keyring, KeyringError, Place};
use crate::output::Output;
use crate::paths::Environment;
use crate::wiring::Setup;
use crate::words;

/// What one check found.
enum Finding {
    Works(String),
    /// Works less than it could; not a failure.
    Limited(String),
    Broken {
        what: String,
        way_out: String,
    },
}

/// Runs all checks; true when nothing is broken. `log_problem` is why the diagnostics of
/// the file could not be started.
pub(crate) fn run(
    setup: &Setup,
    environment: &dyn Environment,
    log_problem: Option<String>,
    out: &mut Output,
) -> anyhow::Result<bool> {
    let state = state(setup);
    let index = match &state {
        Finding::Broken { .. } => Finding::Broken {
            what: "lies where sessions cannot be written".to_owned(),
            way_out: "see `state` above".to_owned(),
        },
        _ => index(setup),
    };
    let checks: [(&str, Finding); 7] = [
        ("config", config(setup, environment, log_problem)),
        ("model", model(setup, environment)),
        ("keys", keys(setup, environment)),
        ("privacy", privacy(setup)),
        ("state", state),
        ("index", index),
        ("shell", shell(environment)),
    ];
    let mut healthy = true;
    for (name, finding) in checks {
        match finding {
            Finding::Works(text) => out.line(format!("ok       {name}: {text}"))?,
            Finding::Limited(text) => out.line(format!("limited  {name}: {text}"))?,
            Finding::Broken { what, way_out } => {
                healthy = false;
                out.line(format!("broken   {name}: {what}"))?;
                out.line(format!("         {way_out}"))?;
            }
        }
    }
    healthy &= sandbox(setup, environment, out)?;
    out.line(format!("files are in {}", setup.paths.state.display()))?;
    Ok(healthy)
}

/// Reports a configuration that cannot be read, without the checks that need it.
pub(crate) fn broken_config(error: &ConfigError, out: &mut Output) -> anyhow::Result<ExitCode> {
    out.line(format!("broken   config: {error}"))?;
    out.line("         correct the file and run `terret doctor` again")?;
    out.flush()?;
    Ok(ExitCode::FAILURE)
}

fn config(setup: &Setup, environment: &dyn Environment, log_problem: Option<String>) -> Finding {
    if let Some(what) = log_problem {
        return Finding::Broken {
            what,
            way_out: "correct the file".to_owned(),
        };
    }
    match setup.settings(environment) {
        Ok(_) if setup.paths.config_file().exists() => {
            Finding::Works(setup.paths.config_file().display().to_string())
        }
        Ok(_) => Finding::Works(format!(
            "none at {}; defaults hold",
            setup.paths.config_file().display()
        )),
        Err(error) => Finding::Broken {
            way_out: match error {
                ConfigError::Given { name, .. } => format!("give `{name}` another value"),
                _ => "correct the file".to_owned(),
            },
            what: error.to_string(),
        },
    }
}

fn model(setup: &Setup, environment: &dyn Environment) -> Finding {
    let parts = match setup.engine_parts(environment) {
        Ok(parts) => parts,
        Err(error) => {
            return Finding::Broken {
                what: error.to_string(),
                way_out: "see `config` above".to_owned(),
            };
        }
    };
    let model = parts.settings.model.clone();
    match Engine::new(parts).ready() {
        Ok(()) => {
            let name = model.map(|model| model.to_string()).unwrap_or_default();
            Finding::Works(format!("{name} is configured; nothing was sent to it"))
        }
        Err(error) => Finding::Broken {
            what: error.to_string(),
            way_out: "`terret acp` starts all the same, and answers prompts with this line"
                .to_owned(),
        },
    }
}

/// Whether the stored keys can be opened, by opening each of the file's; says where from,
/// and lets go of them. What is in the keyring is not touched: it could ask the person.
fn keys(setup: &Setup, environment: &dyn Environment) -> Finding {
    let file = setup.credentials();
    let broken = |what: String| Finding::Broken {
        what,
        way_out: "`terret auth list` says where each key comes from".to_owned(),
    };
    match file.providers() {
        Ok(stored) if stored.is_empty() => Finding::Works("none are stored".to_owned()),
        Ok(stored) => {
            let names = |place| {
                let of_place = stored.iter().filter(|(_, found)| **found == place);
                of_place.map(|(name, _)| name.as_str()).collect::<Vec<_>>()
            };
            let in_keyring = names(Place::Keyring);
            if let Some(provider) = in_keyring.first().filter(|_| !Keyring::BUILT) {
                let provider = (*provider).to_owned();
                return broken(KeyringError::NotBuilt { provider }.to_string());
            }
            let mut told = Vec::new();
            if !in_keyring.is_empty() {
                told.push(format!("{} in the system keyring", in_keyring.join(", ")));
            }
            let names = names(Place::File);
            if names.is_empty() {
                return Finding::Works(told.concat());
            }
            let lock = setup.lock(environment);
            let opened = names.iter().map(|name| file.read(name, &lock));
            if let Some(error) = opened.filter_map(Result::err).next() {
                return broken(error.to_string());
            }
            told.push(format!(
                "{} in {}, opened by {}",
                names.join(", "),
                file.path().display(),
                lock.describe()
            ));
            Finding::Works(told.join("; "))
        }
        Err(error) => broken(error.to_string()),
    }
}

/// Looks for files of ours that others may read or write (R137).
fn privacy(setup: &Setup) -> Finding {
    let paths = &setup.paths;
    let mut wide = Vec::new();
    for folder in [
        &paths.config,
        &paths.state,
        &paths.state.join("sessions"),
        &paths.runtime,
    ] {
        wide.extend(is_wide(folder).then(|| folder.clone()));
        wide.extend(files_in(folder).into_iter().filter(|path| is_wide(path)));
    }
    // Its content is no secret, and people keep it under version control.
    wide.retain(|path| *path != paths.config_file());
    let Some(first) = wide.first() else {
        return Finding::Works("nobody else can read what is kept here".to_owned());
    };
    Finding::Limited(format!(
        "{} files or folders are open to others, such as {}; `chmod go-rwx` closes them",
        wide.len(),
        first.display()
    ))
}

#[expect(clippy::disallowed_methods, reason = "looks at our own folders")]
fn files_in(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    entries.flatten().map(|entry| entry.path()).collect()
}

#[expect(clippy::disallowed_methods, reason = "looks at our own folders")]
fn is_wide(path: &std::path::Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::symlink_metadata(path)
        .is_ok_and(|found| !found.is_symlink() && found.mode() & 0o077 != 0)
}

/// Makes a session, writes to it, syncs it and takes it away again.
fn state(setup: &Setup) -> Finding {
    let tried = (|| -> anyhow::Result<()> {
        let store = Store::open(setup.paths.state.clone(), Arc::new(SystemClock))?;
        let id = SessionId::generate();
        let mut log = store.create(id.clone())?;
        log.append(Payload::SessionCreated {
            parent_id: None,
            root_id: None,
            depth: 0,
            call_id: None,
            cwd: "/".to_owned(),
            additional_directories: Vec::new(),
        })?;
        drop(log);
        store.delete(&id)?;
        Ok(())
    })();
    match tried {
        Ok(()) => Finding::Works("sessions can be written".to_owned()),
        Err(error) => Finding::Broken {
            what: words(&error),
            way_out: "make the folder writable, or choose another with --home".to_owned(),
        },
    }
}

fn index(setup: &Setup) -> Finding {
    let tried = (|| -> anyhow::Result<usize> {
        let store = Store::open(setup.paths.state.clone(), Arc::new(SystemClock))?;
        let count = store.ids()?.len();
        let mut index = Index::open(setup.paths.state.join("index.sqlite"), store)?;
        index.refresh()?;
        Ok(count)
    })();
    match tried {
        Ok(count) => Finding::Works(format!("{count} sessions are indexed")),
        Err(error) => Finding::Broken {
            what: words(&error),
            way_out: "sessions work without it, but for `terret sessions list` and `search`"
                .to_owned(),
        },
    }
}

fn shell(environment: &dyn Environment) -> Finding {
    let path = environment.var("PATH").unwrap_or_default();
    match find_bash(path.as_ref()) {
        Some(bash) => Finding::Works(format!("{}", bash.display())),
        None => Finding::Broken {
            what: "no `bash` is in the usual places or on the PATH, so the Bash tool cannot run commands".to_owned(),
            way_out: "install bash, or start your editor with a PATH that has it".to_owned(),
        },
    }
}

/// Tries the sandbox, and says what holds in it and what does not; true unless what must
/// work in it does not.
fn sandbox(setup: &Setup, environment: &dyn Environment, out: &mut Output) -> anyhow::Result<bool> {
    let settings = match setup.sandbox(environment) {
        Ok(settings) => settings,
        Err(error) => {
            out.line(format!("broken   sandbox: {error}"))?;
            out.line("         correct the file")?;
            return Ok(false);
        }
    };
    let provider = choice::provider(&settings);
    let report = report(&settings, provider.as_ref());
    let healthy = report.broken.is_empty();
    let state = match (healthy, report.isolated) {
        (false, _) => "broken  ",
        (true, true) => "ok      ",
        (true, false) => "limited ",
    };
    let kind = if report.isolated {
        "isolated"
    } else {
        "not isolated, so commands are always asked for"
    };
    out.line(format!("{state} sandbox: {} ({kind})", report.provider))?;
    for (what, lines) in [
        ("works", &report.works),
        ("enforced", &report.enforced),
        ("not enforced", &report.open),
        ("broken", &report.broken),
    ] {
        for line in lines {
            out.line(format!("         {what}: {line}"))?;
        }
    }
    if !healthy {
        out.line(
            "         set `sandbox.provider` to another provider, or to `none` and read what you approve",
        )?;
    }
    Ok(healthy)
}
