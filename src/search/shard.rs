//! A search in parts, each run on its own, possibly on other machines, and brought together afterwards.
//!
//! Parts are stretches of the sequence of suggestions. Such a sequence must not depend on results: that of an exhaustive
//! search, or of a sampler that does not learn. Bringing the parts together is running the whole again with everything known
//! from their journals.

use std::ops::Range;
use std::sync::Arc;

use super::branch::{Branch, Plan};
use super::refusal::Refusal;
use super::sampler::{self, Grid, Observation, Sampler};
use super::space::Point;
use super::study::Schedule;

/// One of several equal parts of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Which, from 0.
    pub index: u32,
    /// Of how many.
    pub of: u32,
}

impl Shard {
    /// The whole, as a part.
    pub const WHOLE: Self = Self { index: 0, of: 1 };
}

impl Plan {
    /// Trials of a part of this search, by branch.
    ///
    /// A search by samples that is split tries `max_rounds` times `candidates_per_round` points of each branch, whether they
    /// turn out to count or not.
    ///
    /// # Errors
    /// When its suggestions depend on results.
    pub fn trials_of(&self, shard: Shard) -> Result<Vec<Range<u64>>, Refusal> {
        let sweep = &self.config.sweep;
        if sweep.fidelity.is_some() {
            let message = "which candidates go on depends on the results of all, so the search cannot be split; leave it out";
            return Err(Refusal::new("sweep.fidelity", message));
        }
        let schedules: Vec<Schedule> =
            self.branches.iter().map(|branch| Schedule::new(sweep, branch.space.size())).collect();
        let learns = sampler::learns(&sweep.sampler.policy);
        if learns && schedules.iter().any(|schedule| matches!(schedule, Schedule::Rounds { .. })) {
            let message = format!(
                "`{}` learns from its trials, so its search cannot be split; write `sweep.exhaustive: true` or a sampler \
                 that does not learn (`halton`, `random`)",
                sweep.sampler.policy
            );
            return Err(Refusal::new("sweep.sampler", message));
        }
        let lengths = self.branches.iter().zip(&schedules).map(|(branch, schedule)| {
            let points = branch.space.size();
            schedule.aim().min(points)
        });
        Ok(parts(&lengths.collect::<Vec<_>>(), shard))
    }
}

/// What of each of several sequences, put one behind the other, belongs to a part.
fn parts(lengths: &[u64], shard: Shard) -> Vec<Range<u64>> {
    let total: u128 = lengths.iter().map(|&length| u128::from(length)).sum();
    let bound = |index: u32| (total * u128::from(index) / u128::from(shard.of)) as u64;
    let (start, end) = (bound(shard.index), bound(shard.index + 1));
    let mut before = 0;
    let part = |&length: &u64| {
        let within = |place: u64| place.saturating_sub(before).min(length);
        let part = within(start)..within(end);
        before += length;
        part
    };
    lengths.iter().map(part).collect()
}

/// A stretch of what another sampler suggests.
pub(super) struct Stretch {
    whole: Box<dyn Sampler>,
    skip: u64,
    left: u64,
}

impl Stretch {
    /// The stretch `part` of a branch's sequence.
    pub(super) fn of(branch: &Branch, part: &Range<u64>) -> Self {
        let sweep = &branch.config.sweep;
        let (whole, skip): (Box<dyn Sampler>, u64) = match Schedule::new(sweep, branch.space.size()) {
            Schedule::Exhaustive { .. } => {
                (Box::new(Grid::starting_at(Arc::clone(&branch.space), part.start)), 0)
            }
            Schedule::Rounds { .. } => {
                let seed = sampler::branch_seed(sweep.random_seed, branch.mode);
                let sampler = branch.sampler(&sweep.sampler, seed);
                (sampler.expect("unknown samplers have been refused"), part.start)
            }
        };
        Self { whole, skip, left: part.end - part.start }
    }
}

impl Sampler for Stretch {
    fn suggest(&mut self, count: usize) -> Vec<Point> {
        self.whole.suggest(std::mem::take(&mut self.skip) as usize);
        let points = self.whole.suggest((count as u64).min(self.left) as usize);
        self.left -= points.len() as u64;
        points
    }

    fn observe(&mut self, _point: &Point, _observation: &Observation<'_>) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::scenario::PolicyConfig;
    use crate::search::test_support::{config, plan};

    #[test]
    fn parts_cover_everything_once_in_order() {
        for (lengths, of) in [(vec![10, 3], 4), (vec![1], 5), (vec![0, 7, 2], 3), (vec![u64::MAX], 2)] {
            let mut next = vec![0; lengths.len()];
            for index in 0..of {
                for (place, part) in parts(&lengths, Shard { index, of }).into_iter().enumerate() {
                    if !part.is_empty() {
                        assert_eq!(part.start, next[place], "{lengths:?} {index}/{of}");
                        next[place] = part.end;
                    }
                }
            }
            assert_eq!(next, lengths);
        }
        assert_eq!(parts(&[10, 3], Shard { index: 3, of: 4 }), [9..10, 0..3]);
    }

    #[test]
    fn stretches_put_together_are_the_whole_sequence() {
        for (sampler, exhaustive) in [("random", false), ("halton", false), ("gp_ucb_pe", true)] {
            let mut config = config();
            config.sweep.sampler = PolicyConfig::named(sampler);
            config.sweep.exhaustive = exhaustive;
            config.sweep.max_rounds = 7;
            let plan = plan(config);
            let points = |shard| -> Vec<Point> {
                let part = plan.trials_of(shard).unwrap().remove(0);
                let mut stretch = Stretch::of(&plan.branches[0], &part);
                std::iter::from_fn(|| Some(stretch.suggest(4)).filter(|points| !points.is_empty()))
                    .flatten()
                    .collect()
            };
            let whole = points(Shard::WHOLE);
            assert_eq!(whole.len(), if exhaustive { 981 } else { 21 });
            let together: Vec<Point> = (0..4).flat_map(|index| points(Shard { index, of: 4 })).collect();
            assert_eq!(together, whole, "{sampler}");
        }
    }

    #[test]
    fn a_search_that_learns_is_not_split() {
        let mut config = config();
        config.sweep.sampler = PolicyConfig::named("tpe");
        let refusal = plan(config.clone()).trials_of(Shard { index: 0, of: 2 }).unwrap_err();
        assert!(refusal.to_string().starts_with("sweep.sampler: `tpe` learns"), "{refusal}");
        config.sweep.exhaustive = true;
        assert!(plan(config).trials_of(Shard { index: 0, of: 2 }).is_ok());
    }
}
