//! A cost written down in the scenario.
//!
//! The cost of a worker is the sum of some of its figures, each times a weight. The worker of least cost is taken; ties are drawn
//! evenly from the router's random stream. With a `router_temperature` above 0 workers are drawn as by the KV router.

use serde::Deserialize;

use super::choice::choose;
use super::limits::{duration, lag_problem, not_negative, weight_problem};
use super::{Needs, Overlap, PolicyContext, RequestView, Route, RoutingPolicy, WorkerView};

/// A router that minimises a weighted sum.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CostTerms {
    /// The sum.
    pub terms: Vec<WeightedTerm>,
    /// 0 takes the cheapest worker, more draws more evenly.
    pub router_temperature: f64,
    /// How much later than the end of a pass the router hears of changes of a cache, in milliseconds.
    pub kv_event_lag_ms: f64,
    #[serde(skip)]
    costs: Vec<f64>,
}

/// A figure and what one of it costs.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WeightedTerm {
    /// The figure.
    pub term: Term,
    /// Cost of one; negative for what speaks for a worker.
    pub weight: f64,
}

/// A figure of a worker, with regard to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Term {
    /// Requests placed there that have not ended.
    ActiveRequests,
    /// Prompt tokens placed there and not computed yet.
    PrefillTokens,
    /// Prompt tokens of this request that are not in its cache.
    NewTokens,
    /// Blocks of this request, from its start, that are in its cache.
    OverlapBlocks,
    /// Distinct prompt blocks of the requests placed there.
    ActiveBlocks,
    /// Whole prompt blocks of this request that are not among those.
    NewBlocks,
}

impl Term {
    fn of(self, request: &RequestView, worker: &WorkerView) -> f64 {
        match self {
            Self::ActiveRequests => f64::from(worker.active_requests),
            Self::PrefillTokens => worker.active_prefill_tokens as f64,
            Self::NewTokens => request.new_tokens(worker.overlap_blocks) as f64,
            Self::OverlapBlocks => f64::from(worker.overlap_blocks),
            Self::ActiveBlocks => worker.active_blocks as f64,
            Self::NewBlocks => f64::from(request.blocks().saturating_sub(worker.shared_active_blocks)),
        }
    }
}

impl CostTerms {
    fn has_any(&self, terms: &[Term]) -> bool {
        self.terms.iter().any(|weighted| terms.contains(&weighted.term))
    }

    fn knows_caches(&self) -> bool {
        self.has_any(&[Term::NewTokens, Term::OverlapBlocks])
    }

    fn cost(&self, request: &RequestView, worker: &WorkerView) -> f64 {
        self.terms.iter().map(|weighted| weighted.weight * weighted.term.of(request, worker)).sum()
    }
}

impl RoutingPolicy for CostTerms {
    fn route(
        &mut self,
        request: &RequestView,
        workers: &[WorkerView],
        ctx: &mut PolicyContext<'_, '_>,
    ) -> Route {
        let mut costs = std::mem::take(&mut self.costs);
        costs.clear();
        costs.extend(workers.iter().map(|worker| self.cost(request, worker)));
        let choice = choose(&costs, self.router_temperature, ctx);
        self.costs = costs;
        Route::To(workers[choice].id)
    }

