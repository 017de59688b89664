//! `terret trust`: what projects bring that runs code or lets more through, and what was
//! decided about it.

use std::path::{Path, PathBuf};

use anyhow::bail;
use terret_engine::grants::project_root;
use terret_engine::room::log::{Clock as _, SystemClock, moment};
use terret_engine::trust::{Decided, Judged, Survey, TrustStore, TrustVerdict};

use crate::args::TrustCommand;
use crate::inside::refuse_inside;
use crate::output::{Output, printable};
use crate::paths::Environment;
use crate::wiring::Setup;

/// Runs one of the `trust` commands; none means `list`.
pub(crate) fn run(
    setup: &Setup,
    environment: &dyn Environment,
    command: Option<&TrustCommand>,
    out: &mut Output,
) -> anyhow::Result<()> {
    match command.unwrap_or(&TrustCommand::List) {
        TrustCommand::List => list(setup, out),
        TrustCommand::Show { folder } => show(&Project::of(setup, environment, folder)?, out),
        TrustCommand::Allow { folder } => {
            refuse_inside(environment)?;
            let project = Project::of(setup, environment, folder)?;
            decide(&project, TrustVerdict::Trusted, out)
        }
        TrustCommand::Refuse { folder } => {
            refuse_inside(environment)?;
            let project = Project::of(setup, environment, folder)?;
            decide(&project, TrustVerdict::Refused, out)
        }
        TrustCommand::Forget { folder } => {
            refuse_inside(environment)?;
            forget(&Project::of(setup, environment, folder)?, out)
        }
    }
}

/// A project as it is now.
struct Project {
    root: PathBuf,
    store: TrustStore,
    survey: Survey,
}

impl Project {
    #[expect(
        clippy::disallowed_methods,
        reason = "typed in a shell, it is about the shell's folder"
    )]
    fn of(
        setup: &Setup,
        environment: &dyn Environment,
        folder: &Option<PathBuf>,
    ) -> anyhow::Result<Self> {
        let folder = match folder {
            Some(folder) => folder.clone(),
            None => std::env::current_dir()?,
        };
        if !folder.is_dir() {
            bail!("`{}` is no folder", folder.display());
        }
        let home = environment.var("HOME").map(PathBuf::from);
        let root = project_root(&folder, home.as_deref());
        let store = TrustStore::new(&setup.paths.state);
        let survey = Survey::of(&root, &setup.project_sources(), &store)?;
        Ok(Self {
            root,
            store,
            survey,
        })
    }
}

fn list(setup: &Setup, out: &mut Output) -> anyhow::Result<()> {
    let decided = TrustStore::new(&setup.paths.state).read()?;
    for known in &decided {
        out.line(format!(
            "{}  {}  ({} UTC, by {}, sha256 {})",
            word(Some(known.verdict)),
            path(&known.root.join(&known.file)),
            moment(known.at),
            printable(&known.by),
            known.sha256.get(..12).unwrap_or(&known.sha256),
        ))?;
    }
    if decided.is_empty() {
        out.line("Nothing was decided. `terret trust show` says what the project here brings.")?;
    }
    Ok(())
}

fn show(project: &Project, out: &mut Output) -> anyhow::Result<()> {
    let survey = &project.survey;
    if survey.files.is_empty() && survey.unusable.is_empty() {
        out.line(format!(
            "`{}` brings nothing that would have to be trusted.",
            path(&project.root)
        ))?;
    }
    for judged in &survey.files {
        say(project, judged, out)?;
    }
    for unusable in &survey.unusable {
        out.line(format!(
            "{}  not in force: {}",
            path(&project.root.join(&unusable.file)),
            printable(&unusable.why)
        ))?;
    }
    Ok(())
}

fn say(project: &Project, judged: &Judged, out: &mut Output) -> anyhow::Result<()> {
    let brought = &judged.brought;
    let state = if brought.widens() {
        word(judged.verdict)
    } else {
        "only narrows, so it holds"
    };
    out.line(format!(
        "{}  {state}",
        path(&project.root.join(&brought.file))
    ))?;
    for line in &brought.would {
        out.line(format!("    {}", printable(line)))?;
    }
    for why in &brought.problems {
        out.line(format!("    ! {}", printable(why)))?;
    }
    Ok(())
}

fn decide(project: &Project, verdict: TrustVerdict, out: &mut Output) -> anyhow::Result<()> {
    let widening: Vec<&Judged> = project
        .survey
        .files
        .iter()
        .filter(|judged| judged.brought.widens())
        .collect();
    if widening.is_empty() {
        return show(project, out);
    }
    let at = SystemClock.now_ms();
    let decided: Vec<Decided> = widening
        .iter()
        .map(|judged| Decided {
            root: project.root.clone(),
            file: judged.brought.file.clone(),
            sha256: judged.brought.hash.clone(),
            verdict,
            at,
            by: "command line".to_owned(),
        })
        .collect();
    project.store.decide(&decided)?;
    // What was decided about, as it was then: its content may be another by now.
    for judged in widening {
        let judged = Judged {
            verdict: Some(verdict),
            ..judged.clone()
        };
        say(project, &judged, out)?;
    }
    Ok(())
}

fn forget(project: &Project, out: &mut Output) -> anyhow::Result<()> {
    let root = path(&project.root);
    match project.store.forget(&project.root)? {
        0 => out.line(format!("nothing was decided about `{root}`"))?,
        1 => out.line(format!("forgot 1 verdict about `{root}`"))?,
        count => out.line(format!("forgot {count} verdicts about `{root}`"))?,
    }
    Ok(())
}

fn word(verdict: Option<TrustVerdict>) -> &'static str {
    match verdict {
        Some(TrustVerdict::Trusted) => "trusted",
        Some(TrustVerdict::Refused) => "refused",
        None => "not decided",
    }
}

fn path(path: &Path) -> String {
    printable(&path.to_string_lossy()).to_string()
}
