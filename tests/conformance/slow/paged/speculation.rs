//! Draft tokens (MTP): several may leave in one pass.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;
use spica::config::scenario::EngineOptions;
use spica::report::record::Role;
use spica::workload::RequestId;

use super::{Engine, Plan};
use crate::slow::engine::Shared;

/// How likely each draft token is right, given that those before it are, where nothing else is said.
const USUAL_RATES: [f64; 5] = [0.85, 0.3, 0.0, 0.0, 0.0];

/// The draws of one engine.
#[derive(Debug)]
pub(super) struct Speculation<'a> {
    drafts: u32,
    rates: &'a [f64],
    draws: ChaCha12Rng,
}

impl<'a> Speculation<'a> {
    /// `None` where nobody speculates.
    pub(super) fn new(options: &'a EngineOptions, rank: u32) -> Option<Self> {
        Some(Self {
            drafts: options.aic_nextn?,
            rates: options.aic_nextn_accept_rates.as_deref().unwrap_or(&USUAL_RATES),
            draws: ChaCha12Rng::seed_from_u64(options.aic_mtp_seed + u64::from(rank)),
        })
    }

    /// Draft tokens that are right, drawn one after the other up to the first that is wrong.
    fn accepted(&mut self) -> u32 {
        let rates = &self.rates[..self.drafts as usize];
        rates.iter().take_while(|&&rate| self.draws.random::<f64>() < rate).count() as u32
    }
}

impl Engine<'_> {
    /// Reserves blocks for the tokens that may come of this pass, for whoever is about to generate.
    pub(super) fn look_ahead(&mut self, plan: &mut Plan) {
        if self.speculation.is_none() {
            return;
        }
        let is_ready = |request: &RequestId| {
            let sequence = self.sequence(*request);
            sequence.computed >= sequence.length() && self.outputs_left(*request) > 0
        };
        let ready: Vec<RequestId> = self.running.iter().copied().filter(is_ready).collect();
        for request in ready {
            if !self.running.contains(&request) {
                continue;
            }
            let tokens = self.sequence(request).length() + self.tokens_ahead(request);
            if self.make_room(request, tokens, plan) {
                self.take_blocks(request, tokens);
            }
        }
    }

    /// Tokens that may come of a request's next step and need blocks beforehand.
    pub(super) fn tokens_ahead(&self, request: RequestId) -> u32 {
        self.speculation
            .as_ref()
            .map_or(0, |speculation| (speculation.drafts + 1).min(self.outputs_left(request)))
    }

    /// Tokens that a request with all its known tokens computed generates in this pass.
    pub(super) fn burst(&mut self, request: RequestId) -> u32 {
        let left = self.outputs_left(request);
        if left == 0 {
            return 0;
        }
        let accepted = self.speculation.as_mut().map_or(0, Speculation::accepted);
        (1 + accepted).min(left)
    }

    /// All tokens of a burst but the last were computed in the pass that checked them.
    pub(super) fn keep_burst(&mut self, request: RequestId, shared: &mut Shared<'_>) {
        let sequence = self.sequence(request);
        let (before, after) = (sequence.computed, sequence.length() - 1);
        if self.role != Role::Prefill && after > before {
            self.publish(request, before, after, shared);
            self.sequence_mut(request).computed = after;
        }
    }
}
