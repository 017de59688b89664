#![expect(clippy::unwrap_used, reason = "a failed setup is a failed test")]

use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::standard::jobs::fake::FakeJobs;
use crate::standard::jobs::tests::{bench, started};
use crate::testing::Bench;
use crate::world::jobs::JobState;

async fn collect(bench: &Bench, id: &JobId) -> Output {
    bench
        .run(&JobCollect::new(), json!({"id": id.as_str()}))
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn check_149_output_comes_once_and_the_state_always() {
    let (bench, jobs) = bench();
    let id = started(&bench, "c1", "make").await;
    let running = format!("job {id}: running for 1.5 s");
    let nothing = collect(&bench, &id).await;
    assert_eq!(nothing.text, "(no new output)");
    assert_eq!(nothing.remarks, [running.as_str()]);
    jobs.write(&id, b"one\ntwo");
    let first = collect(&bench, &id).await;
    assert_eq!(
        (first.text.as_str(), first.remarks.as_slice()),
        ("one\ntwo", [running].as_slice())
    );
    jobs.write(&id, b"\nthree\n");
    jobs.end(&id, JobState::Running { leader: Some(0) });
    let second = collect(&bench, &id).await;
    assert_eq!(second.text, "\nthree\n");
    assert!(
        second
            .remarks
            .first()
            .unwrap()
            .contains("its first process exited with status 0")
    );
    jobs.end(&id, JobState::Exited(3));
    let last = collect(&bench, &id).await;
    assert_eq!(last.text, "(no new output)");
    assert_eq!(
        last.remarks,
        [
            format!("job {id}: exited with status 3 after 1.5 s"),
            "that was all of it: the job and its id are forgotten".to_owned()
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn check_149_every_end_has_its_words() {
    for (state, words) in [
        (JobState::Signalled(9), "ended by SIGKILL after 1.5 s"),
        (
            JobState::Stopped,
            "stopped before reporting a status, after 1.5 s",
        ),
        (
            JobState::Lost("its keeper was killed".to_owned()),
            "lost: its keeper was killed",
        ),
    ] {
        let (bench, jobs) = bench();
        let id = started(&bench, "c1", "make").await;
        jobs.end(&id, state);
        let output = collect(&bench, &id).await;
        assert_eq!(
            output.remarks.first().unwrap(),
            &format!("job {id}: {words}")
        );
    }
}

/// Collects after each of these pieces and once after the end, and gives all that was shown.
async fn collected(pieces: &[&[u8]]) -> String {
    let (bench, jobs) = bench();
    let id = started(&bench, "c1", "make").await;
    let mut shown = String::new();
    for piece in pieces {
        jobs.write(&id, piece);
        let text = collect(&bench, &id).await.text;
        if text != "(no new output)" {
            shown.push_str(&text);
        }
    }
    jobs.end(&id, JobState::Exited(0));
    let text = collect(&bench, &id).await.text;
    if text != "(no new output)" {
        shown.push_str(&text);
    }
    shown
}

#[tokio::test(flavor = "multi_thread")]
async fn r098_a_sequence_split_between_two_collects_is_no_noise() {
    let text =
        b"\x1b[31mred\x1b[0m\x1b]0;title\x07 plain\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\x1b(B\n";
    for at in 0..text.len() {
        let (front, back) = text.split_at(at);
        assert_eq!(
            collected(&[front, back]).await,
            "red plainlink\n",
            "split at {at}"
        );
    }
    // A lone escape at the end is nothing, and hides nothing.
    assert_eq!(collected(&[b"a\x1b", b"[1mb", b"c\x1b"]).await, "abc");
    assert_eq!(collected(&[b"line\r", b"\nnext\r\n"]).await, "line\nnext\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn r097_characters_survive_any_split_between_collects() {
    let text = "aé漢🦀z".as_bytes();
    let bytes: Vec<&[u8]> = text.chunks(1).collect();
    assert_eq!(collected(&bytes).await, "aé漢🦀z");
    // What never becomes a character is told as such, once it is sure.
    assert_eq!(collected(&[b"x\xe6\xbc", b"y"]).await, "x\u{fffd}y");
    assert_eq!(collected(&[b"x\xe6"]).await, "x\u{fffd}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_string_that_never_ends_is_not_held_back_for_ever() {
    let (bench, jobs) = bench();
    let id = started(&bench, "c1", "make").await;
    jobs.write(&id, b"\x1b]0;");
    jobs.write(&id, &vec![b'x'; 20_000]);
    let output = collect(&bench, &id).await;
    assert!(output.text.len() > 10_000, "{}", output.text.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn long_output_is_cut_from_the_middle_with_exact_counts() {
    let (bench, jobs) = bench();
    let id = started(&bench, "c1", "make").await;
    let line = "€".repeat(33) + "\n";
    jobs.write(&id, line.repeat(10_000).as_bytes());
    let output = collect(&bench, &id).await;
    let mark = output
        .text
        .lines()
        .find(|line| line.starts_with("[... "))
        .unwrap();
    let left_out: usize = mark.split(' ').nth(1).unwrap().parse().unwrap();
    let shown = output.text.len() - mark.len() - 1;
    // The head may have got a line end before the mark.
    assert!(
        (1_000_000 - left_out).abs_diff(shown) <= 1,
        "{left_out} and {shown}"
    );
    assert!(shown <= 30_001);
    let remark = output.remarks.last().unwrap();
    assert!(
        remark.starts_with(&format!(
            "{} of 1000000 bytes of new output are shown; {left_out} from the middle",
            1_000_000 - left_out
        )),
        "{remark}"
    );
    assert_eq!(collect(&bench, &id).await.text, "(no new output)");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_spool_dropped_is_told_on_its_own() {
    let (bench, jobs) = bench();
    let id = started(&bench, "c1", "make").await;
    jobs.write(&id, b"gone and kept\n");
    jobs.lose(&id, 9);
    let output = collect(&bench, &id).await;
    assert_eq!(output.text, "\n[... 9 bytes are gone here ...]\nkept\n");
    // Its files may have been removed by hand.
    assert_eq!(
        output.remarks.last().unwrap(),
        "9 bytes of the job's output were dropped before they were collected"
    );
    jobs.write(&id, b"gone, too, and kept\n");
    jobs.lose(&id, 9 + 5 + 11);
    jobs.note(&id, JobNote::Full { room: 16 });
    let output = collect(&bench, &id).await;
    assert_eq!(
        output.remarks.last().unwrap(),
        "11 bytes of the job's output were dropped before they were collected, since its spool was full"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_ends_with_output_with_the_end_and_with_a_cancel() {
    let (bench, jobs) = bench();
    let id = started(&bench, "c1", "make").await;
    let args = json!({"id": id.as_str(), "wait_ms": 600_000});
    let tool = JobCollect::new();
    let (output, ()) = tokio::join!(bench.run(&tool, args.clone()), async {
        jobs.write(&id, b"news\n");
    });
    assert_eq!(output.unwrap().text, "news\n");
    let (cancelled, ()) = {
        let context = bench.context();
        let cancel = context.cancel.clone();
        tokio::join!(
            async { tool.run(&context, args.clone()).await.unwrap_err() },
            async move { cancel.cancel() }
        )
    };
    assert!(cancelled.0.starts_with("cancelled"), "{cancelled:?}");
    let (output, ()) = tokio::join!(bench.run(&tool, args), ended(&jobs, &id));
    assert!(
        output
            .unwrap()
            .remarks
            .first()
            .unwrap()
            .contains("exited with status 0")
    );
}

async fn ended(jobs: &Arc<FakeJobs>, id: &JobId) {
    jobs.end(id, JobState::Exited(0));
}

#[test]
fn a_wait_has_its_bounds() {
    assert_eq!(wait(None), (Duration::ZERO, Vec::new()));
    assert_eq!(wait(Some(-1)).0, Duration::ZERO);
    assert_eq!(wait(Some(250)).0, Duration::from_millis(250));
    let (longest, remarks) = wait(Some(600_001));
    assert_eq!((longest, remarks.len()), (Duration::from_secs(600), 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collect_that_cannot_be_logged_gives_nothing() {
    let (bench, jobs) = bench();
    let id = started(&bench, "c1", "make").await;
    jobs.write(&id, b"kept\n");
    *bench.journal.fault_at.lock().unwrap() = Some("collecting".to_owned());
    let args = json!({"id": id.as_str()});
    let refused = bench.run(&JobCollect::new(), args).await.unwrap_err();
    assert!(
        refused.0.starts_with("nothing was collected"),
        "{refused:?}"
    );
    assert_eq!(collect(&bench, &id).await.text, "kept\n");
}
