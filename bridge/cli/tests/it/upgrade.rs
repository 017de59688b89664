//! The program's file is replaced or removed while it runs, as an upgrade does: what runs
//! goes on to start its helpers, which are the same file, from what it is itself.

use std::path::Path;

use serde_json::json;
use terret_fixtures::{PermissionPolicy, Reply, Script};

use crate::support::{Bench, TERRET, count, file_text, last};

/// A model that runs a command at each word, and starts a job at `job`.
fn script() -> Script {
    let bash = |word: &str, id: &str| {
        let args = json!({ "command": format!("echo {word} >> said") });
        Reply::on(&format!("^{word}$")).call_as(id, "Bash", args)
    };
    let job = json!({ "command": "echo job > job-said; exec sleep 300" });
    Script::new()
        .reply(bash("before", "b1"))
        .reply(bash("after", "b2"))
        .reply(bash("again", "b3"))
        .reply(Reply::on("^job$").call_as("j1", "job_start", job))
        .reply(Reply::on("").say("done"))
}

async fn holds(bench: Bench, upgrade: impl Fn(&Path)) {
    let program = bench.workspace.beside().join("terret");
    std::fs::copy(TERRET, &program).unwrap();
    let mut command = bench.command_of(&program);
    command.args(["--model", &bench.model()]).arg("acp");
    bench.keep_stderr(&mut command);
    let editor = bench.editor_of(command, PermissionPolicy::AllowOnce).await;
    let session = editor.new_session(bench.workspace.root()).await.unwrap();
    editor.prompt(&session, "before").await.unwrap();
    upgrade(&program);
    for word in ["after", "again", "job"] {
        editor.prompt(&session, word).await.unwrap();
        let events = bench.events(&session).await;
        let result = last(&events, "tool/result");
        assert!(result["error"].is_null(), "{word}: {result}");
    }
    assert_eq!(
        bench.workspace.read("said").unwrap(),
        "before\nafter\nagain\n"
    );
    assert_eq!(file_text(&bench.workspace.path("job-said")).await, "job\n");
    let events = bench.events(&session).await;
    assert_eq!(count(&events, "job/started"), 1);
    let (_, status) = editor.finish().await.unwrap();
    assert!(status.unwrap().success());
    // A copy that was made of itself went with it.
    let copies = bench.home().join("cache/sandbox");
    if let Ok(left) = std::fs::read_dir(copies) {
        let names: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        let copied = |name: &std::ffi::OsString| name.to_string_lossy().starts_with("terret-");
        assert!(!names.iter().any(copied), "{names:?}");
    }
}

/// Another program in one step, as a package manager does it.
fn replace(program: &Path) {
    let new = program.with_extension("new");
    std::fs::write(&new, "#!/bin/sh\nexit 70\n").unwrap();
    std::fs::set_permissions(&new, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::rename(new, program).unwrap();
}

#[tokio::test]
async fn an_agent_whose_binary_is_replaced_still_starts_its_helpers() {
    holds(Bench::new("", script()), replace).await;
    holds(Bench::new("", script()).unconfined(), replace).await;
}

#[tokio::test]
async fn an_agent_whose_binary_is_removed_still_starts_its_helpers() {
    let remove = |program: &Path| std::fs::remove_file(program).unwrap();
    holds(Bench::new("", script()), remove).await;
    holds(Bench::new("", script()).unconfined(), remove).await;
}
