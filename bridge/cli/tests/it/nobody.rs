//! Nobody approves themselves (`design.md §4 Permissions`): every way that a command or a job
//! of the agent has to decide about the agent, tried for real, with a sandbox and without.
//!
//! Without a sandbox this is a fence: a command that runs as the user can write the user's
//! files, which is why it is asked for. What is held there is the socket and the command line.

use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::{Value, json};
use terret_fixtures::{PermissionPolicy, Reply, Script, ScriptedEditor};

use crate::support::{Bench, PATIENCE, TERRET, last};

/// How a command hides where it comes from, around the command line that decides.
const DISGUISES: [(&str, &str); 5] = [
    ("as it is", "DECIDE"),
    ("without the mark", "env -u TERRET_INSIDE DECIDE"),
    ("without any variable", "env -i DECIDE"),
    ("in a session of its own", "env -i setsid --wait DECIDE"),
    (
        "without its parents",
        "env -i sh -c 'setsid sh -c \"exec >/dev/null 2>&1; (sleep 0.1; DECIDE) & exit\" & exit'",
    ),
];

/// What an agent would like to decide.
const DECISIONS: [&str; 8] = [
    "inbox approve PREY",
    "rules add --user 'Bash(rm:*)'",
    "rules add --project 'Bash(rm:*)'",
    "trust allow .",
    "trust refuse .",
    "trust forget .",
    "auth init",
    "jobs stop j1",
];

/// The program where a command can reach it, beside what it needs to be run.
fn program(bench: &Bench) -> PathBuf {
    let link = bench.workspace.path("terret");
    if std::fs::hard_link(TERRET, &link).is_err() {
        std::fs::copy(TERRET, &link).unwrap();
    }
    link
}

/// One script that tries everything in one disguise. Each attempt leaves its words and its
/// status in files of its own; the last file says that all is over.
fn attempts(bench: &Bench, program: &Path, disguise: &str, prey: &str) -> String {
    let mut script = String::new();
    for (number, decision) in DECISIONS.iter().enumerate() {
        let decide = format!(
            "{} --home {} {}",
            program.display(),
            bench.home().display(),
            decision.replace("PREY", prey)
        );
        let file = bench.workspace.path(&format!("attempt-{number}.sh"));
        let out = bench.workspace.path(&format!("out-{number}"));
        let text = format!(
            "PATH=/usr/bin:/bin; cd '{}'; {decide} > '{1}.new' 2>&1; echo \"status $?\" >> '{1}.new'; mv '{1}.new' '{1}'",
            bench.workspace.root().display(),
            out.display(),
        );
        std::fs::write(&file, text).unwrap();
        let run = format!("sh {}", file.display());
        script.push_str(&disguise.replace("DECIDE", &run));
        script.push('\n');
    }
    script.push_str(
        "for try in $(seq 600); do [ \"$(ls out-? 2>/dev/null | wc -l)\" = 8 ] && break; sleep 0.05; done; echo all > over.new; mv over.new over\n",
    );
    script
}

/// An agent that waits for an approval of `touch prey-ran`, and its own session's id.
async fn preying(bench: &Bench) -> (ScriptedEditor, String) {
    bench.rescript(
        Script::new()
            .reply(Reply::on("^prey$").call("Bash", json!({ "command": "touch prey-ran" }))),
    );
    let (editor, session) = bench.session(PermissionPolicy::Never).await;
    editor.start_prompt(&session, "prey").await.unwrap();
    editor.wait_permission(0).await.unwrap();
    (editor, session)
}

/// Everything that a decision would have changed.
#[derive(Debug, PartialEq)]
struct State {
    config: Option<String>,
    trust: Option<String>,
    projects: bool,
    identity: bool,
    ran: bool,
}

impl State {
    fn of(bench: &Bench) -> Self {
        let read = |name: &str| std::fs::read_to_string(bench.home().join(name)).ok();
        let projects = bench.home().join("state/projects");
        let has_rules = std::fs::read_dir(projects).is_ok_and(|entries| {
            entries
                .flatten()
                .any(|entry| entry.path().join("rules.toml").exists())
        });
        Self {
            config: read("config/config.toml"),
            trust: read("state/trust.toml"),
            projects: has_rules,
            identity: bench.home().join("config/identity.txt").exists(),
            ran: bench.workspace.path("prey-ran").exists(),
        }
    }
}

