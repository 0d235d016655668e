//! Scales to what comes in and to what waits, in one step.
//!
//! The reference's load scaling does not see requests in front of a router and moves by one worker; its throughput scaling does
//! not see a backlog at all. Here a pool needs
//!
//! ```text
//! need = (arrivals per second + backlog / horizon) * seconds of work per request / utilisation
//! ```
//!
//! where the backlog is every request that has arrived and is in no batch. It grows at once to the need; it shrinks only when
//! the need is well below what there is, and never under what the need and the dead band together ask for.

use serde::Deserialize;

use super::demand::{changes, problems, within_budget};
use super::terms::{Clamp, Reason, Rule};
use super::work::WorkModel;
use super::{Decision, GpuBounds, Interest, Observation, PlanningPolicy, PoolSetup, Setup};
use crate::config::scenario::DeploymentMode;
use crate::report::record::Role;
use crate::report::scaling::Proposal;
use crate::simulation::{SimDuration, SimTime};

/// Plans by arrivals and backlog.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QueueAware {
    /// Seconds between two decisions.
    pub interval_s: f64,
    /// Seconds over which arrivals are averaged.
    pub window_s: f64,
    /// Seconds in which a backlog is to be worked off.
    pub horizon_s: f64,
    /// Share of its time that a worker is to be busy.
    pub utilisation: f64,
    /// Share of the fleet that has to be idle before it shrinks.
    pub dead_band: f64,
    /// Bound of the gap between tokens, in milliseconds: it limits the batches that are counted on.
    pub itl_ms: f64,
    /// GPUs at most.
    pub max_gpu_budget: u32,
    /// Workers of each pool at least.
    pub min_endpoint: u32,
    #[serde(skip)]
    pools: Vec<(PoolSetup, WorkModel)>,
    /// Arrivals per second, averaged.
    #[serde(skip)]
    rate_rps: Option<f64>,
    /// Lengths of requests, as last seen.
    #[serde(skip)]
    lengths: Option<(f64, f64)>,
}

impl Default for QueueAware {
    fn default() -> Self {
        Self {
            interval_s: 5.0,
            window_s: 30.0,
            horizon_s: 15.0,
            utilisation: 0.8,
            dead_band: 0.25,
            itl_ms: 50.0,
            max_gpu_budget: 8,
            min_endpoint: 1,
            pools: Vec::new(),
            rate_rps: None,
            lengths: None,
        }
    }
}

impl QueueAware {
    /// Learns from the window and from what is under way.
    fn learn(&mut self, observation: &Observation) {
        if let Some(traffic) = &observation.traffic
            && traffic.duration_s > 0.0
        {
            let rate = traffic.num_req as f64 / traffic.duration_s;
            let weight = (traffic.duration_s / self.window_s).min(1.0);
            let before = self.rate_rps.unwrap_or(rate);
            // A rising rate counts at once.
            self.rate_rps = Some(rate.max(before + weight * (rate - before)));
        }
        let outstanding = observation.outstanding;
        if outstanding.requests > 0 {
            let count = outstanding.requests as f64;
            self.lengths =
                Some((outstanding.input_tokens as f64 / count, outstanding.output_tokens as f64 / count));
        }
    }

    /// Workers that a pool needs, not rounded.
    fn need(&self, work: &WorkModel, backlog: f64) -> f64 {
        let Some((input, output)) = self.lengths else { return 0.0 };
        let demand_rps = self.rate_rps.unwrap_or(0.0) + backlog / self.horizon_s;
        demand_rps * work.seconds(input.ceil() as u32, output.ceil() as u32) / self.utilisation
    }

    /// Up to the need at once, down only across the dead band.
    fn settle(&self, need: f64, staying: u32) -> u32 {
        let up = need.ceil() as u32;
        let down = (need / (1.0 - self.dead_band)).ceil() as u32;
        staying.clamp(up, down.max(up))
    }
}

impl PlanningPolicy for QueueAware {
    fn attach(&mut self, setup: &Setup) {
        let work = |pool: &PoolSetup| (pool.clone(), WorkModel::new(pool, self.itl_ms));
        self.pools = setup.pools.iter().map(work).collect();
    }

    fn tick_interval(&self) -> SimDuration {
        SimDuration::from_seconds(self.interval_s).unwrap_or_default()
    }

    fn looks_at(&self, _now: SimTime) -> Interest {
        Interest { traffic: true, forecast: false }
    }

