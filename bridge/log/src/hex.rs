//! Hashes as lower-case hexadecimal text.

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// The 64 digits of a hash.
pub(crate) fn digits(hash: &[u8; 32]) -> [u8; 64] {
    let mut text = [0; 64];
    for (pair, byte) in text.chunks_exact_mut(2).zip(hash) {
        for (place, nibble) in pair.iter_mut().zip([byte >> 4, byte & 15]) {
            *place = DIGITS.get(usize::from(nibble)).copied().unwrap_or(b'0');
        }
    }
    text
}

/// The same as a string.
pub(crate) fn text(hash: &[u8; 32]) -> String {
    digits(hash)
        .iter()
        .map(|digit| char::from(*digit))
        .collect()
}

/// True for 64 lower-case hexadecimal digits.
pub(crate) fn is_hash(text: &[u8]) -> bool {
    text.len() == 64
        && text
            .iter()
            .all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}
