//! The subcommands, one file each.

pub(crate) mod acp;
pub(crate) mod auth;
pub(crate) mod config;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod inbox;
pub(crate) mod jobs;
pub(crate) mod rules;
pub(crate) mod run;
pub(crate) mod sessions;
pub(crate) mod trust;
