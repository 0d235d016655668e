//! The least value of a function of a few numbers, by the simplex of Nelder and Mead.

/// Evaluations at most.
const EVALUATIONS: usize = 1200;
/// How far the corners of the first simplex lie from the start.
const STEP: f64 = 0.7;
/// The simplex is small enough when its values differ by less.
const CLOSE: f64 = 1e-5;

/// Where `function` is least, as far as a walk downhill from `start` finds it; twice, the second time from where the
/// first has ended.
pub(crate) fn minimise(function: impl Fn(&[f64]) -> f64, start: &[f64]) -> Vec<f64> {
    let first = descend(&function, start, STEP);
    descend(&function, &first, STEP / 3.0)
}

fn descend(function: &impl Fn(&[f64]) -> f64, start: &[f64], step: f64) -> Vec<f64> {
    let mut corners: Vec<(f64, Vec<f64>)> = vec![(function(start), start.to_vec())];
    for axis in 0..start.len() {
        let mut corner = start.to_vec();
        corner[axis] += step;
        corners.push((function(&corner), corner));
    }
    let mut evaluations = corners.len();
    while evaluations < EVALUATIONS {
        corners.sort_by(|left, right| left.0.total_cmp(&right.0));
        let last = corners.len() - 1;
        if corners[last].0 - corners[0].0 < CLOSE {
            break;
        }
        let centre: Vec<f64> = (0..start.len())
            .map(|axis| corners[..last].iter().map(|(_, corner)| corner[axis]).sum::<f64>() / last as f64)
            .collect();
        let worst = corners[last].1.clone();
        let along = |share: f64| -> (f64, Vec<f64>) {
            let corner: Vec<f64> =
                centre.iter().zip(&worst).map(|(centre, worst)| centre + share * (centre - worst)).collect();
            (function(&corner), corner)
        };
        let mirrored = along(1.0);
        evaluations += 1;
        if mirrored.0 < corners[0].0 {
            let further = along(2.0);
            evaluations += 1;
            corners[last] = if further.0 < mirrored.0 { further } else { mirrored };
        } else if mirrored.0 < corners[last - 1].0 {
            corners[last] = mirrored;
        } else {
            let nearer = if mirrored.0 < corners[last].0 { along(0.5) } else { along(-0.5) };
            evaluations += 1;
            if nearer.0 < corners[last].0.min(mirrored.0) {
                corners[last] = nearer;
            } else {
                let best = corners[0].1.clone();
                for (value, corner) in &mut corners[1..] {
                    for (number, best) in corner.iter_mut().zip(&best) {
                        *number = f64::midpoint(*number, *best);
                    }
                    *value = function(corner);
                }
                evaluations += last;
            }
        }
    }
    corners.sort_by(|left, right| left.0.total_cmp(&right.0));
    corners.swap_remove(0).1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bent_valley_is_walked_to_its_end() {
        let valley = |at: &[f64]| (1.0 - at[0]).powi(2) + 100.0 * (at[1] - at[0] * at[0]).powi(2);
        let least = minimise(valley, &[-1.2, 1.0]);
        assert!((least[0] - 1.0).abs() < 0.02 && (least[1] - 1.0).abs() < 0.04, "{least:?}");
    }
}
