//! Interpolation of sampled costs: straight lines between the logarithms of points and values.

use std::sync::OnceLock;

use super::exponential::exp;

/// An axis of sampled points, kept as logarithms.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    /// What is added to a point before its logarithm is taken, so that 0 may be one.
    offset: f64,
    lowest: f64,
    highest: f64,
    logs: Vec<f64>,
    /// Places by value plus offset, so that common values need no logarithm; made when they are first needed.
    places: OnceLock<Curve<8>>,
}

/// A place on an axis: the segment and how far along it, beyond 0 and 1 outside the axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    segment: usize,
    along: f64,
}

impl Axis {
    /// `points` rise and are at least two; `offset` is added to each before its logarithm is taken.
    pub(super) fn new(points: &[f64], offset: f64) -> Self {
        assert!(points.len() >= 2 && points.is_sorted(), "an axis has at least two points");
        let logs = points.iter().map(|point| libm::log(point + offset)).collect();
        let (lowest, highest) = (points[0], points[points.len() - 1]);
        Self { offset, lowest, highest, logs, places: OnceLock::new() }
    }

    fn places(&self) -> &Curve<8> {
        self.places.get_or_init(|| {
            let octaves = libm::log2(self.highest + self.offset) as u32 + 2;
            Curve::new(octaves.max(2), |value| {
                let Position { segment, along } = self.locate(libm::log(value));
                segment as f64 + along
            })
        })
    }

    /// Whether `value` lies between the sampled points.
    pub(super) fn covers(&self, value: f64) -> bool {
        (self.lowest..=self.highest).contains(&value)
    }

    /// Where a value lies.
    #[inline]
    pub(super) fn place(&self, value: f64) -> Position {
        let last = self.logs.len() - 2;
        match self.places().at(value + self.offset) {
            Some(place) => {
                // Below the first segment is counted as in it; the cast makes 0 of what is negative.
                let segment = (place as u32).min(last as u32);
                Position { segment: segment as usize, along: place - f64::from(segment) }
            }
            None => self.locate(libm::log(value + self.offset)),
        }
    }

    /// Where a logarithm lies.
    fn locate(&self, log: f64) -> Position {
        let last = self.logs.len() - 2;
        let segment = self.logs.partition_point(|&point| point <= log).saturating_sub(1).min(last);
        let (low, high) = (self.logs[segment], self.logs[segment + 1]);
        Position { segment, along: (log - low) / (high - low) }
    }

    /// Adds a point that is no sample: one that lends its slope to everything beyond.
    fn add_beyond(&mut self, end: End) {
        let log = self.log_beyond(end);
        match end {
            End::Low => self.logs.insert(0, log),
            End::High => self.logs.push(log),
        }
        self.places = OnceLock::new();
    }

    fn log_beyond(&self, end: End) -> f64 {
        match end {
            End::Low => self.logs[0] - std::f64::consts::LN_2,
            End::High => self.logs[self.logs.len() - 1] + std::f64::consts::LN_2,
        }
    }
}

/// One of the two ends of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Low,
    High,
}

/// Values over `N` axes, kept as logarithms.
#[derive(Clone, Debug)]
pub(super) struct LogGrid<const N: usize> {
    axes: [Axis; N],
    logs: Vec<f64>,
    /// See [`strides`].
    strides: [usize; 2],
}

impl<const N: usize> LogGrid<N> {
    /// `values` are positive, in the order of the axes, the last running fastest.
    pub(super) fn new(axes: [Axis; N], values: impl Iterator<Item = f64>) -> Self {
        let logs: Vec<f64> = values.map(libm::log).collect();
        assert_eq!(logs.len(), axes.iter().map(|axis| axis.logs.len()).product::<usize>());
        let strides = strides(&axes);
        Self { axes, logs, strides }
    }

