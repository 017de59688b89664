//! Any bytes as an import: see `checks/import.rs` for what must hold.
#![no_main]

#[path = "../checks/import.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::any_bytes(data));
