#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;

use super::*;

fn screen(text: &str) -> Screen {
    let mut screen = Screen::new(24, 80);
    screen.push(text.as_bytes());
    screen
}

fn read(screen: &mut Screen) -> String {
    screen.read().map(|view| view.text).unwrap_or_default()
}

#[test]
fn lines_are_read_once_and_a_prompt_is_not_read_again() {
    let mut screen = screen("one\r\n\r\ntwo\r\n$ ");
    assert_eq!(read(&mut screen), "one\n\ntwo\n$ ");
    assert_eq!(screen.read(), None);
    screen.push(b"ls\r\nfile\r\n$ ");
    assert_eq!(read(&mut screen), "ls\nfile\n$ ");
    assert_eq!(screen.read(), None);
    screen.push(b"\r\n$ ");
    assert_eq!(read(&mut screen), "$ ");
}

#[test]
fn a_line_that_grows_gives_what_it_grew_by() {
    let mut screen = screen("abc");
    assert_eq!(read(&mut screen), "abc");
    screen.push(b"def");
    assert_eq!(read(&mut screen), "def");
    screen.push(b"\rxyz");
    assert_eq!(read(&mut screen), "xyzdef");
}

#[test]
fn r098_colours_titles_and_progress_leave_their_text_alone() {
    let mut screen = screen(
        "\u{1b}[31mred\u{1b}[0m \u{1b}]0;title\u{7}\u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{1b}\\\r\n 10%\r 90%\r100%\r\n\u{1b}Pq#0\u{1b}\\x\u{1b}",
    );
    screen.push(b"[1mbold\x1b[1");
    assert_eq!(read(&mut screen), "red link\n100%\nxbold");
}

#[test]
fn a_long_line_is_one_line() {
    let long = "x".repeat(200);
    let mut screen = screen(&format!("{long}\r\nend\r\n"));
    assert_eq!(read(&mut screen), format!("{long}\nend"));
}

#[test]
fn what_has_left_the_screen_is_read_in_order() {
    let mut screen = Screen::new(24, 80);
    let all: Vec<String> = (0..500).map(|number| format!("line {number}")).collect();
    screen.push(all.join("\r\n").as_bytes());
    let view = screen.read().unwrap();
    assert_eq!(view.text, all.join("\n"));
    assert_eq!(view.left_out, LeftOut::default());
    // What was read on the screen is not read again when it leaves.
    screen.push("\r\n+".repeat(40).as_bytes());
    assert_eq!(read(&mut screen), vec!["+"; 40].join("\n"));
}

#[test]
fn unread_text_is_bounded_and_what_is_gone_is_counted() {
    let mut screen = Screen::new(24, 80);
    let lines = 20_000u64;
    for number in 0..lines {
        screen.push(format!("{number:09}\r\n").as_bytes());
    }
    let view = screen.read().unwrap();
    let shown = view.text.lines().count() as u64;
    assert!(view.text.len() <= SCROLLBACK + 24 * 81);
    assert!(view.text.ends_with("000019999"));
    assert_eq!(view.left_out.lines, lines - shown);
    assert_eq!(view.left_out.bytes, (lines - shown) * 10);
    assert_eq!(screen.read(), None);
}

#[test]
fn a_full_screen_program_is_read_as_its_screen() {
    let mut screen = screen("$ edit\r\n");
    assert_eq!(read(&mut screen), "$ edit");
    screen.push(b"\x1b[?1049h\x1b[H\x1b[2J\x1b[3;5Htext\x1b[24;1H-- INSERT --\x1b[3;9H");
    let view = screen.read().unwrap();
    assert_eq!(
        view.text,
        format!("\n\n    text{}-- INSERT --", "\n".repeat(21))
    );
    assert_eq!(view.screen, Some(Place { row: 3, column: 9 }));
    assert_eq!(screen.read(), None);
    // A cursor that moved is news.
    screen.push(b"\x1b[D");
    assert_eq!(
        screen.read().unwrap().screen,
        Some(Place { row: 3, column: 8 })
    );
    // And so is the way back.
    screen.push(b"\x1b[?1049l");
    let view = screen.read().unwrap();
    assert_eq!(view.text, "$ edit");
    assert_eq!(view.screen, Some(Place { row: 2, column: 1 }));
    screen.push(b"$ ");
    assert_eq!(read(&mut screen), "$ ");
}

#[test]
fn a_program_that_places_its_text_is_read_as_a_screen() {
    let mut screen = screen("\u{1b}[H\u{1b}[2Jtop - 1\r\n\u{1b}[Kcpu 1\r\n");
    let view = screen.read().unwrap();
    assert_eq!(view.text, "top - 1\ncpu 1");
    assert!(view.screen.is_some());
    screen.push(b"\x1b[Htop - 2\r\n\x1b[Kcpu 1\r\n");
    assert_eq!(read(&mut screen), "top - 2\ncpu 1");
}

#[test]
fn lines_that_are_drawn_again_above_the_cursor_are_read_again_and_no_others() {
    let mut screen = screen("a: pulling\r\nb: pulling\r\nc: pulling\r\n");
    assert_eq!(read(&mut screen), "a: pulling\nb: pulling\nc: pulling");
    screen.push(b"\x1b[2A\r\x1b[2Kb: done\x1b[2B\r");
    assert_eq!(read(&mut screen), "b: done");
}

