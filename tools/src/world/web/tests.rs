#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use reqwest::dns::Resolve;

use super::address::Addresses;
use super::client::Checked;
use super::host::{Host, HostPattern};
use super::target::Target;
use super::{Content, Document, Fetched, Permission, Resolver, Size, Web, WebError, WebSettings};

/// A server on the loopback interface that answers by the path that is asked for.
pub(crate) struct Site {
    pub(crate) port: u16,
    /// What was asked: the host and the path.
    pub(crate) seen: Arc<Mutex<Vec<String>>>,
    _task: JoinSet<()>,
}

/// What is sent for a path, whole or with the connection left open.
#[derive(Clone)]
pub(crate) enum Answer {
    Whole(Vec<u8>),
    /// Then nothing more, until the client leaves.
    Stalling(Vec<u8>),
    /// Again and again, until the client leaves.
    Endless(Vec<u8>, Vec<u8>),
}

/// A whole answer.
pub(crate) fn answer(head: &str, body: impl AsRef<[u8]>) -> Answer {
    let body = body.as_ref();
    let head = format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n", body.len());
    Answer::Whole([head.as_bytes(), body].concat())
}

pub(crate) fn html(body: &str) -> Answer {
    answer("200 OK\r\nContent-Type: text/html; charset=utf-8", body)
}

pub(crate) fn redirect(to: &str) -> Answer {
    answer(&format!("302 Found\r\nLocation: {to}"), "")
}

impl Site {
    /// `@` in a redirect's address stands for the port of the site.
    pub(crate) async fn start(answers: Vec<(&str, Answer)>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let answers: BTreeMap<String, Answer> = answers
            .into_iter()
            .map(|(path, answer)| (path.to_owned(), answer))
            .collect();
        let (answers, seen) = (Arc::new(answers), Arc::new(Mutex::new(Vec::new())));
        let log = Arc::clone(&seen);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut open = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                open.spawn(serve(stream, port, Arc::clone(&answers), Arc::clone(&log)));
            }
        });
        Self {
            port,
            seen,
            _task: task,
        }
    }

    pub(crate) fn url(&self, host: &str, path: &str) -> String {
        format!("http://{host}:{}{path}", self.port)
    }

    pub(crate) fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

async fn serve(
    mut stream: TcpStream,
    port: u16,
    answers: Arc<BTreeMap<String, Answer>>,
    log: Arc<Mutex<Vec<String>>>,
) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else {
            return;
        };
        head.push(byte);
    }
    let head = String::from_utf8(head).unwrap();
    let path = head.split(' ').nth(1).unwrap().to_owned();
    let host = head
        .lines()
        .find_map(|line| {
            line.to_lowercase()
                .strip_prefix("host: ")
                .map(str::to_owned)
        })
        .unwrap();
    assert!(
        head.to_lowercase().contains("user-agent: terret\r\n"),
        "{head}"
    );
    let host = host.split(':').next().unwrap().to_owned();
    log.lock().unwrap().push(format!("{host}{path}"));
    let not_found = answer("404 Not Found\r\nContent-Type: text/plain", "no such page");
    let placed = |bytes: &[u8]| {
        let text = bytes.to_vec();
        match String::from_utf8(text) {
            Ok(text) => text.replace("@@", &port.to_string()).into_bytes(),
            Err(error) => error.into_bytes(),
        }
    };
    match answers.get(&path).unwrap_or(&not_found) {
        Answer::Whole(bytes) => {
            let _ = stream.write_all(&placed(bytes)).await;
            let _ = stream.shutdown().await;
        }
        Answer::Stalling(bytes) => {
            let _ = stream.write_all(bytes).await;
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest).await;
        }
        Answer::Endless(head, piece) => {
            let mut sent = stream.write_all(head).await;
            while sent.is_ok() {
                sent = stream.write_all(piece).await;
            }
        }
    }
}

/// Names that lead where a test says: the next answer of a list, the last for ever.
#[derive(Debug, Default)]
pub(crate) struct Names {
    names: BTreeMap<String, Vec<Vec<IpAddr>>>,
    pub(crate) asked: AtomicUsize,
}

