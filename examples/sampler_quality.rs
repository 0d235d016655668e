//! How good the samplers are: every point of some small spaces is replayed once, then each sampler searches those tables
//! with many seeds, and its regret is compared with that of the others.
//!
//! `cargo run --release --example sampler_quality -- [--seeds N] [--cache DIR] [TABLE...]`
//!
//! Regret is what is missing to the best point, as a share of the way from the median point to the best; for a frontier, the
//! share of the hypervolume that is missing. Tables are kept in the cache folder, if there is one.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use spica::config::scenario::{PolicyConfig, WorkloadSource};
use spica::config::search::OptimizationTarget;
use spica::config::{self, Document};
use spica::model::Catalogue;
use spica::registry::Registry;
use spica::search::{
    Bar, Branch, Evaluation, Evaluator, Observation, Plan, Point, Prepared, ReplayEvaluator, Requests,
    metric, objective_value, score,
};
use spica::serving::Traffic;

const SAMPLERS: [&str; 4] = ["gp_ucb_pe", "tpe", "halton", "random"];
const CHECKPOINTS: [usize; 3] = [25, 50, 100];
/// Half a batch of four.
const CHUNK: usize = 2;

/// Name, search space, workload and goal.
const TABLES: [(&str, &str, &str, &str); 14] = [
    (
        "router_e2e",
        "parallel_configs: [{tp: 1, replicas: 6}], num_gpu_blocks: 4096, agg_max_num_batched_tokens: [8192, 32768], \
         agg_max_num_seqs: [256, 512]",
        "trace_path: scenarios/traces/toolagent.jsonl",
        "target: e2e_latency",
    ),
    (
        "router_goodput",
        "parallel_configs: [{tp: 2, replicas: 4}], num_gpu_blocks: 6144, agg_max_num_seqs: [256]",
        "trace_path: scenarios/traces/conversation.jsonl, arrival_speedup_ratio: 2.0",
        "target: goodput_per_gpu, sla: {ttft_ms: 1500, itl_ms: 40}",
    ),
    (
        "router_attainment",
        "parallel_configs: [{tp: 2, replicas: 4}], num_gpu_blocks: 6144, agg_max_num_seqs: [256]",
        "trace_path: scenarios/traces/conversation.jsonl, arrival_speedup_ratio: 2.0",
        "target: goodput_per_gpu, sla: {ttft_ms: 1500, itl_ms: 40}, min_attainment: 0.85",
    ),
    (
        "router_families",
        "parallel_configs: [{tp: 1, replicas: 8}], num_gpu_blocks: 3072, agg_max_num_seqs: [256, 1024], \
         prefill_load_scale: [0.0, 0.5, 2.0, 8.0, 32.0], router_mode: [kv_router, round_robin, least_loaded, \
         power_of_two, session_affinity, {policy: kv_router, queue_threshold: 0.5}, {policy: kv_router, \
         queue_threshold: 2.0}, {policy: kv_router, kv_event_lag_ms: 200}]",
        "trace_path: scenarios/traces/conversation.jsonl, arrival_speedup_ratio: 3.0",
        "target: e2e_latency",
    ),
    (
        "closed_loop",
        "parallel_configs: [{tp: 1, replicas: 4}], num_gpu_blocks: 2048",
        "isl: 3000, osl: 150, concurrency: 96, num_request_ratio: 4, shared_prefix_ratio: 0.7, num_prefix_groups: 12, \
         turns_per_session: 2",
        "target: throughput",
    ),
    (
        "agg_layouts",
        "gpu_budget: 16, num_gpu_blocks: 3072, router_mode: [kv_router, round_robin], overlap_score_credit: [0.0, 1.0], \
         prefill_load_scale: [0.0, 1.0, 8.0], router_temperature: [0.0, 0.5]",
        "trace_path: scenarios/traces/conversation.jsonl, arrival_speedup_ratio: 2.0",
        "target: goodput_per_gpu, sla: {ttft_ms: 1500, itl_ms: 40}",
    ),
    (
        "disagg_layouts",
        "deployment_mode: [disagg], gpu_budget: 12, num_gpu_blocks: 3072, router_mode: [kv_router, round_robin], \
         overlap_score_credit: [1.0], prefill_load_scale: [0.0, 8.0], router_temperature: [0.0], \
         prefill_max_num_seqs: [1, 16, 256], prefill_max_num_batched_tokens: [8192, 32768], decode_max_num_seqs: [256]",
        "trace_path: scenarios/traces/toolagent.jsonl",
        "target: goodput_per_gpu, sla: {ttft_ms: 1500, itl_ms: 40}",
    ),
    (
        "disagg_e2e",
        "deployment_mode: [disagg], gpu_budget: 12, min_gpu_budget: 6, num_gpu_blocks: 3072, router_mode: [kv_router, \
         round_robin], overlap_score_credit: [0.5, 1.0], prefill_load_scale: [1.0], router_temperature: [0.0, 0.5], \
         prefill_max_num_seqs: [1, 4, 16, 256], prefill_max_num_batched_tokens: [8192], decode_max_num_seqs: [256]",
        "trace_path: scenarios/traces/conversation.jsonl",
        "target: e2e_latency",
    ),
    (
        "agg_attainment",
        "gpu_budget: 12, num_gpu_blocks: 2048, router_mode: [kv_router, round_robin], overlap_score_credit: [0.0, 0.5, 1.0], \
         prefill_load_scale: [0.0, 1.0, 4.0, 16.0], router_temperature: [0.0, 0.5]",
        "trace_path: scenarios/traces/toolagent.jsonl",
        "target: goodput_per_gpu, sla: {ttft_ms: 1000, itl_ms: 35}, min_attainment: 0.9",
    ),
    (
        "closed_loop_layouts",
        "gpu_budget: 16, num_gpu_blocks: 1024, router_mode: [kv_router, round_robin], overlap_score_credit: [0.0, 1.0], \
         prefill_load_scale: [0.0, 1.0, 8.0], router_temperature: [0.0, 0.5]",
        "isl: 3000, osl: 150, concurrency: 96, num_request_ratio: 4, shared_prefix_ratio: 0.7, num_prefix_groups: 12, \
         turns_per_session: 2",
        "target: goodput_per_gpu, sla: {ttft_ms: 3000, itl_ms: 40}",
    ),
    (
        "planner_layouts",
        "gpu_budget: 12, num_gpu_blocks: 4096, router_mode: [round_robin], startup_time: 20, \
         planner_scaling_policy: [disabled, throughput_180_5, load_180_5, load_180_10, hybrid_180_5], \
         agg_max_num_batched_tokens: [8192, 32768], agg_max_num_seqs: [256]",
        "trace_path: scenarios/traces/sine.jsonl",
        "target: goodput_per_gpu, sla: {ttft_ms: 2000, itl_ms: 40}",
    ),
    (
        "pareto_disagg",
        "deployment_mode: [disagg], gpu_budget: 12, num_gpu_blocks: 3072, router_mode: [kv_router, round_robin], \
         overlap_score_credit: [1.0], prefill_load_scale: [0.0, 8.0], router_temperature: [0.0], \
         prefill_max_num_seqs: [1, 16, 256], prefill_max_num_batched_tokens: [8192, 32768], decode_max_num_seqs: [256]",
        "trace_path: scenarios/traces/conversation.jsonl",
        "target: pareto",
    ),
    (
        "pareto_routers",
        "parallel_configs: [{tp: 1, replicas: 6}], num_gpu_blocks: 4096, agg_max_num_batched_tokens: [8192, 32768], \
         agg_max_num_seqs: [256]",
        "trace_path: scenarios/traces/toolagent.jsonl",
        "target: pareto, pareto_objectives: [e2e_latency, throughput_per_user]",
    ),
    (
        "pareto_layouts",
        "gpu_budget: 16, num_gpu_blocks: 3072, router_mode: [kv_router, round_robin], overlap_score_credit: [0.0, 1.0], \
         prefill_load_scale: [0.0, 1.0, 8.0], router_temperature: [0.0, 0.5]",
        "trace_path: scenarios/traces/conversation.jsonl",
        "target: pareto",
    ),
];

