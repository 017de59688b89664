//! Jobs in the log: what was collected, what the model was told, and what an editor sees.

use serde_json::json;
use terret_log::{
    EditorFold, EditorItem, Event, Index, InjectedBy, JobOutcome, Payload, TurnStatus,
};

use crate::support::*;

fn job_started(id: &str, call_id: &str) -> Payload {
    Payload::JobStarted {
        id: id.to_owned(),
        call_id: call_id.to_owned(),
        command: format!("run {id}"),
        description: None,
        keep: false,
    }
}

fn progress(id: &str, call_id: &str, tail: &str) -> Payload {
    Payload::JobProgress {
        id: id.to_owned(),
        call_id: call_id.to_owned(),
        tail: tail.to_owned(),
        written: tail.len() as u64,
        notes: Vec::new(),
    }
}

fn ended(id: &str, call_id: &str, status: i32) -> Payload {
    Payload::JobEnded {
        id: id.to_owned(),
        call_id: call_id.to_owned(),
        outcome: JobOutcome::Exited { status },
        ran_for: 1_500,
        written: 7,
        dropped: 2,
        tail: "last".to_owned(),
        notes: Vec::new(),
    }
}

fn collected(call_id: &str, id: &str, upto: u64, ended: bool) -> Payload {
    Payload::JobCollected {
        call_id: call_id.to_owned(),
        id: id.to_owned(),
        upto,
        ended,
    }
}

fn told() -> Payload {
    injected("Jobs that ended: …", InjectedBy::Jobs)
}

fn untold(payloads: &[Payload]) -> Vec<String> {
    state_of(payloads.to_vec())
        .jobs
        .untold()
        .map(|job| job.id.clone())
        .collect()
}

fn running(payloads: &[Payload]) -> Vec<String> {
    state_of(payloads.to_vec())
        .jobs
        .running()
        .map(|job| job.id.clone())
        .collect()
}

#[test]
fn a_cursor_moves_when_the_result_is_logged_and_not_before() {
    let mut log = vec![
        turn_start(),
        job_started("j", "c1"),
        result("c1", "started"),
        collected("c2", "j", 100, false),
    ];
    assert_eq!(state_of(log.clone()).jobs.cursor("j"), 0);
    log.push(result("c2", "output"));
    assert_eq!(state_of(log.clone()).jobs.cursor("j"), 100);
    // What failed gave the model nothing; nor does what its turn's end cut off.
    log.extend([collected("c3", "j", 200, true), failure("c3", "cancelled")]);
    log.extend([
        collected("c4", "j", 300, true),
        turn_end(TurnStatus::Cancelled),
    ]);
    let state = state_of(log);
    assert_eq!(state.jobs.cursor("j"), 100);
    assert!(!state.jobs.collected_out("j"));
    assert_eq!(state.jobs.cursor("unknown"), 0);
}

#[test]
fn each_end_is_told_once() {
    let mut log = vec![turn_start()];
    for n in 1..=3 {
        log.push(job_started(&format!("j{n}"), &format!("c{n}")));
        log.push(result(&format!("c{n}"), "started"));
    }
    log.push(turn_end(TurnStatus::Completed));
    assert_eq!(running(&log), ["j1", "j2", "j3"]);
    log.extend([ended("j2", "c2", 0), ended("j1", "c1", 1)]);
    assert_eq!(untold(&log), ["j2", "j1"]);
    log.extend([turn_start(), told(), ended("j3", "c3", 0)]);
    assert_eq!(untold(&log), ["j3"], "one that ended behind the line waits");
    // The same end again, as an adoption after a crash may log it, changes nothing.
    log.extend([ended("j1", "c1", 1), told()]);
    assert!(untold(&log).is_empty() && running(&log).is_empty());
}

#[test]
fn what_a_call_said_of_an_end_is_not_told_again() {
    let start = |id: &str, call: &str| vec![job_started(id, call), result(call, "started")];
    // Collected with its end, before and behind the event.
    let log = [
        vec![turn_start()],
        start("j1", "c1"),
        start("j2", "c2"),
        vec![
            ended("j1", "c1", 0),
            collected("c3", "j1", 7, true),
            result("c3", "all"),
        ],
        vec![
            collected("c4", "j2", 7, true),
            result("c4", "all"),
            ended("j2", "c2", 0),
        ],
    ]
    .concat();
    assert!(untold(&log).is_empty());
    assert!(state_of(log).jobs.collected_out("j2"));
    // Stopped by the model, but not by a call that failed.
    let stop = |reply: Payload| {
        [
            vec![turn_start()],
            start("j1", "c1"),
            vec![
                tool_call("c2", "job_stop", json!({"id": "j1"})),
                reply,
                ended("j1", "c1", 0),
            ],
        ]
        .concat()
    };
    assert!(untold(&stop(result("c2", "stopped"))).is_empty());
    assert_eq!(untold(&stop(failure("c2", "no"))), ["j1"]);
}

#[test]
fn a_refused_turn_told_the_model_nothing() {
    let log = vec![
        turn_start(),
        job_started("j1", "c1"),
        result("c1", "started"),
        job_started("j2", "c2"),
        result("c2", "started"),
        turn_end(TurnStatus::Completed),
        ended("j1", "c1", 0),
        turn_start(),
        told(),
        collected("c3", "j2", 50, false),
        result("c3", "half"),
    ];
    let end = |status| {
        let state = state_of([log.clone(), vec![turn_end(status)]].concat());
        let untold: Vec<_> = state.jobs.untold().map(|job| job.id.clone()).collect();
        (untold, state.jobs.cursor("j2"))
    };
    assert_eq!(end(TurnStatus::Completed), (Vec::new(), 50));
    assert_eq!(end(TurnStatus::Refused), (vec!["j1".to_owned()], 0));
}

