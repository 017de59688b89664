//! Export and import: nothing is lost, and a stranger's file grants nothing.

use serde_json::json;
use terret_log::{BlobId, ImageRef, Payload, RuleEffect, StoreError, TurnStatus, Verdict};

use crate::support::*;

fn exported(home: &Home, name: &str) -> Vec<u8> {
    let mut bundle = Vec::new();
    home.store.export(&id(name), &mut bundle).unwrap();
    bundle
}

fn with_image(home: &Home) -> BlobId {
    let blob = home.store.blobs().put(b"png").unwrap();
    let images = vec![ImageRef {
        mime_type: "image/png".into(),
        blob: blob.clone(),
    }];
    let look = Payload::UserMessage {
        text: "look".into(),
        images,
        blocks: vec![],
    };
    drop(
        home.session(
            "s",
            [
                golden_turn(),
                vec![turn_start(), look, turn_end(TurnStatus::Completed)],
            ]
            .concat(),
        ),
    );
    blob
}

#[test]
fn what_is_exported_comes_in_unchanged() {
    let (from, to) = (home(), home());
    let blob = with_image(&from);
    let bundle = exported(&from, "s");
    assert_eq!(to.store.import(&mut bundle.as_slice()).unwrap(), id("s"));
    assert_eq!(to.events("s"), from.events("s"));
    assert_eq!(to.store.blobs().get(&blob).unwrap(), b"png");
    assert_eq!(exported(&to, "s"), bundle);
    let second = to.store.import(&mut bundle.as_slice()).unwrap();
    assert_ne!(second, id("s"), "a taken id is not overwritten");
    assert_eq!(to.events(second.as_str()), from.events("s"));
    let left: Vec<_> = std::fs::read_dir(to.store.root())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left.len(), 2, "only sessions and blobs: {left:?}");
}

#[test]
fn a_missing_blob_is_said_and_no_hindrance() {
    let (from, to) = (home(), home());
    let blob = with_image(&from);
    std::fs::remove_dir_all(from.store.root().join("blobs")).unwrap();
    to.store
        .import(&mut exported(&from, "s").as_slice())
        .unwrap();
    assert!(to.store.blobs().get(&blob).is_err());
}

#[test]
fn an_import_grants_nothing() {
    let (from, to) = (home(), home());
    let rule = Payload::RuleAdded {
        id: "1".into(),
        rule: "Bash".into(),
        effect: RuleEffect::Allow,
        by: "editor".into(),
        approval: None,
        expires: None,
    };
    let mode = Payload::OptionSet {
        option: "mode".into(),
        value: "bypass".into(),
        by: "editor".into(),
    };
    drop(from.session(
        "s",
        vec![
            rule,
            mode,
            turn_start(),
            step_start(1),
            user("go"),
            assistant(vec![
                call("c", "Bash", json!({"command": "make"})),
                call("d", "Bash", json!({})),
            ]),
            asked("r", "c"),
            resolved("r", "c", Verdict::Approved),
            asked("q", "d"),
        ],
    ));
    to.store
        .import(&mut exported(&from, "s").as_slice())
        .unwrap();
    let (_, state) = to.store.open_writer(&id("s")).unwrap();
    assert!(state.rules.rules().is_empty());
    assert_eq!(state.options["mode"], "ask");
    assert!(
        !state.turn.is_open(),
        "no call that somebody else approved is resumed"
    );
    assert!(state.turn.owed_calls().is_empty() && state.approvals.is_empty());
}

#[test]
fn any_change_to_a_bundle_is_refused_and_leaves_no_session() {
    let from = home();
    with_image(&from);
    let bundle = exported(&from, "s");
    let to = home();
    for place in (0..bundle.len()).step_by(31) {
        let mut changed = bundle.clone();
        changed[place] = if changed[place] == b'7' { b'8' } else { b'7' };
        match to.store.import(&mut changed.as_slice()) {
            Err(StoreError::Import { .. } | StoreError::Newer { .. }) => {}
            // The id in the head is the importer's to choose.
            Ok(id) => assert!(
                place < bundle.iter().position(|byte| *byte == b'\n').unwrap(),
                "{place}: {id}"
            ),
            Err(other) => panic!("{place}: {other}"),
        }
    }
    let to = home();
    for cut in 0..bundle.len() {
        assert!(
            to.store.import(&mut &bundle[..cut]).is_err(),
            "cut at {cut}"
        );
    }
    assert!(to.store.ids().unwrap().is_empty());
}

