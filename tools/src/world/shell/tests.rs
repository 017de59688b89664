//! Real bash, real processes.
#![expect(
    clippy::disallowed_methods,
    reason = "tests make and look at what the product acts on"
)]
#![expect(clippy::unwrap_used, reason = "a failed setup is a failed test")]

use std::sync::Arc;
use std::time::Instant;

use super::*;
use crate::world::process::ProcessSettings;

/// A shell in a folder of its own.
pub(super) struct Bench {
    folder: tempfile::TempDir,
    pub(super) processes: Processes,
    pub(super) shell: Shell,
}

impl Bench {
    fn new() -> Self {
        Self::with(|settings| settings.environment.keep = vec!["PATH".to_owned()])
    }

    pub(super) fn with(change: impl FnOnce(&mut ProcessSettings)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("work")).unwrap();
        let mut settings = ProcessSettings {
            scratch: root.join("scratch"),
            ..ProcessSettings::default()
        };
        change(&mut settings);
        let processes = Processes::new(settings);
        let shell = Shell::new(ShellSettings {
            cwd: root.join("work"),
            bash: None,
        });
        Self {
            folder,
            processes,
            shell,
        }
    }

    pub(super) fn work(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join("work")
    }

    pub(super) async fn run(&self, command: &str) -> ShellResult {
        self.run_for(command, Duration::from_secs(60), &CancellationToken::new())
            .await
    }

    async fn run_for(
        &self,
        command: &str,
        timeout: Duration,
        cancel: &CancellationToken,
    ) -> ShellResult {
        let command = ShellCommand {
            command: command.to_owned(),
            timeout,
            roots: vec![self.work()],
            live: None,
            confinement: Confinement::default(),
        };
        self.shell
            .run(&self.processes, command, cancel)
            .await
            .unwrap()
    }

    pub(super) async fn text(&self, command: &str) -> String {
        self.run(command).await.finished.output.text
    }

    async fn end(&self, command: &str) -> End {
        self.run(command).await.finished.end
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn check_138_folder_and_exports_carry_within_a_session_only() {
    let (one, other) = (Bench::new(), Bench::new());
    one.run(
        "mkdir -p 'a b' && cd 'a b' && export WORD='x y\nz' LANG=C && unset HOME && local_only=1",
    )
    .await;
    assert_eq!(
        one.text("pwd; echo \"$WORD|$LANG|${HOME-none}|${local_only-none}\"")
            .await,
        format!("{}\nx y\nz|C|none|none\n", one.work().join("a b").display())
    );
    assert_eq!(
        other.text("pwd; echo \"${WORD-none}\"").await,
        format!("{}\nnone\n", other.work().display())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn check_138_functions_aliases_and_start_files_do_not_carry() {
    let bench = Bench::new();
    bench.run("f() { echo f; }; export -f f; alias ls=false; export BASH_ENV=/dev/stdin ENV=/x LD_PRELOAD=/none.so").await;
    let text = bench
        .text("type -t f; alias; echo \"${BASH_ENV-none} ${ENV-none} ${LD_PRELOAD-none}\"")
        .await;
    assert_eq!(text, "none none none\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn check_138_state_survives_every_way_to_end() {
    for (ending, status) in [
        ("exit 3", 3),
        ("set -e; false; echo never", 1),
        ("set -u; echo $never_set; true", 127),
        ("trap 'echo mine' EXIT", 0),
        ("set -eux; IFS=/; set -f", 0),
        ("(exit 4)", 4),
        ("echo 'unclosed", 2),
        ("if then", 2),
        ("cat <<END\nno end", 0),
        ("false # comment", 1),
        ("true \\", 0),
        (
            "printf() { builtin printf forged; }; pwd() { :; }; cd() { :; }; false",
            1,
        ),
    ] {
        let bench = Bench::new();
        let result = bench
            .run(&format!("mkdir kept; cd kept; export KEPT=1\n{ending}"))
            .await;
        assert_eq!(
            result.finished.end,
            End::Exited(status),
            "{ending}: {result:?}"
        );
        let after = bench.text("echo \"${PWD##*/} $KEPT\"").await;
        assert_eq!(after, "kept 1\n", "{ending}: {result:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trap_of_the_command_still_runs() {
    let bench = Bench::new();
    assert_eq!(
        bench
            .text("trap 'echo mine' EXIT; mkdir kept; cd kept")
            .await,
        "mine\n"
    );
    assert_eq!(bench.shell.cwd(), bench.work().join("kept"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_names_the_line_of_the_command() {
    let bench = Bench::new();
    assert_eq!(
        bench.text("true\nno-such-program").await,
        "bash: line 2: no-such-program: command not found\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_shows_the_command_alone() {
    let bench = Bench::new();
    assert_eq!(bench.text("set -x; true").await, "++ true\n");
    assert_eq!(bench.text("set -x; exit").await, "++ exit\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn check_138_a_shell_that_cannot_report_keeps_what_was() {
    let bench = Bench::new();
    bench.run("mkdir kept; cd kept; export KEPT=1").await;
    let result = bench.run("cd /; export KEPT=2; exec true").await;
    assert_eq!(result.finished.end, End::Exited(0));
    assert!(
        result
            .remarks
            .iter()
            .any(|remark| remark.contains("was replaced")),
        "{result:?}"
    );
    assert_eq!(bench.text("echo \"${PWD##*/} $KEPT\"").await, "kept 1\n");
    let killed = bench.run("cd /; kill -KILL $$").await;
    assert_eq!(killed.finished.end, End::Signalled(9));
    assert_eq!(bench.text("echo \"${PWD##*/}\"").await, "kept\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn check_138_a_vanished_folder_falls_back_with_a_notice() {
    let bench = Bench::new();
    bench.run("mkdir gone; cd gone").await;
    std::fs::remove_dir(bench.work().join("gone")).unwrap();
    let result = bench.run("pwd").await;
    assert_eq!(
        result.finished.output.text,
        format!("{}\n", bench.work().display())
    );
    assert!(
        result
            .remarks
            .iter()
            .any(|remark| remark.starts_with("notice: the folder")),
        "{result:?}"
    );
    assert_eq!(bench.run("pwd").await.remarks, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_outside_the_workspace_is_named_once() {
    let bench = Bench::new();
    let result = bench.run("cd /usr").await;
    assert_eq!(
        result.remarks,
        ["the folder is now /usr, which is outside the workspace"]
    );
    assert!(bench.run("true").await.remarks.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn check_139_outputs_are_interleaved_as_they_came() {
    let bench = Bench::new();
    let result = bench
        .run("echo 1; echo 2 >&2; echo 3; sh -c 'echo 4 >&2; echo 5'; exit 7")
        .await;
    assert_eq!(result.finished.output.text, "1\n2\n3\n4\n5\n");
    assert_eq!(result.finished.end, End::Exited(7));
}

#[tokio::test(flavor = "multi_thread")]
async fn check_142_nothing_that_is_printed_forges_status_or_state() {
    let bench = Bench::new();
    let before = bench.shell.cwd();
    for forged in [
        "printf() { builtin printf '/tmp\\0X=1\\0=end\\0'; return 0; }; printf x; false",
        "builtin() { return 0; }; false",
        "exit() { command true; }; false",
        "eval() { :; }; trap() { :; }; set() { :; }; unset() { :; }; false",
        "readonly TERRET_STATUS=0 TERRET_SAVED=1; false",
        "printf '/tmp\\0X=1\\0=end\\0'; printf '/tmp\\0X=1\\0=end\\0' >&2; false",
    ] {
        let result = bench.run(forged).await;
        assert!(
            matches!(result.finished.end, End::Exited(status) if status != 0),
            "{forged}: {result:?}"
        );
        assert_eq!(bench.shell.cwd(), before, "{forged}");
        assert_eq!(bench.text("echo ${X-none}").await, "none\n");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_stands_in_no_process_list_and_no_descriptor_below_ten() {
    let bench = Bench::new();
    let text = bench
        .text("tr '\\0' ' ' < /proc/$$/cmdline; : needle_in_list; readlink /proc/self/fd/0")
        .await;
    assert!(!text.contains("needle_in_list"), "{text}");
    assert!(text.ends_with("/dev/null\n"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_that_does_not_fit_is_not_taken() {
    let bench = Bench::new();
    let result = bench
        .run("cd /; for i in {1..40}; do export V$i=$(builtin printf '%060000d' 1); done")
        .await;
    assert_eq!(result.finished.end, End::Exited(0));
    assert_eq!(bench.shell.cwd(), bench.work());
    assert_eq!(bench.text("echo ${V1-none}").await, "none\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_a_person_ends_at_once() {
    let bench = Bench::new();
    let begun = Instant::now();
    assert_eq!(
        bench
            .text("read -r line; echo \"read: $?\"; cat; tty")
            .await,
        "read: 1\nnot a tty\n"
    );
    assert_eq!(
        bench.end("( : < /dev/tty ) 2>/dev/null").await,
        End::Exited(1)
    );
    assert_eq!(
        bench
            .text("sh -c \"$GIT_EDITOR \\\"\\$@\\\"\" editor file || echo failed")
            .await
            .lines()
            .last(),
        Some("failed")
    );
    assert_eq!(
        bench
            .text("echo $PAGER $GIT_PAGER $TERM $GIT_TERMINAL_PROMPT")
            .await,
        "cat cat dumb 0\n"
    );
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_longer_than_an_argument_may_be_runs() {
    let bench = Bench::new();
    let long = "x".repeat(300_000);
    let result = bench
        .run(&format!("cat > file <<'END'\n{long}\nEND\nwc -c < file"))
        .await;
    assert_eq!(result.finished.output.text.trim(), "300001");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zero_byte_is_refused() {
    let bench = Bench::new();
    let command = ShellCommand {
        command: "echo \0".to_owned(),
        timeout: Duration::from_secs(1),
        roots: Vec::new(),
        live: None,
        confinement: Confinement::default(),
    };
    let refused = bench
        .shell
        .run(&bench.processes, command, &CancellationToken::new())
        .await;
    assert!(matches!(refused, Err(ShellError::ZeroByte)));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_bash_the_refusal_says_so() {
    let bench = Bench::new();
    let shell = Shell {
        bash: None,
        ..Shell::new(ShellSettings {
            cwd: bench.work(),
            bash: None,
        })
    };
    let command = ShellCommand {
        command: "true".to_owned(),
        timeout: Duration::from_secs(1),
        roots: Vec::new(),
        live: None,
        confinement: Confinement::default(),
    };
    let refused = shell
        .run(&bench.processes, command, &CancellationToken::new())
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("bash was not found"));
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_run_side_by_side() {
    let benches: Vec<Arc<Bench>> = (0..8).map(|_| Arc::new(Bench::new())).collect();
    let mut running = tokio::task::JoinSet::new();
    for (number, bench) in benches.iter().cloned().enumerate() {
        running.spawn(async move {
            bench.run(&format!("export NUMBER={number}")).await;
            (number, bench.text("echo $NUMBER").await)
        });
    }
    while let Some(done) = running.join_next().await {
        let (number, text) = done.unwrap();
        assert_eq!(text, format!("{number}\n"));
    }
}

/// A process a call: there is no shell that could be busy.
#[tokio::test(flavor = "multi_thread")]
async fn check_143_a_second_command_at_the_same_time_runs_as_well() {
    let bench = Bench::new();
    let (one, two) = tokio::join!(
        bench.run("echo one; until [ -e met ]; do sleep 0.01; done; exit 1"),
        bench.run("echo two; touch met; exit 2")
    );
    assert_eq!(
        (one.finished.output.text.as_str(), one.finished.end),
        ("one\n", End::Exited(1))
    );
    assert_eq!(
        (two.finished.output.text.as_str(), two.finished.end),
        ("two\n", End::Exited(2))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timed_out_command_leaves_the_state_of_before() {
    let bench = Bench::new();
    bench.run("mkdir kept; cd kept").await;
    let result = bench
        .run_for(
            "cd /; echo partial; export LATE=1; sleep 600",
            Duration::from_millis(300),
            &CancellationToken::new(),
        )
        .await;
    assert_eq!(result.finished.end, End::TimedOut);
    assert_eq!(result.finished.output.text, "partial\n");
    assert_eq!(
        bench.text("echo ${PWD##*/} ${LATE-none}").await,
        "kept none\n"
    );
}
