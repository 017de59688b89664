//! Each failure says what happened and what to do, and gives nothing away (`R059`).

use secrecy::SecretString;
use terret_models::{Kind, ModelError, Registry};

use crate::server::{Server, Step, json};
use crate::{BOTH, KEY, ask, options, provider, settings};

#[tokio::test]
async fn r059_a_refused_key_is_said_without_the_key() {
    for kind in BOTH {
        let body = format!(r#"{{"error":{{"message":"Incorrect key provided: {KEY}. hello"}}}}"#);
        let server = Server::start(vec![json(401, &body)]).await;
        let (events, error) = ask(provider(kind, &server.url).as_ref()).await;
        assert!(events.is_empty());
        assert!(
            matches!(error, Some(ModelError::Auth { status: 401, .. })),
            "{error:?}"
        );
        let text = format!("{:?} {}", error, error.as_ref().unwrap());
        assert!(!text.contains(KEY) && text.contains("[key]"), "{text}");
    }
}

#[tokio::test]
async fn r059_a_missing_key_is_said_before_any_request() {
    for kind in BOTH {
        let server = Server::saying("").await;
        let mut settings = settings(kind, &server.url);
        settings.key = None;
        settings.key_hint = "set `SOME_KEY`, or run `terret auth`".to_owned();
        let registry = Registry::with_options([settings], options());
        let name = format!("{}:m", registry.names()[0]).parse().unwrap();
        let provider = registry.resolve(&name).unwrap();
        assert!(matches!(provider.ready(), Err(ModelError::NoKey { .. })));
        let (_, error) = ask(provider.as_ref()).await;
        assert!(error.unwrap().to_string().contains("set `SOME_KEY`"));
        assert_eq!(server.seen().len(), 0);
    }
}

#[tokio::test]
async fn a_local_server_needs_no_key() {
    let server = Server::saying(crate::CHAT).await;
    let mut settings = settings(Kind::OpenAiChat, &server.url);
    settings.key = None;
    settings.key_hint = String::new();
    let registry = Registry::with_options([settings], options());
    let provider = registry.resolve(&"openai:m".parse().unwrap()).unwrap();
    assert!(provider.ready().is_ok());
    assert!(ask(provider.as_ref()).await.1.is_none());
    assert!(
        !server.seen()[0]
            .head
            .to_lowercase()
            .contains("authorization")
    );
}

#[tokio::test]
async fn r059_a_server_that_is_not_there_is_said() {
    // A port that was free a moment ago.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    for kind in BOTH {
        let (_, error) = ask(provider(kind, &url).as_ref()).await;
        assert!(
            matches!(error, Some(ModelError::Connect { .. })),
            "{error:?}"
        );
        let text = error.unwrap().to_string();
        assert!(
            text.contains("refused") && text.contains("is the server running"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn r059_what_is_no_protocol_is_said() {
    for kind in BOTH {
        let html = vec![Step::Whole(
            200,
            vec![("content-type", "text/event-stream")],
            "data: <html>\n\n".to_owned(),
        )];
        for script in [json(200, "{nonsense"), html] {
            let server = Server::start(vec![script]).await;
            let (_, error) = ask(provider(kind, &server.url).as_ref()).await;
            assert!(
                matches!(error, Some(ModelError::Protocol { .. })),
                "{error:?}"
            );
        }
        let server = Server::start(vec![json(
            200,
            r#"{"error":{"message":"model exploded","code":500}}"#,
        )])
        .await;
        let (_, error) = ask(provider(kind, &server.url).as_ref()).await;
        assert!(error.unwrap().to_string().contains("model exploded"));
        // A web page, as a proxy or a wrong address answers, is no answer that was cut.
        let page = vec![("content-type", "text/html; charset=utf-8")];
        let page = Step::Whole(200, page, "<html>\n<p>Sign in</p>\n</html>\n".to_owned());
        let server = Server::start(vec![vec![page]]).await;
        let (_, error) = ask(provider(kind, &server.url).as_ref()).await;
        let error = error.unwrap().to_string();
        assert!(
            error.contains("`text/html`") && error.contains("base_url"),
            "{error}"
        );
        // An empty answer is no answer.
        let server = Server::start(vec![vec![Step::Whole(200, vec![], String::new())]]).await;
        let (events, error) = ask(provider(kind, &server.url).as_ref()).await;
        assert!(matches!(error, Some(ModelError::Cut { .. })), "{error:?}");
        assert!(events.is_empty());
    }
}

#[tokio::test]
async fn r131_an_overflow_is_told_apart() {
    for kind in BOTH {
        let body = r#"{"error":{"type":"invalid_request_error","code":"context_length_exceeded","message":"This model's maximum context length is 8192 tokens"}}"#;
        let server = Server::start(vec![json(400, body)]).await;
        let (_, error) = ask(provider(kind, &server.url).as_ref()).await;
        assert!(
            matches!(error, Some(ModelError::ContextOverflow { .. })),
            "{error:?}"
        );
    }
    let body = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"prompt is too long: 9 > 8\"}}\n\n";
    let server = Server::saying(body).await;
    let (_, error) = ask(provider(Kind::Anthropic, &server.url).as_ref()).await;
    assert!(
        matches!(error, Some(ModelError::ContextOverflow { .. })),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_redirect_is_not_followed_with_the_key() {
    let other = Server::saying(crate::CHAT).await;
    let location: &'static str = other.url.clone().leak();
    let script = vec![Step::Whole(
        307,
        vec![("location", location)],
        String::new(),
    )];
    let server = Server::start(vec![script]).await;
    let (_, error) = ask(provider(Kind::OpenAiChat, &server.url).as_ref()).await;
    assert!(error.unwrap().to_string().contains("base_url"));
    assert_eq!(other.seen().len(), 0);
}

#[tokio::test]
async fn a_key_that_cannot_be_a_header_is_said_without_it() {
    let mut settings = settings(Kind::Anthropic, "http://127.0.0.1:9");
    settings.key = Some(SecretString::from("two\nlines"));
    let registry = Registry::with_options([settings], options());
    let provider = registry.resolve(&"anthropic:m".parse().unwrap()).unwrap();
    let text = ask(provider.as_ref()).await.1.unwrap().to_string();
    assert!(
        text.contains("`x-api-key`") && !text.contains("lines"),
        "{text}"
    );
}

#[test]
fn settings_do_not_show_their_secrets() {
    let text = format!("{:?}", settings(Kind::Anthropic, "http://localhost"));
    assert!(!text.contains(KEY) && !text.contains("more"), "{text}");
}
