//! `terret sessions`: list, show, search, export, import, verify; and what is wrong.

use std::process::Stdio;

use serde_json::{Value, json};
use terret_fixtures::{PermissionPolicy, Reply, Script};

use crate::support::{Bench, Finished, PATIENCE};

/// A bench with one session of one turn; gives its id.
async fn told() -> (Bench, String) {
    let bench = Bench::new(
        "//- a.txt\nalpha\n",
        Script::new()
            .reply(
                Reply::on("kingfisher")
                    .say("I look.")
                    .call("Read", json!({"file_path": "a.txt"})),
            )
            .reply(Reply::on("").say("It says alpha.")),
    );
    bench
        .terret_with_model(&["run", "what about the kingfisher"])
        .await
        .ok();
    let listed = bench.terret(&["sessions", "list", "--json"]).await.ok();
    let row: Value = serde_json::from_str(listed.trim()).unwrap();
    (bench, row["id"].as_str().unwrap().to_owned())
}

fn fails(finished: &Finished, words: &[&str]) {
    assert_eq!(finished.code, Some(1), "{finished:?}");
    for word in words {
        assert!(
            finished.stderr.contains(word),
            "no `{word}` in {finished:?}"
        );
    }
    assert_eq!(finished.stderr.lines().count(), 1, "{finished:?}");
}

#[tokio::test]
async fn without_sessions_nothing_is_an_error() {
    let bench = Bench::saying("never");
    assert_eq!(
        bench.terret(&["sessions", "list"]).await.ok(),
        "No sessions yet.\n"
    );
    assert_eq!(
        bench.terret(&["sessions", "search", "x"]).await.ok(),
        "Nothing found.\n"
    );
    assert_eq!(
        bench.terret(&["sessions", "verify"]).await.ok(),
        "No sessions yet.\n"
    );
    assert_eq!(bench.terret(&["inbox"]).await.ok(), "Nothing waits.\n");
}

#[tokio::test]
async fn a_session_is_listed_shown_and_found() {
    let (bench, id) = told().await;
    let root = bench.workspace.root().display().to_string();
    let listed = bench.terret(&["sessions", "list"]).await.ok();
    for word in [&id, "kingfisher", &root] {
        assert!(listed.contains(word), "{listed}");
    }
    let here = bench.terret(&["sessions", "list", "--cwd", "."]).await.ok();
    assert_eq!(here, listed);
    let elsewhere = bench
        .terret(&["sessions", "list", "--cwd", "/elsewhere"])
        .await
        .ok();
    assert_eq!(elsewhere, "No sessions in /elsewhere.\n");
    // By the whole id, and by a beginning of it.
    for name in [&id[..], &id[..id.len() - 3]] {
        let shown = bench.terret(&["sessions", "show", name]).await.ok();
        for word in ["> what about the kingfisher", "I look.", "* Read", "alpha"] {
            assert!(shown.contains(word), "{shown}");
        }
    }
    let events = bench.events(&id).await;
    assert_eq!(events[0]["type"], "session/created");
    let found = bench
        .terret(&["sessions", "search", "kingfisher"])
        .await
        .ok();
    assert!(found.contains(&id), "{found}");
}

#[tokio::test]
async fn a_wrong_id_names_the_way_out() {
    let (bench, id) = told().await;
    bench
        .terret_with_model(&["run", "a second kingfisher"])
        .await
        .ok();
    for command in ["show", "export", "verify"] {
        for wrong in ["nothing", "../../etc/passwd", ""] {
            let finished = bench.terret(&["sessions", command, wrong]).await;
            let word = if wrong.is_empty() {
                "write more"
            } else {
                "terret sessions list"
            };
            fails(&finished, &[word]);
        }
        // Both ids begin with the same time.
        let finished = bench.terret(&["sessions", command, &id[..4]]).await;
        fails(&finished, &["2 sessions", "write more"]);
    }
}

#[tokio::test]
async fn a_session_goes_from_one_home_to_another() {
    let (bench, id) = told().await;
    let file = bench.workspace.beside().join("session.terret");
    let path = file.to_str().unwrap();
    bench
        .terret(&["sessions", "export", &id, "--output", path])
        .await
        .ok();
    fails(
        &bench
            .terret(&["sessions", "export", &id, "--output", path])
            .await,
        &["must not exist"],
    );
    let other = Bench::saying("hello");
    assert_eq!(
        other.terret(&["sessions", "import", path]).await.ok(),
        format!("{id}\n")
    );
    assert_eq!(other.events(&id).await, bench.events(&id).await);
    let verified = other.terret(&["sessions", "verify"]).await.ok();
    assert!(verified.contains("are whole"), "{verified}");
    // Its id is taken, so that a second one gets one of its own.
    let again = other.terret(&["sessions", "import", path]).await.ok();
    assert_ne!(again.trim(), id);
    let verified = other.terret(&["sessions", "verify"]).await.ok();
    assert_eq!(verified.matches("are whole").count(), 2, "{verified}");
    assert!(verified.lines().is_sorted(), "{verified}");
    // Through pipes.
    let third = Bench::saying("hello");
    let exported = bench.terret(&["sessions", "export", &id]).await.ok();
    let imported = third
        .terret_fed(&["sessions", "import", "-"], &exported)
        .await
        .ok();
    assert_eq!(imported, format!("{id}\n"));
    for wrong in ["", "no session", "{\"v\":1}\n"] {
        let refused = third.terret_fed(&["sessions", "import", "-"], wrong).await;
        fails(&refused, &[]);
    }
    fails(
        &third.terret(&["sessions", "import", "nowhere.file"]).await,
        &["nowhere.file"],
    );
}

