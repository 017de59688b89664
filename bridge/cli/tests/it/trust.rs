//! What a project brings, asked for in the editor and decided on the command line; and the
//! user's own hooks, taken up while the program runs.

use std::path::PathBuf;

use serde_json::json;
use terret_fixtures::{PermissionPolicy, Reply, Script};

use crate::support::{Bench, bash, count, last};

const CONFIG: &str = ".terret/config.toml";
const ALLOWS: &str = "[policy]\nallow = [\"Bash(touch:*)\"]\n";

fn bench(config: &str) -> Bench {
    let bench = Bench::new("", bash("touch made")).unconfined();
    bench.workspace.write(CONFIG, config).unwrap();
    bench
}

#[tokio::test]
async fn the_command_line_shows_decides_and_forgets() {
    let bench = bench(ALLOWS);
    let shown = bench.terret(&["trust", "show"]).await.ok();
    assert!(
        shown.contains("config.toml  not decided")
            && shown.contains("allow `Bash(touch:*)` without asking"),
        "{shown}"
    );
    // Nobody can be asked: a notice says so, and the rule does not hold.
    let refused = bench.terret_with_model(&["run", "go"]).await;
    let said = format!("{}{}", refused.stdout, refused.stderr);
    assert!(said.contains("terret trust allow"), "{said}");
    assert!(!bench.workspace.path("made").exists());
    let allowed = bench.terret(&["trust", "allow"]).await.ok();
    assert!(allowed.contains("config.toml  trusted"), "{allowed}");
    bench.terret_with_model(&["run", "go"]).await.ok();
    assert!(bench.workspace.path("made").exists());
    let listed = bench.terret(&["trust"]).await.ok();
    assert!(
        listed.starts_with("trusted  ") && listed.contains("command line"),
        "{listed}"
    );
    // Another content is another question.
    bench
        .workspace
        .write(CONFIG, &format!("{ALLOWS}# more\n"))
        .unwrap();
    let shown = bench.terret(&["trust", "show"]).await.ok();
    assert!(shown.contains("not decided"), "{shown}");
    bench.terret(&["trust", "refuse"]).await.ok();
    let root = bench.workspace.root().to_str().unwrap().to_owned();
    let shown = bench.terret(&["trust", "show", &root]).await.ok();
    assert!(shown.contains("refused"), "{shown}");
    let forgot = bench.terret(&["trust", "forget"]).await.ok();
    assert!(forgot.starts_with("forgot 2 verdicts"), "{forgot}");
    let wrong = bench.terret(&["trust", "show", "/no/such/folder"]).await;
    assert_eq!(wrong.code, Some(1));
    assert!(wrong.stderr.contains("is no folder"), "{wrong:?}");
}