#[test]
fn a_copy_of_a_session_has_none_of_its_jobs() {
    let log = vec![
        turn_start(),
        job_started("j", "c"),
        result("c", "started"),
        turn_end(TurnStatus::Completed),
        Payload::SessionForked {
            from: id("source"),
            boundary: None,
        },
    ];
    assert!(running(&log).is_empty());
    assert_eq!(untold(&log), ["j"]);
    let items = shown(EditorFold::replay(), &numbered(log));
    assert!(matches!(
        items.last(),
        Some(EditorItem::JobEnded {
            outcome: JobOutcome::Lost { .. },
            ..
        })
    ));
}

/// What of the card of call `c` is shown, in words.
fn card(mut fold: EditorFold, events: &[Event], live_from: usize) -> Vec<String> {
    let mut items = Vec::new();
    for (place, event) in events.iter().enumerate() {
        if place == live_from {
            fold.go_live(&mut items);
        }
        fold.apply(event, &mut items);
    }
    fold.finish(&mut items);
    items
        .into_iter()
        .filter_map(|item| match item {
            EditorItem::ToolCall { .. } => Some("call".to_owned()),
            EditorItem::ToolResult { content, .. } => {
                Some(content.unwrap_or_else(|| "error".to_owned()))
            }
            EditorItem::JobStarted { .. } => Some("job".to_owned()),
            EditorItem::JobProgress { tail, .. } => Some(tail),
            EditorItem::JobEnded { tail, command, .. } => Some(format!("{command}: {tail}")),
            _ => None,
        })
        .collect()
}

#[test]
fn a_replay_shows_a_running_job_as_it_stands_and_an_ended_one_by_its_end() {
    let mut log = vec![
        turn_start(),
        assistant(vec![call("c", "job_start", json!({"command": "make"}))]),
        tool_call("c", "job_start", json!({"command": "make"})),
        tool_started("c"),
        job_started("j", "c"),
        result("c", "started"),
        turn_end(TurnStatus::Completed),
        progress("j", "c", "one"),
        turn_start(),
        progress("j", "c", "two"),
        turn_end(TurnStatus::Completed),
    ];
    let events = numbered(log.clone());
    assert_eq!(
        card(EditorFold::replay(), &events, usize::MAX),
        ["call", "job", "started", "two"]
    );
    assert_eq!(
        card(EditorFold::live(), &events, 0),
        ["call", "job", "started", "one", "two"]
    );
    log.push(ended("j", "c", 0));
    let events = numbered(log.clone());
    assert_eq!(
        card(EditorFold::replay(), &events, usize::MAX),
        ["call", "job", "started", "run j: last"]
    );
    // Shown as running, and live from there on.
    assert_eq!(
        card(EditorFold::replay(), &events, log.len() - 1),
        ["call", "job", "started", "two", "run j: last"]
    );
    // A crash took the result; the job's end is its card's all the same.
    let events = numbered(vec![
        turn_start(),
        assistant(vec![call("c", "job_start", json!({"command": "make"}))]),
        job_started("j", "c"),
        ended("j", "c", 0),
    ]);
    assert_eq!(
        card(EditorFold::replay(), &events, usize::MAX),
        ["call", "job", "run j: last"]
    );
}

#[test]
fn the_index_holds_a_row_for_each_job_by_session_and_call() {
    let home = home();
    let _one = home.session(
        "one",
        vec![
            job_started("j1", "c1"),
            job_started("j2", "c2"),
            progress("j2", "c2", "half"),
            ended("j1", "c1", 3),
        ],
    );
    let mut two = home.session("two", vec![job_started("j3", "c1")]);
    let mut index =
        Index::open(home.folder.path().join("index.sqlite"), home.store.clone()).unwrap();
    index.refresh().unwrap();
    let names = |session: Option<&str>, all: bool, index: &Index| -> Vec<String> {
        index
            .jobs(session.map(id).as_ref(), all)
            .unwrap()
            .into_iter()
            .map(|row| format!("{}/{}/{}", row.session, row.call_id, row.id))
            .collect()
    };
    assert_eq!(names(None, false, &index), ["one/c2/j2", "two/c1/j3"]);
    assert_eq!(names(Some("one"), true, &index), ["one/c1/j1", "one/c2/j2"]);
    let rows = index.jobs(Some(&id("one")), true).unwrap();
    assert_eq!(rows[0].outcome, Some(JobOutcome::Exited { status: 3 }));
    assert_eq!((rows[0].ran_for, rows[0].dropped), (1_500, 2));
    assert!(rows[0].ended_at.is_some());
    assert_eq!((rows[1].tail.as_str(), rows[1].written), ("half", 4));
    two.append(ended("j3", "c1", 0)).unwrap();
    index.refresh().unwrap();
    assert_eq!(names(None, false, &index), ["one/c2/j2"]);
    drop(two);
    home.store.delete(&id("two")).unwrap();
    index.refresh().unwrap();
    assert_eq!(names(None, true, &index).len(), 2);
}
