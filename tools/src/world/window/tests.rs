#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use proptest::prelude::*;

use super::{Collector, End, Validity, WindowRequest, of_document};
use crate::world::text::Document;

fn request(first: u64, lines: u64) -> WindowRequest {
    WindowRequest {
        first,
        lines,
        line_characters: 2_000,
        bytes: 262_144,
    }
}

#[test]
fn lines_are_numbered_from_one_and_counted() {
    let document = Document::decode(&b"a\r\nb\nc"[..]).expect("text");
    let window = of_document(&document, &request(2, 2));
    assert_eq!(window.text, "     2\tb\n     3\tc");
    assert_eq!(window.end, End::Known { lines: 3 });
    assert!(window.remarks(&request(2, 2)).is_empty());
    let window = of_document(&document, &request(1, 1));
    assert_eq!(
        window.remarks(&request(1, 1)),
        ["lines 1 to 1 of 3; to go on, Read with offset 2"]
    );
}

#[test]
fn a_long_line_is_cut_on_a_character_and_says_how_much_is_missing() {
    let text = format!("{}\nshort\n", "é".repeat(2_005));
    let window = of_document(
        &Document::decode(text.as_bytes()).expect("text"),
        &request(1, 10),
    );
    assert_eq!(window.cut, [(1, 5)]);
    assert_eq!(
        window
            .text
            .chars()
            .filter(|character| *character == 'é')
            .count(),
        2_000
    );
    assert!(window.text.ends_with("     2\tshort"));
}

#[test]
fn the_whole_is_bounded_and_says_where_to_go_on() {
    let text = "x".repeat(99) + "\n";
    let text = text.repeat(100);
    let small = WindowRequest {
        bytes: 1_000,
        ..request(1, 2_000)
    };
    let window = of_document(&Document::decode(text.as_bytes()).expect("text"), &small);
    assert_eq!(window.last, 9);
    assert!(window.text.len() <= 1_000);
    assert_eq!(
        window.remarks(&small),
        ["lines 1 to 9 of 100; to go on, Read with offset 10"]
    );
}

#[test]
fn an_empty_file_says_so() {
    let window = of_document(&Document::decode(&b""[..]).expect("text"), &request(1, 10));
    assert_eq!(window.remarks(&request(1, 10)), ["the file is empty"]);
}

proptest! {
    #[test]
    fn pieces_of_any_size_give_the_same_window(
        text in "[aé😀\r\n]{0,60}",
        piece in 1_usize..9,
        first in 1_u64..6,
        lines in 1_u64..6,
        characters in 1_usize..5,
    ) {
        let request = WindowRequest { first, lines, line_characters: characters, bytes: 100 };
        let mut whole = Collector::new(request);
        whole.feed(text.as_bytes());
        let mut parts = Collector::new(request);
        let mut validity = Validity::default();
        for chunk in text.as_bytes().chunks(piece) {
            parts.feed(chunk);
            prop_assert!(validity.feed(chunk));
        }
        prop_assert!(validity.is_complete());
        let whole = whole.finish(true, 0);
        prop_assert_eq!(parts.finish(true, 0), whole.clone());
        // What is shown is what the lines are.
        for shown in whole.text.lines() {
            let (number, line) = shown.split_once('\t').expect("a number");
            let number: usize = number.trim().parse().expect("a number");
            let wanted = text.split('\n').nth(number - 1).expect("a line");
            let wanted = wanted.strip_suffix('\r').unwrap_or(wanted);
            prop_assert!(wanted.starts_with(line.trim_end_matches('\r')), "{:?} {:?}", wanted, line);
        }
    }

    #[test]
    fn validity_is_that_of_the_whole(bytes in prop::collection::vec(prop::sample::select(vec![0x61_u8, 0xC3, 0xA9, 0xF0, 0x9F, 0x98, 0x80, 0xFF]), 0..20), piece in 1_usize..5) {
        let mut validity = Validity::default();
        let valid = bytes.chunks(piece).all(|chunk| validity.feed(chunk)) && validity.is_complete();
        prop_assert_eq!(valid, std::str::from_utf8(&bytes).is_ok());
    }
}
