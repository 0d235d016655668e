//! What prices a pass.

use std::path::PathBuf;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::pool::MemoryConfig;

/// What prices a pass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "model", rename_all = "lowercase")]
#[schemars(deny_unknown_fields)]
pub enum TimingConfig {
    /// The reference's built-in polynomial.
    #[default]
    Polynomial,
    /// A constant for each phase.
    Fixed {
        /// A pass with prompt tokens, in milliseconds.
        #[schemars(range(min = 0.0))]
        prefill_ms: f64,
        /// A pass with decoding requests, in milliseconds.
        #[schemars(range(min = 0.0))]
        decode_ms: f64,
    },
    /// A measured grid.
    Grid(GridConfig),
    /// A profile of model, hardware and backend; the rest of its shape is the pool's.
    Profile(ProfileConfig),
    /// A rough estimate from the sizes of a model and the peaks of a GPU.
    Roofline(PricedModel),
}

impl TimingConfig {
    /// The model and the GPU that it prices, where it knows them.
    pub fn priced(&self) -> Option<&PricedModel> {
        match self {
            Self::Profile(profile) => Some(&profile.of),
            Self::Roofline(model) => Some(model),
            Self::Polynomial | Self::Fixed { .. } | Self::Grid(_) => None,
        }
    }

    fn priced_mut(&mut self) -> Option<&mut PricedModel> {
        match self {
            Self::Profile(profile) => Some(&mut profile.of),
            Self::Roofline(model) => Some(model),
            Self::Polynomial | Self::Fixed { .. } | Self::Grid(_) => None,
        }
    }

    /// Puts down what passes pay where that follows from the engine's `first_token_decode`; says nothing of it where there is no
    /// such engine, since no pass computes prompts.
    pub fn settle(&mut self, first_token_decode: Option<bool>) {
        if let Some(priced) = self.priced_mut() {
            let mixed_passes = first_token_decode.map(|first| priced.mixed_passes(first));
            let uneven_prompts = first_token_decode.map(|first| priced.uneven_prompts(first));
            (priced.mixed_passes, priced.uneven_prompts) = (mixed_passes, uneven_prompts);
        }
    }

    /// The files that it names.
    pub fn files_mut(&mut self) -> impl Iterator<Item = &mut MeasuredFile> {
        let file = match self {
            Self::Polynomial | Self::Fixed { .. } | Self::Roofline(_) => None,
            Self::Grid(grid) => Some(&mut grid.path),
            Self::Profile(profile) => profile.rescale.as_mut(),
        };
        file.into_iter()
    }
}

/// A grid of measured passes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct GridConfig {
    /// The file.
    pub path: MeasuredFile,
    /// Time of the CPU that each pass takes besides, in milliseconds.
    #[schemars(default, range(min = 0.0, max = 1e9))]
    pub pass_overhead_ms: f64,
}

/// The model that is served and its GPU, with what a pass of it pays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct PricedModel {
    /// Hugging Face name of the model; with an estimate also that of a file of facts.
    pub model_name: Option<String>,
    /// Name of the GPU, likewise.
    pub hardware_sku: Option<String>,
    /// Number format of the weights; the checkpoint's own when absent.
    pub quantization: Option<String>,
    /// Tensor parallelism of the experts; when absent, what there is if that is one thing.
    #[schemars(range(min = 1))]
    pub moe_tp: Option<u32>,
    /// Expert parallelism; likewise.
    #[schemars(range(min = 1))]
    pub moe_ep: Option<u32>,
    /// What a pass pays that computes prompts and decodes: `summed` when absent with `first_token_decode`, which is a rule of
    /// the reference, that sums; otherwise `shared`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mixed_passes: Option<MixedPasses>,
    /// What prompts of different length pay in one pass: `mean` when absent where `mixed_passes` is `summed`, since both are rules of
    /// the reference; otherwise `each`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uneven_prompts: Option<UnevenPrompts>,
    /// Time of the CPU that each pass takes besides, in milliseconds.
    #[schemars(default, range(min = 0.0, max = 1e9))]
    pub pass_overhead_ms: f64,
}

impl PricedModel {
    /// What holds for passes that compute prompts and decodes, with this `first_token_decode`.
    pub fn mixed_passes(&self, first_token_decode: bool) -> MixedPasses {
        let default = if first_token_decode { MixedPasses::Summed } else { MixedPasses::Shared };
        self.mixed_passes.unwrap_or(default)
    }

    /// What holds for prompts of different length, with this `first_token_decode`.
    pub fn uneven_prompts(&self, first_token_decode: bool) -> UnevenPrompts {
        let default = match self.mixed_passes(first_token_decode) {
            MixedPasses::Summed => UnevenPrompts::Mean,
            MixedPasses::Shared => UnevenPrompts::Each,
        };
        self.uneven_prompts.unwrap_or(default)
    }

    /// The memory model of the same model and GPU; `None` until both are named.
    pub fn memory(&self) -> Option<MemoryConfig> {
        Some(MemoryConfig {
            model_name: self.model_name.clone()?,
            hardware_sku: self.hardware_sku.clone()?,
            quantization: self.quantization.clone(),
            moe_tp: self.moe_tp,
            moe_ep: self.moe_ep,
        })
    }
}

/// Which profile prices a pool, and how it is used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct ProfileConfig {
    /// What it is a profile of.
    #[serde(flatten)]
    pub of: PricedModel,
    /// Backend version; the newest trustworthy one when absent.
    pub backend_version: Option<String>,
    /// Measured passes that scale the profile: one factor for each phase.
    pub rescale: Option<MeasuredFile>,
}

/// What a pass pays that computes prompts and decodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MixedPasses {
    /// All of its tokens go through the layers together; attention is paid apart.
    Shared,
    /// As much as a pass over the prompts and a decode pass, one after the other, as in the reference.
    Summed,
}

/// What the prompts of one pass pay where they differ in length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UnevenPrompts {
    /// Each its own attention: of `n` prompts the n-th part of what `n` prompts like it would pay.
    Each,
    /// As much as equally many prompts of their mean lengths, rounded down, as in the reference.
    Mean,
}

/// A file of measured passes of one deployment, which `spica profiles check` looks at.
///
/// CSV: the first line names the columns, in any order. `batch`: prompts or requests of the pass; required. `latency_ms`: what it
/// took, in milliseconds; required. `new_tokens`: prompt tokens of each that it computed, in passes that compute prompts.
/// `prefix_tokens`: tokens of each that were there before; 0 when left out. `context_tokens`: mean length of the requests in tokens,
/// in decode passes. Every row has one of `new_tokens` and `context_tokens`; a grid needs at least 12 rows of each kind, a `rescale`
/// one row of either. The columns of `spica profiles query` (`phase`, `batch`, `new_or_context`, `prefix`, with `latency_ms`) do as
/// well. Other columns do not matter, but a `deployment` column has to name one only.
///
/// NPZ: the arrays of the reference. `prefill_isl`: tokens, rising. `prefill_ttft_ms`: milliseconds of each.
/// `decode_active_kv_tokens` and `decode_context_length`: tokens, rising. `decode_itl`: milliseconds, a row for each number of active
/// tokens, a column for each length.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct MeasuredFile {
    /// Where it is.
    pub path: PathBuf,
    /// What it holds; `None` until whoever opens files has read it.
    #[serde(skip)]
    #[schemars(skip)]
    pub content: Option<Arc<[u8]>>,
}

impl<T: Into<PathBuf>> From<T> for MeasuredFile {
    fn from(path: T) -> Self {
        Self { path: path.into(), content: None }
    }
}
