//! The sandbox of a session: its settings reach commands, and approvals follow it.

use terret_engine::room::log::{Payload, TurnStatus};
use terret_engine::room::models::Registry;
use terret_engine::room::tools::mode::Mode;
use terret_engine::room::tools::world::sandbox::choice::{self, Choice, SandboxSettings};
use terret_engine::room::tools::world::sandbox::ground::Ground;
use terret_engine::{Decision, Settings};

use crate::harness::{AutoApprove, Harness, complete, events, prompt, result};

const COMMANDS: &str = r#"{"match":"^1$","calls":[{"id":"c1","name":"Bash","args":{"command":"echo 1 > made; cat ../state/secret"}}]}
{"match":"^2$","calls":[{"id":"c2","name":"Bash","args":{"command":"echo 2 > made; cat ../state/secret"}}]}
{"match":"^3$","calls":[{"id":"c3","name":"Bash","args":{"command":"echo 3 > made; cat ../state/secret"}}]}
{"match":".","say":"done"}"#;

fn sandboxed(harness: &Harness, provider: Choice) -> Settings {
    Settings {
        mode: Mode::Auto,
        sandbox: SandboxSettings {
            provider,
            ground: Ground {
                path: std::env::split_paths(&std::env::var_os("PATH").unwrap()).collect(),
                ..Ground::default()
            },
            folder: harness.work().parent().unwrap().join("ours"),
            ..SandboxSettings::default()
        },
        ..harness.settings.clone()
    }
}

/// How often a person was asked so far.
async fn asked(session: &terret_engine::SessionHandle) -> usize {
    events(session)
        .await
        .iter()
        .filter(|event| matches!(event.payload, Payload::ApprovalRequested { .. }))
        .count()
}

fn registry() -> Registry {
    Registry::new(Vec::new())
}

#[tokio::test(flavor = "multi_thread")]
async fn check_145_approvals_follow_a_hot_change_of_the_sandbox() {
    let mut harness = Harness::new(COMMANDS);
    harness.settings.mode = Mode::Auto;
    let isolating = sandboxed(&harness, Choice::Bwrap);
    let has_bwrap = tokio::task::spawn_blocking({
        let settings = isolating.sandbox.clone();
        move || choice::provider(&settings).isolated()
    })
    .await
    .unwrap();
    std::fs::create_dir_all(harness.work().parent().unwrap().join("state")).unwrap();
    std::fs::write(
        harness.work().parent().unwrap().join("state/secret"),
        "out of reach",
    )
    .unwrap();
    let (engine, session) = harness.session().await;
    assert!(!session.options().modes.contains(&Mode::Auto));
    // Unconfined: a command is asked for, whatever the mode.
    let approve = AutoApprove::start(&session, Decision::AllowOnce);
    complete(&session, "1").await;
    assert_eq!(asked(&session).await, 1);
    assert!(
        result(&session, "c1")
            .await
            .unwrap()
            .contains("out of reach")
    );
    if !has_bwrap {
        // Named although it is not there: nothing runs, and a person is asked first.
        engine.reconfigure(isolating, registry());
        complete(&session, "2").await;
        assert_eq!(asked(&session).await, 2);
        assert!(
            result(&session, "c2")
                .await
                .unwrap_err()
                .contains("bubblewrap")
        );
        return;
    }
    engine.reconfigure(isolating, registry());
    assert!(session.options().modes.contains(&Mode::Auto));
    complete(&session, "2").await;
    assert_eq!(asked(&session).await, 1, "inside it runs unasked");
    assert_eq!(harness.read("made").unwrap(), "2\n");
    assert!(
        !result(&session, "c2")
            .await
            .unwrap()
            .contains("out of reach")
    );
    engine.reconfigure(sandboxed(&harness, Choice::None), registry());
    complete(&session, "3").await;
    assert_eq!(asked(&session).await, 2, "outside again it is asked for");
    drop(approve);
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_looked_for_before_a_command() {
    use std::os::unix::fs::PermissionsExt;
    let mut harness = Harness::new(COMMANDS);
    harness.settings = sandboxed(&harness, Choice::Auto);
    harness.settings.mode = Mode::Ask;
    // In the place of bubblewrap, a program that leaves a trace and works nowhere.
    let folder = harness.work().parent().unwrap().join("bin");
    let trace = folder.join("trace");
    std::fs::create_dir_all(&folder).unwrap();
    let program = folder.join("bwrap");
    std::fs::write(
        &program,
        format!("#!/bin/sh\necho >> {}; exit 1\n", trace.display()),
    )
    .unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    harness.settings.sandbox.ground.path.insert(0, folder);
    let (engine, session) = harness.session().await;
    let _approve = AutoApprove::start(&session, Decision::AllowOnce);
    let outcome = prompt(&session, "hello").await;
    assert_eq!(outcome.status, TurnStatus::Completed);
    assert!(session.options().modes.contains(&Mode::Auto));
    assert!(!trace.exists());
    complete(&session, "1").await;
    assert!(trace.exists());
    assert!(!session.options().modes.contains(&Mode::Auto));
    engine.shutdown().await;
}
