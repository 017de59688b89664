use super::*;

#[test]
fn every_kind_of_escape_sequence_is_taken_off() {
    for sequence in [
        "\u{1b}]0;title\u{7}",
        "\u{1b}]8;;http://x\u{1b}\\",
        "\u{1b}[31;1m",
        "\u{1b}[?2004h",
        "\u{1b}(B",
        "\u{1b}#8",
        "\u{1b}=",
        "\u{1b}c",
        "\u{1b}Pq...\u{1b}\\",
        "\u{1b}_Gi=1;x\u{1b}\\",
        "\u{9b}1m",
        "\u{9d}0;x\u{9c}",
        "\u{8}\u{7}\r\t ",
        "\u{1b}\u{1b}[0m",
        "\u{feff}\u{202e}",
    ] {
        let line = format!("{sequence}{{\"a\":1}}{sequence}");
        assert_eq!(find_message(&line), Some("{\"a\":1}"), "{sequence:?}");
        assert_eq!(
            shown(format!("a{sequence}b").as_bytes()).replace(' ', ""),
            "ab",
            "{sequence:?}"
        );
    }
}

#[test]
fn what_is_shown_is_bounded() {
    let line = vec![0xFF; 1 << 20];
    assert!(shown(&line).len() <= MOST_SHOWN + 6);
    assert_eq!(shown(b""), "");
    assert_eq!(shown("\u{1b}]0;never ends".as_bytes()), "");
}
