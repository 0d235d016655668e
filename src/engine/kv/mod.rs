//! The KV cache of one engine rank: a fixed number of blocks, shared by prefix, evicted when unused.
//!
//! Blocks are never handled one by one. A *piece* (`pieces.rs`) is a run of blocks of one tree segment that share their fate:
//! the same holders, or the same place in the eviction order. A long prompt is a handful of pieces, whatever the block
//! size.
//!
//! What a block can be:
//!
//! - *free*: without content;
//! - *loose*: held by one sequence and not to be found by others: the incomplete last block and generated blocks;
//! - in a *piece*: complete, with an identity, found by look-ups; referenced by its holders or, without any, inactive
//!   and waiting for reuse or eviction.
//!
//! Which inactive block goes first: the one released longest ago, or with a [`Foresight`] the one that is needed last.
//!
//! The same content may exist twice, when two requests computed it at the same time. Both copies stay; look-ups find
//! the one that was made first.

mod cache;
mod foresight;
mod pieces;
#[cfg(test)]
mod tests;

pub use cache::{Generated, Hold, KvCache, Match};
pub use foresight::{Foresight, FutureUses};
