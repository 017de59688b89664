//! Keys: where they come from, and that they are nowhere else.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::json;
use terret_fixtures::{PermissionPolicy, Reply, Script, process};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::support::{Bench, Finished, PATIENCE, spawn};

/// Made here, so that nothing in this file has the shape of a secret.
fn key(kind: &str) -> String {
    format!("{kind}/{}+{}", "Zx9".repeat(6), "k4".repeat(4))
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            found.push(entry.path());
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            }
        }
    }
    found
}

fn assert_nowhere(folder: &Path, secret: &str) {
    for file in files(folder) {
        if let Ok(bytes) = std::fs::read(&file) {
            assert!(
                !bytes
                    .windows(secret.len())
                    .any(|window| window == secret.as_bytes()),
                "{} holds the key",
                file.display()
            );
        }
    }
}

async fn finish(mut command: Command, input: &str) -> Finished {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // It may end without reading.
    let _ = stdin.write_all(input.as_bytes()).await;
    drop(stdin);
    let ended = tokio::time::timeout(PATIENCE, child.wait_with_output()).await;
    Finished::of(ended.unwrap().unwrap())
}

#[tokio::test]
async fn checks_152_and_159_a_key_of_the_environment_is_in_no_event_update_or_child() {
    let (one, two) = (key("env"), key("own"));
    let bench = Bench::new(
        "",
        Script::new()
            .reply(
                Reply::on("^go$")
                    .say(&format!("the key is {one}, I think"))
                    .paced(3, 1)
                    .call_as(
                        "b1",
                        "Bash",
                        json!({ "command": format!("env > seen; printf '%s' 'x{one}y'; printf '%s' '{two}' | base64 -w0") }),
                    ),
            )
            .reply(Reply::on("").say("done")),
    );
    bench.configure(
        "[providers.local]\nkind = \"openai\"\nbase_url = \"http://127.0.0.1:9/v1\"\nkey_env = \"MY_PLAIN_NAME\"\n",
    );
    let mut command = bench.acp();
    command
        .env("ANTHROPIC_API_KEY", &one)
        .env("MY_PLAIN_NAME", &two)
        .env("TERRET_CREDENTIALS_KEY", key("master"));
    let editor = spawn(command, PermissionPolicy::AllowOnce);
    editor.initialize().await.unwrap();
    let session = editor.new_session(bench.workspace.root()).await.unwrap();
    editor.prompt(&session, "go").await.unwrap();
    let (transcript, status) = editor.finish().await.unwrap();
    assert!(status.unwrap().success());
    let from_us = format!("{transcript:?}");
    for secret in [&one, &two] {
        assert!(!from_us.contains(secret.as_str()), "in an update");
        assert_nowhere(&bench.home().join("state"), secret);
        assert!(!bench.stderr().contains(secret.as_str()));
    }
    let seen = std::fs::read_to_string(bench.workspace.path("seen")).unwrap();
    for name in [
        "ANTHROPIC_API_KEY",
        "MY_PLAIN_NAME",
        "TERRET_CREDENTIALS_KEY",
    ] {
        assert!(!seen.contains(name), "{name} is in a child's environment");
    }
    let log = std::fs::read_to_string(bench.log_file(&session)).unwrap();
    assert!(log.contains("x[REDACTED]y"), "{log}");
    assert!(log.matches("[REDACTED]").count() > 3, "{log}");
}

