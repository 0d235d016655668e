//! The scores that are good enough where only the best are asked for.

use crate::search::ranking::fingerprint;
use crate::search::trial::{Outcome, TrialRecord};

/// The scores of the best results so far, as many as are wanted. Candidates that came out the same are one result.
pub(super) struct Best {
    wanted: usize,
    /// With the fingerprint of each result.
    scores: Vec<(f64, u64)>,
}

impl Best {
    /// So many, of which there are none yet.
    pub(super) fn of(wanted: usize) -> Self {
        Self { wanted, scores: Vec::new() }
    }

    /// A trial is committed.
    pub(super) fn enter(&mut self, record: &TrialRecord) {
        let counts = record.outcome == Outcome::Feasible;
        let Some((score, metrics)) = record.score.zip(record.metrics.as_ref()).filter(|_| counts) else {
            return;
        };
        let result = fingerprint(record.used_gpus, metrics);
        if self.scores.iter().any(|(_, other)| *other == result) {
            return;
        }
        let place = self.scores.partition_point(|(other, _)| *other >= score);
        self.scores.insert(place, (score, result));
        self.scores.truncate(self.wanted);
    }

    /// The last of them, once there are enough.
    pub(super) fn last(&self) -> Option<f64> {
        self.scores.get(self.wanted - 1).map(|(score, _)| *score)
    }
}
