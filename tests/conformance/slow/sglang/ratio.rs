//! The share of the output promised to running requests that is kept free for them.

/// SGLang's *new token ratio*.
#[derive(Debug)]
pub(super) struct Ratio {
    pub now: f64,
    least: f64,
    step: f64,
}

impl Ratio {
    pub(super) fn new(conservativeness: f64, ranks: u32) -> Self {
        let start = 0.7 * conservativeness * if ranks > 1 { 0.3 } else { 1.0 };
        let least = 0.14 * start;
        Self { now: start, least, step: (start - least) / 600.0 }
    }

    pub(super) fn fall(&mut self) {
        self.now = (self.now - self.step).max(self.least);
    }

    /// Somebody was retracted; of `remaining` requests, each has generated and may generate so many tokens.
    pub(super) fn estimate(&mut self, remaining: &[(u32, u32)]) {
        if remaining.is_empty() {
            return;
        }
        let generated: u64 = remaining.iter().map(|(generated, _)| u64::from(*generated)).sum();
        let most: u64 = remaining.iter().map(|(_, most)| u64::from(*most)).sum();
        let ahead = 20 * remaining.len() as u64;
        self.now = ((generated + ahead) as f64 / (most + 1) as f64).min(1.0);
    }
}
