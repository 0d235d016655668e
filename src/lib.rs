//! Which deployment of a language model should serve this traffic?
//!
//! The map of the house, from the bottom up; a module may use those above it in this list only:
//!
//! - [`simulation`]: actors exchanging messages on a virtual clock. Knows nothing of language models.
//! - [`workload`]: requests, their prompts as shared prefixes, trace formats and generators.
//! - [`model`]: what is known of models and GPUs: sizes and number formats, as pure data.
//! - [`timing`]: how long a forward pass takes, and how many KV tokens fit.
//! - [`engine`]: one inference engine: its scheduler and its KV cache; it has no clock of its own.
//! - [`serving`]: the simulated actors (client, router, workers) and the messages between them.
//! - [`sampling`]: the points of a search, and what a sampler of them is.
//! - [`search`]: studies that propose deployments, replay them and rank the answers.
//! - [`run`]: searches and replays as functions, for programs that use this crate.
//! - [`cli`]: the command line.
//!
//! Beside them, as data that the others fill or read: [`config`] (YAML to a validated plan), [`report`] (what a
//! replay recorded and the figures made from it) and [`registry`] (the names under which policies are known).

pub mod cli;
pub mod config;
pub mod engine;
pub mod model;
pub mod registry;
pub mod report;
pub mod run;
pub mod sampling;
pub mod search;
pub mod serving;
pub mod simulation;
pub mod timing;
pub mod workload;
