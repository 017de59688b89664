//! `terret demo`: a scripted session with real tools in a throw-away copy of a small
//! project. It needs no key and no network, and leaves nothing behind.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use terret_faces::terminal::{Approvals, Form, TerminalOptions};

use crate::args::DemoArgs;
use crate::command::run::play;
use crate::config::Config;
use crate::output::{Output, colour};
use crate::paths::{Environment, Paths};
use crate::wiring::Setup;

/// The project's files.
const PROJECT: &[(&str, &str)] = &[
    (
        "README.md",
        include_str!("../../../../fixtures/demo/project/README.md"),
    ),
    (
        "check.sh",
        include_str!("../../../../fixtures/demo/project/check.sh"),
    ),
    (
        "orders/breakfast.txt",
        include_str!("../../../../fixtures/demo/project/orders/breakfast.txt"),
    ),
    (
        "orders/paint.txt",
        include_str!("../../../../fixtures/demo/project/orders/paint.txt"),
    ),
    (
        "total.sh",
        include_str!("../../../../fixtures/demo/project/total.sh"),
    ),
];

const SCRIPT: &str = include_str!("../../../../fixtures/demo/demo.jsonl");

/// What the person of the demo asks for.
const PROMPT: &str =
    "Some orders come out too cheap. Find out why, fix it, and show me that it is right now.";

/// No key, no address, nothing of the person's own.
struct NoEnvironment;

impl Environment for NoEnvironment {
    fn var(&self, _name: &str) -> Option<String> {
        None
    }
}

/// Plays the demo; of the person's environment only the wish for colour counts.
pub(crate) fn run(args: &DemoArgs, environment: &dyn Environment) -> anyhow::Result<ExitCode> {
    let folder = tempfile::Builder::new()
        .prefix("terret-demo-")
        .tempdir()
        .context("a temporary folder could not be made")?;
    let project = folder.path().join("project");
    for (name, content) in PROJECT {
        write(&project.join(name), content)?;
    }
    let script = folder.path().join("demo.jsonl");
    write(&script, SCRIPT)?;
    let mut out = Output::new();
    out.line(format!(
        "A scripted model, real tools, and a project in {} that goes away at the end.",
        project.display()
    ))?;
    out.line("")?;
    out.flush()?;
    let setup = Setup {
        paths: Paths::find(Some(&folder.path().join("home")), &NoEnvironment)?,
        model: Some(format!("scripted:{}", script.display())),
        mode: None,
        allow_bypass: false,
        unattended: Default::default(),
        config: Config::default(),
        stamp: None,
        scrubber: terret_engine::room::log::Scrubber::default(),
    };
    let options = TerminalOptions {
        cwd: project,
        prompts: vec![PROMPT.to_owned()],
        approvals: if args.yes {
            Approvals::AllowAll
        } else {
            Approvals::Ask
        },
        form: Form::Text,
        colour: colour(std::io::stdout().is_terminal(), environment),
    };
    let played = play(&setup, &NoEnvironment, options)?;
    if !played.went_well() {
        if played.unanswered() {
            out.line("`terret demo --yes` approves everything.")?;
            out.flush()?;
        }
        return Ok(played.exit_code());
    }
    let program = std::env::current_exe()
        .map_or_else(|_| "terret".to_owned(), |path| path.display().to_string());
    out.line("")?;
    out.line("That was Terret in a terminal. To have it in your editor, let the editor start")?;
    out.line(format!("\n    {program} acp\n"))?;
    out.line(
        "as an ACP agent (the README shows how), with ANTHROPIC_API_KEY or OPENAI_API_KEY set,",
    )?;
    out.line("or a model of your own in config.toml. `terret doctor` says what is still missing.")?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the throw-away copy is made before any session"
)]
fn write(path: &Path, content: &str) -> anyhow::Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    std::fs::write(path, content)
        .with_context(|| format!("{} could not be written", path.display()))
}
