//! Rows and cells of a terminal's screen, and what of them was read.

use std::collections::VecDeque;

use unicode_width::UnicodeWidthChar;

/// Combining characters that a cell keeps; more are there to break something.
const MARKS: usize = 8;

/// The right half of a wide character.
const HALF: char = '\0';

/// One place on the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Cell {
    character: char,
    marks: Option<Box<str>>,
}

/// One row of the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    cells: Vec<Cell>,
    /// The text goes on in the next row, without a line end.
    pub(super) goes_on: bool,
    /// The text when the row was last read; none when it never was.
    seen: Option<String>,
}

/// The rows of one screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Grid {
    rows: VecDeque<Row>,
    columns: usize,
}

impl Cell {
    const BLANK: Self = Self {
        character: ' ',
        marks: None,
    };
}

impl Row {
    fn blank(columns: usize) -> Self {
        Self {
            cells: vec![Cell::BLANK; columns],
            goes_on: false,
            seen: None,
        }
    }

    /// The text up to its last character that is no blank, and at least `least` columns.
    pub(super) fn text(&self, least: usize) -> String {
        let used = self
            .cells
            .iter()
            .rposition(|cell| *cell != Cell::BLANK)
            .map_or(0, |last| last + 1);
        let end = used.max(least).min(self.cells.len());
        let mut text = String::with_capacity(end);
        for cell in self.cells.iter().take(end) {
            if cell.character != HALF {
                text.push(cell.character);
            }
            if let Some(marks) = &cell.marks {
                text.push_str(marks);
            }
        }
        text
    }

    /// What `text`, the row's, holds that was not read yet; none when nothing.
    pub(super) fn news<'a>(&self, text: &'a str) -> Option<&'a str> {
        let Some(seen) = &self.seen else {
            return Some(text);
        };
        // A row that was erased says nothing, and blanks at an end are none to be read.
        let text_end = text.trim_end();
        if text_end.is_empty() || text_end == seen.trim_end() {
            return None;
        }
        Some(
            text.strip_prefix(seen.as_str())
                .or_else(|| text.strip_prefix(seen.trim_end()))
                .unwrap_or(text),
        )
    }

    /// The row was read as this text.
    pub(super) fn see(&mut self, text: String) {
        self.seen = Some(text);
    }

    /// The row was read as it is.
    pub(super) fn see_all(&mut self) {
        self.seen = Some(self.text(0));
    }

    fn clear(&mut self, from: usize, to: usize) {
        self.part(from);
        self.part(to);
        for cell in self.cells.iter_mut().take(to).skip(from) {
            *cell = Cell::BLANK;
        }
        if to >= self.cells.len() {
            self.goes_on = false;
        }
    }

    /// A wide character with its halves on both sides of `at` is no more.
    fn part(&mut self, at: usize) {
        if self
            .cells
            .get(at)
            .is_some_and(|cell| cell.character == HALF)
        {
            if let Some(right) = self.cells.get_mut(at) {
                *right = Cell::BLANK;
            }
            if let Some(left) = at.checked_sub(1).and_then(|at| self.cells.get_mut(at)) {
                *left = Cell::BLANK;
            }
        }
    }
}

impl Grid {
    pub(super) fn new(rows: usize, columns: usize) -> Self {
        Self {
            rows: std::iter::repeat_with(|| Row::blank(columns))
                .take(rows)
                .collect(),
            columns,
        }
    }

    pub(super) fn rows(&self) -> impl DoubleEndedIterator<Item = &Row> + ExactSizeIterator {
        self.rows.iter()
    }

    pub(super) fn rows_mut(&mut self) -> impl Iterator<Item = &mut Row> {
        self.rows.iter_mut()
    }

    pub(super) fn row_mut(&mut self, row: usize) -> Option<&mut Row> {
        self.rows.get_mut(row)
    }

    /// Writes a character of `width` 1 or 2 columns.
    pub(super) fn put(&mut self, row: usize, column: usize, character: char, width: usize) {
        let Some(row) = self.rows.get_mut(row) else {
            return;
        };
        row.part(column);
        row.part(column + width);
        if let Some(cell) = row.cells.get_mut(column) {
            cell.character = character;
            cell.marks = None;
        }
        if width == 2
            && let Some(cell) = row.cells.get_mut(column + 1)
        {
            cell.character = HALF;
            cell.marks = None;
        }
    }

    /// Adds a character without a width to the one at or, in its right half, before the
    /// place.
    pub(super) fn mark(&mut self, row: usize, column: usize, character: char) {
        let Some(row) = self.rows.get_mut(row) else {
            return;
        };
        let half = row
            .cells
            .get(column)
            .is_some_and(|cell| cell.character == HALF);
        let column = if half {
            column.saturating_sub(1)
        } else {
            column
        };
        if let Some(cell) = row.cells.get_mut(column) {
            let marks = cell.marks.as_deref().unwrap_or_default();
            if marks.chars().count() < MARKS {
                cell.marks = Some(format!("{marks}{character}").into());
            }
        }
    }

    /// Blanks the columns from `from` up to `to`.
    pub(super) fn clear(&mut self, row: usize, from: usize, to: usize) {
        if let Some(row) = self.rows.get_mut(row) {
            row.clear(from, to);
        }
    }

    /// Blanks whole rows, from `from` up to `to`.
    pub(super) fn clear_rows(&mut self, from: usize, to: usize) {
        let columns = self.columns;
        for row in self.rows.iter_mut().take(to).skip(from) {
            row.clear(0, columns);
        }
    }

    /// Moves the rest of a row to the right.
    pub(super) fn insert(&mut self, row: usize, column: usize, count: usize) {
        let columns = self.columns;
        if let Some(row) = self.rows.get_mut(row)
            && column < columns
        {
            row.part(column);
            let count = count.min(columns - column);
            row.part(columns - count);
            row.cells.truncate(columns - count);
            row.cells
                .splice(column..column, std::iter::repeat_n(Cell::BLANK, count));
        }
    }

    /// Moves the rest of a row to the left, over what stood there.
    pub(super) fn delete(&mut self, row: usize, column: usize, count: usize) {
        let columns = self.columns;
        if let Some(row) = self.rows.get_mut(row)
            && column < columns
        {
            let count = count.min(columns - column);
            row.part(column);
            row.part(column + count);
            row.cells.drain(column..column + count);
            row.cells.resize(columns, Cell::BLANK);
        }
    }

    /// Takes the row at `top` away and gives a blank one at `bottom`.
    pub(super) fn scroll_up(&mut self, top: usize, bottom: usize) -> Option<Row> {
        let row = self.rows.remove(top)?;
        self.rows.insert(bottom, Row::blank(self.columns));
        Some(row)
    }

    /// Takes the row at `bottom` away and gives a blank one at `top`.
    pub(super) fn scroll_down(&mut self, top: usize, bottom: usize) {
        if self.rows.remove(bottom).is_some() {
            self.rows.insert(top, Row::blank(self.columns));
        }
    }
}

/// The columns that a character takes: 0, 1 or 2.
pub(super) fn width(character: char) -> usize {
    if character.is_ascii() {
        return 1;
    }
    character.width().unwrap_or_default().min(2)
}
