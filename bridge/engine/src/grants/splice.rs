//! Adding and removing rules in the text of a TOML file by splicing: the parser says where
//! things are, and every byte that is not part of the rule stays as it was. So comments,
//! order, line ends and the absence of a final newline are kept without rendering anything
//! again, and removing what was added gives the same bytes.

use std::ops::Range;

use terret_tools::rules::Effect;
use toml::de::{DeTable, DeValue};

use super::entry::rendered;
use super::{StoredRule, key};

/// Stands above a `[policy]` that was made here, so that it is taken away with its last
/// rule and one that a person wrote is not.
const NOTE: &str = "# Rules that were granted; `terret rules` lists them and takes them back.";

const INDENT: &str = "    ";

/// Where the arrays are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Keys of the file itself.
    Top,
    /// Keys of its table `policy`.
    Policy,
}

/// Why a text cannot be changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SpliceError {
    Parse(String),
    /// `policy` is written in a form that takes no further key.
    Form,
}

/// The text with the rule in it. The same effect and text twice is one, with what the newer
/// one says.
pub(super) fn add(text: &str, place: Place, rule: &StoredRule) -> Result<String, SpliceError> {
    let layout = Layout::of(text, place, rule.effect)?;
    let item = rendered(rule);
    let newline = newline(text);
    let Some(array) = &layout.array else {
        return new_array(text, &layout, place, rule.effect, &item, newline);
    };
    if let Some(same) = array.items.iter().find(|known| known.text == rule.text) {
        return Ok(spliced(text, &[(same.span.clone(), &item)]));
    }
    Ok(insert(text, array, &item, newline))
}

/// The text without the rule; none when it is not there.
pub(super) fn remove(
    text: &str,
    place: Place,
    effect: Effect,
    rule: &str,
) -> Result<Option<String>, SpliceError> {
    let mut current: Option<String> = None;
    loop {
        let before = current.as_deref().unwrap_or(text);
        let layout = Layout::of(before, place, effect)?;
        let Some(array) = layout.array else {
            return Ok(current);
        };
        let Some(index) = array.items.iter().position(|known| known.text == rule) else {
            return Ok(current);
        };
        current = Some(without(before, place, effect, &array, index)?);
    }
}

struct Layout {
    array: Option<Array>,
    table: Table,
}

/// How the table of the arrays is written.
enum Table {
    /// It is the file.
    File,
    /// `[policy]`, there.
    Header(Range<usize>),
    /// `policy.… = …`, the first of these there.
    Dotted(Range<usize>),
    Inline,
    Missing,
}

struct Array {
    /// The key's first byte.
    key: usize,
    /// With both brackets.
    span: Range<usize>,
    items: Vec<Item>,
}

struct Item {
    span: Range<usize>,
    text: String,
}

impl Layout {
    fn of(text: &str, place: Place, effect: Effect) -> Result<Self, SpliceError> {
        let document =
            DeTable::parse(text).map_err(|error| SpliceError::Parse(error.to_string()))?;
        let top = document.get_ref();
        let (fields, table) = match place {
            Place::Top => (Some(top), Table::File),
            Place::Policy => match top.iter().find(|(name, _)| name.get_ref() == "policy") {
                None => (None, Table::Missing),
                Some((name, value)) => {
                    let DeValue::Table(fields) = value.get_ref() else {
                        return Err(SpliceError::Form);
                    };
                    (Some(fields), form(text, name.span(), value.span()))
                }
            },
        };
        let wanted = key(effect);
        let found =
            fields.and_then(|fields| fields.iter().find(|(name, _)| name.get_ref() == wanted));
        let array = match found {
            None => None,
            Some((name, value)) => {
                let DeValue::Array(items) = value.get_ref() else {
                    return Err(SpliceError::Form);
                };
                Some(Array {
                    key: name.span().start,
                    span: value.span(),
                    items: items
                        .iter()
                        .map(|item| Item {
                            span: item.span(),
                            text: rule_of(item.get_ref()),
                        })
                        .collect(),
                })
            }
        };
        Ok(Self { array, table })
    }
}

fn form(text: &str, name: Range<usize>, value: Range<usize>) -> Table {
    let before = text.get(line_start(text, name.start)..name.start);
    match text.get(value.clone()).and_then(|text| text.chars().next()) {
        Some('[') => Table::Header(value),
        Some('{') => Table::Inline,
        _ if before.is_some_and(is_blank) => Table::Dotted(name),
        // Only `[policy.…]` is there, beside which a `[policy]` may stand.
        _ => Table::Missing,
    }
}

fn rule_of(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Table(fields) => fields
            .iter()
            .find(|(name, _)| name.get_ref() == "rule")
            .and_then(|(_, value)| value.get_ref().as_str())
            .unwrap_or_default()
            .to_owned(),
        _ => String::new(),
    }
}

