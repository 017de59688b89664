//! Providers by name.

use terret_models::{Kind, ModelError, Registry, Scripted};

use crate::{ask, settings};

fn error_of(registry: &Registry, name: &str) -> ModelError {
    match registry.resolve(&name.parse().unwrap()) {
        Ok(_) => panic!("{name} was found"),
        Err(error) => error,
    }
}

#[test]
fn an_unknown_provider_is_answered_with_the_known_ones() {
    let registry = Registry::new([
        settings(Kind::OpenAiChat, "http://localhost"),
        settings(Kind::Anthropic, "http://localhost"),
    ]);
    assert_eq!(registry.names(), ["anthropic", "openai", "scripted"]);
    let error = error_of(&registry, "antropic:x").to_string();
    assert!(error.contains("`antropic`"), "{error}");
    assert!(
        error.contains("`anthropic`, `openai`, `scripted`"),
        "{error}"
    );
}

#[tokio::test]
async fn a_script_is_a_provider_and_all_agents_share_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a:b.jsonl");
    std::fs::write(&path, "{\"fail\":{\"status\":400}}\n{\"say\":\"hello\"}\n").unwrap();
    let registry = Registry::default();
    let name = format!("scripted:{}", path.display()).parse().unwrap();
    let first = registry.resolve(&name).unwrap();
    assert!(first.ready().is_ok() && first.capabilities("x").images);
    assert!(ask(first.as_ref()).await.1.is_some());
    // The one failure is used up, whoever asks.
    let second = registry.resolve(&name).unwrap();
    assert_eq!(crate::text_of(&ask(second.as_ref()).await.0), "hello");
    let error = error_of(&registry, "scripted:/no/such/file");
    assert!(matches!(error, ModelError::Script(_)), "{error}");
}

#[tokio::test]
async fn a_provider_can_be_put_in_the_place_of_another() {
    let mut registry = Registry::default();
    registry.insert(std::sync::Arc::new(
        Scripted::from_text("x", "{\"say\":\"from text\"}").unwrap(),
    ));
    let provider = registry.resolve(&"scripted:any".parse().unwrap()).unwrap();
    assert_eq!(crate::text_of(&ask(provider.as_ref()).await.0), "from text");
    assert_eq!(registry.names(), ["scripted"]);
}

/// The start of the program builds the registry: it must cost next to nothing, whatever
/// the machine's certificate store holds.
#[test]
fn building_a_registry_sets_up_no_client() {
    let started = std::time::Instant::now();
    for _ in 0..100 {
        let registry = Registry::new([settings(Kind::Anthropic, "https://example.invalid")]);
        assert!(registry.resolve(&"anthropic:x".parse().unwrap()).is_ok());
    }
    assert!(started.elapsed() < std::time::Duration::from_millis(500));
}
