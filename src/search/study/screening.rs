//! Successive halving: all candidates on a small portion of the requests, the best of them on a greater one, and the best
//! of those on all.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::schedule::StudyEnd;
use crate::search::objective::Worth;
use crate::search::portion::Portion;
use crate::search::sampler::merit::best_first;
use crate::search::space::Point;

/// Which portion of the requests a study is at, and who goes on to the next.
#[derive(Debug, Default)]
pub(super) struct Screening {
    /// The portions that are left, the present one first; none when all requests are replayed.
    portions: VecDeque<Portion>,
    /// Share of the candidates that go on from each portion.
    keep: f64,
    /// Who has gone on and is not replayed yet; `None` where the sampler suggests.
    chosen: Option<VecDeque<Point>>,
    /// The first trial of the present stage.
    pub(super) first_trial: usize,
    /// Why the sampler was asked no more.
    pub(super) first_end: Option<StudyEnd>,
}

/// A candidate that was replayed on a portion.
pub(super) struct Screened<'a> {
    pub(super) point: &'a Point,
    pub(super) worth: &'a Arc<Worth>,
    pub(super) falls_short: bool,
    pub(super) evaluation: &'a str,
}

impl Screening {
    /// Looks at these portions, the smallest first, and at all requests at last.
    pub(super) fn new(portions: Vec<Portion>, keep: f64) -> Self {
        Self { portions: portions.into(), keep, ..Self::default() }
    }

    /// The portion that is replayed now; `None` is all requests.
    pub(super) fn portion(&self) -> Option<Portion> {
        self.portions.front().copied()
    }

    /// Whether there is a greater portion, or all requests, to go on to.
    pub(super) fn is_under_way(&self) -> bool {
        !self.portions.is_empty()
    }

    /// Whether candidates are chosen by portions at all.
    pub(super) fn is_used(&self) -> bool {
        self.is_under_way() || self.chosen.is_some()
    }

    /// Whether the present trials are suggestions of the sampler.
    pub(super) fn is_by_sampler(&self) -> bool {
        self.chosen.is_none()
    }

    /// The next of those who have gone on; `None` where the sampler has to be asked.
    pub(super) fn chosen(&mut self, count: usize) -> Option<Vec<Point>> {
        let chosen = self.chosen.as_mut()?;
        Some(chosen.drain(..count.min(chosen.len())).collect())
    }

    /// Goes on to the next portion with the best of this one; how many they are. The next trial has the number `trial`.
    ///
    /// Those who fall short of the goal's bar come behind all others, since their shortfall may lie in the portion.
    pub(super) fn advance(&mut self, screened: &[Screened<'_>], trial: usize, end: StudyEnd) -> usize {
        let mut seen = FxHashSet::default();
        let mut order = Vec::new();
        for falls_short in [false, true] {
            let class: Vec<&Screened<'_>> = screened
                .iter()
                .filter(|one| one.falls_short == falls_short && seen.insert(one.evaluation))
                .collect();
            let worths: Vec<&[f64]> = class.iter().map(|one| &*one.worth.signed).collect();
            order.extend(best_first(&worths).into_iter().map(|place| class[place].point.clone()));
        }
        order.truncate(((order.len() as f64 * self.keep).ceil() as usize).max(1));
        let count = order.len();
        self.portions.pop_front();
        self.chosen = Some(order.into());
        self.first_trial = trial;
        self.first_end.get_or_insert(end);
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_goes_on_the_best_first_and_those_who_fall_short_last() {
        let worth =
            |score: f64| Arc::new(Worth { score, signed: [score].into(), objectives: None, margin: None });
        let point = |layout| Point { layout, choices: Arc::from([]) };
        let all: Vec<(Point, Arc<Worth>, bool, &str)> = vec![
            (point(0), worth(9.0), true, "a"),
            (point(1), worth(1.0), false, "b"),
            (point(2), worth(3.0), false, "c"),
            (point(3), worth(3.0), false, "c"),
            (point(4), worth(2.0), false, "d"),
            (point(5), worth(8.0), true, "e"),
        ];
        let screened: Vec<Screened<'_>> = all
            .iter()
            .map(|(point, worth, falls_short, evaluation)| Screened {
                point,
                worth,
                falls_short: *falls_short,
                evaluation,
            })
            .collect();
        let layouts = |keep: f64| -> Vec<u32> {
            let mut screening = Screening::new(vec![Portion::Rows(5)], keep);
            assert!(screening.is_by_sampler() && screening.portion() == Some(Portion::Rows(5)));
            let count = screening.advance(&screened, 6, StudyEnd::RoundsDone);
            assert!(!screening.is_by_sampler() && screening.is_used() && screening.portion().is_none());
            let chosen = screening.chosen(100).unwrap();
            assert_eq!(chosen.len(), count);
            chosen.iter().map(|point| point.layout).collect()
        };
        assert_eq!(layouts(0.5), [2, 4, 1]);
        assert_eq!(layouts(0.01), [2]);
        assert_eq!(layouts(0.7), [2, 4, 1, 0]);
    }
}
