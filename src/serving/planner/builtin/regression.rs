//! How long passes take, learnt from samples: two features, a plane that never falls.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;

/// A pass as the regression sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Features {
    /// Work that grows with contexts.
    pub attention: f64,
    /// Work that grows with tokens.
    pub ffn: f64,
}

/// Shortest time that is ever predicted, in milliseconds.
const SHORTEST_MS: f64 = 1e-6;
const FEATURES: usize = 2;

#[derive(Clone, Copy, Debug)]
struct Sample {
    features: [f64; FEATURES],
    wall_ms: f64,
}

/// The samples of one kind of pass with the plane through them.
///
/// Samples are kept by a grid over the logarithms of the features: when there are too many, the oldest of the fullest cell goes,
/// of equally full cells the one with the smallest number or, with a stream to draw from, any. The grid grows with the
/// samples and never shrinks.
#[derive(Clone, Debug)]
pub struct Store {
    most_samples: usize,
    /// Cells along each side of the grid.
    side: usize,
    min_observations: usize,
    /// In the order of observation.
    samples: Vec<Sample>,
    /// Smallest and largest logarithm of each feature so far.
    bounds: [(f64, f64); FEATURES],
    plane: Option<Plane>,
    draws: Option<ChaCha8Rng>,
}

impl Store {
    /// An empty store of at most `most_samples` samples over a grid of `cells` cells, a perfect square, that predicts from
    /// `min_observations` samples on.
    pub fn new(most_samples: usize, cells: usize, min_observations: usize) -> Self {
        Self {
            most_samples,
            side: cells.isqrt(),
            min_observations,
            samples: Vec::new(),
            bounds: [(f64::INFINITY, f64::NEG_INFINITY); FEATURES],
            plane: None,
            draws: None,
        }
    }

    /// The same, drawing between equally full cells.
    #[must_use]
    pub fn drawing(self, draws: ChaCha8Rng) -> Self {
        Self { draws: Some(draws), ..self }
    }

    /// Takes a pass that lasted so long; one of no length says nothing.
    pub fn observe(&mut self, features: Features, wall_ms: f64) {
        if !(wall_ms.is_finite() && wall_ms > 0.0) {
            return;
        }
        let features = [features.attention, features.ffn];
        for (bound, feature) in self.bounds.iter_mut().zip(features) {
            let log = libm::log1p(feature);
            *bound = (bound.0.min(log), bound.1.max(log));
        }
        self.samples.push(Sample { features, wall_ms });
        if self.samples.len() > self.most_samples {
            self.drop_one();
        }
        self.fit();
    }

    /// Predicted duration of a pass in milliseconds; `None` while the store knows too little.
    pub fn predict(&self, features: Features) -> Option<f64> {
        Some(self.plane.as_ref()?.at([features.attention, features.ffn]).max(SHORTEST_MS))
    }

    /// Whether it predicts.
    pub fn is_ready(&self) -> bool {
        self.plane.is_some()
    }

    fn cell(&self, sample: &Sample) -> usize {
        let place = |feature: usize| {
            let (low, high) = self.bounds[feature];
            if high <= low {
                return 0;
            }
            let share = (libm::log1p(sample.features[feature]) - low) / (high - low);
            ((share * self.side as f64) as usize).min(self.side - 1)
        };
        place(0) * self.side + place(1)
    }

    fn drop_one(&mut self) {
        let cells: Vec<usize> = self.samples.iter().map(|sample| self.cell(sample)).collect();
        let mut filled = vec![0_usize; self.side * self.side];
        for &cell in &cells {
            filled[cell] += 1;
        }
        let most = filled.iter().copied().max().unwrap_or(0);
        let ties = filled.iter().filter(|&&count| count == most).count() as u64;
        let place = self.draws.as_mut().map_or(0, |draws| draws.next_u64() % ties.max(1));
        let mut fullest = filled.iter().enumerate().filter(|&(_, &count)| count == most);
        let fullest = fullest.nth(place as usize).map(|(cell, _)| cell);
        let oldest = cells.iter().position(|&cell| Some(cell) == fullest);
        if let Some(oldest) = oldest {
            self.samples.remove(oldest);
        }
    }

    /// A plane that only lost its slopes leaves the one before in service.
    fn fit(&mut self) {
        if self.samples.len() < self.min_observations {
            self.plane = None;
            return;
        }
        match Plane::fit(&self.samples) {
            Fit::Usable(plane) => self.plane = Some(plane),
            Fit::Flat => {}
            Fit::Impossible => self.plane = None,
        }
    }
}