/// A space of which everything is known.
struct Table {
    branch: Branch,
    /// One row per point: the objectives, signed so that more is better; `None` is infeasible.
    rows: BTreeMap<Point, Option<Vec<f64>>>,
    scale: Scale,
}

/// What the regret is measured by.
enum Scale {
    Single { median: f64, best: f64 },
    Frontier { worst: Vec<f64>, best: Vec<f64>, volume: f64 },
}

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let (mut seeds, mut cache, mut names) = (20, None, Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--seeds" => seeds = arguments.next().ok_or("--seeds needs a number")?.parse()?,
            "--cache" => cache = Some(PathBuf::from(arguments.next().ok_or("--cache needs a folder")?)),
            name => names.push(name.to_owned()),
        }
    }
    println!(
        "| table | points | sampler | regret at 25 | 50 | 100 | p95 ms for the last batch of 4 | gp_ucb_pe better, worse at 25, 50, 100 |"
    );
    println!("|---|---:|---|---:|---:|---:|---:|---|");
    for (name, space, workload, goal) in TABLES {
        if names.is_empty() || names.iter().any(|wanted| wanted == name) {
            let planner = if space.contains("planner_scaling_policy") {
                ""
            } else {
                "planner_scaling_policy: [disabled], "
            };
            let text = format!(
                "search_space: {{model_name: Qwen/Qwen3-32B, hardware_sku: h200_sxm, deployment_mode: [agg], \
                 timing: {{model: polynomial}}, {planner}{space}}}\nworkload: {{{workload}}}\n\
                 goal: {{{goal}}}\n"
            );
            let text = if space.contains("deployment_mode") {
                text.replacen("deployment_mode: [agg], ", "", 1)
            } else {
                text
            };
            match table(&text, cache.as_deref().map(|folder| folder.join(name))) {
                Ok(table) => compare(name, &table, seeds),
                Err(error) => eprintln!("{name}: {error}"),
            }
        }
    }
    Ok(())
}

