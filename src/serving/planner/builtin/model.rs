//! The planner's picture of how long passes take: one [`Store`] for each kind of pass, and what is typical of them.

use std::collections::VecDeque;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde::Deserialize;

use super::regression::{Features, Store};
use crate::engine::metrics::PassMetrics;
use crate::report::record::Role;

/// A pass that somebody asks about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Prompts.
    pub prefill_requests: u64,
    /// Prompt tokens to compute.
    pub prefill_tokens: u64,
    /// Prompt tokens computed before.
    pub prefill_kv_tokens: u64,
    /// Generating requests.
    pub decode_requests: u64,
    /// Sum of their contexts.
    pub decode_kv_tokens: u64,
}

/// Predicts the duration of passes in milliseconds.
pub trait PassTimes {
    /// `None` where nothing is known.
    fn predict_ms(&self, query: &Query) -> Option<f64>;
}

/// What the regression goes by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeatureKind {
    /// Pairs of tokens that attend to each other beside contexts, and tokens.
    #[default]
    AttentionFfn,
    /// Prompt tokens, and contexts; what version 1.5.1 of the reference does.
    Raw,
}

impl Query {
    /// What a worker that does `role` has to do with the pass.
    pub fn features(&self, role: Role, kind: FeatureKind) -> Features {
        let (tokens, decodes) = (self.prefill_tokens as f64, self.decode_requests as f64);
        let contexts = self.decode_kv_tokens as f64;
        if kind == FeatureKind::Raw {
            return Features { attention: contexts, ffn: tokens };
        }
        let (mut pairs, mut prefix) = (0.0, 0.0);
        if self.prefill_tokens > 0 {
            prefix = self.prefill_kv_tokens as f64;
            let requests = self.prefill_requests.max(1) as f64;
            pairs = prefix * tokens / requests + tokens * tokens / (2.0 * requests) + tokens / 2.0;
        }
        match role {
            Role::Prefill => Features { attention: prefix + pairs, ffn: tokens },
            Role::Decode => Features { attention: contexts, ffn: decodes },
            Role::Agg => Features { attention: prefix + contexts + pairs, ffn: tokens + decodes },
        }
    }
}

impl From<&PassMetrics> for Query {
    fn from(pass: &PassMetrics) -> Self {
        Self {
            prefill_requests: pass.prefill.requests.into(),
            prefill_tokens: pass.prefill_tokens,
            prefill_kv_tokens: pass.prefill_kv_tokens,
            decode_requests: pass.decode.requests.into(),
            decode_kv_tokens: pass.decode.tokens,
        }
    }
}

/// Which samples a pass belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    PurePrefill,
    PureDecode,
    Mixed,
}

/// How the stores are kept.
#[derive(Clone, Copy, Debug)]
pub struct ModelOptions {
    /// Samples of each store, and values that averages look back on.
    pub most_samples: usize,
    /// Cells of each store's grid.
    pub cells: usize,
    /// Samples from which on a store predicts.
    pub min_observations: usize,
    /// What it goes by.
    pub features: FeatureKind,
    /// Seed of the draws between equally full cells of a store; without one the first of them loses its oldest sample.
    pub tie_seed: Option<u64>,
}

/// What the planner has learnt of the workers of a pool.
#[derive(Clone, Debug)]
pub struct PassModel {
    role: Role,
    features: FeatureKind,
    /// By [`Kind`]: an aggregated worker uses all three, the others one.
    stores: [Store; 3],
    chunk_tokens: Average,
    context_tokens: Average,
    prefill_requests: Average,
    prefill_tokens: Average,
}

impl PassModel {
    /// Knows nothing yet.
    pub fn new(role: Role, options: &ModelOptions) -> Self {
        let store = |kind: Kind| {
            let store = Store::new(options.most_samples, options.cells, options.min_observations);
            let Some(seed) = options.tie_seed else { return store };
            let mut draws = ChaCha8Rng::seed_from_u64(seed);
            draws.set_stream(3 * role as u64 + kind as u64);
            store.drawing(draws)
        };
        let average = || Average::new(options.most_samples);
        Self {
            role,
            features: options.features,
            stores: [Kind::PurePrefill, Kind::PureDecode, Kind::Mixed].map(store),
            chunk_tokens: average(),
            context_tokens: average(),
            prefill_requests: average(),
            prefill_tokens: average(),
        }
    }

    /// Learns from a pass.
    pub fn observe(&mut self, pass: &PassMetrics) {
        let query = Query::from(pass);
        let (prompts, tokens) = (f64::from(pass.prefill.requests), pass.prefill_tokens as f64);
        self.chunk_tokens.add(if prompts > 0.0 { tokens / prompts } else { 0.0 });
        if pass.decode.requests > 0 {
            self.context_tokens.add(pass.decode.tokens as f64 / f64::from(pass.decode.requests));
        }
        self.prefill_requests.add(prompts);
        self.prefill_tokens.add(tokens);
        if let Some(kind) = kind(&query) {
            let features = query.features(self.role, self.features);
            self.stores[kind as usize].observe(features, pass.wall.as_ms());
        }
    }

    /// Whether anything can be predicted.
    pub fn is_ready(&self) -> bool {
        self.stores.iter().any(Store::is_ready)
    }

