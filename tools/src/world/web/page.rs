//! Makes Markdown of a page: what a reader would see of it, without scripts, styles and
//! hidden text, with links that can be fetched. Works on the tokens of the page alone, in
//! time and memory bounded by its length, however it is nested.

mod tags;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use html5ever::LocalName;
use html5ever::tendril::StrTendril;
use html5ever::tokenizer::{
    BufferQueue, Tag, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts,
};
use url::Url;

use self::tags::{attribute, is_block, is_hidden, is_unseen, is_void, language, raw};
use super::markdown::{Gap, Writer};

/// The most Markdown that is made of a page, in bytes.
const MOST: usize = 1024 * 1024;
/// Elements within each other that are told apart.
const DEEPEST: usize = 96;
/// Attributes, roughly, after which a tag is ended: looking for one that was there before
/// takes the square of their number.
const ATTRIBUTES: usize = 512;
/// The longest address that a link keeps, in bytes.
const LINK: usize = 2000;
/// The longest title, in bytes.
const TITLE: usize = 300;

/// A page as Markdown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    pub text: String,
    /// The page holds more, which is not in `text`.
    pub cut: bool,
}

/// Makes Markdown of a page that came from `base`.
pub fn markdown(html: &str, base: &Url) -> Page {
    let tokenizer = Tokenizer::new(Reader::new(base), TokenizerOpts::default());
    let queue = BufferQueue::default();
    queue.push_back(StrTendril::from(bounded_tags(html).as_str()));
    // It stops early for scripts alone, which the reader never asks for.
    let _ = tokenizer.feed(&queue);
    tokenizer.end();
    tokenizer.sink.state.into_inner().finish()
}

/// Ends every tag that has too many attributes. A tag holds no `>` outside of quotes, and
/// each attribute needs a separator; a `>` more in a quoted value changes only that value.
fn bounded_tags(html: &str) -> String {
    let mut bounded = String::with_capacity(html.len());
    let (mut inside, mut separators, mut from) = (false, 0, 0);
    for (at, byte) in html.bytes().enumerate() {
        match byte {
            b'<' => inside = true,
            b'>' => (inside, separators) = (false, 0),
            b' ' | b'\t' | b'\n' | b'\r' | b'\x0c' | b'/' | b'"' | b'\'' if inside => {
                separators += 1;
                if separators >= ATTRIBUTES * 2 {
                    bounded.push_str(html.get(from..at).unwrap_or_default());
                    bounded.push('>');
                    (inside, separators, from) = (false, 0, at);
                }
            }
            _ => {}
        }
    }
    bounded.push_str(html.get(from..).unwrap_or_default());
    bounded
}

/// Takes the tokens.
struct Reader {
    state: RefCell<State>,
    done: Cell<bool>,
}

struct State {
    writer: Writer,
    base: Url,
    title: String,
    in_title: bool,
    open: Vec<Open>,
    skipped: Option<Skipped>,
    lists: Vec<Option<u32>>,
}

/// An element that is open.
struct Open {
    name: LocalName,
    end: End,
}

