//! Background jobs, from the editor's card to the processes and back: real processes, a
//! real editor's end and real kills (design §4 "Jobs").

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use terret_fixtures::{
    EditorOptions, PermissionPolicy, Preset, Reply, Script, ScriptedEditor, process,
};

use crate::support::{Bench, PATIENCE, count, file_text, last, signal};

/// What a card may take beyond the job's end (R096), and what a loaded machine may add.
const AT_ONCE: Duration = Duration::from_millis(500 + 1000);

/// All of a session's jobs are gone after its editor within this time (R018).
const GONE: Duration = Duration::from_secs(5);

/// A model that starts these jobs at `go`, by calls `j1`, `j2`, …, and then says that it
/// is done, whatever comes.
fn starting(commands: &[&str]) -> Script {
    let mut reply = Reply::on("^go$");
    for (n, command) in (1..).zip(commands) {
        reply = reply.call_as(&format!("j{n}"), "job_start", json!({ "command": command }));
    }
    Script::new().reply(reply).reply(Reply::on("").say("done"))
}

/// A model that collects this job at `collect`.
fn collecting(id: &str) -> Script {
    let args = json!({"id": id, "wait_ms": 20_000});
    Script::new()
        .reply(Reply::on("^collect$").call_as("k1", "job_collect", args))
        .reply(Reply::on("").say("done"))
}

async fn go(bench: &Bench) -> (ScriptedEditor, String) {
    let (editor, session) = bench.session(PermissionPolicy::AllowOnce).await;
    let answer = editor.prompt(&session, "go").await.unwrap();
    assert_eq!(answer["stopReason"], "end_turn");
    (editor, session)
}

/// Waits for an update that brings a card to a status, and gives it.
async fn card(editor: &ScriptedEditor, mark: usize, call: &str, status: &str) -> Value {
    let what = format!("the card `{call}` as {status}");
    editor
        .wait_from(mark, &what, |frame| {
            let (_, update) = frame.update()?;
            (update["toolCallId"] == call && update["status"] == status).then(|| update.clone())
        })
        .await
        .unwrap()
}

/// The last status that a card was given.
fn status_of(editor: &ScriptedEditor, mark: usize, call: &str) -> Value {
    editor
        .transcript()
        .frames
        .get(mark..)
        .unwrap_or_default()
        .iter()
        .filter_map(|frame| frame.update())
        .rfind(|(_, update)| update["toolCallId"] == call && !update["status"].is_null())
        .map(|(_, update)| update["status"].clone())
        .unwrap_or_default()
}

/// Jobs whose process ids mean the same to them and to us.
fn unconfined(tree: &str, script: Script) -> Bench {
    Bench::new(tree, script).unconfined()
}

/// The ids of the session's jobs in the order of their starts.
async fn ids(bench: &Bench, session: &str) -> Vec<String> {
    bench
        .events(session)
        .await
        .iter()
        .filter(|event| event["type"] == "job/started")
        .map(|event| event["payload"]["id"].as_str().unwrap().to_owned())
        .collect()
}

/// The line that tells the model of ended jobs, each time that there was one.
fn told(events: &[Value]) -> Vec<String> {
    events
        .iter()
        .filter(|event| event["payload"]["source"] == "jobs")
        .map(|event| event["payload"]["text"].as_str().unwrap().to_owned())
        .collect()
}

async fn until(what: &str, limit: Duration, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < limit, "{what}: not within {limit:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn pids(text: &str) -> Vec<u32> {
    text.lines().map(|line| line.parse().unwrap()).collect()
}

