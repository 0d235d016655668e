//! What fits into the memory of a candidate's GPUs.

use indexmap::IndexMap;

use super::layout;
use super::pool::Placement;
use super::profile::ProfileNames;
use super::refusal::Refusal;
use super::role::Role;
use crate::config::scenario::{Backend, DeploymentMode, EngineOptions, KvTransfer, TimingConfig};
use crate::config::search::{SearchSpace, Shape};
use crate::model::{Catalogue, ModelFacts, Split};
use crate::simulation::Shown;
use crate::timing::memory::{MemoryPlan, MemoryQuery, kv_growth};

/// Whether the number of KV blocks comes from the memory model.
pub(super) fn sizes_caches(space: &SearchSpace) -> bool {
    let names_a_model = matches!(space.timing, TimingConfig::Profile(_) | TimingConfig::Roofline(_));
    space.num_gpu_blocks.is_none() && names_a_model
}

/// That the number of KV blocks is the default, where nothing says what fits.
pub(super) fn unknown_capacity(space: &SearchSpace) -> Option<String> {
    let names_a_model = matches!(space.timing, TimingConfig::Profile(_) | TimingConfig::Roofline(_));
    let blocks = space.num_gpu_blocks.unwrap_or(EngineOptions::DEFAULT_NUM_GPU_BLOCKS);
    (!names_a_model && blocks == EngineOptions::DEFAULT_NUM_GPU_BLOCKS).then(|| {
        format!(
            "search_space.num_gpu_blocks: every rank has {blocks} blocks, the default: without a profile or an estimate \
             nothing says how many fit"
        )
    })
}

/// The batch and the share of memory at which shapes are told apart, whatever a candidate's own are: those of the
/// reference.
const REFERENCE_BATCHED_TOKENS: u32 = 8192;
const REFERENCE_UTILIZATION: f64 = 0.9;

/// The memory of one GPU.
fn plan(
    space: &SearchSpace,
    catalogue: &Catalogue,
    backend: Backend,
    shape: &Shape,
    max_num_batched_tokens: u32,
    fraction: f64,
) -> Result<MemoryPlan, String> {
    let ProfileNames { model_name, hardware_sku, backend_version, quantization } =
        ProfileNames::of(space).unwrap_or_else(|| ProfileNames::estimated(space));
    MemoryQuery {
        model_name,
        hardware_sku,
        backend,
        backend_version,
        quantization,
        split: Split::from(shape),
        max_num_batched_tokens,
        fraction,
    }
    .plan(catalogue)
    .map_err(|error| error.to_string())
}

/// How KV blocks travel, with the bytes of a token where only a bandwidth was given.
pub(super) fn kv_transfer(space: &SearchSpace, catalogue: &Catalogue) -> Result<KvTransfer, Refusal> {
    let given = space.kv_transfer;
    if given.bandwidth_gbps.is_none() || given.bytes_per_token.is_some() {
        return Ok(given);
    }
    let unknown = |error: &dyn std::fmt::Display| Refusal::new("search_space.model_name", error.to_string());
    let model = catalogue.model(&space.model_name).map_err(|error| unknown(&error))?;
    // What travels is every rank's part, so that of the whole model.
    let bytes = kv_growth(&model, Split::WHOLE).first_bytes_per_token();
    Ok(KvTransfer { bytes_per_token: Some(bytes as u64), ..given })
}

/// Why the longest sequence does not fit in one rank's cache, if so.
pub(super) fn shape_problem(
    space: &SearchSpace,
    catalogue: &Catalogue,
    model: Option<&ModelFacts>,
    backend: Backend,
    shape: &Shape,
) -> Option<String> {
    if let Some(problem) = model.and_then(|model| model.split_problem(Split::from(shape))) {
        return Some(problem);
    }
    if !sizes_caches(space) {
        return None;
    }
    let plan = match plan(space, catalogue, backend, shape, REFERENCE_BATCHED_TOKENS, REFERENCE_UTILIZATION) {
        Ok(plan) => plan,
        Err(problem) => return Some(problem),
    };
    let tokens = match plan.kv_tokens() {
        Ok(tokens) => tokens,
        Err(no_room) => return Some(no_room.to_string()),
    };
    let longest = space.context_length.or(model.map(|model| model.max_context))?;
    (tokens <= u64::from(longest)).then(|| {
        format!(
            "a sequence of {longest} tokens has to fit with room to spare, but a rank's KV cache holds {tokens} \
             ({:.1} GiB are needed, {:.1} GiB are available)",
            gib(plan.kv.bytes_of(u64::from(longest) + 1)),
            gib(plan.kv_bytes())
        )
    })
}

