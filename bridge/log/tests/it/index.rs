//! The index: always what the logs say, and never the truth itself.

use std::fs;
use std::io::Write as _;

use serde_json::json;
use terret_log::{
    Allowance, Index, Payload, SessionFilter, SessionId, StoreError, TurnStatus, Verdict,
};

use crate::support::*;

fn index(home: &Home) -> Index {
    let mut index =
        Index::open(home.folder.path().join("index.sqlite"), home.store.clone()).unwrap();
    index.refresh().unwrap();
    index
}

fn listed(index: &Index, filter: &SessionFilter) -> Vec<String> {
    index
        .list(filter)
        .unwrap()
        .sessions
        .into_iter()
        .map(|row| row.id.to_string())
        .collect()
}

fn in_folder(cwd: &str) -> Payload {
    Payload::SessionCreated {
        parent_id: None,
        root_id: None,
        depth: 0,
        call_id: None,
        cwd: cwd.into(),
        additional_directories: vec!["/extra".into()],
    }
}

#[test]
fn a_row_says_what_the_log_says() {
    let home = home();
    let titled = Payload::SessionTitled {
        title: "Read a".into(),
    };
    let open = vec![titled, turn_start(), user("more"), asked("r", "c")];
    let _log = home.session("s", [golden_turn(), open].concat());
    let row = index(&home).get(&id("s")).unwrap().unwrap();
    let state = home.store.load(&id("s")).unwrap();
    assert_eq!(row.title.as_deref(), Some("Read a"));
    assert_eq!(row.first_text.as_deref(), Some("read it"));
    assert_eq!(
        (row.events, row.turns, row.open_turn, row.pending_approvals),
        (20, 2, true, 1)
    );
    assert_eq!(row.usage, state.usage);
    assert_eq!(
        (row.created_at, row.updated_at),
        (state.created.unwrap().at, state.updated_at)
    );
    assert_eq!((row.cwd.as_str(), row.problem), ("/project", None));
}

#[test]
fn folding_in_pieces_equals_folding_at_once() {
    let home = home();
    let mut index = index(&home);
    let mut log = home.session("s", vec![]);
    let script = [
        golden_turn(),
        vec![
            turn_start(),
            asked("r", "c"),
            resolved("r", "c", Verdict::Approved),
        ],
    ]
    .concat();
    for payload in script {
        log.append(payload).unwrap();
        index.refresh().unwrap();
    }
    let mut fresh =
        Index::open(home.folder.path().join("fresh.sqlite"), home.store.clone()).unwrap();
    fresh.refresh().unwrap();
    assert_eq!(
        index.list(&SessionFilter::default()).unwrap(),
        fresh.list(&SessionFilter::default()).unwrap()
    );
    assert_eq!(
        index.search("done", 9).unwrap(),
        fresh.search("done", 9).unwrap()
    );
    assert_eq!(index.search("done", 9).unwrap().len(), 1);
}

#[test]
fn pages_are_newest_first_and_stable_while_sessions_change() {
    let home = home();
    for n in 0..7 {
        home.session(&format!("s{n}"), vec![]);
    }
    let mut index = index(&home);
    let mut filter = SessionFilter {
        limit: 3,
        ..SessionFilter::default()
    };
    let first = index.list(&filter).unwrap();
    assert_eq!(
        first
            .sessions
            .iter()
            .map(|row| row.id.as_str())
            .collect::<Vec<_>>(),
        ["s6", "s5", "s4"]
    );
    // One comes, one that was shown goes, one moves to the front.
    home.session("new", vec![]);
    home.store.delete(&id("s4")).unwrap();
    home.store
        .open_writer(&id("s5"))
        .unwrap()
        .0
        .append(user("x"))
        .unwrap();
    index.refresh().unwrap();
    filter.cursor = first.next_cursor;
    let second = index.list(&filter).unwrap();
    assert_eq!(
        second
            .sessions
            .iter()
            .map(|row| row.id.as_str())
            .collect::<Vec<_>>(),
        ["s3", "s2", "s1"]
    );
    filter.cursor = second.next_cursor;
    let last = index.list(&filter).unwrap();
    assert_eq!(
        (
            last.sessions[0].id.as_str(),
            last.sessions.len(),
            last.next_cursor
        ),
        ("s0", 1, None)
    );
}

#[test]
fn a_cursor_that_no_list_gave_is_refused() {
    let home = home();
    home.session("s", vec![]);
    let index = index(&home);
    for bad in ["", "x", "5.s", "1000.s.000000000000", "1.2.3.4", "-1.s.x"] {
        let filter = SessionFilter {
            cursor: Some(bad.into()),
            ..SessionFilter::default()
        };
        assert!(
            matches!(index.list(&filter), Err(StoreError::BadCursor(_))),
            "{bad}"
        );
    }
}

