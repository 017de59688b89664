//! The configuration: refused by name and place, shown without secrets, and taken up
//! again while an agent runs.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use terret_fixtures::{PermissionPolicy, Reply, Script, process};

use crate::support::{Bench, Finished, PATIENCE, count, last};

/// A value that no output may show.
const KEY: &str = "a-key-value-of-this-test";

#[tokio::test]
async fn an_unknown_key_is_refused_by_name_and_place() {
    let bench = Bench::saying("never");
    bench.configure("mode = \"ask\"\n[loop]\nmax_stepz = 3\n");
    for arguments in [&["acp"][..], &["run", "hi"], &["config", "show"]] {
        let finished = bench.terret(arguments).await;
        assert_eq!(finished.code, Some(1), "{finished:?}");
        assert_eq!(finished.stdout, "");
        for word in ["config.toml", "max_stepz", "line 3"] {
            assert!(finished.stderr.contains(word), "{word}: {finished:?}");
        }
    }
}

#[tokio::test]
async fn what_needs_no_configuration_works_with_a_broken_one() {
    let bench = Bench::saying("hello");
    bench.terret_with_model(&["run", "hi"]).await.ok();
    for text in [
        "this is no toml",
        "[log]\nlevel = \"loud\"\n",
        "[log]\nfile = \"/nowhere/at/all.log\"\n",
    ] {
        bench.configure(text);
        for arguments in [
            &["sessions", "list"][..],
            &["sessions", "verify"],
            &["sessions", "search", "hello"],
            &["inbox"],
            &["demo", "--yes"],
        ] {
            let finished = bench.terret(arguments).await;
            assert_eq!(finished.code, Some(0), "{text}: {finished:?}");
            assert_eq!(finished.stderr.lines().count(), 1, "{text}: {finished:?}");
            assert!(finished.stderr.contains("config.toml"), "{finished:?}");
        }
        let path = bench.terret(&["config", "path"]).await;
        assert_eq!(path.stderr, "");
        assert!(path.ok().ends_with("config.toml\n"));
    }
}

#[tokio::test]
async fn the_doctor_starts_with_a_log_that_cannot_be_written() {
    let bench = Bench::saying("never");
    for (text, key) in [
        ("[log]\nlevel = \"loud\"\n", "log.level"),
        ("[log]\nfile = \"/nowhere/at/all.log\"\n", "log.file"),
    ] {
        bench.configure(text);
        let finished = bench.terret_with_model(&["doctor"]).await;
        assert_eq!(finished.code, Some(1), "{finished:?}");
        let config = finished
            .stdout
            .lines()
            .find(|line| line.starts_with("broken   config:"))
            .unwrap_or_else(|| panic!("{finished:?}"));
        assert!(
            config.contains(key) && config.contains("config.toml"),
            "{config}"
        );
        assert!(finished.stdout.contains("ok       state"), "{finished:?}");
        // What needs the file names key and file as well.
        let refused = bench.terret_with_model(&["run", "hi"]).await;
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(
            refused.stderr.contains(key) && refused.stderr.contains("config.toml"),
            "{refused:?}"
        );
    }
}

#[tokio::test]
async fn a_wrong_flag_is_blamed_and_not_the_file() {
    let bench = Bench::saying("never");
    bench.configure("mode = \"ask\"\nmodel = \"anthropic:fine\"\n");
    let mode = bench
        .terret_with_model(&["run", "hi", "--mode", "bogus"])
        .await;
    let model = bench.terret(&["--model", "openai", "run", "hi"]).await;
    for (finished, flag) in [(mode, "`--mode`"), (model, "`--model`")] {
        assert_eq!(finished.code, Some(1), "{finished:?}");
        assert!(finished.stderr.contains(flag), "{finished:?}");
        assert!(!finished.stderr.contains("config.toml"), "{finished:?}");
    }
    let doctor = bench.terret(&["--model", "openai", "doctor"]).await;
    assert!(doctor.stdout.contains("`--model`"), "{doctor:?}");
    assert!(!doctor.stdout.contains("correct the file"), "{doctor:?}");
}