/// A new array of one rule, in the table where it belongs.
fn new_array(
    text: &str,
    layout: &Layout,
    place: Place,
    effect: Effect,
    item: &str,
    newline: &str,
) -> Result<String, SpliceError> {
    let key = key(effect);
    let array = |prefix: &str| format!("{prefix}{key} = [{newline}{INDENT}{item},{newline}]");
    match &layout.table {
        Table::File => Ok(appended(text, &array(""), newline)),
        Table::Missing if place == Place::Policy => Ok(appended(
            text,
            &format!("{NOTE}{newline}[policy]{newline}{}", array("")),
            newline,
        )),
        Table::Header(header) => {
            let end = line_end(text, header.end);
            Ok(spliced(
                text,
                &[(end..end, &format!("{newline}{}", array("")))],
            ))
        }
        Table::Dotted(first) => {
            let start = line_start(text, first.start);
            let written = format!("{}{newline}", array("policy."));
            Ok(spliced(text, &[(start..start, &written)]))
        }
        Table::Inline | Table::Missing => Err(SpliceError::Form),
    }
}

/// A block behind a blank line at the end. Where the last line had no end it has none then.
fn appended(text: &str, block: &str, newline: &str) -> String {
    if text.is_empty() {
        format!("{block}{newline}")
    } else if text.ends_with('\n') {
        format!("{text}{newline}{block}{newline}")
    } else {
        format!("{text}{newline}{newline}{block}")
    }
}

/// A further rule at the end of an array, as those before it are written.
fn insert(text: &str, array: &Array, item: &str, newline: &str) -> String {
    let close = array.span.end.saturating_sub(1);
    let Some(last) = array.items.last() else {
        let open = array.span.start + 1;
        let inside = text.get(open..close).unwrap_or_default();
        if !inside.contains('\n') {
            return spliced(text, &[(open..open, item)]);
        }
        let start = line_start(text, close);
        let indent = text.get(start..close).unwrap_or_default();
        let line = format!("{indent}{INDENT}{item}{newline}");
        return spliced(text, &[(start..start, &line)]);
    };
    let span = &last.span;
    let start = line_start(text, span.start);
    let indent = text.get(start..span.start).unwrap_or_default();
    if !is_blank(indent) || start < array.span.start {
        return spliced(text, &[(span.end..span.end, &format!(", {item}"))]);
    }
    let line = format!("{newline}{indent}{item}");
    match separator(text, span.end, close) {
        Some(comma) => {
            // Behind what is said about the last one on its line.
            let end = line_end(text, comma);
            let at = if end < close { end } else { comma + 1 };
            spliced(text, &[(at..at, &format!("{line},"))])
        }
        None => {
            let end = line_end(text, span.end);
            let at = if end < close { end } else { span.end };
            spliced(text, &[(span.end..span.end, ","), (at..at, &line)])
        }
    }
}

/// The text without one element of an array, and without what was made for it alone.
fn without(
    text: &str,
    place: Place,
    effect: Effect,
    array: &Array,
    index: usize,
) -> Result<String, SpliceError> {
    let close = array.span.end.saturating_sub(1);
    let Some(Item { span, .. }) = array.items.get(index) else {
        return Ok(text.to_owned());
    };
    let before = index
        .checked_sub(1)
        .and_then(|before| array.items.get(before));
    let after = array.items.get(index + 1);
    let comma = separator(text, span.end, close);
    let start = line_start(text, span.start);
    let end = line_end(text, comma.unwrap_or(span.end));
    let rest = text
        .get(comma.map_or(span.end, |comma| comma + 1)..end)
        .unwrap_or_default()
        .trim_start();
    let alone = start > array.span.start
        && text.get(start..span.start).is_some_and(is_blank)
        && end < close
        && (rest.is_empty() || rest.starts_with('#'));
    let no_comment = |range: Range<usize>| {
        text.get(range)
            .is_some_and(|between| !between.contains('#'))
    };
    if alone {
        let line = start..next_line(text, end);
        if comma.is_some() || before.is_none() {
            let rest = spliced(text, &[(line, "")]);
            return match comma {
                Some(_) if array.items.len() == 1 => tidied(rest, place, effect),
                _ => Ok(rest),
            };
        }
        // The one before it is the last then, without a comma as this was.
        let open = before.and_then(|before| separator(text, before.span.end, start));
        return Ok(match open {
            Some(open) => spliced(text, &[(open..open + 1, ""), (line, "")]),
            None => spliced(text, &[(line, "")]),
        });
    }
    let cut = match (before, after) {
        (_, Some(after)) if no_comment(span.end..after.span.start) => span.start..after.span.start,
        (Some(before), None) if no_comment(before.span.end..span.start) => {
            before.span.end..span.end
        }
        _ => span.start..comma.map_or(span.end, |comma| comma + 1),
    };
    Ok(spliced(text, &[(cut, "")]))
}

