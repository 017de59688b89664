#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::event::{Part, Payload};

/// Made here, so that nothing in this file has the shape of a secret.
fn key() -> String {
    format!("corp:{}/{}+\"é\"", "Zx9".repeat(4), "q7".repeat(3))
}

fn shaped() -> Vec<String> {
    let run = |length: usize| "a1B2c3D4e5F6g7H8".repeat(8)[..length].to_owned();
    vec![
        format!("sk-{}", run(24)),
        format!("sk-ant-api03-{}", run(40)),
        format!("sk-proj-{}", run(40)),
        format!("gsk_{}", run(30)),
        format!("hf_{}", run(34)),
        format!("ghp_{}", run(36)),
        format!("github_pat_{}", run(40)),
        format!("glpat-{}", run(20)),
        format!("xoxb-{}", run(20)),
        format!("AKIA{}", "A1B2".repeat(4)),
        format!("AIza{}", run(35)),
        format!("npm_{}", run(36)),
        format!("pypi-{}", run(60)),
        format!("sk_live_{}", run(24)),
        format!("eyJ{}.eyJ{}.{}", run(20), run(20), run(20)),
    ]
}

fn pem() -> String {
    let line = "MIIEowIBAAKC".repeat(5);
    format!(
        "-----BEGIN RSA PRIVATE {0}-----\n{line}\n{line}\nAb3=\n-----END RSA PRIVATE {0}-----",
        "KEY"
    )
}

fn scrubber() -> Scrubber {
    let scrubber = Scrubber::default();
    scrubber.add_secret(&key());
    scrubber
}

fn clean(text: &str) -> String {
    scrubber().text(text).into_owned()
}

#[test]
fn check_159_a_known_key_is_found_in_every_form() {
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE};
    let key = key();
    assert_eq!(clean(&format!("a {key} b")), "a [REDACTED] b");
    let escaped = json!(key).to_string();
    assert_eq!(clean(&escaped), "\"[REDACTED]\"");
    for padding in ["", "u", "us", "user:"] {
        let text = format!("{padding}{key}");
        for encoded in [STANDARD.encode(&text), URL_SAFE.encode(&text)] {
            assert!(clean(&encoded).contains(REPLACEMENT), "{padding}");
        }
    }
    let encoded = String::from_utf8(
        key.bytes()
            .flat_map(|byte| {
                if byte.is_ascii_alphanumeric() {
                    vec![byte]
                } else {
                    format!("%{byte:02X}").into_bytes()
                }
            })
            .collect(),
    )
    .unwrap();
    assert_eq!(clean(&format!("?k={encoded}&")), "?k=[REDACTED]&");
}

#[test]
fn check_159_known_shapes_are_found() {
    for secret in shaped().into_iter().chain([pem()]) {
        let text = format!("before {secret} after");
        assert_eq!(clean(&text), "before [REDACTED] after", "{secret}");
    }
}

#[test]
fn only_the_secret_of_a_header_or_an_address_goes() {
    let word = "hunter22".repeat(3);
    assert_eq!(
        clean(&format!("Authorization: Bearer {word}\nAccept: */*")),
        "Authorization: Bearer [REDACTED]\nAccept: */*"
    );
    assert_eq!(
        clean(&format!("\"authorization\": \"Basic {word}==\"")),
        "\"authorization\": \"Basic [REDACTED]\""
    );
    assert_eq!(
        clean(&format!("postgres://me:{word}@db:5432/x")),
        "postgres://me:[REDACTED]@db:5432/x"
    );
}

#[test]
fn a_private_key_without_its_end_is_found() {
    let cut = pem().split("Ab3").next().unwrap().to_owned();
    let text = clean(&format!("{cut}[cut]"));
    assert_eq!(text, "[REDACTED]\n[cut]");
    let escaped = json!(pem()).to_string();
    assert_eq!(clean(&escaped), "\"[REDACTED]\"");
}

