//! What must hold for any text with secrets in it, however it is cut into pieces.
//!
//! Shared by the fuzz target `scrub` and the tests of the log's own crate.

use terret_log::Scrubber;

/// How much of a text is kept back at most; beyond it a stream may judge earlier than a whole.
const WHOLE: usize = 16 * 1024;

/// Checks everything below. The first part, up to the bytes `FF 00`, says how the text is
/// cut: each byte is a length, again from the first one after the last. The parts that follow
/// are text, and between each two of them stands a secret in one of its forms.
pub(crate) fn any_bytes(data: &[u8]) {
    let mut parts = data
        .split_inclusive(|byte| *byte == 0)
        .fold(vec![Vec::new()], |mut parts: Vec<Vec<u8>>, piece| {
            let last = parts.last_mut().expect("there is always one");
            last.extend(piece);
            if last.ends_with(b"\xFF\0") {
                last.truncate(last.len() - 2);
                parts.push(Vec::new());
            }
            parts
        })
        .into_iter();
    let cuts = parts.next().unwrap_or_default();
    let scrubber = Scrubber::default();
    // Made here, so that no file has the shape of a secret.
    let keys = [
        format!("plain{}", "Zx9".repeat(7)),
        format!("{}/\"\\+=é", "q4".repeat(9)),
    ];
    for key in &keys {
        scrubber.add_secret(key);
    }
    let mut text = String::new();
    for (index, part) in parts.enumerate() {
        if index > 0 {
            text.push_str(&form(&keys, index));
        }
        text.push_str(&String::from_utf8_lossy(&part));
    }
    if text.len() > WHOLE {
        return;
    }

    holds_none(&scrubber.text(&text), &keys);
    // Not the scrubbed whole: at a stream's end also a secret that only began is redacted.
    let mut uncut = scrubber.stream();
    let whole = uncut.push(&text) + &uncut.finish();
    let mut stream = scrubber.stream();
    let mut seen = String::new();
    for piece in pieces(&text, &cuts) {
        seen.push_str(&stream.push(piece));
        holds_none(&seen, &keys);
    }
    seen.push_str(&stream.finish());
    holds_none(&seen, &keys);
    assert_eq!(seen, whole, "cut another way, and another text");
    assert_eq!(stream.take_redacted(), seen != text, "told wrongly");
    // An end of a text is not read as the middle of a secret that another text began.
    assert_eq!(
        format!("{}{}", stream.push("word"), stream.finish()),
        "word"
    );
}

/// A secret as it gets about, or the shape of one.
fn form(keys: &[String], index: usize) -> String {
    let key = &keys[index % keys.len()];
    match index / keys.len() % 5 {
        0 => key.clone(),
        1 => {
            let quoted = serde_json::to_string(key).expect("a text");
            quoted.trim_matches('"').to_owned()
        }
        2 => key.bytes().map(|byte| format!("%{byte:02X}")).collect(),
        3 => format!("sk-ant-{}", "a1B2".repeat(8)),
        _ => format!(
            "-----BEGIN {} KEY-----\nMIIE{}\n",
            "PRIVATE",
            "Ab1/".repeat(20)
        ),
    }
}

/// The text in pieces of these lengths, in bytes, made longer to end between characters.
fn pieces<'a>(text: &'a str, cuts: &[u8]) -> Vec<&'a str> {
    let mut lengths = cuts.iter().cycle().map(|cut| usize::from(*cut));
    let mut pieces = Vec::new();
    let mut from = 0;
    while from < text.len() {
        let mut to = from + lengths.next().unwrap_or(text.len()).max(1);
        while to < text.len() && !text.is_char_boundary(to) {
            to += 1;
        }
        let to = to.min(text.len());
        pieces.push(&text[from..to]);
        from = to;
    }
    pieces
}

/// Looked for by hand, in what a person would see by now.
fn holds_none(seen: &str, keys: &[String]) {
    for key in keys {
        assert!(!seen.contains(key.as_str()), "a key came through");
        let quoted = serde_json::to_string(key).expect("a text");
        assert!(
            !seen.contains(quoted.trim_matches('"')),
            "a quoted key came through"
        );
    }
}