fn table(text: &str, cache: Option<PathBuf>) -> Result<Table, Failure> {
    let Document::Search(config) = config::load(text, Path::new("table.yaml"), &[])? else {
        return Err("not a search".into());
    };
    let objectives = match config.goal.target {
        OptimizationTarget::Pareto => config.goal.pareto_objectives.clone(),
        target => vec![target],
    };
    let minimum = config.goal.min_attainment.unwrap_or(0.0);
    let plan =
        Plan::new(config, &Arc::new(Catalogue::bundled())).map_err(|refusals| format!("{refusals:?}"))?;
    let branch = plan.branches[0].clone();
    let cached = cache.as_ref().and_then(|path| std::fs::read(path).ok());
    let figures: Vec<Option<Vec<f64>>> = match cached {
        Some(bytes) => serde_json::from_slice(&bytes)?,
        None => replay_all(&plan, &branch, &objectives, minimum)?,
    };
    if let Some(path) = cache {
        std::fs::create_dir_all(path.parent().ok_or("a cache needs a folder")?)?;
        std::fs::write(path, serde_json::to_vec(&figures)?)?;
    }
    let points = (0..branch.space.size()).map(|index| branch.space.point(index));
    let rows: BTreeMap<Point, Option<Vec<f64>>> = points.zip(figures).collect();
    let feasible: Vec<&[f64]> = rows.values().filter_map(|row| row.as_deref()).collect();
    let scale = if objectives.len() == 1 {
        let mut scores: Vec<f64> = feasible.iter().map(|row| row[0]).collect();
        scores.sort_by(f64::total_cmp);
        Scale::Single { median: scores[scores.len() / 2], best: scores[scores.len() - 1] }
    } else {
        let bound = |pick: fn(f64, f64) -> f64| -> Vec<f64> {
            (0..objectives.len())
                .map(|place| feasible.iter().map(|row| row[place]).reduce(pick).unwrap_or(0.0))
                .collect()
        };
        let (worst, best) = (bound(f64::min), bound(f64::max));
        let volume = volume(&feasible, &worst, &best);
        Scale::Frontier { worst, best, volume }
    };
    Ok(Table { branch, rows, scale })
}

fn replay_all(
    plan: &Plan,
    branch: &Branch,
    objectives: &[OptimizationTarget],
    minimum: f64,
) -> Result<Vec<Option<Vec<f64>>>, Failure> {
    let workload = plan.config.workload.of_trial(None).ok_or("the load is not fixed")?;
    let mut trace = match &workload.source {
        WorkloadSource::Trace(trace) => Some(BufReader::new(File::open(&trace.path)?)),
        _ => None,
    };
    let reader = trace.as_mut().map(|trace| trace as &mut dyn BufRead);
    let loaded = spica::workload::load(&workload, reader, 64)?;
    let traffic = Traffic::new(Arc::new(loaded.workload), 64);
    let requests = Requests::Shared(vec![Prepared { workload, traffic }]);
    let registry = Arc::new(Registry::builtin());
    let evaluator = ReplayEvaluator::new(requests, registry, None, Arc::new(AtomicBool::new(false)))?;
    let evaluate = |index: u64| -> Result<Option<Vec<f64>>, Failure> {
        let Ok(unrolled) = branch.unroll(&branch.space.point(index)) else { return Ok(None) };
        let metrics = match evaluator.evaluate(&unrolled.scenario, &Bar::default()) {
            Evaluation::Measured(metrics) => metrics,
            Evaluation::Infeasible(_) => return Ok(None),
            other => return Err(format!("{other:?}").into()),
        };
        if metric(&metrics, "attainment").is_some_and(|attainment| attainment < minimum) {
            return Ok(None);
        }
        let values = objectives.iter().map(|&target| Ok(score(target, objective_value(target, &metrics)?)));
        Ok(Some(values.collect::<Result<_, &str>>()?))
    };
    (0..branch.space.size()).map(evaluate).collect()
}

