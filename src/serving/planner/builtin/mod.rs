//! The built-in planner, which decides as the reference does.
//!
//! - *Load scaling* (`easy.rs`, `sla.rs`) looks at the latest pass of every worker and moves a pool by one worker: by fixed
//!   thresholds, or with `optimization_target: sla` by what a model of passes (`model.rs`, `regression.rs`) says of the
//!   next request.
//! - *Throughput scaling* (`throughput.rs`) asks how many workers the forecast traffic needs (`estimates.rs`) and goes there in
//!   one step.
//! - With both, throughput scaling only sets the least that load scaling may go down to.
//! - The GPU budget and the minimum numbers of workers (`budget.rs`) have the last word. They count workers that take requests;
//!   those that start or drain cost GPUs but do not block.
//!
//! The model learns from live passes; before the first tick it is shown what the workers' timing says of single prompts and of
//! plain decode batches (`bootstrap.rs`). Mixed passes it has to see for itself.

mod bootstrap;
pub mod budget;
pub mod config;
pub mod easy;
pub mod estimates;
mod load;
pub mod model;
pub mod regression;
pub mod sla;
#[cfg(test)]
mod tests;
mod throughput;

use serde::Deserialize;

use self::budget::{Budget, Endpoint};
use self::config::{Fields, PlannerConfig, Target};
use self::estimates::Worker;
use self::model::{ModelOptions, PassModel};
use super::terms::{Clamp, Rule};
use super::traffic::TrafficWindow;
use super::{Decision, GpuBounds, Interest, Observation, PlanningPolicy, PoolObservation, PoolSetup, Setup};
use crate::config::scenario::{DeploymentMode, PolicyConfig};
use crate::report::record::Role;
use crate::report::scaling::Proposal;
use crate::simulation::{SimDuration, SimTime};

/// Tokens and requests that are assumed where a worker has no limit.
const DEFAULT_BATCHED_TOKENS: u64 = 8192;
const DEFAULT_SEQS: u64 = 512;

/// The planner of the reference.
#[derive(Debug, Deserialize)]
#[serde(from = "Fields")]
pub struct BuiltinPlanner {
    fields: Fields,
    config: PlannerConfig,
    pools: Vec<Pool>,
    /// Share of prompts found in caches, as last observed.
    kv_hit_rate: f64,
    /// Tokens per decode step, as last observed.
    accept_length: f64,
    last_load: SimTime,
    last_throughput: SimTime,
}

/// A pool with what the planner keeps of it.
#[derive(Debug)]
struct Pool {
    setup: PoolSetup,
    model: PassModel,
    /// The least that load scaling may go down to.
    lower_bound: u32,
    min_endpoint: u32,
}

/// A pool at a tick.
struct PoolTick<'a> {
    pool: &'a Pool,
    seen: &'a PoolObservation,
    ready: u32,
    staying: u32,
}

impl PoolTick<'_> {
    /// Whether workers are starting: an earlier decision is still being carried out.
    fn is_changing(&self) -> bool {
        self.staying != self.ready
    }
}

impl From<Fields> for BuiltinPlanner {
    fn from(fields: Fields) -> Self {
        let config = fields.resolve();
        Self {
            fields,
            config,
            pools: Vec::new(),
            kv_hit_rate: 0.0,
            accept_length: 1.0,
            last_load: SimTime::ZERO,
            last_throughput: SimTime::ZERO,
        }
    }
}

impl PlanningPolicy for BuiltinPlanner {
    fn attach(&mut self, setup: &Setup) {
        let options = ModelOptions {
            most_samples: self.config.max_samples as usize,
            cells: self.config.cells as usize,
            min_observations: self.config.min_observations as usize,
            features: self.config.features,
            tie_seed: self.config.tie_seed,
        };
        let pool = |setup: &PoolSetup| Pool {
            setup: self.believed(setup),
            model: PassModel::new(setup.role, &options),
            lower_bound: 1,
            min_endpoint: self.least_workers(setup.role),
        };
        self.pools = setup.pools.iter().map(pool).collect();
        if self.config.target == Target::Sla {
            self.bootstrap();
        }
    }

    fn tick_interval(&self) -> SimDuration {
        SimDuration::from_ns(self.config.tick_ms.saturating_mul(1_000_000))
    }

    fn looks_at(&self, now: SimTime) -> Interest {
        let throughput = self.throughput_is_due(now);
        let load_alone = self.config.target == Target::Sla && !self.config.throughput_scaling;
        Interest { traffic: throughput || (load_alone && self.load_is_due(now)), forecast: throughput }
    }

    fn predictor(&self) -> Option<PolicyConfig> {
        self.config.throughput_scaling.then(|| self.config.predictor.clone())
    }

    fn predictor_problem(&self, problem: &str) -> String {
        self.fields.predictor_problem(problem)
    }

