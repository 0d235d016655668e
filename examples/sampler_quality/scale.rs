//! How far a search is from the best of its table.

/// What the regret is measured by.
pub(crate) enum Scale {
    /// The median point and the best.
    Single { median: f64, best: f64 },
    /// The worst and the best on each objective, and the share of the area between them that all points dominate.
    Frontier { worst: Vec<f64>, best: Vec<f64>, volume: f64 },
}

impl Scale {
    /// For these feasible points, at least one.
    pub(crate) fn new(feasible: &[&[f64]]) -> Self {
        let objectives = feasible.first().map_or(0, |row| row.len());
        if objectives == 1 {
            let mut scores: Vec<f64> = feasible.iter().map(|row| row[0]).collect();
            scores.sort_by(f64::total_cmp);
            return Self::Single { median: scores[scores.len() / 2], best: scores[scores.len() - 1] };
        }
        let bound = |pick: fn(f64, f64) -> f64| -> Vec<f64> {
            (0..objectives)
                .map(|place| feasible.iter().map(|row| row[place]).reduce(pick).unwrap_or(0.0))
                .collect()
        };
        let (worst, best) = (bound(f64::min), bound(f64::max));
        let volume = volume(feasible, &worst, &best);
        Self::Frontier { worst, best, volume }
    }

    /// What is missing to the best point, as a share of the way from the median point to it, at most 2; of a frontier, the
    /// share of the hypervolume.
    pub(crate) fn regret(&self, found: &[&[f64]]) -> f64 {
        match self {
            Self::Single { median, best } => {
                let reached = found.iter().map(|row| row[0]).fold(*median - (best - median), f64::max);
                (best - reached) / (best - median).max(f64::MIN_POSITIVE)
            }
            Self::Frontier { worst, best, volume: whole } => 1.0 - volume(found, worst, best) / whole,
        }
    }
}

/// The area between the worst of both objectives and the frontier, both scaled to 1.
fn volume(rows: &[&[f64]], worst: &[f64], best: &[f64]) -> f64 {
    let share = |row: &[f64], place: usize| (row[place] - worst[place]) / (best[place] - worst[place]);
    let mut scaled: Vec<(f64, f64)> = rows.iter().map(|row| (share(row, 0), share(row, 1))).collect();
    scaled.sort_by(|left, right| right.0.total_cmp(&left.0));
    let (mut area, mut height) = (0.0, 0.0_f64);
    for (width, tall) in scaled {
        area += width * (tall - height).max(0.0);
        height = height.max(tall);
    }
    area
}
