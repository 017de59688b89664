//! Reads text that comes in pieces: a character that is split between two of them is whole
//! in the second, and what is no UTF-8 becomes U+FFFD (R097).

use encoding_rs::{CoderResult, Decoder, UTF_8};

/// The decoder of one stream.
pub(crate) struct Utf8Stream {
    decoder: Decoder,
    /// Kept between pieces for its room.
    decoded: String,
}

impl Utf8Stream {
    /// At the start of a stream.
    pub(crate) fn new() -> Self {
        Self {
            decoder: UTF_8.new_decoder_without_bom_handling(),
            decoded: String::new(),
        }
    }

    /// Takes the next bytes and gives `take` the text that they complete, in order.
    pub(crate) fn push(&mut self, bytes: &[u8], mut take: impl FnMut(&str)) {
        let mut rest = bytes;
        loop {
            self.decoded.clear();
            let needed = self
                .decoder
                .max_utf8_buffer_length(rest.len())
                .unwrap_or(rest.len().saturating_mul(3));
            self.decoded.reserve(needed);
            let (result, read, _) = self
                .decoder
                .decode_to_string(rest, &mut self.decoded, false);
            take(&self.decoded);
            rest = rest.get(read..).unwrap_or_default();
            if result == CoderResult::InputEmpty {
                return;
            }
        }
    }

    /// Ends the stream; gives what stands for a character that was not finished.
    pub(crate) fn finish(mut self) -> String {
        let mut last = String::with_capacity(16);
        let _ = self.decoder.decode_to_string(&[], &mut last, true);
        last
    }

    /// Whether these bytes, coming next, are ASCII that completes nothing of before.
    pub(crate) fn is_ascii_next(&self, bytes: &[u8]) -> bool {
        self.decoder.latin1_byte_compatible_up_to(bytes) == Some(bytes.len())
    }
}