async fn over(bench: &Bench) {
    let begun = Instant::now();
    while !bench.workspace.path("over").exists() {
        assert!(begun.elapsed() < 2 * PATIENCE, "the attempts did not end");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

fn refused(bench: &Bench, how: &str, is_confined: bool) {
    for (number, decision) in DECISIONS.iter().enumerate() {
        let out = bench.workspace.read(&format!("out-{number}"));
        let out = out.unwrap_or_else(|_| panic!("{how}: `{decision}` was not tried"));
        // Inside a sandbox nothing of ours is in reach: a home that it makes there is its own.
        assert!(
            is_confined || (out.contains("may not decide") && !out.contains("status 0")),
            "{how}: `{decision}`: {out}"
        );
    }
}

/// Runs the attempts of one disguise by a tool, in a session beside the prey's.
async fn attempt(tool: &str, is_confined: bool) {
    for (how, disguise) in DISGUISES {
        let how = format!("{tool}, {how}, confined: {is_confined}");
        let mut bench = Bench::new("", Script::new());
        if !is_confined {
            bench = bench.unconfined();
        }
        bench
            .workspace
            .write(".terret/config.toml", "[policy]\nallow = [\"WebFetch\"]\n")
            .unwrap();
        // The question about the project itself is no part of this.
        bench.terret(&["trust", "refuse"]).await.ok();
        let program = program(&bench);
        let (_prey, prey) = preying(&bench).await;
        let script = attempts(&bench, &program, disguise, &prey);
        std::fs::write(bench.workspace.path("all.sh"), script).unwrap();
        bench.rescript(
            Script::new()
                .reply(Reply::on("^go$").call_as("a", tool, json!({ "command": "bash all.sh" })))
                .reply(Reply::on("").say("done")),
        );
        let before = State::of(&bench);
        let (editor, session) = bench.session(PermissionPolicy::AllowOnce).await;
        editor.prompt(&session, "go").await.unwrap();
        over(&bench).await;
        refused(&bench, &how, is_confined);
        assert_eq!(State::of(&bench), before, "{how}");
        assert!(!before.ran);
    }
}

#[tokio::test]
async fn no_command_decides_about_the_agent() {
    attempt("Bash", false).await;
}

#[tokio::test]
async fn no_job_decides_about_the_agent() {
    attempt("job_start", false).await;
}

#[tokio::test]
async fn no_confined_command_decides_about_the_agent() {
    attempt("Bash", true).await;
}

#[tokio::test]
async fn no_confined_job_decides_about_the_agent() {
    attempt("job_start", true).await;
}

/// A client of the control socket without our command line, which refuses by itself: this
/// test binary, told by a file what to say. Runs as one of the tests when it is called so.
#[test]
#[ignore = "is what other tests run inside an agent"]
fn decides_by_the_socket() {
    use std::io::{BufRead as _, BufReader, Write as _};
    let Ok(folder) = std::env::var("TERRET_TEST_FOLDER") else {
        return;
    };
    let folder = Path::new(&folder);
    let told = std::fs::read_to_string(folder.join("told")).unwrap();
    let mut told = told.lines();
    let (run, session, id) = (
        told.next().unwrap(),
        told.next().unwrap(),
        told.next().unwrap(),
    );
    let mut answers = String::new();
    let sockets = std::fs::read_dir(run).map(|entries| entries.flatten().collect::<Vec<_>>());
    for socket in sockets.unwrap_or_default() {
        let Ok(mut stream) = std::os::unix::net::UnixStream::connect(socket.path()) else {
            continue;
        };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = json!({
            "jsonrpc": "2.0", "id": 1, "method": "_terret/inbox/decide",
            "params": { "sessionId": session, "id": id, "verdict": "allow_once" },
        });
        writeln!(stream, "{request}").unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        answers.push_str(&line);
    }
    std::fs::write(folder.join("answers.new"), format!("{answers}\n")).unwrap();
    std::fs::rename(folder.join("answers.new"), folder.join("answers")).unwrap();
}

async fn by_socket(tool: &str, disguise: &str) -> String {
    let bench = Bench::new("", Script::new()).unconfined();
    let (_prey, prey) = preying(&bench).await;
    let items = bench.terret(&["inbox", "list", "--json"]).await.ok();
    let item: Value = serde_json::from_str(items.lines().next().unwrap()).unwrap();
    let told = format!(
        "{}\n{prey}\n{}\n",
        bench.home().join("run").display(),
        item["id"].as_str().unwrap()
    );
    bench.workspace.write("told", &told).unwrap();
    let decide = format!(
        "env TERRET_TEST_FOLDER='{}' '{}' --exact nobody::decides_by_the_socket --ignored",
        bench.workspace.root().display(),
        std::env::current_exe().unwrap().display()
    );
    let command = format!(
        "{} > /dev/null 2>&1; for try in $(seq 600); do [ -e answers ] && break; sleep 0.05; done",
        disguise.replace("DECIDE", &decide)
    );
    bench.rescript(
        Script::new()
            .reply(Reply::on("^go$").call_as("a", tool, json!({ "command": command })))
            .reply(Reply::on("").say("done")),
    );
    let (editor, session) = bench.session(PermissionPolicy::AllowOnce).await;
    editor.prompt(&session, "go").await.unwrap();
    let answers = crate::support::file_text(&bench.workspace.path("answers")).await;
    assert!(!bench.workspace.path("prey-ran").exists());
    answers
}

#[tokio::test]
async fn the_socket_refuses_whoever_comes_from_an_agent_of_any_engine() {
    for tool in ["Bash", "job_start"] {
        for disguise in [
            "DECIDE",
            "env -i DECIDE",
            "env -i setsid --wait DECIDE",
            "env -i setsid sh -c 'DECIDE &'",
        ] {
            let answers = by_socket(tool, disguise).await;
            let answered: Vec<&str> = answers.lines().filter(|line| !line.is_empty()).collect();
            // The prey's engine, and the attacker's own.
            assert_eq!(answered.len(), 2, "{tool}, {disguise}: {answers}");
            for line in answered {
                assert!(line.contains("cannot decide"), "{tool}, {disguise}: {line}");
            }
        }
    }
}

#[tokio::test]
async fn a_job_that_outlived_its_engine_decides_nothing_in_the_next_one() {
    let bench = Bench::new("", Script::new()).unconfined();
    let attempt = format!(
        "env -i PATH=/usr/bin:/bin '{TERRET}' --home '{}' inbox approve \"$(cat prey)\"",
        bench.home().display()
    );
    let decide = format!(
        "env -i TERRET_TEST_FOLDER='{}' '{}' --exact nobody::decides_by_the_socket --ignored",
        bench.workspace.root().display(),
        std::env::current_exe().unwrap().display()
    );
    let command = format!(
        "while [ ! -e prey ]; do sleep 0.05; done; {attempt} > said.new 2>&1; {decide}; mv said.new said; sleep 600"
    );
    bench.rescript(
        Script::new()
            .reply(Reply::on("^go$").call_as("a", "job_start", json!({ "command": command })))
            .reply(Reply::on("").say("done")),
    );
    let (mut editor, session) = bench.session(PermissionPolicy::AllowOnce).await;
    editor.prompt(&session, "go").await.unwrap();
    editor.kill().await.unwrap();
    drop(editor);
    let (_prey, prey) = preying(&bench).await;
    let items = bench.terret(&["inbox", "list", "--json"]).await.ok();
    let item: Value = serde_json::from_str(items.lines().next().unwrap()).unwrap();
    let told = format!(
        "{}\n{prey}\n{}\n",
        bench.home().join("run").display(),
        item["id"].as_str().unwrap()
    );
    bench.workspace.write("told", &told).unwrap();
    bench.workspace.write("prey.new", &prey).unwrap();
    let (new, there) = (
        bench.workspace.path("prey.new"),
        bench.workspace.path("prey"),
    );
    std::fs::rename(new, there).unwrap();
    let said = crate::support::file_text(&bench.workspace.path("said")).await;
    assert!(said.contains("may not decide"), "{said}");
    let answers = bench.workspace.read("answers").unwrap();
    assert!(answers.contains("cannot decide"), "{answers}");
    assert!(!bench.workspace.path("prey-ran").exists());
    // Leave no job behind.
    let listed = bench.terret(&["jobs", "list", "--json"]).await.ok();
    for line in listed.lines() {
        let job: Value = serde_json::from_str(line).unwrap();
        bench
            .terret(&["jobs", "stop", job["id"].as_str().unwrap()])
            .await
            .ok();
    }
}

/// Our own files, as a model may name them.
fn own_files(bench: &Bench) -> Vec<PathBuf> {
    [
        "config/config.toml",
        "config/identity.txt",
        "state/trust.toml",
        "state/projects/x/rules.toml",
        "state/index.sqlite",
        "state/sessions/x.jsonl",
    ]
    .map(|name| bench.home().join(name))
    .into()
}

#[tokio::test]
async fn no_file_tool_reaches_what_decides() {
    let bench = Bench::new("", Script::new()).unconfined();
    bench.configure("mode = \"edits\"\n");
    std::os::unix::fs::symlink(bench.home(), bench.workspace.path("link")).unwrap();
    let mut calls = Vec::new();
    for path in own_files(&bench) {
        let name = path.strip_prefix(bench.home()).unwrap();
        let linked = bench.workspace.path("link").join(name);
        for path in [path.clone(), linked] {
            let path = path.to_str().unwrap();
            calls.push(("Write", json!({ "file_path": path, "content": "x" })));
            calls.push(("Read", json!({ "file_path": path })));
            calls.push((
                "Edit",
                json!({ "file_path": path, "old_string": "a", "new_string": "b" }),
            ));
        }
    }
    let mut reply = Reply::on("^go$");
    for (number, (tool, args)) in calls.iter().enumerate() {
        reply = reply.call_as(&format!("c{number}"), tool, args.clone());
    }
    bench.rescript(Script::new().reply(reply).reply(Reply::on("").say("done")));
    let before = State::of(&bench);
    let (editor, session) = bench.session(PermissionPolicy::AllowOnce).await;
    editor.prompt(&session, "go").await.unwrap();
    let results: Vec<Value> = bench
        .events(&session)
        .await
        .into_iter()
        .filter(|event| event["type"] == "tool/result")
        .collect();
    assert_eq!(results.len(), calls.len());
    for (result, (tool, args)) in results.iter().zip(&calls) {
        assert!(
            result["payload"]["error"].is_string(),
            "{tool} {args}: {result}"
        );
    }
    assert_eq!(State::of(&bench), before);
    assert!(!bench.home().join("state/trust.toml").exists());
}

#[tokio::test]
async fn no_confined_command_reaches_what_decides_or_the_engine() {
    for provider in ["bwrap", "landlock"] {
        let bench = Bench::new("", Script::new());
        bench.configure(&format!("[sandbox]\nprovider = \"{provider}\"\n"));
        let doctor = bench.terret_with_model(&["doctor"]).await.stdout;
        let line = doctor.lines().find(|line| line.contains("sandbox:"));
        if line.is_some_and(|line| line.starts_with("broken")) {
            // Said with the reason; there is nothing to be tried here.
            assert!(doctor.contains(provider), "{doctor}");
            continue;
        }
        bench.terret(&["trust", "refuse"]).await.ok();
        bench.rescript(
            Script::new()
                .reply(Reply::on("^go$").call_as("a", "Bash", json!({ "command": "sh all.sh" })))
                .reply(Reply::on("").say("done")),
        );
        let (editor, session) = bench.session(PermissionPolicy::AllowOnce).await;
        let engine = editor.pid().unwrap();
        let mut script = String::from("PATH=/usr/bin:/bin\n");
        let mut tries: Vec<String> = vec![
            format!("cat /proc/{engine}/environ"),
            format!("head -c 1 /proc/{engine}/mem"),
            format!("printf x >> /proc/{engine}/mem"),
            format!("readlink /proc/{engine}/fd/0"),
            format!("ls '{}'", bench.home().join("run").display()),
        ];
        for path in own_files(&bench) {
            tries.push(format!("printf x >> '{}'", path.display()));
            tries.push(format!("cat '{}'", path.display()));
        }
        tries.push(format!("rm -r '{}'", bench.home().join("state").display()));
        for (number, attempt) in tries.iter().enumerate() {
            script.push_str(&format!(
                "if ( {attempt} ) >/dev/null 2>&1; then echo 'did {number}' >> did; fi\n"
            ));
        }
        script.push_str("echo all > over\n");
        std::fs::write(bench.workspace.path("all.sh"), script).unwrap();
        let before = State::of(&bench);
        editor.prompt(&session, "go").await.unwrap();
        let events = bench.events(&session).await;
        assert!(
            bench.workspace.path("over").exists(),
            "{provider}: {}",
            last(&events, "tool/result")
        );
        let did = bench.workspace.read("did").unwrap_or_default();
        let did: Vec<&str> = did
            .lines()
            .filter_map(|line| tries.get(line.strip_prefix("did ")?.parse::<usize>().ok()?))
            .map(String::as_str)
            .collect();
        assert_eq!(did, [] as [&str; 0], "{provider}");
        assert_eq!(State::of(&bench), before, "{provider}");
    }
}

#[tokio::test]
async fn what_runs_later_outside_is_not_written_by_a_confined_command_nor_unasked() {
    let later = [
        ".git/hooks/pre-commit",
        ".bashrc",
        ".envrc",
        ".terret/config.toml",
    ];
    let bench = Bench::new("", Script::new());
    for name in later {
        bench.workspace.write(name, "kept\n").unwrap();
    }
    bench
        .workspace
        .write(".git/HEAD", "ref: refs/heads/main\n")
        .unwrap();
    bench.terret(&["trust", "refuse"]).await.ok();
    let doctor = bench.terret_with_model(&["doctor"]).await.stdout;
    let mut reply = Reply::on("^go$");
    for (number, name) in later.iter().enumerate() {
        let args = json!({ "file_path": name, "content": "x" });
        reply = reply.call_as(&format!("w{number}"), "Write", args);
    }
    let command = later
        .iter()
        .map(|name| format!("printf x > {name}"))
        .collect::<Vec<_>>()
        .join("; ");
    bench.configure("mode = \"edits\"\n");
    bench.rescript(
        Script::new()
            .reply(reply)
            .reply(Reply::on("^bash$").call_as("b", "Bash", json!({ "command": command })))
            .reply(Reply::on("").say("done")),
    );
    let (editor, session) = bench.session(PermissionPolicy::RejectOnce).await;
    editor.prompt(&session, "go").await.unwrap();
    for name in later {
        assert_eq!(bench.workspace.read(name).unwrap(), "kept\n", "{name}");
    }
    // Only bubblewrap's mounts keep such files from a command.
    let is_bwrap = doctor
        .lines()
        .find(|line| line.contains("sandbox:"))
        .is_some_and(|line| line.contains("bwrap") && !line.starts_with("broken"));
    if is_bwrap {
        // The command is let run, and then not let out of its sandbox.
        editor.set_permission(PermissionPolicy::Never);
        let mark = editor.mark();
        let prompt = editor.start_prompt(&session, "bash").await.unwrap();
        let asked = editor.wait_permission(mark).await.unwrap();
        editor.set_permission(PermissionPolicy::RejectOnce);
        let once = json!({ "outcome": { "outcome": "selected", "optionId": "allow_once" } });
        editor.answer(&asked.id, once).await.unwrap();
        editor.response(prompt).await.unwrap();
        for name in later {
            assert_eq!(bench.workspace.read(name).unwrap(), "kept\n", "{name}");
        }
    }
}
