#![expect(
    clippy::disallowed_methods,
    reason = "tests make and look at what the product acts on"
)]
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Barrier;
use tokio_util::sync::CancellationToken;

use crate::call::{Answer, Failure, Output};
use crate::definition::Concurrency::{Parallel, Serial};
use crate::pipeline::CANCELLED;
use crate::rules::{Effect, Rule, Scope};
use crate::standard::{edit::Edit, read::Read, write::Write};
use crate::table::Table;
use crate::testing::{Bench, Puppet, call, set_policy};

fn text(text: &str) -> Value {
    json!({ "text": text })
}

async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), work)
        .await
        .expect("it hangs")
}

#[tokio::test]
async fn check_120_adjacent_parallel_calls_overlap_and_serial_ones_never_do() {
    let bench = Bench::new();
    // Two calls meet at a barrier: they end only if they run at the same time.
    let meeting = Arc::new(Barrier::new(2));
    let alone = Arc::new(AtomicUsize::new(0));
    let (meets, inside) = (Arc::clone(&meeting), Arc::clone(&alone));
    let parallel = Puppet::new("P", Parallel, move |_, _| {
        let (meets, inside) = (Arc::clone(&meets), Arc::clone(&inside));
        async move {
            assert_eq!(
                inside.load(Ordering::SeqCst),
                0,
                "a serial call runs beside"
            );
            meets.wait().await;
            Ok(Output::text("met"))
        }
    });
    let serial = Puppet::new("S", Serial, move |_, _| {
        let inside = Arc::clone(&alone);
        async move {
            assert_eq!(
                inside.fetch_add(1, Ordering::SeqCst),
                0,
                "two serial calls at once"
            );
            tokio::task::yield_now().await;
            inside.fetch_sub(1, Ordering::SeqCst);
            Ok(Output::text("alone"))
        }
    });
    let pipeline = bench.pipeline(Puppet::table([parallel, serial]));
    let calls = [
        ("1", "P"),
        ("2", "P"),
        ("3", "S"),
        ("4", "S"),
        ("5", "P"),
        ("6", "P"),
    ]
    .map(|(id, name)| call(id, name, json!({})));
    within(pipeline.run_calls(calls.to_vec(), &CancellationToken::new()))
        .await
        .expect("no fault");
    for id in ["1", "2", "5", "6"] {
        assert_eq!(bench.journal.output(id).text, "met");
    }
    assert_eq!(bench.journal.output("4").text, "alone");
}

#[tokio::test]
async fn check_121_122_runs_are_logged_call_by_call_and_results_stand_in_call_order() {
    let bench = Bench::new();
    let order = Arc::new(Mutex::new(Vec::new()));
    let gate = Arc::new(tokio::sync::Notify::new());
    let (log, open) = (Arc::clone(&order), Arc::clone(&gate));
    let parallel = Puppet::new("P", Parallel, move |context, args| {
        let (log, open) = (Arc::clone(&log), Arc::clone(&open));
        async move {
            if args.get("text") == Some(&json!("last")) {
                open.notified().await;
            } else if context.call_id == "2" {
                open.notify_one();
            }
            log.lock().expect("a lock").push(context.call_id.clone());
            Ok(Output::default())
        }
    });
    let pipeline = bench.pipeline(Puppet::table([parallel, Puppet::echo("S", Serial)]));
    let calls = vec![
        call("1", "P", text("last")),
        call("2", "P", json!({})),
        call("3", "S", json!({})),
        call("4", "P", json!({})),
        call("5", "P", json!({})),
    ];
    within(pipeline.run_calls(calls, &CancellationToken::new()))
        .await
        .expect("no fault");
    assert_eq!(
        order.lock().expect("a lock").first().map(String::as_str),
        Some("2"),
        "the first call ended last"
    );
    let lines: Vec<String> = bench
        .journal
        .lines()
        .into_iter()
        .filter(|line| !line.starts_with("started"))
        .collect();
    let wanted = [
        "called 1",
        "called 2",
        "finished 1",
        "finished 2",
        "called 3",
        "finished 3",
        "called 4",
        "called 5",
        "finished 4",
        "finished 5",
    ];
    assert_eq!(lines, wanted);
}

