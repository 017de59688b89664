//! What must hold for whatever a program writes to its terminal.
//!
//! Shared by the fuzz target `screen` and the tests of the tools' own crate.

use terret_tools::world::terminals::screen::{SCROLLBACK, Screen, View};

/// The first byte says how large the screen is, the second where the rest is split; the
/// rest is what the program writes.
pub(crate) fn any_bytes(data: &[u8]) {
    let [size, split, bytes @ ..] = data else {
        return;
    };
    let rows = usize::from(size % 16) + 2;
    let columns = usize::from(size / 16) * 8 + 2;
    let mut whole = Screen::new(rows, columns);
    whole.push(bytes);
    let mut pieces = Screen::new(rows, columns);
    for piece in bytes.chunks(usize::from(*split) + 1) {
        pieces.push(piece);
    }
    assert_eq!(
        whole.rows(),
        pieces.rows(),
        "another screen by another split"
    );
    assert_eq!(whole.cursor(), pieces.cursor());
    assert_eq!(whole.take_answers(), pieces.take_answers());
    assert_eq!(whole.rows().len(), rows);
    assert!((1..=rows).contains(&whole.cursor().row));
    assert!((1..=columns).contains(&whole.cursor().column));
    let seen = whole.look();
    let read = whole.read();
    assert_eq!(seen, read);
    assert_eq!(read, pieces.read());
    assert_eq!(whole.read(), None, "read twice");
    if let Some(view) = read {
        is_readable(&view, rows * columns);
    }
}

fn is_readable(view: &View, cells: usize) {
    let hidden = view
        .text
        .chars()
        .find(|character| character.is_control() && *character != '\n');
    assert_eq!(hidden, None, "{:?}", view.text);
    // A cell holds a character with at most 8 marks.
    assert!(view.text.len() <= SCROLLBACK + cells * 36 + 1024);
}
