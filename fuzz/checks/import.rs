//! What must hold for any file that is given for import.
//!
//! Shared by the fuzz target `import` and the tests of the log's own crate.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use terret_log::{Store, SystemClock};

/// Imports the bytes as they are, and once more as the bodies of events whose chain is
/// right, so that what lies behind the hash is reached, too.
pub(crate) fn any_bytes(data: &[u8]) {
    import(data);
    import(&forged(data));
}

fn import(mut bundle: &[u8]) {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Store::open(folder.path(), Arc::new(SystemClock)).expect("a store");
    let Ok(id) = store.import(&mut bundle) else {
        assert!(
            store.ids().expect("a list").is_empty(),
            "a refused import leaves no session"
        );
        return;
    };
    let (log, state) = store.open_writer(&id).expect("what came in can be opened");
    assert!(state.rules.rules().is_empty(), "no rule came in");
    assert!(!state.turn.is_open(), "no turn goes on");
    assert!(
        state
            .options
            .get("mode")
            .is_none_or(|mode| matches!(mode.as_str(), "ask" | "plan"))
    );
    drop(log);
    assert!(store.verify(&id).expect("a report").is_sound());
    let mut again = Vec::new();
    store.export(&id, &mut again).expect("it can be exported");
    let second = store
        .import(&mut again.as_slice())
        .expect("what we export we import");
    assert_ne!(id, second);
}

/// Each line of `data` as the type and payload of an event.
fn forged(data: &[u8]) -> Vec<u8> {
    let mut bundle = b"{\"terret_export\":1,\"session\":\"forged\"}\n".to_vec();
    let mut before = "0".repeat(64);
    let mut events = 0;
    for line in data
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        let mut body = format!("{{\"v\":1,\"seq\":{events},\"at\":1,").into_bytes();
        body.extend_from_slice(line);
        let hash = Sha256::new()
            .chain_update(&before)
            .chain_update(&body)
            .finalize();
        before = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        bundle.extend_from_slice(&body);
        bundle.extend_from_slice(format!(",\"chain\":\"{before}\"}}\n").as_bytes());
        events += 1;
    }
    bundle
        .extend_from_slice(format!("{{\"end\":{{\"events\":{events},\"blobs\":0}}}}\n").as_bytes());
    bundle
}
