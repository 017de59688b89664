//! Writes Markdown piece by piece, within a fixed number of bytes. Nothing is padded and
//! nothing is copied more than once, so no page makes more text than it holds: that is why
//! no tree is built and no converter of trees is used here.

/// Lists and quotes within each other that still indent.
const DEEPEST: usize = 12;
/// Columns of a table that are kept apart.
const COLUMNS: usize = 64;

/// The writer of one page.
pub(super) struct Writer {
    out: String,
    /// Bytes that may still be written.
    room: usize,
    full: bool,
    gap: Gap,
    /// Markup that is written only when something follows it.
    openers: Vec<&'static str>,
    containers: Vec<Container>,
    /// How many of the containers the last text stood in, too.
    shared: usize,
    verbatim: Option<Verbatim>,
    tables: Vec<Table>,
}

/// What separates the next text from the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Gap {
    None,
    Space,
    Line,
    Blank,
}

enum Container {
    Quote,
    Item {
        marker: String,
        marked: bool,
    },
    /// Too deep to be shown.
    Flat,
}

/// Text that is kept as it is until its end is known.
struct Verbatim {
    block: bool,
    language: String,
    text: String,
}

/// The rows of a table, while what is written is one of its cells.
struct Table {
    /// What stands before the first row.
    caption: String,
    rows: Vec<Vec<String>>,
    /// Of the page around it.
    around: Around,
}

struct Around {
    out: String,
    gap: Gap,
    openers: Vec<&'static str>,
    containers: Vec<Container>,
    shared: usize,
}

impl Writer {
    pub(super) fn new(room: usize) -> Self {
        Self {
            out: String::new(),
            room,
            full: false,
            gap: Gap::None,
            openers: Vec::new(),
            containers: Vec::new(),
            shared: 0,
            verbatim: None,
            tables: Vec::new(),
        }
    }

    /// Whether something was left out for want of room.
    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    /// The Markdown. What is open is closed.
    pub(super) fn finish(mut self) -> (String, bool) {
        self.end_verbatim();
        while !self.tables.is_empty() {
            self.end_table();
        }
        (self.out, self.full)
    }

    /// Running text: blanks and line ends are one blank.
    pub(super) fn text(&mut self, text: &str) {
        if let Some(verbatim) = &mut self.verbatim {
            if text.len() <= self.room {
                self.room -= text.len();
                verbatim.text.push_str(text);
            } else {
                self.full = true;
            }
            return;
        }
        let blank = |character: char| matches!(character, ' ' | '\t' | '\n' | '\r' | '\u{c}');
        let mut rest = text;
        while !rest.is_empty() && !self.full {
            let word = rest.trim_start_matches(blank);
            if word.len() < rest.len() {
                self.gap(Gap::Space);
            }
            let end = word.find(blank).unwrap_or(word.len());
            let (word, after) = word.split_at(end);
            if !word.is_empty() {
                self.flush();
                self.push(word);
            }
            rest = after;
        }
    }

    /// Whatever comes next is at least so far away.
    pub(super) fn gap(&mut self, gap: Gap) {
        let fresh = matches!(
            self.containers.last(),
            Some(Container::Item { marked: false, .. })
        );
        // What begins an item stands beside its mark.
        let gap = if fresh { gap.min(Gap::Line) } else { gap };
        self.gap = self.gap.max(gap);
    }

    /// Markup before the next text; `block` comes before what is inline.
    pub(super) fn open(&mut self, markup: &'static str, block: bool) {
        if block {
            self.openers.insert(0, markup);
        } else {
            self.openers.push(markup);
        }
    }

    /// The end of what [`Self::open`] began: nothing at all when nothing came in between.
    pub(super) fn close(&mut self, opener: &'static str, markup: &str) {
        match self.openers.iter().rposition(|open| *open == opener) {
            Some(at) => {
                self.openers.remove(at);
            }
            None => self.push(markup),
        }
    }

    /// A word of our own making, such as an image.
    pub(super) fn word(&mut self, parts: &[&str]) {
        self.flush();
        for part in parts {
            self.push(part);
        }
    }

    pub(super) fn begin_item(&mut self, marker: String) {
        self.gap(Gap::Line);
        self.contain(Container::Item {
            marker,
            marked: false,
        });
    }

