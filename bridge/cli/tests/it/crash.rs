//! SIGKILL in the middle of a turn: nothing that was shown is lost, no call is made twice,
//! and the next process goes on where the log ends (design §4 "After a crash").

use serde_json::json;
use terret_fixtures::{PermissionPolicy, Reply, Script, Shown, process};

use crate::support::{Bench, PATIENCE, bash, count, file_text, last};

#[tokio::test]
async fn a_killed_stream_is_loaded_as_it_stood_and_the_next_prompt_goes_on() {
    let bench = Bench::new(
        "",
        Script::new()
            .reply(Reply::on("^go$").say(&"word ".repeat(2000)).paced(5, 20))
            .reply(Reply::on("").say("done")),
    );
    let (mut editor, session) = bench.session(PermissionPolicy::AllowOnce).await;
    editor.start_prompt(&session, "go").await.unwrap();
    editor.wait_update(0, "agent_message_chunk").await.unwrap();
    editor.kill().await.unwrap();
    editor.wait_closed().await.unwrap();
    let before = Shown::of(&editor.transcript(), &session).comparable();
    let seen = &before.turns[0].text;

    let verified = bench.terret(&["sessions", "verify", &session]).await.ok();
    assert!(verified.contains("are whole"), "{verified}");
    let listed = bench.terret(&["sessions", "list"]).await.ok();
    assert!(listed.contains("turn open"), "{listed}");

    let second = bench.editor(PermissionPolicy::AllowOnce).await;
    second
        .load_session(&session, bench.workspace.root())
        .await
        .unwrap();
    let after = Shown::of(&second.transcript(), &session).comparable();
    // What was logged and not yet sent may be more than what the editor saw.
    assert_eq!(after.turns[0].user, "go");
    assert!(
        !seen.is_empty() && after.turns[0].text.starts_with(seen),
        "the torn turn is not shown:\n{before:#?}\n{after:#?}"
    );
    let answer = second.prompt(&session, "carry on").await.unwrap();
    assert_eq!(answer["stopReason"], "end_turn");
    let events = bench.events(&session).await;
    assert_eq!(count(&events, "turn/start"), 1, "{events:#?}");
    assert_eq!(last(&events, "turn/end")["status"], "completed");
}

#[tokio::test]
async fn a_killed_command_is_not_run_again_unasked() {
    let bench = Bench::new("", bash("echo run >> runs; echo $$ > pid; sleep 3621"));
    let (mut editor, session) = bench.session(PermissionPolicy::AllowOnce).await;
    editor.start_prompt(&session, "go").await.unwrap();
    file_text(&bench.workspace.path("pid")).await;
    editor.kill().await.unwrap();

    bench.terret(&["sessions", "verify", &session]).await.ok();
    let second = bench.editor(PermissionPolicy::AllowOnce).await;
    second
        .load_session(&session, bench.workspace.root())
        .await
        .unwrap();
    let answer = second.prompt(&session, "carry on").await.unwrap();
    assert_eq!(answer["stopReason"], "end_turn");
    assert_eq!(bench.workspace.read("runs").unwrap(), "run\n");
    let events = bench.events(&session).await;
    assert_eq!(count(&events, "tool/result"), 1);
    let error = last(&events, "tool/result")["error"].as_str().unwrap();
    assert!(error.contains("may have run"), "{error}");
}

/// One in a session of its own, one without a parent that has shed everything it could be
/// known by, and the shell itself.
#[tokio::test]
async fn r018_a_killed_agent_leaves_no_process() {
    let command = "setsid bash -c 'echo $$ >> pids; exec sleep 3631' >/dev/null 2>&1 &
        (env -i setsid bash -c '(exec >/dev/null 2>&1; echo $BASHPID >> pids; exec sleep 3632) & exit' &)
        while [[ $(wc -l < pids) -lt 2 ]]; do sleep 0.01; done
        echo $$ >> pids; mv pids all; sleep 3633";
    let bench = Bench::new("", bash(command)).unconfined();
    let (mut editor, session) = bench.session(PermissionPolicy::AllowOnce).await;
    editor.start_prompt(&session, "go").await.unwrap();
    let text = file_text(&bench.workspace.path("all")).await;
    let mut pids: Vec<u32> = text.lines().map(|line| line.parse().unwrap()).collect();
    // The supervisor, too.
    pids.extend(process::descendants(editor.pid().unwrap()));
    assert!(pids.len() > 4 && pids.iter().all(|pid| process::is_alive(*pid)));
    editor.kill().await.unwrap();
    assert!(process::all_gone(&pids, PATIENCE).await, "{pids:?}");
}

