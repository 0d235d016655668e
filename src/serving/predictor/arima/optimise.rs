//! A quasi-Newton search for the minimum of a smooth function of a few numbers.

const MOST_STEPS: usize = 50;
const DIFFERENCE: f64 = 1e-5;
const SMALLEST_GRADIENT: f64 = 1e-5;

/// Looks for a minimum of `function` near `start` by BFGS with central difference quotients; deterministic.
pub(super) fn minimise(start: Vec<f64>, function: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let size = start.len();
    let mut place = start;
    let mut value = function(&place);
    let mut slope = gradient(&place, &function);
    let mut inverse = identity(size);
    for _ in 0..MOST_STEPS {
        if slope.iter().all(|part| part.abs() < SMALLEST_GRADIENT) {
            break;
        }
        let mut direction: Vec<f64> = inverse.iter().map(|row| -dot(row, &slope)).collect();
        if dot(&direction, &slope) >= 0.0 {
            inverse = identity(size);
            direction = slope.iter().map(|part| -part).collect();
        }
        let Some((next, next_value)) = step(&place, value, &direction, &slope, &function) else { break };
        let next_slope = gradient(&next, &function);
        let moved: Vec<f64> = next.iter().zip(&place).map(|(to, from)| to - from).collect();
        let turned: Vec<f64> = next_slope.iter().zip(&slope).map(|(to, from)| to - from).collect();
        update(&mut inverse, &moved, &turned);
        let settled = (value - next_value).abs() <= 1e-10 * (1.0 + value.abs());
        (place, value, slope) = (next, next_value, next_slope);
        if settled {
            break;
        }
    }
    place
}

/// Halves the step until it gains enough.
fn step(
    place: &[f64],
    value: f64,
    direction: &[f64],
    slope: &[f64],
    function: &impl Fn(&[f64]) -> f64,
) -> Option<(Vec<f64>, f64)> {
    let gain = dot(direction, slope);
    let longest = direction.iter().fold(0.0_f64, |most, part| most.max(part.abs()));
    // Beyond a few units the numbers mean the edge of stationarity.
    let mut length = if longest > 2.0 { 2.0 / longest } else { 1.0 };
    for _ in 0..30 {
        let next: Vec<f64> = place.iter().zip(direction).map(|(from, along)| from + length * along).collect();
        let found = function(&next);
        if found.is_finite() && found <= value + 1e-4 * length * gain {
            return Some((next, found));
        }
        length /= 2.0;
    }
    None
}

fn gradient(place: &[f64], function: &impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let mut nearby = place.to_vec();
    (0..place.len())
        .map(|index| {
            nearby[index] = place[index] + DIFFERENCE;
            let above = function(&nearby);
            nearby[index] = place[index] - DIFFERENCE;
            let below = function(&nearby);
            nearby[index] = place[index];
            (above - below) / (2.0 * DIFFERENCE)
        })
        .collect()
}

/// The BFGS update of the inverse of the curvature.
fn update(inverse: &mut [Vec<f64>], moved: &[f64], turned: &[f64]) {
    let along = dot(moved, turned);
    if along <= 1e-12 {
        return;
    }
    let bent: Vec<f64> = inverse.iter().map(|row| dot(row, turned)).collect();
    let factor = (1.0 + dot(turned, &bent) / along) / along;
    for (row, line) in inverse.iter_mut().enumerate() {
        for (column, entry) in line.iter_mut().enumerate() {
            *entry += factor * moved[row] * moved[column]
                - (bent[row] * moved[column] + moved[row] * bent[column]) / along;
        }
    }
}

fn identity(size: usize) -> Vec<Vec<f64>> {
    (0..size).map(|row| (0..size).map(|column| f64::from(u8::from(row == column))).collect()).collect()
}

fn dot(left: &[f64], right: &[f64]) -> f64 {
    left.iter().zip(right).map(|(left, right)| left * right).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bent_valley_has_its_bottom() {
        let valley = |at: &[f64]| (1.0 - at[0]).powi(2) + 10.0 * (at[1] - at[0] * at[0]).powi(2);
        let found = minimise(vec![-1.0, 1.5], valley);
        assert!((found[0] - 1.0).abs() < 1e-3 && (found[1] - 1.0).abs() < 2e-3, "{found:?}");
    }

    #[test]
    fn nothing_to_choose_is_nothing_to_do() {
        assert_eq!(minimise(vec![], |_| 0.0), Vec::<f64>::new());
    }
}