    /// Continues the grid beyond one end of an axis at the slope of its last octave there, kept between 0 and
    /// `steepest`: more work never takes less time, nor more than its share.
    pub(super) fn continued(mut self, axis: usize, end: End, steepest: f64) -> Self {
        let points = self.axes[axis].logs.clone();
        let inner: usize = self.axes[axis + 1..].iter().map(|axis| axis.logs.len()).product();
        let beyond = self.axes[axis].log_beyond(end);
        let (edge, inside) = match end {
            End::Low => {
                (0, points.partition_point(|point| point - points[0] < 0.999 * std::f64::consts::LN_2))
            }
            End::High => {
                let last = points.len() - 1;
                let octave = points[last] - 0.999 * std::f64::consts::LN_2;
                (last, points.partition_point(|&point| point <= octave).max(1) - 1)
            }
        };
        let inside = inside.min(points.len() - 1);
        let mut logs = Vec::with_capacity(self.logs.len() / points.len() * (points.len() + 1));
        for block in self.logs.chunks(points.len() * inner) {
            let added = (0..inner).map(|at| {
                let (edge_value, inside_value) = (block[edge * inner + at], block[inside * inner + at]);
                let slope = (edge_value - inside_value) / (points[edge] - points[inside]);
                edge_value + slope.clamp(0.0, steepest) * (beyond - points[edge])
            });
            match end {
                End::Low => {
                    logs.extend(added);
                    logs.extend_from_slice(block);
                }
                End::High => {
                    logs.extend_from_slice(block);
                    logs.extend(added);
                }
            }
        }
        self.logs = logs;
        self.axes[axis].add_beyond(end);
        self.strides = strides(&self.axes);
        self
    }

    pub(super) fn axis(&self, axis: usize) -> &Axis {
        &self.axes[axis]
    }

    /// Whether a point lies between the samples.
    pub(super) fn covers(&self, point: [f64; N]) -> bool {
        self.axes.iter().zip(point).all(|(axis, value)| axis.covers(value))
    }

    /// The value at a point.
    pub(super) fn at(&self, point: [f64; N]) -> f64 {
        let mut positions = [Position { segment: 0, along: 0.0 }; N];
        for ((position, axis), value) in positions.iter_mut().zip(&self.axes).zip(point) {
            *position = axis.locate(libm::log(value + axis.offset));
        }
        self.value_at(positions)
    }

    /// The value at a place.
    #[inline]
    pub(super) fn value_at(&self, positions: [Position; N]) -> f64 {
        const { assert!(N >= 1 && N <= 3) };
        let mut corner = 0;
        for (axis, position) in self.axes.iter().zip(positions) {
            corner = corner * axis.logs.len() + position.segment;
        }
        let cell = &self.logs[corner..];
        let along = |axis: usize| positions[axis].along;
        let [ahead, behind] = self.strides;
        let edge = |at: usize| {
            let [low, high] = *cell[at..].first_chunk::<2>().expect("a cell has two ends");
            low + (high - low) * along(N - 1)
        };
        let side = |at: usize| {
            let low = edge(at);
            low + (edge(at + behind) - low) * along(N.saturating_sub(2))
        };
        let log = match N {
            1 => edge(0),
            2 => side(0),
            // On a sampled point of the first axis, which one prompt or two are, only half of the corners matter.
            _ if along(0) == 0.0 => side(0),
            _ => {
                let low = side(0);
                low + (side(ahead) - low) * along(0)
            }
        };
        exp(log)
    }
}

/// How far neighbours along the first of three axes lie apart, and neighbours along the last but one.
fn strides<const N: usize>(axes: &[Axis; N]) -> [usize; 2] {
    let behind = axes[N - 1].logs.len();
    let between = if N > 2 { axes[N - 2].logs.len() } else { 1 };
    [behind * between, behind]
}

