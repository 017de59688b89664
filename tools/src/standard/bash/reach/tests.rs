//! A sandbox that tells each program what it may reach, and guesses by what is printed.
#![expect(
    clippy::disallowed_methods,
    reason = "tests look at what the product acts on"
)]
#![expect(clippy::unwrap_used, reason = "a failed setup is a failed test")]

use std::ffi::OsString;
use std::sync::Arc;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::call::{Question, Stage};
use crate::mode::Mode;
use crate::pipeline::Pipeline;
use crate::rules::{Effect, Rule, Scope};
use crate::standard::bash::Bash;
use crate::table::Table;
use crate::testing::{Bench, call, set_policy};
use crate::world::sandbox::{Sandbox, SandboxRefusal, SandboxRequest, Wrapped};

struct Telling;

impl Sandbox for Telling {
    fn name(&self) -> &'static str {
        "telling"
    }

    fn wrap(&self, request: SandboxRequest) -> Result<Wrapped, SandboxRefusal> {
        let reach = match request.reach.network {
            Network::Closed => "REACH=closed",
            Network::Open => "REACH=open",
        };
        let mut argv = vec![OsString::from("/usr/bin/env"), OsString::from(reach)];
        argv.extend(request.argv);
        Ok(Wrapped::unchanged(argv))
    }

    fn isolated(&self) -> bool {
        true
    }

    fn guess(&self, text: &str, network: Network) -> Option<Denial> {
        assert_eq!(network, Network::Closed);
        if text.contains("unreachable") {
            Some(Denial::Network)
        } else if text.contains("read-only") {
            Some(Denial::Files)
        } else {
            None
        }
    }

    fn caveat(&self) -> Option<&'static str> {
        Some("what it started inside is not reached by a signal")
    }
}

fn bench() -> (Bench, Pipeline) {
    let bench = Bench::with(|settings| settings.sandbox = Some(Arc::new(Telling)));
    set_policy(&bench.policy, |policy| {
        policy.isolated = true;
        policy.mode = Mode::Auto;
    });
    let mut table = Table::new();
    table.add(Arc::new(Bash::new())).unwrap();
    let pipeline = bench.pipeline(table);
    (bench, pipeline)
}

async fn run(pipeline: &Pipeline, id: &str, command: &str) {
    let calls = vec![call(id, "Bash", json!({ "command": command }))];
    pipeline
        .run_calls(calls, &CancellationToken::new())
        .await
        .unwrap();
}

fn question(bench: &Bench) -> Question {
    let mut questions = bench.approver.questions();
    assert_eq!(questions.len(), 1, "one question a call");
    questions.pop().unwrap()
}

/// Fails as long as it does not reach what it wants, and counts its runs.
const NETWORK: &str =
    "echo run >> runs; echo \"$REACH\"; [ \"$REACH\" = open ] || { echo unreachable; exit 7; }";
