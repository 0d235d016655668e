//! What a pass costs according to four tables.
//!
//! A pass that computes prompts costs everything but attention, by its tokens, and the attention of each prompt; a
//! decode pass likewise, by its requests and their mean length. In a pass of both kinds the tokens go through the layers
//! together, so everything but attention is paid once for all of them.
//!
//! Prompts in one pass share the GPU: a prompt among `n` costs the n-th part of what `n` prompts like it would. For
//! equal prompts that is the table itself. The reference takes unequal ones for as many of their mean length, which is too cheap
//! for attention; that can be asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::record::{Axes, Tables};
use crate::simulation::{InvalidDuration, SimTime};
use crate::timing::grid::Measured;
use crate::timing::interpolation::{Axis, Curve, DecodeSurface, End, LogGrid, Position};
use crate::timing::{Chunk, DecodeBatch, MeanChunk, PassCost, PassPricer, TimingModel};

/// Sampled prefixes begin at 0, which has no logarithm.
const PREFIX_OFFSET: f64 = 256.0;
/// Octaves of tokens and of requests that curves cover.
const TOKEN_OCTAVES: u32 = 17;
const REQUEST_OCTAVES: u32 = 10;

/// Four tables, prepared for look-ups.
#[derive(Debug)]
pub struct PassTables {
    context_other: LogGrid<1>,
    context_other_curve: Curve<7>,
    context_attention: LogGrid<3>,
    /// Where one prompt lies on the first axis of that grid.
    one_prompt: Position,
    decode_other: LogGrid<1>,
    decode_other_curve: Curve<8>,
    decode_attention: DecodeSurface,
}

/// A price, and whether it lies outside what was sampled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Priced {
    /// Milliseconds.
    pub ms: f64,
    /// Whether the tables had to be continued beyond their samples.
    pub extrapolated: bool,
}

impl PassTables {
    /// Prepares the tables of a profile.
    pub fn new(axes: &Axes, tables: &Tables) -> Self {
        let axis = |points: &[u32], offset| {
            Axis::new(&points.iter().map(|point| f64::from(*point)).collect::<Vec<_>>(), offset)
        };
        let context_other = LogGrid::new([axis(&axes.context_tokens, 0.0)], tables.ctx_other.iter().copied())
            .continued(0, End::High, 1.0);
        let prompt_axes =
            [axis(&axes.attn_batch, 0.0), axis(&axes.attn_new, 0.0), axis(&axes.attn_prefix, PREFIX_OFFSET)];
        let attention = tables.ctx_attn.iter().flatten().flatten().copied();
        let context_attention = LogGrid::new(prompt_axes, attention)
            .continued(0, End::High, 1.0)
            .continued(1, End::High, 2.0)
            .continued(2, End::High, 1.0);
        let decode_other = LogGrid::new([axis(&axes.decode_batch, 0.0)], tables.gen_other.iter().copied())
            .continued(0, End::High, 1.0);
        let decode_axes = [axis(&axes.decode_batch, 0.0), axis(&axes.decode_context, 0.0)];
        let attention = tables.gen_attn.iter().flatten().copied();
        let decode_attention = DecodeSurface::new(LogGrid::new(decode_axes, attention));
        Self {
            one_prompt: context_attention.axis(0).place(1.0),
            context_other_curve: Curve::new(TOKEN_OCTAVES, |tokens| context_other.at([tokens])),
            decode_other_curve: Curve::new(REQUEST_OCTAVES, |requests| decode_other.at([requests])),
            context_other,
            context_attention,
            decode_other,
            decode_attention,
        }
    }

    /// A pass over `batch` equal prompts of `new` tokens after `prefix` others; `batch` and `new` are not 0.
    pub fn prefill(&self, batch: u32, new: u32, prefix: u32) -> Priced {
        let tokens = f64::from(batch) * f64::from(new);
        let point = [f64::from(batch), f64::from(new), f64::from(prefix)];
        Priced {
            ms: self.context_other(tokens) + self.context_attention.at(point),
            extrapolated: !self.context_other.covers([tokens]) || !self.context_attention.covers(point),
        }
    }

    /// A decode pass of `batch` requests of `context` tokens on average; neither is 0.
    pub fn decode(&self, batch: u32, context: f64) -> Priced {
        let attention = self.decode_attention.of(batch);
        Priced {
            ms: self.decode_other(f64::from(batch)) + attention.at(context),
            extrapolated: !attention.covers(context),
        }
    }