/// An intercept and slopes that are not negative, over standardised features.
#[derive(Clone, Copy, Debug)]
struct Plane {
    intercept: f64,
    slopes: [f64; FEATURES],
    means: [f64; FEATURES],
    deviations: [f64; FEATURES],
}

enum Fit {
    Usable(Plane),
    /// Whatever rises would fit worse than nothing.
    Flat,
    Impossible,
}

impl Plane {
    fn at(&self, features: [f64; FEATURES]) -> f64 {
        let rise = |feature: usize| {
            if self.slopes[feature] == 0.0 {
                return 0.0;
            }
            self.slopes[feature] * (features[feature] - self.means[feature]) / self.deviations[feature]
        };
        self.intercept + rise(0) + rise(1)
    }

    /// Least squares with a free intercept and slopes that are not negative, by trying every set of features that may have
    /// a slope.
    fn fit(samples: &[Sample]) -> Fit {
        let count = samples.len() as f64;
        let mut plane = Self {
            intercept: samples.iter().map(|sample| sample.wall_ms).sum::<f64>() / count,
            slopes: [0.0; FEATURES],
            means: [0.0; FEATURES],
            deviations: [0.0; FEATURES],
        };
        let mut active = Vec::new();
        for feature in 0..FEATURES {
            let mean = samples.iter().map(|sample| sample.features[feature]).sum::<f64>() / count;
            let squares = samples.iter().map(|sample| (sample.features[feature] - mean).powi(2)).sum::<f64>();
            let deviation = (squares / count).sqrt();
            (plane.means[feature], plane.deviations[feature]) = (mean, deviation);
            if deviation > 1e-12 * mean.abs().max(1.0) {
                active.push(feature);
            }
        }
        if active.is_empty() {
            return Fit::Impossible;
        }
        let mut best: Option<(f64, [f64; FEATURES])> = None;
        for mask in 0..1_u32 << active.len() {
            let face: Vec<usize> =
                (0..active.len()).filter(|bit| mask >> bit & 1 == 1).map(|bit| active[bit]).collect();
            let Some(slopes) = plane.solve(samples, &face) else { continue };
            if slopes.iter().any(|slope| !slope.is_finite() || *slope < 0.0) {
                continue;
            }
            let candidate = Self { slopes, ..plane };
            let squares: f64 =
                samples.iter().map(|sample| (sample.wall_ms - candidate.at(sample.features)).powi(2)).sum();
            if best.is_none_or(|(least, _)| squares < least) {
                best = Some((squares, slopes));
            }
        }
        match best {
            None => Fit::Impossible,
            Some((_, slopes)) if slopes == [0.0; FEATURES] && samples.len() > active.len() => Fit::Flat,
            Some((_, slopes)) => Fit::Usable(Self { slopes, ..plane }),
        }
    }

    /// Slopes of the features in `face`, at most two, from the normal equations; those of the others are 0.
    fn solve(&self, samples: &[Sample], face: &[usize]) -> Option<[f64; FEATURES]> {
        let standard = |sample: &Sample, feature: usize| {
            (sample.features[feature] - self.means[feature]) / self.deviations[feature]
        };
        let product = |left: usize, right: usize| -> f64 {
            samples.iter().map(|sample| standard(sample, left) * standard(sample, right)).sum()
        };
        let with_wall = |feature: usize| -> f64 {
            samples.iter().map(|sample| standard(sample, feature) * (sample.wall_ms - self.intercept)).sum()
        };
        let mut slopes = [0.0; FEATURES];
        match *face {
            [] => {}
            [only] => slopes[only] = with_wall(only) / product(only, only),
            [one, two] => {
                let (own, both, other) = (product(one, one), product(one, two), product(two, two));
                let right = [with_wall(one), with_wall(two)];
                let solved = eliminate(own, both, other, right, 0.0)
                    .or_else(|| eliminate(own, both, other, right, 1e-9 * (own + other).max(1.0)))?;
                (slopes[one], slopes[two]) = solved;
            }
            _ => return None,
        }
        Some(slopes)
    }
}