#[tokio::test]
async fn the_question_is_a_card_before_its_request_and_is_asked_once() {
    let bench = bench(ALLOWS);
    let (editor, session) = bench.session(PermissionPolicy::AllowOnce).await;
    let answer = editor.prompt(&session, "go").await.unwrap();
    assert_eq!(answer["stopReason"], "end_turn");
    assert!(bench.workspace.path("made").exists());
    editor.prompt(&session, "more").await.unwrap();
    let (seen, _) = editor.finish().await.unwrap();
    let asked: Vec<_> = seen
        .requests_of_agent("session/request_permission")
        .collect();
    assert_eq!(
        asked.len(),
        1,
        "one question, and the rule spares the other"
    );
    let params = asked[0].params().unwrap();
    let card = &params["toolCall"];
    let id = card["toolCallId"].as_str().unwrap();
    assert!(id.starts_with("trust-"));
    let text = card["content"].to_string();
    assert!(
        text.contains("would:") && text.contains("allow `Bash(touch:*)` without asking"),
        "{text}"
    );
    let names: Vec<&str> = params["options"]
        .as_array()
        .unwrap()
        .iter()
        .map(|option| option["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["Trust this content", "Do not trust it"]);
    // R078: the card once and before the request; then its end.
    let about: Vec<String> = seen
        .from_agent()
        .filter(|frame| {
            frame
                .params()
                .is_some_and(|params| params.to_string().contains(id))
        })
        .map(|frame| {
            let kind = frame.update_kind().unwrap_or("request");
            let status = frame.params().unwrap().pointer("/update/status");
            format!(
                "{kind} {}",
                status.and_then(|word| word.as_str()).unwrap_or("-")
            )
        })
        .collect();
    assert_eq!(
        about,
        ["tool_call -", "request -", "tool_call_update completed"]
    );
}

#[tokio::test]
async fn the_inbox_shows_the_question_and_decides_it() {
    let bench = bench(ALLOWS);
    let (editor, session) = bench.session(PermissionPolicy::Never).await;
    let prompt = editor.start_prompt(&session, "go").await.unwrap();
    editor.wait_permission(0).await.unwrap();
    let listed = bench.terret(&["inbox"]).await.ok();
    assert!(
        listed.contains("Trust `.terret/config.toml` of this project?"),
        "{listed}"
    );
    let mark = editor.mark();
    bench.terret(&["inbox", "reject", &session]).await.ok();
    // Refused, so that the command itself is asked for.
    editor.wait_permission(mark).await.unwrap();
    bench.terret(&["inbox", "reject", &session]).await.ok();
    editor.response(prompt).await.unwrap();
    let shown = bench.terret(&["trust", "show"]).await.ok();
    assert!(shown.contains("refused"), "{shown}");
}

#[tokio::test]
async fn a_running_session_takes_up_what_another_terminal_decides() {
    let bench = bench(ALLOWS);
    let (editor, session) = bench.session(PermissionPolicy::RejectOnce).await;
    editor.prompt(&session, "go").await.unwrap();
    assert!(!bench.workspace.path("made").exists());
    bench.terret(&["trust", "allow"]).await.ok();
    editor.prompt(&session, "go").await.unwrap();
    assert!(bench.workspace.path("made").exists());
}

#[tokio::test]
async fn settings_of_another_agent_wait_for_trust_too() {
    let bench = bench("");
    bench.configure("[policy]\nclaude_settings = [\".claude/settings.json\"]\n");
    let settings = json!({ "permissions": { "allow": ["Bash(touch:*)"] } });
    bench
        .workspace
        .write(".claude/settings.json", &settings.to_string())
        .unwrap();
    let shown = bench.terret(&["trust", "show"]).await.ok();
    assert!(shown.contains("settings.json  not decided"), "{shown}");
    bench.terret_with_model(&["run", "go"]).await;
    assert!(!bench.workspace.path("made").exists());
    bench.terret(&["trust", "allow"]).await.ok();
    bench.terret_with_model(&["run", "go"]).await.ok();
    assert!(bench.workspace.path("made").exists());
}

/// A hook that keeps the calls of `Bash` from running while the file `closed` is there.
fn closing_hook(bench: &Bench) -> String {
    let script: PathBuf = bench.workspace.beside().join("hook.sh");
    std::fs::write(
        &script,
        "cat >> \"$TERRET_PROJECT_DIR/told\"; [ ! -e closed ] || { echo closed >&2; exit 2; }",
    )
    .unwrap();
    format!(
        "[[hooks]]\nevent = \"PreToolUse\"\nmatcher = \"Bash\"\ncommand = [\"sh\", \"{}\"]\n",
        script.display()
    )
}

#[tokio::test]
async fn the_users_own_hooks_are_taken_up_with_the_file_and_judge_real_calls() {
    let script = Script::new()
        .reply(Reply::on("^one$").call_as("c1", "Bash", json!({ "command": "touch one" })))
        .reply(Reply::on("^two$").call_as("c2", "Bash", json!({ "command": "touch two" })))
        .reply(Reply::on("").say("done"));
    let bench = Bench::new("", script).unconfined();
    let (editor, session) = bench.session(PermissionPolicy::AllowOnce).await;
    editor.prompt(&session, "one").await.unwrap();
    assert!(bench.workspace.path("one").exists());
    assert!(!bench.workspace.path("told").exists());
    bench.workspace.write("closed", "").unwrap();
    bench.configure(&closing_hook(&bench));
    // The file is looked at once a second; a call is what shows that it was taken up.
    let begun = std::time::Instant::now();
    let refused = loop {
        editor.prompt(&session, "two").await.unwrap();
        let events = bench.events(&session).await;
        let result = last(&events, "tool/result").clone();
        if !result["error"].is_null() {
            break result;
        }
        std::fs::remove_file(bench.workspace.path("two")).unwrap();
        assert!(begun.elapsed() < crate::support::PATIENCE);
    };
    assert_eq!(refused["error"], "Bash denied by a hook: closed");
    assert!(!bench.workspace.path("two").exists());
    assert!(
        bench
            .workspace
            .read("told")
            .unwrap()
            .contains("\"touch two\"")
    );
    let shown = bench.terret(&["config", "show"]).await.ok();
    assert!(
        shown.contains("hooks = [\"run before calls of `Bash`: sh "),
        "{shown}"
    );
}

#[tokio::test]
async fn a_hook_that_is_not_right_is_refused_by_name() {
    let bench = Bench::saying("hello");
    for (text, named) in [
        (
            "[[hooks]]\nevent = \"Stop\"\ncommand = \"x\"\n",
            "PreToolUse",
        ),
        (
            "[[hooks]]\nevent = \"PreToolUse\"\ncommand = \"x\"\nmatcher = \"(\"\n",
            "matcher",
        ),
        ("[inbox]\nnotify = []\n", "inbox.notify"),
        ("[inbox]\nnotify_after = 0\n", "inbox.notify_after"),
    ] {
        bench.configure(text);
        let refused = bench.terret_with_model(&["run", "hi"]).await;
        assert_eq!(refused.code, Some(1), "{text}");
        assert!(refused.stderr.contains(named), "{refused:?}");
    }
}

#[tokio::test]
async fn an_approval_that_waits_runs_the_notify_command() {
    let bench = Bench::new("", bash("touch made"));
    let told = bench.workspace.beside().join("told");
    bench.configure(&format!(
        "[inbox]\nnotify_after = 1\nnotify = [\"sh\", \"-c\", \"cat > '{0}.new'; echo >> '{0}.new'; mv '{0}.new' '{0}'\"]\n",
        told.display()
    ));
    let (editor, session) = bench.session(PermissionPolicy::Never).await;
    let prompt = editor.start_prompt(&session, "go").await.unwrap();
    let text = crate::support::file_text(&told).await;
    let told: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(told["session_id"], session.as_str());
    assert_eq!(told["title"], "touch made");
    bench.terret(&["inbox", "approve", &session]).await.ok();
    editor.response(prompt).await.unwrap();
    let events = bench.events(&session).await;
    assert_eq!(count(&events, "approval/requested"), 1);
}
