#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use super::*;

fn whole(text: &str) -> Option<Line> {
    Some(Line::Whole(Bytes::copy_from_slice(text.as_bytes())))
}

#[test]
fn lines_end_at_lf_alone() {
    let mut buffer = LineBuffer::new(100);
    buffer.push("a\r\n\n \r\nb\u{2028}\u{85}c\rd\nlast".as_bytes());
    assert_eq!(buffer.next_line(), whole("a"));
    assert_eq!(buffer.next_line(), whole("b\u{2028}\u{85}c\rd"));
    assert_eq!(buffer.next_line(), None);
    assert_eq!(buffer.finish(), whole("last"));
    assert_eq!(buffer.finish(), None);
}

#[test]
fn r032_a_byte_order_mark_is_taken_off_the_first_line_alone() {
    let mut buffer = LineBuffer::new(100);
    buffer.push(b"\xEF");
    assert_eq!(buffer.next_line(), None);
    buffer.push(b"\xBB\xBFa\n\xEF\xBB\xBFb\n");
    assert_eq!(buffer.next_line(), whole("a"));
    assert_eq!(buffer.next_line(), whole("\u{feff}b"));
    let mut only = LineBuffer::new(100);
    only.push(b"\xEF\xBB\xBF\nc\n");
    assert_eq!(only.next_line(), whole("c"));
}

#[test]
fn the_limit_counts_the_line_without_its_end() {
    let mut buffer = LineBuffer::new(3);
    buffer.push(b"abc\nabcd\nabc\n");
    assert_eq!(buffer.next_line(), whole("abc"));
    assert_eq!(buffer.next_line(), Some(Line::TooLong));
    assert_eq!(buffer.next_line(), whole("abc"));
}

#[test]
fn r111_what_is_over_the_limit_is_not_kept() {
    let mut buffer = LineBuffer::new(1 << 20);
    let piece = vec![b'x'; READ_CHUNK];
    let mut announced = 0;
    for _ in 0..1000 {
        buffer.push(&piece);
        while let Some(line) = buffer.next_line() {
            assert_eq!(line, Line::TooLong);
            announced += 1;
        }
        assert!(buffer.bytes.capacity() <= (1 << 20) + 2 * READ_CHUNK);
    }
    assert_eq!(announced, 1);
    assert!(buffer.bytes.capacity() <= 4 * READ_CHUNK);
    assert_eq!(buffer.finish(), None);
}

#[test]
fn a_large_line_does_not_leave_a_large_buffer_behind() {
    let mut buffer = LineBuffer::new(DEFAULT_LINE_LIMIT);
    let piece = vec![b'x'; READ_CHUNK];
    for _ in 0..64 {
        buffer.push(&piece);
        assert_eq!(buffer.next_line(), None);
    }
    buffer.push(b"\nsmall\n");
    let Some(Line::Whole(large)) = buffer.next_line() else {
        panic!("a line is due");
    };
    assert_eq!(large.len(), 64 * READ_CHUNK);
    assert_eq!(buffer.next_line(), whole("small"));
    buffer.room();
    assert!(buffer.bytes.capacity() <= 4 * READ_CHUNK);
}

/// Each byte is looked at once: counted by the work the search may do, not by time.
#[test]
fn a_partial_line_is_not_searched_again() {
    let mut buffer = LineBuffer::new(1 << 20);
    for n in 1..=1000 {
        buffer.push(b"x");
        assert_eq!(buffer.next_line(), None);
        assert_eq!(buffer.scanned, n);
    }
    buffer.push(b"\n");
    assert!(matches!(buffer.next_line().unwrap(), Line::Whole(line) if line.len() == 1000));
}
