//! How near ranks came to the limits of their engines.

/// The most that a rank, or any rank of several, did at a time: limits above it were never reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peaks {
    /// Running requests.
    pub running_requests: u32,
    /// Tokens computed in one pass.
    pub batched_tokens: u32,
}

impl Peaks {
    /// Takes into account how many requests run.
    pub fn see_running(&mut self, requests: usize) {
        self.running_requests = self.running_requests.max(requests as u32);
    }

    /// Takes into account how many tokens a pass computes.
    pub fn see_batched(&mut self, tokens: u32) {
        self.batched_tokens = self.batched_tokens.max(tokens);
    }

    /// The most that either did.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            running_requests: self.running_requests.max(other.running_requests),
            batched_tokens: self.batched_tokens.max(other.batched_tokens),
        }
    }
}
