//! Choosing by cost: shared by all policies that have one.

use rand::RngExt;

use super::PolicyContext;

/// The place of a cost: of the least, ties drawn evenly, at temperature 0; else drawn with softmax weights.
pub fn choose(costs: &[f64], temperature: f64, ctx: &mut PolicyContext<'_, '_>) -> usize {
    if temperature > 0.0 { draw(costs, temperature, ctx) } else { cheapest(costs, ctx) }
}

/// The least cost; among equals each is as likely.
fn cheapest(costs: &[f64], ctx: &mut PolicyContext<'_, '_>) -> usize {
    let (mut best, mut ties) = (0, 1_u32);
    for (index, &cost) in costs.iter().enumerate().skip(1) {
        if cost < costs[best] {
            (best, ties) = (index, 1);
        } else if cost == costs[best] {
            ties += 1;
            if ctx.rng().random_range(0..ties) == 0 {
                best = index;
            }
        }
    }
    if ties > 1 {
        ctx.note_tie();
    }
    best
}

fn draw(costs: &[f64], temperature: f64, ctx: &mut PolicyContext<'_, '_>) -> usize {
    let weights = softmax_weights(costs, temperature);
    let mut left = ctx.rng().random::<f64>() * weights.iter().sum::<f64>();
    for (index, weight) in weights.iter().enumerate() {
        left -= weight;
        if left < 0.0 {
            return index;
        }
    }
    weights.len() - 1
}

/// Weight of each cost, the least having 1: costs are scaled by their spread, so equal costs weigh the same.
pub fn softmax_weights(costs: &[f64], temperature: f64) -> Vec<f64> {
    let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
    let most = costs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let scale = (most - least) * temperature;
    let weight = |cost: f64| if scale > 0.0 { libm::exp(-(cost - least) / scale) } else { 1.0 };
    costs.iter().map(|&cost| weight(cost)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::test_support::in_context;
    use super::*;

    #[test]
    fn softmax_is_scaled_by_the_spread() {
        let weights = softmax_weights(&[5.0, 8.0], 0.5);
        assert!((weights[0] / weights.iter().sum::<f64>() - 0.880_797).abs() < 1e-6);
        assert_eq!(softmax_weights(&[5.0, 5.0], 0.5), [1.0, 1.0]);
    }

    #[test]
    fn the_least_is_taken_and_ties_are_drawn_evenly() {
        in_context(|ctx| {
            let mut chosen = [0; 4];
            for _ in 0..3000 {
                chosen[choose(&[2.0, 1.0, 1.0, 1.0], 0.0, ctx)] += 1;
            }
            assert_eq!(chosen[0], 0);
            assert!(chosen[1..].iter().all(|times| (900..1100).contains(times)), "{chosen:?}");
        });
    }

    #[test]
    fn a_temperature_draws_with_the_weights() {
        in_context(|ctx| {
            let dear = (0..10_000).filter(|_| choose(&[5.0, 8.0], 0.5, ctx) == 1).count();
            assert!((1050..1350).contains(&dear), "about 1192 of 10,000, not {dear}");
        });
    }
}