impl Names {
    pub(crate) fn new(names: &[(&str, &[&[&str]])]) -> Self {
        let names = names
            .iter()
            .map(|(name, answers)| {
                let parse =
                    |answer: &&[&str]| answer.iter().map(|ip| ip.parse().unwrap()).collect();
                ((*name).to_owned(), answers.iter().map(parse).collect())
            })
            .collect();
        Self {
            names,
            asked: AtomicUsize::new(0),
        }
    }
}

#[async_trait]
impl Resolver for Names {
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let at = self.asked.fetch_add(1, Ordering::SeqCst);
        let found = self.names.get(host);
        let answers = found.ok_or_else(|| io::Error::other("no such name"))?;
        Ok(answers
            .get(at)
            .or(answers.last())
            .cloned()
            .unwrap_or_default())
    }
}

/// Settings under which the names `a.example`, `b.example` and `c.example` are this machine.
pub(crate) fn local() -> WebSettings {
    let here: &[&[&str]] = &[&["127.0.0.1"]];
    let names = Names::new(&[
        ("a.example", here),
        ("b.example", here),
        ("c.example", here),
    ]);
    WebSettings {
        addresses: Addresses::Every,
        resolver: Arc::new(names),
        ..WebSettings::default()
    }
}

fn granted(_: &Host) -> Permission {
    Permission::Granted
}

async fn fetch(settings: WebSettings, url: &str) -> Result<Fetched, WebError> {
    Web::new(settings)
        .fetch(Target::parse(url).unwrap(), &granted)
        .await
}

async fn document(settings: WebSettings, url: &str) -> Document {
    match fetch(settings, url).await.unwrap() {
        Fetched::Document(document) => document,
        elsewhere => unreachable!("{elsewhere:?}"),
    }
}

fn text(document: &Document) -> &str {
    match &document.content {
        Content::Text(text) => &text.text,
        Content::Binary(kind) => unreachable!("{kind}"),
    }
}

fn patterns(texts: &[&str]) -> Vec<HostPattern> {
    texts
        .iter()
        .map(|text| HostPattern::parse(text).unwrap())
        .collect()
}

#[tokio::test]
async fn a_page_comes_as_markdown_and_text_as_it_is() {
    let site = Site::start(vec![
        (
            "/page",
            html("<title>T</title><p>Hi <a href='x'>there</a><script>no()</script>"),
        ),
        (
            "/data",
            answer(
                "200 OK\r\nContent-Type: application/json",
                "{\"a\": \"<b>\"}",
            ),
        ),
        ("/sniffed", answer("200 OK", "<!DOCTYPE html><p>seen")),
        (
            "/image",
            answer("200 OK\r\nContent-Type: image/png", b"\x89PNG\0\xff"),
        ),
        (
            "/bytes",
            answer("200 OK\r\nContent-Type: application/octet-stream", b"a\0b"),
        ),
        (
            "/latin",
            answer(
                "200 OK\r\nContent-Type: text/plain; charset=iso-8859-1",
                b"caf\xe9",
            ),
        ),
        (
            "/meta",
            answer(
                "200 OK\r\nContent-Type: text/html",
                b"<meta charset=\"windows-1251\"><p>\xcf\xf0",
            ),
        ),
        (
            "/mark",
            answer("200 OK\r\nContent-Type: text/plain", b"\xff\xfeh\0i\0"),
        ),
        (
            "/codes",
            answer(
                "200 OK\r\nContent-Type: text/plain",
                "a\x1b[31mred\x1b[0m\r\nb\x07\u{202e}c\rd",
            ),
        ),
        (
            "/packed",
            answer(
                "200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: gzip",
                b"\x1f\x8b",
            ),
        ),
    ])
    .await;
    let page = document(local(), &site.url("a.example", "/page")).await;
    let link = site.url("a.example", "/x");
    assert_eq!(text(&page), format!("# T\n\nHi [there]({link})"));
    assert_eq!((page.status, page.redirects), (200, 0));
    for (path, wanted) in [
        ("/data", "{\"a\": \"<b>\"}"),
        ("/sniffed", "seen"),
        ("/latin", "café"),
        ("/meta", "Пр"),
        ("/mark", "hi"),
        ("/codes", "ared\nb\\u{202e}c\nd"),
    ] {
        let found = document(local(), &site.url("a.example", path)).await;
        assert_eq!(text(&found), wanted, "{path}");
    }
    let image = document(local(), &site.url("a.example", "/image")).await;
    assert_eq!(image.content, Content::Binary("image/png".to_owned()));
    assert_eq!(image.size, Size::Exactly(6));
    let bytes = document(local(), &site.url("a.example", "/bytes")).await;
    assert!(matches!(bytes.content, Content::Binary(_)));
    let packed = fetch(local(), &site.url("a.example", "/packed"))
        .await
        .unwrap_err();
    assert!(matches!(packed, WebError::Packed { .. }), "{packed}");
    let missing = document(local(), &site.url("a.example", "/none")).await;
    assert_eq!((missing.status, text(&missing)), (404, "no such page"));
}

