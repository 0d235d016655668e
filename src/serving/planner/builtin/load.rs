//! Load scaling of a deployment: whether it may decide, what each pool wants, and what becomes of that.

use super::super::terms::{Clamp, Reason, Rule};
use super::config::{EasyTarget, Target};
use super::easy::{self, kv_share, queued_tokens};
use super::sla::{self, Bounds, Opinion};
use super::{BuiltinPlanner, Observation, PoolTick, max_kv_tokens};
use crate::engine::metrics::PassMetrics;
use crate::report::record::Role;
use crate::report::scaling::Proposal;

/// What a pool wants, with what it went by.
#[derive(Default)]
struct Wish {
    /// `None` is no opinion.
    target: Option<u32>,
    /// Nothing was known.
    is_blind: bool,
    figures: Vec<(&'static str, Option<f64>)>,
}

fn proposal(
    reason: Reason,
    targets: Vec<Option<u32>>,
    figures: Vec<(&'static str, Option<f64>)>,
) -> Proposal {
    Proposal { by: Rule::Load.text(), reason: reason.text(), targets, figures }
}

impl BuiltinPlanner {
    pub(super) fn plan_load(&self, observation: &Observation, clamps: &mut Vec<Clamp>) -> Proposal {
        let ticks = self.ticks(observation);
        let nothing = |reason: Reason| proposal(reason, vec![None; ticks.len()], Vec::new());
        if ticks.iter().all(|tick| tick.seen.passes.is_empty()) {
            return nothing(Reason::InsufficientData);
        }
        if ticks.iter().any(PoolTick::is_changing) {
            return nothing(Reason::ScalingInProgress);
        }
        if !ticks.iter().all(is_covered) {
            return nothing(Reason::WorkerCountMismatch);
        }
        let wishes: Vec<Wish> = ticks.iter().map(|tick| self.wish(tick)).collect();
        let figures: Vec<_> = wishes.iter().flat_map(|wish| wish.figures.clone()).collect();
        // A pool alone that has no opinion is left alone. Of two, whoever has none stays what it is: minimum numbers and the
        // bound of throughput scaling hold all the same.
        let is_silent = wishes.iter().all(|wish| wish.target.is_none());
        let silence =
            if wishes.iter().all(|wish| wish.is_blind) { Reason::InsufficientData } else { Reason::NoChange };
        if is_silent && ticks.len() == 1 {
            return Proposal { figures, ..nothing(silence) };
        }
        let wanted: Vec<u32> =
            ticks.iter().zip(&wishes).map(|(tick, wish)| wish.target.unwrap_or(tick.ready)).collect();
        let targets = self.bound_load(&ticks, wanted, clamps);
        let ready = ticks.iter().map(|tick| tick.ready);
        let reason = match targets
            .iter()
            .zip(ready)
            .map(|(target, ready)| target.cmp(&ready))
            .fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
        {
            std::cmp::Ordering::Greater => Reason::ScaleUp,
            std::cmp::Ordering::Less => Reason::ScaleDown,
            std::cmp::Ordering::Equal if is_silent => silence,
            std::cmp::Ordering::Equal => Reason::NoChange,
        };
        proposal(reason, targets.into_iter().map(Some).collect(), figures)
    }

    /// Minimum numbers, the bound of throughput scaling, and the budget.
    fn bound_load(&self, ticks: &[PoolTick<'_>], wanted: Vec<u32>, clamps: &mut Vec<Clamp>) -> Vec<u32> {
        let mut targets = wanted;
        let mut is_lifted = false;
        for (target, tick) in targets.iter_mut().zip(ticks) {
            if *target < tick.pool.min_endpoint {
                *target = tick.pool.min_endpoint;
                clamps.push(Clamp::MinEndpoint);
            }
            if self.config.throughput_scaling && *target < tick.pool.lower_bound {
                *target = tick.pool.lower_bound;
                clamps.push(Clamp::ThroughputBound);
                is_lifted = true;
            }
        }
        if let ([prefill, decode], true) = (ticks, is_lifted) {
            let endpoints = super::endpoints(ticks);
            let current = [prefill.ready, decode.ready];
            let proposed = [targets[0], targets[1]];
            let fitted =
                self.budget().ceiling().directional_fit([endpoints[0], endpoints[1]], current, proposed);
            targets = fitted.to_vec();
        }
        self.guard(ticks, &targets, clamps)
    }

    fn wish(&self, tick: &PoolTick<'_>) -> Wish {
        let passes: Vec<PassMetrics> = tick.seen.passes.iter().map(|(_, pass)| *pass).collect();
        match (&self.config.target, tick.pool.setup.role) {
            (Target::Easy(target), role) => easy_wish(tick, &passes, target, role),
            (Target::Sla, Role::Prefill) => {
                let opinion = self.ttft_opinion(tick, &passes);
                Wish {
                    target: opinion.target,
                    is_blind: opinion.estimate_ms.is_none(),
                    figures: vec![("estimated_ttft_ms", opinion.estimate_ms)],
                }
            }
            (Target::Sla, Role::Decode) => {
                let opinion = self.gap_opinion(tick, &passes);
                Wish {
                    target: opinion.target,
                    is_blind: opinion.estimate_ms.is_none(),
                    figures: vec![("estimated_itl_ms", opinion.estimate_ms)],
                }
            }
            (Target::Sla, Role::Agg) => {
                if !tick.pool.model.is_ready() {
                    return Wish { is_blind: true, ..Wish::default() };
                }
                let (ttft, gap) = (self.ttft_opinion(tick, &passes), self.gap_opinion(tick, &passes));
                Wish {
                    target: Some(sla::combine(ttft.target, gap.target, tick.ready)),
                    is_blind: false,
                    figures: vec![
                        ("estimated_ttft_ms", ttft.estimate_ms),
                        ("estimated_itl_ms", gap.estimate_ms),
                    ],
                }
            }
        }
    }

    fn ttft_opinion(&self, tick: &PoolTick<'_>, passes: &[PassMetrics]) -> Opinion {
        if tick.pool.setup.max_num_batched_tokens.is_none() || !tick.pool.model.is_ready() {
            return Opinion::default();
        }
        sla::by_ttft(&self.worker(tick.pool), passes, tick.ready, &self.bounds(tick))
    }

    fn gap_opinion(&self, tick: &PoolTick<'_>, passes: &[PassMetrics]) -> Opinion {
        if !tick.pool.model.is_ready() {
            return Opinion::default();
        }
        let max_kv = Some(max_kv_tokens(&tick.pool.setup));
        sla::by_gap(&self.worker(tick.pool), passes, tick.ready, &self.bounds(tick), max_kv)
    }

    fn bounds(&self, tick: &PoolTick<'_>) -> Bounds {
        Bounds {
            ttft_ms: self.config.ttft_ms,
            itl_ms: self.config.itl_ms,
            sensitivity: f64::from(self.config.sensitivity) / 100.0,
            min_endpoint: tick.pool.min_endpoint,
        }
    }
}

fn easy_wish(tick: &PoolTick<'_>, passes: &[PassMetrics], target: &EasyTarget, role: Role) -> Wish {
    let setup = &tick.pool.setup;
    let (loads, thresholds, name): (Vec<f64>, _, _) = if role == Role::Prefill {
        let scale = match (target, setup.context_length) {
            (EasyTarget::Load { .. }, _) => 1.0,
            (_, Some(context_length)) => f64::from(context_length),
            (_, None) => return Wish { is_blind: true, ..Wish::default() },
        };
        let loads = passes.iter().map(|pass| queued_tokens(pass) / scale).collect();
        (loads, target.prefill_thresholds(), "max_queue_load")
    } else {
        let max_kv = max_kv_tokens(setup);
        let loads = passes.iter().map(|pass| kv_share(pass, max_kv, role == Role::Agg)).collect();
        (loads, target.decode_thresholds(), "max_kv_share")
    };
    let most = loads.iter().copied().reduce(f64::max);
    Wish {
        target: easy::decide(&loads, tick.ready, tick.pool.min_endpoint, &thresholds),
        is_blind: false,
        figures: vec![(name, most)],
    }
}

/// Whether every rank of every worker that takes requests has been heard of.
fn is_covered(tick: &PoolTick<'_>) -> bool {
    tick.seen.passes.len() as u64 == u64::from(tick.ready) * u64::from(tick.pool.setup.dp_size)
}
