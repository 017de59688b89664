//! Faces: each maps one protocol to engine commands and projections, and nothing else.

pub mod acp;
mod text;
mod time;
