//! What must hold for any bytes in the place of server-sent events.
//!
//! Shared by the fuzz target `sse` and the tests of the models' own crate.

use terret_models::{EventTooLarge, SseEvent, SseParser};

/// Small, so that the limit is reached.
const LIMIT: usize = 256;

/// However the bytes are split, the same events come before the same end.
pub(crate) fn any_bytes(data: &[u8]) {
    let whole = events(data, usize::MAX);
    for size in [1, 2, 3, 16] {
        assert_eq!(events(data, size), whole, "in pieces of {size}");
    }
    for event in &whole.0 {
        assert!(
            event.data.len() <= LIMIT * 3,
            "replacement characters are three bytes"
        );
        assert!(!event.event.contains(['\n', '\r']) && !event.id.contains(['\n', '\r', '\0']));
        assert!(!event.data.contains('\r'));
    }
}

fn events(data: &[u8], size: usize) -> (Vec<SseEvent>, Result<(), EventTooLarge>) {
    let mut parser = SseParser::with_limit(LIMIT);
    let mut events = Vec::new();
    for piece in data.chunks(size) {
        if let Err(error) = parser.push(piece, &mut events) {
            return (events, Err(error));
        }
    }
    (events, Ok(()))
}