/// A function tabulated at `2^BITS` equally spaced points of every octave from 1 up, and straight between them.
///
/// Finding a place takes no logarithm: the point is the leading bits of the argument's binary form. Whole numbers up to
/// `2^(BITS + 1)` are points themselves; between points a power of the argument with an exponent between 0 and 1 is met
/// to within `2^(-2 BITS) / 32` of its value.
#[derive(Clone, Debug)]
pub(super) struct Curve<const BITS: u32> {
    values: Box<[f64]>,
}

impl<const BITS: u32> Curve<BITS> {
    const DROPPED: u32 = 52 - BITS;
    /// Number of the point 1.
    const FIRST: u64 = 1023 << BITS;

    /// The function from 1 up to, and not including, `2^octaves`.
    pub(super) fn new(octaves: u32, function: impl Fn(f64) -> f64) -> Self {
        let points = u64::from(octaves) << BITS;
        let point = |number: u64| f64::from_bits((Self::FIRST + number) << Self::DROPPED);
        Self { values: (0..=points).map(|number| function(point(number))).collect() }
    }

    /// The value at `argument`; `None` outside the table.
    #[inline]
    pub(super) fn at(&self, argument: f64) -> Option<f64> {
        let bits = argument.to_bits();
        let number = (bits >> Self::DROPPED).wrapping_sub(Self::FIRST) as usize;
        let [low, high] = *self.values.get(number..)?.first_chunk::<2>()?;
        // Processors turn signed numbers into floating-point ones in one step.
        let beyond = (bits & ((1 << Self::DROPPED) - 1)) as i64;
        let along = beyond as f64 / (1_u64 << Self::DROPPED) as f64;
        Some(low + (high - low) * along)
    }
}

/// Requests of decode passes whose curves are kept once they have been asked for.
const KEPT_ROWS: usize = 1024;
/// Octaves of lengths that curves cover.
const LENGTH_OCTAVES: u32 = 18;

type LengthCurve = Curve<5>;

/// What decoding costs by requests and by their length.
#[derive(Debug)]
pub(super) struct DecodeSurface {
    grid: LogGrid<2>,
    /// By length, for each number of requests.
    rows: Box<[OnceLock<LengthCurve>]>,
}

impl DecodeSurface {
    /// A surface over requests and length that goes on beyond what was sampled.
    pub(super) fn new(sampled: LogGrid<2>) -> Self {
        let grid =
            sampled.continued(0, End::High, 1.0).continued(1, End::High, 1.0).continued(1, End::Low, 1.0);
        Self { grid, rows: (0..KEPT_ROWS).map(|_| OnceLock::new()).collect() }
    }

    /// What decoding `requests` at a time costs by their length; they are not 0.
    #[inline]
    pub(super) fn of(&self, requests: u32) -> DecodeRow<'_> {
        let kept = self.rows.get(requests as usize);
        let curve = kept.map(|curve| curve.get_or_init(|| self.curve(requests)));
        let requests = f64::from(requests);
        DecodeRow { grid: &self.grid, requests, curve, is_sampled: self.grid.axis(0).covers(requests) }
    }

    fn curve(&self, requests: u32) -> LengthCurve {
        let grid = &self.grid;
        let batch = grid.axis(0).place(f64::from(requests));
        LengthCurve::new(LENGTH_OCTAVES, |context| grid.value_at([batch, grid.axis(1).place(context)]))
    }
}

/// What decoding one number of requests at a time costs by their length.
#[derive(Clone, Copy, Debug)]
pub(super) struct DecodeRow<'a> {
    grid: &'a LogGrid<2>,
    requests: f64,
    curve: Option<&'a LengthCurve>,
    is_sampled: bool,
}