#[test]
fn lists_are_filtered_by_folder_and_leave_children_out() {
    let home = home();
    for (name, cwd) in [("a", "/one"), ("b", "/two"), ("c", "/one")] {
        home.store
            .create(id(name))
            .unwrap()
            .append(in_folder(cwd))
            .unwrap();
    }
    let child = Payload::SessionCreated {
        parent_id: Some(id("a")),
        root_id: Some(id("a")),
        depth: 1,
        call_id: Some("c1".into()),
        cwd: "/one".into(),
        additional_directories: vec![],
    };
    home.store
        .create(id("child"))
        .unwrap()
        .append(child)
        .unwrap();
    let index = index(&home);
    let filter = SessionFilter {
        cwd: Some("/one".into()),
        ..SessionFilter::default()
    };
    assert_eq!(listed(&index, &filter), ["c", "a"]);
    assert_eq!(
        listed(
            &index,
            &SessionFilter {
                children: true,
                ..filter
            }
        ),
        ["child", "c", "a"]
    );
    let children = index.children_of(&id("a")).unwrap();
    assert_eq!(
        (children[0].id.as_str(), children[0].depth, children.len()),
        ("child", 1, 1)
    );
    assert_eq!(
        index.get(&id("a")).unwrap().unwrap().additional_directories,
        ["/extra"]
    );
}

#[test]
fn a_deleted_session_leaves_list_search_and_inbox() {
    let home = home();
    drop(home.session(
        "s",
        vec![turn_start(), user("unique needle"), asked("r", "c")],
    ));
    let mut index = index(&home);
    assert_eq!(
        (
            index.search("needle", 9).unwrap().len(),
            index.pending_approvals().unwrap().len()
        ),
        (1, 1)
    );
    home.store.delete(&id("s")).unwrap();
    index.refresh().unwrap();
    assert!(listed(&index, &SessionFilter::default()).is_empty());
    assert!(
        index.search("needle", 9).unwrap().is_empty()
            && index.pending_approvals().unwrap().is_empty()
    );
}

#[test]
fn search_finds_what_was_said_and_takes_any_text() {
    let home = home();
    home.session(
        "a",
        vec![
            user("Where is the Übergabe parser?"),
            says("In src/parse.rs, it is called `hand_over`."),
        ],
    );
    home.session(
        "b",
        vec![
            user("unrelated"),
            injected("a job ended: parser", terret_log::InjectedBy::Terret),
        ],
    );
    let index = index(&home);
    let hits = index.search("ubergabe PARS", 9).unwrap();
    assert_eq!(
        (
            hits.len(),
            hits[0].session.as_str(),
            hits[0].seq,
            hits[0].role.as_str()
        ),
        (1, "a", 1, "user")
    );
    assert!(
        hits[0].snippet.contains("«Übergabe»"),
        "{}",
        hits[0].snippet
    );
    assert_eq!(index.search("parse.rs", 9).unwrap()[0].role, "assistant");
    for text in [
        "a\"b",
        "parser OR",
        "NEAR(a b)",
        "text:parser",
        "-parser",
        "par*",
        "(",
        "a AND",
        "'; DROP TABLE sessions",
    ] {
        let _ = index
            .search(text, 9)
            .map_err(|error| assert!(matches!(error, StoreError::BadQuery(_)), "{text}: {error}"));
    }
    assert!(matches!(
        index.search(" \"()* ", 9),
        Err(StoreError::BadQuery(_))
    ));
    assert_eq!(listed(&index, &SessionFilter::default()).len(), 2);
}

#[test]
fn pending_approvals_of_all_sessions_are_listed_until_settled() {
    let home = home();
    let mut first = home.session("a", vec![turn_start(), asked("r1", "c1")]);
    let mut second = home.session(
        "b",
        vec![turn_start(), asked("r2", "c2"), asked("r3", "c3")],
    );
    let mut index = index(&home);
    let waiting = |index: &Index| -> Vec<String> {
        index
            .pending_approvals()
            .unwrap()
            .into_iter()
            .map(|row| format!("{}/{}", row.session, row.id))
            .collect()
    };
    assert_eq!(waiting(&index), ["a/r1", "b/r2", "b/r3"]);
    assert_eq!(
        index.pending_approvals().unwrap()[0].args,
        json!({"command": "make"})
    );
    second
        .append(resolved("r3", "c3", Verdict::Approved))
        .unwrap();
    first.append(turn_end(TurnStatus::Cancelled)).unwrap();
    index.refresh().unwrap();
    assert_eq!(waiting(&index), ["b/r2"]);
}

