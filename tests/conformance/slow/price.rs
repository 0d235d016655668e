//! How long a pass takes.

use spica::config::scenario::{EngineOptions, TimingConfig};
use spica::simulation::SimDuration;

/// What a pass computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Batch {
    /// Requests with prompt tokens in this pass.
    pub prefill_requests: u64,
    /// Their prompt tokens before and in this pass.
    pub prompt_tokens: u64,
    /// Their prompt tokens before this pass.
    pub prefix_tokens: u64,
    /// Requests past their prompt.
    pub decode_requests: u64,
    /// Their tokens, the new one not counted.
    pub decode_tokens: u64,
}

/// Prices `batch`: the prefill part and the decode part, each rounded for itself.
pub(crate) fn price(timing: &TimingConfig, engine: &EngineOptions, batch: Batch) -> SimDuration {
    let prefill = rounded(prefill_ms(timing, batch), engine.speedup_ratio);
    let decode_speedup = match (engine.speedup_ratio, engine.decode_speedup_ratio) {
        (0.0, decode) => decode,
        (both, 0.0) => both,
        (both, decode) => both * decode,
    };
    let decode = rounded(decode_ms(timing, engine, batch), decode_speedup);
    prefill + decode
}

fn prefill_ms(timing: &TimingConfig, batch: Batch) -> f64 {
    if batch.prefill_requests == 0 {
        return 0.0;
    }
    let mean_prompt = batch.prompt_tokens / batch.prefill_requests;
    let mean_prefix = batch.prefix_tokens / batch.prefill_requests;
    if mean_prompt == mean_prefix {
        return 0.0;
    }
    match timing {
        TimingConfig::Fixed { prefill_ms, .. } => *prefill_ms,
        TimingConfig::Polynomial => {
            let tokens = (batch.prefill_requests * (mean_prompt - mean_prefix)) as f64;
            4.209_989e-7 * (tokens * tokens) + 1.518_344e-2 * tokens + 1.650_142e1
        }
        TimingConfig::Grid { .. } | TimingConfig::Profile { .. } | TimingConfig::Roofline { .. } => {
            unreachable!("refused before the run")
        }
    }
}

fn decode_ms(timing: &TimingConfig, engine: &EngineOptions, batch: Batch) -> f64 {
    if batch.decode_requests == 0 {
        return 0.0;
    }
    match timing {
        TimingConfig::Fixed { decode_ms, .. } => *decode_ms,
        TimingConfig::Polynomial => {
            let capacity = f64::from(engine.num_gpu_blocks) * f64::from(engine.block_size);
            let fill = (batch.decode_tokens as f64 / capacity).min(1.0);
            (-25.74 * (fill * fill) + 54.01 * fill + 5.74).max(1.0)
        }
        TimingConfig::Grid { .. } | TimingConfig::Profile { .. } | TimingConfig::Roofline { .. } => {
            unreachable!("refused before the run")
        }
    }
}

/// To whole nanoseconds, then divided by the speed-up and to whole nanoseconds again; a speed-up of 0 changes nothing.
fn rounded(ms: f64, speedup: f64) -> SimDuration {
    let once = SimDuration::from_ms(ms).expect("a price is a duration");
    if speedup == 0.0 {
        return once;
    }
    let seconds = (once.as_ns() / 1_000_000_000) as f64 + (once.as_ns() % 1_000_000_000) as f64 / 1e9;
    SimDuration::from_seconds(seconds / speedup).expect("a divided price is a duration")
}
