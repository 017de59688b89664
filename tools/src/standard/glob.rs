//! Built beside this crate's other rooms.
