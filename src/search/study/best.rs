//! The scores that are good enough where only the best are asked for.

/// The best scores so far, as many as are wanted.
pub(super) struct Best {
    wanted: usize,
    scores: Vec<f64>,
}

impl Best {
    /// So many, of which there are none yet.
    pub(super) fn of(wanted: usize) -> Self {
        Self { wanted, scores: Vec::new() }
    }

    /// A candidate counts, with this score.
    pub(super) fn enter(&mut self, score: f64) {
        let place = self.scores.partition_point(|other| *other >= score);
        self.scores.insert(place, score);
        self.scores.truncate(self.wanted);
    }

    /// The last of them, once there are enough.
    pub(super) fn last(&self) -> Option<f64> {
        self.scores.get(self.wanted - 1).copied()
    }
}