#[tokio::test]
async fn check_155_the_lists_hold_on_every_hop() {
    let site = Site::start(vec![
        ("/", html("here")),
        ("/to-b", redirect("http://B.example.:@@/")),
    ])
    .await;
    let with = |allow: Option<&[&str]>, deny: &[&str]| WebSettings {
        allow: allow.map(patterns),
        deny: patterns(deny),
        ..local()
    };
    let a = site.url("A.Example", "/");
    let none = fetch(with(Some(&[]), &[]), &a).await.unwrap_err();
    assert!(matches!(none, WebError::NotAllowed(_)), "{none}");
    let denied = fetch(with(Some(&["a.example"]), &["*.EXAMPLE"]), &a)
        .await
        .unwrap_err();
    assert!(matches!(denied, WebError::Denied(_)), "{denied}");
    assert!(
        site.seen().is_empty(),
        "nothing is asked of a host that is not listed"
    );
    document(with(Some(&["a.example"]), &[]), &a).await;
    let hop = site.url("a.example", "/to-b");
    let left = fetch(with(Some(&["a.example"]), &[]), &hop)
        .await
        .unwrap_err();
    assert!(matches!(left, WebError::NotAllowed(_)), "{left}");
    let denied = fetch(with(None, &["b.example"]), &hop).await.unwrap_err();
    assert!(matches!(denied, WebError::Denied(_)), "{denied}");
    assert!(!site.seen().contains(&"b.example/".to_owned()));
    // New settings hold from the next fetch on.
    let web = Web::new(with(None, &[]));
    web.reconfigure(with(Some(&[]), &[]));
    let target = Target::parse(&a).unwrap();
    assert!(web.fetch(target, &granted).await.is_err());
}

#[tokio::test]
async fn check_156_near_addresses_are_refused_first_and_on_every_hop() {
    let site = Site::start(vec![("/", html("secret"))]).await;
    for host in [
        "127.0.0.1",
        "2130706433",
        "0x7f.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "localhost",
        "0.0.0.0",
        "169.254.169.254",
    ] {
        for addresses in [Addresses::Public, Addresses::Private] {
            let settings = WebSettings {
                addresses,
                ..WebSettings::default()
            };
            let refused = fetch(settings, &site.url(host, "/")).await.unwrap_err();
            assert!(
                matches!(refused, WebError::Address { .. }),
                "{host}: {refused}"
            );
        }
    }
    // Each hop is looked up and checked for itself: the first name may be anywhere.
    for to in [
        "http://127.0.0.1:@@/",
        "http://[::1]:@@/",
        "http://near.example:@@/",
        "//2130706433:@@/",
    ] {
        let hop = Site::start(vec![(
            "/",
            redirect(&to.replace("@@", &site.port.to_string())),
        )])
        .await;
        let first: &[&[&str]] = &[&["127.0.0.1"]];
        let web = Web::new(WebSettings {
            resolver: Arc::new(Names::new(&[
                ("first.example", first),
                ("near.example", first),
            ])),
            addresses: Addresses::Public,
            ..WebSettings::default()
        });
        // The first hop is let through by hand: loopback is all that a test has.
        let target = Target::parse(&hop.url("first.example", "/")).unwrap();
        let current = web.current();
        let open = Web::new(WebSettings {
            addresses: Addresses::Every,
            ..current.settings.clone()
        });
        let response = open.current().request(&target).await.unwrap();
        let next = target.join(&super::location(&response).unwrap()).unwrap();
        let refused = match current.check(&next) {
            Err(error) => error,
            Ok(()) => current.request(&next).await.unwrap_err(),
        };
        assert!(
            matches!(refused, WebError::Address { .. }),
            "{to}: {refused}"
        );
    }
    assert!(
        site.seen().is_empty(),
        "nothing near was asked: {:?}",
        site.seen()
    );
}