/// What an element's end writes.
enum End {
    Nothing,
    Block(Gap),
    Heading(&'static str),
    Mark(&'static str),
    Link(Option<String>),
    Verbatim,
    List,
    Item,
    Quote,
    Table,
    Row,
    Cell,
}

/// An element whose content is not shown, and what is open in it.
struct Skipped {
    names: Vec<LocalName>,
    counts: HashMap<LocalName, usize>,
    /// Only its own end ends it.
    firm: bool,
}

/// What an end tag ended of an element that is not shown.
enum Ended {
    Inside,
    All,
    /// Nothing in it.
    Outside,
}

impl Skipped {
    fn push(&mut self, name: LocalName) {
        *self.counts.entry(name.clone()).or_default() += 1;
        self.names.push(name);
    }

    fn end(&mut self, name: &LocalName) -> Ended {
        if self.counts.get(name).is_none_or(|count| *count == 0) {
            return Ended::Outside;
        }
        while let Some(last) = self.names.pop() {
            if let Some(count) = self.counts.get_mut(&last) {
                *count -= 1;
            }
            if last == *name {
                break;
            }
        }
        if self.names.is_empty() {
            Ended::All
        } else {
            Ended::Inside
        }
    }

    /// Whether a hidden element that was left open ends where this one starts.
    fn is_over(&self, name: &str) -> bool {
        let [only] = self.names.as_slice() else {
            return false;
        };
        !self.firm
            && match &**only {
                "p" => is_block(name),
                "li" => name == "li",
                "dt" | "dd" => matches!(name, "dt" | "dd"),
                "td" | "th" => matches!(name, "td" | "th" | "tr"),
                "tr" => name == "tr",
                _ => false,
            }
    }
}

impl Reader {
    fn new(base: &Url) -> Self {
        Self {
            state: RefCell::new(State {
                writer: Writer::new(MOST),
                base: base.clone(),
                title: String::new(),
                in_title: false,
                open: Vec::new(),
                skipped: None,
                lists: Vec::new(),
            }),
            done: Cell::new(false),
        }
    }
}

impl TokenSink for Reader {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        let mut state = self.state.borrow_mut();
        match token {
            Token::TagToken(tag) => {
                let raw = raw(&tag);
                if !self.done.get() {
                    match tag.kind {
                        TagKind::StartTag => state.start(&tag),
                        TagKind::EndTag => state.end(&tag.name),
                    }
                    self.done.set(state.writer.is_full());
                }
                raw
            }
            Token::CharacterTokens(text) => {
                if !self.done.get() {
                    state.text(&text);
                }
                TokenSinkResult::Continue
            }
            _ => TokenSinkResult::Continue,
        }
    }
}

impl State {
    fn finish(mut self) -> Page {
        while let Some(open) = self.open.pop() {
            self.close(open.end);
        }
        let (text, cut) = self.writer.finish();
        let title = self.title.split_whitespace().collect::<Vec<_>>().join(" ");
        let heading = format!("# {title}");
        let text = if title.is_empty() || text.lines().next() == Some(&heading) {
            text
        } else if text.is_empty() {
            heading
        } else {
            format!("{heading}\n\n{text}")
        };
        Page { text, cut }
    }

    fn text(&mut self, text: &str) {
        if self.in_title {
            let room = TITLE.saturating_sub(self.title.len());
            let end = text.floor_char_boundary(room);
            self.title.push_str(text.get(..end).unwrap_or_default());
        } else if self.skipped.is_none() {
            self.writer.text(text);
        }
    }

    fn start(&mut self, tag: &Tag) {
        let name = &*tag.name;
        if let Some(skipped) = &mut self.skipped {
            if !skipped.is_over(name) {
                if !is_void(name) {
                    skipped.push(tag.name.clone());
                }
                return;
            }
            self.skipped = None;
        }
        if is_void(name) {
            return self.void(tag);
        }
        if name == "title" {
            // Later ones are parts of drawings.
            if self.title.is_empty() {
                self.in_title = true;
                return;
            }
            return self.skip(tag);
        }
        if is_unseen(name) || is_hidden(tag) {
            if !(tag.self_closing && matches!(name, "svg" | "math")) {
                self.skip(tag);
            }
            return;
        }
        self.end_implied(name);
        if self.open.len() >= DEEPEST {
            // Too deep to be told apart; what it holds is text all the same.
            if is_block(name) {
                self.writer.gap(Gap::Line);
            }
            return;
        }
        let end = self.begin(tag);
        self.open.push(Open {
            name: tag.name.clone(),
            end,
        });
    }

    fn skip(&mut self, tag: &Tag) {
        let mut skipped = Skipped {
            names: Vec::new(),
            counts: HashMap::new(),
            firm: is_unseen(&tag.name),
        };
        skipped.push(tag.name.clone());
        self.skipped = Some(skipped);
    }

    /// The elements that this one ends by its start.
    fn end_implied(&mut self, name: &str) {
        let (ends, within): (&[&str], &[&str]) = match name {
            "li" => (&["li"], &["ul", "ol", "menu", "table"]),
            "dt" | "dd" => (&["dt", "dd"], &["dl", "table"]),
            "tr" => (&["tr"], &["table"]),
            "td" | "th" => (&["td", "th"], &["tr", "table"]),
            "thead" | "tbody" | "tfoot" => (&["thead", "tbody", "tfoot", "tr"], &["table"]),
            "a" => (&["a"], &["table", "td", "th"]),
            "option" => (&["option"], &["select"]),
            _ if is_block(name) => (
                &["p"],
                &[
                    "div",
                    "li",
                    "td",
                    "th",
                    "blockquote",
                    "section",
                    "article",
                    "table",
                    "a",
                    "dd",
                ],
            ),
            _ => return,
        };
        let found = self
            .open
            .iter()
            .rposition(|open| ends.contains(&&*open.name) || within.contains(&&*open.name))
            .filter(|at| {
                self.open
                    .get(*at)
                    .is_some_and(|open| ends.contains(&&*open.name))
            });
        if let Some(at) = found {
            self.close_to(at);
        }
    }

