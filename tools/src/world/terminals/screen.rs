//! What a person would see on a terminal, as text for a model.
//!
//! A real screen, since only that gives what full-screen programs mean. A program that
//! writes lines is read as the text that is new since the last read, with what has left
//! the screen kept up to [`SCROLLBACK`]; a program that places its text is read as its
//! whole screen. No escape sequence, control or reordering character is ever in the text.
//!
//! Of ECMA-48 and xterm this is what programs use that find `TERM=xterm`. Colours are
//! not kept.

use std::collections::VecDeque;

use crate::world::terminals::grid::{self, Grid, Row};
use crate::world::terminals::keys;
use crate::world::terminals::parser::{Action, Parser, Sequence};

/// Bytes of unread text that are kept when it has left the screen.
pub const SCROLLBACK: usize = 64 * 1024;

/// Bytes of answers that a program may leave unread; more it did not wait for.
const ANSWERS: usize = 256;

/// Columns between tab stops.
const TAB: usize = 8;

/// The screen of one terminal.
pub struct Screen {
    parser: Parser,
    state: State,
}

/// What is new to a reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    pub text: String,
    /// Where the cursor is, when the text ends with the whole screen.
    pub screen: Option<Place>,
    pub left_out: LeftOut,
}

/// A place on the screen, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub row: usize,
    pub column: usize,
}

/// Text that was never read and is gone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeftOut {
    pub lines: u64,
    pub bytes: u64,
}

struct State {
    rows: usize,
    columns: usize,
    main: Grid,
    alternate: Option<Grid>,
    cursor: Cursor,
    saved: Cursor,
    /// The cursor of the main screen while the alternate one is shown.
    left: Cursor,
    /// The first and last row that scroll.
    region: (usize, usize),
    insert: bool,
    wrap: bool,
    origin: bool,
    newline: bool,
    /// Cursor keys send what applications ask for.
    application: bool,
    /// The program placed its text since the last read.
    placed: bool,
    /// The whole screen as it was last read.
    read: Option<(String, Place)>,
    unread: VecDeque<Piece>,
    unread_bytes: usize,
    left_out: LeftOut,
    last: Option<char>,
    answers: Vec<u8>,
}

/// Text that has left the screen.
struct Piece {
    text: String,
    ends: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Cursor {
    row: usize,
    column: usize,
    /// The last column is written, and the next character goes to the next row.
    pending: bool,
    lines: [bool; 2],
    shifted: bool,
}

impl Screen {
    /// A blank screen. Fewer than 2 rows or columns are 2, more than 1000 are 1000.
    pub fn new(rows: usize, columns: usize) -> Self {
        let (rows, columns) = (rows.clamp(2, 1000), columns.clamp(2, 1000));
        Self {
            parser: Parser::new(),
            state: State::new(rows, columns),
        }
    }

    /// Takes what the program wrote.
    pub fn push(&mut self, bytes: &[u8]) {
        let state = &mut self.state;
        self.parser.push(bytes, &mut |action| state.act(action));
    }

    /// What is new since the last read; none when nothing.
    pub fn look(&self) -> Option<View> {
        self.state.look()
    }

    /// What is new, which then is read.
    pub fn read(&mut self) -> Option<View> {
        let view = self.state.look();
        self.state.see();
        view
    }

    /// The rows as they stand, whoever read them.
    pub fn rows(&self) -> Vec<String> {
        self.state.grid().rows().map(|row| row.text(0)).collect()
    }

    /// Where the cursor is.
    pub fn cursor(&self) -> Place {
        self.state.place()
    }

    /// Whether cursor keys have their second meaning (`DECCKM`).
    pub fn application_keys(&self) -> bool {
        self.state.application
    }

    /// What the terminal answers to the program's questions about it.
    pub fn take_answers(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.state.answers)
    }
}

