//! Terminals.
mod grid;
pub mod keys;
mod parser;
pub mod screen;
