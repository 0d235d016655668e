//! An engine of one's own in whole replays and searches: the example, and one that breaks off.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::process::{Command, Output};

use serde_json::{Value, json};
use spica::engine::metrics::PassMetrics;
use spica::engine::{
    Cadence, Engine, EngineError, EngineSetup, NewEngine, Output as Told, Passes, Signals, TokenStamps,
};
use spica::registry::Registry;
use spica::report::record::{Counters, Role};
use spica::run::{Replay, RunError, Search};
use spica::simulation::SimTime;
use spica::timing::Chunk;
use spica::workload::RequestId;
use tempfile::TempDir;

use super::bundled::run_in_repository;

/// Runs the example from the root of the repository.
fn example(arguments: &[&str]) -> Output {
    let mut example = Command::new(env!("CARGO"));
    example.args(["run", "--quiet", "--locked", "--example", "custom_engine", "--"]).args(arguments);
    run_in_repository(&mut example)
}

const SCENARIO: &str = "scenarios/custom_engine.yaml";

#[test]
fn what_it_cannot_do_is_refused_by_name() {
    let disagg = "deployment={mode: disagg, prefill: {workers: 1}, decode: {workers: 1, engine: {scheduler: \
                  {policy: static_batching, max_batch: 4}}}}";
    for (change, words) in [
        (
            "deployment.agg.engine.scheduler=static_batchin",
            "deployment.agg.engine.scheduler.policy: unknown scheduler `static_batchin`; known are static_batching, backend; \
             did you mean `static_batching`?",
        ),
        (
            "deployment.agg.engine.scheduler={policy: static_batching, max_batc: 4}",
            "deployment.agg.engine.scheduler.max_batc: unknown field `max_batc`, expected `max_batch` or \
             `return_early`; did you mean `max_batch`?",
        ),
        (
            "deployment.agg.engine.scheduler.max_batch=0",
            "deployment.agg.engine.scheduler.max_batch: 0 requests",
        ),
        ("deployment.agg.engine.scheduler=4", "`4` is not a policy; write its name or `{policy: name, ...}`"),
        (
            disagg,
            "deployment.decode.engine.scheduler.policy: `static_batching` does not serve a pool `decode`, only: agg",
        ),
        (
            "deployment.agg.engine.max_num_seqs=4",
            "deployment.agg.engine.max_num_seqs: has no effect with `scheduler: static_batching`, which does not go by it",
        ),
        (
            "deployment.agg.engine.preemption_mode=fifo",
            "deployment.agg.engine.preemption_mode: has no effect",
        ),
        ("deployment.agg.engine.aic_nextn=2", "deployment.agg.engine.aic_nextn: has no effect"),
    ] {
        let output = example(&["replay", SCENARIO, "--set", change]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout), (Some(2), Vec::new()), "{change}: {stderr}");
        assert!(stderr.contains(words), "{change}: {stderr}");
        assert!(stderr.contains("--set deployment"), "{change}: {stderr}");
    }
    let plain = run_in_repository(Command::new(super::bundled::spica()).args(["check", SCENARIO]));
    let stderr = String::from_utf8(plain.stderr).unwrap();
    assert_eq!(plain.status.code(), Some(2), "{stderr}");
    let words = "custom_engine.yaml:8: deployment.agg.engine.scheduler.policy: unknown scheduler `static_batching`; known are \
                 backend";
    assert!(stderr.contains(words), "{stderr}");
}