impl State {
    fn new(rows: usize, columns: usize) -> Self {
        Self {
            rows,
            columns,
            main: Grid::new(rows, columns),
            alternate: None,
            cursor: Cursor::default(),
            saved: Cursor::default(),
            left: Cursor::default(),
            region: (0, rows - 1),
            insert: false,
            wrap: true,
            origin: false,
            newline: false,
            application: false,
            placed: false,
            read: None,
            unread: VecDeque::new(),
            unread_bytes: 0,
            left_out: LeftOut::default(),
            last: None,
            answers: Vec::new(),
        }
    }

    fn grid(&self) -> &Grid {
        self.alternate.as_ref().unwrap_or(&self.main)
    }

    fn grid_mut(&mut self) -> &mut Grid {
        self.alternate.as_mut().unwrap_or(&mut self.main)
    }

    fn place(&self) -> Place {
        Place {
            row: self.cursor.row + 1,
            column: self.cursor.column + 1,
        }
    }

    // What a reader gets.

    fn look(&self) -> Option<View> {
        let mut text = self.unread();
        let screen = if self.alternate.is_some() || self.placed {
            let shown = (self.whole(), self.place());
            if self.read.as_ref() == Some(&shown) && text.is_empty() {
                return None;
            }
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str(&shown.0);
            Some(shown.1)
        } else {
            self.new_lines(&mut text);
            None
        };
        let end = text.trim_end_matches('\n').len();
        text.truncate(end);
        let is_news = screen.is_some() || !text.is_empty() || self.left_out != LeftOut::default();
        is_news.then_some(View {
            text,
            screen,
            left_out: self.left_out,
        })
    }

    fn see(&mut self) {
        self.unread.clear();
        self.unread_bytes = 0;
        self.left_out = LeftOut::default();
        let whole = self.alternate.is_some() || self.placed;
        self.read = whole.then(|| (self.whole(), self.place()));
        if self.alternate.is_some() {
            return;
        }
        self.placed = false;
        let cursor = self.cursor;
        let reached = self.reached();
        for (index, row) in self.main.rows_mut().enumerate().take(reached) {
            if index == cursor.row {
                // What follows a prompt is new, and not the prompt's last blank.
                let text = row.text(cursor.column);
                row.see(text);
            } else {
                row.see_all();
            }
        }
    }

    fn unread(&self) -> String {
        let mut text = String::with_capacity(self.unread_bytes);
        for piece in &self.unread {
            text.push_str(&piece.text);
            if piece.ends {
                text.push('\n');
            }
        }
        text
    }

    fn whole(&self) -> String {
        let mut text = String::new();
        for row in self.grid().rows() {
            text.push_str(row.text(0).trim_end());
            text.push('\n');
        }
        let end = text.trim_end_matches('\n').len();
        text.truncate(end);
        text
    }

    fn new_lines(&self, text: &mut String) {
        for (index, row) in self.main.rows().enumerate().take(self.reached()) {
            let least = if index == self.cursor.row {
                self.cursor.column
            } else {
                0
            };
            let shown = row.text(least);
            if let Some(news) = row.news(&shown) {
                text.push_str(news);
                if !row.goes_on {
                    text.push('\n');
                }
            }
        }
    }

    /// The rows that the program has come to.
    fn reached(&self) -> usize {
        self.main
            .rows()
            .rposition(|row| !row.text(0).is_empty())
            .map_or(0, |last| last + 1)
            .max(self.cursor.row + 1)
    }

    fn keep(&mut self, row: &Row) {
        let text = row.text(0);
        let Some(news) = row.news(&text) else {
            return;
        };
        let piece = Piece {
            text: news.to_owned(),
            ends: !row.goes_on,
        };
        self.unread_bytes += piece.bytes();
        self.unread.push_back(piece);
        while self.unread_bytes > SCROLLBACK
            && let Some(piece) = self.unread.pop_front()
        {
            self.unread_bytes -= piece.bytes();
            self.left_out.bytes += piece.bytes() as u64;
            self.left_out.lines += u64::from(piece.ends);
        }
    }

    // What the program does.

    fn act(&mut self, action: Action<'_>) {
        match action {
            Action::Print(character) => self.print(character),
            Action::Control(control) => self.control(control),
            Action::Escape { intermediate, last } => self.escape(intermediate, last),
            Action::Sequence(sequence) => self.sequence(sequence),
        }
    }