/// Solves two equations with a symmetric matrix and `ridge` added to its diagonal; `None` without a pivot.
fn eliminate(own: f64, both: f64, other: f64, right: [f64; 2], ridge: f64) -> Option<(f64, f64)> {
    const SMALLEST_PIVOT: f64 = 1e-12;
    let (own, other) = (own + ridge, other + ridge);
    if own < SMALLEST_PIVOT {
        return None;
    }
    let factor = both / own;
    let pivot = other - factor * both;
    if pivot < SMALLEST_PIVOT {
        return None;
    }
    let second = (right[1] - factor * right[0]) / pivot;
    Some(((right[0] - both * second) / own, second))
}

#[cfg(test)]
mod tests {
    use rand_chacha::rand_core::SeedableRng;

    use super::*;

    fn features(attention: f64, ffn: f64) -> Features {
        Features { attention, ffn }
    }

    fn filled(walls: [f64; 5]) -> Store {
        let mut store = Store::new(64, 16, 5);
        for (step, wall) in walls.into_iter().enumerate() {
            store.observe(features(100.0 * (step + 1) as f64, 8.0), wall);
        }
        store
    }

    /// Case 20 a and b.
    #[test]
    fn a_feature_that_never_changes_counts_for_nothing() {
        let found = filled([3.0, 5.0, 7.0, 9.0, 11.0]).predict(features(1000.0, 50.0)).unwrap();
        assert!((found - 21.0).abs() < 1e-9, "{found}");
        assert!(!filled([11.0, 9.0, 7.0, 5.0, 3.0]).is_ready(), "time does not fall with work");
    }

    #[test]
    fn too_few_or_equal_samples_predict_nothing() {
        let mut store = Store::new(64, 16, 3);
        store.observe(features(1.0, 1.0), 5.0);
        store.observe(features(2.0, 1.0), 6.0);
        assert_eq!(store.predict(features(3.0, 1.0)), None);
        store.observe(features(2.0, 1.0), 0.0);
        assert!(!store.is_ready(), "a pass of no length is no sample");
        store.observe(features(3.0, 1.0), 7.0);
        assert!((store.predict(features(4.0, 1.0)).unwrap() - 8.0).abs() < 1e-9);
    }

    #[test]
    fn both_features_are_found_and_the_past_stays_in_service() {
        let mut store = Store::new(64, 16, 4);
        for (attention, ffn) in [(10.0, 1.0), (20.0, 5.0), (30.0, 2.0), (40.0, 9.0), (15.0, 7.0)] {
            store.observe(features(attention, ffn), 2.0 + 0.5 * attention + 3.0 * ffn);
        }
        assert!((store.predict(features(100.0, 10.0)).unwrap() - 82.0).abs() < 1e-9);
        assert_eq!(store.predict(features(-1e6, 0.0)), Some(SHORTEST_MS));
        for wall in [1e4_f64, 1e3, 1e2] {
            store.observe(features(wall.recip(), 0.0), wall);
        }
        assert!(store.is_ready(), "a flat plane leaves the one before in service");
    }

    #[test]
    fn the_oldest_of_the_fullest_cell_goes() {
        let mut store = Store::new(4, 4, 1);
        for (attention, ffn) in [(0.0, 0.0), (100.0, 100.0), (90.0, 90.0), (95.0, 95.0), (1.0, 0.0)] {
            store.observe(features(attention, ffn), 1.0 + attention);
        }
        let kept: Vec<f64> = store.samples.iter().map(|sample| sample.features[0]).collect();
        assert_eq!(kept, [0.0, 90.0, 95.0, 1.0]);
    }

    #[test]
    fn equally_full_cells_are_drawn_where_there_is_a_stream() {
        let kept = |seed: Option<u64>| {
            let store = Store::new(2, 4, 1);
            let mut store = match seed {
                Some(seed) => store.drawing(ChaCha8Rng::seed_from_u64(seed)),
                None => store,
            };
            for (attention, ffn) in [(0.0, 0.0), (100.0, 100.0), (100.0, 0.0)] {
                store.observe(features(attention, ffn), 1.0 + attention);
            }
            store.samples.iter().map(|sample| sample.features).collect::<Vec<_>>()
        };
        assert_eq!(kept(None), [[100.0, 100.0], [100.0, 0.0]]);
        let mut outcomes: Vec<_> = (0..20).map(|seed| kept(Some(seed))).collect();
        assert_eq!(outcomes, (0..20).map(|seed| kept(Some(seed))).collect::<Vec<_>>());
        outcomes.sort_by(|one, other| one.partial_cmp(other).unwrap());
        outcomes.dedup();
        assert_eq!(outcomes.len(), 3, "each of the three can be the one that goes");
    }
}