#[test]
fn it_serves_with_everything_else_that_there_is() {
    let planner = "deployment.planner={policy: load_180_5, max_gpu_budget: 4}";
    for changes in [
        &["deployment.agg.workers=1"][..],
        &["deployment.agg.dp_size=2", "deployment.agg.engine.scheduler.return_early=true"],
        &["deployment.router=kv_router"],
        &[
            "deployment.router={policy: kv_router, queue_threshold: 1}",
            "deployment.agg.engine.max_num_batched_tokens=99",
        ],
        &[planner, "deployment.agg.engine.max_num_seqs=9"],
        &["max_sim_time_ms=60000"],
        &["workload.trace_sessions=true"],
    ] {
        let folder = TempDir::new().unwrap();
        let run = |name: &str| {
            let (out, timeline) = (folder.path().join(name), folder.path().join(format!("{name}.json")));
            let mut arguments = vec!["replay", SCENARIO, "--quiet", "--output-dir", out.to_str().unwrap()];
            arguments.extend(["--timeline", timeline.to_str().unwrap()]);
            arguments.extend(changes.iter().flat_map(|change| ["--set", change]));
            let output = example(&arguments);
            assert!(output.status.success(), "{changes:?}: {}", String::from_utf8_lossy(&output.stderr));
            let read = |path| std::fs::read_to_string(path).unwrap();
            let report = read(out.join("report.json"));
            let page = folder.path().join("page.html");
            let made = example(&["report", out.to_str().unwrap(), "--output", page.to_str().unwrap()]);
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
            let page = read(page);
            assert!(page.contains("scheduled by static_batching"));
            assert!(page.contains("all tokens of each request came at one instant"));
            (report, read(out.join("requests.jsonl")), read(timeline))
        };
        let first = run("first");
        assert!(first == run("second"), "{changes:?}: the same input gave two outputs");
        let summary = &serde_json::from_str::<Value>(&first.0).unwrap()["summary"];
        let count = |status: &str| summary[format!("{status}_requests")].as_u64().unwrap();
        assert!(count("completed") > 100, "{summary}");
        assert!(first.2.contains("\"chunk\"") && first.2.contains("decode 1"), "chunks and passes are shown");
        if changes.contains(&planner) {
            let scaling = std::fs::read_to_string(folder.path().join("first/scaling.jsonl")).unwrap();
            let rows: Vec<Value> = scaling.lines().map(|row| serde_json::from_str(row).unwrap()).collect();
            let seen = |key: &str| rows.iter().any(|row| row["pools"][0][key].as_u64() > Some(0));
            assert!(seen("decode_requests") && seen("queued_requests"), "{}", rows[0]);
        }
    }
    let explained = example(&["explain", "request", SCENARIO, "request_7"]);
    assert!(explained.status.success(), "{}", String::from_utf8_lossy(&explained.stderr));
    let explained = String::from_utf8(explained.stdout).unwrap();
    assert!(explained.contains("\n  prefill and decode "), "{explained}");
    assert!(!explained.contains("\n  prefill  "), "{explained}");
    let said = String::from_utf8(example(&["replay", SCENARIO]).stderr).unwrap();
    assert!(said.contains("note: all tokens of each request came at one instant, so that TPOT"), "{said}");
}

/// Breaks off in its own way.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Breaks {
    how: String,
}

struct BrokenRank {
    how: String,
    waiting: Vec<RequestId>,
    passes: Passes,
}

impl NewEngine for Breaks {
    fn roles(&self) -> &[Role] {
        &[Role::Agg, Role::Prefill, Role::Decode]
    }

    fn uses(&self) -> &[&'static str] {
        if self.how == "misspells" { &["max_num_sequences"] } else { &["max_num_seqs", "preemption_mode"] }
    }

    fn build(&self, _: EngineSetup<'_>) -> Box<dyn Engine> {
        Box::new(BrokenRank { how: self.how.clone(), waiting: Vec::new(), passes: Passes::default() })
    }
}

impl Engine for BrokenRank {
    fn enqueue(&mut self, request: RequestId) -> bool {
        self.waiting.push(request);
        true
    }

    fn start_pass(
        &mut self,
        now: SimTime,
        _: Cadence,
        _: &mut Signals,
    ) -> Result<Option<SimTime>, EngineError> {
        match self.how.as_str() {
            "errs" => Err(EngineError::Stuck("as asked".into())),
            "panics" => panic!("in its own way"),
            "repeats" => {
                self.passes.begin();
                Ok(Some(now))
            }
            "goes back" => Ok(Some(SimTime::from_ns(now.as_ns() - 1))),
            _ => Ok(None),
        }
    }

    fn complete_pass(&mut self, signals: &mut Signals) {
        self.passes.complete();
        let rejected = self.waiting.iter().map(|&request| Told::Rejected(request, TokenStamps::default()));
        signals.outputs.extend(rejected);
    }

    fn passes(&self) -> &Passes {
        &self.passes
    }

    fn passes_mut(&mut self) -> &mut Passes {
        &mut self.passes
    }