#[test]
fn a_region_scrolls_alone() {
    let mut screen = screen("\u{1b}[2;4r\u{1b}[1;1Hhead\u{1b}[2;1Ha\r\nb\r\nc\r\nd");
    assert_eq!(screen.rows().get(..5).unwrap(), ["head", "b", "c", "d", ""]);
    screen.push(b"\x1b[2;1H\x1bM");
    assert_eq!(screen.rows().get(..5).unwrap(), ["head", "", "b", "c", ""]);
    screen.push(b"\x1b[3;1H\x1b[Lx");
    assert_eq!(screen.rows().get(..5).unwrap(), ["head", "", "x", "b", ""]);
    screen.push(b"\x1b[2;1H\x1b[M");
    assert_eq!(screen.rows().get(..5).unwrap(), ["head", "x", "b", "", ""]);
}

#[test]
fn characters_are_inserted_deleted_erased_and_repeated() {
    let mut screen = screen("abcdef\u{1b}[4D\u{1b}[2@");
    assert_eq!(screen.rows().first().unwrap(), "ab  cdef");
    screen.push(b"\x1b[3P");
    assert_eq!(screen.rows().first().unwrap(), "abdef");
    screen.push(b"\x1b[2X");
    assert_eq!(screen.rows().first().unwrap(), "ab  f");
    screen.push(b"\x1b[1K");
    assert_eq!(screen.rows().first().unwrap(), "    f");
    screen.push(b"\rx\x1b[3b");
    assert_eq!(screen.rows().first().unwrap(), "xxxxf");
}

#[test]
fn wide_and_combining_characters_take_the_room_they_take() {
    let mut screen = screen("日本e\u{301}|\r\u{1b}[2C*");
    assert_eq!(screen.rows().first().unwrap(), "日* e\u{301}|");
    screen.push("\r\u{1b}[79C日x".as_bytes());
    assert_eq!(screen.rows().get(1).unwrap(), "日x");
    // No number of marks fills the memory.
    screen.push("\u{301}".repeat(10_000).as_bytes());
    assert!(screen.rows().get(1).unwrap().len() < 40);
}

#[test]
fn a_box_is_drawn_with_lines() {
    let screen = screen("\u{1b}(0lqk\u{1b}(B lqk");
    assert_eq!(screen.rows().first().unwrap(), "┌─┐ lqk");
}

#[test]
fn no_escape_or_reordering_character_is_in_the_text() {
    let mut screen = screen("a\u{202e}b\u{9b}31mc\u{85}\u{7f}\0d\u{1b}[?25l\u{1b}#8");
    assert_eq!(read(&mut screen), "a\\u{202e}bcd");
}

#[test]
fn questions_about_the_terminal_are_answered() {
    let mut screen = screen("ab\u{1b}[6n\u{1b}[c\u{1b}[5n");
    assert_eq!(screen.take_answers(), b"\x1b[1;3R\x1b[?6c\x1b[0n");
    for _ in 0..1000 {
        screen.push(b"\x1b[6n");
    }
    assert!(screen.take_answers().len() <= ANSWERS);
    screen.push(b"\x1b[?1h");
    assert!(screen.application_keys());
}

#[test]
fn a_string_without_an_end_hides_no_more_than_its_limit() {
    let mut screen = screen(&format!("\u{1b}]0;{}seen", "x".repeat(5000)));
    assert!(read(&mut screen).ends_with("xseen"));
}

#[test]
fn r097_characters_that_come_byte_by_byte_are_whole() {
    let mut screen = Screen::new(24, 80);
    for byte in "漢字かな😀\r\n".bytes() {
        screen.push(&[byte]);
    }
    assert_eq!(read(&mut screen), "漢字かな😀");
}

#[test]
fn a_whole_screen_of_nothing_is_said_once() {
    let mut screen = screen("\u{1b}[?1049h");
    assert_eq!(screen.read().unwrap().text, "");
    assert_eq!(screen.read(), None);
}

/// Bytes as programs write them, and as none would.
fn output() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        3 => "[ -~]{0,100}".prop_map(String::into_bytes),
        3 => "\\x1b\\[[?>!]?[0-9]{0,3}(;[0-9]{0,3}){0,2}[ !]?[@-~]".prop_map(String::into_bytes),
        1 => "\\x1b[ -~]{1,2}".prop_map(String::into_bytes),
        1 => Just("\r\n".repeat(30).into_bytes()),
        1 => "[\\x00-\\x1f]{1,3}".prop_map(String::into_bytes),
        1 => Just("日本e\u{301}😀".as_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..8),
    ];
    proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_split_of_the_bytes_gives_the_same_screen(
        bytes in output(), cuts in proptest::collection::vec(1usize..9, 1..20), rows in 2usize..12, columns in 2usize..90
    ) {
        let mut whole = Screen::new(rows, columns);
        whole.push(&bytes);
        let mut split = Screen::new(rows, columns);
        let mut rest = bytes.as_slice();
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (now, later) = rest.split_at((*cut).min(rest.len()));
            split.push(now);
            rest = later;
        }
        prop_assert_eq!(whole.rows(), split.rows());
        prop_assert_eq!(whole.cursor(), split.cursor());
        let view = whole.read();
        prop_assert_eq!(&view, &split.read());
        if let Some(view) = view {
            prop_assert!(!view.text.chars().any(|character| character.is_control() && character != '\n'));
        }
        prop_assert_eq!(whole.read(), None);
    }
}