#[tokio::test]
async fn check_123_a_failing_or_panicking_sibling_leaves_the_others_alone() {
    let bench = Bench::new();
    let fails = Puppet::new("Fails", Parallel, |_, _| async {
        Err(Failure::new("no such thing"))
    });
    let panics = Puppet::new("Panics", Parallel, |_, _| async { panic!("secret inside") });
    let pipeline = bench.pipeline(Puppet::table([Puppet::echo("P", Parallel), fails, panics]));
    let calls = vec![
        call("1", "P", text("one")),
        call("2", "Fails", json!({})),
        call("3", "Panics", json!({})),
        call("4", "P", text("four")),
    ];
    within(pipeline.run_calls(calls, &CancellationToken::new()))
        .await
        .expect("no fault");
    assert_eq!(bench.journal.output("1").text, "one");
    assert_eq!(bench.journal.error("2"), "no such thing");
    let panicked = bench.journal.error("3");
    assert!(
        panicked.contains("internal error") && !panicked.contains("secret"),
        "{panicked}"
    );
    assert_eq!(bench.journal.output("4").text, "four");
}

#[tokio::test]
async fn check_050_051_a_cancel_in_a_serial_call_keeps_its_result_and_answers_the_rest() {
    let bench = Bench::new();
    let cancel = CancellationToken::new();
    let fire = cancel.clone();
    let stops = Puppet::new("Stops", Serial, move |_, _| {
        let fire = fire.clone();
        async move {
            fire.cancel();
            Ok(Output::text("kept"))
        }
    });
    let pipeline = bench.pipeline(Puppet::table([stops, Puppet::echo("P", Parallel)]));
    let calls = vec![
        call("1", "Stops", json!({})),
        call("2", "P", json!({})),
        call("3", "P", json!({})),
    ];
    within(pipeline.run_calls(calls, &cancel))
        .await
        .expect("no fault");
    assert_eq!(bench.journal.output("1").text, "kept");
    assert_eq!(bench.journal.error("2"), CANCELLED);
    assert_eq!(bench.journal.error("3"), CANCELLED);
    let wanted = [
        "called 1",
        "started 1",
        "finished 1",
        "called 2",
        "finished 2",
        "called 3",
        "finished 3",
    ];
    assert_eq!(bench.journal.lines(), wanted);
}

#[tokio::test]
async fn check_052_a_cancel_in_a_parallel_run_lets_quick_calls_end_and_cuts_later_runs() {
    let bench = Bench::new();
    let cancel = CancellationToken::new();
    let both = Arc::new(Barrier::new(2));
    let fire = cancel.clone();
    let quick = Puppet::new("P", Parallel, move |context, _| {
        let (both, fire) = (Arc::clone(&both), fire.clone());
        async move {
            both.wait().await;
            fire.cancel();
            context.cancel.cancelled().await;
            Ok(Output::text("kept"))
        }
    });
    let pipeline = bench.pipeline(Puppet::table([quick, Puppet::echo("S", Serial)]));
    let calls = vec![
        call("1", "P", json!({})),
        call("2", "P", json!({})),
        call("3", "S", json!({})),
    ];
    within(pipeline.run_calls(calls, &cancel))
        .await
        .expect("no fault");
    assert_eq!(bench.journal.output("1").text, "kept");
    assert_eq!(bench.journal.output("2").text, "kept");
    assert_eq!(bench.journal.error("3"), CANCELLED);
}

#[tokio::test(start_paused = true)]
async fn r027_a_call_that_does_not_heed_the_cancel_is_given_up_after_the_grace() {
    let bench = Bench::new();
    let cancel = CancellationToken::new();
    let fire = cancel.clone();
    let dropped = Arc::new(AtomicBool::new(false));
    struct OnDrop(Arc<AtomicBool>);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let flag = Arc::clone(&dropped);
    let hangs = Puppet::new("Hangs", Parallel, move |_, _| {
        let (fire, guard) = (fire.clone(), OnDrop(Arc::clone(&flag)));
        async move {
            fire.cancel();
            std::future::pending::<()>().await;
            drop(guard);
            Ok(Output::default())
        }
    });
    let pipeline = bench.pipeline(Puppet::table([hangs, Puppet::echo("P", Parallel)]));
    let begun = tokio::time::Instant::now();
    let calls = vec![call("1", "P", text("here")), call("2", "Hangs", json!({}))];
    pipeline.run_calls(calls, &cancel).await.expect("no fault");
    assert!(
        begun.elapsed() < Duration::from_millis(2_100),
        "{:?}",
        begun.elapsed()
    );
    assert!(bench.journal.error("2").contains("given up"));
    assert!(dropped.load(Ordering::SeqCst), "the call goes on unowned");
}

