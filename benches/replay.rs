//! What a replay costs, in parts and as a whole: `cargo bench --bench replay`.
//!
//! The last group needs traces that are not part of the repository, in a folder `shared/traces` beside it.

use std::hint::black_box;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use spica::config::scenario::Scenario;
use spica::config::{self, Document};
use spica::registry::Registry;
use spica::serving::{ReplayLimits, Traffic, replay};
use spica::simulation::{Actor, Address, Class, Context, Limits, Protocol, SimDuration, Simulation};
use spica::workload::prefix::PrefixTree;
use spica::workload::{self, Workload};

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A scenario written here, with paths from the root of the repository.
fn scenario(text: &str) -> Scenario {
    match config::load(text, &repository().join("bench.yaml"), &[]) {
        Ok(Document::Scenario(scenario)) => scenario,
        Ok(Document::Search(_)) => panic!("a scenario was expected"),
        Err(problems) => panic!("{problems}"),
    }
}

fn block_size(scenario: &Scenario) -> u32 {
    let deployment = &scenario.deployment;
    deployment.agg.as_ref().or(deployment.prefill.as_ref()).expect("a pool").engine.block_size
}

fn requests(scenario: &Scenario) -> Arc<Workload> {
    use spica::config::scenario::WorkloadSource;
    let mut trace = match &scenario.workload.source {
        WorkloadSource::Trace(trace) => {
            Some(std::io::BufReader::new(std::fs::File::open(&trace.path).expect("the trace can be opened")))
        }
        _ => None,
    };
    let reader = trace.as_mut().map(|trace| trace as &mut dyn BufRead);
    let loaded = workload::load(&scenario.workload, reader, block_size(scenario));
    Arc::new(loaded.expect("the workload is valid").workload)
}

/// Replays whose work is counted in `elements`, one sample each time.
fn bench_replay(criterion: &mut Criterion, group: &str, name: &str, scenario: &Scenario, elements: u64) {
    let registry = Registry::builtin();
    let traffic = Traffic::new(requests(scenario), block_size(scenario));
    let limits = ReplayLimits::default();
    let mut group = criterion.benchmark_group(group);
    group.sample_size(10).throughput(Throughput::Elements(elements));
    group.bench_function(name, |bencher| {
        bencher.iter(|| replay(black_box(scenario), &traffic, &registry, &limits).expect("the replay ends"));
    });
    group.finish();
}

/// Messages in flight, each sent on as soon as it arrives.
struct Relay {
    next: Address<u32>,
    delays: u64,
}

struct Relays;

impl Protocol for Relays {
    type Message = u32;
    type Parcel = ();
    type Record = ();
}

impl Actor<Relays> for Relay {
    type Inbox = u32;

    fn receive(&mut self, left: u32, ctx: &mut Context<'_, Relays>) {
        if left > 0 {
            self.delays = self.delays.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let delay = SimDuration::from_ns(1 + (self.delays >> 40));
            ctx.send_at(ctx.now() + delay, Class(0), self.next, left - 1);
        }
    }
}

/// The agenda with a steady number of pending events.
fn agenda(criterion: &mut Criterion) {
    const EVENTS: u32 = 100_000;
    let mut group = criterion.benchmark_group("agenda hold");
    group.sample_size(10).throughput(Throughput::Elements(EVENTS.into()));
    for pending in [16_u32, 256, 1024] {
        let assemble = || {
            let mut simulation = Simulation::<Relays>::new(1, ());
            let addresses: Vec<Address<u32>> =
                (0..pending).map(|relay| simulation.reserve(format!("relay/{relay}"))).collect();
            for (place, &address) in addresses.iter().enumerate() {
                let next = addresses[(place + 1) % addresses.len()];
                simulation.install(address, Relay { next, delays: place as u64 });
                simulation.post(address, EVENTS / pending);
            }
            simulation
        };
        group.bench_function(BenchmarkId::from_parameter(pending), |bencher| {
            let run = |mut simulation: Simulation<Relays>| simulation.run(&Limits::default());
            bencher.iter_batched(assemble, run, BatchSize::LargeInput);
        });
    }
    group.finish();
}

/// Runs of decode passes: 64 requests of one worker that generate 4000 tokens each.
fn decode_passes(criterion: &mut Criterion) {
    let scenario = scenario(
        "deployment: {mode: agg, router: {policy: round_robin}, agg: {workers: 1, timing: {model: polynomial}}}\n\
         workload: {isl: 1000, osl: 4000, concurrency: 64, num_request_ratio: 1}\n",
    );
    bench_replay(criterion, "decode passes", "64 running", &scenario, 4000);
}