/// Takes away an array that is empty now, and a `[policy]` that was made for it.
fn tidied(text: String, place: Place, effect: Effect) -> Result<String, SpliceError> {
    let Some(array) = Layout::of(&text, place, effect)?.array else {
        return Ok(text);
    };
    let inside = text.get(array.span.start + 1..array.span.end.saturating_sub(1));
    let (start, end) = (
        line_start(&text, array.key),
        line_end(&text, array.span.end),
    );
    let own = |range: Range<usize>| {
        text.get(range)
            .is_some_and(|text| matches!(text.trim(), "" | "policy."))
    };
    if !inside.is_some_and(|inside| matches!(inside, "\n" | "\r\n"))
        || !own(start..array.key)
        || !own(array.span.end..end)
    {
        return Ok(text);
    }
    if place == Place::Top && is_last(&text, end) && text.get(..start).is_some_and(ends_blank) {
        return Ok(cut_block(&text, start));
    }
    let rest = spliced(&text, &[(lines(&text, start, end), "")]);
    if place == Place::Top {
        return Ok(rest);
    }
    let Table::Header(header) = Layout::of(&rest, place, effect)?.table else {
        return Ok(rest);
    };
    let head = line_start(&rest, header.start);
    let note = head
        .checked_sub(1)
        .map(|end| line_start(&rest, end))
        .filter(|note| {
            rest.get(*note..head)
                .is_some_and(|line| line.trim_end() == NOTE)
        });
    Ok(match note {
        Some(note) if is_last(&rest, header.end) => cut_block(&rest, note),
        _ => rest,
    })
}

/// Undoes [`appended`] for a block that starts at `start` and is all that follows.
fn cut_block(text: &str, start: usize) -> String {
    let mut cut = start;
    for _ in 0..if text.ends_with('\n') { 1 } else { 2 } {
        cut = before_newline(text, cut);
    }
    text.get(..cut).unwrap_or_default().to_owned()
}

/// The first thing behind an element, if that is a comma.
fn separator(text: &str, from: usize, until: usize) -> Option<usize> {
    let mut characters = text.get(from..until)?.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            ',' => return Some(from + at),
            '#' => {
                characters.find(|(_, character)| *character == '\n')?;
            }
            other if other.is_whitespace() => {}
            _ => return None,
        }
    }
    None
}

/// Replaces ranges, which come in order and do not overlap.
fn spliced(text: &str, changes: &[(Range<usize>, &str)]) -> String {
    let mut result = String::with_capacity(text.len());
    let mut from = 0;
    for (range, new) in changes {
        result.push_str(text.get(from..range.start).unwrap_or_default());
        result.push_str(new);
        from = range.end;
    }
    result.push_str(text.get(from..).unwrap_or_default());
    result
}

/// What ends the lines of a text.
fn newline(text: &str) -> &'static str {
    match text.find('\n') {
        Some(at) if text.get(..at).is_some_and(|line| line.ends_with('\r')) => "\r\n",
        _ => "\n",
    }
}

fn line_start(text: &str, at: usize) -> usize {
    text.get(..at)
        .and_then(|before| before.rfind('\n'))
        .map_or(0, |newline| newline + 1)
}

/// Where the line's content ends, before what ends the line.
fn line_end(text: &str, at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    match rest.find('\n') {
        None => text.len(),
        Some(end) => {
            let line = rest.get(..end).unwrap_or_default();
            at + line.strip_suffix('\r').unwrap_or(line).len()
        }
    }
}

/// The beginning of the line after the one whose content ends at `end`.
fn next_line(text: &str, end: usize) -> usize {
    let rest = text.get(end..).unwrap_or_default();
    rest.find('\n')
        .map_or(text.len(), |newline| end + newline + 1)
}

/// Whole lines from the one that starts at `start` to the one whose content ends at `end`;
/// with the line end before them where they are the last and have none.
fn lines(text: &str, start: usize, end: usize) -> Range<usize> {
    let next = next_line(text, end);
    if next == text.len() && !text.ends_with('\n') {
        before_newline(text, start)..next
    } else {
        start..next
    }
}

/// Steps back over one line end.
fn before_newline(text: &str, at: usize) -> usize {
    let before = text.get(..at).unwrap_or_default();
    let line = before.strip_suffix('\n').unwrap_or(before);
    line.strip_suffix('\r').unwrap_or(line).len()
}

fn is_blank(text: &str) -> bool {
    text.chars()
        .all(|character| matches!(character, ' ' | '\t'))
}

/// Whether nothing comes behind `at`.
fn is_last(text: &str, at: usize) -> bool {
    text.get(at..).is_some_and(|rest| rest.trim().is_empty())
}

/// Whether a text ends with an empty line.
fn ends_blank(text: &str) -> bool {
    let line = text.strip_suffix('\n').unwrap_or(text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    line.len() < text.len() && (line.is_empty() || line.ends_with('\n'))
}