#[tokio::test]
async fn r027_the_next_message_is_served_after_a_cancel() {
    let bench = Bench::new();
    let pipeline = bench.pipeline(Puppet::table([Puppet::echo("P", Parallel)]));
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    pipeline
        .run_calls(vec![call("1", "P", text("a"))], &cancelled)
        .await
        .expect("no fault");
    pipeline
        .run_calls(vec![call("2", "P", text("b"))], &CancellationToken::new())
        .await
        .expect("no fault");
    assert_eq!(bench.journal.error("1"), CANCELLED);
    assert_eq!(bench.journal.output("2").text, "b");
}

#[tokio::test]
async fn the_gated_calls_of_one_message_ask_together_and_run_in_order() {
    let bench = Bench::new();
    let pipeline = bench.pipeline(Puppet::table([
        Puppet::echo("S", Serial).gated(),
        Puppet::echo("P", Parallel),
    ]));
    let calls = vec![
        call("1", "S", text("one")),
        call("2", "P", text("two")),
        call("3", "S", text("three")),
        call("4", "S", text("four")),
    ];
    let running =
        tokio::spawn(async move { pipeline.run_calls(calls, &CancellationToken::new()).await });
    within(bench.approver.asked(3)).await;
    // All questions stand before anything ran, in call order, each behind its call.
    let wanted = [
        "called 1", "asked 1", "called 2", "called 3", "asked 3", "called 4", "asked 4",
    ];
    assert_eq!(bench.journal.lines(), wanted);
    // Answered the other way round: the order of running does not change.
    for id in ["4", "3", "1"] {
        bench.approver.approve(id);
    }
    within(running).await.expect("no panic").expect("no fault");
    let rest: Vec<String> = bench
        .journal
        .lines()
        .into_iter()
        .skip(wanted.len())
        .collect();
    let wanted = [
        "started 1",
        "finished 1",
        "started 2",
        "finished 2",
        "started 3",
        "finished 3",
        "started 4",
        "finished 4",
    ];
    assert_eq!(rest, wanted);
}

#[tokio::test]
async fn a_call_that_needs_no_answer_does_not_wait_for_its_siblings_questions() {
    let bench = Bench::new();
    let done = Arc::new(tokio::sync::Notify::new());
    let tell = Arc::clone(&done);
    let free = Puppet::new("Free", Parallel, move |_, _| {
        tell.notify_one();
        async { Ok(Output::default()) }
    });
    let pipeline = bench.pipeline(Puppet::table([
        Puppet::echo("Asks", Parallel).gated(),
        free,
    ]));
    let calls = vec![call("1", "Asks", json!({})), call("2", "Free", json!({}))];
    let running =
        tokio::spawn(async move { pipeline.run_calls(calls, &CancellationToken::new()).await });
    within(bench.approver.asked(1)).await;
    within(done.notified()).await;
    bench.approver.approve("1");
    within(running).await.expect("no panic").expect("no fault");
}

#[tokio::test]
async fn check_091_a_denial_is_the_calls_result_and_the_next_call_runs() {
    let bench = Bench::new();
    let pipeline = bench.pipeline(Puppet::table([Puppet::echo("S", Serial).gated()]));
    bench.approver.answer(
        "1",
        Answer::Denied {
            reason: "no reason given".to_owned(),
        },
    );
    bench.approver.approve("2");
    let calls = vec![call("1", "S", json!({})), call("2", "S", text("ran"))];
    within(pipeline.run_calls(calls, &CancellationToken::new()))
        .await
        .expect("no fault");
    assert_eq!(bench.journal.error("1"), "S denied: no reason given");
    assert_eq!(bench.journal.output("2").text, "ran");
    assert!(!bench.journal.lines().contains(&"started 1".to_owned()));
}

