//! What is drawn: deployments and loads.

use proptest::option;
use proptest::prelude::*;
use serde_json::{Value, json};
use spica::config::scenario::Scenario;
use spica::report::record::Role;

use crate::support::scenario;

/// Everything that is drawn. Small numbers are simple numbers: shrinking leads towards one plain request.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub engine: Engine,
    /// One less than the tokens of a block, but for SGLang.
    pub block_size: u32,
    pub speculation: Option<Speculation>,
    pub first_token_decode: bool,
    pub speedup: u32,
    pub decode_speedup: u32,
    /// The only pool, or the one that computes prompts.
    pub pool: Pool,
    /// The pool that generates, where that is another.
    pub decode: Option<(Pool, Transfer)>,
    pub concurrency: Option<u32>,
    pub max_sim_time_ms: Option<u32>,
    pub tokens_per_chunk: u32,
    pub sessions: Vec<Session>,
}

#[derive(Clone, Debug)]
pub(super) enum Engine {
    Vllm,
    Trtllm,
    Sglang(Sglang),
}

/// What only SGLang has.
#[derive(Clone, Debug)]
pub(super) struct Sglang {
    pub page_size: u32,
    /// Pages beside the blocks that are drawn for all backends.
    pub more_pages: u32,
    pub lpm: bool,
    pub max_prefill_tokens: u32,
    pub chunk_pages: Option<u32>,
    pub clip_max_new_tokens: u32,
    pub conservativeness_percent: u32,
    pub prefill_decode_interval: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Pool {
    pub workers: u32,
    pub dp_size: u32,
    pub prefill_schedule_interval: u32,
    pub num_gpu_blocks: u32,
    pub max_num_seqs: Option<u32>,
    pub max_num_batched_tokens: Option<u32>,
    pub max_model_len: Option<u32>,
    pub no_chunking: bool,
    pub no_prefix_caching: bool,
    pub fifo: bool,
    /// Fixed timing in half milliseconds; polynomial without.
    pub fixed_half_ms: Option<(u32, u32)>,
}

/// How many draft tokens, and how likely each is right, in quarters.
#[derive(Clone, Debug)]
pub(super) struct Speculation {
    pub drafts: u32,
    pub rates: Option<[u32; 5]>,
}

/// How prompts travel.
#[derive(Clone, Debug)]
pub(super) enum Transfer {
    LatencyHalfMs(u32),
    /// Bytes per token over a link of 1e6 bytes per second.
    Link {
        bytes_per_token: u32,
        missing_only: bool,
        fifo: bool,
    },
}

#[derive(Clone, Debug)]
pub(super) struct Session {
    pub arrival_ms: u32,
    pub turns: Vec<Turn>,
}

#[derive(Clone, Debug)]
pub(super) struct Turn {
    pub delay_ms: u32,
    pub input_length: u32,
    pub output_length: u32,
    /// Chunks are drawn from a few, so that prefixes are shared; without, the prompt shares nothing.
    pub chunks: Option<Vec<u8>>,
    /// Which rank has to take it, modulo their number.
    pub dp_rank: Option<u32>,
}

pub(super) fn settings() -> impl Strategy<Value = Setting> {
    let backend = prop_oneof![3 => Just(Engine::Vllm), 2 => Just(Engine::Trtllm), 3 => sglang()];
    let engine = (backend, 1..=9_u32, option::weighted(0.25, speculation()));
    let timing = (prop::bool::weighted(0.15), 1..=3_u32, 1..=3_u32);
    let pools = (pool(), option::weighted(0.45, (pool(), transfer())));
    let load = (option::weighted(0.4, 1..=3_u32), option::weighted(0.25, 1..=150_u32), 1..=7_u32);
    let sessions = prop::collection::vec(session(), 1..=10);
    (engine, timing, pools, load, sessions).prop_map(|(engine, timing, pools, load, sessions)| Setting {
        block_size: engine.1,
        speculation: engine.2,
        first_token_decode: timing.0,
        speedup: timing.1,
        decode_speedup: timing.2,
        pool: pools.0,
        decode: pools.1,
        concurrency: load.0,
        max_sim_time_ms: load.1,
        tokens_per_chunk: load.2,
        sessions,
        engine: engine.0,
    })
}

fn sglang() -> impl Strategy<Value = Engine> {
    let pages = (prop_oneof![Just(1_u32), 1..=9_u32], 0..=80_u32, option::weighted(0.6, 1..=12_u32));
    let charges = (prop_oneof![1..=60_u32, Just(16384)], prop_oneof![1..=6_u32, Just(4096)], 1..=200_u32);
    let order = (any::<bool>(), prop_oneof![Just(0_u32), 0..=4_u32]);
    (pages, charges, order).prop_map(|(pages, charges, order)| {
        Engine::Sglang(Sglang {
            page_size: pages.0,
            more_pages: pages.1,
            chunk_pages: pages.2,
            max_prefill_tokens: charges.0,
            clip_max_new_tokens: charges.1,
            conservativeness_percent: charges.2,
            lpm: order.0,
            prefill_decode_interval: order.1,
        })
    })
}

fn pool() -> impl Strategy<Value = Pool> {
    let size = (1..=3_u32, prop_oneof![2 => Just(1_u32), 1 => 2..=3_u32], 1..=4_u32, 1..=30_u32);
    let limits = (
        option::weighted(0.4, 1..=5_u32),
        option::weighted(0.5, 1..=40_u32),
        option::weighted(0.2, 1..=50_u32),
    );
    let flags = (prop::bool::weighted(0.3), prop::bool::weighted(0.2), any::<bool>());
    let timing = option::weighted(0.6, (1..=40_u32, 1..=9_u32));
    (size, limits, flags, timing).prop_map(|(size, limits, flags, fixed_half_ms)| Pool {
        workers: size.0,
        dp_size: size.1,
        prefill_schedule_interval: size.2,
        num_gpu_blocks: size.3,
        max_num_seqs: limits.0,
        max_num_batched_tokens: limits.1,
        max_model_len: limits.2,
        no_chunking: flags.0,
        no_prefix_caching: flags.1,
        fifo: flags.2,
        fixed_half_ms,
    })
}

fn speculation() -> impl Strategy<Value = Speculation> {
    (1..=5_u32, option::of(prop::array::uniform5(0..=4_u32)))
        .prop_map(|(drafts, rates)| Speculation { drafts, rates })
}

fn transfer() -> impl Strategy<Value = Transfer> {
    prop_oneof![
        Just(Transfer::LatencyHalfMs(0)),
        (1..=20_u32).prop_map(Transfer::LatencyHalfMs),
        (1..=3000_u32, any::<bool>(), prop::bool::weighted(0.3)).prop_map(
            |(bytes_per_token, missing_only, fifo)| Transfer::Link { bytes_per_token, missing_only, fifo }
        ),
    ]
}

fn session() -> impl Strategy<Value = Session> {
    let arrival = prop_oneof![Just(0_u32), 0..=60_u32];
    (arrival, prop::collection::vec(turn(), 1..=3))
        .prop_map(|(arrival_ms, turns)| Session { arrival_ms, turns })
}

fn turn() -> impl Strategy<Value = Turn> {
    let chunks = prop_oneof![
        1 => Just(None),
        4 => prop::collection::vec(prop_oneof![4 => Just(0_u8), 1 => 1..=2_u8], 40).prop_map(Some),
    ];
    let delay = prop_oneof![Just(0_u32), 0..=30_u32];
    (delay, 1..=40_u32, 0..=14_u32, chunks, option::weighted(0.3, 0..=2_u32)).prop_map(
        |(delay_ms, input_length, output_length, chunks, dp_rank)| Turn {
            delay_ms,
            input_length,
            output_length,
            chunks,
            dp_rank,
        },
    )
}

impl Setting {
    pub(super) fn scenario(&self) -> Scenario {
        let mut workload = json!({"requests": self.requests(), "trace_block_size": self.tokens_per_chunk});
        if let Some(cap) = self.concurrency {
            workload["replay_concurrency"] = json!(cap);
        }
        let deployment = match &self.decode {
            None => json!({"mode": "agg", "agg": self.pool(&self.pool, Role::Agg)}),
            Some((decode, transfer)) => json!({
                "mode": "disagg",
                "prefill": self.pool(&self.pool, Role::Prefill),
                "decode": self.pool(decode, Role::Decode),
                "kv_transfer": transfer.section(),
            }),
        };
        let mut document = json!({"deployment": deployment, "workload": workload});
        if let Some(limit) = self.max_sim_time_ms {
            document["max_sim_time_ms"] = json!(limit);
        }
        scenario::scenario(&document)
    }

