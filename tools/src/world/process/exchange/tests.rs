//! Real programs that answer, and some that do not.
#![expect(
    clippy::disallowed_methods,
    reason = "tests look at what the product acts on"
)]
#![expect(clippy::unwrap_used, reason = "a failed setup is a failed test")]

use std::ffi::OsString;
use std::time::Instant;

use super::*;
use crate::helper::members;
use crate::world::process::ProcessSettings;
use crate::world::sandbox::Confinement;

const PATIENCE: Duration = Duration::from_secs(30);

fn processes() -> Processes {
    Processes::new(ProcessSettings {
        grace: Duration::from_millis(200),
        ..ProcessSettings::default()
    })
}

fn program(processes: &Processes, script: &str) -> Program {
    Program {
        argv: ["sh", "-c", script].map(OsString::from).to_vec(),
        cwd: "/".into(),
        environment: processes.environment().clone(),
        input: None,
        confinement: Confinement::Outside,
    }
}

async fn within(script: &str, input: &[u8], timeout: Duration) -> Answered {
    let processes = processes();
    let exchange = Exchange {
        input: input.to_vec(),
        timeout,
        most_output: 4096,
        most_errors: 64,
    };
    let answered = processes
        .exchange(program(&processes, script), exchange)
        .await
        .unwrap();
    tokio::time::timeout(PATIENCE, processes.shutdown())
        .await
        .unwrap();
    answered
}

fn text(kept: &Kept) -> String {
    String::from_utf8(kept.bytes.clone()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn input_output_errors_and_status_are_each_its_own() {
    let answered = within(
        "cat; printf 'no\\t\\033[1m' >&2; exit 2",
        b"{\"a\":1}",
        PATIENCE,
    )
    .await;
    assert_eq!(answered.end, End::Exited(2));
    assert_eq!(text(&answered.output), "{\"a\":1}");
    assert_eq!(text(&answered.errors), "no\t\u{1b}[1m");
}

#[tokio::test(flavor = "multi_thread")]
async fn much_is_read_and_its_beginning_kept() {
    let answered = within("head -c 10000000 /dev/zero; exit 3", b"", PATIENCE).await;
    assert_eq!(answered.end, End::Exited(3));
    assert_eq!(answered.output.bytes.len(), 4096);
    assert_eq!(answered.output.dropped, 10_000_000 - 4096);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_reads_nothing_of_much_ends_as_it_likes() {
    let answered = within("exec 0<&-; exit 0", &vec![b'x'; 1 << 20], PATIENCE).await;
    assert_eq!(answered.end, End::Exited(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_hangs_is_ended_with_all_that_it_started() {
    let script = "trap '' TERM; setsid sleep 600 & echo $!; echo $$; while :; do sleep 600; done";
    let answered = within(script, b"", Duration::from_millis(300)).await;
    assert_eq!(answered.end, End::TimedOut);
    for pid in text(&answered.output).lines() {
        assert!(members::look(pid.parse().unwrap()).is_none_or(|found| found.dead));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_holds_the_outputs_open_ends_with_it() {
    let begun = Instant::now();
    let answered = within("setsid sleep 600 & echo $!", b"", Duration::from_secs(300)).await;
    assert_eq!(answered.end, End::Exited(0));
    assert!(begun.elapsed() < PATIENCE);
    let pid = text(&answered.output).trim().parse().unwrap();
    assert!(members::look(pid).is_none_or(|found| found.dead));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_nobody_waits_for_any_more_is_ended() {
    let processes = processes();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let script = format!(
        "echo $$ > {0}.new; mv {0}.new {0}; sleep 600",
        file.display()
    );
    let exchange = Exchange {
        input: Vec::new(),
        timeout: Duration::from_secs(600),
        most_output: 10,
        most_errors: 10,
    };
    let begun = Instant::now();
    let looked = async {
        while !file.exists() {
            assert!(begun.elapsed() < PATIENCE);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::select! {
        _ = processes.exchange(program(&processes, &script), exchange) => unreachable!(),
        () = looked => {}
    }
    let pid = std::fs::read_to_string(&file)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    processes.shutdown().await;
    assert!(members::look(pid).is_none_or(|found| found.dead));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_not_there_is_an_error() {
    let processes = processes();
    let mut missing = program(&processes, "");
    missing.argv = vec!["/no/such/program".into()];
    let exchange = Exchange {
        input: Vec::new(),
        timeout: PATIENCE,
        most_output: 10,
        most_errors: 10,
    };
    let error = processes.exchange(missing, exchange).await.unwrap_err();
    assert!(error.to_string().contains("/no/such/program"), "{error}");
}
