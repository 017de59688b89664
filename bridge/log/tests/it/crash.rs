//! Checks 18 and 20 with processes of their own: this test binary, started again.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use terret_log::{Store, StoreError};

use crate::support::*;

const ROOT: &str = "TERRET_TEST_ROOT";

fn helper(name: &str, root: &std::path::Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([name, "--exact", "--ignored", "--nocapture"])
        .env(ROOT, root)
        .stdout(Stdio::piped());
    command
}

/// Appends until it is killed, and says each number once it is acknowledged.
#[test]
#[ignore = "a helper process of check 18 and 20"]
fn helper_appends_until_killed() {
    let root = std::env::var(ROOT).expect("started by a test");
    let store = Store::open(root, Ticks::new()).unwrap();
    let mut log = store.create(id("s")).unwrap();
    let mut out = std::io::stdout();
    let mut event = log.append(created()).unwrap();
    loop {
        writeln!(out, "\nappended {}", event.seq).unwrap();
        out.flush().unwrap();
        event = log
            .append(chunk(&"text ".repeat(event.seq as usize % 50)))
            .unwrap();
    }
}

#[test]
fn check_018_acknowledged_appends_survive_sigkill() {
    let home = home();
    let mut child = helper("crash::helper_appends_until_killed", home.store.root())
        .spawn()
        .unwrap();
    let mut acknowledged = 0_u64;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let Some(seq) = line
            .unwrap()
            .strip_prefix("appended ")
            .map(|seq| seq.parse::<u64>().unwrap())
        else {
            continue;
        };
        acknowledged = seq;
        if seq == 300 {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(acknowledged >= 300);
    let (mut log, state) = home.store.open_writer(&id("s")).unwrap();
    assert!(state.last_seq.unwrap() >= acknowledged);
    let next = log.next_seq();
    assert_eq!(log.append(user("on it goes")).unwrap().seq, next);
    assert!(home.store.verify(&id("s")).unwrap().is_sound());
}

#[test]
fn check_020_a_second_process_cannot_write_and_takes_over_after_a_kill() {
    let home = home();
    let mut child = helper("crash::helper_appends_until_killed", home.store.root())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines
        .find(|line| line.as_ref().unwrap().starts_with("appended 5"))
        .unwrap()
        .unwrap();
    // Drained, so that the helper does not stop at a full pipe.
    let drain = std::thread::spawn(move || lines.count());

    let error = home.store.open_writer(&id("s")).unwrap_err();
    let StoreError::Held { by, .. } = &error else {
        panic!("{error}")
    };
    assert!(
        by.contains(&child.id().to_string()),
        "r043: the holder is named: {by}"
    );
    assert!(matches!(
        home.store.delete(&id("s")),
        Err(StoreError::Held { .. })
    ));
    assert!(
        home.store
            .read(&id("s"), 0)
            .unwrap()
            .next()
            .unwrap()
            .is_ok(),
        "reading needs no lock"
    );

    child.kill().unwrap();
    child.wait().unwrap();
    drain.join().unwrap();
    home.store
        .open_writer(&id("s"))
        .expect("r043: a killed holder leaves no stale lock");
}
