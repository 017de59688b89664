//! Answers that end well, and what was sent to get them.

use std::time::Duration;

use terret_models::{Kind, StopReason, StreamEvent};

use crate::server::{Server, Step, events, json};
use crate::{BOTH, CHAT, CLAUDE, KEY, ask, good, provider, text_of};

#[tokio::test]
async fn the_request_has_its_address_key_and_headers() {
    let server = Server::saying(CLAUDE).await;
    ask(provider(Kind::Anthropic, &server.url).as_ref()).await;
    ask(provider(Kind::Anthropic, &format!("{}/v1/", server.url)).as_ref()).await;
    for seen in server.seen().iter() {
        let head = seen.head.to_lowercase();
        assert!(head.starts_with("post /v1/messages "), "{head}");
        assert!(head.contains(&format!("x-api-key: {KEY}\r\n")));
        assert!(head.contains("anthropic-version: 2023-06-01\r\n"));
        assert!(head.contains("x-extra: more\r\n"));
        assert_eq!(seen.body["model"], "m");
    }
    let server = Server::saying(CHAT).await;
    ask(provider(Kind::OpenAiChat, &format!("{}/v1", server.url)).as_ref()).await;
    let seen = server.seen();
    let head = seen[0].head.to_lowercase();
    assert!(head.starts_with("post /v1/chat/completions "), "{head}");
    assert!(head.contains(&format!("authorization: bearer {KEY}\r\n")));
    assert_eq!(seen[0].body["stream"], true);
}

#[tokio::test]
async fn an_answer_is_the_same_in_one_piece_and_byte_by_byte() {
    for kind in BOTH {
        let body = good(kind);
        let whole = Server::saying(body).await;
        let slow = Server::start(vec![vec![
            Step::Events,
            Step::Body(body.to_owned(), 1),
            Step::End,
        ]])
        .await;
        let (one, error) = ask(provider(kind, &whole.url).as_ref()).await;
        assert!(error.is_none(), "{error:?}");
        let (other, error) = ask(provider(kind, &slow.url).as_ref()).await;
        assert!(error.is_none(), "{error:?}");
        assert_eq!(one, other);
        assert!(matches!(one.last(), Some(StreamEvent::Stop(_))));
    }
}

#[tokio::test]
async fn text_is_handed_on_before_the_answer_ends() {
    use futures::StreamExt;
    let (first, _) = CHAT.split_once("data: {\"id\": \"c\", \"object\": \"chat.completion.chunk\", \"created\": 1, \"model\": \"m\", \"choices\": [{\"index\": 0, \"delta\": {\"content\": \"Welt").unwrap();
    let server = Server::start(vec![vec![
        Step::Events,
        Step::Body(first.to_owned(), usize::MAX),
        Step::Stall,
    ]])
    .await;
    let provider = provider(Kind::OpenAiChat, &server.url);
    let mut stream = provider.stream(crate::request("hello"));
    let first = stream.next().await.unwrap().unwrap();
    assert_eq!(first, StreamEvent::Text("Hallo ".to_owned()));
    // Dropping the stream ends the request: the server sees the client leave.
    drop(stream);
    tokio::time::timeout(Duration::from_secs(5), server.left.notified())
        .await
        .unwrap();
}

#[tokio::test]
async fn an_answer_that_is_whole_needs_no_end_of_its_connection() {
    for last in [Step::Stall, Step::Reset] {
        let body = CHAT.replace("data: [DONE]\n\n", "");
        let server =
            Server::start(vec![vec![Step::Events, Step::Body(body, usize::MAX), last]]).await;
        let options = terret_models::HttpOptions {
            idle: Duration::from_millis(300),
            ..crate::options()
        };
        let provider = crate::provider_with(Kind::OpenAiChat, &server.url, options);
        let (events, error) = ask(provider.as_ref()).await;
        assert!(error.is_none(), "{error:?}");
        assert_eq!(events.last(), Some(&StreamEvent::Stop(StopReason::End)));
    }
    // After `[DONE]` nothing is waited for.
    let server = Server::start(vec![vec![
        Step::Events,
        Step::Body(CHAT.to_owned(), usize::MAX),
        Step::Stall,
    ]])
    .await;
    let (events, error) = ask(provider(Kind::OpenAiChat, &server.url).as_ref()).await;
    assert!(error.is_none() && text_of(&events).starts_with("Hallo"));
}

#[tokio::test]
async fn a_server_that_does_not_stream_is_understood() {
    let body = r#"{"choices":[{"message":{"role":"assistant","content":"All at once."},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":4}}"#;
    let server = Server::start(vec![json(200, body)]).await;
    let (events, error) = ask(provider(Kind::OpenAiChat, &server.url).as_ref()).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(text_of(&events), "All at once.");
    assert_eq!(events.last(), Some(&StreamEvent::Stop(StopReason::End)));
}

#[tokio::test]
async fn requests_side_by_side_do_not_mix() {
    let server = Server::start(vec![events(CHAT)]).await;
    let provider = provider(Kind::OpenAiChat, &server.url);
    let asked = (0..16).map(|_| ask(provider.as_ref()));
    for (events, error) in futures::future::join_all(asked).await {
        assert!(error.is_none(), "{error:?}");
        assert_eq!(text_of(&events), "Hallo Welt ü€😀");
    }
    assert_eq!(server.seen().len(), 16);
}

#[tokio::test]
async fn a_session_keeps_its_connection() {
    for kind in BOTH {
        let server = Server::saying(good(kind)).await;
        let provider = provider(kind, &server.url);
        for _ in 0..3 {
            assert!(ask(provider.as_ref()).await.1.is_none());
        }
        let seen = server.seen();
        assert!(
            seen.iter().all(|each| each.from == seen[0].from),
            "a handshake was paid twice"
        );
    }
}
