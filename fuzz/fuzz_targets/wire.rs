//! Any bytes on the wire: see `checks/wire.rs` for what must hold.
#![no_main]

#[path = "../checks/wire.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::any_bytes(data));
