//! A table fitted to scattered measurements.
//!
//! The table's values are unknowns; each measurement says what the interpolation between them comes to, every one with the
//! weight of its own size, so that relative errors count. What no measurement says is filled in as smoothly as possible.
//! That is one linear least-squares problem. On a complete regular grid the table is the measurements themselves.

use super::surface::{Table, place};

/// Most unknowns of a table.
const MOST_VALUES: usize = 400;
/// Weight of smoothness against measurements.
const SMOOTHNESS: f64 = 1e-6;
/// Keeps what neither measurements nor smoothness tell near the mean.
const RIDGE: f64 = 1e-12;

/// A table with what is known of its quality.
#[derive(Clone, Debug)]
pub(super) struct Fit<const N: usize> {
    pub(super) table: Table<N>,
    /// For each measurement how far the table lies from it, as a share.
    pub(super) residuals: Vec<f64>,
    /// The same for a table that was fitted without this measurement.
    pub(super) left_out: Vec<f64>,
    /// Neighbouring values of the table that fall by more than a tenth although the work grows.
    pub(super) drops: usize,
}

/// Fits a table to `points`: coordinates and milliseconds.
pub(super) fn fit<const N: usize>(points: &[([f64; N], f64)]) -> Fit<N> {
    let knots = choose_knots(points);
    let sizes: [usize; N] = std::array::from_fn(|axis| knots[axis].len());
    let values: usize = sizes.iter().product();
    let mean = points.iter().map(|(_, ms)| ms).sum::<f64>() / points.len() as f64;
    // Each row says: weights times values, over the measurement, is 1. Values count from the mean.
    let rows: Vec<(Vec<(usize, f64)>, f64)> = points
        .iter()
        .map(|(point, ms)| {
            let row = weights(&knots, *point).into_iter().map(|(at, weight)| (at, weight / ms)).collect();
            (row, 1.0 - mean / ms)
        })
        .collect();
    let mut normal = Matrix::zero(values);
    let mut right = vec![0.0; values];
    for (row, target) in &rows {
        for &(i, weight) in row {
            right[i] += weight * target;
            for &(j, other) in row {
                normal.add(i, j, weight * other);
            }
        }
    }
    add_smoothness(&mut normal, &knots, sizes, mean);
    for i in 0..values {
        normal.add(i, i, RIDGE / (mean * mean));
    }
    let factor = normal.cholesky();
    let fitted = factor.solve(right);
    let (mut residuals, mut left_out) = (Vec::new(), Vec::new());
    for (row, target) in &rows {
        let found: f64 = row.iter().map(|&(i, weight)| weight * fitted[i]).sum();
        let mut unit = vec![0.0; values];
        for &(i, weight) in row {
            unit[i] = weight;
        }
        let solved = factor.solve(unit);
        // The leverage: how much of its own fitted value a measurement decides.
        let leverage: f64 = row.iter().map(|&(i, weight)| weight * solved[i]).sum();
        let error = found - target;
        residuals.push(error.abs());
        left_out.push((error / (1.0 - leverage).max(1e-9)).abs());
    }
    let values: Vec<f64> = fitted.into_iter().map(|value| value + mean).collect();
    let drops = drops(&values, sizes);
    Fit { table: Table { knots, values }, residuals, left_out, drops }
}

/// The points of each axis: the coordinates that were measured, thinned out evenly where they are too many.
fn choose_knots<const N: usize>(points: &[([f64; N], f64)]) -> [Vec<f64>; N] {
    let distinct: [Vec<f64>; N] = std::array::from_fn(|axis| {
        let mut values: Vec<f64> = points.iter().map(|(point, _)| point[axis]).collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        values
    });
    let mut sizes: [usize; N] = std::array::from_fn(|axis| distinct[axis].len());
    while sizes.iter().product::<usize>() > MOST_VALUES {
        let largest = (0..N).max_by_key(|axis| sizes[*axis]).expect("a table has axes");
        sizes[largest] -= 1;
    }
    std::array::from_fn(|axis| {
        let (values, size) = (&distinct[axis], sizes[axis]);
        (0..size).map(|knot| values[knot * (values.len() - 1) / (size - 1).max(1)]).collect()
    })
}

/// The values that a point is interpolated from, with their weights.
fn weights<const N: usize>(knots: &[Vec<f64>; N], point: [f64; N]) -> Vec<(usize, f64)> {
    let mut row = vec![(0, 1.0)];
    for (knots, value) in knots.iter().zip(point) {
        let (segment, along) = place(knots, value);
        let below = row.iter().map(|&(at, weight)| (at * knots.len() + segment, weight * (1.0 - along)));
        let above = row.iter().map(|&(at, weight)| (at * knots.len() + segment + 1, weight * along));
        row = below.chain(above).filter(|(_, weight)| *weight != 0.0).collect();
    }
    row
}

