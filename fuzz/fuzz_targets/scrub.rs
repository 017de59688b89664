//! Any text with secrets in it, cut anywhere: see `checks/scrub.rs` for what must hold.
#![no_main]

#[path = "../checks/scrub.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::any_bytes(data));