    /// The factors that bring these prices to measured ones: the geometric mean of their ratios, 1 for a phase that was not
    /// measured.
    pub fn scale_to(&self, measured: &Measured) -> Scale {
        let prefill = measured.prefill.iter().map(|([batch, new, prefix], ms)| {
            let point = [*batch, *new, *prefix];
            ms / (self.context_other(batch * new) + self.context_attention.at(point))
        });
        let decode = measured.decode.iter().map(|([batch, context], ms)| {
            // Batches are whole numbers in practice; a mean of several runs need not be.
            ms / (self.decode_other(*batch)
                + self.decode_attention.of(batch.round().max(1.0) as u32).at(*context))
        });
        Scale { prefill: geometric_mean(prefill), decode: geometric_mean(decode) }
    }

    fn context_other(&self, tokens: f64) -> f64 {
        self.context_other_curve.at(tokens).unwrap_or_else(|| self.context_other.at([tokens]))
    }

    fn decode_other(&self, requests: f64) -> f64 {
        self.decode_other_curve.at(requests).unwrap_or_else(|| self.decode_other.at([requests]))
    }

    /// Attention of `batch` prompts of `new` tokens each after `prefix` others.
    fn attention_of_equals(&self, batch: u64, new: u64, prefix: u64) -> Priced {
        let point = [batch, new, prefix].map(|number| number.cast_signed() as f64);
        Priced { ms: self.context_attention.at(point), extrapolated: !self.context_attention.covers(point) }
    }

    /// Attention of the prompts of a pass, and whether all of it was sampled.
    fn prompt_attention(&self, chunks: &[Chunk]) -> Priced {
        let grid = &self.context_attention;
        let prompts = chunks.len() as f64;
        let batch = if chunks.len() == 1 { self.one_prompt } else { grid.axis(0).place(prompts) };
        let mut total = Priced { ms: 0.0, extrapolated: !grid.axis(0).covers(prompts) };
        for chunk in chunks {
            let (new, prefix) = (f64::from(chunk.new_tokens), f64::from(chunk.prefix_tokens));
            total.ms += grid.value_at([batch, grid.axis(1).place(new), grid.axis(2).place(prefix)]);
            total.extrapolated |= !grid.axis(1).covers(new) || !grid.axis(2).covers(prefix);
        }
        if chunks.len() > 1 {
            total.ms /= prompts;
        }
        total
    }
}

/// 1 for no values at all.
fn geometric_mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0_u32), |(sum, count), value| (sum + libm::log(value), count + 1));
    libm::exp(sum / f64::from(count.max(1)))
}

/// How an engine uses a profile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PassOptions {
    /// Pipeline stages. A pass is cut into as many parts, which follow each other through the stages; once the pipeline
    /// is full, each part takes as long as a pass of its size takes alone.
    pub stages: u32,
    /// Time of the CPU that each pass takes besides, in milliseconds.
    pub overhead_ms: f64,
    /// What the prices are multiplied by.
    pub scale: Scale,
    /// Whether a pass of both kinds pays twice for what its tokens have in common, as the reference does.
    pub phases_add_up: bool,
    /// Whether the prompts of a pass are taken to be all of their mean length, as the reference does.
    pub prompts_are_alike: bool,
}

/// Factors on the prices of a profile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// On all prompt work.
    pub prefill: f64,
    /// On all decode work.
    pub decode: f64,
}

impl Default for Scale {
    fn default() -> Self {
        Self { prefill: 1.0, decode: 1.0 }
    }
}

impl Default for PassOptions {
    fn default() -> Self {
        Self {
            stages: 1,
            overhead_ms: 0.0,
            scale: Scale::default(),
            phases_add_up: false,
            prompts_are_alike: false,
        }
    }
}

/// The timing of the engines of one pool, by tables.
#[derive(Debug)]
pub struct TableTiming {
    tables: Arc<PassTables>,
    options: PassOptions,
    extrapolated: AtomicU64,
}

impl TableTiming {
    /// Prices passes by `tables`.
    pub fn new(tables: Arc<PassTables>, options: PassOptions) -> Self {
        Self { tables, options, extrapolated: AtomicU64::new(0) }
    }

