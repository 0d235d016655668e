//! Generated requests, all of one size.
//!
//! Arrivals and prefix groups are drawn as the reference draws them, from a `ChaCha12` stream seeded from 64 bits, so
//! that Poisson stamps and groups of one seed are the same here and there.

use rand::SeedableRng;
use rand_chacha::ChaCha12Rng;

use super::pacing::Pacing;
use super::problem::{Place, Problems, WorkloadErrors};
use super::random::Draws;
use super::{InputTally, Loaded, Prompt, Request, RequestId, Workload};
use crate::config::scenario::{Arrival, ArrivalProcess, Synthetic};
use crate::simulation::{InvalidDuration, Shown, SimDuration, SimTime};

/// Seed of the prefix groups; the seed of the arrivals does not touch them.
const GROUP_SEED: u64 = 42;
/// Blocks of prompts that share prefixes: what a machine can be expected to hold.
const MOST_BLOCKS: u64 = 100_000_000;
/// Key of the block in a scenario.
const ORIGIN: &str = "workload";

/// Generates the requests of `synthetic`.
///
/// Sessions are independent; the turns of one are not cumulative: each has its own prompt, of which the leading
/// `shared_prefix_ratio` is that of the session's group, in blocks of `block_size` tokens, the engine's block.
///
/// # Errors
/// Numbers out of their range, and workloads of more than 2^32 requests or prompt blocks.
pub fn generate(synthetic: &Synthetic, block_size: u32, pacing: Pacing) -> Result<Loaded, WorkloadErrors> {
    let mut problems = Problems::default();
    check(synthetic, block_size, pacing, &mut problems);
    let arrivals = arrivals(synthetic, pacing, &mut problems);
    let delay =
        SimDuration::from_ms(synthetic.inter_turn_delay_ms / pacing.divisor()).unwrap_or_else(|error| {
            problems.add(Place::Whole, "inter_turn_delay_ms", error.to_string());
            SimDuration::ZERO
        });
    problems.into_result(ORIGIN)?;

    let turns = synthetic.turns_per_session;
    let total = synthetic.count * turns;
    let mut prompts = Prompts::new(synthetic, block_size);
    let mut requests = Vec::with_capacity(total as usize);
    for (session, arrival) in arrivals.into_iter().enumerate() {
        let group = prompts.draw_group();
        for turn in 0..turns {
            let next = requests.len() as u32 + 1;
            requests.push(Request {
                arrival: if turn == 0 { arrival } else { SimTime::ZERO },
                delay: if turn == 0 { SimDuration::ZERO } else { delay },
                input_length: synthetic.isl,
                output_length: synthetic.osl,
                prompt: prompts.next(group),
                session: session as u32,
                turn,
                next_turn: (turn + 1 < turns).then_some(RequestId(next)),
                dp_rank: None,
                name: None,
            });
        }
    }
    let name = |session| (turns > 1).then(|| format!("session_{session}"));
    let workload = Workload {
        session_starts: (0..total).step_by(turns as usize).map(RequestId).collect(),
        session_names: (0..synthetic.count).map(name).collect(),
        requests,
        chunk_ids: prompts.chunk_ids,
        chunk_names: Vec::new(),
        origin_ms: 0.0,
        concurrency: pacing.concurrency,
        input: InputTally { read: total.into(), used: total.into(), ..InputTally::default() },
    };
    Ok(Loaded { workload, warnings: pacing.warnings() })
}

