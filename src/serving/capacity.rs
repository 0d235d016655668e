//! How many KV blocks the ranks of a pool have room for, and what a report says about it.

use std::borrow::Cow;

use indexmap::IndexMap;

use super::assembly::pools;
use super::pricing::profile_of;
use crate::config::scenario::{CapacitySource, MemoryConfig, Pool, Scenario, TimingConfig};
use crate::model::{Catalogue, Split};
use crate::report::record::{CapacityRecord, MemoryOrigin, Role};
use crate::timing::memory::{MemoryError, MemoryPlan, MemoryQuery, MemorySource, from_profile};
use crate::timing::profile::{Entry, Pack, Shape};

/// A scenario whose pools all know their KV blocks, and where those of a memory model come from.
pub(super) type Sized<'a> = (Cow<'a, Scenario>, IndexMap<&'static str, CapacityRecord>);

/// Fills in the blocks that a memory model finds room for.
///
/// # Errors
/// Pools without room, or of whose model or hardware too little is known; one line each.
pub(super) fn sized(scenario: &Scenario) -> Result<Sized<'_>, Vec<String>> {
    let unsized_pools = pools(scenario).into_iter().filter(|(_, pool)| is_sized_by_memory(pool));
    let unsized_pools: Vec<(Role, &Pool)> = unsized_pools.collect();
    if unsized_pools.is_empty() {
        return Ok((Cow::Borrowed(scenario), IndexMap::new()));
    }
    let catalogue = Catalogue::with(&scenario.facts).map_err(|error| vec![error.to_string()])?;
    let (mut sized, mut records, mut problems) = (scenario.clone(), IndexMap::new(), Vec::new());
    for (role, pool) in unsized_pools {
        match capacity(pool, &catalogue) {
            // The timing has no profile either, and says so.
            Ok(None) => {}
            Ok(Some(record)) => {
                let deployment = &mut sized.deployment;
                let pool = match role {
                    Role::Agg => &mut deployment.agg,
                    Role::Prefill => &mut deployment.prefill,
                    Role::Decode => &mut deployment.decode,
                };
                pool.as_mut().expect("it has just been looked at").engine.num_gpu_blocks =
                    record.num_gpu_blocks;
                records.insert(role.name(), record);
            }
            Err(problem) => problems.push(format!("deployment.{}.{problem}", role.name())),
        }
    }
    if problems.is_empty() { Ok((Cow::Owned(sized), records)) } else { Err(problems) }
}

/// The KV blocks of a rank of each pool for which a memory model finds room, by the pool's name.
pub fn modelled_blocks(scenario: &Scenario) -> IndexMap<&'static str, u32> {
    let records = sized(scenario).map(|(_, records)| records).unwrap_or_default();
    records.into_iter().map(|(pool, record)| (pool, record.num_gpu_blocks)).collect()
}

fn is_sized_by_memory(pool: &Pool) -> bool {
    pool.engine.capacity_source == CapacitySource::MemoryModel
}

/// What a rank of a pool has room for; `None` without a profile to tell.
fn capacity(pool: &Pool, catalogue: &Catalogue) -> Result<Option<CapacityRecord>, String> {
    let key = "engine.num_gpu_blocks";
    let Some(tokens) = pool.engine.max_num_batched_tokens else {
        return Err("engine.max_num_batched_tokens: a memory model needs to know how large a pass may be; give it, or \
                    engine.num_gpu_blocks"
            .into());
    };
    let plan = match (&pool.memory, &pool.timing) {
        (Some(memory), _) => {
            query(pool, memory, tokens).plan(catalogue).map_err(|error| format!("memory: {error}"))?
        }
        (None, TimingConfig::Profile(config)) => {
            let Ok(entry) = profile_of(pool, config) else { return Ok(None) };
            plan_of_entry(pool, &entry, tokens, catalogue).map_err(|error| format!("{key}: {error}"))?
        }
        (None, _) => return Err(format!("{key}: has to be given where nothing says what model is served")),
    };
    let block_size = pool.engine.block_size;
    let blocks = plan.kv_blocks(block_size).map_err(|no_room| format!("{key}: {no_room}"))?;
    if let Some(longest) = pool.engine.max_model_len
        && u64::from(blocks) * u64::from(block_size) < u64::from(longest)
    {
        return Err(format!(
            "engine.max_model_len: a sequence of {longest} tokens does not fit: there is room for {blocks} blocks of \
             {block_size} tokens"
        ));
    }
    Ok(Some(record(&plan, blocks, block_size)))
}

