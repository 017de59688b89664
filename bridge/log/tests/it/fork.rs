//! Checks 13 and 14: forks copy exactly, and never run anything twice.

use std::fs;

use serde_json::json;
use terret_log::{Payload, StoreError, TurnStatus};

use crate::support::*;

#[test]
fn check_013_a_fork_copies_exactly_b_events_and_leaves_the_source() {
    let home = home();
    let _live = home.session("s", [golden_turn(), golden_turn()].concat());
    let before = fs::read(home.store.log_path(&id("s"))).unwrap();
    let (log, _) = home.store.fork(&id("s"), Some(16), id("t")).unwrap();
    assert_eq!(log.next_seq(), 17);
    let (source, child) = (home.events("s"), home.events("t"));
    assert_eq!(source[..16], child[..16]);
    assert_eq!(
        child[16].payload,
        Payload::SessionForked {
            from: id("s"),
            boundary: Some(16)
        }
    );
    assert_eq!(fs::read(home.store.log_path(&id("s"))).unwrap(), before);
    assert!(home.store.verify(&id("t")).unwrap().is_sound());

    let (log, _) = home.store.fork(&id("s"), None, id("u")).unwrap();
    assert_eq!(log.next_seq(), 32);
    assert_eq!(
        home.events("u")[31].payload,
        Payload::SessionForked {
            from: id("s"),
            boundary: None
        }
    );
}

#[test]
fn check_014_lineage_survives_a_reload() {
    let home = home();
    drop(home.session("s", golden_turn()));
    drop(home.store.fork(&id("s"), None, id("t")).unwrap());
    drop(home.store.fork(&id("t"), None, id("u")).unwrap());
    let (mut log, state) = home.store.open_writer(&id("u")).unwrap();
    assert_eq!(state.parent(), Some(&id("t")));
    log.append(user("on")).unwrap();
    assert_eq!(home.store.load(&id("t")).unwrap().parent(), Some(&id("s")));
    assert_eq!(home.store.load(&id("s")).unwrap().parent(), None);
}

#[test]
fn check_013_a_boundary_may_not_part_a_call_from_its_result() {
    let home = home();
    drop(home.session("s", golden_turn()));
    // Events 2 to 10 are a step; 11 to 14 the next one.
    for boundary in [3, 6, 7, 8, 9, 12, 14] {
        let error = home
            .store
            .fork(&id("s"), Some(boundary), id("t"))
            .unwrap_err();
        assert!(
            matches!(error, StoreError::Boundary { .. }),
            "{boundary}: {error}"
        );
        assert!(!home.store.exists(&id("t")), "nothing is left of it");
    }
    for (boundary, open) in [(1, false), (2, true), (11, true), (15, true), (16, false)] {
        let (_, state) = home.store.fork(&id("s"), Some(boundary), id("t")).unwrap();
        assert!(!state.turn.is_open(), "the copy does not go on by itself");
        assert_eq!(
            home.events("t").len() as u64,
            boundary + 1 + u64::from(open)
        );
        home.store.delete(&id("t")).unwrap();
    }
    for boundary in [0, 17] {
        assert!(matches!(
            home.store.fork(&id("s"), Some(boundary), id("t")),
            Err(StoreError::Boundary { .. })
        ));
    }
    assert!(matches!(
        home.store.fork(&id("nobody"), None, id("t")),
        Err(StoreError::NotFound { .. })
    ));
    assert!(matches!(
        home.store.fork(&id("s"), None, id("s")),
        Err(StoreError::Exists { .. })
    ));
    assert!(home.store.verify(&id("s")).unwrap().is_sound());
}

#[test]
fn g17_a_fork_of_a_running_turn_is_closed_in_the_child() {
    let home = home();
    let source = home.session(
        "s",
        vec![
            turn_start(),
            step_start(1),
            user("go"),
            assistant(vec![
                call("a", "Bash", json!({})),
                call("b", "Bash", json!({})),
            ]),
            tool_call("a", "Bash", json!({})),
            tool_started("a"),
            asked("r", "b"),
        ],
    );
    let (_, state) = home.store.fork(&id("s"), None, id("t")).unwrap();
    assert!(!state.turn.is_open() && state.approvals.is_empty());
    assert_eq!(state.turn.last_status, Some(TurnStatus::Cancelled));
    let lines = conversation(&state);
    assert!(
        lines[2].contains("#a error") && lines[2].contains("while this call ran"),
        "{lines:?}"
    );
    assert!(
        lines[3].contains("#b error") && lines[3].contains("before this call ran"),
        "{lines:?}"
    );
    assert_eq!(state, home.store.load(&id("t")).unwrap());
    assert_eq!(source.next_seq(), 8);
}
