#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;

use super::{Host, HostPattern};

fn host(url: &str) -> Option<Host> {
    Host::of(&url::Url::parse(url).ok()?)
}

fn matches(pattern: &str, url: &str) -> bool {
    HostPattern::parse(pattern)
        .unwrap()
        .matches(&host(url).unwrap())
}

#[test]
fn check_155_no_spelling_of_a_host_gets_past_a_pattern() {
    for url in [
        "http://evil.example/",
        "http://EVIL.Example",
        "http://evil.example./x",
        "https://evil.example:8443/",
        "http://evil%2Eexample/",
        "http://evil\u{3002}example/",
        "http://ｅｖｉｌ.example/",
        "http:\\\\evil.example\\x",
        "  http://evil.example",
    ] {
        assert!(matches("evil.example", url), "{url}");
        assert!(matches("EVIL.example.", url), "{url}");
        assert!(matches("*.example", url), "{url}");
    }
    assert!(!matches("evil.example", "http://notevil.example/"));
    assert!(!matches("evil.example", "http://evil.example.org/"));
    assert!(!matches("*.example.com", "http://example.com/"));
    assert!(matches("*.example.com", "http://a.b.example.com/"));
}

#[test]
fn every_way_of_writing_an_address_is_that_address() {
    for url in [
        "http://127.0.0.1/",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://0177.0.0.1/",
        "http://127.1/",
        "http://0x7f000001/",
        "http://127.0.0.1./",
        "http://１２７.0.0.1/",
    ] {
        assert_eq!(host(url).unwrap().as_str(), "127.0.0.1", "{url}");
    }
    assert_eq!(
        host("http://[::FFFF:7f00:1]/").unwrap().as_str(),
        "::ffff:127.0.0.1"
    );
    assert!(matches("[::1]", "http://[0:0::1]/"));
    assert!(matches("10.0.*", "http://10.0.3.4/"));
}

#[test]
fn a_name_in_other_letters_is_what_the_network_calls_it() {
    assert!(matches("bücher.example", "http://BÜCHER.example/"));
    assert!(matches(
        "*.bücher.example",
        "http://a.xn--bcher-kva.example/"
    ));
}

#[test]
fn a_host_that_would_be_a_pattern_is_none() {
    for url in [
        "http://*.com/",
        "http://a!b.com/",
        "http://a..b/",
        "http://./",
        "http://b../",
    ] {
        assert_eq!(host(url), None, "{url}");
    }
}

#[test]
fn a_pattern_is_a_host_alone() {
    for text in [
        "",
        "  ",
        "https://a.example",
        "a.example:80",
        "a.example/x",
        "u@a.example",
        "a..b",
        "*..b",
    ] {
        assert!(HostPattern::parse(text).is_err(), "{text}");
    }
}

proptest! {
    #[test]
    fn a_plain_pattern_matches_its_host_however_it_is_written(
        labels in prop::collection::vec("[a-z][a-z0-9]{0,8}", 1..4),
        upper in any::<u32>(), dot in any::<bool>(), port in 1u16..,
    ) {
        let name = labels.join(".");
        // `xn--` is none of these, so each is its own spelling.
        let written: String = name.chars().enumerate()
            .map(|(at, letter)| if upper >> (at % 32) & 1 == 1 { letter.to_ascii_uppercase() } else { letter })
            .collect();
        let dot = if dot { "." } else { "" };
        let pattern = HostPattern::parse(&format!("{written}{dot}")).unwrap();
        let host = host(&format!("http://{written}{dot}:{port}/")).unwrap();
        prop_assert!(pattern.matches(&host));
        prop_assert_eq!(host.as_str(), name.as_str());
        let longer = HostPattern::parse(&format!("x{name}")).unwrap();
        prop_assert!(!longer.matches(&host));
    }
}
