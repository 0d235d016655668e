//! The roles of a deployment mode and the knobs that each of them has.

use crate::config::scenario::DeploymentMode;
use crate::config::search::{ParallelConfig, SearchSpace, Shape};

/// What the workers of a pool do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Role {
    Agg,
    Prefill,
    Decode,
}

impl Role {
    /// The roles of a mode, in the order in which requests pass through them.
    pub(super) fn of_mode(mode: DeploymentMode) -> &'static [Self] {
        match mode {
            DeploymentMode::Agg => &[Self::Agg],
            DeploymentMode::Disagg => &[Self::Prefill, Self::Decode],
        }
    }

    /// The role whose memory bounds how many requests a mode can have in flight.
    pub(super) fn bearing_load(mode: DeploymentMode) -> Self {
        match mode {
            DeploymentMode::Agg => Self::Agg,
            DeploymentMode::Disagg => Self::Decode,
        }
    }

    /// What the names of its knobs begin with.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Agg => "agg",
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }

    pub(super) fn batched_tokens_knob(self) -> &'static str {
        match self {
            Self::Agg => "agg_max_num_batched_tokens",
            Self::Prefill => "prefill_max_num_batched_tokens",
            Self::Decode => "decode_max_num_batched_tokens",
        }
    }

    pub(super) fn sequences_knob(self) -> &'static str {
        match self {
            Self::Agg => "agg_max_num_seqs",
            Self::Prefill => "prefill_max_num_seqs",
            Self::Decode => "decode_max_num_seqs",
        }
    }

    /// The knobs of its batches, with their configured choices.
    pub(super) fn batch_knobs(self, space: &SearchSpace) -> [(&'static str, &[u32]); 2] {
        let (tokens, sequences) = match self {
            Self::Agg => (&space.agg_max_num_batched_tokens, &space.agg_max_num_seqs),
            Self::Prefill => (&space.prefill_max_num_batched_tokens, &space.prefill_max_num_seqs),
            Self::Decode => (&space.decode_max_num_batched_tokens, &space.decode_max_num_seqs),
        };
        [(self.batched_tokens_knob(), tokens), (self.sequences_knob(), sequences)]
    }

    /// Tokens per KV block.
    pub(super) fn block_size(self, space: &SearchSpace) -> u32 {
        match self {
            Self::Agg => space.agg_block_size,
            Self::Prefill => space.prefill_block_size,
            Self::Decode => space.decode_block_size,
        }
    }

    /// Share of GPU memory that its engines may use.
    pub(super) fn gpu_memory_utilization(self, space: &SearchSpace) -> f64 {
        match self {
            Self::Agg => space.agg_gpu_memory_utilization,
            Self::Prefill => space.prefill_gpu_memory_utilization,
            Self::Decode => space.decode_gpu_memory_utilization,
        }
    }

    /// Whether its engines reuse finished blocks.
    pub(super) fn enable_prefix_caching(self, space: &SearchSpace) -> bool {
        match self {
            Self::Agg => space.agg_enable_prefix_caching,
            Self::Prefill => space.prefill_enable_prefix_caching,
            Self::Decode => space.decode_enable_prefix_caching,
        }
    }

    /// Its shape in a layout of its mode.
    pub(super) fn shape(self, layout: &ParallelConfig) -> Option<Shape> {
        match (self, layout) {
            (Self::Agg, ParallelConfig::Agg(shape)) => Some(*shape),
            (Self::Prefill, ParallelConfig::Disagg { prefill, .. }) => Some(*prefill),
            (Self::Decode, ParallelConfig::Disagg { decode, .. }) => Some(*decode),
            _ => None,
        }
    }
}

/// The shapes of all roles of a layout, without the number of workers.
pub(super) fn shapes(layout: &ParallelConfig) -> Vec<Shape> {
    let shapes = match layout {
        ParallelConfig::Agg(shape) => vec![*shape],
        ParallelConfig::Disagg { prefill, decode } => vec![*prefill, *decode],
    };
    shapes.into_iter().map(|shape| Shape { replicas: 1, ..shape }).collect()
}
