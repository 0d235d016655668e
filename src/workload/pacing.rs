//! How the arrivals of a workload are used.

use super::problem::Warning;

/// How arrivals and think times are used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pacing {
    /// Closed loop with this many sessions in flight at most; an open loop when absent.
    pub concurrency: Option<u32>,
    /// Divides arrivals and think times of an open loop; 2 means twice the traffic.
    pub speedup: f64,
}

impl Default for Pacing {
    fn default() -> Self {
        Self { concurrency: None, speedup: 1.0 }
    }
}

impl Pacing {
    pub(super) fn is_open(self) -> bool {
        self.concurrency.is_none()
    }

    /// A closed loop takes think times as they are.
    pub(super) fn divisor(self) -> f64 {
        if self.is_open() { self.speedup } else { 1.0 }
    }

    /// Says when the speed-up is without effect.
    pub(super) fn warnings(self) -> Vec<Warning> {
        if self.is_open() || self.speedup == 1.0 {
            return Vec::new();
        }
        let message = "arrival_speedup_ratio has no effect in a closed loop: neither arrivals nor think times are scaled";
        vec![Warning { kind: "arrival_speedup_ratio".into(), count: 1, message: message.into() }]
    }
}
