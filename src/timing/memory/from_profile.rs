//! The memory of one GPU from the facts that were recorded with a profile.

use super::closed_form::least_activation_bytes;
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
            least_activation_bytes(entry.family.backend),
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

/// Activations at so many tokens: in proportion to them, but never under what an engine keeps for the smallest pass. Samples
/// on either side say both: the upper one the proportion, the lower one what is kept if it is more.
fn activation_bytes(samples: &[u32], bytes: &[u64], least: f64, tokens: u32) -> f64 {
    let points: Vec<(f64, f64)> =
        samples.iter().zip(bytes).map(|(tokens, bytes)| (f64::from(*tokens), *bytes as f64)).collect();
    let [(first_tokens, first_bytes), .., (last_tokens, last_bytes)] = points[..] else { return least };
    let tokens = f64::from(tokens);
    if tokens < first_tokens {
        return (first_bytes * tokens / first_tokens).max(least.min(first_bytes));
    }
    let segment = points.windows(2).find(|pair| tokens <= pair[1].0);
    match segment {
        Some(pair) => {
            let ((_, low), (to, high)) = (pair[0], pair[1]);
            low.max(high * tokens / to)
        }
        None => last_bytes * tokens / last_tokens,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::scenario::Backend;

    #[test]
    fn activations_follow_the_samples_and_their_direction() {
        let (samples, bytes) = ([1000, 2000, 4000], [100_000_000, 200_000_000, 400_000_000]);
        let at = |tokens| activation_bytes(&samples, &bytes, least_activation_bytes(Backend::Vllm), tokens);
        assert_eq!((at(1000), at(1500), at(4000), at(8000)), (1e8, 1.5e8, 4e8, 8e8));
        assert_eq!(at(900), 9e7);
        assert_eq!(at(1), 70.0 * 1024.0 * 1024.0);
        // What the smallest sample keeps is enough for passes of up to 600 tokens.
        let kept = |tokens| activation_bytes(&[500, 2000], &[120_000_000, 400_000_000], 1e8, tokens);
        assert_eq!((kept(1), kept(500), kept(600), kept(1000)), (1e8, 1.2e8, 1.2e8, 2e8));
    }

    #[test]
    fn the_facts_give_the_tokens_that_the_original_tool_finds() {
        let pack = Pack::embedded();
        let mut compared = 0;
        for entry in pack.families().iter().flat_map(|family| pack.profiles(family)) {
            let Some(facts) = &entry.profile.memory else { continue };
            let (tokens, bytes) = (pack.activation_tokens(), &facts.activation_bytes);
            for inner in 1..bytes.len() - 1 {
                let ends = [inner - 1, inner + 1];
                let found = activation_bytes(
                    &ends.map(|end| tokens[end]),
                    &ends.map(|end| bytes[end]),
                    0.0,
                    tokens[inner],
                );
                assert!((found - bytes[inner] as f64).abs() <= 2.0, "{}: {bytes:?}", entry.profile.id);
            }
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