fn compare(name: &str, table: &Table, seeds: u64) {
    let mut regrets: Vec<Vec<[f64; 3]>> = Vec::new();
    for (place, sampler) in SAMPLERS.iter().enumerate() {
        let runs: Vec<([f64; 3], f64)> = (1..=seeds).map(|seed| search(table, sampler, seed)).collect();
        let mut costs: Vec<f64> = runs.iter().map(|(_, cost)| *cost).collect();
        costs.sort_by(f64::total_cmp);
        let cost = costs[(costs.len() * 95).div_ceil(100) - 1];
        regrets.push(runs.into_iter().map(|(regret, _)| regret).collect());
        let mean =
            |checkpoint: usize| regrets[place].iter().map(|run| run[checkpoint]).sum::<f64>() / seeds as f64;
        let sign = |checkpoint: usize| {
            let pairs = regrets[0].iter().zip(&regrets[place]);
            let (mut better, mut worse) = (0, 0);
            for (ours, theirs) in pairs {
                better += u32::from(ours[checkpoint] < theirs[checkpoint] - 1e-12);
                worse += u32::from(ours[checkpoint] > theirs[checkpoint] + 1e-12);
            }
            format!("{better}:{worse} (p {:.3})", sign_test(better, worse))
        };
        let signs = if place == 0 { String::new() } else { format!("{}, {}, {}", sign(0), sign(1), sign(2)) };
        println!(
            "| {name} | {} | {sampler} | {:.4} | {:.4} | {:.4} | {cost:.1} | {signs} |",
            table.rows.len(),
            mean(0),
            mean(1),
            mean(2)
        );
    }
}

/// How likely at least so many wins are if both were equally good.
fn sign_test(better: u32, worse: u32) -> f64 {
    let trials = better + worse;
    let choose = |of: u32| (0..of).fold(1.0, |ways, k| ways * f64::from(trials - k) / f64::from(k + 1));
    (better..=trials).map(choose).sum::<f64>() / 2_f64.powi(trials as i32)
}

/// Milliseconds that this thread has computed for, or since the start where the system does not say.
fn computed_ms(start: Instant) -> f64 {
    let nanoseconds = std::fs::read_to_string("/proc/thread-self/schedstat")
        .ok()
        .and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
    nanoseconds.map_or(start.elapsed().as_secs_f64() * 1e3, |ns| ns / 1e6)
}

/// The regret after 25, 50 and 100 points, and the milliseconds that the last batch took to be suggested.
fn search(table: &Table, name: &str, seed: u64) -> ([f64; 3], f64) {
    let mut sampler = table.branch.sampler(&PolicyConfig::named(name), seed).expect("the sampler exists");
    let (mut found, mut under_way): (Vec<&[f64]>, Vec<Point>) = (Vec::new(), Vec::new());
    let (mut tried, mut cost, start) = (0, 0.0, Instant::now());
    let mut regrets = [0.0; 3];
    for (regret, checkpoint) in regrets.iter_mut().zip(CHECKPOINTS) {
        while tried < checkpoint {
            let before = computed_ms(start);
            let points = sampler.suggest(CHUNK.min(checkpoint - tried));
            if points.is_empty() {
                break;
            }
            cost = computed_ms(start) - before;
            tried += points.len();
            // Half a batch is still under way when the next half is suggested.
            let observed = std::mem::replace(&mut under_way, points.clone());
            found.extend(points.iter().filter_map(|point| table.rows[point].as_deref()));
            for point in &observed {
                match &table.rows[point] {
                    Some(figures) => {
                        sampler.observe(point, &Observation::Measured(figures));
                    }
                    None => sampler.observe(point, &Observation::Infeasible("not feasible")),
                }
            }
        }
        *regret = table.scale.regret(&found);
    }
    (regrets, cost)
}

impl Scale {
    fn regret(&self, found: &[&[f64]]) -> f64 {
        match self {
            Self::Single { median, best } => {
                let reached = found.iter().map(|row| row[0]).fold(*median - (best - median), f64::max);
                (best - reached) / (best - median).max(f64::MIN_POSITIVE)
            }
            Self::Frontier { worst, best, volume: whole } => 1.0 - volume(found, worst, best) / whole,
        }
    }
}

/// The area between the worst of both objectives and the frontier, both scaled to 1.
fn volume(rows: &[&[f64]], worst: &[f64], best: &[f64]) -> f64 {
    let share = |row: &[f64], place: usize| (row[place] - worst[place]) / (best[place] - worst[place]);
    let mut scaled: Vec<(f64, f64)> = rows.iter().map(|row| (share(row, 0), share(row, 1))).collect();
    scaled.sort_by(|left, right| right.0.total_cmp(&left.0));
    let (mut area, mut height) = (0.0, 0.0_f64);
    for (width, tall) in scaled {
        area += width * (tall - height).max(0.0);
        height = height.max(tall);
    }
    area
}