    pub(super) fn begin_quote(&mut self) {
        self.gap(Gap::Blank);
        self.contain(Container::Quote);
    }

    fn contain(&mut self, container: Container) {
        let flat = self.containers.len() >= DEEPEST;
        self.containers
            .push(if flat { Container::Flat } else { container });
    }

    /// The end of an item or a quote.
    pub(super) fn end_container(&mut self, gap: Gap) {
        self.containers.pop();
        self.shared = self.shared.min(self.containers.len());
        self.gap(gap);
    }

    /// Code: kept as it is, in a block or in a line.
    pub(super) fn begin_verbatim(&mut self, block: bool) {
        if self.verbatim.is_none() {
            self.verbatim = Some(Verbatim {
                block,
                language: String::new(),
                text: String::new(),
            });
        }
    }

    pub(super) fn is_verbatim(&self) -> bool {
        self.verbatim.is_some()
    }

    /// Begins a line in a block of code, unless one begins there.
    pub(super) fn verbatim_line(&mut self) {
        let inside = self.verbatim.as_ref().is_some_and(|verbatim| {
            verbatim.block && !verbatim.text.is_empty() && !verbatim.text.ends_with('\n')
        });
        if inside {
            self.text("\n");
        }
    }

    /// The language of the block of code.
    pub(super) fn language(&mut self, language: &str) {
        if let Some(verbatim) = &mut self.verbatim {
            language.clone_into(&mut verbatim.language);
        }
    }

    pub(super) fn end_verbatim(&mut self) {
        let Some(Verbatim {
            block,
            language,
            text,
        }) = self.verbatim.take()
        else {
            return;
        };
        if text.trim().is_empty() {
            return;
        }
        // What was kept is paid for.
        self.room = self.room.saturating_add(text.len());
        let fence = "`".repeat(
            longest_run(&text)
                .saturating_add(1)
                .max(if block { 3 } else { 1 }),
        );
        if !block {
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            let pad = if text.starts_with('`') || text.ends_with('`') {
                " "
            } else {
                ""
            };
            return self.word(&[&fence, pad, &text, pad, &fence]);
        }
        self.gap(Gap::Blank);
        self.word(&[&fence, &language]);
        let text = text.strip_prefix('\n').unwrap_or(&text);
        for line in text.trim_end().split('\n') {
            self.gap = Gap::Line;
            self.flush();
            self.push(line.trim_end_matches('\r'));
        }
        self.gap = Gap::Line;
        self.word(&[&fence]);
        self.gap(Gap::Blank);
    }

    pub(super) fn begin_table(&mut self) {
        self.gap(Gap::Blank);
        let around = Around {
            out: std::mem::take(&mut self.out),
            gap: std::mem::replace(&mut self.gap, Gap::None),
            openers: std::mem::take(&mut self.openers),
            containers: std::mem::take(&mut self.containers),
            shared: std::mem::take(&mut self.shared),
        };
        self.tables.push(Table {
            caption: String::new(),
            rows: Vec::new(),
            around,
        });
    }

    pub(super) fn begin_row(&mut self) {
        match self.tables.last_mut() {
            Some(table) if table.rows.is_empty() => {
                table.caption = std::mem::take(&mut self.out);
                self.gap = Gap::None;
            }
            _ if !self.out.is_empty() => self.end_cell(),
            _ => {}
        }
        if let Some(table) = self.tables.last_mut() {
            table.rows.push(Vec::new());
        }
    }

    /// The end of a cell, and of whatever stands between cells.
    pub(super) fn end_cell(&mut self) {
        let text = std::mem::take(&mut self.out);
        self.gap = Gap::None;
        self.openers.clear();
        self.containers.clear();
        self.shared = 0;
        let Some(table) = self.tables.last_mut() else {
            self.out = text;
            return;
        };
        if table.rows.is_empty() {
            table.rows.push(Vec::new());
        }
        let Some(row) = table.rows.last_mut() else {
            return;
        };
        let full = row.len() >= COLUMNS;
        match row.last_mut() {
            Some(last) if full => {
                // Room was paid for the text, and a blank more is within it.
                last.push(' ');
                last.push_str(&text);
            }
            _ => row.push(text),
        }
    }

