//! What pricing a pass costs: `cargo bench --bench timing`.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use spica::simulation::SimTime;
use spica::timing::profile::{Pack, PassOptions, PassTables, TableTiming};
use spica::timing::{Chunk, DecodeBatch, PassPricer, Polynomial, TimingModel};

const PROFILE: &str = "m25_fp8_b200_vllm019_g4_tep";

fn profile() -> Arc<dyn TimingModel> {
    let entry = Pack::embedded().named(PROFILE).expect("the profile is embedded");
    let tables = PassTables::new(entry.axes, &entry.profile.tables);
    Arc::new(TableTiming::new(Arc::new(tables), PassOptions::default()))
}

/// Compositions of passes that follow each other without a pattern that a processor could learn.
fn compositions() -> Vec<([Chunk; 1], DecodeBatch)> {
    let mut state = 1_u64;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    (0..1024)
        .map(|_| {
            let requests = draw(256) as u32 + 1;
            let context_tokens = u64::from(requests) * (draw(60_000) + 40) + draw(u64::from(requests));
            let chunk = Chunk { new_tokens: draw(8000) as u32 + 1, prefix_tokens: draw(60_000) as u32 };
            ([chunk], DecodeBatch { requests, context_tokens })
        })
        .collect()
}

fn bench_lookups(criterion: &mut Criterion) {
    let passes = compositions();
    let mut group = criterion.benchmark_group("look-up");
    group.throughput(Throughput::Elements(passes.len() as u64));
    for (name, model) in [("profile", profile()), ("polynomial", Arc::new(Polynomial::new(1 << 20)))] {
        group.bench_function(format!("{name}: decode"), |bencher| {
            bencher.iter(|| passes.iter().map(|(_, batch)| model.decode_ms(black_box(*batch))).sum::<f64>());
        });
        group.bench_function(format!("{name}: prefill"), |bencher| {
            bencher
                .iter(|| passes.iter().map(|(chunks, _)| model.prefill_ms(black_box(chunks))).sum::<f64>());
        });
        group.bench_function(format!("{name}: both"), |bencher| {
            bencher.iter(|| {
                let costs = passes.iter().map(|(chunks, batch)| model.pass_ms(black_box(chunks), *batch));
                costs.map(|cost| cost.prefill_ms + cost.decode_ms).sum::<f64>()
            });
        });
    }
    group.finish();
}

fn bench_runs(criterion: &mut Criterion) {
    const PASSES: u32 = 128;
    let passes = compositions();
    let mut group = criterion.benchmark_group("decode run of 128 passes");
    group.throughput(Throughput::Elements(u64::from(PASSES) * passes.len() as u64));
    for (name, model) in [("profile", profile()), ("polynomial", Arc::new(Polynomial::new(1 << 20)) as _)] {
        let pricer = PassPricer::new(model, 1.0, 1.0);
        let mut ends = Vec::with_capacity(PASSES as usize);
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                for (_, batch) in &passes {
                    ends.clear();
                    pricer
                        .decode_run(SimTime::ZERO, *batch, PASSES, &mut ends)
                        .expect("prices are durations");
                    black_box(&ends);
                }
            });
        });
    }
    group.finish();
}

fn bench_preparing(criterion: &mut Criterion) {
    let entry = Pack::embedded().named(PROFILE).expect("the profile is embedded");
    criterion.bench_function("prepare a profile", |bencher| {
        bencher.iter_batched(
            || (),
            |()| PassTables::new(black_box(entry.axes), black_box(&entry.profile.tables)),
            BatchSize::LargeInput,
        );
    });
}

criterion_group!(benches, bench_lookups, bench_runs, bench_preparing);
criterion_main!(benches);
