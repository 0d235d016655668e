//! Whole fleets under the bundled traces, and whole searches: `cargo bench --bench fleet`.

use std::path::{Path, PathBuf};

use criterion::{Criterion, criterion_group, criterion_main};
use spica::run::{Replay, Search};

fn scenario(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios").join(format!("{name}.yaml"))
}

/// Replays of bundled scenarios: two pools in both orders of the hand-off, ranks in step, planners that look every few seconds.
fn replays(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("bundled scenario");
    group.sample_size(10);
    for name in [
        "disaggregated",
        "disaggregated_sglang",
        "data_parallel",
        "planner_burst",
        "planner_disaggregated",
        "planner_queue_aware",
    ] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let replay = Replay::from_file(scenario(name), &[]).expect("a bundled scenario is valid");
                replay.run().expect("it runs to its end")
            });
        });
    }
    group.finish();
}

/// Searches: the trace is read once, and every distinct point is replayed.
fn searches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("bundled search");
    group.sample_size(10);
    for name in ["router_comparison", "goodput_search", "planner_goodput_per_gpu"] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let search = Search::from_file(scenario(name), &[]).expect("a bundled search is valid");
                search.run().expect("it runs to its end")
            });
        });
    }
    group.finish();
}

criterion_group!(benches, replays, searches);
criterion_main!(benches);
