//! Random small deployments under random small loads: both arms have to say the same about every one of them.
//!
//! `SPICA_PROPERTY_CASES` sets how many are tried (300 when unset) and `SPICA_PROPERTY_SEED` which (1 when unset). A failure prints the
//! smallest setting that still fails.

use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use serde_json::{Value, json};
use spica::config::scenario::Scenario;
use spica::report::record::Status;
use spica::workload::Workload;

use crate::slow::{self, SlowRun};
use crate::support::{arms, scenario};

/// Everything that is drawn. Small numbers are simple numbers: shrinking leads towards one plain request.
#[derive(Clone, Debug)]
struct Setting {
    workers: u32,
    /// One less than the tokens of a block.
    block_size: u32,
    num_gpu_blocks: u32,
    max_num_seqs: Option<u32>,
    max_num_batched_tokens: Option<u32>,
    max_model_len: Option<u32>,
    no_chunking: bool,
    no_prefix_caching: bool,
    fifo: bool,
    speedup: u32,
    decode_speedup: u32,
    /// Fixed timing in half milliseconds; polynomial without.
    fixed_half_ms: Option<(u32, u32)>,
    concurrency: Option<u32>,
    max_sim_time_ms: Option<u32>,
    tokens_per_chunk: u32,
    sessions: Vec<Session>,
}

#[derive(Clone, Debug)]
struct Session {
    arrival_ms: u32,
    turns: Vec<Turn>,
}

#[derive(Clone, Debug)]
struct Turn {
    delay_ms: u32,
    input_length: u32,
    output_length: u32,
    /// Chunks are drawn from a few, so that prefixes are shared; without, the prompt shares nothing.
    chunks: Option<Vec<u8>>,
}

fn settings() -> impl Strategy<Value = Setting> {
    let engine = (1..=9_u32, 1..=24_u32, option(1..=5_u32), option(1..=40_u32), option(1..=40_u32));
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    let timing = (1..=3_u32, 1..=3_u32, option((1..=40_u32, 1..=9_u32)));
    let load = (option(1..=3_u32), option(1..=150_u32), 1..=7_u32);
    let sessions = prop::collection::vec(session(), 1..=10);
    (1..=3_u32, engine, flags, timing, load, sessions).prop_map(
        |(workers, engine, flags, timing, load, sessions)| Setting {
            workers,
            block_size: engine.0,
            num_gpu_blocks: engine.1,
            max_num_seqs: engine.2,
            max_num_batched_tokens: engine.3,
            max_model_len: engine.4,
            no_chunking: flags.0,
            no_prefix_caching: flags.1,
            fifo: flags.2,
            speedup: timing.0,
            decode_speedup: timing.1,
            fixed_half_ms: timing.2,
            concurrency: load.0,
            max_sim_time_ms: load.1,
            tokens_per_chunk: load.2,
            sessions,
        },
    )
}

fn session() -> impl Strategy<Value = Session> {
    let arrival = prop_oneof![Just(0_u32), 0..=60_u32];
    (arrival, prop::collection::vec(turn(), 1..=3))
        .prop_map(|(arrival_ms, turns)| Session { arrival_ms, turns })
}

fn turn() -> impl Strategy<Value = Turn> {
    let chunks = prop_oneof![
        1 => Just(None),
        3 => prop::collection::vec(0..=2_u8, 40).prop_map(Some),
    ];
    (prop_oneof![Just(0_u32), 0..=30_u32], 1..=40_u32, 0..=14_u32, chunks).prop_map(
        |(delay_ms, input_length, output_length, chunks)| Turn {
            delay_ms,
            input_length,
            output_length,
            chunks,
        },
    )
}

fn option<T: std::fmt::Debug + Clone>(values: impl Strategy<Value = T>) -> impl Strategy<Value = Option<T>> {
    prop::option::of(values)
}