/// Why the blocks that were given for a pool are more than its memory has room for, if they are and something says what
/// is served.
pub(super) fn overcommitted(pool: &Pool, catalogue: &Catalogue) -> Option<String> {
    let engine = &pool.engine;
    let tokens = engine.max_num_batched_tokens.filter(|_| engine.capacity_source == CapacitySource::Given)?;
    let plan = match &pool.timing {
        TimingConfig::Profile(config) => {
            plan_of_entry(pool, &profile_of(pool, config).ok()?, tokens, catalogue).ok()?
        }
        TimingConfig::Roofline(config) => query(pool, &config.memory()?, tokens).plan(catalogue).ok()?,
        TimingConfig::Polynomial | TimingConfig::Fixed { .. } | TimingConfig::Grid(_) => return None,
    };
    plan.too_many_blocks(engine.num_gpu_blocks, engine.block_size)
}

/// The memory of a worker that a profile belongs to.
fn plan_of_entry(
    pool: &Pool,
    entry: &Entry<'_>,
    tokens: u32,
    catalogue: &Catalogue,
) -> Result<MemoryPlan, MemoryError> {
    let fraction = pool.engine.gpu_memory_utilization;
    match from_profile(Pack::embedded(), entry, tokens, fraction) {
        Some(plan) => Ok(plan),
        None => of_entry(pool, entry, tokens).plan(catalogue),
    }
}

/// Asks for a worker of a model and a GPU that are named.
fn query<'a>(pool: &Pool, memory: &'a MemoryConfig, max_num_batched_tokens: u32) -> MemoryQuery<'a> {
    MemoryQuery {
        model_name: &memory.model_name,
        hardware_sku: &memory.hardware_sku,
        backend: pool.engine.backend,
        backend_version: None,
        quantization: memory.quantization.as_deref(),
        split: Split {
            tp: pool.tensor_parallel_size,
            pp: pool.pipeline_parallel_size,
            attention_dp: pool.dp_size,
            moe_tp: memory.moe_tp.unwrap_or(1),
            moe_ep: memory.moe_ep.unwrap_or(1),
        },
        max_num_batched_tokens,
        fraction: pool.engine.gpu_memory_utilization,
    }
}

/// Asks for the worker of a profile that has no facts about memory.
fn of_entry<'a>(pool: &Pool, entry: &Entry<'a>, max_num_batched_tokens: u32) -> MemoryQuery<'a> {
    let Shape { tp, pp, attention_dp, moe_tp, moe_ep } = entry.profile.shape;
    MemoryQuery {
        model_name: &entry.family.model,
        hardware_sku: &entry.family.system,
        backend: pool.engine.backend,
        backend_version: None,
        quantization: Some(entry.family.quant.weights()),
        split: Split { tp, pp, attention_dp, moe_tp, moe_ep },
        max_num_batched_tokens,
        fraction: pool.engine.gpu_memory_utilization,
    }
}

fn record(plan: &MemoryPlan, num_gpu_blocks: u32, block_size: u32) -> CapacityRecord {
    CapacityRecord {
        source: match plan.source {
            MemorySource::Profile => MemoryOrigin::Profile,
            MemorySource::ClosedForm => MemoryOrigin::ClosedForm,
        },
        num_gpu_blocks,
        block_size,
        capacity_bytes: plan.capacity_bytes,
        available_bytes: plan.available_bytes() as u64,
        needed_bytes: plan.non_kv_bytes() as u64,
        weights_bytes: plan.weights_bytes as u64,
        activation_bytes: plan.activation_bytes as u64,
        kv_bytes: plan.kv_bytes() as u64,
        kv_bytes_per_token: plan.kv.first_bytes_per_token() as u64,
    }
}
