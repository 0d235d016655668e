//! Weighs cached prefixes against load.
//!
//! The cost of a worker, in KV blocks, is the prefill work it would have, less what its cache saves, plus the blocks it would
//! have to keep active:
//!
//! ```text
//! prefill = (active prefill tokens + prompt tokens) / block size
//! credit  = overlap_score_credit * decay * overlap blocks
//! cost    = prefill_load_scale * max(0, prefill - credit)
//!         + distinct active blocks once the request is there
//!         + decode_active_request_weight * active requests
//! decay   = 1 / (1 + overlap_score_credit_decay * excess / max(1, request blocks))
//! ```
//!
//! where `excess` is how many blocks of prefill work the worker has more than the least busy one. With `router_temperature`
//! 0 the cheapest worker wins and ties are drawn evenly from the router's random stream; above it, workers are
//! drawn with softmax weights of their costs, scaled by the spread of costs.
//!
//! With a `queue_threshold`, requests wait in front of the router, in the order of `queue_policy`, while all workers are busy.

use serde::Deserialize;

use super::choice::choose;
use super::limits::{duration, lag_problem, not_negative};
use super::{
    Needs, Overlap, PolicyContext, Queue, QueuePolicy, RequestView, Route, RoutingPolicy, WorkerView,
};
use crate::report::record::Role;

/// The cost-based router.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KvRouter {
    /// How much a cached block is worth, 0 to 1.
    pub overlap_score_credit: f64,
    /// How fast that worth falls with the worker's excess of prefill work.
    pub overlap_score_credit_decay: f64,
    /// Weight of prefill work against active blocks.
    pub prefill_load_scale: f64,
    /// Blocks that each active request counts as.
    pub decode_active_request_weight: f64,
    /// 0 takes the cheapest worker, more draws more evenly.
    pub router_temperature: f64,
    /// Whether active blocks count.
    pub track_active_blocks: bool,
    /// Whether prefill work counts.
    pub track_prefill_tokens: bool,
    /// Whether requests with a common prefix share active blocks.
    pub assume_kv_reuse: bool,
    /// How much later than the end of a pass the router hears of changes of a cache, in milliseconds.
    pub kv_event_lag_ms: f64,
    /// Requests wait in front of the router while every worker has more prefill tokens than this share of what one pass may
    /// compute. A request that waits keeps what was known of the caches when it came.
    pub queue_threshold: Option<f64>,
    /// Order of that waiting room.
    pub queue_policy: QueuePolicy,
    #[serde(skip)]
    costs: Vec<f64>,
}

impl Default for KvRouter {
    fn default() -> Self {
        Self {
            overlap_score_credit: 1.0,
            overlap_score_credit_decay: 0.0,
            prefill_load_scale: 1.0,
            decode_active_request_weight: 0.0,
            router_temperature: 0.0,
            track_active_blocks: true,
            track_prefill_tokens: true,
            assume_kv_reuse: true,
            kv_event_lag_ms: 0.0,
            queue_threshold: None,
            queue_policy: QueuePolicy::Fcfs,
            costs: Vec::new(),
        }
    }
}

impl KvRouter {
    /// The cost of placing `request` on `worker`, in blocks. `least_prefill_tokens` is the smallest
    /// [`WorkerView::active_prefill_tokens`] of all workers.
    pub fn cost(&self, request: &RequestView, worker: &WorkerView, least_prefill_tokens: u64) -> f64 {
        let block_size = f64::from(request.block_size);
        let overlap_blocks = f64::from(worker.overlap_blocks);
        let cached_tokens = overlap_blocks * block_size;
        let prefill_blocks = if self.track_prefill_tokens {
            let new_tokens = (f64::from(request.input_length) - cached_tokens).max(0.0);
            (worker.active_prefill_tokens as f64 + new_tokens + cached_tokens) / block_size
        } else {
            0.0
        };
        let excess_blocks = (worker.active_prefill_tokens - least_prefill_tokens) as f64 / block_size;
        let request_blocks = f64::from(request.blocks().max(1));
        let decay = 1.0 / (1.0 + self.overlap_score_credit_decay * excess_blocks / request_blocks);
        let credit = self.overlap_score_credit * decay * overlap_blocks;
        self.prefill_load_scale * (prefill_blocks - credit).max(0.0)
            + self.active_blocks(request, worker)
            + self.decode_active_request_weight * f64::from(worker.active_requests)
    }

    /// Active blocks of a worker once the request is there.
    fn active_blocks(&self, request: &RequestView, worker: &WorkerView) -> f64 {
        let blocks = u64::from(request.blocks());
        if !self.track_active_blocks {
            0.0
        } else if self.assume_kv_reuse {
            (worker.active_blocks + blocks - u64::from(worker.shared_active_blocks)) as f64
        } else {
            (worker.active_blocks_unshared + blocks) as f64
        }
    }
}

impl RoutingPolicy for KvRouter {
    fn route(
        &mut self,
        request: &RequestView,
        workers: &[WorkerView],
        ctx: &mut PolicyContext<'_, '_>,
    ) -> Route {
        let least = workers.iter().map(|worker| worker.active_prefill_tokens).min().unwrap_or(0);
        let mut costs = std::mem::take(&mut self.costs);
        costs.clear();
        costs.extend(workers.iter().map(|worker| self.cost(request, worker, least)));
        let choice = choose(&costs, self.router_temperature, ctx);
        self.costs = costs;
        Route::To(workers[choice].id)
    }