    fn print(&mut self, character: char) {
        // These reorder or hide what is around them; shown as what they are.
        if keys::reorders(character) {
            for escaped in character.escape_unicode() {
                self.put(escaped, 1);
            }
            return;
        }
        let charset = self
            .cursor
            .lines
            .get(usize::from(self.cursor.shifted))
            .copied()
            .unwrap_or_default();
        let character = if charset { line(character) } else { character };
        match grid::width(character) {
            0 => self.mark(character),
            width => self.put(character, width),
        }
    }

    fn mark(&mut self, character: char) {
        let Cursor {
            row,
            column,
            pending,
            ..
        } = self.cursor;
        let Some(column) = (if pending {
            Some(column)
        } else {
            column.checked_sub(1)
        }) else {
            return;
        };
        self.grid_mut().mark(row, column, character);
    }

    fn put(&mut self, character: char, width: usize) {
        let columns = self.columns;
        if self.cursor.pending || self.cursor.column + width > columns {
            if self.wrap {
                let row = self.cursor.row;
                if let Some(row) = self.grid_mut().row_mut(row) {
                    row.goes_on = true;
                }
                self.cursor.column = 0;
                self.cursor.pending = false;
                self.down();
            } else {
                self.cursor.column = columns - width;
                self.cursor.pending = false;
            }
        }
        let Cursor { row, column, .. } = self.cursor;
        if self.insert {
            self.grid_mut().insert(row, column, width);
        }
        self.grid_mut().put(row, column, character, width);
        self.last = Some(character);
        if column + width >= columns {
            self.cursor.column = columns - 1;
            self.cursor.pending = true;
        } else {
            self.cursor.column = column + width;
        }
    }

    fn control(&mut self, control: char) {
        match control {
            '\u{8}' => self.go(self.cursor.row, self.cursor.column.saturating_sub(1)),
            '\t' => {
                let next = (self.cursor.column / TAB + 1) * TAB;
                self.go(self.cursor.row, next);
            }
            '\n' | '\u{b}' | '\u{c}' => {
                self.cursor.pending = false;
                self.down();
                if self.newline {
                    self.cursor.column = 0;
                }
            }
            '\r' => self.go(self.cursor.row, 0),
            '\u{e}' => self.cursor.shifted = true,
            '\u{f}' => self.cursor.shifted = false,
            _ => {}
        }
    }

    fn escape(&mut self, intermediate: Option<char>, last: char) {
        match (intermediate, last) {
            (None, '7') => self.saved = self.cursor,
            (None, '8') => self.cursor = self.saved,
            (None, 'D') => self.down(),
            (None, 'E') => {
                self.cursor.column = 0;
                self.cursor.pending = false;
                self.down();
            }
            (None, 'M') => self.up(),
            (None, 'c') => self.reset(),
            (Some('('), set) => self.cursor.lines[0] = set == '0',
            (Some(')'), set) => self.cursor.lines[1] = set == '0',
            _ => {}
        }
    }

    /// As when it was opened, but for what is to be read.
    fn reset(&mut self) {
        self.leave();
        let rows = self.rows;
        self.main.clear_rows(0, rows);
        self.placed = true;
        self.cursor = Cursor::default();
        self.saved = Cursor::default();
        self.region = (0, rows - 1);
        (self.insert, self.wrap, self.origin) = (false, true, false);
        (self.newline, self.application) = (false, false);
    }

