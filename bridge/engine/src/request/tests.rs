//! Check 26 stands on this: both rooms render a message to the same bytes, whatever is in
//! it, or every request of a session would be refused from then on.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on should stop at the place"
)]

use proptest::prelude::*;
use serde_json::{Value, json};
use terret_log::{BlobId, Event, Part as LogPart, Payload, SessionState, Store, SystemClock};
use terret_models::frame_digest;

use super::*;

fn texts() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just(" \n".to_owned()),
        Just("a\u{0}b\u{2028}\u{feff}é🦀\u{202e}".to_owned()),
        any::<String>(),
    ]
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1e300..1e300_f64).prop_map(Value::from),
        Just(json!(1.0)),
        Just(json!(-0.0)),
        texts().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map(texts(), inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn images() -> impl Strategy<Value = Vec<ImageRef>> {
    let image = (0..3_u8).prop_map(|which| ImageRef {
        mime_type: ["image/png", "image/jpeg", ""][usize::from(which)].to_owned(),
        blob: BlobId::of(&[which; 40]),
    });
    prop::collection::vec(image, 0..3)
}

fn names() -> impl Strategy<Value = String> {
    prop_oneof![Just("Read".to_owned()), Just("a b/c".to_owned()), texts()]
}

fn parts() -> impl Strategy<Value = Vec<LogPart>> {
    let part = prop_oneof![
        texts().prop_map(|text| LogPart::Text { text }),
        (texts(), prop::option::of(texts()), texts()).prop_map(|(text, signature, provider)| {
            LogPart::Thinking {
                text,
                signature,
                provider,
            }
        }),
        ("[abc]", names(), values()).prop_map(|(id, name, args)| LogPart::ToolCall {
            id,
            name,
            args
        }),
    ];
    prop::collection::vec(part, 0..4)
}

fn payloads() -> impl Strategy<Value = Payload> {
    let result = (
        "[abc]",
        prop::option::of(texts()),
        prop::option::of(texts()),
        images(),
    );
    prop_oneof![
        (texts(), images()).prop_map(|(text, images)| Payload::UserMessage {
            text,
            images,
            blocks: Vec::new()
        }),
        (texts(), images()).prop_map(|(text, images)| Payload::ContextInjected {
            text,
            images,
            blocks: Vec::new(),
            source: terret_log::InjectedBy::Steer,
        }),
        (parts(), any::<bool>())
            .prop_map(|(parts, partial)| Payload::AssistantMessage { parts, partial }),
        result.prop_map(|(id, content, error, images)| Payload::ToolResult {
            id,
            content,
            error,
            images
        }),
        Just(Payload::TurnStart {
            agent: "agent".to_owned()
        }),
        prop::sample::select(vec![
            terret_log::TurnStatus::Completed,
            terret_log::TurnStatus::Refused
        ])
        .prop_map(|status| Payload::TurnEnd {
            status,
            reason: None
        }),
        (0..6_u64, texts())
            .prop_map(|(upto_seq, summary)| Payload::SessionCompacted { upto_seq, summary }),
    ]
}

fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), Arc::new(SystemClock)).unwrap();
    for which in 0..3_u8 {
        store.blobs().put(&[which; 40]).unwrap();
    }
    (folder, store)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn check_026_the_conversation_renders_like_the_history(
        payloads in prop::collection::vec(payloads(), 0..14)
    ) {
        let (_folder, store) = store();
        let mut state = SessionState::default();
        let mut outbound = Outbound::default();
        for (seq, payload) in (0..).zip(payloads) {
            state.apply(&Event { seq, at: 0, payload });
            // As each step does: only what is new is rendered, unless messages were replaced.
            for message in outbound.missing(&state) {
                outbound
                    .conversation
                    .push(Arc::new(outbound_message(&message, store.blobs())));
            }
            prop_assert_eq!(outbound.conversation.digest(), state.history.digest());
            prop_assert_eq!(
                outbound.conversation.messages().len(),
                state.history.messages().len()
            );
        }
    }

    #[test]
    fn check_029_the_frame_renders_alike(
        system in texts(),
        tools in prop::collection::vec((names(), texts(), values()), 0..4)
    ) {
        let tools: Vec<ToolSpec> = tools
            .into_iter()
            .map(|(name, description, parameters)| ToolSpec { name, description, parameters })
            .collect();
        let frame = terret_log::RequestFrame::new(system.clone(), logged_schemas(&tools));
        prop_assert_eq!(frame.digest, frame_digest(&system, &tools));
    }
}

#[test]
fn an_image_goes_out_with_its_own_bytes() {
    let (_folder, store) = store();
    let image = ImageRef {
        mime_type: "image/png".to_owned(),
        blob: BlobId::of(&[1; 40]),
    };
    let sent = outbound_image(&image, store.blobs());
    assert_eq!(&*sent.base64, BASE64.encode([1; 40]));
    assert_eq!(sent.digest, image.blob.as_str());
}
