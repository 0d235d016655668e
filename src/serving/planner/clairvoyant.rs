//! Knows every request beforehand: what a planner could do at best, to measure the others by.
//!
//! Requests are work with a deadline, `slack_s` after their arrival. At every tick a pool gets the smallest fleet that, if it
//! stayed, would meet all deadlines to come: the largest, over all times to come, of the work due by then divided by the time
//! until then. That is the offline rule of Yao, Demers and Shenker for the lowest speed that is always enough, from the time on
//! when a worker ordered now has started. Work is worked out from the workers' timing, in which caches and mixed passes do not appear:
//! so it is a bound on what foresight is worth and not an optimum of the replay.
//!
//! Open loops only know their first turns by the clock: later turns, and closed loops, count when their sessions start.

use serde::Deserialize;

use super::demand::{changes, problems, within_budget};
use super::terms::{Clamp, Reason, Rule};
use super::work::WorkModel;
use super::{Decision, GpuBounds, Interest, Observation, PlanningPolicy, PoolSetup, Setup};
use crate::config::scenario::DeploymentMode;
use crate::report::record::Role;
use crate::report::scaling::Proposal;
use crate::simulation::{SimDuration, SimTime};
use crate::workload::Workload;

/// Plans by the requests to come.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Clairvoyant {
    /// Seconds between two decisions.
    pub interval_s: f64,
    /// Seconds after its arrival in which a request is to be worked off.
    pub slack_s: f64,
    /// Share of its time that a worker is to be busy.
    pub utilisation: f64,
    /// Bound of the gap between tokens, in milliseconds: it limits the batches that are counted on.
    pub itl_ms: f64,
    /// GPUs at most.
    pub max_gpu_budget: u32,
    /// Workers of each pool at least.
    pub min_endpoint: u32,
    #[serde(skip)]
    pools: Vec<Future>,
}

/// The work that will come to a pool.
#[derive(Clone, Debug)]
struct Future {
    setup: PoolSetup,
    /// Seconds of work that arrive in each interval.
    work_s: Vec<f64>,
    /// Seconds of work that have arrived and would not be done yet.
    backlog_s: f64,
}

impl Default for Clairvoyant {
    fn default() -> Self {
        Self {
            interval_s: 5.0,
            slack_s: 10.0,
            utilisation: 0.8,
            itl_ms: 50.0,
            max_gpu_budget: 8,
            min_endpoint: 1,
            pools: Vec::new(),
        }
    }
}

impl Clairvoyant {
    fn foresee(&self, setup: &PoolSetup, workload: &Workload) -> Future {
        let model = WorkModel::new(setup, self.itl_ms);
        let mut work_s = Vec::new();
        let mut at = SimTime::ZERO;
        for request in &workload.requests {
            at = if request.turn == 0 { request.arrival } else { at + request.delay };
            let interval = (at.as_ns() as f64 / 1e9 / self.interval_s) as usize;
            if work_s.len() <= interval {
                work_s.resize(interval + 1, 0.0);
            }
            work_s[interval] += model.seconds(request.input_length, request.output_length);
        }
        Future { setup: setup.clone(), work_s, backlog_s: 0.0 }
    }

    /// The smallest number of workers, not rounded, that meets all deadlines of what comes from interval `from` on and of
    /// `backlog_s` seconds of work left by then.
    fn need(&self, future: &Future, from: usize, backlog_s: f64) -> f64 {
        let (mut due_s, mut most) = (backlog_s, backlog_s / self.slack_s);
        for (steps, work_s) in future.work_s.iter().skip(from).enumerate() {
            due_s += work_s;
            most = most.max(due_s / (self.interval_s * (steps + 1) as f64 + self.slack_s));
        }
        most / self.utilisation
    }

    /// Workers that a pool should have from interval `now` on, when `staying` are there or on their way. A worker ordered now
    /// helps from when it has started; until then those that are there do what they can, and none of them goes that is needed.
    fn wish(&self, future: &Future, now: usize, staying: u32) -> f64 {
        let starts = (future.setup.startup.as_ns() as f64 / 1e9 / self.interval_s).ceil() as usize;
        let mut backlog_s = future.backlog_s;
        for work_s in future.work_s.iter().skip(now).take(starts) {
            backlog_s =
                (backlog_s + work_s - f64::from(staying) * self.interval_s * self.utilisation).max(0.0);
        }
        let later = self.need(future, now + starts, backlog_s);
        later.max(self.need(future, now, future.backlog_s).min(staying.into()))
    }
}