#[tokio::test]
async fn a_flipped_byte_is_found_and_named() {
    let (bench, id) = told().await;
    let path = bench.log_file(&id);
    let text = std::fs::read_to_string(&path).unwrap();
    let line = text
        .lines()
        .position(|line| line.contains("I look."))
        .unwrap();
    std::fs::write(&path, text.replacen("I look.", "I took.", 1)).unwrap();
    let finished = bench.terret(&["sessions", "verify"]).await;
    fails(&finished, &["1 of 1"]);
    assert!(
        finished.stdout.contains(&format!("{id}: event {line}")),
        "{line} {finished:?}"
    );
    // What comes before it is shown, and no command is promised that there is not.
    let shown = bench.terret(&["sessions", "show", &id]).await;
    fails(&shown, &[&format!("event {line}"), "can still be read"]);
    assert!(
        shown.stdout.contains("> what about the kingfisher"),
        "{shown:?}"
    );
    for word in ["fork", "salvage"] {
        assert!(!shown.stderr.contains(word), "{shown:?}");
    }
    // The others can still be listed and read, and this one is named in the list.
    let listed = bench.terret(&["sessions", "list"]).await.ok();
    assert!(listed.contains(&id), "{listed}");
    assert_eq!(
        bench
            .terret(&["sessions", "show", "--json", &id])
            .await
            .code,
        Some(0)
    );
    let editor = bench.editor(PermissionPolicy::AllowOnce).await;
    let error = editor
        .load_session(&id, bench.workspace.root())
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("damaged") || error.contains("chain"),
        "{error}"
    );
    // A damaged session is in nobody's way.
    let session = editor.new_session(bench.workspace.root()).await.unwrap();
    editor.prompt(&session, "hi").await.unwrap();
}

#[tokio::test]
async fn a_reader_that_leaves_is_no_error() {
    let (bench, id) = told().await;
    let path = bench.log_file(&id);
    assert!(path.exists());
    for arguments in [
        &["sessions", "show", "--json", &id][..],
        &["sessions", "list"],
        &["sessions", "verify"],
        &["sessions", "export", &id],
        &["config", "show"],
        &["doctor"],
        &["--help"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = bench.command();
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(writer)
            .stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        drop(command);
        let output = tokio::time::timeout(PATIENCE, child.wait_with_output())
            .await
            .unwrap()
            .unwrap();
        let finished = Finished::of(output);
        assert_eq!(finished.stderr, "", "{arguments:?}");
        assert_eq!(finished.code, Some(0), "{arguments:?}");
    }
}

#[tokio::test]
async fn what_is_shown_cannot_drive_the_terminal() {
    let bench = Bench::saying("a\u{1b}]0;title\u{7}b");
    bench.terret_with_model(&["run", "x\u{1b}[2Jy"]).await.ok();
    let listed = bench.terret(&["sessions", "list"]).await.ok();
    let found = bench.terret(&["sessions", "search", "title"]).await.ok();
    let rows = bench.terret(&["sessions", "list", "--json"]).await.ok();
    let id: Value = serde_json::from_str(rows.trim()).unwrap();
    let shown = bench
        .terret(&["sessions", "show", id["id"].as_str().unwrap()])
        .await
        .ok();
    for text in [listed, found, shown] {
        assert!(
            !text.contains('\u{1b}') && !text.contains('\u{7}'),
            "{text:?}"
        );
    }
}

#[tokio::test]
async fn every_argument_says_what_it_is() {
    let bench = Bench::saying("never");
    for command in [
        &["sessions", "show"][..],
        &["sessions", "search"],
        &["sessions", "list"],
        &["sessions", "export"],
        &["sessions", "import"],
        &["sessions", "verify"],
        &["inbox", "list"],
        &["inbox", "approve"],
        &["inbox", "reject"],
        &["run"],
        &["demo"],
    ] {
        let mut arguments = command.to_vec();
        arguments.push("-h");
        let help = bench.terret(&arguments).await.ok();
        let listed = help
            .lines()
            .map(str::trim)
            .filter(|line| line.starts_with(['-', '<', '[']));
        for line in listed {
            // The name and what it means stand in two columns.
            let text = line.rsplit("  ").next().unwrap_or_default();
            assert!(
                text.starts_with(char::is_uppercase),
                "{command:?}: {line}\n{help}"
            );
        }
    }
}
