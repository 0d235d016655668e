//! Throughput scaling: as many workers as the forecast traffic needs.

use super::super::terms::{Clamp, Reason, Rule};
use super::estimates::Demand;
use super::{BuiltinPlanner, Observation, Pool, PoolTick};
use crate::report::record::Role;
use crate::report::scaling::Proposal;
use crate::serving::predictor::Forecast;

const BY: &str = Rule::Throughput.text();

impl BuiltinPlanner {
    pub(super) fn plan_throughput(&self, observation: &Observation, clamps: &mut Vec<Clamp>) -> Proposal {
        let ticks = self.ticks(observation);
        let nothing = |reason: Reason| Proposal {
            by: BY,
            reason: reason.text(),
            targets: vec![None; ticks.len()],
            figures: Vec::new(),
        };
        let duration_s = observation.traffic.as_ref().map_or(0.0, |traffic| traffic.duration_s);
        if duration_s <= 0.0 {
            return nothing(Reason::NoTrafficWindow);
        }
        let Some(forecast) = observation.forecast else { return nothing(Reason::PredictFailed) };
        let demand_rps = forecast.num_req / duration_s;
        let mut figures = vec![("demand_rps", Some(demand_rps))];
        let mut wanted = Vec::new();
        let mut is_ready = true;
        for tick in &ticks {
            let capacity_rps = self.capacity_rps(tick.pool, &forecast);
            figures.push((capacity_name(tick.pool), capacity_rps));
            is_ready &= capacity_rps.is_some();
            wanted.push(capacity_rps.map_or(tick.ready, |capacity_rps| {
                let workers = (demand_rps / capacity_rps).ceil().min(f64::from(u32::MAX)) as u32;
                workers.max(tick.pool.min_endpoint)
            }));
        }
        if !is_ready {
            // One side that is not ready freezes both.
            wanted = ticks.iter().map(|tick| tick.ready).collect();
        }
        let mut targets = self.cap_step(&ticks, wanted, clamps);
        targets = self.fit_ceiling(&ticks, &targets, clamps);
        if !self.config.load_scaling {
            targets = self.guard(&ticks, &targets, clamps);
        }
        let ready: Vec<u32> = ticks.iter().map(|tick| tick.ready).collect();
        let reason = match (is_ready, targets == ready) {
            (false, _) => Reason::ModelNotReady,
            (true, true) => Reason::NoChange,
            (true, false) => Reason::Forecast,
        };
        Proposal { by: BY, reason: reason.text(), targets: targets.into_iter().map(Some).collect(), figures }
    }

    /// Requests per second of one worker; `None` while that is not known.
    fn capacity_rps(&self, pool: &Pool, forecast: &Forecast) -> Option<f64> {
        if pool.setup.role == Role::Agg && pool.setup.max_num_batched_tokens.is_none() {
            return None;
        }
        let mut worker = self.worker(pool);
        if pool.setup.role == Role::Decode {
            worker.kv_hit_rate = 0.0;
        }
        let demand = Demand {
            isl: forecast.isl,
            osl: forecast.osl,
            ttft_ms: self.config.ttft_ms,
            itl_ms: self.config.itl_ms,
        };
        let capacity_rps = worker.capacity(&demand)?.requests_per_s;
        (capacity_rps > 0.0).then_some(capacity_rps)
    }

    /// A step changes a pool by so many workers at most; the minimum number may go beyond.
    fn cap_step(&self, ticks: &[PoolTick<'_>], wanted: Vec<u32>, clamps: &mut Vec<Clamp>) -> Vec<u32> {
        let cap = self.config.max_step;
        let mut capped = Vec::with_capacity(wanted.len());
        for (wanted, tick) in wanted.into_iter().zip(ticks) {
            let target = wanted.clamp(tick.ready.saturating_sub(cap), tick.ready.saturating_add(cap));
            if target != wanted {
                clamps.push(Clamp::MaxStep);
            }
            capped.push(target.max(tick.pool.min_endpoint));
        }
        capped
    }

    /// The upper bound of the budget alone.
    fn fit_ceiling(&self, ticks: &[PoolTick<'_>], targets: &[u32], clamps: &mut Vec<Clamp>) -> Vec<u32> {
        let endpoints = super::endpoints(ticks);
        let ceiling = self.budget().ceiling();
        let fitted = match (&endpoints[..], ticks, targets) {
            (&[pool], [tick], &[target]) => vec![ceiling.guard_single(pool, tick.ready, target).workers],
            (&[prefill, decode], [of_prefill, of_decode], &[p, d]) => {
                let (pools, current) = ([prefill, decode], [of_prefill.ready, of_decode.ready]);
                let below = current[0] < prefill.min || current[1] < decode.min;
                let fitted = if below {
                    ceiling.clamp_pair(pools, [p, d])
                } else {
                    ceiling.directional_fit(pools, current, [p, d])
                };
                fitted.to_vec()
            }
            _ => targets.to_vec(),
        };
        if fitted != targets {
            clamps.push(Clamp::MaxGpuBudget);
        }
        fitted
    }
}

fn capacity_name(pool: &Pool) -> &'static str {
    match pool.setup.role {
        Role::Prefill => "prefill_capacity_rps",
        Role::Decode => "decode_capacity_rps",
        Role::Agg => "capacity_rps",
    }
}
