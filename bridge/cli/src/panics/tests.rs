//! A process of its own panics in a session whose data holds secrets, and all that it says
//! is looked through.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and starts this binary again"
)]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use async_trait::async_trait;
use terret_engine::hooks::{Rejected, TurnHook};
use terret_engine::input::Claim;
use terret_engine::room::log::{Scrubber, TurnStatus};
use terret_engine::room::models::Request;
use terret_engine::{Engine, InputBlock};

use crate::config::{Config, LogConfig};
use crate::paths::{Environment, Paths};
use crate::wiring::Setup;

const HOME: &str = "TERRET_TEST_PANICS_HOME";
const LEVEL: &str = "TERRET_TEST_PANICS_LEVEL";
const FILE: &str = "TERRET_TEST_PANICS_FILE";

/// The key of this installation, made here so that no file has the shape of a secret.
fn key() -> String {
    format!("{}/{}+", "Zx9".repeat(6), "k4".repeat(4))
}

/// Known by its shape alone.
fn token() -> String {
    format!("ghp_{}", "a1B2c3".repeat(6))
}

const PROMPT: &str = "whisper this";

struct NoVariables;

impl Environment for NoVariables {
    fn var(&self, _: &str) -> Option<String> {
        None
    }
}

/// Panics with all that a session holds, where it is caught and where it ends the task.
struct Panics;

#[async_trait]
impl TurnHook for Panics {
    async fn before_step(&self, claim: Vec<Claim>) -> Result<Vec<Claim>, Rejected> {
        let said = format!("{claim:?}");
        assert!(!said.contains("caught"), "{said} {} {}", key(), token());
        Ok(claim)
    }

    async fn before_request(&self, request: Request) -> Request {
        panic!("{request:?} {} {}", key(), token());
    }
}

/// Not a test: what the others start.
#[test]
#[ignore = "the process that another test starts, which panics"]
fn agent_that_panics() {
    let Some(home) = std::env::var_os(HOME) else {
        return;
    };
    let home = Path::new(&home);
    let scrubber = Scrubber::default();
    let config = LogConfig {
        level: std::env::var(LEVEL).ok(),
        file: std::env::var_os(FILE).map(Into::into),
    };
    crate::logging::start(&config, Path::new("config.toml"), 0, &scrubber).unwrap();
    super::install();
    scrubber.add_secret(&key());
    let script = home.join("script.jsonl");
    std::fs::write(&script, "{\"say\":\"never\"}\n").unwrap();
    let setup = Setup {
        paths: Paths::find(Some(home), &NoVariables).unwrap(),
        model: Some(format!("scripted:{}", script.display())),
        mode: None,
        allow_bypass: false,
        unattended: Default::default(),
        config: Config::default(),
        stamp: None,
        scrubber,
    };
    let mut parts = setup.engine_parts(&NoVariables).unwrap();
    parts.turn_hooks.push(Arc::new(Panics));
    crate::runtime::start().unwrap().block_on(async {
        let engine = Engine::new(parts);
        let session = engine.create_session(home.to_owned(), Vec::new());
        let session = session.await.unwrap();
        session.attach(None);
        for kind in ["caught", "not expected"] {
            let text = format!("{PROMPT}: {kind} {} {}", key(), token());
            let answer = session.prompt(vec![InputBlock::Text(text)]).await.unwrap();
            let outcome = answer.outcome().await.unwrap();
            assert_eq!(outcome.status, TurnStatus::Failed);
        }
        engine.shutdown().await;
    });
    // One that nobody catches ends the process, as a command's would.
    panic!("{PROMPT} {} {}", key(), token());
}

/// What the process says on both outputs and in its log file.
fn said(level: Option<&str>, to_file: bool) -> String {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("terret.log");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "panics::tests::agent_that_panics"])
        .args(["--ignored", "--nocapture", "--test-threads=1"])
        .env(HOME, home.path())
        .env("RUST_BACKTRACE", "1")
        .env_remove(LEVEL)
        .env_remove(FILE);
    if let Some(level) = level {
        command.env(LEVEL, level);
    }
    if to_file {
        command.env(FILE, &file);
    }
    let output = command.output().unwrap();
    assert!(!output.status.success(), "it did not panic");
    let log = std::fs::read(&file).unwrap_or_default();
    assert_eq!(log.is_empty(), !to_file);
    String::from_utf8_lossy(&[output.stdout, output.stderr, log].concat()).into_owned()
}

#[test]
fn a_panic_says_where_it_was_and_nothing_of_the_session() {
    for to_file in [false, true] {
        let said = said(None, to_file);
        for hidden in [&key(), &token(), PROMPT] {
            assert!(!said.contains(hidden), "`{hidden}` in {said}");
        }
        let places = said.matches("panics/tests.rs:").count();
        assert!(places >= 3, "{said}");
        assert!(said.contains("an internal error (panic)"), "{said}");
        assert!(said.contains("backtrace"), "{said}");
    }
}

#[test]
fn the_message_of_a_panic_is_told_when_asked_for_and_holds_no_secret() {
    for to_file in [false, true] {
        let said = said(Some("trace"), to_file);
        for hidden in [&key(), &token()] {
            assert!(!said.contains(hidden), "`{hidden}` in {said}");
        }
        assert!(
            said.contains(PROMPT) && said.contains("[REDACTED]"),
            "{said}"
        );
    }
}