#[tokio::test]
async fn a_stored_key_is_made_listed_used_and_removed() {
    let bench = Bench::saying("hi");
    let secret = key("stored");
    let refused = finish(
        {
            let mut command = bench.command();
            command.args(["auth", "set", "anthropic"]);
            command
        },
        &secret,
    )
    .await;
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("terret auth init"), "{refused:?}");

    let made = bench.terret(&["auth", "init"]).await.ok();
    assert!(made.contains("does not protect"), "{made}");
    let again = bench.terret(&["auth", "init"]).await;
    assert_eq!(again.code, Some(1));
    let mut command = bench.command();
    command.args(["auth", "set", "anthropic"]);
    let set = finish(command, &format!("{secret}\n")).await;
    assert_eq!(set.code, Some(0), "{set:?}");
    let mut command = bench.command();
    command.args(["auth", "set", "antropic"]);
    let misspelt = finish(command, &secret).await;
    assert!(misspelt.stderr.contains("anthropic"), "{misspelt:?}");

    let config = bench.home().join("config");
    for file in ["credentials.json", "identity.txt"] {
        let mode = std::fs::metadata(config.join(file)).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    assert_nowhere(&config, &secret);
    for arguments in [
        &["auth", "list"][..],
        &["config", "show"],
        &["doctor"],
        &["-v", "-v", "doctor"],
    ] {
        let said = bench.terret(arguments).await;
        let text = format!("{said:?}");
        assert!(!text.contains(&secret), "{arguments:?}: {text}");
        if !arguments.contains(&"doctor") {
            assert!(text.contains("credentials.json"), "{arguments:?}: {text}");
        }
    }
    // The wrong key to the file is an error with its reason, and no other source is taken.
    let mut command = bench.command();
    command
        .env("TERRET_CREDENTIALS_KEY", key("wrong"))
        .args(["auth", "set", "openai"]);
    let wrong = finish(command, &key("other")).await;
    assert_eq!(wrong.code, Some(1));
    assert!(wrong.stderr.contains("was not encrypted for"), "{wrong:?}");
    // The doctor tries it, and does not believe that any key fits.
    let opened = |said: &Finished| said.stdout.contains("opened by");
    let healthy = bench.terret(&["doctor"]).await;
    assert!(opened(&healthy), "{healthy:?}");
    let mut command = bench.command();
    command
        .env("TERRET_CREDENTIALS_KEY", key("wrong"))
        .arg("doctor");
    let ill = finish(command, "").await;
    assert!(!opened(&ill), "{ill:?}");
    assert!(ill.stdout.contains("was not encrypted for"), "{ill:?}");
    assert_eq!(ill.code, Some(1), "{ill:?}");

    bench.terret(&["auth", "remove", "anthropic"]).await.ok();
    let listed = bench.terret(&["auth", "list"]).await.ok();
    assert!(
        listed.contains("anthropic: ANTHROPIC_API_KEY is not set"),
        "{listed}"
    );
}

#[tokio::test]
async fn a_keyring_that_cannot_be_used_is_said_with_the_way_out_and_no_source_takes_its_place() {
    let bench = Bench::saying("hi");
    let why = if cfg!(feature = "keyring") {
        "there is no session bus"
    } else {
        "--features keyring"
    };
    let without_desktop = |arguments: &[&str]| {
        let mut command = bench.command();
        command
            .env_remove("DBUS_SESSION_BUS_ADDRESS")
            .env_remove("XDG_RUNTIME_DIR")
            .args(arguments);
        command
    };
    let secret = key("ring");
    let set = finish(
        without_desktop(&["auth", "set", "--keyring", "anthropic"]),
        &secret,
    )
    .await;
    assert_eq!(set.code, Some(1), "{set:?}");
    assert!(set.stderr.contains(why), "{set:?}");
    assert!(
        set.stderr.contains("`terret auth set anthropic`"),
        "{set:?}"
    );
    assert!(!bench.home().join("config/credentials.json").exists());

    // One that was stored by another build, or before the desktop went away.
    let file = bench.home().join("config/credentials.json");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let content = json!({ "version": 1, "keys": {}, "keyring": ["anthropic"] });
    std::fs::write(&file, content.to_string()).unwrap();
    let listed = finish(without_desktop(&["auth", "list"]), "").await.ok();
    assert!(listed.contains("in the system keyring") || listed.contains("from the system keyring"));
    let run = finish(
        without_desktop(&["--model", "anthropic:m", "run", "hello"]),
        "",
    )
    .await;
    assert_ne!(run.code, Some(0), "{run:?}");
    assert!(format!("{run:?}").contains(why), "{run:?}");
    let removed = finish(without_desktop(&["auth", "remove", "anthropic"]), "").await;
    assert!(removed.stderr.contains("still there"), "{removed:?}");
    let listed = finish(without_desktop(&["auth", "list"]), "").await.ok();
    assert!(listed.contains("ANTHROPIC_API_KEY is not set"), "{listed}");
}

#[tokio::test]
async fn a_broken_file_of_keys_is_said_and_never_passed_over() {
    let bench = Bench::saying("hi");
    let config = bench.home().join("config");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(config.join("credentials.json"), "{ torn").unwrap();
    let mut command = bench.command();
    command.args(["--model", "anthropic:m", "run", "hello"]);
    let run = finish(command, "").await;
    assert_ne!(run.code, Some(0));
    let said = format!("{run:?}");
    assert!(
        said.contains("credentials.json") && said.contains("is not right"),
        "{said}"
    );
}

