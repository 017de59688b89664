//! Ids of calls as providers take them. A conversation may hold ids that another provider
//! made, with characters or a length that this one refuses.

use std::borrow::Cow;
use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// What the strictest of the providers takes.
const LONGEST: usize = 40;

/// The id itself when every provider takes it, else one made from it, the same each time.
pub(crate) fn wire_id(id: &str) -> Cow<'_, str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if (1..=LONGEST).contains(&id.len()) && id.bytes().all(plain) {
        return Cow::Borrowed(id);
    }
    let mut made = String::from("call_");
    for byte in Sha256::digest(id.as_bytes()).iter().take(12) {
        // Writing to a string cannot fail.
        let _ = write!(made, "{byte:02x}");
    }
    Cow::Owned(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_other_providers_are_made_fit_and_stay_apart() {
        assert_eq!(wire_id("toolu_01-x"), "toolu_01-x");
        let made = wire_id("functions.Read:0");
        assert_eq!(made, wire_id("functions.Read:0"));
        assert_ne!(made, wire_id("functions.Read:1"));
        for id in ["", "functions.Read:0", &"x".repeat(41), "ü"] {
            let made = wire_id(id);
            assert!(
                made.len() <= LONGEST
                    && made
                        .bytes()
                        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            );
        }
    }
}
