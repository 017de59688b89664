//! Any output to a terminal of any size, split anywhere: see `checks/screen.rs` for what must hold.
#![no_main]

#[path = "../checks/screen.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::any_bytes(data));
