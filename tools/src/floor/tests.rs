use proptest::prelude::*;

use super::{Floor, glob_matches};

#[test]
fn check_079_case_counts_servers_are_apart_and_a_star_takes_no_leading_dot() {
    let floor = Floor::new(["Read", "mcp__x__*"]);
    assert!(floor.admits("Read"));
    assert!(!floor.admits("read"));
    assert!(floor.admits("mcp__x__search"));
    assert!(!floor.admits("mcp__y__search"));
    assert!(!glob_matches("*", ".hidden"));
    assert!(!glob_matches("?hidden", ".hidden"));
    assert!(!glob_matches("[.]hidden", ".hidden"));
    assert!(glob_matches(".*", ".hidden"));
    assert!(glob_matches("a*", "a.b"));
}

#[test]
fn the_default_floor_holds_the_standard_tools_and_tool_servers() {
    let floor = Floor::default();
    assert!(floor.admits("Bash") && floor.admits("mcp__github__issue"));
    assert!(!floor.admits("Format"));
    assert!(!Floor::new(Vec::<String>::new()).admits("Read"));
}

#[test]
fn sets_ranges_negations_and_escapes() {
    for (pattern, name, matches) in [
        ("[abc]x", "bx", true),
        ("[a-c]x", "bx", true),
        ("[!a-c]x", "bx", false),
        ("[^a-c]x", "dx", true),
        ("[]]x", "]x", true),
        ("[a-]x", "-x", true),
        ("[a", "[a", true),
        ("\\*", "*", true),
        ("\\*", "a", false),
        ("[\\]]", "]", true),
        ("a*b*c", "aXbYbZc", true),
        ("a*b*c", "aXbY", false),
        ("", "", true),
        ("*", "", true),
    ] {
        assert_eq!(glob_matches(pattern, name), matches, "{pattern} on {name}");
    }
}

/// A slow matcher that is plainly right, for `*`, `?`, escapes and plain characters.
fn reference(pattern: &[char], name: &[char], start: bool) -> bool {
    let dot = start && name.first() == Some(&'.');
    match (pattern, name) {
        ([], []) => true,
        (['*', rest @ ..], _) => {
            !dot && (reference(rest, name, start)
                || matches!(name, [_, after @ ..] if reference(pattern, after, false)))
                || name.is_empty() && reference(rest, name, start)
        }
        (['?', rest @ ..], [_, after @ ..]) => !dot && reference(rest, after, false),
        (['\\', wanted, rest @ ..], [found, after @ ..]) => {
            wanted == found && reference(rest, after, false)
        }
        ([wanted, rest @ ..], [found, after @ ..]) => {
            wanted == found && reference(rest, after, false)
        }
        _ => false,
    }
}

proptest! {
    #[test]
    fn globs_match_as_the_slow_reference_does(
        pattern in prop::collection::vec(prop::sample::select(vec!['*', '?', 'a', 'b', '.']), 0..8),
        name in prop::collection::vec(prop::sample::select(vec!['a', 'b', '.']), 0..8),
    ) {
        let (text, subject): (String, String) = (pattern.iter().collect(), name.iter().collect());
        prop_assert_eq!(glob_matches(&text, &subject), reference(&pattern, &name, true), "{} on {}", text, subject);
    }

    #[test]
    fn no_pattern_panics_or_hangs(pattern in ".{0,40}", name in ".{0,40}") {
        glob_matches(&pattern, &name);
        glob_matches(&"*a".repeat(30), &"a".repeat(200));
    }
}