    /// Mean prompt tokens per prompt and pass; passes without prompts dilute it.
    pub fn average_isl(&self) -> f64 {
        self.chunk_tokens.value()
    }

    /// Mean context of generating requests.
    pub fn average_context(&self) -> f64 {
        self.context_tokens.value()
    }

    /// The prompts that a pass has on average: requests and tokens.
    pub fn typical_prefill(&self) -> (u64, u64) {
        let tokens = self.prefill_tokens.value().ceil() as u64;
        let requests = self.prefill_requests.value().ceil() as u64;
        (requests.max(u64::from(tokens > 0)), tokens)
    }
}

/// `None` for a pass with nothing in it.
fn kind(query: &Query) -> Option<Kind> {
    match (query.prefill_tokens > 0, query.decode_requests > 0) {
        (false, false) => None,
        (true, false) => Some(Kind::PurePrefill),
        (false, true) => Some(Kind::PureDecode),
        (true, true) => Some(Kind::Mixed),
    }
}

impl PassTimes for PassModel {
    fn predict_ms(&self, query: &Query) -> Option<f64> {
        match kind(query) {
            None => Some(0.0),
            Some(kind) => self.stores[kind as usize].predict(query.features(self.role, self.features)),
        }
    }
}

/// The mean of the latest values, from the first on that is above 0.
#[derive(Clone, Debug)]
struct Average {
    window: usize,
    values: VecDeque<f64>,
}

impl Average {
    fn new(window: usize) -> Self {
        Self { window, values: VecDeque::new() }
    }

    fn add(&mut self, value: f64) {
        if self.values.is_empty() && value <= 0.0 {
            return;
        }
        self.values.push_back(value);
        if self.values.len() > self.window {
            self.values.pop_front();
        }
    }

    fn value(&self) -> f64 {
        if self.values.is_empty() {
            return 0.0;
        }
        self.values.iter().sum::<f64>() / self.values.len() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::metrics::Tally;
    use crate::simulation::SimDuration;

    fn options() -> ModelOptions {
        ModelOptions {
            most_samples: 4,
            cells: 16,
            min_observations: 2,
            features: FeatureKind::default(),
            tie_seed: None,
        }
    }

    fn pass(prompts: &[u32], decodes: &[u32], wall_ms: f64) -> PassMetrics {
        let tally = |lengths: &[u32]| {
            let mut tally = Tally::default();
            for &length in lengths {
                tally.add(length);
            }
            tally
        };
        PassMetrics {
            wall: SimDuration::from_ms(wall_ms).unwrap(),
            prefill: tally(prompts),
            prefill_tokens: tally(prompts).tokens,
            decode: tally(decodes),
            ..PassMetrics::default()
        }
    }

    #[test]
    fn features_are_pairs_contexts_and_tokens() {
        let query = Query {
            prefill_requests: 2,
            prefill_tokens: 100,
            prefill_kv_tokens: 50,
            decode_requests: 3,
            decode_kv_tokens: 900,
        };
        let pairs = 50.0 * 100.0 / 2.0 + 100.0 * 100.0 / 4.0 + 50.0;
        let of = |role| query.features(role, FeatureKind::AttentionFfn);
        assert_eq!(of(Role::Prefill), Features { attention: 50.0 + pairs, ffn: 100.0 });
        assert_eq!(of(Role::Decode), Features { attention: 900.0, ffn: 3.0 });
        assert_eq!(of(Role::Agg), Features { attention: 950.0 + pairs, ffn: 103.0 });
        let raw = query.features(Role::Agg, FeatureKind::Raw);
        assert_eq!(raw, Features { attention: 900.0, ffn: 100.0 });
    }

    #[test]
    fn each_kind_of_pass_is_learnt_by_itself() {
        let mut model = PassModel::new(Role::Agg, &options());
        for tokens in [100, 200, 400] {
            model.observe(&pass(&[tokens], &[], f64::from(tokens)));
            model.observe(&pass(&[], &[tokens], 5.0 + f64::from(tokens)));
        }
        assert!(model.is_ready());
        let mixed = Query { prefill_requests: 1, prefill_tokens: 5, decode_requests: 1, ..Query::default() };
        assert_eq!(model.predict_ms(&mixed), None, "no mixed pass was ever seen");
        assert_eq!(model.predict_ms(&Query::default()), Some(0.0));
        assert!(model.predict_ms(&Query { decode_requests: 0, ..mixed }).is_some());
    }

    #[test]
    fn averages_begin_with_the_first_prompt_and_are_diluted_after() {
        let mut model = PassModel::new(Role::Agg, &options());
        model.observe(&pass(&[], &[10], 1.0));
        assert_eq!((model.average_isl(), model.typical_prefill()), (0.0, (0, 0)));
        model.observe(&pass(&[100, 300], &[], 1.0));
        model.observe(&pass(&[], &[20, 40], 1.0));
        model.observe(&PassMetrics::default());
        assert_eq!(model.average_isl(), 200.0 / 3.0);
        assert_eq!(model.typical_prefill(), (1, 134));
        assert_eq!(model.average_context(), 20.0);
    }
}