#[tokio::test]
async fn a_key_command_that_fails_is_named_and_its_output_is_not() {
    let bench = Bench::saying("hi");
    bench.configure(
        "[providers.vault]\nkind = \"openai\"\nbase_url = \"http://127.0.0.1:9/v1\"\nkey_command = [\"sh\", \"-c\", \"echo half-a-key; exit 7\"]\n",
    );
    let mut command = bench.command();
    command.args(["--model", "vault:m", "run", "hello"]);
    let run = finish(command, "").await;
    let said = format!("{run:?}");
    assert!(said.contains("`sh`") && said.contains('7'), "{said}");
    assert!(!said.contains("half-a-key"), "{said}");
}

#[tokio::test]
async fn a_bad_pattern_is_refused_at_load_with_its_text() {
    let bench = Bench::saying("hi");
    bench.configure("[redact]\npatterns = [\"fine[0-9]+\", \"(open\"]\n");
    let run = bench.terret_with_model(&["run", "hello"]).await;
    assert_eq!(run.code, Some(1));
    assert!(
        run.stderr.contains("redact.patterns") && run.stderr.contains("(open"),
        "{run:?}"
    );
    bench.configure("[redact]\npatterns = [\"acme[0-9]+\"]\nreplacement = \"<gone>\"\n");
    let run = bench
        .terret_with_model(&["run", "the code is acme4711"])
        .await;
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_nowhere(&bench.home().join("state"), "acme4711");
}

#[tokio::test]
async fn r137_everything_is_private_whatever_the_umask() {
    let bench = Bench::new(
        "",
        Script::new()
            .reply(Reply::on("^go$").call_as(
                "b1",
                "Bash",
                json!({ "command": "seq 1 60000; echo made > made" }),
            ))
            .reply(Reply::on("").say("done")),
    );
    // A home that nobody made before.
    let home = bench.workspace.beside().join("fresh");
    let script = format!(
        "umask 000; exec \"$0\" --home '{}' --model '{}' \"$@\"",
        home.display(),
        bench.model()
    );
    let inside = |arguments: &[&str]| {
        let mut command = Command::new("sh");
        command
            .arg("-c")
            .arg(&script)
            .arg(crate::support::TERRET)
            .args(arguments)
            .env_remove("TERRET_INSIDE")
            .env_remove("TERRET_CREDENTIALS_KEY")
            .env_remove("ANTHROPIC_API_KEY")
            .current_dir(bench.workspace.root());
        command
    };
    std::fs::create_dir_all(home.join("config")).unwrap();
    std::fs::set_permissions(home.join("config"), PermissionsExt::from_mode(0o700)).unwrap();
    std::fs::set_permissions(&home, PermissionsExt::from_mode(0o700)).unwrap();
    std::fs::write(
        home.join("config/config.toml"),
        format!(
            "[log]\nlevel = \"debug\"\nfile = \"{}/log.txt\"\n",
            home.display()
        ),
    )
    .unwrap();
    let given = home.join("config/config.toml");
    let init = process::run(inside(&["auth", "init"]), PATIENCE).await;
    assert!(init.unwrap().status.success());
    assert_eq!(
        finish(inside(&["auth", "set", "openai"]), &key("k"))
            .await
            .code,
        Some(0)
    );
    let editor = spawn(inside(&["acp"]), PermissionPolicy::AllowOnce);
    editor.initialize().await.unwrap();
    let session = editor.new_session(bench.workspace.root()).await.unwrap();
    editor.prompt(&session, "go").await.unwrap();
    let listed = process::run(inside(&["sessions", "list"]), PATIENCE).await;
    assert!(listed.unwrap().status.success());
    // Looked at while it runs, so that sockets and locks are there.
    let found = files(&home);
    assert!(found.len() > 8, "{found:?}");
    // What a sandbox makes as places to mount on lies behind a private folder.
    let behind = home.join("cache/outputs");
    let is_shown = |path: &&std::path::PathBuf| {
        path.strip_prefix(&behind)
            .is_ok_and(|inside| inside.components().count() > 2)
    };
    for path in found
        .iter()
        .filter(|path| **path != given && !is_shown(path))
    {
        let metadata = std::fs::symlink_metadata(path).unwrap();
        assert_eq!(
            metadata.mode() & 0o077,
            0,
            "{} is open to others: {:o}",
            path.display(),
            metadata.mode()
        );
    }
    editor.finish().await.unwrap();
    // The person's own files keep the person's umask.
    let made = std::fs::metadata(bench.workspace.path("made")).unwrap();
    assert_eq!(made.mode() & 0o777, 0o666);
}