    fn needs(&self) -> Needs {
        Needs {
            load: self.has_any(&[Term::ActiveRequests, Term::PrefillTokens]),
            blocks: self.has_any(&[Term::ActiveBlocks, Term::NewBlocks]),
            overlap: if self.knows_caches() {
                Overlap::Reported { lag: duration(self.kv_event_lag_ms) }
            } else {
                Overlap::Unknown
            },
            queue: None,
        }
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = not_negative(&[("router_temperature", self.router_temperature)]);
        problems.extend(lag_problem(self.kv_event_lag_ms));
        if self.terms.is_empty() {
            problems.push("terms: lists nothing; a cost has at least one term".into());
        }
        for (place, weighted) in self.terms.iter().enumerate() {
            problems.extend(weight_problem(&format!("terms[{place}].weight"), weighted.weight));
            if self.terms[..place].iter().any(|earlier| earlier.term == weighted.term) {
                problems.push(format!("terms[{place}].term: is listed twice; add the weights up"));
            }
        }
        if self.kv_event_lag_ms > 0.0 && !self.knows_caches() {
            problems.push("kv_event_lag_ms: has no effect without a term that looks at caches".into());
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_support::{REQUEST, choice, in_context};
    use super::*;
    use crate::serving::message::WorkerId;

    fn cost_of(terms: &[(Term, f64)]) -> CostTerms {
        let terms = terms.iter().map(|&(term, weight)| WeightedTerm { term, weight }).collect();
        CostTerms { terms, ..CostTerms::default() }
    }

    fn worker(id: u32) -> WorkerView {
        WorkerView {
            overlap_blocks: 3,
            active_prefill_tokens: 24,
            active_blocks: 7,
            shared_active_blocks: 1,
            active_requests: 2,
            ..WorkerView::idle(WorkerId(id))
        }
    }

    #[test]
    fn every_term_is_its_figure() {
        for (term, figure) in [
            (Term::ActiveRequests, 2.0),
            (Term::PrefillTokens, 24.0),
            (Term::NewTokens, 4.0),
            (Term::OverlapBlocks, 3.0),
            (Term::ActiveBlocks, 7.0),
            (Term::NewBlocks, 3.0),
        ] {
            assert_eq!(cost_of(&[(term, 0.5)]).cost(&REQUEST, &worker(0)), figure / 2.0, "{term:?}");
        }
        let sum = cost_of(&[(Term::PrefillTokens, 1.0), (Term::OverlapBlocks, -64.0)]);
        assert_eq!(sum.cost(&REQUEST, &worker(0)), 24.0 - 192.0);
    }

    #[test]
    fn the_least_sum_wins_and_ties_are_drawn() {
        in_context(|ctx| {
            let idle = WorkerView::idle(WorkerId(1));
            let mut by_cache = cost_of(&[(Term::OverlapBlocks, -64.0), (Term::PrefillTokens, 1.0)]);
            assert_eq!(choice(&mut by_cache, &REQUEST, &[worker(0), idle], ctx), 0);
            let mut by_load = cost_of(&[(Term::ActiveRequests, 1.0)]);
            assert_eq!(choice(&mut by_load, &REQUEST, &[worker(0), idle], ctx), 1);
            let tied =
                (0..1000).filter(|_| choice(&mut by_load, &REQUEST, &[worker(0), worker(1)], ctx) == 0);
            assert!((440..560).contains(&tied.count()));
        });
    }

    #[test]
    fn only_what_the_terms_look_at_is_kept() {
        let by_load = cost_of(&[(Term::PrefillTokens, 1.0)]).needs();
        assert_eq!(by_load, Needs { load: true, ..Needs::default() });
        let by_blocks = cost_of(&[(Term::NewBlocks, 1.0)]).needs();
        assert_eq!(by_blocks, Needs { blocks: true, ..Needs::default() });
        assert!(cost_of(&[(Term::NewTokens, 1.0)]).needs().hears_of_caches());
    }

    #[test]
    fn impossible_terms_are_named() {
        assert!(CostTerms::default().problems()[0].starts_with("terms: "));
        let bad = CostTerms {
            router_temperature: -1.0,
            kv_event_lag_ms: 5.0,
            ..cost_of(&[(Term::NewBlocks, f64::NAN), (Term::NewBlocks, f64::INFINITY)])
        };
        let problems = bad.problems();
        let starts = [
            "router_temperature: -1",
            "terms[0].weight: NaN",
            "terms[1].weight: inf",
            "terms[1].term: ",
            "kv_event_lag_ms: ",
        ];
        assert_eq!(problems.len(), starts.len(), "{problems:#?}");
        for (problem, start) in problems.iter().zip(starts) {
            assert!(problem.starts_with(start), "{problem}");
        }
    }
}
