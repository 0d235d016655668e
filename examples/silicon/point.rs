//! One point: the scenario that copies how it was driven, and what its replay says.

use std::path::Path;
use std::sync::Arc;

use rand::Rng;
use serde_json::{Value, json};
use spica::config::scenario::{Backend, InlineRequest, Scenario, WorkloadConfig, WorkloadSource, ZeroOutput};
use spica::config::{self, Document};
use spica::registry::Registry;
use spica::report::Summary;
use spica::report::record::RunRecord;
use spica::serving::{self, ReplayLimits, Traffic};
use spica::simulation::stream;
use spica::timing::profile::{Pack, WantedFamily, WantedShape};

use crate::measured::{Layout, Measured, Shape};

/// Requests that each slot of the closed loop sent.
const REQUESTS_PER_SLOT: u32 = 10;
/// Requests that may run at a time, where no more were in flight.
const MAX_NUM_SEQS: u32 = 256;
const MAX_NUM_BATCHED_TOKENS: u32 = 8192;

/// A point that was replayed.
pub(crate) struct Point {
    pub(crate) row: Measured,
    /// The profiles that priced it.
    pub(crate) profiles: String,
    /// Whether the numbers of one of them are doubted.
    pub(crate) suspect: bool,
    /// Prices outside what was sampled.
    pub(crate) extrapolated_lookups: u64,
    pub(crate) ttft_ms: f64,
    pub(crate) tpot_ms: f64,
}

impl Point {
    /// By how much the replay is above (+) or below (-) the measurement, as a share of it.
    pub(crate) fn tpot_error(&self) -> f64 {
        self.tpot_ms / self.row.tpot_ms - 1.0
    }

    /// The same of the time to first token.
    pub(crate) fn ttft_error(&self) -> f64 {
        self.ttft_ms / self.row.ttft_ms - 1.0
    }
}

/// Why a row was not replayed, in words that many rows share.
pub(crate) struct Skipped(pub(crate) String);

/// How all points are driven.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Driven {
    /// Requests of a point at most, or two for each slot where that is more.
    pub(crate) most_requests: u32,
    /// From the end of a request to the next one of its slot, in milliseconds.
    pub(crate) turnaround_ms: f64,
}

/// Replays a row.
pub(crate) fn replay(row: &Measured, registry: &Registry, driven: &Driven) -> Result<Point, Skipped> {
    let scenario = scenario(row)?;
    let traffic = traffic(row, scenario.deployment.block_size(), driven)?;
    let record = serving::replay(&scenario, &traffic, registry, &ReplayLimits::default());
    let record = record.map_err(|error| refused(row, &error.to_string()))?;
    let summary = Summary::new(&record, traffic.workload(), None);
    if summary.completed_requests < summary.num_requests {
        return Err(Skipped("the KV cache cannot hold the requests".into()));
    }
    let mean = |figures: Option<f64>| figures.ok_or_else(|| Skipped("nothing was generated".into()));
    Ok(Point {
        row: row.clone(),
        profiles: profiles(&record),
        suspect: record.timing.values().any(|timing| timing.suspect.is_some()),
        extrapolated_lookups: record.timing.values().filter_map(|timing| timing.extrapolated_lookups).sum(),
        ttft_ms: mean(summary.metric("mean_ttft_ms"))?,
        tpot_ms: mean(summary.metric("mean_tpot_ms"))?,
    })
}

fn profiles(record: &RunRecord) -> String {
    let ids: Vec<&str> = record.timing.values().filter_map(|timing| timing.id.as_deref()).collect();
    ids.join(" + ")
}

fn refused(row: &Measured, message: &str) -> Skipped {
    if message.contains("num_gpu_blocks") || message.contains("max_model_len") {
        let Measured { model, system, precision, layout, .. } = row;
        return Skipped(format!(
            "the memory model finds no room for a KV cache: {model} in {precision} on {system}, {}",
            layout.name()
        ));
    }
    Skipped(format!("refused: {message}"))
}

/// The requests: lengths uniform in 80-100 % of nominal, drawn from a stream of their own.
fn traffic(row: &Measured, block_size: u32, driven: &Driven) -> Result<Traffic, Skipped> {
    let count = (REQUESTS_PER_SLOT * row.concurrency).min(driven.most_requests.max(2 * row.concurrency));
    let mut draws = stream(1, "lengths");
    let mut length = |nominal: u32| {
        let shortest = (u64::from(nominal) * 4).div_ceil(5);
        let lengths = u64::from(nominal) - shortest + 1;
        // The high half of the product is uniform over the lengths.
        (shortest + ((u128::from(draws.next_u64()) * u128::from(lengths)) >> 64) as u64) as u32
    };
    let requests = (0..count).map(|place| {
        let (slot, is_first) = (place % row.concurrency, place < row.concurrency);
        let input_length = Some(length(row.isl));
        let output_length = length(row.osl);
        let request = InlineRequest { input_length, output_length, ..InlineRequest::default() };
        if driven.turnaround_ms <= 0.0 {
            return InlineRequest { arrival_ms: Some(0.0), ..request };
        }
        // Each slot is a session, whose turns follow each other after that time.
        InlineRequest {
            arrival_ms: is_first.then_some(0.0),
            delay_ms: (!is_first).then_some(driven.turnaround_ms),
            session_id: Some(slot.to_string()),
            ..request
        }
    });
    let config = WorkloadConfig {
        source: WorkloadSource::Requests { requests: requests.collect(), block_size },
        concurrency: Some(row.concurrency),
        arrival_speedup_ratio: 1.0,
        zero_output: ZeroOutput::Drop,
        strict: false,
    };
    let loaded = spica::workload::load(&config, None, block_size);
    let loaded = loaded.map_err(|error| Skipped(format!("refused: {error}")))?;
    Ok(Traffic::new(Arc::new(loaded.workload), block_size))
}

