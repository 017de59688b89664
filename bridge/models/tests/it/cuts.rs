//! Answers that break off.

use std::time::Duration;

use terret_models::{HttpOptions, Kind, ModelError, StreamEvent};

use crate::server::{Server, Step};
use crate::{BOTH, ask, good, options, provider, provider_with, retries_of};

const CUT_CALLS: [(Kind, &str); 2] = [
    (
        Kind::Anthropic,
        include_str!("../fixtures/anthropic_cut_in_arguments.sse"),
    ),
    (
        Kind::OpenAiChat,
        include_str!("../fixtures/chat_cut_in_arguments.sse"),
    ),
];

fn has_call(events: &[StreamEvent]) -> bool {
    events
        .iter()
        .any(|event| matches!(event, StreamEvent::ToolCallEnd(_) | StreamEvent::Stop(_)))
}

#[tokio::test]
async fn check_046_r054_a_break_inside_arguments_is_cut_and_yields_no_call() {
    for (kind, body) in CUT_CALLS {
        for last in [Step::Reset, Step::End] {
            let script = vec![
                Step::Events,
                Step::Body(body.to_owned(), usize::MAX),
                last.clone(),
            ];
            let next = crate::server::events(good(kind));
            let server = Server::start(vec![script, next]).await;
            let provider = provider(kind, &server.url);
            let (events, error) = ask(provider.as_ref()).await;
            assert!(matches!(error, Some(ModelError::Cut { .. })), "{error:?}");
            assert!(!has_call(&events));
            // What had begun is not tried again, and the provider is as good as before.
            assert_eq!((server.seen().len(), retries_of(&events)), (1, 0));
            let (_, error) = ask(provider.as_ref()).await;
            assert!(error.is_none(), "{error:?}");
        }
    }
}

#[tokio::test]
async fn a_break_at_any_byte_is_an_error_or_the_whole_answer() {
    for kind in BOTH {
        let body = good(kind);
        let provider_of = |server: &Server| provider(kind, &server.url);
        let whole = ask(provider_of(&Server::saying(body).await).as_ref())
            .await
            .0;
        for at in (1..body.len()).filter(|at| at % 97 == 0 && body.is_char_boundary(*at)) {
            let server = Server::start(vec![vec![
                Step::Events,
                Step::Body(body[..at].to_owned(), usize::MAX),
                Step::End,
            ]])
            .await;
            let (events, error) = ask(provider_of(&server).as_ref()).await;
            match error {
                Some(ModelError::Cut { .. }) => assert!(!has_call(&events)),
                Some(error) => panic!("{error:?}"),
                // Behind the finish reason only figures can be missing.
                None => assert_eq!(events.last(), whole.last()),
            }
        }
    }
}

#[tokio::test]
async fn silence_in_the_middle_is_cut_after_the_idle_time() {
    for (kind, body) in CUT_CALLS {
        let server = Server::start(vec![vec![
            Step::Events,
            Step::Body(body.to_owned(), usize::MAX),
            Step::Stall,
        ]])
        .await;
        let options = HttpOptions {
            idle: Duration::from_millis(200),
            ..options()
        };
        let (events, error) = ask(provider_with(kind, &server.url, options).as_ref()).await;
        let Some(ModelError::Cut { message, .. }) = error else {
            panic!("{error:?}");
        };
        assert!(message.contains("nothing came for 0.2 s"), "{message}");
        assert!(!has_call(&events));
        assert_eq!(server.seen().len(), 1);
        // The connection was given up.
        server.left.notified().await;
    }
}

#[tokio::test]
async fn pieces_that_keep_coming_are_not_idle() {
    let body = good(Kind::OpenAiChat);
    let mut script = vec![Step::Events];
    for block in body.split_inclusive("\n\n") {
        script.push(Step::Body(block.to_owned(), usize::MAX));
        script.push(Step::Wait(Duration::from_millis(150)));
    }
    script.push(Step::End);
    let server = Server::start(vec![script]).await;
    let options = HttpOptions {
        idle: Duration::from_millis(700),
        ..options()
    };
    let provider = provider_with(Kind::OpenAiChat, &server.url, options);
    let started = std::time::Instant::now();
    let (_, error) = ask(provider.as_ref()).await;
    assert!(error.is_none(), "{error:?}");
    assert!(started.elapsed() > Duration::from_millis(700));
}

#[tokio::test]
async fn an_answer_that_does_not_begin_is_given_up_and_not_asked_for_twice() {
    for script in [vec![Step::Stall], vec![Step::Events, Step::Stall]] {
        let server = Server::start(vec![script]).await;
        let options = HttpOptions {
            answer: Duration::from_millis(200),
            ..options()
        };
        let (_, error) = ask(provider_with(Kind::OpenAiChat, &server.url, options).as_ref()).await;
        assert!(error.is_some());
        assert_eq!(server.seen().len(), 1);
    }
}

#[tokio::test]
async fn an_event_without_an_end_is_bounded() {
    let line = format!("data: {}", "x".repeat(1024 * 1024));
    let mut script = vec![Step::Events];
    script.extend((0..20).map(|_| Step::Body(line.clone(), usize::MAX)));
    script.push(Step::Stall);
    let server = Server::start(vec![script]).await;
    let (_, error) = ask(provider(Kind::Anthropic, &server.url).as_ref()).await;
    assert!(
        matches!(error, Some(ModelError::Protocol { .. })),
        "{error:?}"
    );
}