    fn sequence(&mut self, sequence: &Sequence) {
        let Cursor { row, column, .. } = self.cursor;
        match (sequence.private, sequence.intermediate, sequence.last) {
            (None, None, last) => self.plain_sequence(sequence, last),
            (Some('?'), None, 'h') => sequence.numbers().for_each(|mode| self.mode(mode, true)),
            (Some('?'), None, 'l') => sequence.numbers().for_each(|mode| self.mode(mode, false)),
            (Some('?'), None, 'J') => self.erase_screen(sequence.number(0)),
            (Some('?'), None, 'K') => self.erase_line(sequence.number(0)),
            (Some('?'), None, 'n') if sequence.number(0) == 6 => {
                self.answer(&format!("\u{1b}[?{};{}R", row + 1, column + 1));
            }
            (Some('>'), None, 'c') => self.answer("\u{1b}[>0;0;0c"),
            (None, Some('!'), 'p') => {
                self.region = (0, self.rows - 1);
                (self.insert, self.wrap, self.origin) = (false, true, false);
                self.application = false;
                (self.cursor.lines, self.cursor.shifted) = ([false; 2], false);
            }
            _ => {}
        }
    }

    fn plain_sequence(&mut self, sequence: &Sequence, last: char) {
        let Cursor { row, column, .. } = self.cursor;
        let count = sequence.count(0);
        let (top, bottom) = self.region;
        match last {
            '@' => self.grid_mut().insert(row, column, count),
            'A' => {
                let least = if row >= top { top } else { 0 };
                self.go(row.saturating_sub(count).max(least), column);
            }
            'B' | 'e' => {
                let most = if row <= bottom { bottom } else { self.rows - 1 };
                self.go((row + count).min(most), column);
            }
            'C' | 'a' => self.go(row, column + count),
            'D' => self.go(row, column.saturating_sub(count)),
            'E' => self.go(row + count, 0),
            'F' => self.go(row.saturating_sub(count), 0),
            'G' | '`' => self.go(row, count - 1),
            'H' | 'f' => {
                self.placed = true;
                let line = self.addressed(count);
                self.go(line, sequence.count(1) - 1);
            }
            'd' => {
                self.placed = true;
                let line = self.addressed(count);
                self.go(line, column);
            }
            'I' => self.go(row, (column / TAB + count) * TAB),
            'Z' => {
                let stop = column.div_ceil(TAB).saturating_sub(count) * TAB;
                self.go(row, stop);
            }
            'J' => self.erase_screen(sequence.number(0)),
            'K' => self.erase_line(sequence.number(0)),
            'L' if (top..=bottom).contains(&row) => {
                for _ in 0..count.min(bottom + 1 - row) {
                    self.grid_mut().scroll_down(row, bottom);
                }
                self.go(row, 0);
            }
            'M' if (top..=bottom).contains(&row) => {
                for _ in 0..count.min(bottom + 1 - row) {
                    self.grid_mut().scroll_up(row, bottom);
                }
                self.go(row, 0);
            }
            'P' => self.grid_mut().delete(row, column, count),
            'X' => self.grid_mut().clear(row, column, column + count),
            'S' => (0..count.min(self.rows)).for_each(|_| self.scroll_up()),
            'T' => {
                for _ in 0..count.min(self.rows) {
                    self.grid_mut().scroll_down(top, bottom);
                }
            }
            'b' => {
                if let Some(character) = self.last {
                    for _ in 0..count.min(self.rows * self.columns) {
                        self.put(character, grid::width(character).max(1));
                    }
                }
            }
            'c' if sequence.number(0) == 0 => self.answer("\u{1b}[?6c"),
            'n' if sequence.number(0) == 5 => self.answer("\u{1b}[0n"),
            'n' if sequence.number(0) == 6 => {
                self.answer(&format!("\u{1b}[{};{}R", row + 1, column + 1));
            }
            'h' | 'l' => {
                for mode in sequence.numbers() {
                    match mode {
                        4 => self.insert = last == 'h',
                        20 => self.newline = last == 'h',
                        _ => {}
                    }
                }
            }
            'r' => {
                let top = count - 1;
                let bottom = match sequence.number(1) {
                    0 => self.rows,
                    bottom => usize::from(bottom).min(self.rows),
                };
                if top + 1 < bottom {
                    self.region = (top, bottom - 1);
                    self.placed |= self.region != (0, self.rows - 1);
                    let line = self.addressed(1);
                    self.go(line, 0);
                }
            }
            's' => self.saved = self.cursor,
            'u' => self.cursor = self.saved,
            _ => {}
        }
    }

