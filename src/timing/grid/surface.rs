//! A table over measured points with straight lines between them.

/// Points further apart than this factor are joined along the logarithm of their coordinate: what happens between one
/// token and a hundred is nearer to that than to a straight line.
const WIDEST_STRAIGHT: f64 = 8.0;

/// A value at every combination of the points of `N` axes.
#[derive(Clone, Debug)]
pub(super) struct Table<const N: usize> {
    /// The points of each axis, rising; an axis of one point has no effect.
    pub(super) knots: [Vec<f64>; N],
    /// The values, the last axis running fastest.
    pub(super) values: Vec<f64>,
}

impl<const N: usize> Table<N> {
    /// Whether a point lies between those of the table.
    pub(super) fn covers(&self, point: [f64; N]) -> bool {
        let within = |(knots, value): (&Vec<f64>, f64)| (knots[0]..=knots[knots.len() - 1]).contains(&value);
        self.knots.iter().zip(point).all(within)
    }

    /// The value at a point. Beyond the table it goes on along the last segment but never falls, nor below 0.
    pub(super) fn at(&self, point: [f64; N]) -> f64 {
        const { assert!(N <= 3) };
        let (mut corner, mut places) = (0, [(0.0, 0); N]);
        for (axis, value) in point.into_iter().enumerate() {
            let knots = &self.knots[axis];
            let (segment, along) = place(knots, value);
            corner = corner * knots.len() + segment;
            places[axis].0 = along;
        }
        let mut stride = 1;
        for axis in (0..N).rev() {
            places[axis].1 = if self.knots[axis].len() > 1 { stride } else { 0 };
            stride *= self.knots[axis].len();
        }
        self.between(corner, &places).max(0.0)
    }

    /// Interpolates along the remaining axes, each a share of the way and the distance of its next value.
    fn between(&self, corner: usize, places: &[(f64, usize)]) -> f64 {
        let Some(((along, stride), rest)) = places.split_first() else { return self.values[corner] };
        let low = self.between(corner, rest);
        if *stride == 0 || *along == 0.0 {
            return low;
        }
        let rise = self.between(corner + stride, rest) - low;
        let rise = if *along > 1.0 { rise.max(0.0).max(rise / along) } else { rise };
        low + rise * along
    }
}

/// The segment that a value lies in or nearest to, and how far along it: beyond 0 and 1 outside the axis.
pub(super) fn place(knots: &[f64], value: f64) -> (usize, f64) {
    let Some(last) = knots.len().checked_sub(2) else { return (0, 0.0) };
    let segment = knots.partition_point(|knot| *knot <= value).saturating_sub(1).min(last);
    let (low, high) = (knots[segment], knots[segment + 1]);
    let along = if low > 0.0 && high > WIDEST_STRAIGHT * low && (low..=high).contains(&value) {
        libm::log(value / low) / libm::log(high / low)
    } else {
        (value - low) / (high - low)
    };
    (segment, along)
}
