#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use proptest::prelude::*;

use super::{MatchError, Replacement, apply, overlapping};
use crate::world::text::Document;

fn replacement(old: &str, new: &str, all: bool) -> Replacement {
    Replacement {
        old: old.to_owned(),
        new: new.to_owned(),
        all,
    }
}

fn edit(text: &str, old: &str, new: &str) -> Result<String, MatchError> {
    let document = Document::decode(text.as_bytes()).expect("text");
    apply(&document, &[replacement(old, new, false)])
        .map(|applied| String::from_utf8(applied.document.bytes().to_vec()).expect("text"))
        .map_err(|(_, error)| error)
}

#[test]
fn check_131_matching_is_literal() {
    assert_eq!(
        edit("a.*b\naxxb\n", "a.*b", "c").expect("one match"),
        "c\naxxb\n"
    );
    assert!(matches!(
        edit("axxb", "a.*b", "c"),
        Err(MatchError::Missing { .. })
    ));
}

#[test]
fn check_134_the_new_text_is_literal() {
    for new in ["\\0", "\\1", "$1", "\\\\", "${name}", "&", "\\n"] {
        assert_eq!(
            edit("x = 1\n", "1", new).expect("one match"),
            format!("x = {new}\n")
        );
    }
}

#[test]
fn r123_overlapping_occurrences_are_two() {
    let error = edit("x = 1\nx = 1\nx = 1\n", "x = 1\nx = 1", "y").expect_err("a refusal");
    assert_eq!(
        error.to_string(),
        "`old_string` matches 2 times, at lines 1, 2, and exactly 1 is wanted; nothing was changed. Add lines around it to make it unique, or set `replace_all`"
    );
    assert_eq!(overlapping("aaaa", "aa", 10), [0, 1, 2]);
    assert_eq!(overlapping("ééé", "éé", 10), [0, 2]);
}

#[test]
fn r048_two_matches_are_named_by_their_lines() {
    let text = "fn dev() {\n  go();\n}\nfn prod() {\n  go();\n}\n";
    let error = edit(text, "go();", "stop();").expect_err("a refusal");
    assert!(
        error.to_string().contains("matches 2 times, at lines 2, 5"),
        "{error}"
    );
}

#[test]
fn very_many_matches_are_not_counted_to_the_end() {
    let error = edit(&"a".repeat(1_000_000), "aa", "b")
        .expect_err("a refusal")
        .to_string();
    assert!(
        error.contains("more than 100 times") && error.len() < 400,
        "{error}"
    );
}

#[test]
fn a_near_miss_is_shown_and_not_applied() {
    for (text, old, why) in [
        (
            "one\n\tif x {\n\t}\n",
            "    if x {\n    }",
            "line 2; it differs in indentation",
        ),
        (
            "one\ntwo  \n",
            "one\ntwo\n\n",
            "line 1; it differs in blanks at line ends",
        ),
        (
            "a  =  b\n",
            "a = b",
            "line 1; it differs in blanks within lines",
        ),
        (
            "let total = compute(1);\n",
            "let totel = compute(1);",
            "line 1; its text is not quite the same",
        ),
    ] {
        let error = edit(text, old, "new").expect_err("a refusal").to_string();
        assert!(error.contains(why), "{error}");
    }
    let error = edit("abc\n", "something else entirely", "x")
        .expect_err("a refusal")
        .to_string();
    assert!(error.ends_with("nothing was changed"), "{error}");
}

#[test]
fn empty_and_equal_texts_are_refused() {
    assert_eq!(
        edit("a", "", "b").expect_err("a refusal"),
        MatchError::Empty
    );
    assert_eq!(
        edit("a", "a", "a").expect_err("a refusal"),
        MatchError::Same
    );
}

#[test]
fn all_or_none_of_several_each_on_the_result_before() {
    let document = Document::decode(&b"one two\n"[..]).expect("text");
    let both = [
        replacement("one", "three", false),
        replacement("three two", "four", false),
    ];
    let applied = apply(&document, &both).expect("both");
    assert_eq!(applied.document.view(), "four\n");
    let broken = [
        replacement("one", "three", false),
        replacement("one", "x", false),
    ];
    assert!(matches!(
        apply(&document, &broken),
        Err((2, MatchError::Missing { .. }))
    ));
}

#[test]
fn replace_all_counts_its_places() {
    let document = Document::decode(&b"a a a\r\n"[..]).expect("text");
    let applied = apply(&document, &[replacement("a", "b", true)]).expect("all");
    assert_eq!(applied.counts, [3]);
    assert_eq!(&applied.document.bytes()[..], b"b b b\r\n");
}

#[test]
fn r045_line_ends_of_both_kinds_are_matched_by_lf_and_written_as_they_were() {
    assert_eq!(
        edit("a\r\nb\r\nc\r\n", "a\nb", "a\nx\ny").expect("one"),
        "a\r\nx\r\ny\r\nc\r\n"
    );
    assert_eq!(
        edit("a\nb\n", "a\r\nb", "a\r\nx").expect("one"),
        "a\nx\n",
        "the file's own line ends"
    );
    assert_eq!(
        edit("a\nb\n", "b", "x\r\ny").expect("one"),
        "a\nx\r\ny\n",
        "what is meant literally"
    );
    // A mixed file keeps each line's own, in the span too.
    assert_eq!(
        edit("a\r\nb\nc\r\n", "a\nb\nc", "a\nB\nc").expect("one"),
        "a\r\nB\nc\r\n"
    );
}

proptest! {
    #[test]
    fn an_edit_changes_nothing_but_the_one_place(
        before in "[ab\r\n]{0,12}",
        old in "[xy][a-z\n]{0,6}[xy]",
        after in "[ab\r\n]{0,12}",
        new in "[a-z\\\\$&\n]{0,8}",
    ) {
        let text = format!("{before}{old}{after}");
        if let Ok(edited) = edit(&text, &old, &new) {
            prop_assert!(edited.starts_with(&before));
            prop_assert!(edited.ends_with(&after));
            let middle = edited.get(before.len()..edited.len() - after.len()).expect("a middle");
            prop_assert_eq!(middle.replace("\r\n", "\n"), new);
        }
    }

    #[test]
    fn no_texts_panic(text in "\\PC{0,40}|[ab\r\n]{0,40}", old in "\\PC{0,8}|[ab\r\n]{0,8}", new in "\\PC{0,8}|[ab\r\n]{0,8}", all in any::<bool>()) {
        let document = Document::decode(text.as_bytes());
        if let Ok(document) = document {
            let _ = apply(&document, &[replacement(&old, &new, all)]);
        }
    }
}
