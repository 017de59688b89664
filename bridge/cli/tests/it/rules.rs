//! Rules as people keep them: by `terret rules`, by `/rules`, in files; and what a running
//! session makes of a change.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use terret_fixtures::{Frame, PermissionPolicy, Reply, Script, ScriptedEditor, process};

use crate::support::{Bench, Finished, PATIENCE, count, last};

/// What is asked for without a rule, and can be looked for afterwards.
const COMMAND: &str = "touch made";
const RULE: &str = "Bash(touch made)";

/// A model that runs the command at each `go`.
fn bench() -> Bench {
    running(&[("^go$", COMMAND)]).unconfined()
}

/// A model that runs a command at each prompt that fits.
fn running(commands: &[(&str, &str)]) -> Bench {
    let mut script = Script::new();
    for (place, (prompt, command)) in commands.iter().enumerate() {
        let call = json!({ "command": command });
        script = script.reply(Reply::on(prompt).call_as(&format!("c{place}"), "Bash", call));
    }
    Bench::new("", script.reply(Reply::on("").say("Done.")))
}

fn questions(editor: &ScriptedEditor) -> usize {
    let asked =
        |frame: &&Frame| frame.is_request() && frame.method() == Some("session/request_permission");
    editor.transcript().frames.iter().filter(asked).count()
}

/// Runs a prompt to its end, and says how often was asked meanwhile.
async fn asked_at(editor: &ScriptedEditor, session: &str, text: &str) -> usize {
    let before = questions(editor);
    let answer = editor.prompt(session, text).await.unwrap();
    assert_eq!(answer["stopReason"], "end_turn");
    questions(editor) - before
}

