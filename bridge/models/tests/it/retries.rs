//! Trying again over a real socket.

use std::time::{Duration, Instant};

use terret_models::{Kind, ModelError, StreamEvent};

use crate::server::{Server, Step, events, json};
use crate::{BOTH, ask, good, options, provider, provider_with, retries_of, text_of};

const OVERLOADED: &str =
    r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;

#[tokio::test]
async fn check_164_what_may_pass_is_tried_four_times() {
    for kind in BOTH {
        for status in [429, 500, 502, 503, 529] {
            let bad = json(status, OVERLOADED);
            let server =
                Server::start(vec![bad.clone(), bad.clone(), bad, events(good(kind))]).await;
            let (events, error) = ask(provider(kind, &server.url).as_ref()).await;
            assert!(error.is_none(), "{error:?}");
            assert_eq!((server.seen().len(), retries_of(&events)), (4, 3));
            let server = Server::start(vec![json(status, OVERLOADED)]).await;
            let (events, error) = ask(provider(kind, &server.url).as_ref()).await;
            assert_eq!((server.seen().len(), retries_of(&events)), (4, 3));
            let text = error.unwrap().to_string();
            assert!(
                text.contains(&status.to_string())
                    && text.contains("Overloaded")
                    && text.contains("4 times"),
                "{text}"
            );
        }
    }
}

#[tokio::test]
async fn check_164_a_4xx_is_not_tried_again() {
    for kind in BOTH {
        for status in [400, 401, 403, 404, 408, 413, 422] {
            let server = Server::start(vec![json(status, r#"{"error":{"message":"no"}}"#)]).await;
            let (events, error) = ask(provider(kind, &server.url).as_ref()).await;
            assert!(error.is_some());
            assert_eq!((server.seen().len(), events.len()), (1, 0), "{status}");
        }
    }
    let spent = r#"{"error":{"code":"insufficient_quota","message":"You exceeded your quota"}}"#;
    let server = Server::start(vec![json(429, spent)]).await;
    let (_, error) = ask(provider(Kind::OpenAiChat, &server.url).as_ref()).await;
    assert!(error.unwrap().to_string().contains("add credit"));
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn check_164_an_error_inside_the_stream_is_not_tried_again() {
    for (kind, body) in [
        (
            Kind::Anthropic,
            include_str!("../fixtures/anthropic_overloaded_midway.sse"),
        ),
        (
            Kind::OpenAiChat,
            include_str!("../fixtures/chat_error_midway.sse"),
        ),
    ] {
        let server = Server::saying(body).await;
        let (events, error) = ask(provider(kind, &server.url).as_ref()).await;
        assert!(
            matches!(
                error,
                Some(ModelError::Status {
                    status: 529 | 502,
                    ..
                })
            ),
            "{error:?}"
        );
        assert_eq!(text_of(&events), "Half");
        assert_eq!(server.seen().len(), 1);
    }
}

#[tokio::test]
async fn check_164_a_break_before_the_first_byte_is_tried_again() {
    for script in [vec![Step::Reset], vec![Step::Events, Step::Reset]] {
        let server = Server::start(vec![script, events(good(Kind::OpenAiChat))]).await;
        let (events, error) = ask(provider(Kind::OpenAiChat, &server.url).as_ref()).await;
        assert!(error.is_none(), "{error:?}");
        assert_eq!((server.seen().len(), retries_of(&events)), (2, 1));
    }
}

#[tokio::test]
async fn the_wait_that_a_server_asks_for_is_kept() {
    let wait = |headers| vec![Step::Whole(429, headers, "{}".to_owned())];
    for headers in [
        vec![("retry-after", "1")],
        vec![("retry-after-ms", "1000")],
        vec![
            ("date", "Wed, 28 Feb 2024 23:59:59 GMT"),
            ("retry-after", "Thu, 29 Feb 2024 00:00:00 GMT"),
        ],
    ] {
        let server = Server::start(vec![wait(headers), events(good(Kind::Anthropic))]).await;
        let (events, error) = ask(provider(Kind::Anthropic, &server.url).as_ref()).await;
        assert!(error.is_none(), "{error:?}");
        let Some(StreamEvent::Retry {
            attempt,
            delay,
            reason,
        }) = events.first()
        else {
            panic!("{events:?}");
        };
        assert_eq!((*attempt, delay.as_millis().div_ceil(100)), (2, 10));
        assert!(reason.contains("429"), "{reason}");
        let seen = server.seen();
        assert!(seen[1].at - seen[0].at >= Duration::from_millis(990));
    }
    let server = Server::start(vec![wait(vec![("retry-after", "7200")])]).await;
    let (_, error) = ask(provider(Kind::Anthropic, &server.url).as_ref()).await;
    assert!(error.unwrap().to_string().contains("7200 s"));
    let server = Server::start(vec![wait(vec![("x-should-retry", "false")])]).await;
    ask(provider(Kind::Anthropic, &server.url).as_ref()).await;
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn r130_children_of_an_overloaded_provider_spread_and_come_through() {
    let bad = json(529, OVERLOADED);
    let mut scripts = vec![bad; 5];
    scripts.push(events(good(Kind::Anthropic)));
    let server = Server::start(scripts).await;
    let mut options = options();
    options.retry.spacing = Duration::from_millis(60);
    let provider = provider_with(Kind::Anthropic, &server.url, options);
    let children = (0..3).map(|_| ask(provider.as_ref()));
    for (_, error) in futures::future::join_all(children).await {
        assert!(error.is_none(), "{error:?}");
    }
    let seen = server.seen();
    let mut again: Vec<Instant> = seen.iter().skip(3).map(|seen| seen.at).collect();
    again.sort();
    for pair in again.windows(2) {
        assert!(pair[1] - pair[0] >= Duration::from_millis(20), "{again:?}");
    }
}

#[tokio::test]
async fn dropping_the_stream_during_a_wait_ends_it() {
    use futures::StreamExt;
    let server = Server::start(vec![json(529, OVERLOADED)]).await;
    let provider = provider(Kind::Anthropic, &server.url);
    let mut stream = provider.stream(crate::request("hello"));
    assert!(matches!(
        stream.next().await,
        Some(Ok(StreamEvent::Retry { .. }))
    ));
    drop(stream);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(server.seen().len(), 1);
}
