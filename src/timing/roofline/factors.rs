//! Factors that bring peak rates to what kernels reach, fitted set by set.

use std::sync::OnceLock;

use serde::Deserialize;

use crate::config::scenario::Backend;

/// Factors on the peaks of a GPU, and what kernels take besides. Rates are shares of a peak; they are constants of a fit and
/// may exceed 1. Tokens are those at which half of a rate is reached; constants are in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub(super) struct Factors {
    /// Rate of matrix products.
    #[serde(rename = "ec")]
    pub(super) gemm_rate: f64,
    /// Tokens at which they reach half of it.
    #[serde(rename = "mh")]
    pub(super) gemm_half_tokens: f64,
    /// Rate of their memory.
    #[serde(rename = "eb")]
    pub(super) gemm_memory_rate: f64,
    /// What each takes besides.
    #[serde(rename = "cg")]
    pub(super) gemm_seconds: f64,
    /// Rate of prompt attention.
    #[serde(rename = "ea")]
    pub(super) attention_rate: f64,
    /// New tokens at which it reaches half of it.
    #[serde(rename = "qh")]
    pub(super) attention_half_tokens: f64,
    /// Rate of the memory of attention.
    #[serde(rename = "ab")]
    pub(super) attention_memory_rate: f64,
    /// What each attention takes besides.
    #[serde(rename = "ca")]
    pub(super) attention_seconds: f64,
    /// Rate of experts.
    #[serde(rename = "em")]
    pub(super) experts_rate: f64,
    /// Tokens per expert at which they reach half of it.
    #[serde(rename = "mmh")]
    pub(super) experts_half_tokens: f64,
    /// Rate of their memory.
    #[serde(rename = "ebm")]
    pub(super) experts_memory_rate: f64,
    /// What the experts of a layer take besides.
    #[serde(rename = "cm")]
    pub(super) experts_seconds: f64,
    /// What each message between GPUs takes besides.
    #[serde(rename = "calpha")]
    pub(super) message_seconds: f64,
    /// Rate of links.
    #[serde(rename = "cbw")]
    pub(super) link_rate: f64,
    /// What a pass takes besides.
    #[serde(rename = "c0")]
    pub(super) pass_seconds: f64,
}

/// Factors with what they were fitted to.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct FactorSet {
    pub(super) system: String,
    pub(super) backend: Backend,
    pub(super) version: String,
    /// Number format of the matrix products.
    pub(super) weights: String,
    pub(super) models: Vec<String>,
    pub(super) factors: Factors,
}

/// How far a deployment lies from what a set was fitted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Distance {
    /// The same model on the same GPU in the same format, perhaps split in another way.
    SameModel,
    /// Another model on the same GPU in the same format.
    OtherModel,
    /// Another GPU or another format.
    Far,
}

impl Distance {
    /// What to expect of an estimate, from leaving fitted deployments out.
    pub(super) fn expected_error(self) -> &'static str {
        match self {
            Self::SameModel => "about 5 to 10 %, as for another split of a fitted model",
            Self::OtherModel => "about 15 to 50 %, as for another model than the fitted ones",
            Self::Far => "50 % and more: nothing was fitted for this GPU and number format",
        }
    }
}

/// The set whose deployments are most like this one; among equals the first of the file.
pub(super) fn nearest(
    model: &str,
    system: &str,
    backend: Backend,
    weights: &str,
) -> (&'static FactorSet, Distance) {
    let place = |set: &FactorSet| {
        let here = set.system == system;
        let format = set.weights == weights;
        let family = family(&set.weights) == family(weights);
        let known = set.models.iter().any(|name| name.eq_ignore_ascii_case(model));
        // The products of vLLM 0.24.0 in blocks of one byte look limited by their launch, not by the GPU.
        let suspect = set.backend == Backend::Vllm && set.version == "0.24.0" && set.weights == "fp8_block";
        (!family, !here, !format, suspect, !known, set.backend != backend)
    };
    let set = sets().iter().min_by_key(|set| place(set)).expect("there are sets");
    let (other_family, elsewhere, other_format, _, unknown, _) = place(set);
    let distance = if other_family || elsewhere || other_format {
        Distance::Far
    } else if unknown {
        Distance::OtherModel
    } else {
        Distance::SameModel
    };
    (set, distance)
}

/// Formats that use the same arithmetic.
fn family(weights: &str) -> &str {
    if weights.starts_with("fp8") { "fp8" } else { weights }
}

fn sets() -> &'static [FactorSet] {
    static SETS: OnceLock<Vec<FactorSet>> = OnceLock::new();
    SETS.get_or_init(|| {
        serde_json::from_str(include_str!("factors.json"))
            .expect("the bundled factors are in their own format")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_set_is_named_with_its_distance() {
        let found = |model, system, backend, weights| {
            let (set, distance) = nearest(model, system, backend, weights);
            (format!("{}/{}/{}", set.system, set.backend.name(), set.weights), distance)
        };
        assert_eq!(
            found("Qwen/Qwen3-32B", "h200_sxm", Backend::Vllm, "bfloat16"),
            ("h200_sxm/vllm/bfloat16".into(), Distance::SameModel)
        );
        assert_eq!(
            found("meta-llama/Llama-3.1-405B", "h100_sxm", Backend::Sglang, "bfloat16"),
            ("h100_sxm/sglang/bfloat16".into(), Distance::OtherModel)
        );
        assert_eq!(
            found("Qwen/Qwen3-8B", "l40s", Backend::Trtllm, "bfloat16"),
            ("h100_sxm/trtllm/bfloat16".into(), Distance::Far)
        );
        // The trusted version comes first.
        let (set, _) = nearest("MiniMaxAI/MiniMax-M2.5", "b200_sxm", Backend::Vllm, "fp8_block");
        assert_eq!(set.version, "0.19.0");
    }
}
