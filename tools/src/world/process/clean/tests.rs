use proptest::prelude::*;

use super::*;

fn clean(pieces: &[&[u8]]) -> String {
    let mut cleaner = Cleaner::new();
    let mut out = String::new();
    for piece in pieces {
        cleaner.push(piece, &mut out);
    }
    cleaner.finish(&mut out);
    out
}

#[test]
fn escape_sequences_and_controls_go() {
    assert_eq!(
        clean(&[b"\x1b[1;31mred\x1b[0m\x07\x00 \x1b]0;title\x07end\x1b(B\x1b=\x7f\n"]),
        "red end\n"
    );
    assert_eq!(
        clean(&[b"\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\\n"]),
        "link\n"
    );
}

#[test]
fn an_unfinished_escape_string_hides_no_more_than_its_line() {
    assert_eq!(clean(&[b"a\x1b]0;hidden\nshown\n"]), "a\nshown\n");
    let long = format!("\x1b]{}tail\n", "x".repeat(STRING_LIMIT));
    assert!(clean(&[long.as_bytes()]).ends_with("tail\n"));
}

#[test]
fn a_progress_line_keeps_its_last_state() {
    assert_eq!(clean(&[b"10%\r50%\r", b"100%\r\nnext\r\n"]), "100%\nnext\n");
    assert_eq!(clean(&[b"no line end\r"]), "no line end");
}

#[test]
fn overstrike_is_undone() {
    assert_eq!(clean(&[b"N\x08NA\x08A\n"]), "NA\n");
}

#[test]
fn invalid_bytes_are_replaced_and_characters_survive_a_split() {
    assert_eq!(clean(&[b"a\xff\xfeb"]), "a\u{fffd}\u{fffd}b");
    assert_eq!(clean(&[b"\xe2", b"\x82", b"\xac\n"]), "€\n");
    assert_eq!(clean(&[b"\xe2", b"plain\n"]), "\u{fffd}plain\n");
    assert_eq!(clean(&[b"end\xe2\x82"]), "end\u{fffd}");
}

#[test]
fn text_that_reorders_is_shown_as_what_it_is() {
    assert_eq!(clean(&["a\u{202e}b\n".as_bytes()]), "a\\u{202e}b\n");
}

proptest! {
    #[test]
    fn any_split_gives_the_same_text(
        bytes in proptest::collection::vec(
            prop_oneof![Just(b'\r'), Just(b'\n'), Just(0x1b), Just(b'['), Just(b']'), Just(b'm'), Just(0xe2), Just(0x82), any::<u8>()],
            0..200,
        ),
        cuts in proptest::collection::vec(0usize..200, 0..6),
    ) {
        let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut < bytes.len()).collect();
        cuts.sort_unstable();
        let mut pieces = Vec::new();
        let mut from = 0;
        for cut in cuts {
            pieces.push(bytes.get(from..cut).unwrap_or_default());
            from = cut;
        }
        pieces.push(bytes.get(from..).unwrap_or_default());
        prop_assert_eq!(clean(&pieces), clean(&[&bytes]));
    }

    #[test]
    fn no_control_character_is_left(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let text = clean(&[&bytes]);
        prop_assert!(text.chars().all(|c| !c.is_control() || c == '\n' || c == '\t'));
    }
}
