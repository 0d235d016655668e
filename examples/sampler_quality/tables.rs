//! The spaces that are searched, and what every point of them is worth.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};
use spica::config::scenario::WorkloadSource;
use spica::config::search::OptimizationTarget;
use spica::config::{self, Document};
use spica::model::Catalogue;
use spica::registry::Registry;
use spica::search::{
    Bar, Branch, Evaluation, Evaluator, Observation, Plan, Point, Prepared, ReplayEvaluator, Requests,
    metric, objective_value, score,
};
use spica::serving::Traffic;

use crate::Failure;
use crate::scale::Scale;

/// A space, its workload and its goal.
pub(crate) struct Definition {
    pub(crate) name: &'static str,
    space: &'static str,
    workload: &'static str,
    goal: &'static str,
}

/// What the bundled traces and generated loads are searched for. Nearly all tables have more than three thousand points.
pub(crate) const DEFINITIONS: [Definition; 18] = [
    Definition {
        name: "router_e2e",
        space: "parallel_configs: [{tp: 1, replicas: 6}], num_gpu_blocks: 4096, backend: [vllm, sglang], \
                agg_max_num_seqs: [256, 512], router_mode: [kv_router, round_robin, least_loaded, power_of_two, \
                {policy: kv_router, queue_threshold: 0.5}, {policy: kv_router, queue_threshold: 2.0}, \
                {policy: kv_router, kv_event_lag_ms: 200}]",
        workload: "trace_path: scenarios/traces/toolagent.jsonl",
        goal: "target: e2e_latency",
    },
    Definition {
        name: "router_goodput",
        space: "parallel_configs: [{tp: 2, replicas: 4}], num_gpu_blocks: 6144, backend: [vllm, sglang, trtllm], \
                agg_max_num_seqs: [256], router_mode: [kv_router, round_robin, least_loaded, power_of_two, \
                {policy: kv_router, queue_threshold: 0.5}, {policy: kv_router, queue_threshold: 2.0}, \
                {policy: kv_router, kv_event_lag_ms: 200}]",
        workload: "trace_path: scenarios/traces/conversation.jsonl, arrival_speedup_ratio: 2.0",
        goal: "target: goodput_per_gpu, sla: {ttft_ms: 1500, itl_ms: 40}",
    },
    Definition {
        name: "router_attainment",
        space: "parallel_configs: [{tp: 2, replicas: 4}], num_gpu_blocks: 6144, backend: [vllm, sglang, trtllm], \
                agg_max_num_seqs: [256], router_mode: [kv_router, round_robin, least_loaded, power_of_two, \
                {policy: kv_router, queue_threshold: 0.5}, {policy: kv_router, queue_threshold: 2.0}, \
                {policy: kv_router, kv_event_lag_ms: 200}]",
        workload: "trace_path: scenarios/traces/conversation.jsonl, arrival_speedup_ratio: 2.0",
        goal: "target: goodput_per_gpu, sla: {ttft_ms: 1500, itl_ms: 40}, min_attainment: 0.85",
    },
    Definition {
        name: "router_families",
        space: "parallel_configs: [{tp: 1, replicas: 8}], num_gpu_blocks: 3072, backend: [vllm, sglang, trtllm], \
                agg_max_num_seqs: [256, 1024], agg_max_num_batched_tokens: [8192, 32768], router_mode: [kv_router, \
                round_robin, least_loaded, power_of_two, session_affinity, {policy: kv_router, queue_threshold: 0.5}, \
                {policy: kv_router, queue_threshold: 2.0}, {policy: kv_router, kv_event_lag_ms: 200}]",
        workload: "trace_path: scenarios/traces/conversation.jsonl, arrival_speedup_ratio: 3.0",
        goal: "target: e2e_latency",
    },
    Definition {
        name: "closed_loop",
        space: "parallel_configs: [{tp: 1, replicas: 4}], num_gpu_blocks: 2048, backend: [vllm, sglang], router_mode: \
                [kv_router, {policy: kv_router, queue_threshold: 0.5}, {policy: kv_router, queue_threshold: 2.0}, \
                {policy: kv_router, kv_event_lag_ms: 200}]",
        workload: "isl: 3000, osl: 150, concurrency: 96, num_request_ratio: 4, shared_prefix_ratio: 0.7, \
                   num_prefix_groups: 40, turns_per_session: 3",
        goal: "target: throughput",
    },
    Definition {
        name: "closed_loop_layouts",
        space: "gpu_budget: 16, num_gpu_blocks: 1024, router_mode: [kv_router, round_robin], overlap_score_credit: \
                [0.0, 1.0], prefill_load_scale: [0.0, 1.0, 8.0], router_temperature: [0.0, 0.5]",
        workload: "isl: 3000, osl: 150, concurrency: 96, num_request_ratio: 4, shared_prefix_ratio: 0.7, \
                   num_prefix_groups: 12, turns_per_session: 2",
        goal: "target: goodput_per_gpu, sla: {ttft_ms: 3000, itl_ms: 40}",
    },
    Definition {
        name: "agg_layouts",
        space: "gpu_budget: 16, num_gpu_blocks: 3072, router_mode: [kv_router, round_robin], overlap_score_credit: \
                [0.0, 1.0], prefill_load_scale: [0.0, 1.0, 8.0], router_temperature: [0.0, 0.5]",
        workload: "trace_path: scenarios/traces/conversation.jsonl, arrival_speedup_ratio: 2.0",
        goal: "target: goodput_per_gpu, sla: {ttft_ms: 1500, itl_ms: 40}",
    },
    Definition {
        name: "agg_attainment",
        space: "gpu_budget: 12, num_gpu_blocks: 2048, router_mode: [kv_router, round_robin], overlap_score_credit: \
                [0.0, 0.5, 1.0], prefill_load_scale: [0.0, 1.0, 4.0, 16.0], router_temperature: [0.0, 0.5]",
        workload: "trace_path: scenarios/traces/toolagent.jsonl",
        goal: "target: goodput_per_gpu, sla: {ttft_ms: 1000, itl_ms: 35}, min_attainment: 0.9",
    },
    Definition {
        name: "disagg_layouts",
        space: "deployment_mode: [disagg], gpu_budget: 16, min_gpu_budget: 14, num_gpu_blocks: 3072, router_mode: \
                [kv_router, round_robin], overlap_score_credit: [0.5, 1.0], prefill_load_scale: [0.0, 1.0, 8.0], \
                router_temperature: [0.0, 0.5], prefill_max_num_seqs: [1, 4, 16, 256], \
                prefill_max_num_batched_tokens: [8192], decode_max_num_seqs: [256]",
        workload: "trace_path: scenarios/traces/toolagent.jsonl, arrival_speedup_ratio: 1.5",
        goal: "target: goodput_per_gpu, sla: {ttft_ms: 1200, itl_ms: 30}",
    },
    Definition {
        name: "disagg_e2e",
        space: "deployment_mode: [disagg], gpu_budget: 16, min_gpu_budget: 8, num_gpu_blocks: 3072, router_mode: \
                [kv_router, round_robin], overlap_score_credit: [0.5, 1.0], prefill_load_scale: [1.0], \
                router_temperature: [0.0, 0.5], prefill_max_num_seqs: [1, 4, 16, 256], prefill_max_num_batched_tokens: \
                [8192], decode_max_num_seqs: [256]",
        workload: "trace_path: scenarios/traces/conversation.jsonl",
        goal: "target: e2e_latency",
    },
    Definition {
        name: "planner_layouts",
        space: "gpu_budget: 16, num_gpu_blocks: 2048, router_mode: [kv_router], overlap_score_credit: [1.0], \
                prefill_load_scale: [1.0], router_temperature: [0.0], startup_time: 10, planner_scaling_policy: \
                [disabled, load_180_5, load_180_10, hybrid_180_5, {enable_throughput_scaling: true, enable_load_scaling: \
                false, throughput_adjustment_interval_seconds: 30, load_adjustment_interval_seconds: null}, \
                {enable_throughput_scaling: true, enable_load_scaling: false, throughput_adjustment_interval_seconds: \
                60, load_adjustment_interval_seconds: null}, {enable_throughput_scaling: true, enable_load_scaling: \
                true, throughput_adjustment_interval_seconds: 30, load_adjustment_interval_seconds: 5}, \
                {enable_throughput_scaling: true, enable_load_scaling: true, throughput_adjustment_interval_seconds: 60, \
                load_adjustment_interval_seconds: 20}], planner_fpm_sampling: [small, default, large, fine], \
                planner_load_sensitivity: [aggressive, default, conservative, {load_scaling_down_sensitivity: 50, \
                load_min_observations: 3}], agg_max_num_batched_tokens: [8192, 32768], agg_max_num_seqs: [256]",
        workload: "trace_path: scenarios/traces/sine.jsonl, arrival_speedup_ratio: 3.0",
        goal: "target: goodput_per_gpu, sla: {ttft_ms: 1500, itl_ms: 35}",
    },
    Definition {
        name: "planner_knobs",
        space: "parallel_configs: [{tp: 1, replicas: 6}, {tp: 1, replicas: 8}, {tp: 2, replicas: 3}, {tp: 2, replicas: \
                4}, {tp: 4, replicas: 2}], gpu_budget: 16, num_gpu_blocks: 4096, backend: [vllm, sglang], router_mode: \
                [kv_router, least_loaded], overlap_score_credit: [1.0], prefill_load_scale: [0.0, 8.0], \
                router_temperature: [0.0], startup_time: 5, planner_scaling_policy: [{enable_throughput_scaling: false, \
                enable_load_scaling: true, throughput_adjustment_interval_seconds: null, \
                load_adjustment_interval_seconds: 5}, {enable_throughput_scaling: false, enable_load_scaling: true, \
                throughput_adjustment_interval_seconds: null, load_adjustment_interval_seconds: 10}, \
                {enable_throughput_scaling: false, enable_load_scaling: true, throughput_adjustment_interval_seconds: \
                null, load_adjustment_interval_seconds: 20}, {enable_throughput_scaling: true, enable_load_scaling: \
                false, throughput_adjustment_interval_seconds: 30, load_adjustment_interval_seconds: null}, \
                {enable_throughput_scaling: true, enable_load_scaling: false, throughput_adjustment_interval_seconds: \
                60, load_adjustment_interval_seconds: null}, {enable_throughput_scaling: true, enable_load_scaling: \
                true, throughput_adjustment_interval_seconds: 30, load_adjustment_interval_seconds: 5}, \
                {enable_throughput_scaling: true, enable_load_scaling: true, throughput_adjustment_interval_seconds: 30, \
                load_adjustment_interval_seconds: 10}, {enable_throughput_scaling: true, enable_load_scaling: true, \
                throughput_adjustment_interval_seconds: 60, load_adjustment_interval_seconds: 5}, \
                {enable_throughput_scaling: true, enable_load_scaling: true, throughput_adjustment_interval_seconds: 60, \
                load_adjustment_interval_seconds: 20}], planner_fpm_sampling: [small, default, large, fine], \
                planner_load_sensitivity: [aggressive, default, conservative, {load_scaling_down_sensitivity: 50, \
                load_min_observations: 3}, {load_scaling_down_sensitivity: 20, load_min_observations: 10}], \
                agg_max_num_batched_tokens: [8192], agg_max_num_seqs: [256]",
        workload: "trace_path: scenarios/traces/conversation.jsonl",
        goal: "target: goodput_per_gpu, sla: {ttft_ms: 1500, itl_ms: 30}",
    },
    Definition {
        name: "pareto_disagg",
        space: "deployment_mode: [disagg], gpu_budget: 16, num_gpu_blocks: 3072, router_mode: [kv_router, round_robin], \
                overlap_score_credit: [1.0], prefill_load_scale: [0.0, 8.0], router_temperature: [0.0], \
                prefill_max_num_seqs: [1, 16, 256], prefill_max_num_batched_tokens: [8192, 32768], \
                decode_max_num_seqs: [256]",
        workload: "trace_path: scenarios/traces/conversation.jsonl",
        goal: "target: pareto",
    },
    Definition {
        name: "pareto_routers",
        space: "parallel_configs: [{tp: 1, replicas: 6}], num_gpu_blocks: 4096, backend: [vllm, sglang], \
                agg_max_num_seqs: [256, 512], router_mode: [kv_router, round_robin, least_loaded, power_of_two, \
                {policy: kv_router, queue_threshold: 0.5}, {policy: kv_router, queue_threshold: 2.0}, \
                {policy: kv_router, kv_event_lag_ms: 200}]",
        workload: "trace_path: scenarios/traces/toolagent.jsonl",
        goal: "target: pareto, pareto_objectives: [e2e_latency, throughput_per_user]",
    },
    Definition {
        name: "pareto_layouts",
        space: "gpu_budget: 16, num_gpu_blocks: 3072, router_mode: [kv_router, round_robin], overlap_score_credit: \
                [0.0, 1.0], prefill_load_scale: [0.0, 1.0, 8.0], router_temperature: [0.0, 0.5]",
        workload: "trace_path: scenarios/traces/conversation.jsonl, arrival_speedup_ratio: 2.0",
        goal: "target: pareto",
    },
    Definition {
        name: "agg_e2e",
        space: "gpu_budget: 12, num_gpu_blocks: 3072, backend: [vllm, sglang], router_mode: [kv_router, least_loaded], \
                overlap_score_credit: [0.0, 1.0], prefill_load_scale: [0.0, 1.0, 8.0], router_temperature: [0.0, 0.5], \
                agg_max_num_batched_tokens: [8192], agg_max_num_seqs: [256, 512]",
        workload: "trace_path: scenarios/traces/toolagent.jsonl, arrival_speedup_ratio: 1.5",
        goal: "target: e2e_latency",
    },
    Definition {
        name: "closed_loop_goodput",
        space: "parallel_configs: [{tp: 2, replicas: 5}], num_gpu_blocks: 3072, backend: [vllm, trtllm], router_mode: \
                [kv_router, least_loaded, {policy: kv_router, queue_threshold: 1.0}, {policy: kv_router, \
                kv_event_lag_ms: 100}], agg_max_num_seqs: [256, 512]",
        workload: "isl: 4000, osl: 200, concurrency: 120, num_request_ratio: 4, shared_prefix_ratio: 0.6, \
                   num_prefix_groups: 30, turns_per_session: 3",
        goal: "target: goodput_per_gpu, sla: {ttft_ms: 1500, itl_ms: 40}",
    },
    Definition {
        name: "pareto_closed_loop",
        space: "gpu_budget: 12, num_gpu_blocks: 2048, router_mode: [kv_router, round_robin], overlap_score_credit: \
                [0.0, 1.0], prefill_load_scale: [0.0, 1.0, 8.0], router_temperature: [0.0, 0.5]",
        workload: "isl: 3000, osl: 150, concurrency: 64, num_request_ratio: 4, shared_prefix_ratio: 0.7, \
                   num_prefix_groups: 20, turns_per_session: 2",
        goal: "target: pareto",
    },
];