#[tokio::test]
async fn a_cancel_answers_every_standing_question_as_cancelled() {
    let bench = Bench::new();
    let pipeline = bench.pipeline(Puppet::table([Puppet::echo("S", Serial).gated()]));
    let cancel = CancellationToken::new();
    let token = cancel.clone();
    let calls = vec![call("1", "S", json!({})), call("2", "S", json!({}))];
    let running = tokio::spawn(async move { pipeline.run_calls(calls, &token).await });
    within(bench.approver.asked(2)).await;
    cancel.cancel();
    within(running).await.expect("no panic").expect("no fault");
    assert_eq!(bench.journal.error("1"), CANCELLED);
    assert_eq!(bench.journal.error("2"), CANCELLED);
    assert!(
        !bench
            .journal
            .lines()
            .iter()
            .any(|line| line.starts_with("started"))
    );
}

#[tokio::test]
async fn a_question_is_closed_before_its_cancelled_call_is_answered() {
    let bench = Bench::new();
    let cancel = CancellationToken::new();
    let fire = cancel.clone();
    let stops = Puppet::new("Stops", Serial, move |_, _| {
        fire.cancel();
        async { Ok(Output::default()) }
    });
    let pipeline = bench.pipeline(Puppet::table([stops, Puppet::echo("S", Serial).gated()]));
    let calls = vec![call("1", "Stops", json!({})), call("2", "S", json!({}))];
    within(pipeline.run_calls(calls, &cancel))
        .await
        .expect("no fault");
    let lines = bench.journal.lines();
    let at = |line: &str| lines.iter().position(|one| one == line).expect("logged");
    assert!(at("withdrawn 2") < at("finished 2"), "{lines:?}");
    assert_eq!(bench.journal.error("2"), CANCELLED);
}

#[tokio::test]
async fn a_question_about_a_call_that_is_forbidden_meanwhile_is_taken_back() {
    let bench = Bench::new();
    let policy = Arc::clone(&bench.policy);
    let narrows = Puppet::new("Narrows", Serial, move |_, _| {
        set_policy(&policy, |policy| policy.mode = crate::mode::Mode::Plan);
        async { Ok(Output::default()) }
    });
    let pipeline = bench.pipeline(Puppet::table([narrows, Puppet::echo("S", Serial).gated()]));
    let calls = vec![call("1", "Narrows", json!({})), call("2", "S", json!({}))];
    within(pipeline.run_calls(calls, &CancellationToken::new()))
        .await
        .expect("no fault");
    assert!(bench.journal.error("2").contains("plan mode"));
    assert!(
        bench.journal.lines().contains(&"withdrawn 2".to_owned()),
        "the question stands for ever"
    );
}

#[tokio::test]
async fn check_083_a_policy_narrowed_by_one_call_binds_the_next_of_the_same_message() {
    let bench = Bench::new();
    let policy = Arc::clone(&bench.policy);
    let narrows = Puppet::new("Narrows", Serial, move |_, _| {
        set_policy(&policy, |policy| {
            policy.live = Some(crate::floor::Floor::new(["Narrows"]))
        });
        async { Ok(Output::default()) }
    });
    let pipeline = bench.pipeline(Puppet::table([narrows, Puppet::echo("S", Serial)]));
    let calls = vec![call("1", "Narrows", json!({})), call("2", "S", json!({}))];
    within(pipeline.run_calls(calls, &CancellationToken::new()))
        .await
        .expect("no fault");
    assert_eq!(bench.journal.error("2"), "S is not on the allow list");
}

#[tokio::test]
async fn a_deny_rule_made_while_a_question_stood_beats_the_approval() {
    let bench = Bench::new();
    let pipeline = bench.pipeline(Puppet::table([Puppet::echo("S", Serial).gated()]));
    let calls = vec![call("1", "S", json!({}))];
    let running =
        tokio::spawn(async move { pipeline.run_calls(calls, &CancellationToken::new()).await });
    within(bench.approver.asked(1)).await;
    bench.set_policy(|policy| {
        policy
            .rules
            .push(Rule::parse("S", Effect::Deny, Scope::Session).expect("a rule"));
    });
    bench.approver.approve("1");
    within(running).await.expect("no panic").expect("no fault");
    assert_eq!(bench.journal.error("1"), "S is denied by the rule `S`");
}