/// Refuses what cannot be generated.
fn check(synthetic: &Synthetic, block_size: u32, pacing: Pacing, problems: &mut Problems) {
    let mut at_least_one = |field: &str, value: u32| {
        if value == 0 || value > i32::MAX as u32 {
            problems.add(Place::Whole, field, format!("{value} is not between 1 and {}", i32::MAX));
        }
    };
    at_least_one("isl", synthetic.isl);
    at_least_one("number of requests", synthetic.count);
    at_least_one("turns_per_session", synthetic.turns_per_session);
    at_least_one("block_size", block_size);
    if synthetic.osl > i32::MAX as u32 {
        problems.add(Place::Whole, "osl", format!("{} is more than {}", synthetic.osl, i32::MAX));
    }
    if !(0.0..=1.0).contains(&synthetic.shared_prefix_ratio) {
        let message = format!("{} is not between 0 and 1", synthetic.shared_prefix_ratio);
        problems.add(Place::Whole, "shared_prefix_ratio", message);
    }
    if pacing.is_open() && !synthetic.request_rate.is_some_and(|rate| rate > 0.0 && rate.is_finite()) {
        let message = match synthetic.request_rate {
            None => "missing: an open loop needs it, a closed one needs concurrency".to_owned(),
            Some(rate) => format!("{rate} requests per second: it must be finite and above 0"),
        };
        problems.add(Place::Whole, "request_rate", message);
    }
    if let ArrivalProcess::Gamma { smoothness } = synthetic.arrival.process
        && !(smoothness > 0.0 && smoothness.is_finite())
    {
        problems.add(Place::Whole, "arrival.smoothness", format!("{smoothness} is not finite and above 0"));
    }
    if problems.total() == 0 {
        let requests = u64::from(synthetic.count) * u64::from(synthetic.turns_per_session);
        let blocks = match shared_blocks(synthetic, block_size) {
            0 => 0,
            _ => requests.saturating_mul(synthetic.isl.div_ceil(block_size).into()),
        };
        let groups = u64::from(synthetic.num_prefix_groups) * u64::from(shared_blocks(synthetic, block_size));
        if requests > u64::from(u32::MAX) {
            problems.add(Place::Whole, "", format!("{requests} requests are more than 2^32"));
        }
        if blocks > MOST_BLOCKS {
            let message = format!(
                "prompts that share prefixes have {blocks} blocks of {block_size} tokens in all, more than {MOST_BLOCKS}"
            );
            problems.add(Place::Whole, "shared_prefix_ratio", message);
        }
        if groups > MOST_BLOCKS {
            let message = format!(
                "{} groups have {groups} blocks of {block_size} tokens in all, more than {MOST_BLOCKS}",
                synthetic.num_prefix_groups
            );
            problems.add(Place::Whole, "num_prefix_groups", message);
        }
    }
}

/// Leading blocks of each prompt that belong to its group.
fn shared_blocks(synthetic: &Synthetic, block_size: u32) -> u32 {
    if synthetic.num_prefix_groups == 0 {
        return 0;
    }
    let blocks = synthetic.isl.div_ceil(block_size);
    let shared = (f64::from(blocks) * synthetic.shared_prefix_ratio).round();
    (shared as u32).min(blocks)
}

/// When each session starts. The first one does at 0.
fn arrivals(synthetic: &Synthetic, pacing: Pacing, problems: &mut Problems) -> Vec<SimTime> {
    let sessions = synthetic.count as usize;
    let Some(rate) = synthetic.request_rate.filter(|_| pacing.is_open() && problems.total() == 0) else {
        return vec![SimTime::ZERO; sessions];
    };
    spread(sessions, rate, synthetic.arrival, pacing.divisor()).unwrap_or_else(|error| {
        problems.add(Place::Whole, "request_rate", format!("{} requests per second: {error}", Shown(rate)));
        Vec::new()
    })
}

/// So many arrivals at `rate` requests per second on average, the first at 0, all divided by `divisor`.
pub(super) fn spread(
    count: usize,
    rate: f64,
    Arrival { process, seed }: Arrival,
    divisor: f64,
) -> Result<Vec<SimTime>, InvalidDuration> {
    let mean_ms = 1000.0 / rate;
    let mut draws = Draws(ChaCha12Rng::seed_from_u64(seed));
    let mut drawn_ms = 0.0;
    let mut arrival_ms = |index: usize| {
        if index == 0 {
            return 0.0;
        }
        match process {
            ArrivalProcess::Fixed => return index as f64 * mean_ms,
            ArrivalProcess::Burst => return 0.0,
            ArrivalProcess::Poisson => drawn_ms += draws.exponential(mean_ms),
            ArrivalProcess::Gamma { smoothness } => drawn_ms += draws.gamma(smoothness, mean_ms),
        }
        drawn_ms
    };
    (0..count).map(|index| SimTime::from_ms(arrival_ms(index) / divisor)).collect()
}

