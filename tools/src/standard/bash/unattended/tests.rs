#![expect(clippy::unwrap_used, reason = "a failed setup is a failed test")]

use std::path::Path;

use serde_json::json;

use super::*;
use crate::standard::bash::Bash;
use crate::testing::Bench;

fn names(command: &str) -> Option<Vec<String>> {
    Some(
        simple_commands(command)?
            .iter()
            .map(|simple| simple.name().to_owned())
            .collect(),
    )
}

#[test]
fn simple_commands_are_told_apart_where_that_is_sure() {
    let found = |command| names(command).unwrap().join(" ");
    assert_eq!(
        found("A=1 make -j2 && /usr/bin/vim x; ls | wc -l &"),
        "make vim ls wc"
    );
    assert_eq!(found("echo 'a; vim b' \"c && vi\" # vim"), "echo");
    assert_eq!(found("make 2>&1 >log\ncat"), "make cat");
    for unsure in [
        "echo $(vim)",
        "cat <<X\nvim\nX",
        "(vim)",
        "echo 'open",
        "echo \"$(vim)\"",
    ] {
        assert_eq!(names(unsure), None, "{unsure}");
    }
}

#[test]
fn an_editor_is_not_started_unless_it_is_told_what_to_do() {
    for command in [
        "vim",
        "cd x && vim a.rs",
        "EDITOR=x nano f",
        "/usr/bin/vi a b",
    ] {
        let refusal = refused(command).unwrap_err();
        assert!(refusal.0.starts_with("nothing was run"), "{refusal:?}");
    }
    for command in [
        "vim -es -c wq f",
        "vim --version",
        "vim +q",
        "echo vim",
        "grep vim f",
        "git vi",
    ] {
        assert_eq!(refused(command), Ok(()), "{command}");
    }
}

#[test]
fn what_wanted_a_person_is_told_with_the_way_out() {
    let told = |command, end, text| hint(command, end, text);
    let failed = End::Exited(1);
    assert_eq!(
        told("top", failed, "top: failed tty get\n").as_deref(),
        Some(TERMINAL)
    );
    assert_eq!(
        told(
            "sudo ls",
            failed,
            "sudo: a terminal is required to read the password"
        )
        .as_deref(),
        Some(PASSWORD)
    );
    assert_eq!(
        told("x", failed, "Name: EOFError: EOF when reading a line").as_deref(),
        Some(QUESTION)
    );
    assert!(
        told("python3", End::Exited(0), "")
            .unwrap()
            .starts_with("`python3`")
    );
    assert!(
        told("read -r name", failed, "")
            .unwrap()
            .starts_with("`read`")
    );
    for (command, end, text) in [
        ("true", End::Exited(0), ""),
        ("echo x | cat", End::Exited(0), ""),
        ("cat < f", End::Exited(0), ""),
        ("cat f", End::Exited(0), ""),
        // Nothing is wrong with a success that speaks of terminals.
        ("grep tty f", End::Exited(0), "not a tty"),
        ("top", End::Cancelled, "failed tty get"),
    ] {
        assert_eq!(told(command, end, text), None, "{command}");
    }
}

/// Runs a command as a session would, in a git repository, and gives its ledger. Long
/// before its timeout: whoever waits for a person here waits for ever.
async fn ledger(command: &str) -> String {
    let bench = Bench::new();
    let run = |command: String| {
        let bench = &bench;
        async move {
            let args = json!({"command": command, "timeout": 60_000});
            bench.run(&Bash::new(), args).await.unwrap()
        }
    };
    let setup = "git init -q . && git config user.name a && git config user.email a@b.example && echo x > f && \
                 git add f && git commit -qm one && echo y > f && git commit -qam two && echo z > f && git add f";
    let made = run(setup.to_owned()).await;
    assert_eq!(made.remarks, Vec::<String>::new(), "{}", made.text);
    let output = run(command.to_owned()).await;
    let ledger = output.remarks.join("\n");
    assert!(
        !ledger.contains("notice: "),
        "{command} waited: {}",
        output.render()
    );
    ledger
}

/// Whether a real program is here; the tests below say of each what they found.
fn is_there(program: &str) -> bool {
    ["/usr/bin", "/bin", "/usr/local/bin", "/usr/sbin", "/sbin"]
        .iter()
        .any(|folder| Path::new(folder).join(program).is_file())
}

#[tokio::test(flavor = "multi_thread")]
async fn git_opens_no_editor_and_says_what_to_do() {
    for command in [
        "git commit",
        "git commit --amend",
        "git stash -q && git rebase -i HEAD~1",
        "git tag -a v1",
    ] {
        let ledger = ledger(command).await;
        assert!(ledger.starts_with("exit status 1"), "{command}: {ledger}");
        assert!(ledger.contains(EDITOR), "{command}: {ledger}");
    }
    assert_eq!(ledger("git commit -m three").await, "");
    assert_eq!(ledger("git log && git diff HEAD~1 && git show").await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn real_programs_that_want_a_person_end_at_once_with_the_reason() {
    // What is run, the program that it needs, and what is told.
    for (command, program, words) in [
        ("top", "top", TERMINAL),
        ("tmux new", "tmux", TERMINAL),
        ("sudo -k ls", "sudo", PASSWORD),
        ("python3 -c 'input(\"name? \")'", "python3", QUESTION),
        ("npm init", "npm", QUESTION),
        ("read -r name", "bash", SILENT),
        ("python3", "python3", SILENT),
        ("node", "node", SILENT),
        ("cat", "cat", SILENT),
        ("bash", "bash", SILENT),
    ] {
        // A setuid program that asks root nothing has no question to fail on.
        let asks_root = !(program == "sudo" && rustix::process::geteuid().is_root());
        if !is_there(program) || !asks_root {
            continue;
        }
        let ledger = ledger(command).await;
        assert!(ledger.contains(words), "{command}: {ledger}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pagers_print_and_do_not_wait() {
    for (command, program) in [
        ("less f", "less"),
        ("more f", "more"),
        ("man bash | head -3", "man"),
    ] {
        if is_there(program) {
            assert_eq!(ledger(command).await, "", "{command}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_editor_of_the_screen_is_refused_before_anyone_is_asked() {
    let bench = Bench::new();
    let tool = Bash::new();
    let args = json!({"command": "touch made && vim f"});
    let context = bench.context();
    let refused = crate::call::Tool::preview(&tool, &context, &args)
        .await
        .unwrap_err();
    assert!(
        refused
            .0
            .starts_with("nothing was run: `vim` opens an editor")
    );
    assert_eq!(bench.run(&tool, args).await.unwrap_err(), refused);
    assert!(!bench.path("made").exists());
}
