#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use proptest::prelude::*;

use super::{Document, Encoding, LineEnd, NotText, Splice, looks_binary};

fn splice(range: std::ops::Range<usize>, text: &str) -> Splice {
    Splice {
        range,
        text: text.to_owned(),
    }
}

#[test]
fn the_view_hides_mark_and_carriage_returns_and_a_splice_keeps_them() {
    let document = Document::decode(&b"\xEF\xBB\xBFone\r\ntwo\r\n"[..]).expect("text");
    assert_eq!(document.view(), "one\ntwo\n");
    assert_eq!(
        document.splice(&[splice(4..7, "2\n2")]).expect("bytes"),
        b"\xEF\xBB\xBFone\r\n2\r\n2\r\n"
    );
}

#[test]
fn an_inserted_newline_follows_its_neighbours_in_a_mixed_file() {
    let document = Document::decode(&b"a\nb\nc\r\nd\r\n"[..]).expect("text");
    assert_eq!(
        document.splice(&[splice(3..3, "\nx")]).expect("bytes"),
        b"a\nb\nx\nc\r\nd\r\n"
    );
    assert_eq!(
        document.splice(&[splice(7..7, "\nx")]).expect("bytes"),
        b"a\nb\nc\r\nd\r\nx\r\n"
    );
}

#[test]
fn utf16_is_text_with_its_mark_and_stays_so() {
    for (bytes, big_endian) in [
        (&b"\xFF\xFEa\0\r\0\n\0\x3D\xD8\0\xDE"[..], false),
        (&b"\xFE\xFF\0a\0\r\0\n\xD8\x3D\xDE\0"[..], true),
    ] {
        let document = Document::decode(bytes).expect("text");
        assert_eq!(document.encoding(), Encoding::Utf16 { big_endian });
        assert_eq!(document.view(), "a\n😀");
        let spliced = document.splice(&[splice(2..6, "é\n")]).expect("bytes");
        let again = Document::decode(spliced.clone()).expect("text");
        assert_eq!(again.view(), "a\né\n");
        assert_eq!(spliced.get(..8), bytes.get(..8));
        assert_eq!(again.line_end(), Some(LineEnd::CrLf));
    }
    assert_eq!(
        Document::decode(&b"\xFF\xFEa"[..]).err(),
        Some(NotText::Binary)
    );
}

#[test]
fn latin_1_with_a_sure_guess_is_text_and_an_unsure_one_names_the_bytes() {
    let latin = "Der Käufer prüft die Größe; für Änderungen öffne das Menü.\n";
    let bytes = encoding_rs::WINDOWS_1252.encode(latin).0.into_owned();
    let document = Document::decode(bytes.clone()).expect("text");
    assert_eq!(document.view(), latin);
    assert_eq!(document.splice(&[]).expect("bytes"), bytes);
    let refused = document
        .splice(&[splice(0..3, "Ж")])
        .expect_err("no such character");
    assert_eq!(refused.character, 'Ж');
    // A lone sign fits every page.
    assert!(matches!(
        Document::decode(&b"20\xB0C\n"[..]).err(),
        Some(NotText::Unsure { offset: 2, .. })
    ));
    // Cyrillic in its own page is no Latin-1, so it is refused and not guessed at.
    let cyrillic = encoding_rs::WINDOWS_1251
        .encode("Покупатель проверяет размер товара")
        .0
        .into_owned();
    assert!(matches!(
        Document::decode(cyrillic).err(),
        Some(NotText::Unsure { offset: 0, .. })
    ));
}

#[test]
fn binary_is_told_by_its_zeros_and_controls() {
    assert!(looks_binary(b"a\0b"));
    assert_eq!(Document::decode(&b"a\0b"[..]).err(), Some(NotText::Binary));
    assert_eq!(
        Document::decode(&b"\x01\x02\xFFabc"[..]).err(),
        Some(NotText::Binary)
    );
}

#[test]
fn the_same_text_may_differ_in_line_ends_mark_and_final_newline() {
    let disk = Document::decode(&b"\xEF\xBB\xBFa\r\nb\r\n"[..]).expect("text");
    assert!(disk.same_text(&Document::decode(&b"a\nb"[..]).expect("text")));
    assert!(!disk.same_text(&Document::decode(&b"a\nc"[..]).expect("text")));
}

#[test]
fn r046_an_overwrite_keeps_mark_encoding_and_line_ends() {
    let document = Document::decode(&b"\xEF\xBB\xBFa\r\nb\r\n"[..]).expect("text");
    assert_eq!(
        document.overwrite("x\ny\n").expect("bytes"),
        b"\xEF\xBB\xBFx\r\ny\r\n"
    );
    assert_eq!(
        document.overwrite("\u{FEFF}x\r\ny").expect("bytes"),
        b"\xEF\xBB\xBFx\r\ny"
    );
}

proptest! {
    #[test]
    fn a_splice_touches_no_byte_outside_its_span(
        text in "[a-zé😀\r\n]{0,40}",
        mark in any::<bool>(),
        wide in prop::option::of(any::<bool>()),
        cut in any::<prop::sample::Index>(),
        length in 0_usize..10,
        new in "[a-zé\n]{0,10}",
    ) {
        let bytes = match wide {
            None => [if mark { &b"\xEF\xBB\xBF"[..] } else { b"" }, text.as_bytes()].concat(),
            Some(big) => std::iter::once(0xFEFF_u16)
                .chain(text.encode_utf16())
                .flat_map(|unit| if big { unit.to_be_bytes() } else { unit.to_le_bytes() })
                .collect(),
        };
        let document = Document::decode(bytes.clone()).expect("text");
        let boundaries: Vec<usize> =
            (0..=document.view().len()).filter(|at| document.view().is_char_boundary(*at)).collect();
        let first = cut.index(boundaries.len());
        let start = *boundaries.get(first).expect("a boundary");
        let end = *boundaries.get(first + length).unwrap_or(boundaries.last().expect("one"));
        let spliced = document.splice(&[splice(start..end, &new)]).expect("bytes");
        let (from, to) = (document.offset(start), document.offset(end));
        prop_assert_eq!(spliced.get(..from), bytes.get(..from));
        prop_assert!(spliced.ends_with(bytes.get(to..).expect("a tail")));
        // The view of the result is the splice of the view, when no pair is made or broken
        // at the seams.
        if !text.contains('\r') {
            let again = Document::with_encoding(spliced, document.encoding()).expect("text");
            let mut wanted = document.view().to_owned();
            wanted.replace_range(start..end, &new);
            prop_assert_eq!(again.view(), wanted);
        }
        prop_assert_eq!(document.splice(&[]).expect("bytes"), bytes);
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(document) = Document::decode(bytes.clone()) {
            prop_assert_eq!(document.splice(&[]).expect("bytes"), bytes);
        }
    }
}