    /// Tokens of the longest sequence that is generated in full.
    pub(super) fn longest(&self) -> u32 {
        let pool = self.decode.as_ref().map_or(&self.pool, |(decode, _)| decode);
        let longest = pool.max_model_len.unwrap_or(u32::MAX);
        match self.engine {
            Engine::Trtllm => longest.min(pool.num_gpu_blocks * (self.block_size + 1)),
            Engine::Vllm | Engine::Sglang(_) => longest,
        }
    }

    fn pool(&self, pool: &Pool, role: Role) -> Value {
        let mut engine = json!({
            "block_size": self.block_size + 1,
            "num_gpu_blocks": pool.num_gpu_blocks,
            "max_num_seqs": pool.max_num_seqs,
            "max_num_batched_tokens": pool.max_num_batched_tokens,
            "enable_chunked_prefill": !pool.no_chunking,
            "enable_prefix_caching": !pool.no_prefix_caching,
            "speedup_ratio": self.speedup,
        });
        match &self.engine {
            Engine::Vllm => {
                engine["backend"] = json!("vllm");
                engine["preemption_mode"] = json!(if pool.fifo { "fifo" } else { "lifo" });
                if pool.dp_size > 1 {
                    engine["prefill_schedule_interval"] = json!(pool.prefill_schedule_interval);
                }
            }
            Engine::Trtllm => engine["backend"] = json!("trtllm"),
            Engine::Sglang(sglang) => sglang.add_to(&mut engine, pool),
        }
        if let Some(longest) = pool.max_model_len {
            engine["max_model_len"] = json!(longest);
        }
        let is_sglang = matches!(self.engine, Engine::Sglang(_));
        if role == Role::Agg && !is_sglang {
            engine["first_token_decode"] = json!(self.first_token_decode);
        }
        match self.speculation.as_ref().filter(|_| !is_sglang) {
            None if role != Role::Prefill => engine["decode_speedup_ratio"] = json!(self.decode_speedup),
            None => {}
            Some(speculation) => {
                engine["aic_nextn"] = json!(speculation.drafts);
                if let Some(quarters) = speculation.rates {
                    // One rate for each draft token: more could not act and are refused.
                    let rates = quarters.iter().take(speculation.drafts as usize);
                    engine["aic_nextn_accept_rates"] =
                        rates.map(|rate| f64::from(*rate) / 4.0).collect::<Vec<_>>().into();
                }
            }
        }
        let timing = pool.fixed_half_ms.map_or(json!({"model": "polynomial"}), |(prefill, decode)| {
            json!({"model": "fixed", "prefill_ms": f64::from(prefill) / 2.0, "decode_ms": f64::from(decode) / 2.0})
        });
        json!({"workers": pool.workers, "dp_size": pool.dp_size, "engine": engine, "timing": timing})
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
                if let Some(rank) = turn.dp_rank.filter(|_| self.decode.is_none()) {
                    request["dp_rank"] = json!(rank % self.pool.dp_size);
                }
                asked.push(request);
            }
        }
        asked
    }
}