impl Setting {
    fn scenario(&self) -> Scenario {
        let mut engine = json!({
            "block_size": self.block_size + 1,
            "num_gpu_blocks": self.num_gpu_blocks,
            "max_num_seqs": self.max_num_seqs,
            "max_num_batched_tokens": self.max_num_batched_tokens,
            "enable_chunked_prefill": !self.no_chunking,
            "enable_prefix_caching": !self.no_prefix_caching,
            "preemption_mode": if self.fifo { "fifo" } else { "lifo" },
            "speedup_ratio": self.speedup,
            "decode_speedup_ratio": self.decode_speedup,
        });
        if let Some(longest) = self.max_model_len {
            engine["max_model_len"] = json!(longest);
        }
        let timing = self.fixed_half_ms.map_or(json!({"model": "polynomial"}), |(prefill, decode)| {
            json!({"model": "fixed", "prefill_ms": f64::from(prefill) / 2.0, "decode_ms": f64::from(decode) / 2.0})
        });
        let mut workload = json!({"requests": self.requests(), "trace_block_size": self.tokens_per_chunk});
        if let Some(cap) = self.concurrency {
            workload["replay_concurrency"] = json!(cap);
        }
        let mut document = json!({
            "deployment": {"mode": "agg", "agg": {"workers": self.workers, "engine": engine, "timing": timing}},
            "workload": workload,
        });
        if let Some(limit) = self.max_sim_time_ms {
            document["max_sim_time_ms"] = json!(limit);
        }
        scenario::scenario(&document)
    }

    fn requests(&self) -> Vec<Value> {
        let mut asked = Vec::new();
        for (number, session) in self.sessions.iter().enumerate() {
            for (index, turn) in session.turns.iter().enumerate() {
                let mut request = json!({
                    "id": format!("{number}/{index}"),
                    "input_length": turn.input_length,
                    "output_length": turn.output_length,
                    "session_id": number.to_string(),
                });
                if index == 0 {
                    request["arrival_ms"] = json!(session.arrival_ms);
                } else {
                    request["delay_ms"] = json!(turn.delay_ms);
                }
                if let Some(ids) = &turn.chunks {
                    let chunks = turn.input_length.div_ceil(self.tokens_per_chunk) as usize;
                    request["hash_ids"] = json!(ids[..chunks]);
                }
                asked.push(request);
            }
        }
        asked
    }
}

#[test]
fn both_arms_agree_on_whatever_is_asked() {
    let cases = number("SPICA_PROPERTY_CASES", 300);
    let seed = number("SPICA_PROPERTY_SEED", 1);
    println!("{cases} settings from seed {seed}");
    let config = Config {
        cases: u32::try_from(cases).expect("a modest number of cases"),
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        max_shrink_iters: 20_000,
        max_global_rejects: 10_000_000,
        ..Config::default()
    };
    let outcome = TestRunner::new(config).run(&settings(), |setting| {
        let scenario = setting.scenario();
        let workload = scenario::workload(&scenario, None);
        let slow = slow::run(&scenario, &workload).expect("what is drawn is covered");
        prop_assume!(setting.workers == 1 || !slow.immediate_arrivals);
        let mut wrong = broken_laws(&scenario, &workload, &slow);
        let workload = Arc::new(workload);
        let mut fast = arms::fast(&scenario, &workload);
        if setting.max_sim_time_ms.is_some() {
            fast.counters.evictions = slow.record.counters.evictions;
            fast.counters.preemptions = slow.record.counters.preemptions;
        }
        wrong.extend(arms::differences(&workload, &slow.record, &fast));
        prop_assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("seed {seed}: {failure}");
    }
}

/// What holds for every run, whoever makes it.
fn broken_laws(scenario: &Scenario, workload: &Workload, run: &SlowRun) -> Vec<String> {
    let mut broken = Vec::new();
    let longest = scenario.deployment.agg.as_ref().and_then(|pool| pool.engine.max_model_len);
    for (index, record) in run.record.requests.iter().enumerate() {
        let asked = &workload.requests[index];
        let tokens = &run.tokens[index];
        let room = longest.map_or(u32::MAX, |longest| longest.saturating_sub(asked.input_length));
        let whole = asked.output_length.min(room) as usize;
        let mut law = |holds: bool, what: &str| {
            if !holds {
                broken.push(format!("{what}: {record:?}"));
            }
        };
        law(tokens.is_sorted(), "tokens leave in order");
        law(tokens.len() <= whole, "nobody gets more than asked for");
        law(record.status != Status::Completed || tokens.len() == whole, "a completed request is whole");
        law(
            record.status != Status::Completed || record.terminal >= record.last_token,
            "the last token is not late",
        );
        law(record.first_admit.is_none() || record.first_admit >= record.arrival, "nobody is admitted early");
        law(record.max_reused_tokens <= asked.input_length, "no more is reused than there is");
    }
    broken
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a whole number"))
}