    fn has_work(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn unfinished(&self) -> Vec<(RequestId, TokenStamps)> {
        self.waiting.iter().map(|&request| (request, TokenStamps::default())).collect()
    }

    fn blocks_held(&self) -> u32 {
        0
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }

    fn pass_metrics(&self, _: usize) -> PassMetrics {
        PassMetrics::default()
    }

    fn pass_chunks(&self, _: &mut Vec<(RequestId, Chunk)>) {}
}

#[test]
fn an_engine_that_breaks_off_ends_the_run_with_its_reason() {
    let run = |how: &str, changes: &[&str]| {
        let mut overrides = vec![
            format!("deployment.agg.engine.scheduler={{policy: breaks, how: {how}}}"),
            "deployment.agg.engine.max_num_seqs=7".into(),
            "workload={isl: 10, osl: 2, request_rate: 1, num_request_ratio: 4}".into(),
        ];
        overrides.extend(changes.iter().map(ToString::to_string));
        let overrides: Vec<_> = overrides.iter().map(|text| text.parse().unwrap()).collect();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios/custom_engine.yaml");
        let registry = Registry::builtin().with_engine::<Breaks>("breaks");
        Replay::from_file(path, &overrides).unwrap().with_registry(registry).run().unwrap_err().to_string()
    };
    let stuck = run("errs", &[]);
    assert!(
        stuck.contains("worker/0 at ") && stuck.contains("no request can be scheduled: as asked"),
        "{stuck}"
    );
    let back = run(
        "goes back",
        &["workload={requests: [{id: a, arrival_ms: 5, input_length: 3, output_length: 1}]}"],
    );
    assert!(back.contains("worker/0 at 5.000000 ms: a pass that starts now ends at "), "{back}");
    let again = run("repeats", &[]);
    assert!(
        again.contains("worker/0 at ") && again.contains("request 0 has ended already, and ends again"),
        "{again}"
    );
    let idle = run("sleeps", &[]);
    assert!(
        idle.contains("came to a halt") && idle.contains("worker/1: 2 requests have not ended"),
        "{idle}"
    );
    let misspelt = run("misspells", &[]);
    assert!(misspelt.contains("goes by `max_num_sequences`, which is no option of `engine:`"), "{misspelt}");
    let pools = "deployment={mode: disagg, prefill: {engine: {scheduler: {policy: breaks, how: sleeps}}}, decode: {}}";
    let halt = run("sleeps", &[pools]);
    assert!(halt.contains("hands no prompts over") || halt.contains("came to a halt"), "{halt}");
    let refused = Replay::from_file(
        concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios/custom_engine.yaml"),
        &["workload={isl: 10, osl: 2, request_rate: 1, num_request_ratio: 4}".parse().unwrap()],
    );
    assert!(matches!(refused.unwrap().run(), Err(RunError::Input(text)) if text.contains("static_batching")));
}

const SEARCH: &str = "scenarios/router_comparison.yaml";

#[test]
fn a_search_tries_schedulers() {
    let folder = TempDir::new().unwrap();
    let schedulers = "search_space.scheduler=[backend, {policy: static_batching, max_batch: 4}]";
    let search = |changes: &[&str]| {
        let mut arguments =
            vec!["search", SEARCH, "--quiet", "--output-dir", folder.path().to_str().unwrap()];
        for change in ["search_space.router_mode=[round_robin]", "search_space.agg_max_num_seqs=[256, 512]"] {
            arguments.extend(["--set", change]);
        }
        arguments.extend(changes.iter().flat_map(|change| ["--set", change]));
        example(&arguments)
    };
    let output = search(&[schedulers]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found = std::fs::read_to_string(folder.path().join("candidates.json")).unwrap();
    let found: Value = serde_json::from_str(&found).unwrap();
    // The scheduler does not go by the limit, so two of its points are one.
    let candidates = found["candidates"].as_array().unwrap();
    assert_eq!((candidates.len(), &found["tally"]["cache_hit"]), (3, &json!(1)), "{}", found["tally"]);
    let (own, others): (Vec<&Value>, Vec<&Value>) =
        candidates.iter().partition(|one| one["config"]["scheduler"] == "backend");
    assert_eq!((own.len(), others.len()), (2, 1));
    assert_eq!(others[0]["config"]["scheduler"], json!({"policy": "static_batching", "max_batch": 4}));
    assert!(others[0]["config"].get("agg_max_num_seqs").is_none());
    let page = || {
        let page = example(&["report", folder.path().to_str().unwrap()]);
        let page = String::from_utf8(page.stdout).unwrap();
        assert!(page.contains("Router, planner and scheduler of the best candidate"));
        page
    };
    assert_eq!(candidates[0]["config"]["scheduler"], "backend");
    assert!(page().contains("<td>scheduler</td><td>policy</td><td>backend</td>"));
    assert!(own.iter().all(|one| one["scenario"]["deployment"]["agg"]["engine"].get("scheduler").is_none()));
    let per_user = search(&[schedulers, "goal={target: throughput_per_user}"]);
    assert!(per_user.status.success(), "{}", String::from_utf8_lossy(&per_user.stderr));
    let scored = std::fs::read_to_string(folder.path().join("candidates.json")).unwrap();
    let scored: Value = serde_json::from_str(&scored).unwrap();
    assert_eq!(
        scored["rejected"][0]["reason"],
        "replay report lacks mean_output_token_throughput_per_user: all tokens of each request came at one instant, so that \
         TPOT and ITL are 0 and no user has tokens per second"
    );
    // The mode that it does not serve is left out, or goes without it.
    let both = ["search_space.deployment_mode=[agg, disagg]", "search_space.parallel_configs=[]"];
    let own = "search_space.scheduler=[{policy: static_batching, max_batch: 4}]";
    for (scheduler, modes, words) in [
        (
            own,
            &["agg"][..],
            "no disaggregated deployment with vllm: `static_batching` does not serve a pool `prefill`, only: agg",
        ),
        (
            schedulers,
            &["agg", "disagg"],
            "search_space.scheduler[1]: `static_batching` does not serve a pool `prefill`, only: agg: no disaggregated \
             deployment has it",
        ),
    ] {
        let output =
            search(&[&both[..], &[scheduler, "sweep={max_rounds: 1, candidates_per_round: 4}"]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let found = std::fs::read_to_string(folder.path().join("candidates.json")).unwrap();
        let found: Value = serde_json::from_str(&found).unwrap();
        let all = found["candidates"].as_array().unwrap().iter().chain(found["rejected"].as_array().unwrap());
        let configs: Vec<&Value> = all.map(|one| &one["config"]).collect();
        let mode = |config: &&Value, mode: &str| config["deployment_mode"] == mode;
        for (mode_name, is_there) in ["agg", "disagg"].map(|name| (name, modes.contains(&name))) {
            assert_eq!(configs.iter().any(|config| mode(config, mode_name)), is_there, "{mode_name}");
        }
        let disaggregated = configs.iter().filter(|config| mode(config, "disagg"));
        assert!(disaggregated.into_iter().all(|config| config["scheduler"] == "backend"));
        if scheduler == own {
            assert!(page().contains("<td>scheduler</td><td>policy</td><td>static_batching</td>"));
            assert!(page().contains("<td>scheduler</td><td>max_batch</td><td>4</td>"));
        }
        let mut check = vec!["check", SEARCH];
        check.extend(both.iter().chain([&scheduler]).flat_map(|change| ["--set", *change]));
        let said = String::from_utf8(example(&check).stderr).unwrap();
        assert!(said.contains(words), "{said}");
    }
    let best = folder.path().join("best.yaml");
    assert!(example(&["replay", best.to_str().unwrap(), "--quiet"]).status.success());
    for (changes, words) in [
        (
            vec!["search_space.scheduler=[static_batch]"],
            "search_space.scheduler[0].policy: unknown scheduler",
        ),
        (
            vec!["search_space.scheduler=[backend, {policy: static_batching, max_batch: 0}]"],
            "search_space.scheduler[1].max_batch: 0 requests are no batch",
        ),
        (
            vec!["search_space.scheduler=[{policy: backend, max_batch: 4}]"],
            "the backend's own scheduler takes its options from the keys around, not here: max_batch",
        ),
        (
            vec![schedulers, "search_space.agg_enable_prefix_caching=false"],
            "search_space.scheduler: {\"policy\":\"static_batching\",\"max_batch\":4}: has no effect with `scheduler: \
             static_batching`",
        ),
        (
            vec![
                schedulers,
                "search_space.deployment_mode=[disagg]",
                "search_space.parallel_configs=[{prefill: {tp: 1}, decode: {tp: 1}}]",
            ],
            "search_space.scheduler[1].policy: `static_batching` does not serve a pool `prefill`, only: agg",
        ),
    ] {
        let output = search(&changes);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{changes:?}: {stderr}");
        assert!(stderr.contains(words), "{changes:?}: {stderr}");
    }
}

#[test]
fn a_trial_whose_engine_breaks_off_fails_alone() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios/router_comparison.yaml");
    let overrides = [
        "search_space.router_mode=[round_robin]",
        "search_space.scheduler=[backend, {policy: breaks, how: errs}, {policy: breaks, how: panics}]",
    ];
    let overrides: Vec<_> = overrides.iter().map(|text| text.parse().unwrap()).collect();
    let registry = Registry::builtin().with_engine::<Breaks>("breaks");
    let answer = Search::from_file(path, &overrides).unwrap().with_registry(registry).run().unwrap();
    let reasons: Vec<&str> = answer.rejected.iter().map(|one| one.reason.as_str()).collect();
    assert_eq!((answer.candidates.len(), reasons.len()), (1, 2), "{reasons:?}");
    let is_there = |words: &str| reasons.iter().any(|reason| reason.contains(words));
    assert!(
        is_there("no request can be scheduled: as asked") && is_there("internal error: in its own way"),
        "{reasons:?}"
    );
}
