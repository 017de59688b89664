#![expect(clippy::unwrap_used, reason = "a failed setup is a failed test")]

mod kept;

use std::sync::Arc;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::fake::FakeJobs;
use super::*;
use crate::call::{Answer, Tool};
use crate::mode::Mode;
use crate::rules::{Effect, Rule, Scope};
use crate::standard::bash::Bash;
use crate::standard::job_collect::JobCollect;
use crate::standard::job_list::JobList;
use crate::standard::job_start::JobStart;
use crate::standard::job_stop::JobStop;
use crate::table::Table;
use crate::testing::{Bench, call, set_policy};
use crate::world::process::{End, Watch};

pub(crate) fn bench() -> (Bench, Arc<FakeJobs>) {
    let jobs = FakeJobs::new();
    let provider = Arc::clone(&jobs);
    let bench = Bench::with(|settings| settings.job_provider = Some(provider));
    (bench, jobs)
}

/// Starts a job as the call `call_id`.
pub(crate) async fn started(bench: &Bench, call_id: &str, command: &str) -> JobId {
    let mut context = bench.context();
    call_id.clone_into(&mut context.call_id);
    let args = json!({ "command": command });
    let output = JobStart::new().run(&context, args).await.unwrap();
    let remark = output.remarks.first().unwrap();
    JobId::parse(remark.strip_prefix("job ").unwrap()).unwrap()
}

/// The output of the job's program, run as a job would be.
async fn ran(bench: &Bench, jobs: &FakeJobs) -> (End, String) {
    let program = jobs.program().unwrap();
    let running = bench
        .world
        .processes()
        .start(program, Watch::default())
        .await
        .unwrap();
    let finished = running.finish(&CancellationToken::new()).await.unwrap();
    (finished.end, finished.output.text)
}

