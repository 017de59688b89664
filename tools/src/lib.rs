//! What a model can do: the tool trait, pipeline, gate, barrier, the standard tools and the world they act on.
//!
//! A call has one way through: [`pipeline`] asks the hooks, the [`floor`], the [`gate`],
//! runs the tool and gives exactly one result. Tools touch files and processes only
//! through the [`world`].

pub mod arguments;
mod barrier;
pub mod call;
pub mod definition;
pub mod floor;
pub mod gate;
pub mod helper;
pub mod mode;
pub mod pipeline;
pub mod rules;
pub mod standard;
pub mod table;
pub mod world;

#[cfg(test)]
mod testing;

#[cfg(test)]
own_helpers!();