#[tokio::test]
async fn r002_a_rule_granted_by_one_call_lets_the_next_run_unasked() {
    let bench = Bench::new();
    let policy = Arc::clone(&bench.policy);
    let grants = Puppet::new("Grants", Serial, move |_, _| {
        set_policy(&policy, |policy| {
            policy
                .rules
                .push(Rule::parse("Edit", Effect::Allow, Scope::Session).expect("a rule"));
        });
        async { Ok(Output::default()) }
    });
    bench.put("a.txt", "one\n");
    let mut table = Puppet::table([grants]);
    table.add(Arc::new(Read::new())).expect("unique");
    table.add(Arc::new(Edit::new())).expect("unique");
    let pipeline = bench.pipeline(table);
    let calls = vec![
        call("1", "Grants", json!({})),
        call("2", "Read", json!({"file_path": "a.txt"})),
        // Not to be asked early: it was not read yet, so it cannot be previewed.
        call(
            "3",
            "Edit",
            json!({"file_path": "a.txt", "old_string": "one", "new_string": "two"}),
        ),
    ];
    within(pipeline.run_calls(calls, &CancellationToken::new()))
        .await
        .expect("no fault");
    assert_eq!(bench.bytes("a.txt"), b"two\n");
    assert!(bench.approver.questions().is_empty());
}

#[tokio::test]
async fn r002_waiting_questions_that_a_new_rule_covers_can_be_found() {
    let bench = Bench::new();
    let pipeline = bench.pipeline(Puppet::table([Puppet::echo("S", Serial).gated()]));
    let waiting = call("1", "S", json!({}));
    assert!(matches!(
        pipeline.decision(&waiting, None),
        Some(crate::gate::Decision::Ask { .. })
    ));
    bench.set_policy(|policy| {
        policy
            .rules
            .push(Rule::parse("S", Effect::Allow, Scope::Session).expect("a rule"));
    });
    assert_eq!(
        pipeline.decision(&waiting, None),
        Some(crate::gate::Decision::Run)
    );
}

#[tokio::test]
async fn two_edits_of_one_file_are_asked_one_after_the_other_with_true_previews() {
    let bench = Bench::new();
    bench.put("a.txt", "one\n");
    bench.journal.see(&bench.path("a.txt"), b"one\n");
    let mut table = Table::new();
    table.add(Arc::new(Edit::new())).expect("unique");
    let pipeline = bench.pipeline(table);
    let calls = vec![
        call(
            "1",
            "Edit",
            json!({"file_path": "a.txt", "old_string": "one", "new_string": "two"}),
        ),
        call(
            "2",
            "Edit",
            json!({"file_path": "a.txt", "old_string": "two", "new_string": "three"}),
        ),
    ];
    let running =
        tokio::spawn(async move { pipeline.run_calls(calls, &CancellationToken::new()).await });
    within(bench.approver.asked(1)).await;
    bench.approver.approve("1");
    within(bench.approver.asked(2)).await;
    let second = bench.approver.questions().pop().expect("a question");
    let change = second.preview.first().expect("a preview");
    assert_eq!(change.before.as_deref(), Some(&b"two\n"[..]));
    assert_eq!(change.after.as_deref(), Some(&b"three\n"[..]));
    bench.approver.approve("2");
    within(running).await.expect("no panic").expect("no fault");
    assert_eq!(bench.bytes("a.txt"), b"three\n");
}

#[tokio::test]
async fn a_change_that_is_not_the_one_shown_any_more_is_asked_again() {
    let bench = Bench::new();
    bench.put("a.txt", "one\n");
    bench.journal.see(&bench.path("a.txt"), b"one\n");
    let (path, journal) = (bench.path("a.txt"), Arc::clone(&bench.journal));
    // Changes the file and sees it, as a command and a Read would.
    let meddles = Puppet::new("Meddles", Serial, move |_, _| {
        std::fs::write(&path, "one\nmore\n").expect("written");
        journal.see(&path, b"one\nmore\n");
        async { Ok(Output::default()) }
    });
    let mut table = Puppet::table([meddles]);
    table.add(Arc::new(Edit::new())).expect("unique");
    let pipeline = bench.pipeline(table);
    let calls = vec![
        call("1", "Meddles", json!({})),
        call(
            "2",
            "Edit",
            json!({"file_path": "a.txt", "old_string": "one", "new_string": "two"}),
        ),
    ];
    bench.approver.approve("2");
    let running =
        tokio::spawn(async move { pipeline.run_calls(calls, &CancellationToken::new()).await });
    within(bench.approver.asked(2)).await;
    assert_eq!(
        bench.bytes("a.txt"),
        b"one\nmore\n",
        "made without the second answer"
    );
    bench.approver.approve("2");
    within(running).await.expect("no panic").expect("no fault");
    assert_eq!(bench.bytes("a.txt"), b"two\nmore\n");
}