#[tokio::test(flavor = "multi_thread")]
async fn check_149_job_start_answers_at_once_with_the_id_in_its_ledger() {
    let (bench, jobs) = bench();
    let output = bench
        .run(
            &JobStart::new(),
            json!({"command": "sleep 600", "description": "waits"}),
        )
        .await
        .unwrap();
    let job = jobs.all().pop().unwrap();
    assert!(
        output
            .text
            .starts_with(&format!("Started the job {}.", job.id))
    );
    assert_eq!(output.remarks, [format!("job {}", job.id)]);
    assert_eq!(
        (job.command.as_str(), job.description.as_deref()),
        ("sleep 600", Some("waits"))
    );
    assert!(!job.keep);
    assert!(
        bench
            .journal
            .lines()
            .contains(&format!("job {} of c1", job.id))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn check_138_a_job_has_the_folder_and_variables_of_the_last_command() {
    let (bench, jobs) = bench();
    bench.put("sub/x", "");
    bench
        .run(
            &Bash::new(),
            json!({"command": "cd sub; export SHOWN=yes; hidden=no; f() { :; }"}),
        )
        .await
        .unwrap();
    // R064: a job works where the session does.
    started(
        &bench,
        "j1",
        "pwd; echo $SHOWN$hidden; cat; type f || exit 7",
    )
    .await;
    let (end, text) = ran(&bench, &jobs).await;
    let folder = bench.path("sub").canonicalize().unwrap();
    assert!(
        text.starts_with(&format!("{}\nyes\n", folder.display())),
        "{text}"
    );
    assert_eq!(end, End::Exited(7));
    // Nothing of it is left to later commands.
    started(&bench, "j2", "cd /; export SHOWN=no").await;
    assert_eq!(ran(&bench, &jobs).await.0, End::Exited(0));
    let after = bench
        .run(&Bash::new(), json!({"command": "echo $SHOWN; pwd"}))
        .await
        .unwrap();
    assert_eq!(after.text, format!("yes\n{}\n", folder.display()));
}

#[tokio::test(flavor = "multi_thread")]
async fn bash_in_the_background_is_a_job_and_says_that_it_has_no_timeout() {
    let (bench, jobs) = bench();
    let args = json!({"command": "sleep 600", "run_in_background": true, "timeout": 5000});
    let output = bench.run(&Bash::new(), args.clone()).await.unwrap();
    let id = jobs.all().pop().unwrap().id;
    assert_eq!(
        output.remarks,
        [
            format!("job {id}"),
            "a job has no timeout; stop it with job_stop".to_owned()
        ]
    );
    assert!(Bash::new().repeats_safely(&args));
    assert!(!Bash::new().repeats_safely(&json!({"command": "sleep 600"})));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_call_finds_its_job() {
    let (bench, jobs) = bench();
    let first = started(&bench, "c1", "sleep 600").await;
    let output = bench
        .run(&JobStart::new(), json!({"command": "sleep 600"}))
        .await
        .unwrap();
    assert_eq!(jobs.all().len(), 1);
    assert_eq!(output.remarks.first().unwrap(), &format!("job {first}"));
    assert!(output.remarks.last().unwrap().contains("none was started"));
    for tool in [
        &JobStart::new() as &dyn Tool,
        &JobStop::new(),
        &JobCollect::new(),
        &JobList::new(),
    ] {
        assert!(tool.repeats_safely(&json!({})));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_start_cannot_be_logged_is_stopped_again() {
    let (bench, jobs) = bench();
    *bench.journal.fault_at.lock().unwrap() = Some("job ".to_owned());
    let refused = bench
        .run(&JobStart::new(), json!({"command": "sleep 600"}))
        .await
        .unwrap_err();
    assert!(refused.0.contains("stopped again"), "{refused:?}");
    assert_eq!(jobs.all(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn check_150_the_ninth_job_is_refused_and_a_collected_one_frees_its_place() {
    let (bench, jobs) = bench();
    let mut ids = Vec::new();
    for number in 0..8 {
        ids.push(started(&bench, &format!("c{number}"), "sleep 600").await);
    }
    let mut context = bench.context();
    "c9".clone_into(&mut context.call_id);
    let start = || JobStart::new();
    let args = json!({"command": "sleep 600"});
    let refused = start().run(&context, args.clone()).await.unwrap_err();
    assert!(
        refused.0.starts_with("8 jobs are there already"),
        "{refused:?}"
    );
    let done = ids.first().unwrap();
    jobs.end(done, JobState::Exited(0));
    // Ended is not enough: its output would be lost.
    assert!(start().run(&context, args.clone()).await.is_err());
    bench
        .run(&JobCollect::new(), json!({"id": done.as_str()}))
        .await
        .unwrap();
    start().run(&context, args).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn check_150_unknown_foreign_and_collected_ids_are_answered_alike() {
    let (bench, jobs) = bench();
    let (other, _jobs) = self::bench();
    let foreign = started(&other, "c1", "sleep 600").await;
    let id = started(&bench, "c1", "true").await;
    started(&other, "c2", "sleep 600").await;
    jobs.end(&id, JobState::Exited(0));
    bench
        .run(&JobCollect::new(), json!({"id": id.as_str()}))
        .await
        .unwrap();
    // The same number in another session is another job; there is none of it here any more.
    assert_eq!(foreign, id);
    let unknown = "job-00000000000000ff";
    for tool in [&JobCollect::new() as &dyn Tool, &JobStop::new()] {
        for asked in [id.as_str(), unknown, "job-2", "../job", "\u{202e}x"] {
            let refused = bench.run(tool, json!({ "id": asked })).await.unwrap_err();
            let shown: String = asked.chars().flat_map(char::escape_debug).collect();
            assert_eq!(
                refused.0,
                format!("there is no job `{shown}` in this session")
            );
        }
        let blank = bench.run(tool, json!({"id": "  "})).await.unwrap_err();
        assert!(blank.0.starts_with("`id` is empty"), "{blank:?}");
    }
    let listed = bench.run(&JobList::new(), json!({})).await.unwrap();
    assert_eq!(listed.text, "There are no jobs in this session.");
}

#[tokio::test(flavor = "multi_thread")]
async fn blank_and_wrong_arguments_are_refused_by_name() {
    let (bench, jobs) = bench();
    for tool in [&JobStart::new() as &dyn Tool, &Bash::new()] {
        let args = json!({"command": " \n", "run_in_background": true});
        let refused = bench.run(tool, args).await.unwrap_err();
        assert!(refused.0.starts_with("`command` is empty"), "{refused:?}");
    }
    let pipeline = bench.pipeline(Table::standard());
    set_policy(&bench.policy, |policy| policy.mode = Mode::Bypass);
    let wrong = [
        call("w1", "job_start", json!({"command": 5})),
        call("w2", "job_collect", json!({"id": ["x"]})),
        call("w3", "job_stop", json!({})),
        call(
            "w4",
            "job_start",
            json!({"command": "x", "keep": "perhaps"}),
        ),
    ];
    pipeline
        .run_calls(wrong.to_vec(), &CancellationToken::new())
        .await
        .unwrap();
    for (id, name) in [
        ("w1", "command"),
        ("w2", "id"),
        ("w3", "id"),
        ("w4", "keep"),
    ] {
        let error = bench.journal.error(id);
        assert!(error.contains(&format!("`{name}`")), "{error}");
    }
    assert_eq!(jobs.all(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn check_151_job_stop_says_what_was_ended_and_that_output_is_left() {
    let (bench, jobs) = bench();
    let id = started(&bench, "c1", "sleep 600").await;
    let args = json!({"id": id.as_str()});
    let stopped = bench.run(&JobStop::new(), args.clone()).await.unwrap();
    assert_eq!(
        stopped.text,
        format!("Stopped the job {id} with everything it had started.")
    );
    assert_eq!(
        stopped.remarks,
        [
            format!("job {id}: stopped before reporting a status, after 1.5 s"),
            format!("collect {id} once more with job_collect for what is left of its output"),
        ]
    );
    let again = bench.run(&JobStop::new(), args).await.unwrap();
    assert_eq!(again.text, format!("The job {id} had ended already."));
    jobs.end(&id, JobState::Lost("the machine was restarted".to_owned()));
    let listed = bench.run(&JobList::new(), json!({})).await.unwrap();
    assert_eq!(
        listed.text,
        format!("{id}: lost: the machine was restarted, 0 bytes to collect: sleep 600\n")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_outlives_its_session_is_asked_for_whatever_the_rules_allow() {
    let (bench, jobs) = bench();
    set_policy(&bench.policy, |policy| {
        policy.isolated = true;
        policy.mode = Mode::Auto;
        policy.rules =
            vec![Rule::parse("Bash(serve)", Effect::Allow, Scope::Session).unwrap()].into();
    });
    let pipeline = bench.pipeline(Table::standard());
    let run = |id: &'static str, keep: bool| {
        let calls = vec![call(
            id,
            "job_start",
            json!({"command": "serve", "keep": keep}),
        )];
        let pipeline = pipeline.clone();
        async move {
            pipeline
                .run_calls(calls, &CancellationToken::new())
                .await
                .unwrap();
        }
    };
    run("plain", false).await;
    assert_eq!(bench.approver.questions().len(), 0);
    bench.approver.answer(
        "kept",
        Answer::Denied {
            reason: "no".to_owned(),
        },
    );
    run("kept", true).await;
    let question = bench.approver.questions().pop().unwrap();
    assert!(question.reason.contains("goes on when the session is over"));
    assert_eq!(question.offered_rule, None);
    assert_eq!(bench.journal.error("kept"), "job_start denied: no");
    bench.approver.approve("again");
    run("again", true).await;
    assert_eq!(
        jobs.all().iter().map(|job| job.keep).collect::<Vec<_>>(),
        [false, true]
    );
    set_policy(&bench.policy, |policy| policy.mode = Mode::Bypass);
    run("bypassed", true).await;
    assert_eq!(bench.approver.questions().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn check_145_a_job_is_asked_for_as_bash_is() {
    let (bench, _jobs) = bench();
    let pipeline = bench.pipeline(Table::standard());
    for (mode, isolated) in [
        (Mode::Ask, false),
        (Mode::Ask, true),
        (Mode::Auto, false),
        (Mode::Auto, true),
    ] {
        set_policy(&bench.policy, |policy| {
            policy.mode = mode;
            policy.isolated = isolated;
        });
        let decision =
            |name| pipeline.decision(&call("x", name, json!({"command": "serve"})), None);
        let runs = |name| decision(name) == Some(crate::gate::Decision::Run);
        assert_eq!(runs("Bash"), runs("job_start"));
        assert_eq!(runs("Bash"), mode == Mode::Auto && isolated);
    }
}