fn gib(bytes: f64) -> f64 {
    bytes / f64::from(1 << 30)
}

/// KV blocks of one rank of a candidate.
pub(super) fn kv_blocks(
    space: &SearchSpace,
    catalogue: &Catalogue,
    role: Role,
    backend: Backend,
    shape: &Shape,
    max_num_batched_tokens: u32,
) -> Result<u32, String> {
    let fraction = role.gpu_memory_utilization(space);
    let blocks = plan(space, catalogue, backend, shape, max_num_batched_tokens, fraction)
        .and_then(|plan| plan.kv_blocks(role.block_size(space)).map_err(|no_room| no_room.to_string()));
    blocks.map_err(|reason| format!("candidate KV capacity infeasible: {}: {reason}", role.name()))
}

/// Why the blocks that were given are more than candidates have room for: one sentence for every engine and role with
/// such candidates.
pub(super) fn overcommitted(
    space: &SearchSpace,
    catalogue: &Catalogue,
    mode: DeploymentMode,
    placements: &[Placement],
) -> Vec<String> {
    let names_a_model = matches!(space.timing, TimingConfig::Profile(_) | TimingConfig::Roofline(_));
    let Some(blocks) = space.num_gpu_blocks.filter(|_| names_a_model) else { return Vec::new() };
    let problem = |backend, role: Role, shape: &Shape| {
        // Small passes leave the most room: if there is not enough then, there never is.
        let [(_, batched_tokens), _] = role.batch_knobs(space);
        let (tokens, fraction) = (*batched_tokens.iter().min()?, role.gpu_memory_utilization(space));
        let plan = plan(space, catalogue, backend, shape, tokens, fraction).ok()?;
        plan.too_many_blocks(blocks, role.block_size(space))
    };
    let mut found: IndexMap<(Backend, Role), IndexMap<Shape, Option<String>>> = IndexMap::new();
    for &Placement { backend, layout } in placements {
        for &role in Role::of_mode(mode) {
            let Some(shape) = role.shape(&layout) else { continue };
            let shape = Shape { replicas: 1, ..shape };
            let shapes = found.entry((backend, role)).or_default();
            shapes.entry(shape).or_insert_with(|| problem(backend, role, &shape));
        }
    }
    let sentences = found.into_iter().filter_map(|((backend, role), shapes)| {
        let mut crowded = shapes.into_iter().filter_map(|(shape, reason)| Some((shape, reason?)));
        let (shape, reason) = crowded.next()?;
        let others = match crowded.count() {
            0 => String::new(),
            count => format!(", and {count} other shapes"),
        };
        Some(format!(
            "search_space.num_gpu_blocks: {} workers of {} GPUs ({}) with {}{others}: {reason}",
            role.name(),
            layout::gpus_per_worker(&shape),
            layout::strategy(&shape),
            backend.name()
        ))
    });
    sentences.collect()
}

/// The number of requests in flight that fills a share of a candidate's KV cache, and what it is derived from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct KvLoad {
    /// The share.
    pub(super) ratio: f64,
    /// The requests in flight.
    pub(super) concurrency: u32,
    /// The requests that fit at half of their output.
    pub(super) capacity_requests: u64,
    /// The tokens that fit.
    pub(super) capacity_tokens: u64,
}

/// Most requests in flight that are derived from a share of a cache.
const MOST_IN_FLIGHT: f64 = 1e6;