#[test]
fn the_uses_of_rules_are_counted_and_go_with_their_session() {
    let home = home();
    let started = |call: &str, layer: &str, rule: &str| Payload::ToolStarted {
        id: call.into(),
        allowed: Some(Allowance::Rule {
            layer: layer.into(),
            rule: rule.into(),
        }),
    };
    let mut log = home.session(
        "s",
        vec![
            started("a", "user", "Bash(ls)"),
            started("b", "user", "Bash(ls)"),
            started("c", "session", "Bash(ls)"),
            Payload::ToolStarted {
                id: "d".into(),
                allowed: Some(Allowance::Approval),
            },
        ],
    );
    let mut index = index(&home);
    let uses = |index: &Index| -> Vec<(String, String, u64)> {
        let mut uses: Vec<_> = index
            .rule_uses()
            .unwrap()
            .into_iter()
            .map(|row| (row.layer, row.rule, row.uses))
            .collect();
        uses.sort();
        uses
    };
    let row = |layer: &str, uses| (layer.to_owned(), "Bash(ls)".to_owned(), uses);
    assert_eq!(uses(&index), [row("session", 1), row("user", 2)]);
    let first = index.rule_uses().unwrap();
    assert!(first.iter().all(|row| row.cwd == "/project"), "{first:?}");
    // What is new of the log is added to what was counted.
    let at = log.append(started("e", "user", "Bash(ls)")).unwrap().at;
    index.refresh().unwrap();
    assert_eq!(uses(&index), [row("session", 1), row("user", 3)]);
    let last = index.rule_uses().unwrap();
    assert!(
        last.iter()
            .any(|row| row.layer == "user" && row.last_at == at)
    );
    drop(log);
    home.store.delete(&id("s")).unwrap();
    index.refresh().unwrap();
    assert_eq!(uses(&index), []);
}

#[test]
fn a_broken_log_does_not_break_the_list() {
    let home = home();
    drop(home.session("good", golden_turn()));
    drop(home.session("bad", golden_turn()));
    let path = home.store.log_path(&id("bad"));
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen("read it", "read at", 1)).unwrap();
    fs::write(home.store.log_path(&id("junk")), [0_u8; 300]).unwrap();
    fs::write(
        home.store.log_path(&id("newer")),
        text.replacen("\"v\":1", "\"v\":9", 1),
    )
    .unwrap();
    fs::write(home.store.log_path(&id("empty")), b"").unwrap();
    let mut index = index(&home);
    index.refresh().unwrap();
    assert_eq!(listed(&index, &SessionFilter::default()).len(), 5);
    let problem = |name: &str| index.get(&id(name)).unwrap().unwrap().problem;
    assert_eq!(problem("good"), None);
    assert!(problem("bad").unwrap().contains("damaged at event 3"));
    assert!(problem("newer").unwrap().contains("newer"));
    // Repaired from a backup: another file, so all of it is read again.
    fs::remove_file(&path).unwrap();
    fs::write(&path, text).unwrap();
    index.refresh().unwrap();
    assert_eq!(index.get(&id("bad")).unwrap().unwrap().problem, None);
}

#[test]
fn a_torn_tail_and_its_repair_are_followed() {
    let home = home();
    drop(home.session("s", vec![user("one")]));
    let mut file = fs::OpenOptions::new()
        .append(true)
        .open(home.store.log_path(&id("s")))
        .unwrap();
    file.write_all(b"{\"v\":1,\"seq\":2,\"at\":5,\"ty").unwrap();
    let mut index = index(&home);
    assert_eq!(index.get(&id("s")).unwrap().unwrap().events, 2);
    home.store
        .open_writer(&id("s"))
        .unwrap()
        .0
        .append(user("two"))
        .unwrap();
    index.refresh().unwrap();
    let row = index.get(&id("s")).unwrap().unwrap();
    assert_eq!((row.events, row.problem), (4, None));
}

#[test]
fn a_missing_old_or_broken_index_is_built_anew() {
    let home = home();
    drop(home.session("s", golden_turn()));
    let path = home.folder.path().join("index.sqlite");
    let expected = index(&home).list(&SessionFilter::default()).unwrap();
    assert_eq!(expected.sessions.len(), 1);
    let damage: [&dyn Fn(); 4] = [
        &|| fs::remove_file(&path).unwrap(),
        &|| {
            fs::write(
                &path,
                b"this is no database, but it is long enough to look like a file".repeat(200),
            )
            .unwrap()
        },
        &|| {
            let connection = rusqlite::Connection::open(&path).unwrap();
            connection
                .execute_batch(
                    "PRAGMA user_version = 0; DROP TABLE messages; DELETE FROM sessions;",
                )
                .unwrap();
        },
        &|| {
            rusqlite::Connection::open(&path)
                .unwrap()
                .execute_batch("DROP TABLE pending; DELETE FROM sessions")
                .unwrap()
        },
    ];
    for harm in damage {
        harm();
        assert_eq!(
            index(&home).list(&SessionFilter::default()).unwrap(),
            expected
        );
    }
    use std::os::unix::fs::PermissionsExt as _;
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
}

#[test]
fn two_indexes_on_one_file_do_not_count_twice() {
    let home = home();
    let (mut first, mut second) = (index(&home), index(&home));
    let mut log = home.session("s", vec![]);
    for payload in golden_turn() {
        log.append(payload).unwrap();
        first.refresh().unwrap();
        second.refresh().unwrap();
    }
    assert_eq!(first.get(&id("s")).unwrap().unwrap().usage.steps, 2);
    assert_eq!(
        second.search("content", 9).unwrap().len(),
        0,
        "results of tools are not searched"
    );
    assert_eq!(second.search("done", 9).unwrap().len(), 1);
    let _: SessionId = second.get(&id("s")).unwrap().unwrap().id;
}