#[tokio::test]
async fn a_file_that_changes_while_the_person_looks_is_shown_again() {
    let bench = Bench::new();
    bench.put("a.txt", "one\n");
    bench.journal.see(&bench.path("a.txt"), b"one\n");
    let mut table = Table::new();
    table.add(Arc::new(Edit::new())).expect("unique");
    let pipeline = bench.pipeline(table);
    let calls = vec![call(
        "1",
        "Edit",
        json!({"file_path": "a.txt", "old_string": "one", "new_string": "two"}),
    )];
    let running =
        tokio::spawn(async move { pipeline.run_calls(calls, &CancellationToken::new()).await });
    within(bench.approver.asked(1)).await;
    bench.put("a.txt", "one\nmore\n");
    bench.journal.see(&bench.path("a.txt"), b"one\nmore\n");
    bench.approver.approve("1");
    within(bench.approver.asked(2)).await;
    assert_eq!(bench.bytes("a.txt"), b"one\nmore\n");
    let again = bench.approver.questions().pop().expect("a question");
    let change = again.preview.first().expect("a preview");
    assert_eq!(change.after.as_deref(), Some(&b"two\nmore\n"[..]));
    bench.approver.approve("1");
    within(running).await.expect("no panic").expect("no fault");
    assert_eq!(bench.bytes("a.txt"), b"two\nmore\n");
}

#[tokio::test]
async fn nobody_is_asked_about_an_edit_that_cannot_work() {
    let bench = Bench::new();
    bench.put("a.txt", "one\n");
    let mut table = Table::new();
    table.add(Arc::new(Write::new())).expect("unique");
    let pipeline = bench.pipeline(table);
    let calls = vec![call(
        "1",
        "Write",
        json!({"file_path": "a.txt", "content": "x"}),
    )];
    within(pipeline.run_calls(calls, &CancellationToken::new()))
        .await
        .expect("no fault");
    assert!(
        bench
            .journal
            .error("1")
            .contains("was not read in this session")
    );
    assert!(bench.approver.questions().is_empty());
}

#[tokio::test]
async fn a_log_that_cannot_be_written_ends_the_turn() {
    for begin in ["called 2", "asked 2", "started 2", "finished 2"] {
        let bench = Bench::new();
        let pipeline = bench.pipeline(Puppet::table([
            Puppet::echo("P", Parallel),
            Puppet::echo("S", Serial).gated(),
        ]));
        bench.approver.approve("2");
        *bench.journal.fault_at.lock().expect("a lock") = Some(begin.to_owned());
        let calls = vec![call("1", "P", json!({})), call("2", "S", json!({}))];
        let fault = within(pipeline.run_calls(calls, &CancellationToken::new()))
            .await
            .expect_err(begin);
        assert_eq!(fault.0, "the log is full");
    }
}

#[tokio::test]
async fn no_more_calls_than_the_width_work_at_once() {
    let bench = Bench::new();
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let peak = Arc::clone(&most);
    let counts = Puppet::new("P", Parallel, move |_, _| {
        let (now, most) = (Arc::clone(&now), Arc::clone(&peak));
        async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            now.fetch_sub(1, Ordering::SeqCst);
            Ok(Output::default())
        }
    });
    let pipeline = bench.pipeline(Puppet::table([counts]));
    let calls = (0..100)
        .map(|id| call(&id.to_string(), "P", json!({})))
        .collect();
    within(pipeline.run_calls(calls, &CancellationToken::new()))
        .await
        .expect("no fault");
    assert_eq!(most.load(Ordering::SeqCst), super::WIDTH);
}
