//! The memory of one GPU from the facts that were recorded with a profile.

use super::plan::{FractionOf, KvGrowth, MemoryPlan, MemorySource};
use crate::timing::profile::{Entry, FractionKind, KvRule, Pack};

/// The memory of one GPU of the deployment that a profile belongs to; `None` if the profile has no such facts.
///
/// `max_num_batched_tokens` is the most that one pass computes; `fraction` the engine's share of memory.
pub fn from_profile(
    pack: &Pack,
    entry: &Entry<'_>,
    max_num_batched_tokens: u32,
    fraction: f64,
) -> Option<MemoryPlan> {
    let facts = entry.profile.memory.as_ref()?;
    let kv = match facts.kv_rule {
        KvRule::Linear => KvGrowth::linear(facts.kv_bytes_per_token as f64),
        KvRule::Window { window_tokens, bytes_per_token_within, bytes_per_token_beyond } => KvGrowth {
            bytes_per_token: bytes_per_token_beyond,
            windowed_bytes_per_token: bytes_per_token_within - bytes_per_token_beyond,
            window_tokens,
        },
    };
    Some(MemoryPlan {
        source: MemorySource::Profile,
        capacity_bytes: facts.capacity_bytes,
        weights_bytes: facts.weights_bytes as f64,
        activation_bytes: activation_bytes(
            pack.activation_tokens(),
            &facts.activation_bytes,
            max_num_batched_tokens,
        ),
        runtime_bytes: facts.runtime_bytes as f64,
        comm_bytes: facts.comm_bytes as f64,
        fraction,
        fraction_of: match facts.fraction_kind {
            FractionKind::OfTotal => FractionOf::Total,
            FractionKind::OfFree => FractionOf::Free,
        },
        kv,
    })
}

/// Activations at so many tokens: on the lines between the samples, and on the outermost lines beyond them. Below the
/// samples they do not fall under what every engine keeps for the smallest pass, 70 MiB.
fn activation_bytes(samples: &[u32], bytes: &[u64], tokens: u32) -> f64 {
    const LEAST: f64 = 70.0 * (1 << 20) as f64;
    let points: Vec<(f64, f64)> =
        samples.iter().zip(bytes).map(|(tokens, bytes)| (f64::from(*tokens), *bytes as f64)).collect();
    let [(first_tokens, first_bytes), .., (last_tokens, last_bytes)] = points[..] else { return LEAST };
    let tokens = f64::from(tokens);
    if tokens < first_tokens {
        return (first_bytes * tokens / first_tokens).max(LEAST.min(first_bytes));
    }
    let segment = points.windows(2).find(|pair| tokens <= pair[1].0);
    match segment {
        Some(pair) => {
            let ((from, low), (to, high)) = (pair[0], pair[1]);
            low + (high - low) * (tokens - from) / (to - from)
        }
        None => last_bytes * tokens / last_tokens,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activations_follow_the_samples_and_their_direction() {
        let (samples, bytes) = ([1000, 2000, 4000], [100_000_000, 200_000_000, 400_000_000]);
        let at = |tokens| activation_bytes(&samples, &bytes, tokens);
        assert_eq!((at(1000), at(1500), at(4000), at(8000)), (1e8, 1.5e8, 4e8, 8e8));
        assert_eq!(at(900), 9e7);
        assert_eq!(at(1), 70.0 * 1024.0 * 1024.0);
    }

    #[test]
    fn the_facts_give_the_tokens_that_the_original_tool_finds() {
        let pack = Pack::embedded();
        let mut compared = 0;
        for entry in pack.families().iter().flat_map(|family| pack.profiles(family)) {
            let Some(facts) = &entry.profile.memory else { continue };
            let plan = from_profile(pack, &entry, 8192, 0.9).unwrap();
            match facts.reference_kv_tokens {
                Some(theirs) => {
                    assert!(plan.kv_tokens().unwrap().abs_diff(theirs) <= 1, "{}", entry.profile.id);
                }
                None => assert!(plan.kv_tokens().is_err(), "{}", entry.profile.id),
            }
            compared += 1;
        }
        assert!(compared >= 907, "{compared}");
    }
}