    fn plan(&mut self, observation: &Observation) -> Decision {
        self.learn(observation);
        let in_batches: u64 = observation
            .pools
            .iter()
            .flat_map(|pool| &pool.passes)
            .map(|(_, pass)| u64::from(pass.decode.requests) + u64::from(pass.prefill.requests))
            .sum();
        let backlog = observation.outstanding.requests.saturating_sub(in_batches) as f64;
        let needs: Vec<f64> = self.pools.iter().map(|(_, work)| self.need(work, backlog)).collect();
        let wanted: Vec<u32> = needs
            .iter()
            .zip(&observation.pools)
            .map(|(&need, pool)| self.settle(need, pool.state.staying()).max(self.min_endpoint))
            .collect();
        let pools: Vec<PoolSetup> = self.pools.iter().map(|(pool, _)| pool.clone()).collect();
        let targets = within_budget(&pools, &wanted, self.max_gpu_budget, self.min_endpoint);
        let figures = ["need", "decode_need"].into_iter().zip(needs.into_iter().map(Some));
        let reported = [("rate_rps", self.rate_rps), ("backlog", Some(backlog))];
        let proposal = Proposal {
            by: Rule::Demand.text(),
            reason: if backlog > 0.0 { Reason::ArrivalsAndBacklog } else { Reason::Arrivals }.text(),
            targets: wanted.iter().copied().map(Some).collect(),
            figures: reported.into_iter().chain(figures).collect(),
        };
        let clamps = if targets == wanted { vec![] } else { vec![Clamp::GpuBudget.text()] };
        Decision {
            targets: changes(observation, &targets),
            proposals: vec![proposal],
            rule: Rule::Demand.text(),
            clamps,
        }
    }

    fn gpu_bounds(&self) -> GpuBounds {
        GpuBounds { least: None, most: Some(self.max_gpu_budget) }
    }

    fn least_workers(&self, _role: Role) -> u32 {
        self.min_endpoint
    }

    fn problems(&self, _mode: Option<DeploymentMode>) -> Vec<String> {
        let mut problems = problems(
            &[
                ("interval_s", self.interval_s),
                ("window_s", self.window_s),
                ("horizon_s", self.horizon_s),
                ("utilisation", self.utilisation),
                ("itl_ms", self.itl_ms),
            ],
            self.min_endpoint,
            self.max_gpu_budget,
        );
        if !(0.0..1.0).contains(&self.dead_band) {
            problems.push(format!("dead_band: {} must be at least 0 and below 1", self.dead_band));
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::work::tests::pool;
    use super::super::{Outstanding, PoolObservation, traffic::TrafficWindow};
    use super::*;
    use crate::report::record::Role;
    use crate::serving::fleet::PoolState;
    use crate::workload::Workload;

    /// Requests of 500 and 100 tokens: 0.01 + 0.05 seconds of work.
    fn observation(rate_rps: f64, waiting: u64, workers: u32) -> Observation {
        let state = PoolState { active: (0..workers).collect(), ..PoolState::default() };
        let traffic =
            TrafficWindow { duration_s: 5.0, num_req: (rate_rps * 5.0) as u64, ..TrafficWindow::default() };
        Observation {
            now: SimTime::ZERO,
            tick: 0,
            pools: vec![PoolObservation { state, ..PoolObservation::default() }],
            traffic: Some(traffic),
            forecast: None,
            outstanding: Outstanding {
                requests: waiting,
                input_tokens: 500 * waiting,
                output_tokens: 100 * waiting,
            },
        }
    }

    fn target(planner: &mut QueueAware, observation: &Observation) -> u32 {
        let staying = observation.pools[0].state.staying();
        planner.plan(observation).targets[0].unwrap_or(staying)
    }

    fn planner() -> QueueAware {
        let mut planner = QueueAware { max_gpu_budget: 20, ..QueueAware::default() };
        let setup = Setup {
            mode: DeploymentMode::Agg,
            pools: vec![pool(Role::Agg)],
            workload: Arc::new(Workload::default()),
        };
        planner.attach(&setup);
        planner
    }

    #[test]
    fn a_backlog_is_worked_off_within_the_horizon() {
        // 20 + 300 / 15 requests per second of 0.06 seconds each, at 80 % utilisation.
        assert_eq!(target(&mut planner(), &observation(20.0, 300, 1)), 3);
        assert_eq!(target(&mut planner(), &observation(20.0, 30_000, 1)), 20, "the budget");
    }

    #[test]
    fn it_shrinks_only_across_the_dead_band() {
        let mut planner = planner();
        assert_eq!(target(&mut planner, &observation(60.0, 1, 5)), 5);
        let mut calm = planner.clone();
        calm.rate_rps = None;
        assert_eq!(target(&mut calm, &observation(55.0, 1, 5)), 5, "4.1 are needed");
        calm.rate_rps = None;
        assert_eq!(target(&mut calm, &observation(20.0, 1, 5)), 3, "1.5 are needed, and the dead band");
        calm.rate_rps = None;
        assert_eq!(target(&mut calm, &observation(0.0, 0, 5)), 1);
    }

    #[test]
    fn impossible_fields_are_named() {
        let bad = QueueAware { dead_band: 1.0, horizon_s: 0.0, min_endpoint: 0, ..QueueAware::default() };
        assert_eq!(bad.problems(None).len(), 3);
        let restless = QueueAware { interval_s: 1e-9, ..QueueAware::default() };
        assert_eq!(
            restless.problems(None),
            ["interval_s: 1e-9 is less than 0.01, the shortest time between two ticks"]
        );
    }
}