impl KvLoad {
    /// How many requests of `isl` and `osl` tokens fill the share `ratio` of a pool with room for so many tokens.
    ///
    /// # Errors
    /// When not a single one fits, or so many are asked for that no machine could replay them.
    pub(super) fn new(ratio: f64, capacity_tokens: u64, isl: u32, osl: u32) -> Result<Self, String> {
        let each = u64::from(isl) + u64::from(osl / 2);
        let capacity_requests = capacity_tokens / each;
        if capacity_requests == 0 {
            return Err(format!(
                "candidate KV capacity infeasible: a request holds {each} tokens half way through its output, but \
                 there is room for {capacity_tokens}"
            ));
        }
        let filled = (ratio * capacity_requests as f64).trunc().max(1.0);
        if filled > MOST_IN_FLIGHT {
            return Err(format!(
                "workload.kv_load_ratio {} asks for {filled:e} requests in flight, more than {MOST_IN_FLIGHT:e}",
                Shown(ratio)
            ));
        }
        Ok(Self { ratio, concurrency: filled as u32, capacity_requests, capacity_tokens })
    }
}

/// Tokens that fit in all workers of a pool.
pub(super) fn pool_capacity_tokens(shape: &Shape, num_gpu_blocks: u32, block_size: u32) -> u64 {
    u64::from(num_gpu_blocks)
        * u64::from(block_size)
        * u64::from(shape.attention_dp)
        * u64::from(shape.replicas)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::scenario::PricedModel;
    use crate::search::test_support::{plan, profiled};

    #[test]
    fn estimated_passes_do_not_make_room_for_weights() {
        let size = |gpu_budget| {
            let mut config =
                profiled("meta-llama/Meta-Llama-3.1-70B", "h100_sxm", DeploymentMode::Agg, gpu_budget);
            config.search_space.timing = TimingConfig::Roofline(PricedModel {
                model_name: Some("meta-llama/Meta-Llama-3.1-70B".into()),
                hardware_sku: Some("h100_sxm".into()),
                ..PricedModel::default()
            });
            plan(config)
        };
        let one_gpu = size(1);
        assert!(one_gpu.branches.is_empty());
        assert!(one_gpu.skipped.iter().any(|skip| skip.to_string().contains("GiB of weights")));
        let eight = size(8);
        let branch = &eight.branches[0];
        let candidate = branch.unroll(&branch.space.point(branch.space.size() - 1)).unwrap();
        let pool = candidate.scenario.deployment.agg.unwrap();
        assert!(pool.memory.is_some() && pool.engine.num_gpu_blocks > 0);
        assert_ne!(pool.engine.num_gpu_blocks, 16384, "the default of a search that knows no model");
    }

    #[test]
    fn more_blocks_than_fit_are_noticed() {
        let notices = |blocks| {
            let mut config = profiled("Qwen/Qwen3-32B", "h200_sxm", DeploymentMode::Agg, 4);
            config.search_space.num_gpu_blocks = blocks;
            let notices = plan(config).notices.into_iter();
            notices.filter(|notice| notice.contains("num_gpu_blocks")).collect::<Vec<_>>()
        };
        assert_eq!((notices(None).len(), notices(Some(100)).len()), (0, 0));
        let crowded = notices(Some(8000));
        assert_eq!(crowded.len(), 1, "{crowded:?}");
        assert!(
            crowded[0].contains("agg workers of 1 GPUs (tp) with vllm: 8000 blocks of 64"),
            "{crowded:?}"
        );
        assert!(notices(Some(1_000_000))[0].contains(", and 2 other shapes: "));
    }

    #[test]
    fn a_share_of_the_cache_becomes_requests_in_flight() {
        let load = KvLoad::new(0.5, 64_000, 3000, 301).unwrap();
        assert_eq!((load.capacity_requests, load.concurrency), (64_000 / 3150, 10));
        assert_eq!(KvLoad::new(0.0, 64_000, 3000, 300).unwrap().concurrency, 1);
        assert_eq!(KvLoad::new(1.5, 31_500, 3000, 300).unwrap().concurrency, 15);
        assert!(KvLoad::new(0.5, 3149, 3000, 300).unwrap_err().contains("3150 tokens"));
    }

    #[test]
    fn ranks_and_workers_multiply_capacity_and_tensor_parallelism_does_not() {
        let shape = Shape { tp: 4, attention_dp: 2, moe_tp: 1, moe_ep: 8, pp: 1, replicas: 3 };
        assert_eq!(pool_capacity_tokens(&shape, 100, 64), 100 * 64 * 2 * 3);
    }
}