#[test]
fn ordinary_text_stays() {
    for text in [
        "the task-list of a risk-averse sk-learn user",
        "class=\"sk-folding-cube-and-more-of-it\"",
        "http://localhost:8080/path?x=1@2",
        "postgres://${USER}:${PASSWORD}@db/x",
        "a bearer authenticationmiddlewarehandler",
        "if text.starts_with(\"-----BEGIN PRIVATE KEY-----\") { return; }",
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "Basic internationalization",
    ] {
        assert!(matches!(scrubber().text(text), Cow::Borrowed(_)), "{text}");
    }
}

#[test]
fn overlapping_secrets_leave_nothing() {
    let scrubber = Scrubber::without_patterns();
    scrubber.add_secret("abcdefghij");
    scrubber.add_secret("hijklmnopq");
    assert_eq!(scrubber.text("-abcdefghijklmnopq-"), "-[REDACTED]-");
}

#[test]
fn a_short_key_is_no_word_to_look_for() {
    let scrubber = Scrubber::without_patterns();
    scrubber.add_secret("ollama");
    assert_eq!(scrubber.text("ollama"), "ollama");
}

#[test]
fn a_bad_pattern_is_refused_with_its_text_and_place() {
    let scrubber = Scrubber::default();
    let texts = |patterns: &[&str]| {
        let patterns: Vec<String> = patterns.iter().map(|text| (*text).to_owned()).collect();
        scrubber.configure(&patterns, None).unwrap_err().to_string()
    };
    let text = texts(&["fine", "(open"]);
    assert!(
        text.contains("pattern 2") && text.contains("(open"),
        "{text}"
    );
    assert!(texts(&["a*"]).contains("at least one"));
    assert!(texts(&["RED[A-Z]+"]).contains("replacement"));
    assert!(texts(&["(?u:\\b)word"]).contains("pattern 1"));
    assert!(texts(&["x{1000000}"]).contains("pattern 1"));
}

#[test]
fn a_pattern_of_config_joins_the_built_in_ones() {
    let scrubber = Scrubber::default();
    let patterns = [
        "acme-(?P<secret>[0-9]+)-end".to_owned(),
        "grün[a-z]+".to_owned(),
    ];
    scrubber.configure(&patterns, Some("<gone>")).unwrap();
    let shaped = &shaped()[0];
    assert_eq!(
        scrubber.text(&format!("acme-12-end grünlich {shaped}")),
        "acme-<gone>-end <gone> <gone>"
    );
}

#[test]
fn check_159_ids_and_verdicts_keep_their_values() {
    let id = shaped()[0].clone();
    let scrubber = scrubber();
    let payload = Payload::ApprovalResolved {
        id: id.clone(),
        call_id: id.clone(),
        verdict: crate::event::Verdict::Approved,
        reason: Some(id.clone()),
        by: "editor".to_owned(),
        scope: None,
    };
    let Payload::ApprovalResolved {
        id: stored,
        call_id,
        reason,
        ..
    } = scrubber.payload(payload)
    else {
        panic!("another event");
    };
    assert_eq!((&stored, &call_id), (&id, &id));
    assert_eq!(reason.as_deref(), Some(REPLACEMENT));
}

#[test]
fn keys_that_become_alike_are_told_apart() {
    let (one, two) = (shaped()[0].clone(), shaped()[3].clone());
    let value = json!({ one: 1, "[REDACTED]": 2, two: { "id": shaped()[1] } });
    assert_eq!(
        scrubber().value(&value).to_string(),
        r#"{"[REDACTED]-2":1,"[REDACTED]":2,"[REDACTED]-3":{"id":"[REDACTED]"}}"#
    );
}

#[test]
fn redacted_thinking_loses_its_signature() {
    let part = |text: &str| Part::Thinking {
        text: text.to_owned(),
        signature: Some("signed".to_owned()),
        provider: "p".to_owned(),
    };
    let message = Payload::AssistantMessage {
        parts: vec![part(&key()), part("fine")],
        partial: false,
    };
    let Payload::AssistantMessage { parts, .. } = scrubber().payload(message) else {
        panic!("another event");
    };
    assert!(
        matches!(&parts[0], Part::Thinking { signature: None, text, .. } if text == REPLACEMENT)
    );
    assert_eq!(parts[1], part("fine"));
}