    fn plan(&mut self, observation: &Observation) -> Decision {
        let now = observation.now;
        let (load_is_due, throughput_is_due) = (self.load_is_due(now), self.throughput_is_due(now));
        if load_is_due && self.config.target == Target::Sla {
            self.learn(observation);
        }
        if let Some(traffic) = &observation.traffic {
            self.note_traffic(traffic);
        }
        let mut proposals = Vec::new();
        let mut clamps = Vec::new();
        if throughput_is_due {
            self.last_throughput = now;
            let proposal = self.plan_throughput(observation, &mut clamps);
            if self.config.load_scaling {
                for (pool, bound) in self.pools.iter_mut().zip(&proposal.targets) {
                    pool.lower_bound = bound.unwrap_or(pool.lower_bound);
                }
            }
            proposals.push(proposal);
        }
        if load_is_due {
            self.last_load = now;
            if self.config.load_scaling {
                proposals.push(self.plan_load(observation, &mut clamps));
            }
        }
        let acting = if self.config.load_scaling { Rule::Load } else { Rule::Throughput };
        self.project(observation, proposals, acting, clamps)
    }

    fn gpu_bounds(&self) -> GpuBounds {
        let Budget { min: least, max: most } = self.budget();
        GpuBounds { least, most }
    }

    fn least_workers(&self, role: Role) -> u32 {
        match role {
            Role::Prefill => self.config.prefill_min_endpoint,
            Role::Agg | Role::Decode => self.config.decode_min_endpoint,
        }
    }

    fn problems(&self, mode: Option<DeploymentMode>) -> Vec<String> {
        self.fields.problems(mode)
    }
}

impl BuiltinPlanner {
    fn load_is_due(&self, now: SimTime) -> bool {
        is_due(now, self.last_load, self.config.load_interval_s)
    }

    fn throughput_is_due(&self, now: SimTime) -> bool {
        self.config.throughput_scaling && is_due(now, self.last_throughput, self.config.throughput_interval_s)
    }

    /// A pool as the planner takes it to be.
    fn believed(&self, setup: &PoolSetup) -> PoolSetup {
        let blocks = self.config.assumed_gpu_blocks.map(u64::from);
        let rank_kv_tokens =
            blocks.map_or(setup.rank_kv_tokens, |blocks| blocks * u64::from(setup.block_size));
        PoolSetup { rank_kv_tokens, ..setup.clone() }
    }

    /// Shows the models what the workers' timing says; both pools or neither.
    fn bootstrap(&mut self) {
        let shown: Vec<_> = self
            .pools
            .iter()
            .map(|pool| match pool.setup.role {
                Role::Prefill => vec![bootstrap::prefill_passes(&pool.setup)],
                Role::Decode => vec![bootstrap::decode_passes(&pool.setup)],
                Role::Agg => {
                    vec![bootstrap::prefill_passes(&pool.setup), bootstrap::decode_passes(&pool.setup)]
                }
            })
            .collect();
        if shown.len() > 1 && shown.iter().flatten().any(Vec::is_empty) {
            return;
        }
        for (pool, passes) in self.pools.iter_mut().zip(shown) {
            for pass in passes.iter().flatten() {
                pool.model.observe(pass);
            }
        }
    }

    fn learn(&mut self, observation: &Observation) {
        for (pool, seen) in self.pools.iter_mut().zip(&observation.pools) {
            for (_, pass) in &seen.passes {
                pool.model.observe(pass);
            }
        }
    }

    /// Without a placement that says anything, nothing was cached; without a step, the last length stands.
    fn note_traffic(&mut self, traffic: &TrafficWindow) {
        self.kv_hit_rate = traffic.kv_hit_rate.value().unwrap_or(0.0);
        self.accept_length = traffic.accept_length.value().unwrap_or(self.accept_length);
    }

    fn ticks<'a>(&'a self, observation: &'a Observation) -> Vec<PoolTick<'a>> {
        let tick = |(pool, seen): (&'a Pool, &'a PoolObservation)| {
            let (ready, staying) = (seen.state.ready(), seen.state.staying());
            PoolTick { pool, seen, ready, staying }
        };
        self.pools.iter().zip(&observation.pools).map(tick).collect()
    }