impl PlanningPolicy for Clairvoyant {
    fn attach(&mut self, setup: &Setup) {
        self.pools = setup.pools.iter().map(|pool| self.foresee(pool, &setup.workload)).collect();
    }

    fn tick_interval(&self) -> SimDuration {
        SimDuration::from_seconds(self.interval_s).unwrap_or_default()
    }

    fn looks_at(&self, _now: SimTime) -> Interest {
        Interest { traffic: false, forecast: false }
    }

    fn plan(&mut self, observation: &Observation) -> Decision {
        let now = observation.tick as usize + 1;
        for (future, seen) in self.pools.iter_mut().zip(&observation.pools) {
            let done_s = f64::from(seen.state.ready()) * self.interval_s;
            let came_s = future.work_s.get(now - 1).copied().unwrap_or(0.0);
            future.backlog_s = (future.backlog_s + came_s - done_s).max(0.0);
        }
        let pools = self.pools.iter().zip(&observation.pools);
        let needs: Vec<f64> =
            pools.map(|(future, seen)| self.wish(future, now, seen.state.staying())).collect();
        let wanted: Vec<u32> = needs.iter().map(|need| (need.ceil() as u32).max(self.min_endpoint)).collect();
        let pools: Vec<PoolSetup> = self.pools.iter().map(|future| future.setup.clone()).collect();
        let targets = within_budget(&pools, &wanted, self.max_gpu_budget, self.min_endpoint);
        let proposal = Proposal {
            by: Rule::Foresight.text(),
            reason: Reason::WorkToCome.text(),
            targets: wanted.iter().copied().map(Some).collect(),
            figures: ["need", "decode_need"].into_iter().zip(needs.into_iter().map(Some)).collect(),
        };
        let clamps = if targets == wanted { vec![] } else { vec![Clamp::GpuBudget.text()] };
        Decision {
            targets: changes(observation, &targets),
            proposals: vec![proposal],
            rule: Rule::Foresight.text(),
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
        problems(
            &[
                ("interval_s", self.interval_s),
                ("slack_s", self.slack_s),
                ("utilisation", self.utilisation),
                ("itl_ms", self.itl_ms),
            ],
            self.min_endpoint,
            self.max_gpu_budget,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::work::tests::pool;
    use super::*;
    use crate::report::record::Role;

    fn future(work_s: &[f64]) -> Future {
        Future { setup: pool(Role::Agg), work_s: work_s.to_vec(), backlog_s: 0.0 }
    }

    #[test]
    fn a_wave_is_met_by_the_smallest_fleet_that_is_always_enough() {
        let planner = Clairvoyant { utilisation: 1.0, ..Clairvoyant::default() };
        // 90 seconds of work in the second interval, due 20 seconds from now: spread, 4.5 workers do.
        assert_eq!(planner.need(&future(&[0.0, 90.0, 0.0]), 0, 0.0), 4.5);
        assert_eq!(planner.need(&future(&[0.0, 90.0, 0.0]), 2, 0.0), 0.0);
        assert_eq!(planner.need(&future(&[]), 7, 50.0), 5.0);
    }

    #[test]
    fn it_looks_ahead_by_the_time_that_workers_take_to_start() {
        let planner = Clairvoyant { utilisation: 1.0, ..Clairvoyant::default() };
        let mut slow = future(&[0.0, 0.0, 60.0]);
        assert_eq!(planner.wish(&slow, 0, 1), 60.0 / 25.0);
        slow.setup.startup = SimDuration::from_seconds(10.0).unwrap();
        assert_eq!(planner.wish(&slow, 0, 1), 60.0 / 15.0, "when a new one is ready, the wave is there");
        slow.backlog_s = 30.0;
        assert_eq!(planner.wish(&slow, 0, 2), 70.0 / 15.0, "two workers take off 20 until then");
        let calm = Future { backlog_s: 30.0, ..future(&[0.0]) };
        assert_eq!(planner.wish(&calm, 5, 2), 3.0);
    }
}