/// A space of which everything is known.
pub(crate) struct Table {
    pub(crate) branch: Branch,
    pub(crate) rows: BTreeMap<Point, Row>,
    pub(crate) scale: Scale,
}

/// What a replay says of a point.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The objectives, signed so that more is better; `None` is infeasible.
    pub(crate) figures: Option<Vec<f64>>,
    /// By how much the point clears the goal's bar, if there is one.
    margin: Option<f64>,
}

impl Row {
    pub(crate) fn observation(&self) -> Observation<'_> {
        match &self.figures {
            Some(figures) => Observation::Measured { figures, margin: self.margin },
            None => Observation::Infeasible { reason: "not feasible", margin: self.margin },
        }
    }
}

impl Definition {
    fn configuration(&self) -> String {
        let planner = if self.space.contains("planner_scaling_policy") {
            ""
        } else {
            "planner_scaling_policy: [disabled], "
        };
        let mode = if self.space.contains("deployment_mode") { "" } else { "deployment_mode: [agg], " };
        format!(
            "search_space: {{model_name: Qwen/Qwen3-32B, hardware_sku: h200_sxm, {mode}timing: {{model: polynomial}}, \
             {planner}{}}}\nworkload: {{{}}}\ngoal: {{{}}}\n",
            self.space, self.workload, self.goal
        )
    }