/// Hands out the contents of prompts.
struct Prompts {
    /// Blocks of each prompt; 0 when prompts share nothing.
    blocks: u32,
    shared: u32,
    block_size: u32,
    groups: usize,
    draws: Draws<ChaCha12Rng>,
    chunk_ids: Vec<u32>,
    /// The next id that no group and no prompt has had.
    fresh: u32,
}

impl Prompts {
    fn new(synthetic: &Synthetic, block_size: u32) -> Self {
        let shared = shared_blocks(synthetic, block_size);
        let requests = (synthetic.count * synthetic.turns_per_session) as usize;
        let blocks = if shared == 0 { 0 } else { synthetic.isl.div_ceil(block_size) };
        Self {
            blocks,
            shared,
            block_size,
            groups: if shared == 0 { 0 } else { synthetic.num_prefix_groups as usize },
            draws: Draws(ChaCha12Rng::seed_from_u64(GROUP_SEED)),
            chunk_ids: Vec::with_capacity(requests * blocks as usize),
            fresh: synthetic.num_prefix_groups * shared,
        }
    }

    /// The group of the next session.
    fn draw_group(&mut self) -> u32 {
        if self.groups == 0 { 0 } else { self.draws.index(self.groups) as u32 }
    }

    /// A prompt that has only its beginning in common with others of `group`.
    fn next(&mut self, group: u32) -> Prompt {
        let first_chunk = self.chunk_ids.len() as u32;
        let own = self.blocks - self.shared;
        self.chunk_ids.extend((0..self.shared).map(|block| group * self.shared + block));
        self.chunk_ids.extend(self.fresh..self.fresh + own);
        self.fresh += own;
        Prompt { first_chunk, chunks: self.blocks, tokens_per_chunk: self.block_size }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn synthetic() -> Synthetic {
        Synthetic {
            isl: 300,
            osl: 5,
            count: 8,
            request_rate: Some(50.0),
            arrival: Arrival { process: ArrivalProcess::Fixed, seed: 42 },
            shared_prefix_ratio: 0.0,
            num_prefix_groups: 0,
            turns_per_session: 1,
            inter_turn_delay_ms: 0.0,
        }
    }

    fn with(process: ArrivalProcess, count: u32) -> Synthetic {
        Synthetic { count, arrival: Arrival { process, seed: 42 }, ..synthetic() }
    }

    fn workload(synthetic: &Synthetic) -> Workload {
        generate(synthetic, 64, Pacing::default()).unwrap_or_else(|errors| panic!("{errors}")).workload
    }

    fn arrivals_ms(synthetic: &Synthetic) -> Vec<f64> {
        workload(synthetic).requests.iter().map(|request| request.arrival.as_ms()).collect()
    }

    #[test]
    fn fixed_and_burst_arrivals() {
        assert_eq!(arrivals_ms(&with(ArrivalProcess::Fixed, 4)), [0.0, 20.0, 40.0, 60.0]);
        assert_eq!(arrivals_ms(&with(ArrivalProcess::Burst, 3)), [0.0; 3]);
    }

    #[test]
    fn poisson_stamps_of_seed_42() {
        let stamps = arrivals_ms(&with(ArrivalProcess::Poisson, 3));
        assert_eq!(stamps, [0.0, 14.954_492, 30.603_908]);
    }

    #[test]
    fn gaps_have_the_mean_and_the_spread_asked_for() {
        for (smoothness, spread) in [(1.0, 1.0), (4.0, 0.5), (0.25, 2.0)] {
            let stamps = arrivals_ms(&with(ArrivalProcess::Gamma { smoothness }, 40_000));
            let gaps: Vec<f64> = stamps.windows(2).map(|pair| pair[1] - pair[0]).collect();
            let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
            let variance =
                gaps.iter().map(|gap| (gap - mean) * (gap - mean)).sum::<f64>() / gaps.len() as f64;
            assert!((mean - 20.0).abs() < 0.6, "{mean}");
            assert!((variance.sqrt() / mean / spread - 1.0).abs() < 0.05, "{smoothness}");
        }
    }

    #[test]
    fn prompts_without_groups_share_nothing() {
        for synthetic in
            [synthetic(), Synthetic { turns_per_session: 3, shared_prefix_ratio: 0.5, ..synthetic() }]
        {
            let workload = workload(&synthetic);
            assert!(workload.requests.iter().all(|request| request.prompt.chunks == 0));
            assert!(workload.chunk_ids.is_empty());
        }
    }

    #[test]
    fn groups_share_the_beginning_of_every_turn() {
        let synthetic = Synthetic {
            shared_prefix_ratio: 0.5,
            num_prefix_groups: 3,
            turns_per_session: 2,
            inter_turn_delay_ms: 1000.0,
            ..synthetic()
        };
        let workload = workload(&synthetic);
        // 300 tokens are 5 blocks of 64; half of them is 2.5, rounded to 3.
        let chunks: Vec<&[u32]> = workload.chunk_ids.chunks(5).collect();
        assert_eq!(chunks.len(), 16);
        for (request, chunks) in workload.requests.iter().zip(&chunks) {
            assert_eq!(chunks[0] % 3, 0);
            assert_eq!((chunks[1], chunks[2]), (chunks[0] + 1, chunks[0] + 2));
            assert!(chunks[3] >= 9 && chunks[4] >= 9);
            assert_eq!(request.prompt.chunks, 5);
        }
        let mut own: Vec<u32> = chunks.iter().flat_map(|chunks| chunks[3..].to_vec()).collect();
        own.dedup();
        assert_eq!(own.len(), 32);
        for pair in workload.requests.chunks(2) {
            assert_eq!(pair[0].next_turn.map(|next| next.0), Some(pair[0].session * 2 + 1));
            assert_eq!((pair[1].turn, pair[1].delay.as_ms(), pair[1].next_turn), (1, 1000.0, None));
        }
        assert_eq!(
            workload.session_starts.iter().map(|start| start.0).collect::<Vec<_>>(),
            [0, 2, 4, 6, 8, 10, 12, 14]
        );
    }

    #[test]
    fn impossible_numbers_are_refused_together() {
        let bad = Synthetic {
            isl: 0,
            count: 0,
            turns_per_session: 0,
            request_rate: Some(0.0),
            shared_prefix_ratio: 1.5,
            inter_turn_delay_ms: f64::NAN,
            ..synthetic()
        };
        let message = generate(&bad, 64, Pacing::default()).unwrap_err().to_string();
        let fields = [
            "isl",
            "number of requests",
            "turns_per_session",
            "request_rate",
            "shared_prefix_ratio",
            "inter_turn_delay_ms",
        ];
        for field in fields {
            assert!(message.contains(&format!("workload: {field}: ")), "{field}\n---\n{message}");
        }
        for rate in [None, Some(f64::NAN), Some(f64::INFINITY), Some(-1.0), Some(1e-300)] {
            let bad = Synthetic { request_rate: rate, ..synthetic() };
            assert!(generate(&bad, 64, Pacing::default()).is_err(), "{rate:?}");
        }
        let huge = Synthetic { count: 1 << 20, turns_per_session: 1 << 20, ..synthetic() };
        assert!(generate(&huge, 64, Pacing::default()).is_err());
        let huge = Synthetic {
            num_prefix_groups: 2,
            shared_prefix_ratio: 0.5,
            isl: 1 << 20,
            count: 1 << 20,
            ..synthetic()
        };
        assert!(generate(&huge, 1, Pacing::default()).is_err());
    }

    #[test]
    fn a_closed_loop_needs_no_rate() {
        let pacing = Pacing { concurrency: Some(2), ..Pacing::default() };
        let loaded = generate(&Synthetic { request_rate: None, ..synthetic() }, 64, pacing).unwrap();
        assert_eq!(loaded.workload.concurrency, Some(2));
        assert_eq!(loaded.workload.requests.len(), 8);
    }
}