    /// A worker of a pool, as estimates see it.
    fn worker<'a>(&self, pool: &'a Pool) -> Worker<'a, PassModel> {
        let Pool { setup, model, .. } = pool;
        let drafts =
            if setup.speculative_nextn > 0 { setup.speculative_nextn } else { self.config.speculative_nextn };
        let limit = |limit: Option<u32>, otherwise: u64| limit.map_or(otherwise, u64::from);
        Worker {
            times: model,
            role: setup.role,
            max_num_batched_tokens: limit(setup.max_num_batched_tokens, DEFAULT_BATCHED_TOKENS),
            max_num_seqs: limit(setup.max_num_seqs, DEFAULT_SEQS),
            max_kv_tokens: max_kv_tokens(setup),
            average_isl: model.average_isl(),
            average_context: model.average_context(),
            typical_prefill: model.typical_prefill(),
            kv_hit_rate: self.kv_hit_rate,
            accept_length: if drafts == 0 {
                1.0
            } else {
                self.accept_length.clamp(1.0, f64::from(drafts + 1))
            },
        }
    }

    fn budget(&self) -> Budget {
        let bound = |gpus: i64| u32::try_from(gpus).ok();
        Budget { min: bound(self.config.min_gpu_budget), max: bound(self.config.max_gpu_budget) }
    }

    /// From proposals to targets: what acts, within the budget. A fleet that is out of its bounds is repaired although nobody
    /// proposes anything.
    fn project(
        &self,
        observation: &Observation,
        proposals: Vec<Proposal>,
        acting: Rule,
        mut clamps: Vec<Clamp>,
    ) -> Decision {
        let ticks = self.ticks(observation);
        let acts = proposals.iter().find(|proposal| proposal.by == acting.text());
        let ready: Vec<u32> = ticks.iter().map(|tick| tick.ready).collect();
        let nothing = vec![None; ticks.len()];
        let wanted: Vec<u32> = match acts {
            Some(proposal) => {
                proposal.targets.iter().zip(&ready).map(|(target, &ready)| target.unwrap_or(ready)).collect()
            }
            None => ready.clone(),
        };
        let endpoints = endpoints(&ticks);
        let in_bounds = self.clamp(&endpoints, &ready) == ready
            && ticks.iter().all(|tick| tick.ready >= tick.pool.min_endpoint);
        let proposes = wanted != ready;
        let mut rule = if proposes { acting } else { Rule::None };
        if !proposes && (in_bounds || ticks.iter().any(PoolTick::is_changing)) {
            return Decision { targets: nothing, proposals, rule: rule.text(), clamps: Clamp::texts(clamps) };
        }
        let mut targets = self.clamp(&endpoints, &wanted);
        for (target, tick) in targets.iter_mut().zip(&ticks) {
            *target = (*target).max(tick.pool.min_endpoint);
        }
        if targets != wanted {
            clamps.push(Clamp::Bounds);
        }
        if !proposes {
            rule = Rule::Repair;
        }
        let changed =
            targets.iter().zip(&ready).map(|(&target, &ready)| (target != ready).then_some(target)).collect();
        Decision { targets: changed, proposals, rule: rule.text(), clamps: Clamp::texts(clamps) }
    }

    fn clamp(&self, endpoints: &[Endpoint], workers: &[u32]) -> Vec<u32> {
        match (endpoints, workers) {
            (&[prefill, decode], &[p, d]) => self.budget().clamp_pair([prefill, decode], [p, d]).to_vec(),
            (&[pool], &[workers]) => vec![self.budget().clamp_single(pool, workers)],
            _ => workers.to_vec(),
        }
    }

    /// What pools may become when `proposed` is wanted of them.
    fn guard(&self, ticks: &[PoolTick<'_>], proposed: &[u32], clamps: &mut Vec<Clamp>) -> Vec<u32> {
        let endpoints = endpoints(ticks);
        let guarded = match (&endpoints[..], ticks, proposed) {
            (&[pool], [tick], &[proposed]) => {
                let guarded = self.budget().guard_single(pool, tick.ready, proposed);
                if guarded.reconciles {
                    clamps.push(Clamp::Reconcile);
                }
                vec![guarded.workers]
            }
            (&[prefill, decode], [of_prefill, of_decode], &[p, d]) => {
                let (pools, current) = ([prefill, decode], [of_prefill.ready, of_decode.ready]);
                if current[0] < prefill.min || current[1] < decode.min {
                    self.budget().clamp_pair(pools, [p.max(prefill.min), d.max(decode.min)]).to_vec()
                } else {
                    let guarded = self.budget().guard_pair(pools, current, [p, d]);
                    if guarded.reconciles {
                        clamps.push(Clamp::Reconcile);
                    }
                    guarded.workers.to_vec()
                }
            }
            _ => proposed.to_vec(),
        };
        if guarded != proposed && clamps.last() != Some(&Clamp::Reconcile) {
            clamps.push(Clamp::GpuBudget);
        }
        guarded
    }
}

fn endpoints(ticks: &[PoolTick<'_>]) -> Vec<Endpoint> {
    let endpoint =
        |tick: &PoolTick<'_>| Endpoint { gpus: tick.pool.setup.gpus_per_worker, min: tick.pool.min_endpoint };
    ticks.iter().map(endpoint).collect()
}

/// KV tokens of a worker: those of all its ranks, although passes are reported rank by rank. The reference compares the two.
fn max_kv_tokens(setup: &PoolSetup) -> u64 {
    setup.rank_kv_tokens * u64::from(setup.dp_size)
}

fn is_due(now: SimTime, last: SimTime, interval_s: u32) -> bool {
    (now - last).as_ns() >= u64::from(interval_s) * 1_000_000_000
}