impl Sglang {
    fn add_to(&self, engine: &mut Value, pool: &Pool) {
        engine["backend"] = json!("sglang");
        engine["block_size"] = json!(self.page_size);
        engine["num_gpu_blocks"] = json!(pool.num_gpu_blocks + self.more_pages);
        engine["prefill_decode_interval"] = json!(self.prefill_decode_interval);
        engine["sglang"] = json!({
            "schedule_policy": if self.lpm { "lpm" } else { "fifo" },
            "max_prefill_tokens": self.max_prefill_tokens,
            "clip_max_new_tokens": self.clip_max_new_tokens,
            "schedule_conservativeness": f64::from(self.conservativeness_percent) / 100.0,
        });
        if let Some(pages) = self.chunk_pages {
            engine["sglang"]["chunked_prefill_size"] = json!(pages * self.page_size);
        }
    }
}

impl Transfer {
    fn section(&self) -> Value {
        match *self {
            Self::LatencyHalfMs(half_ms) => json!({"latency_ms": f64::from(half_ms) / 2.0}),
            Self::Link { bytes_per_token, missing_only, fifo } => json!({
                "bandwidth_gbps": 0.001,
                "bytes_per_token": bytes_per_token,
                "timing": if missing_only { "destination_missing" } else { "full_prompt" },
                "sharing": if fifo { "fifo" } else { "none" },
            }),
        }
    }
}