    /// Writes an element's start and says what its end writes.
    fn begin(&mut self, tag: &Tag) -> End {
        let name = &*tag.name;
        if self.writer.is_verbatim() {
            if name == "code"
                && let Some(language) = language(tag)
            {
                self.writer.language(&language);
            }
            if is_block(name) {
                self.writer.verbatim_line();
            }
            return End::Nothing;
        }
        let in_table = self.open.iter().any(|open| matches!(open.end, End::Table));
        match name {
            "h1" => self.heading("# "),
            "h2" => self.heading("## "),
            "h3" => self.heading("### "),
            "h4" => self.heading("#### "),
            "h5" => self.heading("##### "),
            "h6" => self.heading("###### "),
            // A table within one is told as text.
            "table" if in_table => self.block(Gap::Line),
            "ul" | "menu" => self.list(None),
            "ol" => {
                let start = attribute(tag, "start").and_then(|start| start.trim().parse().ok());
                self.list(Some(start.unwrap_or(1)))
            }
            "li" => {
                let marker = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        let marker = format!("{number}. ");
                        *number = number.saturating_add(1);
                        marker
                    }
                    _ => "- ".to_owned(),
                };
                self.writer.begin_item(marker);
                End::Item
            }
            "blockquote" => {
                self.writer.begin_quote();
                End::Quote
            }
            "pre" | "listing" | "xmp" | "plaintext" => {
                self.writer.begin_verbatim(true);
                if let Some(language) = language(tag) {
                    self.writer.language(&language);
                }
                End::Verbatim
            }
            "code" | "kbd" | "samp" | "tt" => {
                self.writer.begin_verbatim(false);
                End::Verbatim
            }
            "strong" | "b" => self.mark("**"),
            "em" | "i" => self.mark("*"),
            "del" | "s" | "strike" => self.mark("~~"),
            "a" => match attribute(tag, "href").and_then(|href| self.link(href)) {
                Some(link) => {
                    self.writer.open("[", false);
                    End::Link(Some(link))
                }
                None => End::Link(None),
            },
            "table" => {
                self.writer.begin_table();
                End::Table
            }
            "tr" if self.is_row_place() => {
                self.writer.begin_row();
                End::Row
            }
            "td" | "th" if self.is_cell_place() => End::Cell,
            "tr" | "td" | "th" => End::Block(Gap::Line),
            "dt" | "dd" | "figcaption" | "summary" | "div" | "legend" => self.block(Gap::Line),
            _ if is_block(name) => self.block(Gap::Blank),
            _ => End::Nothing,
        }
    }

    /// Whether a row here belongs to the one table that is written as such.
    fn is_row_place(&self) -> bool {
        let mut inner = self.open.iter().rev();
        inner
            .find(|open| !matches!(&*open.name, "tbody" | "thead" | "tfoot"))
            .is_some_and(|open| matches!(open.end, End::Table))
    }

    fn is_cell_place(&self) -> bool {
        self.open
            .last()
            .is_some_and(|open| matches!(open.end, End::Row))
    }

    fn heading(&mut self, markup: &'static str) -> End {
        self.writer.gap(Gap::Blank);
        self.writer.open(markup, true);
        End::Heading(markup)
    }

    fn list(&mut self, start: Option<u32>) -> End {
        let inner = !self.lists.is_empty();
        self.writer.gap(if inner { Gap::Line } else { Gap::Blank });
        self.lists.push(start);
        End::List
    }

    fn block(&mut self, gap: Gap) -> End {
        self.writer.gap(gap);
        End::Block(gap)
    }

    fn mark(&mut self, markup: &'static str) -> End {
        let open = |open: &Open| matches!(open.end, End::Mark(other) if other == markup);
        if self.open.iter().any(open) {
            return End::Nothing;
        }
        self.writer.open(markup, false);
        End::Mark(markup)
    }

    /// A whole address that can be fetched; none for a place on the same page.
    fn link(&self, href: &str) -> Option<String> {
        let href = href.trim();
        if href.is_empty() || href.starts_with('#') || href.len() > LINK {
            return None;
        }
        let url = self.base.join(href).ok()?;
        let known = matches!(url.scheme(), "http" | "https" | "mailto");
        // Blanks and controls are escaped by now; brackets would end the link.
        let text = url.as_str().replace('(', "%28").replace(')', "%29");
        (known && text.len() <= LINK).then_some(text)
    }

    fn void(&mut self, tag: &Tag) {
        match &*tag.name {
            "br" if self.writer.is_verbatim() => self.writer.text("\n"),
            "br" => self.writer.gap(Gap::Line),
            "hr" => {
                self.end_implied("hr");
                self.writer.gap(Gap::Blank);
                self.writer.word(&["* * *"]);
                self.writer.gap(Gap::Blank);
            }
            "img" if !self.writer.is_verbatim() && !is_hidden(tag) => {
                let alt = attribute(tag, "alt").unwrap_or_default();
                let alt: String = alt.chars().take(300).collect();
                let alt = alt.split_whitespace().collect::<Vec<_>>().join(" ");
                // Without words it is decoration, or counts visits.
                if !alt.is_empty() {
                    match attribute(tag, "src").and_then(|source| self.link(source)) {
                        Some(source) => self.writer.word(&["![", &alt, "](", &source, ")"]),
                        None => self.writer.word(&["![", &alt, "]"]),
                    }
                }
            }
            "base" => {
                let url = attribute(tag, "href").and_then(|href| self.base.join(href).ok());
                if let Some(url) = url.filter(|url| matches!(url.scheme(), "http" | "https")) {
                    self.base = url;
                }
            }
            _ => {}
        }
    }

    fn end(&mut self, name: &LocalName) {
        if let Some(skipped) = &mut self.skipped {
            match skipped.end(name) {
                Ended::Inside => return,
                Ended::All => {
                    self.skipped = None;
                    return;
                }
                // The end of what a hidden element stands in, which was left open.
                Ended::Outside
                    if !skipped.firm && self.open.iter().any(|open| open.name == *name) =>
                {
                    self.skipped = None;
                }
                Ended::Outside => return,
            }
        }
        if &**name == "title" {
            self.in_title = false;
            return;
        }
        // The end of something outside of a cell does not reach into it.
        let place = self.open.iter().rposition(|open| open.name == *name);
        let wall = self.open.iter().rposition(|open| {
            matches!(open.end, End::Cell | End::Table)
                && !matches!(
                    &**name,
                    "table" | "tr" | "tbody" | "thead" | "tfoot" | "td" | "th"
                )
        });
        match place {
            Some(at) if wall.is_none_or(|wall| at > wall) => self.close_to(at),
            // It breaks the line all the same.
            _ if is_block(name) && &**name != "body" => self.writer.gap(Gap::Line),
            _ => {}
        }
    }

    /// Ends all that is open from this place on.
    fn close_to(&mut self, at: usize) {
        while self.open.len() > at {
            if let Some(open) = self.open.pop() {
                self.close(open.end);
            }
        }
    }

    fn close(&mut self, end: End) {
        match end {
            End::Nothing | End::Row => {}
            End::Block(gap) => self.writer.gap(gap),
            End::Heading(markup) => {
                self.writer.close(markup, "");
                self.writer.gap(Gap::Blank);
            }
            End::Mark(markup) => self.writer.close(markup, markup),
            End::Link(Some(link)) => self.writer.close("[", &format!("]({link})")),
            End::Link(None) => {}
            End::Verbatim => self.writer.end_verbatim(),
            End::List => {
                self.lists.pop();
                let inner = !self.lists.is_empty();
                self.writer.gap(if inner { Gap::Line } else { Gap::Blank });
            }
            End::Item => self.writer.end_container(Gap::Line),
            End::Quote => self.writer.end_container(Gap::Blank),
            End::Table => self.writer.end_table(),
            End::Cell => self.writer.end_cell(),
        }
    }
}

#[cfg(test)]
mod tests;
