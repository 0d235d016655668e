//! A sampler of one's own: `sweep: {sampler: {policy: one_at_a_time}}`.
//!
//! Starts from the first choice of everything, changes one setting at a time and goes on from the best deployment so far, until no
//! single change of that is left to try.
//!
//! ```text
//! cargo run --release --example custom_sampler -- search scenarios/router_comparison.yaml \
//!     --set sweep.max_rounds=4 --set sweep.candidates_per_round=3 --set 'sweep.sampler={policy: one_at_a_time}'
//! ```

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;

use serde::Deserialize;
use spica::registry::Registry;
use spica::sampling::{NewSampler, Observation, Point, Sampler, Space};

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct OneAtATime {
    /// Deployments to try at most; absent: as many as there are.
    budget: Option<usize>,
    #[serde(skip)]
    space: Option<Arc<Space>>,
    #[serde(skip)]
    suggested: BTreeSet<Point>,
    #[serde(skip)]
    best: Option<(f64, Point)>,
}

impl NewSampler for OneAtATime {
    fn begin(&mut self, space: Arc<Space>, _seed: u64) {
        self.space = Some(space);
    }

    fn problems(&self) -> Vec<String> {
        if self.budget == Some(0) { vec!["budget: 0 deployments are none".into()] } else { Vec::new() }
    }
}

impl Sampler for OneAtATime {
    fn suggest(&mut self, count: usize) -> Vec<Point> {
        let Some(space) = &self.space else { return Vec::new() };
        let first = || space.canonical(0, vec![0; space.dimensions().len()]);
        let centre = self.best.as_ref().map_or_else(first, |(_, best)| best.clone());
        let layouts = (0..space.layouts()).map(|layout| space.canonical(layout, centre.choices.to_vec()));
        let knobs = space
            .dimensions()
            .iter()
            .enumerate()
            .flat_map(|(place, knob)| (0..knob.choices.len() as u32).map(move |choice| (place, choice)));
        let changed = knobs.map(|(place, choice)| {
            let mut choices = centre.choices.to_vec();
            choices[place] = choice;
            space.canonical(centre.layout, choices)
        });
        let left = self.budget.map_or(count, |budget| count.min(budget - self.suggested.len()));
        layouts.chain(changed).filter(|point| self.suggested.insert(point.clone())).take(left).collect()
    }

    fn observe(&mut self, point: &Point, observation: &Observation<'_>) {
        if let Observation::Measured { figures: &[figure, ..], .. } = *observation
            && self.best.as_ref().is_none_or(|(best, _)| figure > *best)
        {
            self.best = Some((figure, point.clone()));
        }
    }
}

fn main() -> ExitCode {
    spica::cli::run(Registry::builtin().with_sampler::<OneAtATime>("one_at_a_time"))
}