/// `kill -9` of the agent with its whole process group, whose leader it is.
async fn kill_group(editor: &ScriptedEditor) {
    let pid = i32::try_from(editor.pid().unwrap()).unwrap();
    kill_process_group(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    editor.wait_closed().await.unwrap();
}

/// An editor whose agent leads a process group of its own.
async fn group_leader(bench: &Bench) -> ScriptedEditor {
    let mut command = bench.acp();
    command.process_group(0);
    bench.editor_of(command, PermissionPolicy::AllowOnce).await
}

/// A second process on the same home that has loaded the session.
async fn loaded(bench: &Bench, session: &str) -> ScriptedEditor {
    let editor = bench.editor(PermissionPolicy::AllowOnce).await;
    editor
        .load_session(session, bench.workspace.root())
        .await
        .unwrap();
    editor
}

#[tokio::test]
async fn r018_the_editor_goes_and_its_jobs_with_it() {
    let bench = unconfined(
        "",
        starting(&["trap '' TERM HUP; \
             setsid sh -c 'trap \"\" TERM HUP; echo $$ >> pids; sleep 3641' & \
             sleep 3642 & echo $! >> pids; echo $$ >> pids; sleep 0.3; echo all > ready; \
             sleep 3643"]),
    );
    let (editor, session) = go(&bench).await;
    file_text(&bench.workspace.path("ready")).await;
    let pids = pids(&bench.workspace.read("pids").unwrap());
    assert_eq!(pids.len(), 3);
    let start = Instant::now();
    editor.finish().await.unwrap();
    until("all are gone", GONE.saturating_sub(start.elapsed()), || {
        pids.iter().all(|pid| !process::is_alive(*pid))
    })
    .await;
    let events = bench.events(&session).await;
    assert_eq!(
        last(&events, "job/ended")["outcome"],
        json!({"how": "stopped"})
    );
}

#[tokio::test]
async fn r023_each_end_is_on_its_card_at_once_and_told_to_the_model_in_one_line() {
    let bench = unconfined(
        "",
        starting(&["echo one", "sleep 0.2; exit 4", "echo three"]),
    );
    let (editor, session) = go(&bench).await;
    card(&editor, 0, "j1", "completed").await;
    card(&editor, 0, "j2", "failed").await;
    card(&editor, 0, "j3", "completed").await;
    let before = told(&bench.events(&session).await).len();
    editor.prompt(&session, "and?").await.unwrap();
    editor.prompt(&session, "and now?").await.unwrap();
    let events = bench.events(&session).await;
    let lines = told(&events);
    let ids = ids(&bench, &session).await;
    for id in &ids {
        let times: usize = lines
            .iter()
            .map(|line| line.matches(id.as_str()).count())
            .sum();
        assert_eq!(times, 1, "{id} in {lines:#?}");
    }
    // What ended while the first turn still ran may have been told in it; the rest comes
    // in one line.
    assert!(lines.len() <= before + 1, "{lines:#?}");
    assert!(
        lines.concat().contains("exited with status 4"),
        "{lines:#?}"
    );
}

#[tokio::test]
async fn r096_a_job_that_ends_between_turns_shows_at_once() {
    for preset in [Preset::full(), Preset::bare()] {
        let has_notices = preset.name == "full";
        let bench = unconfined(
            "",
            starting(&["sleep 1.5; echo the last line; date +%s%3N > ended; exit 3"]),
        );
        let options = EditorOptions {
            limit: PATIENCE,
            ..preset.into()
        };
        let editor = ScriptedEditor::spawn(bench.acp(), options).unwrap();
        editor.initialize().await.unwrap();
        let session = editor.new_session(bench.workspace.root()).await.unwrap();
        editor.prompt(&session, "go").await.unwrap();
        let mark = editor.mark();
        assert_eq!(status_of(&editor, 0, "j1"), "in_progress");
        let update = card(&editor, mark, "j1", "failed").await;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let ended: u64 = bench
            .workspace
            .read("ended")
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        let took = now.saturating_sub(Duration::from_millis(ended));
        assert!(took < AT_ONCE, "{took:?}");
        let text = update["content"].to_string();
        for part in ["the last line", "exited with status 3 after 1."] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(
            update["rawOutput"]["outcome"],
            json!({"how": "exited", "status": 3})
        );
        if has_notices {
            let notice = editor.wait_update(mark, "notice").await.unwrap();
            let title = notice["title"].as_str().unwrap();
            assert!(title.contains("exited with status 3"), "{title}");
        }
        // Where there is no place for it, nothing of it is shown as the agent's words.
        let frames = editor.transcript().frames;
        let of_kind = |kind: &str| {
            frames[mark..]
                .iter()
                .filter(|frame| frame.update_kind() == Some(kind))
                .count()
        };
        assert_eq!(of_kind("agent_message_chunk"), 0);
        assert_eq!(of_kind("notice"), usize::from(has_notices));
        assert_eq!(count(&bench.events(&session).await, "job/ended"), 1);
        editor.finish().await.unwrap();
    }
}

#[tokio::test]
async fn a_job_that_ends_during_a_turn_is_told_in_that_turn() {
    let script = Script::new()
        .reply(
            Reply::on("^go$")
                .call_as("j1", "job_start", json!({"command": "echo quick"}))
                .call_as(
                    "b1",
                    "Bash",
                    json!({"command": "while [ ! -e over ]; do sleep 0.05; done"}),
                ),
        )
        .reply(Reply::on("").say("done"));
    let bench = unconfined("", script);
    let (editor, session) = bench.session(PermissionPolicy::AllowOnce).await;
    let prompt = editor.start_prompt(&session, "go").await.unwrap();
    card(&editor, 0, "j1", "completed").await;
    assert_ne!(status_of(&editor, 0, "b1"), "completed");
    bench.workspace.write("over", "").unwrap();
    editor.response(prompt).await.unwrap();
    let lines = told(&bench.events(&session).await);
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert!(lines[0].contains("exited with status 0"), "{lines:#?}");
}

#[tokio::test]
async fn r099_and_check_154_a_job_outlives_a_killed_agent_and_is_collected_as_if_nothing_had_happened()
 {
    let bench = unconfined(
        "",
        starting(&[
            "echo before; echo $$ > pid; while [ ! -e over ]; do sleep 0.05; done; echo after; exit 5",
        ]),
    );
    let editor = group_leader(&bench).await;
    let session = editor.new_session(bench.workspace.root()).await.unwrap();
    editor.prompt(&session, "go").await.unwrap();
    let pid: u32 = file_text(&bench.workspace.path("pid"))
        .await
        .trim()
        .parse()
        .unwrap();
    kill_group(&editor).await;
    assert!(process::is_alive(pid), "the job went with the agent");
    let [id] = <[String; 1]>::try_from(ids(&bench, &session).await).unwrap();
    let listed = bench.terret(&["jobs", "list", "--json"]).await.ok();
    let row: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!((&row["id"], &row["running"]), (&json!(id), &json!(true)));
    assert_eq!(row["session"], json!(session));
    let tail = bench.terret(&["jobs", "tail", &id]).await.ok();
    assert_eq!(tail, "before\n");

    bench.rescript(collecting(&id));
    let second = loaded(&bench, &session).await;
    assert_eq!(status_of(&second, 0, "j1"), "in_progress");
    second.prompt(&session, "/jobs").await.unwrap();
    second
        .wait_for("the list of jobs", |frame| {
            let (_, update) = frame.update()?;
            let text = update["content"]["text"].as_str()?;
            (text.contains(&id) && text.contains("runs for")).then_some(())
        })
        .await
        .unwrap();
    bench.workspace.write("over", "").unwrap();
    let update = card(&second, 0, "j1", "failed").await;
    assert!(
        update["content"]
            .to_string()
            .contains("exited with status 5")
    );
    second.prompt(&session, "collect").await.unwrap();
    let events = bench.events(&session).await;
    let result = last(&events, "tool/result")["content"].as_str().unwrap();
    assert!(result.starts_with("before\nafter\n"), "{result}");
    assert!(result.contains("exited with status 5"), "{result}");
    assert_eq!(count(&events, "job/started"), 1);
    assert_eq!(count(&events, "job/ended"), 1);
    // Collected to its end, it is as unknown as any other (check 150).
    second.prompt(&session, "collect").await.unwrap();
    let events = bench.events(&session).await;
    let error = last(&events, "tool/result")["error"].as_str().unwrap();
    assert!(error.contains("no job"), "{error}");
    let listed = bench.terret(&["jobs", "list", "--json"]).await.ok();
    assert_eq!(listed, "");
}

/// The same by Bash, whose call is the job's card, confined as commands are here.
#[tokio::test]
async fn r099_a_command_in_the_background_outlives_a_killed_agent() {
    let command =
        "echo before; echo up > up; while [ ! -e over ]; do sleep 0.05; done; echo after; exit 5";
    let args = json!({ "command": command, "run_in_background": true });
    let script = Script::new()
        .reply(Reply::on("^go$").call_as("b1", "Bash", args))
        .reply(Reply::on("").say("done"));
    let bench = Bench::new("", script);
    let editor = group_leader(&bench).await;
    let session = editor.new_session(bench.workspace.root()).await.unwrap();
    editor.prompt(&session, "go").await.unwrap();
    assert_eq!(file_text(&bench.workspace.path("up")).await, "up\n");
    kill_group(&editor).await;
    let [id] = <[String; 1]>::try_from(ids(&bench, &session).await).unwrap();
    let listed = bench.terret(&["jobs", "list", "--json"]).await.ok();
    let row: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!((&row["id"], &row["running"]), (&json!(id), &json!(true)));

    bench.rescript(collecting(&id));
    let second = loaded(&bench, &session).await;
    assert_eq!(status_of(&second, 0, "b1"), "in_progress");
    bench.workspace.write("over", "").unwrap();
    let update = card(&second, 0, "b1", "failed").await;
    let content = update["content"].to_string();
    assert!(content.contains("exited with status 5"), "{content}");
    second.prompt(&session, "collect").await.unwrap();
    let events = bench.events(&session).await;
    let result = last(&events, "tool/result")["content"].as_str().unwrap();
    assert!(result.starts_with("before\nafter\n"), "{result}");
    assert_eq!(count(&events, "job/started"), 1);
    assert_eq!(count(&events, "job/ended"), 1);
    // Asked for once, in the life before: no command ran a second time.
    let calls = |kind: &str| {
        let of_kind = events.iter().filter(|event| event["type"] == kind);
        let of_call = |event: &&Value| event["payload"].to_string().contains("\"b1\"");
        of_kind.filter(of_call).count()
    };
    assert_eq!((calls("tool/started"), calls("tool/result")), (1, 1));
}

#[tokio::test]
async fn r099_what_became_of_a_job_without_an_agent_is_on_its_card_when_the_session_is_loaded() {
    let bench = unconfined(
        "",
        starting(&[
            "while [ ! -e over ]; do sleep 0.05; done; echo all well; echo > first",
            "echo $PPID > keeper; while :; do sleep 0.1; done",
        ]),
    );
    let editor = group_leader(&bench).await;
    let session = editor.new_session(bench.workspace.root()).await.unwrap();
    editor.prompt(&session, "go").await.unwrap();
    file_text(&bench.workspace.path("keeper")).await;
    kill_group(&editor).await;
    bench.workspace.write("over", "").unwrap();
    file_text(&bench.workspace.path("first")).await;
    let folder = bench.home().join("state/jobs").join(&session);
    assert!(folder.is_dir());
    let second_id = ids(&bench, &session).await.pop().unwrap();
    // Removed by hand while nobody looked: a clear state, and never `not found`.
    let stopped = bench.terret(&["jobs", "stop", &second_id]).await.ok();
    assert!(stopped.contains("was stopped"), "{stopped}");
    std::fs::remove_dir_all(folder.join(&second_id)).unwrap();

    let second = loaded(&bench, &session).await;
    let update = card(&second, 0, "j1", "completed").await;
    assert!(
        update["content"].to_string().contains("all well"),
        "{update}"
    );
    let lost = card(&second, 0, "j2", "failed").await;
    assert!(
        lost["content"]
            .to_string()
            .contains("was lost: nothing of it"),
        "{lost}"
    );
    second.prompt(&session, "and?").await.unwrap();
    let lines = told(&bench.events(&session).await);
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert_eq!(lines[0].matches("job-").count(), 2, "{lines:#?}");
}

#[tokio::test]
async fn a_call_that_a_crash_kept_from_its_result_finds_its_job_and_starts_no_second_one() {
    let bench = unconfined("", starting(&["echo $$ >> runs; sleep 3651"]));
    let editor = group_leader(&bench).await;
    let session = editor.new_session(bench.workspace.root()).await.unwrap();
    editor.prompt(&session, "go").await.unwrap();
    file_text(&bench.workspace.path("runs")).await;
    kill_group(&editor).await;
    // As the log is when the crash comes between the job's start and the call's result.
    let path = bench.log_file(&session);
    let text = std::fs::read_to_string(&path).unwrap();
    let end = text.find("\"type\":\"job/started\"").unwrap();
    let end = end + text[end..].find('\n').unwrap() + 1;
    std::fs::write(&path, &text[..end]).unwrap();

    let second = loaded(&bench, &session).await;
    let answer = second.prompt(&session, "carry on").await.unwrap();
    assert_eq!(answer["stopReason"], "end_turn");
    let runs = pids(&bench.workspace.read("runs").unwrap());
    assert_eq!(runs.len(), 1);
    let events = bench.events(&session).await;
    assert_eq!(count(&events, "job/started"), 1);
    let result = last(&events, "tool/result");
    let id = ids(&bench, &session).await.pop().unwrap();
    assert!(
        result["content"].as_str().unwrap().contains(&id),
        "{result}"
    );
    second.finish().await.unwrap();
    until("it is gone", GONE, || !process::is_alive(runs[0])).await;
}

#[tokio::test]
async fn checks_149_and_150_the_ninth_job_is_refused_and_a_collected_one_frees_its_place() {
    let commands = ["sleep 3661"; 9];
    let bench = Bench::new("", starting(&commands));
    let (editor, session) = go(&bench).await;
    let events = bench.events(&session).await;
    let refused: Vec<&str> = events
        .iter()
        .filter(|event| event["type"] == "tool/result")
        .filter_map(|event| event["payload"]["error"].as_str())
        .collect();
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert!(refused[0].contains("8 jobs"), "{refused:?}");
    assert_eq!(count(&events, "job/started"), 8);
    assert_eq!(status_of(&editor, 0, "j8"), "in_progress");
    assert_eq!(status_of(&editor, 0, "j9"), "failed");
    editor.finish().await.unwrap();
}

#[tokio::test]
async fn jobs_of_two_sessions_are_kept_apart_and_a_deleted_session_takes_its_jobs_along() {
    let bench = unconfined("", starting(&["echo $$ >> pids; sleep 3671"]));
    let (editor, first) = go(&bench).await;
    let id = ids(&bench, &first).await.pop().unwrap();
    let second = editor.new_session(bench.workspace.root()).await.unwrap();
    let foreign = editor
        .prompt(&second, &format!("/jobs stop {id}"))
        .await
        .unwrap();
    assert_eq!(foreign["stopReason"], "end_turn");
    let answer = |events: &[Value]| {
        last(events, "notice/shown")["text"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let said = answer(&bench.events(&second).await);
    assert!(
        said.starts_with(&format!("there is no job `{id}`")),
        "{said}"
    );
    let pid = pids(&file_text(&bench.workspace.path("pids")).await)[0];
    assert!(process::is_alive(pid));
    editor.prompt(&second, "/jobs").await.unwrap();
    let said = answer(&bench.events(&second).await);
    assert_eq!(said, "There are no background jobs.");

    editor
        .request("session/delete", json!({"sessionId": first}))
        .await
        .unwrap();
    assert!(!process::is_alive(pid));
    assert!(!bench.home().join("state/jobs").join(&first).exists());
}

#[tokio::test]
async fn a_person_stops_a_job_by_its_slash_command_and_by_the_command_line() {
    let bench = unconfined("", starting(&["sleep 3681", "sleep 3682"]));
    let (editor, session) = go(&bench).await;
    let ids = ids(&bench, &session).await;
    editor
        .prompt(&session, &format!("/jobs stop {}", ids[0]))
        .await
        .unwrap();
    let update = card(&editor, 0, "j1", "completed").await;
    assert!(
        update["content"].to_string().contains("was stopped"),
        "{update}"
    );

    let mut inside = bench.command();
    inside
        .args(["jobs", "stop", &ids[1]])
        .env("TERRET_INSIDE", "1");
    let refused = process::run(inside, PATIENCE).await.unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("may not decide about the agent"));
    let wrong = bench.terret(&["jobs", "stop", "job-none"]).await;
    assert_eq!(wrong.code, Some(1), "{wrong:?}");
    let short = ids[1].trim_start_matches("job-");
    let stopped = bench.terret(&["jobs", "stop", &short[..8]]).await.ok();
    assert!(stopped.contains("was stopped"), "{stopped}");
    card(&editor, 0, "j2", "completed").await;
    // The model is told of what it did not do itself.
    editor.prompt(&session, "and?").await.unwrap();
    let lines = told(&bench.events(&session).await);
    assert_eq!(
        lines.concat().matches("was stopped").count(),
        2,
        "{lines:#?}"
    );
}

#[tokio::test]
async fn sixty_four_jobs_at_once_each_have_their_end() {
    let bench = Bench::new("", starting(&["sleep 0.5; echo well"; 8]));
    let editor = bench.editor(PermissionPolicy::AllowOnce).await;
    let mut sessions = Vec::new();
    for _ in 0..8 {
        sessions.push(editor.new_session(bench.workspace.root()).await.unwrap());
    }
    let mut prompts = Vec::new();
    for session in &sessions {
        prompts.push(editor.start_prompt(session, "go").await.unwrap());
    }
    for prompt in prompts {
        editor.response(prompt).await.unwrap();
    }
    for session in &sessions {
        let ended = |events: &[Value]| count(events, "job/ended");
        let start = Instant::now();
        loop {
            let events = bench.events(session).await;
            if ended(&events) == 8 {
                break;
            }
            let said: Vec<&Value> = events
                .iter()
                .filter(|event| {
                    let kind = event["type"].as_str().unwrap();
                    kind.starts_with("job/") || kind == "tool/result"
                })
                .collect();
            assert!(
                start.elapsed() < PATIENCE,
                "{said:#?}\n{}",
                bench.terret(&["jobs", "list"]).await.stdout
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let events = bench.events(session).await;
        assert_eq!(ended(&events), 8);
        assert!(
            events
                .iter()
                .filter(|event| event["type"] == "job/ended")
                .all(|event| event["payload"]["outcome"] == json!({"how": "exited", "status": 0}))
        );
    }
    // Keepers are waited for like everything else that the agent starts (R092).
    let agent = editor.pid().unwrap();
    until("no zombie is left", PATIENCE, || zombies(agent) == 0).await;
    editor.finish().await.unwrap();
}

/// Ended children of a process that it has not waited for.
fn zombies(parent: u32) -> usize {
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok())
        .filter(|stat| {
            let mut fields = stat
                .rsplit_once(')')
                .map_or("", |(_, fields)| fields)
                .split_whitespace();
            fields.next() == Some("Z") && fields.next() == Some(&parent.to_string())
        })
        .count()
}

/// Processor time that a process has used, in clock ticks of 10 ms.
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|field| field.parse::<u64>().unwrap())
        .sum()
}

#[tokio::test]
async fn r068_silent_jobs_cost_nothing_while_nobody_asks() {
    const IDLE: Duration = Duration::from_secs(6);
    let bench = unconfined(
        "",
        starting(&[
            "echo $PPID >> keepers; sleep 3711",
            "echo $PPID >> keepers; sleep 3712",
        ]),
    );
    let (editor, _session) = go(&bench).await;
    let keepers = bench.workspace.path("keepers");
    until("both run", PATIENCE, || {
        std::fs::read_to_string(&keepers).is_ok_and(|text| text.lines().count() == 2)
    })
    .await;
    let mut all = pids(&bench.workspace.read("keepers").unwrap());
    all.push(editor.pid().unwrap());
    // What the turn left to be done is done.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let used = || all.iter().map(|pid| ticks(*pid)).sum::<u64>();
    let before = used();
    tokio::time::sleep(IDLE).await;
    let after = used();
    // 0.5 % of 6 s is 3 ticks.
    assert!(after - before <= 3, "{} ticks in {IDLE:?}", after - before);
    editor.finish().await.unwrap();
}

#[tokio::test]
async fn a_job_whose_keeper_is_killed_is_lost_and_leaves_no_process() {
    let bench = unconfined(
        "",
        starting(&[
            "echo seen; setsid sleep 3701 & echo $! >> pids; echo $$ >> pids; echo $PPID > keeper; sleep 3702",
        ]),
    );
    let (editor, _session) = go(&bench).await;
    let keeper = pids(&file_text(&bench.workspace.path("keeper")).await)[0];
    let pids = pids(&bench.workspace.read("pids").unwrap());
    signal(keeper, Signal::KILL);
    let update = card(&editor, 0, "j1", "failed").await;
    assert!(
        update["content"].to_string().contains("was lost"),
        "{update}"
    );
    until("all are gone", GONE, || {
        pids.iter().all(|pid| !process::is_alive(*pid))
    })
    .await;
}

#[tokio::test]
async fn a_kept_job_outlives_its_editor_and_a_held_turn_waits_for_its_end() {
    let command = "while [ ! -e over ]; do sleep 0.05; done; echo built";
    let args = json!({"command": command, "keep": true});
    let script = Script::new()
        .reply(Reply::on("^go$").call_as("j1", "job_start", args))
        .reply(Reply::on("").say("done"));
    let bench = unconfined("", script);
    bench.configure("[jobs]\nturn = \"hold\"\n");
    let (editor, session) = go(&bench).await;
    editor.finish().await.unwrap();
    let id = ids(&bench, &session).await.pop().unwrap();
    let listed = bench.terret(&["jobs", "list"]).await.ok();
    assert!(
        listed.contains(&id) && listed.contains("runs for"),
        "{listed}"
    );

    bench.rescript(
        Script::new()
            .reply(Reply::on("^wait$").say(&format!("I wait for {id}.")))
            .reply(Reply::on("Background jobs that ended").say("It is built."))
            .reply(Reply::on("").say("done")),
    );
    let second = loaded(&bench, &session).await;
    let prompt = second.start_prompt(&session, "wait").await.unwrap();
    second
        .wait_for("what it waits for", |frame| {
            let (_, update) = frame.update()?;
            let text = update["content"]["text"].as_str()?;
            text.contains("I wait for").then_some(())
        })
        .await
        .unwrap();
    assert_eq!(count(&bench.events(&session).await, "turn/end"), 1);
    bench.workspace.write("over", "").unwrap();
    let answer = second.response(prompt).await.unwrap();
    assert_eq!(answer["stopReason"], "end_turn");
    let events = bench.events(&session).await;
    assert_eq!(count(&events, "turn/end"), 2);
    assert_eq!(
        last(&events, "assistant/message")["parts"][0]["text"],
        "It is built."
    );
}
