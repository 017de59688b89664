//! A stand-in for `docker exec -i`: its input is a pipe, and no variable crosses.
#![expect(clippy::unwrap_used, reason = "a failed setup is a failed test")]

use std::sync::Arc;

use super::*;
use crate::world::sandbox::{Sandbox, SandboxRefusal, SandboxRequest, Wrapped};
use crate::world::shell::tests::Bench;

struct Exec;

impl Sandbox for Exec {
    fn name(&self) -> &'static str {
        "exec"
    }

    fn wrap(&self, request: SandboxRequest) -> Result<Wrapped, SandboxRefusal> {
        let script = "cat | /usr/bin/env -i PATH=/usr/bin:/bin HOME=/ INNER=1 \"$@\"; exit \"${PIPESTATUS[1]}\"";
        let mut argv: Vec<OsString> = ["/bin/bash", "-c", script, "exec"]
            .map(OsString::from)
            .to_vec();
        argv.extend(request.argv);
        Ok(Wrapped::unchanged(argv))
    }

    fn isolated(&self) -> bool {
        true
    }

    fn shares_descriptors(&self) -> bool {
        false
    }
}

fn bench() -> Bench {
    Bench::with(|settings| settings.sandbox = Arc::new(Exec))
}

#[tokio::test(flavor = "multi_thread")]
async fn check_138_folder_and_exports_carry_where_no_descriptor_does() {
    let bench = bench();
    let first = bench
        .run("mkdir kept; cd kept; export KEPT='a b'$'\\n'c; unset INNER; local=1; (exit 5)")
        .await;
    assert_eq!(first.finished.end, End::Exited(5));
    assert_eq!(first.remarks, Vec::<String>::new());
    let second = bench
        .text("basename \"$PWD\"; echo \"$KEPT ${INNER-gone} ${local-none} $HOME\"; cat; readlink /proc/self/fd/0")
        .await;
    assert_eq!(second, "kept\na b\nc gone none /\n/dev/null\n");
    // What keeps programs from waiting for a person is there too.
    assert_eq!(
        bench.text("echo $GIT_TERMINAL_PROMPT $TERM").await,
        "0 dumb\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_way_to_end_is_reported_and_nothing_is_forged() {
    for (ending, status) in [
        ("exit 3", 3),
        ("set -e; false; echo never", 1),
        ("echo 'unclosed", 2),
        ("trap 'echo mine' EXIT", 0),
        ("printf() { return 0; }; false", 1),
    ] {
        let bench = bench();
        let result = bench.run(&format!("mkdir kept; cd kept\n{ending}")).await;
        assert_eq!(
            result.finished.end,
            End::Exited(status),
            "{ending}: {result:?}"
        );
        assert_eq!(bench.text("basename \"$PWD\"").await, "kept\n", "{ending}");
    }
    let bench = bench();
    let replaced = bench.run("cd /; exec true").await;
    assert!(
        replaced
            .remarks
            .iter()
            .any(|remark| remark.contains("was replaced"))
    );
    assert_eq!(bench.shell.cwd(), bench.work());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_gets_its_variables_with_its_command() {
    let bench = bench();
    bench.run("export KEPT=yes; unset INNER").await;
    let (program, _) = bench
        .shell
        .job(
            &bench.processes,
            "echo \"$KEPT ${INNER-gone}\"; cat; exit 4",
        )
        .unwrap();
    let running = bench
        .processes
        .start(program, Watch::default())
        .await
        .unwrap();
    let finished = running.finish(&CancellationToken::new()).await.unwrap();
    assert_eq!(
        (finished.output.text.as_str(), finished.end),
        ("yes gone\n", End::Exited(4))
    );
}

#[test]
fn a_report_that_is_not_whole_is_none() {
    let whole = b"/a\0A=1\0=end\0/b\0A=2\0=end\0";
    let reports = parse(whole).unwrap();
    assert_eq!(
        (reports.begin.cwd.to_str(), reports.end.cwd.to_str()),
        (Some("/a"), Some("/b"))
    );
    for length in 0..whole.len() - 1 {
        assert!(parse(whole.get(..length).unwrap()).is_none(), "{length}");
    }
    assert_eq!(digits(" 00 ff\n 10\n"), Some(vec![0, 255, 16]));
    assert_eq!(digits("od: no such file"), None);
}