/// The deployment of a row, priced by the profile of its model, GPU, engine and number format.
fn scenario(row: &Measured) -> Result<Scenario, Skipped> {
    let mut deployment = match row.layout {
        Layout::Aggregated(shape) => json!({"mode": "agg", "agg": pool(row, 1, shape)?}),
        Layout::Split { prefill, decode } => json!({
            "mode": "disagg",
            "prefill": pool(row, prefill.0, prefill.1)?,
            "decode": pool(row, decode.0, decode.1)?,
        }),
    };
    deployment["router"] = json!({"policy": "round_robin"});
    // The requests replace this workload, which only makes the scenario whole.
    let text = json!({"deployment": deployment, "workload": {"isl": 1, "osl": 1, "concurrency": 1, "num_request_ratio": 1}}).to_string();
    match config::load(&text, Path::new("row"), &[]) {
        Ok(Document::Scenario(scenario)) => Ok(scenario),
        Ok(_) => Err(Skipped("refused: not a scenario".into())),
        Err(error) => Err(refused(row, &error.to_string())),
    }
}

fn pool(row: &Measured, workers: u32, shape: Shape) -> Result<Value, Skipped> {
    let timing = timing(row, shape)?;
    let max_num_seqs = row.concurrency.max(MAX_NUM_SEQS);
    Ok(json!({
        "workers": workers,
        "dp_size": shape.attention_dp,
        "tensor_parallel_size": shape.tp,
        "pipeline_parallel_size": shape.pp,
        "engine": {
            "backend": row.backend,
            "enable_prefix_caching": false,
            "max_num_seqs": max_num_seqs,
            "max_num_batched_tokens": MAX_NUM_BATCHED_TOKENS,
        },
        "timing": timing,
    }))
}

/// The profile: of the very version of the engine where there is one, otherwise of the newest that is not suspect.
fn timing(row: &Measured, shape: Shape) -> Result<Value, Skipped> {
    let pack = Pack::embedded();
    let model = checkpoint(row);
    if !pack.families().iter().any(|family| family.prices(model)) {
        return Err(Skipped(format!("no profile of the model: {} in {}", row.model, row.precision)));
    }
    let backend = match row.backend.as_str() {
        "vllm" => Backend::Vllm,
        "sglang" => Backend::Sglang,
        "trtllm" => Backend::Trtllm,
        other => return Err(Skipped(format!("an engine that is not modelled: {other}"))),
    };
    let wanted = |version| WantedFamily {
        model_name: model,
        hardware_sku: &row.system,
        backend,
        backend_version: version,
        quantization: None,
    };
    let family = pack.family(wanted(Some(&row.version))).or_else(|_| pack.family(wanted(None)));
    let family = family.map_err(|error| {
        Skipped(match error.field {
            "hardware_sku" => format!("no profile of the model on {}: {}", row.system, row.model),
            _ => format!("no profile of the model on {} with {}: {}", row.system, row.backend, row.model),
        })
    })?;
    let (moe_tp, moe_ep) = if family.is_moe { (shape.moe_tp, shape.moe_ep) } else { (1, 1) };
    let Shape { tp, pp, attention_dp, .. } = shape;
    let wanted = WantedShape { tp, pp, attention_dp, moe_tp: Some(moe_tp), moe_ep: Some(moe_ep) };
    pack.under(family, wanted)
        .map_err(|_| Skipped(format!("no profile under {}: {}, {}", shape.name(), row.model, row.backend)))?;
    Ok(json!({
        "model": "profile",
        "model_name": model,
        "hardware_sku": row.system,
        "backend_version": family.version,
        "moe_tp": moe_tp,
        "moe_ep": moe_ep,
    }))
}

/// The checkpoint that a row served: its model in its number format.
fn checkpoint(row: &Measured) -> &str {
    match (row.model.as_str(), row.precision.as_str()) {
        ("MiniMaxAI/MiniMax-M2.5", "fp4") => "nvidia/MiniMax-M2.5-NVFP4",
        ("deepseek-ai/DeepSeek-R1" | "deepseek-ai/DeepSeek-V3", "fp4") => "nvidia/DeepSeek-V3.1-NVFP4",
        ("moonshotai/Kimi-K2.5", "fp4") => "nvidia/Kimi-K2.5-NVFP4",
        ("zhipuai/GLM-5", "fp4") => "nvidia/GLM-5-NVFP4",
        ("zhipuai/GLM-5", "fp8") => "zai-org/GLM-5-FP8",
        (model, _) => model,
    }
}
