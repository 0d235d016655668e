//! The lowest point of a smooth function, by its slopes.

/// Steps that are remembered to guess the curvature.
const MEMORY: usize = 6;
/// A step has to gain this share of what the slope promises.
const SUFFICIENT: f64 = 1e-4;
/// A step that gains less than this was the last.
const NOTHING: f64 = 1e-4;

/// A value and the slope in each direction; `None` where the function does not exist.
type Value = Option<(f64, Vec<f64>)>;

/// Walks downhill from `start` for at most `steps` steps by the limited-memory method of Broyden, Fletcher, Goldfarb and
/// Shanno, halving steps that gain too little. Returns where it got, and the value there.
pub(super) fn minimise(
    function: impl Fn(&[f64]) -> Value,
    start: &[f64],
    steps: usize,
) -> Option<(Vec<f64>, f64)> {
    let mut place = start.to_vec();
    let (mut value, mut slope) = function(&place)?;
    let mut history: Vec<(Vec<f64>, Vec<f64>)> = Vec::new();
    for _ in 0..steps {
        let mut direction = downhill(&slope, &history);
        let mut promise = dot(&direction, &slope);
        if promise >= 0.0 {
            history.clear();
            direction = slope.iter().map(|slope| -slope).collect();
            promise = -dot(&slope, &slope);
        }
        let first = if history.is_empty() { 1.0 / libm::sqrt(-promise).max(1.0) } else { 1.0 };
        let Some((step, next, (next_value, next_slope))) =
            search_line(&function, &place, value, &direction, promise, first)
        else {
            break;
        };
        let moved: Vec<f64> = direction.iter().map(|part| part * step).collect();
        let bent: Vec<f64> = next_slope.iter().zip(&slope).map(|(new, old)| new - old).collect();
        if dot(&moved, &bent) > 1e-12 {
            history.push((moved, bent));
            if history.len() > MEMORY {
                history.remove(0);
            }
        }
        let gain = value - next_value;
        (place, value, slope) = (next, next_value, next_slope);
        if gain < NOTHING {
            break;
        }
    }
    Some((place, value))
}

type Step = (f64, Vec<f64>, (f64, Vec<f64>));

fn search_line(
    function: &impl Fn(&[f64]) -> Value,
    place: &[f64],
    value: f64,
    direction: &[f64],
    promise: f64,
    first: f64,
) -> Option<Step> {
    let mut step = first;
    for _ in 0..12 {
        let next: Vec<f64> = place.iter().zip(direction).map(|(place, part)| place + step * part).collect();
        match function(&next) {
            Some((next_value, slope)) if next_value <= value + SUFFICIENT * step * promise => {
                return Some((step, next, (next_value, slope)));
            }
            _ => step /= 2.0,
        }
    }
    None
}

/// The two-loop recursion.
fn downhill(slope: &[f64], history: &[(Vec<f64>, Vec<f64>)]) -> Vec<f64> {
    let mut direction: Vec<f64> = slope.iter().map(|slope| -slope).collect();
    let mut shares = Vec::with_capacity(history.len());
    for (moved, bent) in history.iter().rev() {
        let share = dot(moved, &direction) / dot(moved, bent);
        add(&mut direction, -share, bent);
        shares.push(share);
    }
    if let Some((moved, bent)) = history.last() {
        let scale = dot(moved, bent) / dot(bent, bent);
        for part in &mut direction {
            *part *= scale;
        }
    }
    for ((moved, bent), share) in history.iter().zip(shares.into_iter().rev()) {
        let correction = dot(bent, &direction) / dot(moved, bent);
        add(&mut direction, share - correction, moved);
    }
    direction
}

fn dot(left: &[f64], right: &[f64]) -> f64 {
    left.iter().zip(right).map(|(left, right)| left * right).sum()
}

fn add(to: &mut [f64], factor: f64, what: &[f64]) {
    for (to, what) in to.iter_mut().zip(what) {
        *to += factor * what;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_valley_of_rosenbrock() {
        let banana = |at: &[f64]| {
            let (x, y) = (at[0], at[1]);
            let value = (1.0 - x).powi(2) + 100.0 * (y - x * x).powi(2);
            Some((value, vec![-2.0 * (1.0 - x) - 400.0 * x * (y - x * x), 200.0 * (y - x * x)]))
        };
        let (place, value) = minimise(banana, &[-1.2, 1.0], 100).unwrap();
        assert!(value < 1e-4, "{value}");
        assert!((place[0] - 1.0).abs() < 0.02 && (place[1] - 1.0).abs() < 0.04, "{place:?}");
    }

    #[test]
    fn places_where_there_is_no_function_are_avoided() {
        let logarithm = |at: &[f64]| (at[0] > 0.0).then(|| (at[0] - at[0].ln(), vec![1.0 - 1.0 / at[0]]));
        let (place, _) = minimise(logarithm, &[0.01], 50).unwrap();
        assert!((place[0] - 1.0).abs() < 0.02, "{place:?}");
        assert!(minimise(logarithm, &[-1.0], 50).is_none());
    }
}
