#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use proptest::prelude::*;
use url::Url;

use super::{MOST, Page, markdown};

fn base() -> Url {
    Url::parse("https://example.com/docs/page").unwrap()
}

fn text(html: &str) -> String {
    let page = markdown(html, &base());
    assert!(!page.cut);
    page.text
}

#[test]
fn a_page_reads_as_markdown() {
    let html = r##"<!doctype html><html><head><title>The  title &amp; more</title>
        <style>body { color: red }</style><script>var a = "<p>leak</p>";</script></head>
        <body><nav><a href="/">Home</a> | <a href="#x">Here</a></nav>
        <h1>Heading</h1><p>Some <b>bold</b>, <em>soft</em> and <code>a  `b`</code> text
        with a <a href="other?x=1#y">link</a>&nbsp;&lt;tag&gt;.<p>Second<br>line
        <ul><li>one<li>two<ul><li>inner</ul><li><p>three</p><p>more</p></ul>
        <ol start=3><li>third</li><li>fourth</li></ol>
        <blockquote><p>said</p><p>again</p></blockquote>
        <pre class="language-rust"><code>fn main() {
    println!("&lt;hi&gt;");
}
</code></pre><hr>
        <table><caption>Numbers</caption><thead><tr><th>a</th><th>b|c</th></tr></thead>
        <tbody><tr><td>1</td><td>two<br>lines</td></tr><tr><td></td><td>x</td></tr></table>
        <img src="pic.png" alt="A picture"><img src="count.gif"></body></html>"##;
    let wanted = "# The title & more

[Home](https://example.com/) | Here

# Heading

Some **bold**, *soft* and `` a `b` `` text with a [link](https://example.com/docs/other?x=1#y)\u{a0}<tag>.

Second
line

- one
- two
  - inner
- three

  more

3. third
4. fourth

> said
>
> again

```rust
fn main() {
    println!(\"<hi>\");
}
```

* * *

Numbers

| a | b\\|c |
| --- | --- |
| 1 | two lines |
|  | x |

![A picture](https://example.com/docs/pic.png)";
    assert_eq!(text(html), wanted);
}

#[test]
fn nothing_of_scripts_styles_and_hidden_parts_is_shown() {
    for html in [
        "a<script>LEAK</script>b",
        "a<SCRIPT type=x>'</div>'LEAK</script >b",
        "a<style>LEAK</style>b",
        "a<noscript><p>LEAK</p></noscript>b",
        "a<template><b>LEAK</b></template>b",
        "a<template></div><b>LEAK</b></template>b",
        "a<iframe src=x>LEAK</iframe>b",
        "a<svg><title>LEAK</title><text>LEAK</text></svg>b",
        "a<!-- LEAK -->b",
        "a<!-- > LEAK --><?php LEAK ?>b",
        "a<div hidden>LEAK<div>LEAK</div>LEAK</div>b",
        "a<p style='Display : NONE'>LEAK</p>b",
        "a<span style='visibility:hidden'>LEAK</span>b",
        "a<p hidden>LEAK<p>b",
        "<ul><li>a<li hidden>LEAK<li>b</ul>",
        "<div>a<p hidden>LEAK</div>b",
        "a<textarea>LEAK</textarea>b",
        "a<select><option>LEAK</select>b",
        "a<object>LEAK</object>b",
        "a<dialog>LEAK</dialog>b",
        "a<input type=hidden value=LEAK>b",
        "<title>a</title>b<svg/><a href='javascript:LEAK'>c</a>",
        "a<img alt=x src='data:image/png;LEAK'>b",
    ] {
        let shown = text(html);
        assert!(!shown.contains("LEAK"), "{html}: {shown}");
        assert!(
            shown.contains('a') && shown.contains('b'),
            "{html}: {shown}"
        );
    }
}

#[test]
fn a_block_within_a_link_and_text_within_words_stay_readable() {
    assert_eq!(
        text("<a href=/x><h3>Title</h3></a>un<b>believ</b>able &copy;2"),
        "### [Title](https://example.com/x)\n\nun**believ**able ©2"
    );
    assert_eq!(text("<p><b> </b><a href=/x></a><i></i>x</p>"), "x");
    assert_eq!(
        text("<base href='//cdn.example/a/'><a href=b>c</a>"),
        "[c](https://cdn.example/a/b)"
    );
    assert_eq!(
        text("<pre><div>one</div><div>two</div></pre>"),
        "```\none\ntwo\n```"
    );
    assert_eq!(text("<pre>```\nx</pre>"), "````\n```\nx\n````");
}

#[test]
fn a_table_that_lays_out_a_page_is_blocks() {
    assert_eq!(text("<table><tr><td>one<tr><td>two</table>"), "one\n\ntwo");
    assert_eq!(
        text("<table><tr><td><p>a<p>b</td><td>c</td></tr></table>d"),
        "a\n\nb\n\nc\n\nd"
    );
    assert_eq!(
        text("<table><tr><td>x<table><tr><td>in<td>ner</table><td>y</table>"),
        "| x in ner | y |\n| --- | --- |"
    );
}

#[test]
fn a_title_is_not_said_twice() {
    assert_eq!(text("<title>Same</title><h1>Same</h1><p>x"), "# Same\n\nx");
    assert_eq!(text("<title>Alone</title>"), "# Alone");
    assert_eq!(text(""), "");
}

/// Pages that take the square of their length, or all of a stack, where a tree is built.
/// The bound is generous for an unoptimised build on a busy machine.
#[test]
fn a_hostile_page_takes_no_more_than_its_length() {
    let many = 100_000;
    let attributes: String = (0..many).map(|number| format!(" a{number}")).collect();
    let formats: String = (0..10_000)
        .map(|number| format!("<b x={number}>"))
        .collect();
    let columns = "<td>x".repeat(20_000);
    let rows = "<tr><td>y".repeat(20_000);
    for (name, html) in [
        (
            "divs",
            format!("{}deep{}", "<div>".repeat(many), "</div>".repeat(many)),
        ),
        (
            "hidden",
            format!(
                "<p hidden>{}{}deep",
                "<div>".repeat(many),
                "</x>".repeat(many)
            ),
        ),
        (
            "template",
            format!(
                "<template>{}{}</template>deep",
                "<div>".repeat(many),
                "</b>".repeat(many)
            ),
        ),
        ("lists", format!("{}deep", "<ul><li>".repeat(many))),
        (
            "quotes",
            format!("{}deep", "<blockquote><p>x<br>".repeat(many)),
        ),
        ("tables", format!("{}deep", "<table><tr><td>".repeat(many))),
        ("formats", format!("{formats}{}deep", "<p>x".repeat(many))),
        ("links", format!("{}deep", "<a href=x>".repeat(many))),
        ("ends", format!("{}deep", "</div></p></b>".repeat(many))),
        ("attributes", format!("<div{attributes}>deep</div>")),
        ("quoted attributes", format!("<div \"{attributes} deep")),
        (
            "wide table",
            format!("<table><tr>{columns}{rows}</table>deep"),
        ),
        (
            "padded table",
            format!(
                "<table><tr><td>{}<td>x{rows}</table>deep",
                "x".repeat(100_000)
            ),
        ),
        ("lone brackets", "<".repeat(many * 4) + " deep"),
        ("entities", "&amp;&notanentity;&".repeat(many) + "deep"),
        ("comment", format!("deep<!--{}", "-".repeat(many * 4))),
        ("openers", format!("{}deep", "<b><i><h1>".repeat(many))),
    ] {
        let begun = Instant::now();
        let Page { text, cut } = markdown(&html, &base());
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(20), "{name} took {took:?}");
        assert!(
            text.len() <= MOST + 1000,
            "{name} made {} bytes",
            text.len()
        );
        assert!(
            cut || text.contains("deep") || name == "attributes",
            "{name} lost its text"
        );
    }
}

#[test]
fn a_page_beyond_the_bound_is_said_to_be_cut() {
    let page = markdown(&"<p>word".repeat(MOST / 3), &base());
    assert!(page.cut && page.text.len() <= MOST);
    assert!(page.text.ends_with("word") || page.text.ends_with('\n'));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_soup_of_tags_gives_bounded_text_without_what_is_hidden(
        parts in prop::collection::vec(prop::sample::select(vec![
            "<div>", "</div>", "<p>", "</p>", "<ul>", "<li>", "</ul>", "<ol>", "<table>", "<tr>",
            "<td>", "</td>", "</tr>", "</table>", "<b>", "</b>", "<a href=x>", "</a>", "<pre>",
            "</pre>", "<code>", "</code>", "<h1>", "</h1>", "<blockquote>", "</blockquote>", "text ",
            "a|b", "\n", "<br>", "<hr>", "<img alt=i src=j>", "<script>HIDDEN</script>",
            "<style>HIDDEN</style>", "<div hidden>HIDDEN</div>", "<!--HIDDEN-->", "&lt;", "<title>t",
            "</title>", "<th>", "<caption>", "`", "<dl><dt>", "<dd>", "</dl>",
        ]), 0..60),
    ) {
        let html = parts.concat();
        let page = markdown(&html, &base());
        // Title text is no markup, so what stands in an open one is shown as it is.
        if !html.contains("<title>") {
            prop_assert!(!page.text.contains("HIDDEN"), "{}\n{}", html, page.text);
        }
        let words = html.matches("text ").count();
        prop_assert!(page.text.matches("text").count() >= words.min(1) * usize::from(!html.contains("<title>")));
        prop_assert!(page.text.len() <= 100 * html.len() + 100);
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let html = String::from_utf8_lossy(&bytes);
        let _page = markdown(&html, &base());
    }
}
