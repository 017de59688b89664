//! The `terret` binary.
fn main() {}
