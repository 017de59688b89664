//! Any bytes in the place of server-sent events: see `checks/sse.rs` for what must hold.
#![no_main]

#[path = "../checks/sse.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::any_bytes(data));