    /// Everything but attention of the tokens of a pass, which the stages share.
    fn context_other(&self, tokens: u64) -> f64 {
        let tokens = match self.options.stages {
            1 => tokens.cast_signed() as f64,
            stages => tokens.div_ceil(u64::from(stages)).cast_signed() as f64,
        };
        self.note(!self.tables.context_other.covers([tokens]));
        self.tables.context_other(tokens)
    }

    /// The tokens of the prompts of a pass and their attention.
    fn prompts(&self, chunks: &[Chunk]) -> (u64, f64) {
        let (tokens, attention) = if self.options.prompts_are_alike && chunks.len() > 1 {
            let mean = MeanChunk::of(chunks);
            let new = mean.mean_isl - mean.mean_prefix;
            let attention = match new {
                0 => Priced { ms: 0.0, extrapolated: false },
                new => self.tables.attention_of_equals(mean.requests, new, mean.mean_prefix),
            };
            (mean.new_tokens(), attention)
        } else {
            let tokens = chunks.iter().map(|chunk| u64::from(chunk.new_tokens)).sum();
            (tokens, self.tables.prompt_attention(chunks))
        };
        self.note(attention.extrapolated);
        let ms = match self.options.stages {
            1 => attention.ms,
            stages => attention.ms / f64::from(stages),
        };
        (tokens, ms)
    }

    fn decode_attention(&self, batch: DecodeBatch) -> f64 {
        let attention = self.tables.decode_attention.of(self.requests(batch));
        let context = batch.exact_mean_context();
        self.note(!attention.covers(context));
        attention.at(context)
    }

    /// Requests that go through the stages together.
    fn requests(&self, batch: DecodeBatch) -> u32 {
        match self.options.stages {
            // Dividing takes longer than asking.
            1 => batch.requests,
            stages => batch.requests.div_ceil(stages),
        }
    }

    fn note(&self, extrapolated: impl Into<u64>) {
        let extrapolated = extrapolated.into();
        if extrapolated > 0 {
            self.extrapolated.fetch_add(extrapolated, Ordering::Relaxed);
        }
    }
}

impl TimingModel for TableTiming {
    fn prefill_ms(&self, chunks: &[Chunk]) -> f64 {
        let (tokens, attention) = self.prompts(chunks);
        let other = if tokens == 0 { 0.0 } else { self.context_other(tokens) };
        let work = other + attention;
        work * self.options.scale.prefill + self.options.overhead_ms
    }

    fn decode_ms(&self, batch: DecodeBatch) -> f64 {
        let other = self.tables.decode_other(f64::from(self.requests(batch)));
        (other + self.decode_attention(batch)) * self.options.scale.decode + self.options.overhead_ms
    }

    fn pass_ms(&self, chunks: &[Chunk], batch: DecodeBatch) -> PassCost {
        if self.options.phases_add_up {
            let decode_ms = self.decode_ms(batch) - self.options.overhead_ms;
            return PassCost { prefill_ms: self.prefill_ms(chunks), decode_ms };
        }
        let (tokens, attention) = self.prompts(chunks);
        let work = self.context_other(tokens + u64::from(batch.requests)) + attention;
        PassCost {
            prefill_ms: work * self.options.scale.prefill + self.options.overhead_ms,
            decode_ms: self.decode_attention(batch) * self.options.scale.decode,
        }
    }

    fn decode_run(
        &self,
        pricer: &PassPricer,
        start: SimTime,
        mut batch: DecodeBatch,
        passes: u32,
        ends: &mut Vec<SimTime>,
    ) -> Result<(), InvalidDuration> {
        let requests = self.requests(batch);
        let other = self.tables.decode_other(f64::from(requests));
        let attention = self.tables.decode_attention.of(requests);
        let PassOptions { scale, overhead_ms, .. } = self.options;
        let mut extrapolated = 0;
        pricer.append_ends(start, passes, ends, || {
            let context = batch.exact_mean_context();
            extrapolated += u64::from(!attention.covers(context));
            batch.context_tokens += u64::from(batch.requests);
            (other + attention.at(context)) * scale.decode + overhead_ms
        })?;
        self.note(extrapolated);
        Ok(())
    }