#[test]
fn an_excerpt_holds_no_end_of_a_secret() {
    let key = key();
    let (head, tail) = key.split_at(10);
    assert_eq!(
        scrubber().excerpt(&format!("{tail} between {head}")),
        "[REDACTED] between [REDACTED]"
    );
    assert_eq!(scrubber().excerpt("nothing"), "nothing");
}

#[test]
fn ordinary_text_is_not_kept_back() {
    let mut stream = scrubber().stream();
    assert_eq!(stream.push("Let me "), "Let me ");
    assert_eq!(stream.push("look at `main.rs`, "), "look at `main.rs`, ");
    assert_eq!(stream.push("äöü 🦀"), "äöü 🦀");
    // The end of a piece may begin a key; the next letter tells.
    assert_eq!(stream.push(" s"), " ");
    assert_eq!(stream.push("o be it\n"), "so be it\n");
    assert_eq!(stream.finish(), "");
}

#[test]
fn a_stream_without_an_end_is_not_kept_for_ever() {
    let mut stream = Scrubber::default().stream();
    let mut given = String::new();
    let mut pushed = String::new();
    for _ in 0..4000 {
        let piece = "eyJabcdefgh";
        pushed.push_str(piece);
        given.push_str(&stream.push(piece));
        assert!(pushed.len() - given.len() <= 16 * 1024 + piece.len());
    }
}

/// Words, secrets and halves of secrets, in any order.
fn texts() -> impl Strategy<Value = String> {
    let mut pieces = shaped();
    pieces.push(pem());
    pieces.extend([key(), key(), key()]);
    pieces.push(format!("Authorization: Bearer {}", "x7".repeat(12)));
    pieces.push(format!("redis://u:{}@h", "p4ss".repeat(2)));
    let whole = proptest::sample::select(pieces.clone());
    let half = (proptest::sample::select(pieces), 0.0..1.0).prop_map(|(text, part)| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a place in a short text"
        )]
        let at = (text.len() as f64 * part) as usize;
        text[..text.floor_char_boundary(at)].to_owned()
    });
    let word = proptest::sample::select(vec![
        " ", "\n", "a", "s", "sk-", "gh", "-----", ":", "//", "é🦀", "the end", "=", "\"", "eyJ",
    ])
    .prop_map(str::to_owned);
    let any = proptest::string::string_regex("[ -~é\n]{0,12}").unwrap();
    prop::collection::vec(
        prop_oneof![2 => whole, 2 => half, 4 => word, 1 => any],
        0..12,
    )
    .prop_map(|pieces| pieces.concat())
}

fn json_values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        texts().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((texts(), inner), 0..5)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn check_159_a_stream_gives_the_scrubbed_whole(
        text in texts(),
        cuts in prop::collection::vec(1_usize..9, 1..40),
    ) {
        let scrubber = scrubber();
        let mut stream = scrubber.stream();
        let mut chunks = Vec::new();
        let mut rest = text.as_str();
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, after) = rest.split_at(rest.ceil_char_boundary((*cut).min(rest.len())));
            chunks.push(stream.push(piece));
            rest = after;
        }
        chunks.push(stream.finish());
        let joined = chunks.concat();
        // The stream also takes a known secret that only began.
        let rules = scrubber.rules();
        let whole = rules.exact.as_ref().unwrap().scrub_end(&text, REPLACEMENT).into_owned();
        let whole = rules.patterns.scrub(&whole, REPLACEMENT).into_owned();
        prop_assert_eq!(&joined, &whole);
        prop_assert!(!joined.contains(&key()));
        // What was scrubbed stays as it is: a message holds what its chunks were.
        prop_assert_eq!(scrubber.text(&joined), joined.as_str());
    }

    #[test]
    fn any_json_stays_json(value in json_values()) {
        let scrubber = scrubber();
        let clean = scrubber.value(&value);
        let text = clean.to_string();
        prop_assert!(!text.contains(&json!(key()).to_string()));
        prop_assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), clean.clone());
        prop_assert_eq!(scrubber.value(&clean), clean);
    }
}