#[tokio::test]
async fn check_156_the_sixth_redirect_is_refused() {
    let mut answers: Vec<(String, Answer)> = (0..6)
        .map(|number| (format!("/{number}"), redirect(&(number + 1).to_string())))
        .collect();
    answers.push(("/6".to_owned(), html("the end")));
    let answers = answers
        .iter()
        .map(|(path, answer)| (path.as_str(), answer.clone()));
    let site = Site::start(answers.collect()).await;
    let five = document(local(), &site.url("a.example", "/1")).await;
    assert_eq!((text(&five), five.redirects), ("the end", 5));
    assert_eq!(five.target.as_str(), site.url("a.example", "/6"));
    let six = fetch(local(), &site.url("a.example", "/0"))
        .await
        .unwrap_err();
    assert!(matches!(six, WebError::TooManyRedirects { .. }), "{six}");
}

#[tokio::test]
async fn a_redirect_is_followed_only_where_it_is_permitted() {
    let site = Site::start(vec![
        ("/", html("here")),
        ("/b", redirect("http://b.example:@@/")),
        ("/creds", redirect("http://user:pw@a.example:@@/")),
        ("/file", redirect("file:///etc/passwd")),
        (
            "/status",
            answer(
                "301 Moved Permanently\r\nContent-Type: text/plain",
                "no place",
            ),
        ),
        ("/back", redirect("http://b.example:@@/again")),
        ("/again", redirect("http://a.example:@@/")),
    ])
    .await;
    let asking = |host: &Host| match host.as_str() {
        "b.example" => Permission::Asked,
        _ => Permission::Denied("a rule".to_owned()),
    };
    let web = Web::new(local());
    let target = |path| Target::parse(&site.url("a.example", path)).unwrap();
    let left = web.fetch(target("/b"), &asking).await.unwrap();
    let Fetched::Elsewhere { to, status, .. } = left else {
        unreachable!("{left:?}");
    };
    assert_eq!(
        (to.as_str(), status),
        (site.url("b.example", "/").as_str(), 302)
    );
    assert_eq!(site.seen(), ["a.example/b"]);
    let denied = |_: &Host| Permission::Denied("a rule".to_owned());
    let refused = web.fetch(target("/b"), &denied).await.unwrap_err();
    assert!(matches!(refused, WebError::Forbidden { .. }), "{refused}");
    for path in ["/creds", "/file"] {
        let refused = web.fetch(target(path), &granted).await.unwrap_err();
        assert!(matches!(refused, WebError::Redirect(_)), "{refused}");
        assert!(!refused.to_string().contains("pw") && !refused.to_string().contains("passwd"));
    }
    let status = document(local(), &site.url("a.example", "/status")).await;
    assert_eq!((status.status, text(&status)), (301, "no place"));
    // The host of the call stays permitted.
    let round = web.fetch(target("/back"), &|host: &Host| {
        assert_eq!(host.as_str(), "b.example");
        Permission::Granted
    });
    assert!(matches!(round.await.unwrap(), Fetched::Document(_)));
}