#[tokio::test]
async fn the_doctor_advises_nothing_that_cannot_help() {
    let bench = Bench::saying("never");
    // A file where the state folder belongs: nothing can be written below it.
    std::fs::create_dir_all(bench.home()).unwrap();
    std::fs::write(bench.home().join("state"), "").unwrap();
    let finished = bench.terret_with_model(&["doctor"]).await;
    assert_eq!(finished.code, Some(1), "{finished:?}");
    for check in ["state", "index"] {
        assert!(
            finished.stdout.contains(&format!("broken   {check}:")),
            "{finished:?}"
        );
    }
    assert!(!finished.stdout.contains("remove"), "{finished:?}");
    for line in finished.stdout.lines() {
        assert!(line.matches("(os error").count() < 2, "{line}");
    }
}

#[tokio::test]
async fn a_value_that_means_nothing_is_refused_by_its_key() {
    let bench = Bench::saying("never");
    for (text, words) in [
        ("mode = \"bold\"", ["mode", "bold"]),
        ("model = \"nameless\"", ["model", "nameless"]),
        ("thinking = \"hard\"", ["thinking", "hard"]),
        ("[policy]\ndeny = [\"Bash(\"]", ["policy.deny", "Bash("]),
    ] {
        bench.configure(text);
        let finished = bench.terret(&["acp"]).await;
        assert_eq!(finished.code, Some(1), "{text}: {finished:?}");
        for word in words {
            assert!(finished.stderr.contains(word), "{word}: {finished:?}");
        }
    }
}

#[tokio::test]
async fn the_doctor_starts_with_a_broken_configuration() {
    let bench = Bench::saying("never");
    bench.configure("this is no toml");
    let finished = bench.terret(&["doctor"]).await;
    assert_eq!(finished.code, Some(1), "{finished:?}");
    assert!(finished.stdout.contains("broken   config"), "{finished:?}");
    assert!(finished.stdout.contains("line 1"), "{finished:?}");
    let path = bench.terret(&["config", "path"]).await.ok();
    assert!(path.ends_with("config.toml\n"), "{path}");
}

/// Commands find bash in the usual places, whatever the PATH is.
#[tokio::test]
async fn the_doctor_looks_for_bash_where_commands_do() {
    let bench = Bench::saying("hi");
    let mut command = bench.command();
    command
        .args(["--model", &bench.model(), "doctor"])
        .env("PATH", "");
    let finished = Finished::of(process::run(command, PATIENCE).await.unwrap());
    let is_there = ["/bin/bash", "/usr/bin/bash"]
        .iter()
        .any(|path| Path::new(path).is_file());
    let line = finished
        .stdout
        .lines()
        .find(|line| line.contains("shell:"))
        .unwrap();
    assert_eq!(line.starts_with("ok "), is_there, "{line}");
}

#[tokio::test]
async fn the_doctor_says_what_works() {
    let bench = Bench::saying("never");
    let broken = bench.terret(&["doctor"]).await;
    assert_eq!(broken.code, Some(1), "no model: {broken:?}");
    assert!(broken.stdout.contains("broken   model"), "{broken:?}");
    assert!(broken.stdout.contains("ANTHROPIC_API_KEY"), "{broken:?}");
    let healthy = bench.terret_with_model(&["doctor"]).await.ok();
    for check in ["config", "model", "state", "index", "shell", "sandbox"] {
        assert!(healthy.contains(&format!("{check}:")), "{healthy}");
    }
    assert!(!healthy.contains("broken"), "{healthy}");
    assert!(
        healthy.contains("is configured; nothing was sent to it"),
        "{healthy}"
    );
    // What it tried leaves nothing behind.
    let listed = bench.terret(&["sessions", "list"]).await.ok();
    assert_eq!(listed, "No sessions yet.\n");
}