    /// Everything about the search but how it is run.
    pub(crate) fn plan(&self) -> Result<Plan, Failure> {
        let text = self.configuration();
        let Document::Search(config) = config::load(&text, Path::new("table.yaml"), &[])? else {
            return Err("not a search".into());
        };
        Plan::new(config, &Arc::new(Catalogue::bundled())).map_err(|refusals| format!("{refusals:?}").into())
    }

    /// Replays every point, unless the cache folder holds the results already.
    pub(crate) fn table(&self, cache: Option<&Path>) -> Result<Table, Failure> {
        let plan = self.plan()?;
        let config = &plan.config;
        let objectives = match config.goal.target {
            OptimizationTarget::Pareto => config.goal.pareto_objectives.clone(),
            target => vec![target],
        };
        let bar = Bar { min_attainment: config.goal.min_attainment, ..Bar::default() };
        let branch = plan.branches[0].clone();
        let file: Option<PathBuf> = cache.map(|folder| folder.join(self.name));
        let rows: Vec<Row> = match file.as_ref().and_then(|path| std::fs::read(path).ok()) {
            Some(bytes) => serde_json::from_slice(&bytes)?,
            None => replay_all(&plan, &branch, &objectives, &bar)?,
        };
        if let Some(path) = file {
            std::fs::create_dir_all(path.parent().ok_or("a cache needs a folder")?)?;
            std::fs::write(path, serde_json::to_vec(&rows)?)?;
        }
        let feasible: Vec<&[f64]> = rows.iter().filter_map(|row| row.figures.as_deref()).collect();
        let scale = Scale::new(&feasible);
        let points = (0..branch.space.size()).map(|index| branch.space.point(index));
        let rows = points.zip(rows).collect();
        Ok(Table { branch, rows, scale })
    }
}