#[tokio::test]
async fn check_160_the_address_that_was_checked_is_the_one_that_is_used() {
    let site = Site::start(vec![("/", html("secret"))]).await;
    // One look-up a connection, and no connection is used twice: the answer that was checked
    // is the one that is connected to, and the next is checked as well.
    let answers: &[&[&str]] = &[&["127.0.0.1"], &["127.0.0.2"]];
    let rebinding = Arc::new(Names::new(&[("evil.example", answers)]));
    let web = Web::new(WebSettings {
        resolver: rebinding.clone(),
        ..local()
    });
    let target = Target::parse(&site.url("evil.example", "/")).unwrap();
    assert!(web.fetch(target.clone(), &granted).await.is_ok());
    assert_eq!(rebinding.asked.load(Ordering::SeqCst), 1);
    // Nothing listens there.
    let other = web.fetch(target, &granted).await.unwrap_err();
    assert!(matches!(other, WebError::Connect { .. }), "{other}");
    assert_eq!(rebinding.asked.load(Ordering::SeqCst), 2);
    // One bad answer among good ones, and a name without any.
    let mixed: &[&[&str]] = &[&["1.1.1.1", "127.0.0.1"]];
    let settings = WebSettings {
        resolver: Arc::new(Names::new(&[
            ("mixed.example", mixed),
            ("none.example", &[&[]]),
        ])),
        ..WebSettings::default()
    };
    let url = site.url("mixed.example", "/");
    let refused = fetch(settings.clone(), &url).await.unwrap_err();
    assert!(matches!(refused, WebError::Address { .. }), "{refused}");
    let none = fetch(settings, &site.url("none.example", "/"))
        .await
        .unwrap_err();
    assert!(matches!(none, WebError::Connect { .. }), "{none}");
    assert_eq!(site.seen(), ["evil.example/"]);
}

/// What the connector would be handed; nothing is connected to.
async fn handed(addresses: Addresses, answer: &str) -> Option<Vec<String>> {
    let checked = Checked {
        resolver: Arc::new(Names::new(&[("name.example", &[&[answer]])])),
        addresses,
    };
    let found = checked
        .resolve("name.example".parse().unwrap())
        .await
        .ok()?;
    Some(found.map(|address| address.ip().to_string()).collect())
}

#[tokio::test]
async fn check_160_private_ranges_open_by_setting_alone() {
    for address in ["10.0.0.1", "192.168.1.1", "fc00::1", "100.64.0.1"] {
        assert_eq!(handed(Addresses::Public, address).await, None);
        let opened = handed(Addresses::Private, address).await;
        assert_eq!(opened, Some(vec![address.to_owned()]));
    }
    for addresses in [Addresses::Public, Addresses::Private] {
        assert_eq!(handed(addresses, "127.0.0.1").await, None);
        assert_eq!(
            handed(addresses, "1.1.1.1").await,
            Some(vec!["1.1.1.1".to_owned()])
        );
    }
}

#[tokio::test]
async fn check_160_a_slow_or_endless_body_ends_at_the_deadline_or_the_bound() {
    let head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nbeginning".to_vec();
    let site = Site::start(vec![
        ("/head", Answer::Stalling(Vec::new())),
        ("/body", Answer::Stalling(head.clone())),
        ("/endless", Answer::Endless(head, vec![b'x'; 65_536])),
    ])
    .await;
    let deadline = Duration::from_millis(300);
    let slow = WebSettings {
        deadline,
        ..local()
    };
    for path in ["/head", "/body"] {
        let begun = Instant::now();
        let error = fetch(slow.clone(), &site.url("a.example", path))
            .await
            .unwrap_err();
        assert_eq!(error, WebError::Deadline(deadline), "{path}");
        assert!(begun.elapsed() >= deadline);
    }
    let endless = document(local(), &site.url("a.example", "/endless")).await;
    let Content::Text(text) = &endless.content else {
        unreachable!("{endless:?}");
    };
    assert!(!text.whole && text.read == super::body::MOST && text.text.len() == 100_000);
    assert!(matches!(endless.size, Size::AtLeast(_)));
}

#[tokio::test]
async fn a_cut_text_is_counted_and_ends_on_a_character() {
    let body = "é".repeat(60_000);
    let broken = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 100\r\n\r\nhalf";
    let site = Site::start(vec![
        (
            "/long",
            answer("200 OK\r\nContent-Type: text/plain; charset=utf-8", &body),
        ),
        ("/broken", Answer::Whole(broken.to_vec())),
    ])
    .await;
    let settings = WebSettings {
        max_bytes: 99_999,
        ..local()
    };
    let long = document(settings, &site.url("a.example", "/long")).await;
    let Content::Text(text) = &long.content else {
        unreachable!("{long:?}");
    };
    assert_eq!(
        (text.text.len(), text.left_out, text.whole),
        (99_998, 20_002, true)
    );
    assert_eq!(long.size, Size::Exactly(120_000));
    let broken = document(local(), &site.url("a.example", "/broken")).await;
    assert!(broken.broken.is_some() && broken.size == Size::Exactly(100));
}