#[tokio::test]
async fn no_output_shows_a_key() {
    let bench = Bench::saying("never");
    bench.configure(
        "[providers.local]\nkind = \"openai\"\nbase_url = \"http://127.0.0.1:9/v1\"\nkey_env = \"LOCAL_KEY\"\n",
    );
    for arguments in [&["config", "show"][..], &["doctor"], &["-vv", "run", "hi"]] {
        let mut command = bench.command();
        command
            .args(arguments)
            .env("ANTHROPIC_API_KEY", KEY)
            .env("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
            .env("LOCAL_KEY", KEY);
        let finished = Finished::of(process::run(command, PATIENCE).await.unwrap());
        let all = format!("{}{}", finished.stdout, finished.stderr);
        assert!(!all.contains(KEY), "{all}");
        if arguments[0] == "config" {
            for word in [
                "ANTHROPIC_API_KEY is set",
                "LOCAL_KEY is set",
                "OPENAI_API_KEY is not set",
            ] {
                assert!(all.contains(word), "{all}");
            }
        }
    }
}

#[tokio::test]
async fn every_setting_is_shown_with_where_it_comes_from() {
    let bench = Bench::saying("never");
    let path = bench.terret(&["config", "path"]).await.ok();
    assert_eq!(
        path.trim(),
        bench
            .home()
            .join("config/config.toml")
            .display()
            .to_string()
    );
    let shown = bench.terret_with_model(&["config", "show"]).await.ok();
    assert!(shown.contains("all defaults"), "{shown}");
    assert!(shown.contains("# command line"), "{shown}");
    assert!(shown.contains("log.level = \"warn\"  # default"), "{shown}");
    assert!(shown.contains("log.file = none"), "{shown}");
    let log = bench.workspace.beside().join("terret.log");
    bench.configure(&format!(
        "mode = \"plan\"\n[loop]\nmax_steps = 7\n[bash]\neditor_terminal = true\n[log]\nlevel = \"error\"\nfile = \"{}\"\n",
        log.display()
    ));
    let shown = bench.terret(&["config", "show"]).await.ok();
    assert!(shown.contains("mode = \"plan\"  # config.toml"), "{shown}");
    assert!(
        shown.contains("loop.max_steps = 7  # config.toml"),
        "{shown}"
    );
    assert!(
        shown.contains("loop.max_agents = 128  # default"),
        "{shown}"
    );
    assert!(
        shown.contains("log.level = \"error\"  # config.toml"),
        "{shown}"
    );
    assert!(
        shown.contains("bash.editor_terminal = true  # config.toml"),
        "{shown}"
    );
    let file = format!("log.file = \"{}\"  # config.toml", log.display());
    assert!(shown.contains(&file), "{shown}");
}

/// Sends prompts until one ends as `wanted`, since nothing says when a file was taken up.
async fn until(mut holds: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !holds().await {
        assert!(start.elapsed() < PATIENCE, "the change was never taken up");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn check_086_a_changed_file_is_in_force_at_the_next_call_and_a_broken_one_is_not() {
    let bench = Bench::new(
        "//- a.txt\nalpha\n",
        Script::new()
            .reply(Reply::on("^read$").call("Read", json!({"file_path": "a.txt"})))
            .reply(Reply::on("").say("done")),
    );
    let (editor, session) = bench.session(PermissionPolicy::AllowOnce).await;
    let denied = async || {
        editor.prompt(&session, "read").await.unwrap();
        // Not by the command, which says that it does not use a broken file.
        let log = std::fs::read_to_string(bench.log_file(&session)).unwrap();
        let events: Vec<Value> = log
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        last(&events, "tool/result")["error"].is_string()
    };
    assert!(!denied().await);
    bench.configure("[policy]\nfloor = [\"Bash\"]\n");
    until(&denied).await;
    // A broken edit keeps the last good one, and says so where diagnostics go.
    bench.configure("[policy]\nfloor = [\"Read\"\n");
    until(async || bench.stderr().contains("not taken up")).await;
    assert!(denied().await, "a broken file must not widen the floor");
    assert!(bench.stderr().contains("config.toml"), "{}", bench.stderr());
    bench.configure("[policy]\nfloor = [\"Read\"]\n");
    until(async || !denied().await).await;
    let events = bench.events(&session).await;
    assert_eq!(count(&events, "session/created"), 1);
}