/// Bends of the table along each axis, as the share of the mean by which the middle of three lies off the line through
/// the others.
fn add_smoothness<const N: usize>(normal: &mut Matrix, knots: &[Vec<f64>; N], sizes: [usize; N], mean: f64) {
    let strength = SMOOTHNESS / (mean * mean);
    for axis in 0..N {
        let knots = &knots[axis];
        let stride: usize = sizes[axis + 1..].iter().product();
        for start in 0..normal.size {
            let place = start / stride % sizes[axis];
            if place + 2 >= sizes[axis] {
                continue;
            }
            let along = (knots[place + 1] - knots[place]) / (knots[place + 2] - knots[place]);
            let bend = [(start, along - 1.0), (start + stride, 1.0), (start + 2 * stride, -along)];
            for (i, weight) in bend {
                for (j, other) in bend {
                    normal.add(i, j, strength * weight * other);
                }
            }
        }
    }
}

fn drops<const N: usize>(table: &[f64], sizes: [usize; N]) -> usize {
    let mut drops = 0;
    for axis in 0..N {
        let stride: usize = sizes[axis + 1..].iter().product();
        let inside = (0..table.len()).filter(|start| start / stride % sizes[axis] + 1 < sizes[axis]);
        drops += inside.filter(|start| table[start + stride] < 0.9 * table[*start]).count();
    }
    drops
}

/// A symmetric matrix, or the lower triangle that it is the square of.
struct Matrix {
    size: usize,
    cells: Vec<f64>,
}

impl Matrix {
    fn zero(size: usize) -> Self {
        Self { size, cells: vec![0.0; size * size] }
    }

    fn add(&mut self, row: usize, column: usize, value: f64) {
        self.cells[row * self.size + column] += value;
    }

    fn row(&self, row: usize) -> &[f64] {
        &self.cells[row * self.size..(row + 1) * self.size]
    }

    /// The lower triangle whose product with its mirror image is this positive definite matrix.
    fn cholesky(mut self) -> Self {
        for row in 0..self.size {
            for column in 0..=row {
                let both = self.row(row)[..column].iter().zip(&self.row(column)[..column]);
                let rest = self.row(row)[column] - both.map(|(left, right)| left * right).sum::<f64>();
                self.cells[row * self.size + column] = if row == column {
                    // Rounding may take the last bit of a pivot that only the ridge holds up.
                    rest.max(RIDGE * RIDGE).sqrt()
                } else {
                    rest / self.row(column)[column]
                };
            }
        }
        self
    }

    /// Solves for the right side, with this as the triangle of the matrix.
    fn solve(&self, mut right: Vec<f64>) -> Vec<f64> {
        for row in 0..self.size {
            let known = self.row(row)[..row].iter().zip(&right[..row]);
            let rest = right[row] - known.map(|(cell, value)| cell * value).sum::<f64>();
            right[row] = rest / self.row(row)[row];
        }
        for row in (0..self.size).rev() {
            right[row] /= self.row(row)[row];
            let value = right[row];
            for (column, cell) in self.row(row)[..row].iter().enumerate() {
                right[column] -= cell * value;
            }
        }
        right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost([batch, context]: [f64; 2]) -> f64 {
        3.0 + 0.02 * batch + 1e-5 * batch * context
    }

    #[test]
    fn a_regular_grid_is_kept() {
        let mut points = Vec::new();
        for batch in [1.0, 2.0, 8.0, 32.0] {
            for context in [100.0, 1000.0, 5000.0] {
                points.push(([batch, context], cost([batch, context]) * (1.0 + 0.05 * (batch % 3.0))));
            }
        }
        let fit = fit(&points);
        assert!(fit.residuals.iter().all(|error| *error < 1e-5), "{:?}", fit.residuals);
        for (point, ms) in points {
            assert!((fit.table.at(point) / ms - 1.0).abs() < 1e-5);
        }
        assert_eq!(fit.drops, 0);
        assert!(fit.left_out.iter().all(|error| (0.0..0.3).contains(error)), "{:?}", fit.left_out);
    }

    #[test]
    fn scattered_measurements_of_straight_lines_give_them_back() {
        let mut state = 7_u64;
        let mut draw = |most: f64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            1.0 + (state >> 40) as f64 / (1_u64 << 24) as f64 * most
        };
        let points: Vec<_> =
            (0..60).map(|_| [draw(63.0), draw(9999.0)]).map(|point| (point, cost(point))).collect();
        let fit = fit(&points);
        for point in [[2.0, 300.0], [20.0, 5000.0], [50.0, 900.0]] {
            assert!((fit.table.at(point) / cost(point) - 1.0).abs() < 0.01, "{point:?}");
        }
        assert!(fit.left_out.iter().all(|error| *error < 0.05), "{:?}", fit.left_out);
    }

    #[test]
    fn leaving_one_out_is_what_it_says() {
        let mut points: Vec<([f64; 2], f64)> = Vec::new();
        for batch in [1.0, 4.0, 16.0, 64.0] {
            for context in [64.0, 512.0, 4096.0, 32_768.0] {
                points.push(([batch, context], cost([batch, context])));
            }
        }
        points[6].1 *= 1.5;
        let whole = fit(&points);
        assert!((0.2..0.5).contains(&whole.left_out[6]), "{:?}", whole.left_out);
        let best = whole.left_out.iter().copied().fold(f64::INFINITY, f64::min);
        assert!(best < 0.05);
    }
}