/// The same in the sandbox that this machine has: what is inside has other ids there, and
/// is found as what came from the agent.
#[tokio::test]
async fn r018_a_killed_agent_leaves_no_process_in_its_sandbox() {
    let command = "setsid bash -c 'exec sleep 3641' >/dev/null 2>&1 &
        (setsid bash -c '(exec >/dev/null 2>&1; exec sleep 3642) & exit' &)
        echo all > all; sleep 3643";
    let bench = Bench::new("", bash(command));
    let (mut editor, session) = bench.session(PermissionPolicy::AllowOnce).await;
    editor.start_prompt(&session, "go").await.unwrap();
    file_text(&bench.workspace.path("all")).await;
    let pids = process::descendants(editor.pid().unwrap());
    assert!(pids.len() > 3, "{pids:?}");
    editor.kill().await.unwrap();
    assert!(process::all_gone(&pids, PATIENCE).await, "{pids:?}");
}

#[tokio::test]
async fn a_call_that_had_not_started_runs_once_after_the_crash() {
    let bench = Bench::new("", bash("echo run >> runs"));
    let (mut editor, session) = bench.session(PermissionPolicy::Never).await;
    editor.start_prompt(&session, "go").await.unwrap();
    editor.wait_permission(0).await.unwrap();
    editor.kill().await.unwrap();

    let (second, limit) = (bench.editor(PermissionPolicy::AllowOnce).await, PATIENCE);
    second
        .load_session(&session, bench.workspace.root())
        .await
        .unwrap();
    second.prompt(&session, "carry on").await.unwrap();
    assert_eq!(bench.workspace.read("runs").unwrap(), "run\n");
    let events = bench.events(&session).await;
    assert_eq!(count(&events, "approval/requested"), 1);
    assert_eq!(count(&events, "approval/resolved"), 1);
    let (_, status) = second.finish().await.unwrap();
    assert_eq!(status.unwrap().code(), Some(0), "within {limit:?}");
}

#[tokio::test]
async fn a_read_that_a_crash_interrupted_costs_nothing() {
    // A torn last line, as a crash of the machine leaves it.
    let bench = Bench::new(
        "//- a.txt\nalpha\n",
        Script::new()
            .reply(Reply::on("^go$").call_as("r1", "Read", json!({"file_path": "a.txt"})))
            .reply(Reply::on("").say("done")),
    );
    let (editor, session) = bench.session(PermissionPolicy::AllowOnce).await;
    editor.prompt(&session, "go").await.unwrap();
    editor.finish().await.unwrap();
    let path = bench.log_file(&session);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, &text[..text.len() - 20]).unwrap();

    let verified = bench.terret(&["sessions", "verify", &session]).await.ok();
    assert!(verified.contains("not finished"), "{verified}");
    let second = bench.editor(PermissionPolicy::AllowOnce).await;
    second
        .load_session(&session, bench.workspace.root())
        .await
        .unwrap();
    let answer = second.prompt(&session, "carry on").await.unwrap();
    assert_eq!(answer["stopReason"], "end_turn");
    let events = bench.events(&session).await;
    assert_eq!(count(&events, "log/repaired"), 1, "{events:#?}");
}

#[tokio::test]
async fn the_socket_of_a_killed_agent_is_no_engine() {
    let bench = Bench::saying("hello");
    let mut editor = bench.editor(PermissionPolicy::AllowOnce).await;
    let pid = editor.pid().unwrap();
    let socket = bench.home().join(format!("run/engine-{pid}.sock"));
    assert!(socket.exists());
    editor.kill().await.unwrap();
    assert!(!process::is_alive(pid));
    assert!(socket.exists(), "a kill leaves it behind");
    let inbox = bench.terret(&["inbox"]).await.ok();
    assert_eq!(inbox, "Nothing waits.\n");
    assert!(!socket.exists(), "who finds it takes it away");
}