/// Decisions of the routers: every request is one token, so that little else happens.
fn router_decisions(criterion: &mut Criterion) {
    const REQUESTS: u64 = 20_000;
    for policy in ["round_robin", "kv_router"] {
        let scenario = scenario(&format!(
            "deployment: {{mode: agg, router: {{policy: {policy}}}, agg: {{workers: 8, timing: {{model: fixed, \
             prefill_ms: 1, decode_ms: 1}}}}}}\n\
             workload: {{isl: 2048, osl: 1, concurrency: 64, num_request_ratio: 312.5, shared_prefix_ratio: 0.5, \
             num_prefix_groups: 50}}\n"
        ));
        bench_replay(criterion, "requests of one token to 8 workers", policy, &scenario, REQUESTS);
    }
}

fn prefix_tree(criterion: &mut Criterion) {
    let scenario = of_trace("scenarios/traces/toolagent.jsonl".as_ref(), 1, "round_robin", 64);
    let workload = requests(&scenario);
    let mut group = criterion.benchmark_group("prefix tree");
    group.sample_size(10).throughput(Throughput::Elements(workload.requests.len() as u64));
    for block_size in [16, 64] {
        group.bench_function(BenchmarkId::new("toolagent, blocks of", block_size), |bencher| {
            bencher.iter(|| PrefixTree::build(black_box(&workload), block_size));
        });
    }
    group.finish();
}

fn of_trace(trace: &Path, workers: u32, policy: &str, block_size: u32) -> Scenario {
    scenario(&format!(
        "deployment:\n  mode: agg\n  router: {{policy: {policy}}}\n  agg: {{workers: {workers}, engine: {{block_size: \
         {block_size}, num_gpu_blocks: {}}}, timing: {{model: polynomial}}}}\nworkload: {{trace_path: '{}'}}\n",
        16384 * 64 / block_size,
        trace.display()
    ))
}

fn bundled_traces(criterion: &mut Criterion) {
    for name in ["conversation", "toolagent", "sine"] {
        let trace = PathBuf::from(format!("scenarios/traces/{name}.jsonl"));
        for policy in ["round_robin", "kv_router"] {
            let scenario = of_trace(&trace, 4, policy, 64);
            let count = requests(&scenario).requests.len() as u64;
            bench_replay(
                criterion,
                "bundled traces, 4 workers",
                &format!("{name} {policy}"),
                &scenario,
                count,
            );
        }
    }
}

/// Ticks of a planner over four workers: an hour with one short request a minute, so that little else happens.
fn planner_ticks(criterion: &mut Criterion) {
    const TICKS: u64 = 707;
    let scenario = scenario(
        "deployment: {mode: agg, planner: {policy: load_180_5, max_gpu_budget: 8}, agg: {workers: 4, timing: {model: \
         polynomial}}}\n\
         workload: {isl: 100, osl: 2, request_rate: 0.01667, num_request_ratio: 3600}\n",
    );
    bench_replay(criterion, "an idle hour, steered", "ticks", &scenario, TICKS);
}

/// An hour of recorded conversations, 12,031 requests, where it is there.
fn recorded_trace(criterion: &mut Criterion) {
    let beside = repository().ancestors().skip(1).take(2).map(|folder| folder.join("shared/traces"));
    let trace =
        beside.map(|folder| folder.join("mooncake_fast25_conversation.jsonl.gz")).find(|path| path.exists());
    let Some(trace) = trace else {
        eprintln!("skipped: there is no ../shared/traces");
        return;
    };
    for (name, workers, policy, block_size) in [
        ("conv_agg4_rr", 4, "round_robin", 64),
        ("conv_agg8_kv", 8, "kv_router", 64),
        ("conv_agg8_rr_b16", 8, "round_robin", 16),
    ] {
        let scenario = of_trace(&trace, workers, policy, block_size);
        bench_replay(criterion, "recorded conversations", name, &scenario, 12_031);
    }
    for (name, deployment) in [
        (
            "conv_disagg_4p4d_kv",
            "mode: disagg, router: {policy: kv_router}, prefill: {workers: 4}, decode: {workers: 4}",
        ),
        (
            "conv_planner_agg_throughput",
            "mode: agg, planner: {policy: planner, optimization_target: throughput, max_gpu_budget: 16, min_endpoint: 1}, \
             agg: {workers: 4}",
        ),
    ] {
        let trace = trace.display();
        let scenario = scenario(&format!(
            "deployment: {{{deployment}}}\nworkload: {{trace_path: '{trace}', trace_block_size: 512}}\n"
        ));
        bench_replay(criterion, "recorded conversations", name, &scenario, 12_031);
    }
}

criterion_group!(
    benches,
    agenda,
    decode_passes,
    router_decisions,
    planner_ticks,
    prefix_tree,
    bundled_traces,
    recorded_trace
);
criterion_main!(benches);
