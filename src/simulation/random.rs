//! One random stream per actor path.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use xxhash_rust::xxh3::xxh3_64;

/// The generator behind every random decision of a run.
pub type ActorRng = ChaCha8Rng;

/// The stream of `path` under the root `seed`. Equal arguments give equal draws on every platform.
pub fn stream(seed: u64, path: &str) -> ActorRng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(xxh3_64(path.as_bytes()));
    rng
}

#[cfg(test)]
mod tests {
    use rand::Rng;

    use super::*;

    #[test]
    fn streams_depend_on_seed_and_path_alone() {
        let first = |seed, path| stream(seed, path).next_u64();
        assert_eq!(first(1, "router"), first(1, "router"));
        assert_ne!(first(1, "router"), first(2, "router"));
        assert_ne!(first(1, "worker/0"), first(1, "worker/1"));
    }

    #[test]
    fn the_first_draws_are_pinned() {
        let mut rng = stream(1, "router");
        let draws: Vec<u64> = (0..3).map(|_| rng.next_u64()).collect();
        assert_eq!(
            draws,
            [14_683_831_585_206_257_441, 10_750_168_605_051_870_644, 12_474_971_845_349_022_663]
        );
    }
}