impl DecodeRow<'_> {
    /// The value at a mean length of `context` tokens, which are not 0.
    #[inline]
    pub(super) fn at(&self, context: f64) -> f64 {
        self.curve
            .and_then(|curve| curve.at(context))
            .unwrap_or_else(|| self.grid.at([self.requests, context.max(1.0)]))
    }

    /// Whether this length lies between the samples.
    #[inline]
    pub(super) fn covers(&self, context: f64) -> bool {
        self.is_sampled && self.grid.axis(1).covers(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn powers() -> LogGrid<2> {
        let axes = [Axis::new(&[1.0, 2.0, 3.0, 8.0], 0.0), Axis::new(&[0.0, 100.0, 4000.0], 256.0)];
        let values = [1.0_f64, 2.0, 3.0, 8.0]
            .into_iter()
            .flat_map(|x| [0.0_f64, 100.0, 4000.0].map(|y| 5.0 * x.powf(0.7) * (y + 256.0).sqrt()));
        LogGrid::new(axes, values)
    }

    #[test]
    fn powers_are_met_exactly_inside_and_outside() {
        let grid = powers().continued(0, End::High, 1.0).continued(1, End::High, 1.0);
        for (x, y) in [(1.0, 0.0), (1.7, 50.0), (3.0, 4000.0), (8.0, 17.0), (900.0, 1e6)] {
            let expected = 5.0 * f64::powf(x, 0.7) * f64::sqrt(y + 256.0);
            assert!((grid.at([x, y]) / expected - 1.0).abs() < 1e-12, "{x} {y}");
        }
        assert!(grid.covers([8.0, 4000.0]) && !grid.covers([8.1, 0.0]) && !grid.covers([0.9, 0.0]));
    }

    #[test]
    fn what_lies_beyond_grows_neither_backwards_nor_faster_than_its_share() {
        let falling = LogGrid::new([Axis::new(&[1.0, 4.0, 8.0], 0.0)], [1.0, 9.0, 2.0].into_iter());
        let beyond = falling.continued(0, End::High, 1.0);
        assert!((beyond.at([64.0]) - 2.0).abs() < 1e-12);
        let steep = LogGrid::new([Axis::new(&[2.0, 4.0, 8.0], 0.0)], [16.0, 256.0, 4096.0].into_iter());
        let beyond = steep.continued(0, End::High, 1.0).continued(0, End::Low, 1.0);
        assert!((beyond.at([32.0]) - 16384.0).abs() < 1e-8);
        assert!((beyond.at([0.5]) - 4.0).abs() < 1e-12);
    }

    #[test]
    fn every_segment_is_found() {
        let points = [1.0, 2.0, 3.0, 7.0, 128.0, 129.0, 4096.0, 131_072.0];
        let axis = Axis::new(&points, 0.0);
        for (segment, pair) in points.windows(2).enumerate() {
            for along in [0.0, 0.3, 0.99] {
                let log = axis.logs[segment] + along * (axis.logs[segment + 1] - axis.logs[segment]);
                let found = axis.locate(log);
                assert_eq!(found.segment, segment, "{pair:?}");
                assert!((found.along - along).abs() < 1e-9);
                let quick = axis.place(log.exp());
                let differs = quick.segment as f64 + quick.along - segment as f64 - along;
                assert!(differs.abs() < 1e-3, "{pair:?} {along}");
            }
        }
        assert_eq!(axis.place(1e9).segment, points.len() - 2);
        assert_eq!(axis.place(0.1).segment, 0);
    }

    #[test]
    fn a_curve_is_exact_at_small_whole_numbers_and_close_between() {
        let curve = Curve::<7>::new(10, |x| x.powf(0.6));
        for number in 1..=256 {
            let number = f64::from(number);
            assert_eq!(curve.at(number), Some(number.powf(0.6)));
        }
        let mut x = 1.0;
        while x < 1023.9 {
            assert!((curve.at(x).unwrap() / x.powf(0.6) - 1.0).abs() < 2e-6, "{x}");
            x += 0.37;
        }
        assert_eq!(curve.at(1024.0), None);
        assert_eq!(curve.at(0.99), None);
        assert_eq!(curve.at(f64::NAN), None);
    }
}