    pub(super) fn end_table(&mut self) {
        // Text between cells is a cell of its own; nothing is lost.
        if !self.out.is_empty() {
            self.end_cell();
        }
        let Some(Table {
            caption,
            mut rows,
            around,
        }) = self.tables.pop()
        else {
            return;
        };
        self.out = around.out;
        self.gap = around.gap;
        self.openers = around.openers;
        self.containers = around.containers;
        self.shared = around.shared;
        rows.retain(|row| row.iter().any(|cell| !cell.is_empty()));
        let kept: usize = rows.iter().flatten().map(String::len).sum();
        self.room = self.room.saturating_add(kept).saturating_add(caption.len());
        if !caption.is_empty() {
            self.lines(&caption);
        }
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
        // A table that lays out a page holds blocks.
        let layout = columns < 2 || rows.iter().flatten().any(|cell| cell.contains("\n\n"));
        if layout {
            for cell in rows.iter().flatten().filter(|cell| !cell.is_empty()) {
                self.lines(cell);
            }
            return self.gap(Gap::Blank);
        }
        for (number, row) in rows.iter().enumerate() {
            self.gap(Gap::Line);
            self.flush();
            self.push("|");
            for cell in row {
                self.push(" ");
                for (at, line) in cell.split('\n').enumerate() {
                    self.push(if at == 0 { "" } else { " " });
                    for (at, piece) in line.split('|').enumerate() {
                        self.push(if at == 0 { "" } else { "\\|" });
                        self.push(piece);
                    }
                }
                self.push(" |");
            }
            if number == 0 {
                self.gap(Gap::Line);
                self.flush();
                self.push("|");
                for _ in 0..columns {
                    self.push(" --- |");
                }
            }
        }
        self.gap(Gap::Blank);
    }

    /// A block of lines that were written before.
    fn lines(&mut self, text: &str) {
        self.gap(Gap::Blank);
        for line in text.split('\n') {
            self.flush();
            self.push(line);
            self.gap = Gap::Line;
        }
        self.gap = Gap::Blank;
    }

    /// Writes the gap, the marks of lists and quotes, and the markup that waited.
    fn flush(&mut self) {
        let gap = std::mem::replace(&mut self.gap, Gap::None);
        let first = self.out.is_empty();
        match gap {
            Gap::None if !first => {}
            Gap::Space if !first => self.push(" "),
            Gap::None | Gap::Space => self.prefix(),
            _ if first => self.prefix(),
            Gap::Line => {
                self.push("\n");
                self.prefix();
            }
            Gap::Blank => {
                self.push("\n");
                self.quote_marks();
                self.push("\n");
                self.prefix();
            }
        }
        self.shared = self.containers.len();
        for opener in std::mem::take(&mut self.openers) {
            self.push(opener);
        }
    }

    /// The quotes that go on through an empty line.
    fn quote_marks(&mut self) {
        let mut marks = String::new();
        for container in self.containers.iter().take(self.shared) {
            match container {
                Container::Quote => marks.push_str("> "),
                Container::Item {
                    marked: true,
                    marker,
                } => {
                    marks.extend(std::iter::repeat_n(' ', marker.len()));
                }
                Container::Item { marked: false, .. } => break,
                Container::Flat => {}
            }
        }
        self.push(marks.trim_end());
    }

    fn prefix(&mut self) {
        let mut prefix = String::new();
        for container in &mut self.containers {
            match container {
                Container::Quote => prefix.push_str("> "),
                Container::Item { marker, marked } if *marked => {
                    prefix.extend(std::iter::repeat_n(' ', marker.len()));
                }
                Container::Item { marker, marked } => {
                    *marked = true;
                    prefix.push_str(marker);
                }
                Container::Flat => {}
            }
        }
        self.push(&prefix);
    }

    fn push(&mut self, text: &str) {
        if self.full || text.len() > self.room {
            self.full = true;
            return;
        }
        self.room -= text.len();
        self.out.push_str(text);
    }
}

fn longest_run(text: &str) -> usize {
    text.split(|character| character != '`')
        .map(str::len)
        .max()
        .unwrap_or(0)
}