/// What replays the points of a plan.
pub(crate) fn evaluator(plan: &Plan) -> Result<ReplayEvaluator, Failure> {
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
    Ok(ReplayEvaluator::new(requests, registry, None, Arc::new(AtomicBool::new(false)))?)
}

fn replay_all(
    plan: &Plan,
    branch: &Branch,
    objectives: &[OptimizationTarget],
    bar: &Bar,
) -> Result<Vec<Row>, Failure> {
    let evaluator = evaluator(plan)?;
    let over = |attainment: f64| bar.min_attainment.map(|minimum| attainment - minimum);
    let evaluate = |index: u64| -> Result<Row, Failure> {
        let Ok(unrolled) = branch.unroll(&branch.space.point(index)) else {
            return Ok(Row { figures: None, margin: None });
        };
        let metrics = match evaluator.evaluate(&unrolled.scenario, bar) {
            Evaluation::Measured(metrics) => metrics,
            Evaluation::Infeasible(_) => return Ok(Row { figures: None, margin: None }),
            Evaluation::BelowBar { attainment_so_far, .. } => {
                return Ok(Row { figures: None, margin: over(attainment_so_far) });
            }
            other => return Err(format!("{other:?}").into()),
        };
        let margin = metric(&metrics, "attainment").and_then(over);
        if margin.is_some_and(|margin| margin < 0.0) {
            return Ok(Row { figures: None, margin });
        }
        let values = objectives.iter().map(|&target| Ok(score(target, objective_value(target, &metrics)?)));
        Ok(Row { figures: Some(values.collect::<Result<_, &str>>()?), margin })
    };
    (0..branch.space.size()).map(evaluate).collect()
}
