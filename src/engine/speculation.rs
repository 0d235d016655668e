//! Speculative decoding by multi-token prediction: a step may yield more than one token.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

use super::metrics::Accepted;

/// Chance that the first, second, ... draft token is accepted, given that those before it were.
pub const DEFAULT_ACCEPT_RATES: [f64; 5] = [0.85, 0.3, 0.0, 0.0, 0.0];

/// Draft tokens and their luck, on one engine rank.
#[derive(Clone, Debug)]
pub struct Speculation {
    accept_rates: Vec<f64>,
    rng: ChaCha12Rng,
    accepted: Accepted,
}

impl Speculation {
    /// `drafts` draft tokens per step. Rates that are not given are taken from [`DEFAULT_ACCEPT_RATES`]; `seed` is the
    /// engine's own.
    pub fn new(drafts: u32, accept_rates: Option<&[f64]>, seed: u64) -> Self {
        let given = accept_rates.unwrap_or(&DEFAULT_ACCEPT_RATES);
        let accept_rates =
            (0..drafts as usize).map(|draft| given.get(draft).copied().unwrap_or(0.0)).collect();
        Self { accept_rates, rng: ChaCha12Rng::seed_from_u64(seed), accepted: Accepted::default() }
    }

    /// Tokens that a step yields at most.
    pub fn most_tokens(&self) -> u32 {
        self.accept_rates.len() as u32 + 1
    }

    /// Tokens that the next step yields: one, and one more for each draft accepted in a row.
    pub fn draw(&mut self) -> u32 {
        let Self { accept_rates, rng, accepted } = self;
        let tokens = 1 + accept_rates.iter().take_while(|&&rate| rng.random::<f64>() < rate).count() as u32;
        accepted.tokens += u64::from(tokens);
        accepted.steps += 1;
        tokens
    }

    /// What was drawn since this was last asked.
    pub fn take_accepted(&mut self) -> Accepted {
        std::mem::take(&mut self.accepted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sure_and_impossible_drafts() {
        let tokens = |rates: &[f64]| Speculation::new(2, Some(rates), 42).draw();
        assert_eq!(tokens(&[1.0, 1.0]), 3);
        assert_eq!(tokens(&[1.0, 0.0]), 2);
        assert_eq!(tokens(&[0.0, 1.0]), 1);
    }

    #[test]
    fn default_rates_yield_their_mean() {
        let mut speculation = Speculation::new(3, None, 42);
        let tokens: u32 = (0..20_000).map(|_| speculation.draw()).sum();
        let mean = f64::from(tokens) / 20_000.0;
        assert!((mean - (1.0 + 0.85 + 0.85 * 0.3)).abs() < 0.01, "{mean}");
    }
}