/// What a slash command answers.
async fn said(bench: &Bench, editor: &ScriptedEditor, session: &str, command: &str) -> String {
    editor.prompt(session, command).await.unwrap();
    let events = bench.events(session).await;
    last(&events, "notice/shown")["text"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// The rules of the list for programs that are no part of Terret.
async fn listed(bench: &Bench, arguments: &[&str]) -> Vec<Value> {
    let mut all = vec!["rules", "list", "--json"];
    all.extend(arguments);
    let rows = bench.terret(&all).await.ok();
    rows.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|row: &Value| row["scope"] != "built in")
        .collect()
}

/// The project's file of rules, as the list names it.
async fn project_file(bench: &Bench) -> PathBuf {
    let rows = listed(bench, &[]).await;
    let row = rows.iter().find(|row| row["scope"] == "project").unwrap();
    PathBuf::from(row["kept"].as_str().unwrap())
}

#[tokio::test]
async fn a_running_session_goes_by_a_rule_that_is_added_and_asks_again_when_it_is_revoked() {
    let bench = bench();
    let (editor, session) = bench.session(PermissionPolicy::RejectOnce).await;
    assert_eq!(asked_at(&editor, &session, "go").await, 1);
    assert!(bench.workspace.read("made").is_err());

    let added = bench.terret(&["rules", "add", RULE]).await.ok();
    assert!(added.starts_with(&format!("allow: {RULE} in ")), "{added}");
    assert_eq!(asked_at(&editor, &session, "go").await, 0);
    assert!(bench.workspace.path("made").exists());
    let events = bench.events(&session).await;
    let allowed = &last(&events, "tool/started")["allowed"];
    assert_eq!(
        (&allowed["layer"], &allowed["rule"]),
        (&json!("project"), &json!(RULE))
    );

    // The list knows of the use.
    let rows = listed(&bench, &[]).await;
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(rows[0]["uses"], 1);
    assert_eq!(rows[0]["origin"], "terret rules add");
    assert!(rows[0]["last_used_at"].as_u64() >= rows[0]["added_at"].as_u64());

    let revoked = bench.terret(&["rules", "revoke", "1"]).await.ok();
    assert_eq!(revoked, format!("revoked: allow {RULE} (project)\n"));
    assert_eq!(asked_at(&editor, &session, "go").await, 1);
    assert_eq!(listed(&bench, &[]).await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_rule_of_the_user_keeps_the_comments_and_holds_in_a_new_process() {
    let bench = bench();
    let text = "# mine\nmode = \"ask\" # as ever\n\n[policy] # all of it\nallow = [\n    \"Bash(ls)\", # looks\n]\n";
    bench.configure(text);
    let config = bench.home().join("config/config.toml");
    let before = std::fs::read_to_string(&config).unwrap();
    bench.terret(&["rules", "add", "--user", RULE]).await.ok();
    let after = std::fs::read_to_string(&config).unwrap();
    for line in before.lines() {
        assert!(after.contains(line), "`{line}` is kept in {after}");
    }
    let (editor, session) = bench.session(PermissionPolicy::RejectOnce).await;
    assert_eq!(asked_at(&editor, &session, "go").await, 0);
    bench
        .terret(&["rules", "revoke", "--user", RULE])
        .await
        .ok();
    assert_eq!(std::fs::read_to_string(&config).unwrap(), before);
}

#[tokio::test]
async fn r009_what_always_granted_is_listed_and_taken_back_in_the_session() {
    let bench = bench();
    let (editor, session) = bench.session(PermissionPolicy::AllowAlways).await;
    assert_eq!(asked_at(&editor, &session, "go").await, 1);
    assert_eq!(asked_at(&editor, &session, "go").await, 0);
    let list = said(&bench, &editor, &session, "/rules").await;
    assert!(
        list.contains(&format!("- 1: allow `{RULE}` (session)")),
        "{list}"
    );
    for part in ["approval ", "UTC", "; used ", "/rules revoke N"] {
        assert!(list.contains(part), "`{part}` in {list}");
    }
    // The same list from outside, with the session's own; numbers are of what can be
    // revoked there, whether a session is named or not.
    bench
        .terret(&["rules", "add", "--user", "Bash(ls)"])
        .await
        .ok();
    let rows = listed(&bench, &["--session", &session]).await;
    assert_eq!(rows[0]["number"], Value::Null);
    assert_eq!(
        (&rows[1]["rule"], &rows[1]["number"]),
        (&json!("Bash(ls)"), &json!(1))
    );
    assert_eq!(rows[0]["rule"], RULE);
    assert_eq!(rows[0]["scope"], "session");
    assert!(rows[0]["uses"].as_u64() >= Some(1), "{rows:?}");
    let wrong = said(&bench, &editor, &session, "/rules revoke 7").await;
    assert!(wrong.contains("no rule 7"), "{wrong}");
    let gone = said(&bench, &editor, &session, "/rules revoke 1").await;
    assert!(gone.starts_with("Revoked: allow"), "{gone}");
    let list = said(&bench, &editor, &session, "/rules").await;
    assert!(!list.contains(RULE), "{list}");
    assert_eq!(asked_at(&editor, &session, "go").await, 1);
    let events = bench.events(&session).await;
    assert_eq!(count(&events, "rule/removed"), 1);
}

#[tokio::test]
async fn r009_a_grant_for_the_project_outlives_a_restart_and_is_taken_back() {
    let bench = bench();
    let (editor, session) = bench.session(PermissionPolicy::Never).await;
    let prompt = editor.start_prompt(&session, "go").await.unwrap();
    editor.wait_permission(0).await.unwrap();
    bench
        .terret(&["inbox", "approve", "--project", &session])
        .await
        .ok();
    editor.response(prompt).await.unwrap();
    editor.finish().await.unwrap();

    let (editor, session) = bench.session(PermissionPolicy::RejectOnce).await;
    assert_eq!(asked_at(&editor, &session, "go").await, 0);
    let list = said(&bench, &editor, &session, "/rules").await;
    assert!(
        list.contains(&format!("`{RULE}` (project); from approval ")),
        "{list}"
    );
    // Every rule that was granted, and none that a person wrote.
    bench
        .terret(&["rules", "add", "--user", "Bash(ls)"])
        .await
        .ok();
    bench
        .terret(&["rules", "add", "--deny", "Bash(rm:*)"])
        .await
        .ok();
    let gone = said(&bench, &editor, &session, "/rules revoke all").await;
    assert!(gone.contains(RULE), "{gone}");
    let left: Vec<Value> = listed(&bench, &[]).await;
    let left: Vec<&str> = left
        .iter()
        .map(|row| row["rule"].as_str().unwrap())
        .collect();
    assert_eq!(left, ["Bash(rm:*)", "Bash(ls)"]);
    assert_eq!(asked_at(&editor, &session, "go").await, 1);
    // A rule of the user goes at once, too.
    let gone = said(&bench, &editor, &session, "/rules revoke Bash(ls)").await;
    assert!(gone.contains("(user)"), "{gone}");
    assert_eq!(listed(&bench, &[]).await.len(), 1);
}

#[tokio::test]
async fn r006_a_grant_for_a_quoted_star_covers_that_command_alone() {
    let bench = running(&[
        ("^one$", "grep 'a*' f"),
        ("^two$", "grep 'a; rm -rf x' f"),
        ("^three$", "grep 'abc' g"),
    ])
    .unconfined();
    let (editor, session) = bench.session(PermissionPolicy::AllowAlways).await;
    assert_eq!(asked_at(&editor, &session, "one").await, 1);
    editor.set_permission(PermissionPolicy::RejectOnce);
    let covered = asked_at(&editor, &session, "one").await == 0;
    let rows = listed(&bench, &["--session", &session]).await;
    // Where a rule was offered for it, it covers this and no other.
    assert_eq!(covered, !rows.is_empty(), "{rows:?}");
    assert_eq!(asked_at(&editor, &session, "two").await, 1);
    assert_eq!(asked_at(&editor, &session, "three").await, 1);
}

#[tokio::test]
async fn r079_only_an_answer_for_always_changes_what_is_kept() {
    let bench = bench();
    bench.configure("[policy]\nallow = [\"Bash(ls)\"]\n");
    bench.terret(&["rules", "add", "Bash(pwd)"]).await.ok();
    let files = [
        project_file(&bench).await,
        bench.home().join("config/config.toml"),
    ];
    let bytes = || -> Vec<Vec<u8>> {
        let read = |path: &PathBuf| std::fs::read(path).unwrap();
        files.iter().map(read).collect()
    };
    let before = bytes();
    let (editor, session) = bench.session(PermissionPolicy::AllowOnce).await;
    for policy in [
        PermissionPolicy::AllowOnce,
        PermissionPolicy::RejectOnce,
        PermissionPolicy::Cancelled,
        PermissionPolicy::UnknownOption,
        PermissionPolicy::Error,
    ] {
        editor.set_permission(policy.clone());
        let before_questions = questions(&editor);
        editor.prompt(&session, "go").await.unwrap();
        assert_eq!(questions(&editor) - before_questions, 1, "{policy:?}");
        assert_eq!(bytes(), before, "{policy:?}");
    }
    let events = bench.events(&session).await;
    assert_eq!(count(&events, "rule/added"), 0);
    // For the session alone: the log has it, and no file.
    editor.set_permission(PermissionPolicy::AllowAlways);
    assert_eq!(asked_at(&editor, &session, "go").await, 1);
    assert_eq!(bytes(), before);
    assert_eq!(count(&bench.events(&session).await, "rule/added"), 1);
}

#[tokio::test]
async fn two_processes_add_at_once_and_both_are_kept() {
    let bench = bench();
    for layer in ["--project", "--user"] {
        let add = async |name: &str| {
            let rule = format!("Bash({name})");
            let mut command = bench.command();
            command.args(["rules", "add", layer, &rule]);
            Finished::of(process::run(command, PATIENCE).await.unwrap()).ok();
        };
        tokio::join!(add("a1"), add("a2"), add("a3"), add("a4"));
    }
    let rows = listed(&bench, &[]).await;
    for scope in ["project", "user"] {
        let mut rules: Vec<&str> = rows
            .iter()
            .filter(|row| row["scope"] == scope)
            .map(|row| row["rule"].as_str().unwrap())
            .collect();
        rules.sort_unstable();
        assert_eq!(rules, ["Bash(a1)", "Bash(a2)", "Bash(a3)", "Bash(a4)"]);
    }
}

#[tokio::test]
async fn nobody_changes_rules_from_inside_the_agent() {
    let bench = bench();
    bench.terret(&["rules", "add", "Bash(ls)"]).await.ok();
    for arguments in [
        &["rules", "add", RULE][..],
        &["rules", "add", "--user", RULE],
        &["rules", "add", "--deny", RULE],
        &["rules", "revoke", "1"],
        &["rules", "revoke", "Bash(ls)"],
    ] {
        let mut command = bench.command();
        command.env("TERRET_INSIDE", "1").args(arguments);
        let refused = Finished::of(process::run(command, PATIENCE).await.unwrap());
        assert_eq!(refused.code, Some(1), "{arguments:?}");
        assert!(refused.stderr.contains("inside"), "{refused:?}");
    }
    assert_eq!(listed(&bench, &[]).await.len(), 1);
    assert!(!bench.home().join("config/config.toml.new").exists());
}

#[tokio::test]
async fn the_first_word_of_a_test_is_the_decision() {
    let bench = bench();
    let test = async |arguments: &[&str]| {
        let mut all = vec!["rules", "test"];
        all.extend(arguments);
        bench.terret(&all).await
    };
    for (arguments, word, rule) in [
        (
            &["--allow", "Bash(cargo test:*)", "cargo test x"][..],
            "allow",
            "Bash(cargo test:*)",
        ),
        (&["--allow", "Bash(cargo test:*)", "cargo testx"], "ask", ""),
        (&["--allow", "Bash(cargo test)", "cargo test x"], "ask", ""),
        (
            &[
                "--allow",
                "Bash(git:*)",
                "--deny",
                "Bash(git push:*)",
                "git push -f",
            ],
            "deny",
            "Bash(git push:*)",
        ),
        (
            &[
                "--allow",
                "Bash(git:*)",
                "--ask",
                "Bash(git push:*)",
                "git push -f",
            ],
            "ask",
            "Bash(git push:*)",
        ),
        (&["--allow", "Bash(echo:*)", "echo $(touch bad)"], "ask", ""),
        (&["--allow", "Bash(echo:*)", "echo a; rm b"], "ask", ""),
        (
            &[
                "--allow",
                "Bash(cargo test:*)",
                "--mode",
                "plan",
                "cargo test",
            ],
            "deny",
            "",
        ),
        (
            &["--tool", "Read", "--args", "{\"file_path\": \"a.txt\"}"],
            "allow",
            "",
        ),
        (
            &[
                "--deny",
                "Read(secret/**)",
                "--tool",
                "Read",
                "--args",
                "{\"file_path\": \"secret/a\"}",
            ],
            "deny",
            "Read(secret/**)",
        ),
        (
            &[
                "--tool",
                "Write",
                "--args",
                "{\"file_path\": \"a\", \"content\": \"b\"}",
            ],
            "ask",
            "",
        ),
        (
            &[
                "--mode",
                "edits",
                "--tool",
                "Write",
                "--args",
                "{\"file_path\": \"a\", \"content\": \"b\"}",
            ],
            "allow",
            "",
        ),
    ] {
        let out = test(arguments).await.ok();
        assert_eq!(
            out.split_whitespace().next(),
            Some(word),
            "{arguments:?}: {out}"
        );
        assert!(out.contains(rule), "{arguments:?}: {out}");
        assert!(out.lines().count() > 1, "it says why: {out}");
    }
    for unusable in [
        &[][..],
        &["--allow", "Bash(", "ls"],
        &["--mode", "never", "ls"],
        &["--tool", "Nothing", "--args", "{}"],
        &["--tool", "Read", "--args", "{"],
        &["--tool", "Read", "--args", "{\"path\": 1}"],
        &["--cwd", "not-there", "ls"],
    ] {
        let out = test(unusable).await;
        assert_eq!(out.code, Some(2), "{unusable:?}: {out:?}");
        assert!(!out.stderr.is_empty(), "{unusable:?}");
        assert_eq!(out.stdout, "", "{unusable:?}");
    }
    // Nothing was run by any of it.
    assert!(bench.workspace.read("bad").is_err());
}

#[tokio::test]
async fn a_test_without_rules_goes_by_those_in_force() {
    let bench = bench();
    let word = async || {
        let out = bench.terret(&["rules", "test", COMMAND]).await.ok();
        out.split_whitespace().next().unwrap().to_owned()
    };
    assert_eq!(word().await, "ask");
    bench.terret(&["rules", "add", RULE]).await.ok();
    assert_eq!(word().await, "allow");
    bench
        .terret(&["rules", "add", "--user", "--deny", "Bash(touch:*)"])
        .await
        .ok();
    assert_eq!(word().await, "deny");
    bench
        .terret(&["rules", "revoke", "Bash(touch:*)"])
        .await
        .ok();
    // Another folder is another project.
    let elsewhere = bench.workspace.beside().join("elsewhere");
    std::fs::create_dir_all(&elsewhere).unwrap();
    let out = bench
        .terret(&[
            "rules",
            "test",
            "--cwd",
            elsewhere.to_str().unwrap(),
            COMMAND,
        ])
        .await
        .ok();
    assert!(out.starts_with("ask\n"), "{out}");
}

#[tokio::test]
async fn an_expired_rule_counts_for_nothing_and_is_shown_as_expired() {
    let bench = bench();
    bench.configure(&format!(
        "[policy]\nallow = [{{ rule = \"{RULE}\", expires = 2020-01-31 }}]\n"
    ));
    let (editor, session) = bench.session(PermissionPolicy::RejectOnce).await;
    assert_eq!(asked_at(&editor, &session, "go").await, 1);
    let list = bench.terret(&["rules", "list"]).await.ok();
    assert!(list.contains("expired 2020-01-31 23:59:59 UTC"), "{list}");
    let out = bench.terret(&["rules", "test", COMMAND]).await.ok();
    assert!(out.starts_with("ask\n"), "{out}");
    let late = bench
        .terret(&["rules", "add", "--expires", "2020-01-31", RULE])
        .await;
    assert!(late.stderr.contains("expired already"), "{late:?}");
    bench
        .terret(&["rules", "add", "--for", "8h", RULE])
        .await
        .ok();
    let rows = listed(&bench, &[]).await;
    let row = rows.iter().find(|row| row["scope"] == "project").unwrap();
    let length = row["expires_at"].as_u64().unwrap() - row["added_at"].as_u64().unwrap();
    assert_eq!(length, 8 * 3_600_000);
    assert_eq!(asked_at(&editor, &session, "go").await, 0);
}

#[tokio::test]
async fn settings_of_claude_code_count_where_the_configuration_names_them() {
    let bench = bench();
    let own = bench.workspace.beside().join("settings.json");
    let settings = |path: &Path, permissions: Value| {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, json!({ "permissions": permissions }).to_string()).unwrap();
    };
    settings(
        &own,
        json!({"allow": ["Bash(touch made)", "Bash("], "deny": ["Bash(rm:*)"]}),
    );
    settings(
        &bench.workspace.path(".claude/settings.json"),
        json!({"allow": ["Bash(make)"], "ask": ["Bash(touch other)"]}),
    );
    let word = async |line: &str| {
        let out = bench.terret(&["rules", "test", line]).await.ok();
        out.split_whitespace().next().unwrap().to_owned()
    };
    assert_eq!(word(COMMAND).await, "ask", "nothing counts by itself");
    bench.configure(&format!(
        "[policy]\nallow = [\"Bash(touch other)\"]\nclaude_settings = [{}, \".claude/settings.json\"]\n",
        json!(own)
    ));
    assert_eq!(word(COMMAND).await, "allow");
    assert_eq!(word("rm x").await, "deny");
    // What a repository brings narrows, and allows nothing.
    assert_eq!(word("make").await, "ask");
    assert_eq!(word("touch other").await, "ask");
    let list = bench.terret(&["rules", "list"]).await.ok();
    assert!(list.contains("not taken over from"), "{list}");
    let brought = list.find("Bash(make)").unwrap();
    assert!(
        list[brought..].contains("not in force until that file is trusted"),
        "{list}"
    );
    let kept = bench.terret(&["rules", "revoke", "Bash(rm:*)"]).await;
    assert_eq!(kept.code, Some(1));
    assert!(kept.stderr.contains("settings.json"), "{kept:?}");
    // The one question is whether to trust what the repository brings.
    let (editor, session) = bench.session(PermissionPolicy::RejectOnce).await;
    assert_eq!(asked_at(&editor, &session, "go").await, 1);
    assert!(bench.workspace.path("made").exists());
}

#[tokio::test]
async fn a_replay_tells_what_rules_would_have_saved_and_let_through() {
    let bench = running(&[
        ("^one$", "make one"),
        ("^two$", "make two"),
        ("^rm$", "rm precious"),
        ("^touch$", "touch made"),
    ])
    .unconfined();
    let none = bench.terret(&["rules", "replay"]).await.ok();
    assert!(none.starts_with("0 calls in 0 sessions"), "{none}");
    let (editor, session) = bench.session(PermissionPolicy::AllowOnce).await;
    for prompt in ["one", "two", "one", "touch"] {
        assert_eq!(asked_at(&editor, &session, prompt).await, 1);
    }
    editor.set_permission(PermissionPolicy::RejectOnce);
    assert_eq!(asked_at(&editor, &session, "rm").await, 1);
    editor.finish().await.unwrap();
    let log = std::fs::read(bench.log_file(&session)).unwrap();

    let replay = async |arguments: &[&str]| -> Value {
        let mut all = vec!["rules", "replay", "--json"];
        all.extend(arguments);
        serde_json::from_str(&bench.terret(&all).await.ok()).unwrap()
    };
    let plain = replay(&[]).await;
    assert_eq!(
        (
            &plain["calls"],
            &plain["asked"],
            &plain["refused"],
            &plain["remaining"]
        ),
        (&json!(5), &json!(5), &json!(1), &json!(5)),
        "{plain}"
    );
    assert_eq!(
        plain["suggestions"],
        json!([{"rule": "Bash(make:*)", "saved": 3, "different": 2}])
    );
    let proposed = replay(&["--rule", "Bash(make:*)", "--allow", "Bash(rm:*)"]).await;
    assert_eq!(
        (&proposed["saved"], &proposed["remaining"]),
        (&json!(4), &json!(1))
    );
    let through = &proposed["let_through"];
    assert_eq!(through["calls"], 4);
    let rm = through["different"]
        .as_array()
        .unwrap()
        .iter()
        .find(|call| call["subject"] == "rm precious")
        .unwrap();
    assert_eq!(rm["refused"], true);
    let denied = replay(&["--deny", "Bash(touch:*)", "--session", &session]).await;
    assert_eq!(denied["newly_denied"]["calls"], 1);
    // A rule that was added meanwhile is counted as such.
    bench.terret(&["rules", "add", "Bash(make one)"]).await.ok();
    let now = replay(&["--ask", "Bash(make:*)"]).await;
    assert_eq!(now["saved_now"], 2);
    assert_eq!(now["newly_asked"]["calls"], 2);
    let words = bench
        .terret(&["rules", "replay", "--allow", "Bash(rm:*)"])
        .await
        .ok();
    for part in [
        "5 calls in 1 session",
        "YOU REFUSED THIS",
        "newly let through: 1 call",
        "prompts that remain: 2",
    ] {
        assert!(words.contains(part), "`{part}` in {words}");
    }
    assert_eq!(std::fs::read(bench.log_file(&session)).unwrap(), log);
    assert!(bench.workspace.read("precious").is_err());
}

#[tokio::test]
async fn r074_a_grant_that_cannot_be_kept_holds_for_the_session_and_is_told() {
    let bench = bench();
    let (editor, session) = bench.session(PermissionPolicy::Never).await;
    // In the place of the folder, since root may write everywhere.
    let blocked = bench.home().join("state/projects");
    std::fs::write(&blocked, "").unwrap();
    let mark = editor.mark();
    let prompt = editor.start_prompt(&session, "go").await.unwrap();
    editor.wait_permission(mark).await.unwrap();
    bench
        .terret(&["inbox", "approve", "--project", &session])
        .await
        .ok();
    editor.response(prompt).await.unwrap();
    assert!(bench.workspace.path("made").exists(), "the call ran once");
    assert_eq!(asked_at(&editor, &session, "go").await, 0);
    let events = bench.events(&session).await;
    let told: Vec<&str> = events
        .iter()
        .filter(|event| event["type"] == "notice/shown")
        .map(|event| event["payload"]["text"].as_str().unwrap())
        .collect();
    assert_eq!(told.len(), 1, "{told:?}");
    for part in [RULE, blocked.to_str().unwrap(), "directory"] {
        assert!(told[0].contains(part), "`{part}` in {told:?}");
    }
    // It can be taken back like any other of the session.
    std::fs::remove_file(&blocked).unwrap();
    let gone = said(&bench, &editor, &session, "/rules revoke 1").await;
    assert!(gone.contains("(session)"), "{gone}");
    assert_eq!(questions(&editor), 1);
}
