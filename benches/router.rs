//! What it costs to route: 20,000 small requests over ten and over a thousand workers.
//!
//! The passes and the requests are the same throughout, so whatever a thousand workers cost more than ten is the router's.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use spica::config::{self, Document};
use spica::registry::Registry;
use spica::serving::{ReplayLimits, Traffic, replay};
use spica::workload;

const REQUESTS: u32 = 20_000;

fn routing(c: &mut Criterion) {
    let mut group = c.benchmark_group("router");
    group.sample_size(10).throughput(Throughput::Elements(u64::from(REQUESTS)));
    for policy in ["round_robin", "random", "least_loaded", "power_of_two", "session_affinity", "kv_router"] {
        for workers in [10, 1000] {
            let text = format!(
                "deployment: {{mode: agg, router: {policy}, agg: {{workers: {workers}, \
                 timing: {{model: fixed, prefill_ms: 2, decode_ms: 1}}}}}}\n\
                 workload: {{isl: 256, osl: 4, request_rate: 2000, num_request_ratio: {}}}\n",
                REQUESTS / 2000
            );
            let loaded = config::load(&text, "bench.yaml".as_ref(), &[]);
            let Ok(Document::Scenario(scenario)) = loaded else { panic!("{loaded:?}") };
            let workload = workload::load(&scenario.workload, None, 64).expect("it is generated").workload;
            let traffic = Traffic::new(Arc::new(workload), 64);
            let (registry, limits) = (Registry::builtin(), ReplayLimits::default());
            group.bench_function(BenchmarkId::new(policy, workers), |bencher| {
                bencher.iter(|| black_box(replay(&scenario, &traffic, &registry, &limits)).is_ok());
            });
        }
    }
    group.finish();
}

criterion_group!(benches, routing);
criterion_main!(benches);
