//! What is known of the elements of a page by their names and attributes.

use html5ever::tokenizer::states::RawKind;
use html5ever::tokenizer::{Tag, TagKind, TokenSinkResult};

/// Elements whose content is no markup.
pub(super) fn raw(tag: &Tag) -> TokenSinkResult<()> {
    if tag.kind == TagKind::EndTag {
        return TokenSinkResult::Continue;
    }
    match &*tag.name {
        "title" | "textarea" => TokenSinkResult::RawData(RawKind::Rcdata),
        "script" => TokenSinkResult::RawData(RawKind::ScriptData),
        "style" | "xmp" | "iframe" | "noembed" | "noframes" | "noscript" => {
            TokenSinkResult::RawData(RawKind::Rawtext)
        }
        "plaintext" => TokenSinkResult::Plaintext,
        _ => TokenSinkResult::Continue,
    }
}

/// Elements without content and end.
pub(super) fn is_void(name: &str) -> bool {
    matches!(
        name,
        "area"
            | "base"
            | "br"
            | "col"
            | "embed"
            | "hr"
            | "img"
            | "input"
            | "link"
            | "meta"
            | "param"
            | "source"
            | "track"
            | "wbr"
    )
}

/// Elements of which a reader of the text sees nothing.
pub(super) fn is_unseen(name: &str) -> bool {
    matches!(
        name,
        "script"
            | "style"
            | "noscript"
            | "template"
            | "iframe"
            | "svg"
            | "math"
            | "object"
            | "canvas"
            | "audio"
            | "video"
            | "noembed"
            | "noframes"
            | "select"
            | "datalist"
            | "textarea"
            | "frameset"
            | "applet"
    )
}

/// Elements that begin a line of their own, and so end a paragraph.
pub(super) fn is_block(name: &str) -> bool {
    matches!(
        name,
        "p" | "div"
            | "section"
            | "article"
            | "main"
            | "header"
            | "footer"
            | "nav"
            | "aside"
            | "figure"
            | "figcaption"
            | "form"
            | "fieldset"
            | "address"
            | "details"
            | "summary"
            | "dl"
            | "dt"
            | "dd"
            | "center"
            | "hgroup"
            | "search"
            | "dialog"
            | "menu"
            | "h1"
            | "h2"
            | "h3"
            | "h4"
            | "h5"
            | "h6"
            | "ul"
            | "ol"
            | "li"
            | "pre"
            | "listing"
            | "xmp"
            | "blockquote"
            | "table"
            | "hr"
            | "caption"
            | "plaintext"
            | "legend"
            | "body"
    )
}

/// Whether an element is hidden by its own attributes.
pub(super) fn is_hidden(tag: &Tag) -> bool {
    if tag
        .attrs
        .iter()
        .any(|attribute| &*attribute.name.local == "hidden")
    {
        return true;
    }
    if &*tag.name == "dialog" && attribute(tag, "open").is_none() {
        return true;
    }
    attribute(tag, "style").is_some_and(|style| {
        let style: String = style
            .chars()
            .filter(|character| !character.is_whitespace())
            .take(4096)
            .flat_map(char::to_lowercase)
            .collect();
        ["display:none", "visibility:hidden"]
            .iter()
            .any(|hidden| style.contains(hidden))
    })
}

pub(super) fn attribute<'a>(tag: &'a Tag, name: &str) -> Option<&'a str> {
    tag.attrs
        .iter()
        .find(|attribute| &*attribute.name.local == name)
        .map(|attribute| &*attribute.value)
}

/// The language that a class names: `language-rust`, `lang-rust`.
pub(super) fn language(tag: &Tag) -> Option<String> {
    let class = attribute(tag, "class")?;
    let name = class.split_whitespace().take(20).find_map(|class| {
        class
            .strip_prefix("language-")
            .or_else(|| class.strip_prefix("lang-"))
    })?;
    let fits = |character: char| character.is_ascii_alphanumeric() || "+-#._".contains(character);
    (name.len() <= 30 && name.chars().all(fits)).then(|| name.to_owned())
}