const FILES: &str =
    "echo run >> runs; [ -z \"$REACH\" ] || { echo read-only; exit 1; }; echo outside";

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_network_is_one_question_and_one_more_run() {
    let (bench, pipeline) = bench();
    bench.approver.approve("a");
    run(&pipeline, "a", NETWORK).await;
    let asked = question(&bench);
    assert_eq!(
        (asked.stage, asked.offered_rule.as_deref()),
        (Stage::Escalation, None)
    );
    for word in [
        "a guess",
        "with the network open",
        "may have done part of its work",
    ] {
        assert!(asked.reason.contains(word), "{}", asked.reason);
    }
    assert!(asked.reason.len() < 480, "an editor shows it whole");
    let output = bench.journal.output("a");
    assert_eq!(output.text, "open\n");
    assert_eq!(
        output.remarks,
        [
            "this is the second run, with the network open: the first one failed in the sandbox (exit status 7) and may \
          have done part of its work"
        ]
    );
    assert_eq!(bench.bytes("runs"), b"run\nrun\n");
    assert!(
        bench
            .journal
            .live()
            .contains("--- running once more, with the network open ---")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_out_of_reach_is_one_question_and_one_run_outside() {
    let (bench, pipeline) = bench();
    bench.approver.approve("a");
    run(&pipeline, "a", FILES).await;
    assert!(question(&bench).reason.contains("outside of the sandbox"));
    assert_eq!(bench.journal.output("a").text, "outside\n");
    // The next command is back inside, unasked.
    run(&pipeline, "b", "echo \"$REACH\"").await;
    assert_eq!(bench.journal.output("b").text, "closed\n");
    assert_eq!(bench.approver.questions().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_no_gives_the_first_result_with_a_remark() {
    let (bench, pipeline) = bench();
    bench.approver.answer(
        "a",
        Answer::Denied {
            reason: "not now".to_owned(),
        },
    );
    run(&pipeline, "a", NETWORK).await;
    let output = bench.journal.output("a");
    assert_eq!(output.text, "closed\nunreachable\n");
    assert_eq!(
        output.remarks,
        [
            "exit status 7",
            "it looks as if the sandbox had kept the network from it (a guess); it was not run again with the network \
             open: not now"
        ]
    );
    assert_eq!(bench.bytes("runs"), b"run\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_failure_is_not_asked_about_and_a_success_is_none() {
    let (bench, pipeline) = bench();
    bench.approver.approve("a");
    run(&pipeline, "a", "echo unreachable; exit 1").await;
    question(&bench);
    let output = bench.journal.output("a");
    assert_eq!(output.remarks.first().unwrap(), "exit status 1");
    run(&pipeline, "b", "echo unreachable").await;
    run(&pipeline, "c", "echo something else; exit 1").await;
    question(&bench);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_that_allows_the_command_allows_it_no_more_reach() {
    let (bench, pipeline) = bench();
    set_policy(&bench.policy, |policy| {
        policy.mode = Mode::Ask;
        policy.rules = vec![Rule::parse("Bash", Effect::Allow, Scope::Session).unwrap()].into();
    });
    bench.approver.approve("a");
    run(&pipeline, "a", NETWORK).await;
    assert_eq!(question(&bench).stage, Stage::Escalation);
    // Bypass alone asks nobody.
    set_policy(&bench.policy, |policy| policy.mode = Mode::Bypass);
    run(&pipeline, "b", NETWORK).await;
    assert_eq!(bench.journal.output("b").text, "open\n");
    assert_eq!(bench.approver.questions().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deny_rule_that_came_during_the_wait_stands() {
    let (bench, pipeline) = bench();
    let asking = run(&pipeline, "a", NETWORK);
    tokio::join!(asking, async {
        bench.approver.asked(1).await;
        set_policy(&bench.policy, |policy| {
            policy.rules = vec![Rule::parse("Bash", Effect::Deny, Scope::Session).unwrap()].into();
        });
        bench.approver.approve("a");
    });
    let output = bench.journal.output("a");
    assert!(
        output
            .remarks
            .last()
            .unwrap()
            .contains("denied by the rule"),
        "{output:?}"
    );
    assert_eq!(bench.bytes("runs"), b"run\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_during_the_question_keeps_what_the_first_run_printed() {
    let (bench, pipeline) = bench();
    let cancel = CancellationToken::new();
    let calls = vec![call("a", "Bash", json!({ "command": NETWORK }))];
    let (ran, ()) = tokio::join!(pipeline.run_calls(calls, &cancel), async {
        bench.approver.asked(1).await;
        cancel.cancel();
    });
    ran.unwrap();
    let error = bench.journal.error("a");
    assert!(
        error.starts_with("closed\nunreachable\n--- terret ---\nexit status 7\ncancelled: "),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_run_starts_where_the_first_did() {
    let (bench, pipeline) = bench();
    bench.put("sub/x", "");
    bench.approver.approve("a");
    run(
        &pipeline,
        "a",
        &format!("cd sub && export N=${{N}}x; {NETWORK}"),
    )
    .await;
    assert_eq!(bench.journal.output("a").text, "open\n");
    run(&pipeline, "b", "basename \"$PWD\"; echo $N").await;
    assert_eq!(bench.journal.output("b").text, "sub\nx\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_commands_inside_exported_does_not_reach_a_run_outside() {
    let (bench, pipeline) = bench();
    bench.put("sub/x", "");
    run(
        &pipeline,
        "a",
        "cd sub; export EVIL=yes PATH=$PATH:/nowhere GIT_SSH_COMMAND=evil; unset HOME",
    )
    .await;
    bench.approver.approve("b");
    let shown = "echo \"$EVIL|$GIT_SSH_COMMAND|${HOME-unset}|$(basename \"$PWD\")\"; echo \"$PATH\" | grep -c nowhere";
    run(
        &pipeline,
        "b",
        &format!("[ -z \"$REACH\" ] || {{ echo read-only; exit 1; }}; {shown}"),
    )
    .await;
    let output = bench.journal.output("b");
    let home = std::env::var("HOME").unwrap_or_default();
    assert_eq!(output.text, format!("||{home}|sub\n0\n"));
    assert!(
        output
            .remarks
            .iter()
            .any(|remark| remark.contains("none of the variables")),
        "{output:?}"
    );
    // Inside they are as they were.
    run(&pipeline, "c", "echo \"$EVIL\"").await;
    assert_eq!(bench.journal.output("c").text, "yes\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_signal_does_not_reach_is_told_where_a_tree_was_stopped() {
    let (bench, _pipeline) = bench();
    let caveat = "what it started inside is not reached by a signal";
    let told = |args| {
        let bench = &bench;
        async move {
            let output = bench.run(&Bash::new(), args).await.unwrap();
            output.remarks.iter().any(|remark| remark == caveat)
        }
    };
    assert!(told(json!({"command": "sleep 600", "timeout": 100})).await);
    assert!(told(json!({"command": "sleep 600 &"})).await);
    assert!(!told(json!({"command": "true"})).await);
}