    fn needs(&self) -> Needs {
        // Where prefill work does not count, it shuts no waiting room either.
        let queue = self.queue_threshold.filter(|_| self.track_prefill_tokens);
        let overlap_counts = self.overlap_score_credit > 0.0 || self.track_prefill_tokens;
        Needs {
            load: true,
            blocks: self.track_active_blocks,
            overlap: if overlap_counts {
                Overlap::Reported { lag: duration(self.kv_event_lag_ms) }
            } else {
                Overlap::Unknown
            },
            queue: queue.map(|threshold| Queue { threshold, policy: self.queue_policy }),
        }
    }

    /// Prefill workers are chosen by their prompts alone, decode workers by their active blocks alone, each request with
    /// blocks of its own.
    fn derive_for(&mut self, role: Role) {
        match role {
            Role::Agg => {}
            Role::Prefill => self.track_active_blocks = false,
            Role::Decode => {
                self.overlap_score_credit = 0.0;
                self.assume_kv_reuse = false;
                self.track_prefill_tokens = false;
            }
        }
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = not_negative(&[
            ("overlap_score_credit_decay", self.overlap_score_credit_decay),
            ("prefill_load_scale", self.prefill_load_scale),
            ("decode_active_request_weight", self.decode_active_request_weight),
            ("router_temperature", self.router_temperature),
            ("queue_threshold", self.queue_threshold.unwrap_or_default()),
        ]);
        problems.extend(lag_problem(self.kv_event_lag_ms));
        if !(0.0..=1.0).contains(&self.overlap_score_credit) {
            problems.push(format!(
                "overlap_score_credit: {} must lie between 0 and 1",
                self.overlap_score_credit
            ));
        }
        if self.queue_threshold.is_some() && !self.track_prefill_tokens {
            problems.push("queue_threshold: has no effect with `track_prefill_tokens: false`".into());
        }
        if self.queue_threshold.is_none() && self.queue_policy != QueuePolicy::Fcfs {
            problems.push("queue_policy: has no effect without `queue_threshold`".into());
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_support::REQUEST;
    use super::*;
    use crate::serving::message::WorkerId;

    /// Three of the request's blocks are cached here, and active in a request that decodes.
    fn busy() -> WorkerView {
        WorkerView {
            overlap_blocks: 3,
            active_blocks: 3,
            active_blocks_unshared: 3,
            shared_active_blocks: 3,
            active_requests: 1,
            ..WorkerView::idle(WorkerId(0))
        }
    }

    #[test]
    fn costs_of_the_conformance_case() {
        let idle = WorkerView::idle(WorkerId(1));
        let router = KvRouter::default();
        assert_eq!(router.cost(&REQUEST, &busy(), 0), 5.0);
        assert_eq!(router.cost(&REQUEST, &idle, 0), 8.0);
        let prefilling = WorkerView { active_prefill_tokens: 24, ..busy() };
        assert_eq!(router.cost(&REQUEST, &prefilling, 0), 11.0);
        let blind = KvRouter { overlap_score_credit: 0.0, prefill_load_scale: 0.0, ..KvRouter::default() };
        assert_eq!((blind.cost(&REQUEST, &busy(), 0), blind.cost(&REQUEST, &idle, 0)), (4.0, 4.0));
    }

    #[test]
    fn every_weight_acts() {
        let cost =
            |router: KvRouter| router.cost(&REQUEST, &WorkerView { active_prefill_tokens: 8, ..busy() }, 0);
        let base = KvRouter::default();
        assert_eq!(cost(base.clone()), 3.0 + 4.0);
        assert_eq!(cost(KvRouter { decode_active_request_weight: 2.0, ..base.clone() }), 9.0);
        assert_eq!(cost(KvRouter { track_active_blocks: false, ..base.clone() }), 3.0);
        assert_eq!(cost(KvRouter { track_prefill_tokens: false, ..base.clone() }), 4.0);
        assert_eq!(cost(KvRouter { assume_kv_reuse: false, ..base.clone() }), 3.0 + 7.0);
        // Two blocks in excess of the least busy worker, four blocks in the request: 3 / (1 + 2 * 2 / 4) = 1.5.
        assert_eq!(cost(KvRouter { overlap_score_credit_decay: 2.0, ..base }), 4.5 + 4.0);
    }

    #[test]
    fn a_pool_is_served_by_what_concerns_it() {
        let derived = |role| {
            let mut router = KvRouter { queue_threshold: Some(1.0), ..KvRouter::default() };
            router.derive_for(role);
            router
        };
        let prefill = derived(Role::Prefill);
        assert_eq!(prefill.cost(&REQUEST, &busy(), 0), 1.0);
        assert!(prefill.needs().queue.is_some() && !prefill.needs().blocks);
        let decode = derived(Role::Decode);
        assert_eq!(decode.cost(&REQUEST, &busy(), 0), 7.0);
        assert_eq!(decode.needs(), Needs { load: true, blocks: true, ..Needs::default() });
    }

    #[test]
    fn impossible_fields_are_named() {
        let bad = KvRouter {
            overlap_score_credit: f64::NAN,
            prefill_load_scale: -1.0,
            router_temperature: f64::INFINITY,
            kv_event_lag_ms: 1e13,
            queue_threshold: Some(f64::NAN),
            track_prefill_tokens: false,
            ..KvRouter::default()
        };
        let problems = bad.problems();
        for field in [
            "overlap_score_credit:",
            "prefill_load_scale:",
            "router_temperature:",
            "kv_event_lag_ms:",
            "queue_threshold: NaN",
            "queue_threshold: has no effect",
        ] {
            assert!(problems.iter().any(|problem| problem.starts_with(field)), "{field} {problems:#?}");
        }
        assert_eq!(problems.len(), 6);
        let idle_order = KvRouter { queue_policy: QueuePolicy::Lcfs, ..KvRouter::default() };
        assert_eq!(idle_order.problems(), ["queue_policy: has no effect without `queue_threshold`"]);
    }
}
