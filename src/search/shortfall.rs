//! What an answer lacks of what its search was to find.

use std::fmt::{self, Display};

use serde::Serialize;

use super::evaluator::{OUT_OF_PASSES, TIMED_OUT};
use super::pool::adjective;
use super::result::{Rejected, StudySummary};
use super::study::StudyEnd;
use super::trial::Tally;
use crate::config::scenario::DeploymentMode;

/// Why an answer is incomplete, for programs and for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Shortfall {
    /// What happened.
    #[serde(flatten)]
    pub cause: Cause,
    /// The same in words.
    pub reason: String,
}

/// What keeps an answer from being all that its search was to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "cause", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Cause {
    /// The search was told to stop.
    Interrupted {
        /// Trials that it had made by then.
        trials: u64,
        /// Trials that it was to make.
        of: u64,
        /// Whether it may have made more than these.
        is_least: bool,
    },
    /// The wall clock cut replays off.
    OutOfTime {
        /// How many.
        trials: u64,
    },
    /// Replays took more passes than they may.
    OutOfPasses {
        /// How many.
        trials: u64,
    },
    /// Trials broke down.
    Failed {
        /// How many.
        trials: u64,
    },
    /// The suggestions of a round were used up before enough of them counted.
    Stalled {
        /// The branch.
        deployment_mode: DeploymentMode,
        /// New candidates of that round.
        found: u32,
        /// New candidates that it wanted.
        wanted: u32,
    },
}

impl Shortfall {
    /// All that an answer lacks.
    pub(super) fn all(tally: &Tally, rejected: &[Rejected], studies: &[StudySummary]) -> Vec<Self> {
        let ended_so =
            |start: &str| rejected.iter().filter(|one| one.reason.starts_with(start)).count() as u64;
        let counted = [
            (ended_so(TIMED_OUT), (|trials| Cause::OutOfTime { trials }) as fn(u64) -> Cause),
            (ended_so(OUT_OF_PASSES), |trials| Cause::OutOfPasses { trials }),
            (tally.failed, |trials| Cause::Failed { trials }),
        ];
        let counted =
            counted.into_iter().filter(|(trials, _)| *trials > 0).map(|(trials, cause)| cause(trials));
        let stalled = studies.iter().filter_map(|study| match study.end {
            StudyEnd::Stalled { found, wanted } => {
                Some(Cause::Stalled { deployment_mode: study.mode, found, wanted })
            }
            _ => None,
        });
        let all = interruption(tally, studies).into_iter().chain(counted).chain(stalled);
        let reason = |cause: &Cause| match cause {
            Cause::Interrupted { .. } if tally.feasible == 0 => format!("{cause}: nothing counts so far"),
            Cause::Interrupted { .. } => format!("{cause}: this is the best so far"),
            _ => cause.to_string(),
        };
        all.map(|cause| Self { reason: reason(&cause), cause }).collect()
    }
}

/// All studies stop together.
fn interruption(tally: &Tally, studies: &[StudySummary]) -> Option<Cause> {
    let mut missing = studies.iter().filter_map(|study| match study.end {
        StudyEnd::Interrupted { missing, is_least } => Some((missing, is_least)),
        _ => None,
    });
    let first = missing.next()?;
    let (missing, is_least) =
        missing.fold(first, |sum, other| (sum.0.saturating_add(other.0), sum.1 || other.1));
    let trials = tally.total();
    Some(Cause::Interrupted { trials, of: trials.saturating_add(missing), is_least })
}

impl Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |trials: u64, what: &str| format!("{trials} {what}{}", if trials == 1 { "" } else { "s" });
        match *self {
            Self::Interrupted { trials, of, is_least } => {
                let least = if is_least { "at least " } else { "" };
                write!(f, "interrupted after {trials} of {least}{of} trials")
            }
            Self::OutOfTime { trials } => write!(
                f,
                "the wall clock cut off {} of unknown worth (sweep.max_eval_seconds): another run may come to another answer",
                of(trials, "replay")
            ),
            Self::OutOfPasses { trials } => write!(
                f,
                "the budget of passes cut off {} of unknown worth (sweep.max_eval_passes)",
                of(trials, "replay")
            ),
            Self::Failed { trials } => write!(f, "{} of unknown worth failed", of(trials, "trial")),
            Self::Stalled { deployment_mode, found, wanted } => {
                let mode = adjective(deployment_mode);
                write!(
                    f,
                    "the last round used up its suggestions with {found} of {wanted} new {mode} candidates"
                )
            }
        }
    }
}