/// Lines with a right chain, as a forger can make them.
fn forged(lines: &[&str]) -> Vec<u8> {
    use sha2::{Digest as _, Sha256};
    let mut before = "0".repeat(64);
    let mut bundle = String::from("{\"terret_export\":1,\"session\":\"forged\"}\n");
    for (seq, line) in lines.iter().enumerate() {
        let body = format!("{{\"v\":1,\"seq\":{seq},\"at\":1,{line}");
        let hash = Sha256::digest(format!("{before}{body}"));
        before = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        bundle.push_str(&format!("{body},\"chain\":\"{before}\"}}\n"));
    }
    bundle.push_str(&format!(
        "{{\"end\":{{\"events\":{},\"blobs\":0}}}}\n",
        lines.len()
    ));
    bundle.into_bytes()
}

#[test]
fn a_forged_chain_does_not_let_bad_events_in() {
    let good = r#""type":"session/created","payload":{"parent_id":null,"cwd":"/p"}"#;
    assert!(
        home().store.import(&mut forged(&[good]).as_slice()).is_ok(),
        "the forger can forge"
    );
    let image = format!(r#"{{"mime_type":"image/png","blob":"{}"}}"#, "a".repeat(64));
    for bad in [
        r#""type":"session/event","payload":{}"#.to_owned(),
        r#""type":"turn/start","payload":{"agent":"a","agent":"b"}"#.to_owned(),
        r#""type":"turn/start","payload":{"agent":"a","more":1}"#.to_owned(),
        r#""type":"tool/call","payload":{"id":"a","name":"b","args":{"x":1,"x":2}}"#.to_owned(),
        format!(
            r#""type":"tool/call","payload":{{"id":"a","name":"b","args":{}{}}}"#,
            "[".repeat(120),
            "]".repeat(120)
        ),
        r#""type":"tool/call","payload":{"id":"a","name":"\ud800","args":{}}"#.to_owned(),
        r#""type":"session/compacted","payload":{"upto_seq":9,"summary":"s"}"#.to_owned(),
        format!(r#""type":"user/message","payload":{{"text":"x","images":[{image}]}}"#),
        r#""type":"session/forked","payload":{"from":"../../x","boundary":null}"#.to_owned(),
        good.to_owned(),
    ] {
        let home = home();
        let error = home
            .store
            .import(&mut forged(&[good, &bad]).as_slice())
            .unwrap_err();
        assert!(matches!(error, StoreError::Import { .. }), "{bad}: {error}");
        assert!(home.store.ids().unwrap().is_empty());
    }
    for bad in [
        vec![],
        vec![r#""type":"turn/start","payload":{"agent":"a"}"#],
    ] {
        assert!(home().store.import(&mut forged(&bad).as_slice()).is_err());
    }
}

#[test]
fn check_159_an_export_holds_no_secret_and_its_chain_is_whole() {
    let secret = format!("corp-{}", "Q7".repeat(8));
    let (from, to) = (home(), home());
    let file = from
        .store
        .blobs()
        .put(format!("KEY={secret}\n").as_bytes())
        .unwrap();
    let changed = Payload::FileChanged {
        call_id: "c".into(),
        change: terret_log::FileChange {
            path: "/w/.env".into(),
            before: None,
            after: Some(file.clone()),
        },
    };
    let said = Payload::NoticeShown {
        severity: terret_log::Severity::Info,
        text: format!("before anyone knew: {secret}"),
    };
    drop(from.session("s", [golden_turn(), vec![said, changed]].concat()));
    // Only now is it known.
    from.store.scrubber().add_secret(&secret);
    let mut bundle = Vec::new();
    let exported = from.store.export(&id("s"), &mut bundle).unwrap();
    assert_eq!((exported.scrubbed, exported.withheld), (1, 1));
    let text = String::from_utf8(bundle.clone()).unwrap();
    assert!(!text.contains(&secret));
    assert!(text.contains(r#""withheld":true"#));
    let imported = to.store.import_report(&mut bundle.as_slice()).unwrap();
    assert_eq!((imported.id, imported.withheld), (id("s"), 1));
    assert_eq!(
        to.events("s").len(),
        from.events("s").len(),
        "the chain of the import is whole"
    );
    assert!(to.store.open_writer(&id("s")).is_ok());
    assert!(!to.store.blobs().contains(&file));
    // The original keeps its bytes: undo needs them.
    assert!(from.store.blobs().get(&file).is_ok());
}

#[test]
fn check_159_an_import_is_scrubbed_of_our_secrets() {
    let secret = format!("corp-{}", "Q7".repeat(8));
    let (from, to) = (home(), home());
    let said = Payload::NoticeShown {
        severity: terret_log::Severity::Info,
        text: format!("theirs: {secret}"),
    };
    drop(from.session("s", [golden_turn(), vec![said]].concat()));
    to.store.scrubber().add_secret(&secret);
    to.store
        .import(&mut exported(&from, "s").as_slice())
        .unwrap();
    let stored = std::fs::read_to_string(to.store.log_path(&id("s"))).unwrap();
    assert!(!stored.contains(&secret));
    assert!(to.store.open_writer(&id("s")).is_ok());
}
