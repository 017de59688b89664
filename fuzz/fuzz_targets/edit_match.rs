//! Any file and any edit of it: see `checks/edit_match.rs` for what must hold.
#![no_main]

#[path = "../checks/edit_match.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::any_bytes(data));