    fn mode(&mut self, mode: u16, on: bool) {
        match mode {
            1 => self.application = on,
            6 => {
                self.origin = on;
                let line = self.addressed(1);
                self.go(line, 0);
            }
            7 => self.wrap = on,
            47 | 1047 | 1049 if on => self.enter(),
            47 | 1047 | 1049 => self.leave(),
            1048 if on => self.saved = self.cursor,
            1048 => self.cursor = self.saved,
            _ => {}
        }
    }

    fn enter(&mut self) {
        if self.alternate.is_none() {
            self.left = self.cursor;
            self.alternate = Some(Grid::new(self.rows, self.columns));
        }
    }

    fn leave(&mut self) {
        if self.alternate.take().is_some() {
            self.cursor = self.left;
            self.region = (0, self.rows - 1);
            // Whoever saw the other screen must see that it is gone.
            self.placed = true;
        }
    }

    /// The row that a number from 1 on addresses.
    fn addressed(&self, number: usize) -> usize {
        let (top, bottom) = self.region;
        if self.origin {
            (top + number - 1).min(bottom)
        } else {
            number - 1
        }
    }

    fn go(&mut self, row: usize, column: usize) {
        self.cursor.row = row.min(self.rows - 1);
        self.cursor.column = column.min(self.columns - 1);
        self.cursor.pending = false;
    }

    fn down(&mut self) {
        if self.cursor.row == self.region.1 {
            self.scroll_up();
        } else {
            self.cursor.row = (self.cursor.row + 1).min(self.rows - 1);
        }
    }

    fn up(&mut self) {
        let (top, bottom) = self.region;
        if self.cursor.row == top {
            self.placed = true;
            self.grid_mut().scroll_down(top, bottom);
        } else {
            self.go(self.cursor.row.saturating_sub(1), self.cursor.column);
        }
    }

    fn scroll_up(&mut self) {
        let (top, bottom) = self.region;
        let row = self.grid_mut().scroll_up(top, bottom);
        if let Some(row) = row
            && top == 0
            && self.alternate.is_none()
        {
            self.keep(&row);
        }
    }

    fn erase_line(&mut self, part: u16) {
        let Cursor { row, column, .. } = self.cursor;
        let columns = self.columns;
        match part {
            0 => self.grid_mut().clear(row, column, columns),
            1 => self.grid_mut().clear(row, 0, column + 1),
            2 => self.grid_mut().clear(row, 0, columns),
            _ => {}
        }
    }

    fn erase_screen(&mut self, part: u16) {
        let row = self.cursor.row;
        let rows = self.rows;
        match part {
            0 => {
                self.erase_line(0);
                self.grid_mut().clear_rows(row + 1, rows);
            }
            1 => {
                self.erase_line(1);
                self.grid_mut().clear_rows(0, row);
            }
            2 => {
                self.placed = true;
                self.grid_mut().clear_rows(0, rows);
            }
            _ => {}
        }
    }

    fn answer(&mut self, text: &str) {
        if self.answers.len() + text.len() <= ANSWERS {
            self.answers.extend_from_slice(text.as_bytes());
        }
    }
}

impl Piece {
    fn bytes(&self) -> usize {
        self.text.len() + usize::from(self.ends)
    }
}

/// A character of the set that draws lines (`DEC special graphics`).
fn line(character: char) -> char {
    match character {
        'j' => '┘',
        'k' => '┐',
        'l' => '┌',
        'm' => '└',
        'n' => '┼',
        'q' => '─',
        't' => '├',
        'u' => '┤',
        'v' => '┴',
        'w' => '┬',
        'x' => '│',
        'a' => '▒',
        '`' => '◆',
        'f' => '°',
        'g' => '±',
        'h' | 'i' => ' ',
        'o' | 'p' | 'r' | 's' => '─',
        'y' => '≤',
        'z' => '≥',
        '{' => 'π',
        '|' => '≠',
        '}' => '£',
        '~' => '·',
        other => other,
    }
}

#[cfg(test)]
mod tests;
