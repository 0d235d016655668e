//! What a tick of a planner costs: `cargo bench --bench planner`.
//!
//! A fleet under light traffic for so long that nearly all the time goes into the planner's ticks: reading the passes of the
//! workers, fitting, deciding, and noting what was decided.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use spica::run::Replay;

/// Seconds of traffic.
const DURATION_S: u64 = 20_000;

/// Seconds between two ticks.
const INTERVAL_S: u64 = 5;

/// Planners of each kind.
const PLANNERS: [(&str, &str); 5] = [
    ("load scaling", "{policy: load_180_5, max_gpu_budget: 8}"),
    (
        "throughput scaling",
        "{policy: throughput_180_5, optimization_target: sla, ttft_ms: 2000, itl_ms: 50, max_gpu_budget: 8}",
    ),
    (
        "both under an SLA",
        "{policy: hybrid_180_5, optimization_target: sla, ttft_ms: 2000, itl_ms: 50, max_gpu_budget: 8}",
    ),
    ("queue_aware", "{policy: queue_aware}"),
    ("clairvoyant", "{policy: clairvoyant}"),
];

fn ticks(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a folder for the scenarios");
    let mut group = criterion.benchmark_group("planner tick");
    group.sample_size(10);
    for (name, planner) in PLANNERS {
        let path = folder.path().join(format!("{}.yaml", name.replace(' ', "_")));
        let text = format!(
            "deployment: {{mode: agg, planner: {planner}, agg: {{workers: 4, timing: {{model: polynomial}}}}}}\n\
             workload: {{isl: 100, osl: 20, request_rate: 0.1, num_request_ratio: {DURATION_S}}}\n\
             sla: {{ttft_ms: 2000, itl_ms: 50}}\n"
        );
        std::fs::write(&path, text).expect("the folder can be written to");
        group.throughput(Throughput::Elements(DURATION_S / INTERVAL_S));
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let replay = Replay::from_file(&path, &[]).expect("the scenario is valid");
                replay.run().expect("it runs to its end")
            });
        });
    }
    group.finish();
}

criterion_group!(benches, ticks);
criterion_main!(benches);
