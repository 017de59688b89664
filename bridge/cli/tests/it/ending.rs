//! The end of the editor, in each of its ways and at each moment of a turn (R035, design
//! §4 "After a crash"): the agent exits with 0, nothing that it ran is left, and the turn
//! stays open in the log for the next process to go on with.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use terret_fixtures::{PermissionPolicy, Reply, Script, ScriptedEditor, process};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};

use crate::support::{Bench, END, PATIENCE, bash, count, file_text, signal};

/// How the editor goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Eof,
    Signal(Signal),
}

const WAYS: [Way; 4] = [
    Way::Eof,
    Way::Signal(Signal::TERM),
    Way::Signal(Signal::HUP),
    Way::Signal(Signal::INT),
];

/// Goes in a way, and gives how long the agent took to be gone. It must exit with 0.
async fn leave(editor: ScriptedEditor, way: Way) -> Duration {
    let start = Instant::now();
    if let Way::Signal(which) = way {
        signal(editor.pid().unwrap(), which);
        editor.wait_closed().await.unwrap();
    }
    let (_, status) = editor.finish().await.unwrap();
    let took = start.elapsed();
    assert_eq!(status.unwrap().code(), Some(0), "{way:?}");
    assert!(took < END, "{way:?} took {took:?}");
    took
}

/// A second process loads the session, and its next prompt ends the turn that was open.
async fn resumes(bench: &Bench, session: &str) -> ScriptedEditor {
    let editor = bench.editor(PermissionPolicy::AllowOnce).await;
    editor
        .load_session(session, bench.workspace.root())
        .await
        .unwrap();
    let answer = editor.prompt(session, "carry on").await.unwrap();
    assert_eq!(answer["stopReason"], "end_turn");
    let events = bench.events(session).await;
    assert_eq!(count(&events, "turn/start"), 1, "{events:#?}");
    assert_eq!(count(&events, "turn/end"), 1, "{events:#?}");
    editor
}

async fn turn_is_open(bench: &Bench, session: &str) {
    let events = bench.events(session).await;
    assert_eq!(count(&events, "turn/start"), 1, "{events:#?}");
    assert_eq!(count(&events, "turn/end"), 0, "{events:#?}");
    let verified = bench.terret(&["sessions", "verify", session]).await.ok();
    assert!(verified.contains("are whole"), "{verified}");
}

#[tokio::test]
async fn r035_an_idle_agent_ends_with_its_editor() {
    let bench = Bench::saying("hello");
    for way in WAYS {
        // Before `initialize`, after it, and with a session that has had its turn.
        let editor = crate::support::spawn(bench.acp(), PermissionPolicy::AllowOnce);
        if way != Way::Eof {
            // A signal may come before anything is set up to take it.
            editor.initialize().await.unwrap();
        }
        leave(editor, way).await;
        let (editor, session) = bench.session(PermissionPolicy::AllowOnce).await;
        editor.prompt(&session, "hi").await.unwrap();
        leave(editor, way).await;
    }
}

#[tokio::test]
async fn r035_no_input_at_all_is_an_end_too() {
    let bench = Bench::saying("hello");
    let start = Instant::now();
    let finished = bench.terret(&["acp"]).await;
    assert_eq!(finished.code, Some(0), "{finished:?}");
    assert_eq!(
        (finished.stdout.as_str(), finished.stderr.as_str()),
        ("", "")
    );
    assert!(start.elapsed() < END);
}

#[tokio::test]
async fn r035_the_end_amid_a_stream_leaves_the_turn_open() {
    for way in WAYS {
        let bench = Bench::new(
            "",
            Script::new()
                .reply(Reply::on("^go$").say(&"word ".repeat(2000)).paced(5, 50))
                .reply(Reply::on("").say("done")),
        );
        let (editor, session) = bench.session(PermissionPolicy::AllowOnce).await;
        editor.start_prompt(&session, "go").await.unwrap();
        editor.wait_update(0, "agent_message_chunk").await.unwrap();
        leave(editor, way).await;
        turn_is_open(&bench, &session).await;
        resumes(&bench, &session).await;
    }
}

/// A command whose children leave its group and session, and ignore the requests to end.
const STUBBORN: &str = "trap '' TERM HUP INT; echo run >> runs; \
    setsid sh -c 'trap \"\" TERM HUP; echo $$ >> pids; sleep 3611' & \
    (trap '' TERM HUP; sleep 3612) & echo $! >> pids; echo $$ >> pids; echo all >> pids; \
    sleep 3613";