    fn extrapolated_lookups(&self) -> Option<u64> {
        Some(self.extrapolated.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::super::pack::Pack;
    use super::*;

    const NOBODY: DecodeBatch = DecodeBatch { requests: 0, context_tokens: 0 };

    fn tables(id: &str) -> Arc<PassTables> {
        let entry = Pack::embedded().named(id).unwrap();
        Arc::new(PassTables::new(entry.axes, &entry.profile.tables))
    }

    fn minimax() -> Arc<PassTables> {
        tables("m25_fp8_b200_vllm019_g4_tep")
    }

    fn chunk(new_tokens: u32, prefix_tokens: u32) -> Chunk {
        Chunk { new_tokens, prefix_tokens }
    }

    fn timing(options: PassOptions) -> TableTiming {
        TableTiming::new(minimax(), options)
    }

    #[test]
    fn samples_come_back() {
        let entry = Pack::embedded().named("m25_fp8_b200_vllm019_g4_tep").unwrap();
        let (axes, sampled) = (entry.axes, &entry.profile.tables);
        let tables = minimax();
        for (batch, &requests) in axes.decode_batch.iter().enumerate() {
            for (length, &context) in axes.decode_context.iter().enumerate() {
                let expected = sampled.gen_other[batch] + sampled.gen_attn[batch][length];
                let priced = tables.decode(requests, f64::from(context));
                assert!(
                    (priced.ms / expected - 1.0).abs() < 1e-5,
                    "{requests} {context}: {priced:?} {expected}"
                );
                assert!(!priced.extrapolated);
            }
        }
        let other = |tokens: u32| sampled.ctx_other[axes.context_tokens.binary_search(&tokens).unwrap()];
        for (new, prefix, expected) in [
            (1, 0, other(1) + sampled.ctx_attn[0][0][0]),
            (128, 1024, other(128) + sampled.ctx_attn[0][7][3]),
            (8192, 131_072, other(8192) + sampled.ctx_attn[0][13][10]),
        ] {
            let priced = tables.prefill(1, new, prefix);
            assert!((priced.ms / expected - 1.0).abs() < 1e-5, "{new} {prefix}");
        }
    }

    #[test]
    fn what_lies_outside_goes_on_growing_and_says_so() {
        let tables = minimax();
        let mut before = 0.0;
        for context in [1.0, 20.0, 131_072.0, 131_073.0, 200_000.0, 262_144.0, 1e6, 1e7] {
            let priced = tables.decode(64, context);
            assert!(priced.ms >= before, "{context}");
            assert_eq!(priced.extrapolated, !(32.0..=131_072.0).contains(&context));
            before = priced.ms;
        }
        let mut before = 0.0;
        for requests in [512, 513, 1000, 1023, 1024, 1025, 4000] {
            let priced = tables.decode(requests, 1000.0);
            assert!(priced.ms >= before, "{requests}");
            assert_eq!(priced.extrapolated, requests > 512);
            before = priced.ms;
        }
        for [inside, outside] in [
            [(1, 30_000, 0), (1, 40_000, 0)],
            [(8, 10, 0), (9, 10, 0)],
            [(1, 100, 131_072), (1, 100, 200_000)],
            [(4, 8000, 1000), (8, 8000, 1000)],
        ] {
            let [inside, outside] =
                [inside, outside].map(|(batch, new, prefix)| tables.prefill(batch, new, prefix));
            assert!(!inside.extrapolated && outside.extrapolated && outside.ms > inside.ms);
        }
    }

    #[test]
    fn a_pass_of_both_kinds_pays_once_for_what_they_share() {
        let timing = timing(PassOptions::default());
        let batch = DecodeBatch { requests: 20, context_tokens: 20 * 3000 };
        let chunks = [chunk(2000, 500)];
        let PassCost { prefill_ms, decode_ms } = timing.pass_ms(&chunks, batch);
        let tables = minimax();
        let attention = timing.prefill_ms(&chunks) - tables.context_other(2000.0);
        assert!((prefill_ms - tables.context_other(2020.0) - attention).abs() < 1e-9);
        assert!((decode_ms - (timing.decode_ms(batch) - tables.decode_other(20.0))).abs() < 1e-9);
        assert!(prefill_ms + decode_ms < timing.prefill_ms(&chunks) + timing.decode_ms(batch));
    }

    #[test]
    fn prompts_of_one_pass_share_the_gpu() {
        let timing = timing(PassOptions::default());
        let equal = timing.prefill_ms(&[chunk(300, 1000); 4]);
        assert!((equal / minimax().prefill(4, 300, 1000).ms - 1.0).abs() < 1e-12);
        // The order does not matter, and more work costs more.
        let mixed = timing.prefill_ms(&[chunk(300, 1000), chunk(300, 1000), chunk(1, 4), chunk(300, 1000)]);
        let other = timing.prefill_ms(&[chunk(1, 4), chunk(300, 1000), chunk(300, 1000), chunk(300, 1000)]);
        assert!((mixed / other - 1.0).abs() < 1e-12);
        assert!(mixed < equal && mixed > timing.prefill_ms(&[chunk(300, 1000); 3]) * 0.9);
    }

    #[test]
    fn prompts_may_be_taken_for_their_mean() {
        let timing = timing(PassOptions { prompts_are_alike: true, ..PassOptions::default() });
        let uneven = [chunk(300, 1001), chunk(900, 0), chunk(31, 1)];
        // Means are rounded down with the tokens before: (1301 + 900 + 32) / 3 less 1002 / 3.
        let mean = minimax().prefill(3, 744 - 334, 334).ms;
        assert!((timing.prefill_ms(&uneven) / mean - 1.0).abs() < 1e-12);
        let one = [chunk(700, 130)];
        assert_eq!(timing.prefill_ms(&one), self::timing(PassOptions::default()).prefill_ms(&one));
        // Of nearly nothing the mean may be nothing.
        assert_eq!(timing.prefill_ms(&[chunk(1, 0), chunk(0, 2)]), 0.0);
    }

    #[test]
    fn a_run_is_its_passes_one_by_one() {
        let scale = Scale { decode: 1.1, ..Scale::default() };
        let options = PassOptions { overhead_ms: 0.5, scale, ..PassOptions::default() };
        let model = Arc::new(timing(options));
        let pricer = PassPricer::new(model.clone(), 1.0, 2.0);
        let batch = DecodeBatch { requests: 7, context_tokens: 7 * 4000 + 3 };
        let mut ends = Vec::new();
        pricer.decode_run(SimTime::from_ns(5), batch, 300, &mut ends).unwrap();
        let mut now = SimTime::from_ns(5);
        for (step, &end) in ends.iter().enumerate() {
            let batch = DecodeBatch { context_tokens: batch.context_tokens + 7 * step as u64, ..batch };
            now += pricer.pass(&[], batch).unwrap();
            assert_eq!(end, now);
        }
        assert_eq!(model.extrapolated_lookups(), Some(0));
    }

    #[test]
    fn a_few_measurements_scale_a_profile() {
        let tables = minimax();
        let measured = Measured {
            prefill: vec![([1.0, 1000.0, 0.0], tables.prefill(1, 1000, 0).ms * 1.2)],
            decode: vec![
                ([8.0, 1000.0], tables.decode(8, 1000.0).ms * 2.0),
                ([64.0, 3000.0], tables.decode(64, 3000.0).ms * 0.5),
            ],
        };
        let scale = tables.scale_to(&measured);
        assert!((scale.prefill - 1.2).abs() < 1e-4 && (scale.decode - 1.0).abs() < 1e-4, "{scale:?}");
        assert_eq!(tables.scale_to(&Measured::default()), Scale::default());
    }

    #[test]
    fn look_ups_outside_are_counted() {
        let model = Arc::new(timing(PassOptions::default()));
        let pricer = PassPricer::new(model.clone(), 1.0, 1.0);
        let mut ends = Vec::new();
        let batch = DecodeBatch { requests: 1, context_tokens: 131_070 };
        pricer.decode_run(SimTime::ZERO, batch, 10, &mut ends).unwrap();
        assert_eq!(model.extrapolated_lookups(), Some(7));
        pricer.pass(&[chunk(10, 0); 9], NOBODY).unwrap();
        assert_eq!(model.extrapolated_lookups(), Some(8));
    }

    #[test]
    fn stages_work_at_the_same_time_once_there_is_enough_for_all() {
        let staged = |stages| timing(PassOptions { stages, ..PassOptions::default() });
        let batch = |requests: u32| DecodeBatch { requests, context_tokens: u64::from(requests) * 1000 };
        assert_eq!(staged(2).decode_ms(batch(1)), staged(1).decode_ms(batch(1)));
        assert_eq!(staged(2).decode_ms(batch(64)), staged(1).decode_ms(batch(32)));
        let long = [chunk(8192, 0)];
        let ratio = staged(2).prefill_ms(&long) / staged(1).prefill_ms(&long);
        assert!((0.49..0.6).contains(&ratio), "{ratio}");
    }
}
