//! What must hold for any file and any edit of it.
//!
//! Shared by the fuzz target `edit_match` and the tests of the tools' own crate.

use terret_tools::standard::matching::{Replacement, apply};
use terret_tools::world::text::{Document, Encoding, Splice};

/// Checks everything below. The first byte says whether all places are replaced; the file,
/// the old and the new text follow, parted by the two bytes `FF 00`.
pub(crate) fn any_bytes(data: &[u8]) {
    let Some((&all, rest)) = data.split_first() else {
        return;
    };
    let (file, rest) = part(rest);
    let (old, new) = part(rest);
    let Ok(document) = Document::decode(file.to_vec()) else {
        return;
    };
    let unchanged = document.splice(&[]).expect("nothing is encoded");
    assert_eq!(unchanged, file, "no splice, and other bytes");
    every_span_is_the_only_change(&document);
    let old = String::from_utf8_lossy(old).into_owned();
    let new = String::from_utf8_lossy(new).into_owned();
    let replacement = Replacement {
        old: old.clone(),
        new,
        all: all % 2 == 1,
    };
    let Ok(applied) = apply(&document, std::slice::from_ref(&replacement)) else {
        return;
    };
    let count = applied.counts.first().copied().unwrap_or_default();
    assert!(count >= 1, "applied to nothing");
    if !replacement.all {
        assert_eq!(count, 1);
        let old = old.replace("\r\n", "\n");
        let at = document.view().find(&old).expect("it was found");
        assert_only_change(&document, applied.document.bytes(), at..at + old.len());
    }
}

fn part(data: &[u8]) -> (&[u8], &[u8]) {
    match data.windows(2).position(|pair| pair == b"\xFF\0") {
        Some(at) => (&data[..at], &data[at + 2..]),
        None => (data, b""),
    }
}

/// Takes out each of a few spans and looks at the rest.
fn every_span_is_the_only_change(document: &Document) {
    let view = document.view();
    let bounds: Vec<usize> = (0..=view.len())
        .filter(|at| view.is_char_boundary(*at))
        .take(24)
        .collect();
    for (index, start) in bounds.iter().enumerate() {
        for end in bounds.iter().skip(index).step_by(5) {
            let splice = Splice {
                range: *start..*end,
                text: "x\n".to_owned(),
            };
            let bytes = document
                .splice(&[splice])
                .expect("ASCII is in every encoding");
            assert_only_change(document, &bytes, *start..*end);
        }
    }
}

/// The bytes before and after a span of the view are as they were.
fn assert_only_change(document: &Document, bytes: &[u8], span: std::ops::Range<usize>) {
    let whole = document.bytes();
    let before = prefix(document, span.start);
    let after = prefix(document, span.end);
    assert_eq!(
        &bytes[..before],
        &whole[..before],
        "bytes before the span changed"
    );
    assert!(
        bytes.ends_with(&whole[after..]),
        "bytes after the span changed"
    );
}

/// How many bytes of the file make this much of the view, counted by hand.
fn prefix(document: &Document, view: usize) -> usize {
    let mark = match document.encoding() {
        Encoding::Utf8 { mark: true } => 3,
        Encoding::Utf8 { mark: false } | Encoding::EightBit(_) => 0,
        Encoding::Utf16 { .. } => 2,
    };
    let whole = document.bytes();
    for length in mark..=whole.len() {
        let Ok(head) = Document::with_encoding(whole[..length].to_vec(), document.encoding())
        else {
            continue;
        };
        // A `\r` at the head's end may be half of a pair, which the view has as one.
        let ends_in_half =
            head.view().ends_with('\r') && document.view().get(..view) != Some(head.view());
        if !ends_in_half && head.view().len() == view && document.view().starts_with(head.view()) {
            return length;
        }
    }
    panic!("no head of the file makes this view");
}