/// The processes that [`STUBBORN`] named.
async fn stubborn(bench: &Bench) -> Vec<u32> {
    let path = bench.workspace.path("pids");
    loop {
        let text = file_text(&path).await;
        let pids: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
        if pids.len() == 3 && text.contains("all") {
            return pids;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn r035_the_end_amid_a_command_leaves_no_process_and_runs_nothing_twice() {
    for way in WAYS {
        let bench = Bench::new("", bash(STUBBORN)).unconfined();
        let (editor, session) = bench.session(PermissionPolicy::AllowOnce).await;
        editor.start_prompt(&session, "go").await.unwrap();
        let pids = stubborn(&bench).await;
        leave(editor, way).await;
        let left: Vec<u32> = pids
            .iter()
            .copied()
            .filter(|pid| process::is_alive(*pid))
            .collect();
        assert!(left.is_empty(), "{way:?} left {left:?} of {pids:?}");
        turn_is_open(&bench, &session).await;
        resumes(&bench, &session).await;
        assert_eq!(bench.workspace.read("runs").unwrap(), "run\n");
    }
}

#[tokio::test]
async fn r035_the_end_amid_a_question_keeps_the_question() {
    for way in WAYS {
        let bench = Bench::new("", bash("echo ran >> runs"));
        let (editor, session) = bench.session(PermissionPolicy::Never).await;
        editor.start_prompt(&session, "go").await.unwrap();
        editor.wait_permission(0).await.unwrap();
        leave(editor, way).await;
        turn_is_open(&bench, &session).await;
        let inbox = bench.terret(&["inbox"]).await.ok();
        assert!(inbox.contains(&session), "{inbox}");
        let editor = resumes(&bench, &session).await;
        editor.wait_permission(0).await.unwrap();
        let events = bench.events(&session).await;
        assert_eq!(count(&events, "approval/requested"), 1, "{events:#?}");
        assert_eq!(bench.workspace.read("runs").unwrap(), "ran\n");
    }
}

/// An agent at the ends of two pipes, of which one can be let go.
struct Piped {
    child: Child,
    /// Held: its end would be another reason to go.
    _input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    session: String,
}

impl Piped {
    /// Sends `lines` and waits for one line of output that holds `seen`.
    async fn until(bench: &Bench, lines: &[Value], seen: &str) -> Self {
        let mut command = bench.acp();
        command
            .arg("--allow-bypass")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut session = String::new();
        for line in lines {
            let text = line.to_string().replace("SESSION", &session);
            input.write_all(text.as_bytes()).await.unwrap();
            input.write_all(b"\n").await.unwrap();
            if line["method"] == "session/prompt" {
                break;
            }
            let answer: Value =
                serde_json::from_str(&output.next_line().await.unwrap().unwrap()).unwrap();
            if let Some(id) = answer.pointer("/result/sessionId").and_then(Value::as_str) {
                id.clone_into(&mut session);
            }
        }
        let found = async { while !output.next_line().await.unwrap().unwrap().contains(seen) {} };
        tokio::time::timeout(PATIENCE, found).await.unwrap();
        Self {
            child,
            _input: input,
            output,
            session,
        }
    }

    /// Stops reading; the agent must end by that alone. Gives the session.
    async fn turns_deaf(mut self) -> String {
        let start = Instant::now();
        drop(self.output);
        let status = tokio::time::timeout(PATIENCE, self.child.wait())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(status.code(), Some(0));
        let took = start.elapsed();
        assert!(took < END, "{took:?}");
        self.session
    }
}

fn talk(cwd: &Path) -> [Value; 3] {
    [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "session/new", "params": {"cwd": cwd, "mcpServers": []}}),
        json!({"jsonrpc": "2.0", "id": 3, "method": "session/prompt",
               "params": {"sessionId": "SESSION", "prompt": [{"type": "text", "text": "go"}]}}),
    ]
}

#[tokio::test]
async fn r035_an_output_that_nobody_reads_is_an_end_amid_a_stream() {
    let bench = Bench::new(
        "",
        Script::new()
            .reply(Reply::on("^go$").say(&"word ".repeat(2000)).paced(5, 20))
            .reply(Reply::on("").say("done")),
    );
    let talk = talk(bench.workspace.root());
    let agent = Piped::until(&bench, &talk, "agent_message_chunk").await;
    let session = agent.turns_deaf().await;
    let stderr = bench.stderr();
    assert!(!stderr.contains("panicked"), "{stderr}");
    turn_is_open(&bench, &session).await;
    resumes(&bench, &session).await;
}

#[tokio::test]
async fn r035_an_output_that_nobody_reads_is_an_end_amid_a_command() {
    let bench = Bench::new("", bash(STUBBORN)).unconfined();
    bench.configure("mode = \"bypass\"\n");
    let talk = talk(bench.workspace.root());
    let agent = Piped::until(&bench, &talk, "\"in_progress\"").await;
    let pids = stubborn(&bench).await;
    let session = agent.turns_deaf().await;
    bench.configure("");
    assert!(process::all_gone(&pids, Duration::ZERO).await, "{pids:?}");
    turn_is_open(&bench, &session).await;
    resumes(&bench, &session).await;
    assert_eq!(bench.workspace.read("runs").unwrap(), "run\n");
}
