//! What an evaluation means for the goal of a study.

use std::sync::Arc;

use crate::search::branch::Branch;
use crate::search::objective::{Metrics, Verdict, Worth, judge};
use crate::search::trial::{Evaluation, Outcome};

/// What became of a committed trial.
#[derive(Clone)]
pub(super) enum Conclusion {
    /// It counts, for so much.
    Counts(Arc<Worth>),
    /// Replayed on a portion of the requests, so that it may go on; and how it falls short of the goal's bar there.
    Screened(Arc<Worth>, Option<Arc<str>>),
    /// With the margin by which it misses the goal's bar, if that is known.
    Rejected(Outcome, Arc<str>, Option<f64>),
}

/// What an evaluation means for the goal, and the figures behind it.
pub(super) fn conclude(
    branch: &Branch,
    evaluation: Evaluation,
    of_portion: bool,
) -> (Conclusion, Option<Metrics>) {
    let reject = |outcome, reason: String| Conclusion::Rejected(outcome, reason.into(), None);
    let goal = &branch.config.goal;
    let below_bar = |reason: String, margin| Conclusion::Rejected(Outcome::Infeasible, reason.into(), margin);
    let metrics = match evaluation {
        Evaluation::Measured(metrics) => metrics,
        Evaluation::Infeasible(reason) => return (reject(Outcome::Infeasible, reason), None),
        Evaluation::BelowBar { reason, attainment_so_far, .. } => {
            let margin = goal.min_attainment.map(|minimum| attainment_so_far - minimum);
            return (below_bar(reason, margin), None);
        }
        Evaluation::Failed(reason) => return (reject(Outcome::Failed, reason), None),
        Evaluation::StoppedEarly(reason) => return (reject(Outcome::StoppedEarly, reason), None),
        Evaluation::Interrupted => unreachable!("it has ended the study"),
    };
    let conclusion = match (judge(goal, &metrics), of_portion) {
        (Verdict::Feasible(worth), false) => Conclusion::Counts(Arc::new(worth)),
        (Verdict::Feasible(worth), true) => Conclusion::Screened(Arc::new(worth), None),
        (Verdict::BelowBar(worth, reason), false) => below_bar(reason, worth.margin),
        (Verdict::BelowBar(worth, reason), true) => {
            Conclusion::Screened(Arc::new(worth), Some(reason.into()))
        }
        (Verdict::Unscored(reason), _) => reject(Outcome::Failed, reason),
    };
    (conclusion, Some(metrics))
}
