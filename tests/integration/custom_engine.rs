//! An engine of one's own: the example at the trait, where it can be cut anywhere.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use spica::config::scenario::EngineOptions;
use spica::engine::metrics::{PassMetrics, Tally};
use spica::engine::{
    Cadence, Engine, EnginePool, EngineSetup, Inputs, NewEngine, Output as Told, Signals, TokenStamps,
};
use spica::registry::Registry;
use spica::report::record::{Counters, PassTimeline, Role};
use spica::simulation::{SimDuration, SimTime};
use spica::timing::{Fixed, PassPricer, Polynomial, TimingModel};
use spica::workload::prefix::PrefixTree;
use spica::workload::{Prompt, Request, RequestId, Workload};

#[path = "../../examples/custom_engine.rs"]
#[allow(dead_code, unreachable_pub, reason = "its main function is for its own binary")]
mod example;

/// Arrival in milliseconds, prompt and output tokens.
type Asked = (u32, u32, u32);

fn inputs(asked: &[Asked], timing: Arc<dyn TimingModel>) -> Inputs {
    let mut workload = Workload::default();
    for (number, &(arrival_ms, input_length, output_length)) in asked.iter().enumerate() {
        workload.requests.push(Request {
            arrival: ms(f64::from(arrival_ms)),
            delay: SimDuration::ZERO,
            input_length,
            output_length,
            prompt: Prompt { first_chunk: 0, chunks: 0, tokens_per_chunk: 1 },
            session: number as u32,
            turn: 0,
            next_turn: None,
            dp_rank: None,
            name: None,
        });
    }
    let tree = Arc::new(PrefixTree::build(&workload, 4));
    Inputs { workload: Arc::new(workload), tree, future: None, pricer: PassPricer::new(timing, 1.0, 1.0) }
}

fn ms(ms: f64) -> SimTime {
    SimTime::from_ms(ms).unwrap()
}

/// A rank of the example with so many blocks of 4 tokens.
fn rank(fields: Value, blocks: u32, inputs: Inputs) -> Box<dyn Engine> {
    let maker: example::StaticBatching = serde_json::from_value(fields).unwrap();
    let options = EngineOptions { block_size: 4, num_gpu_blocks: blocks, ..EngineOptions::default() };
    let pool = EnginePool { role: Role::Agg, dp_size: 1, options: &options };
    maker.build(EngineSetup { pool, rank: 0, inputs, publish: false })
}

/// Everything that an engine says, and what it reported of each single pass.
#[derive(Debug, Default, PartialEq)]
struct Heard {
    outputs: Vec<(SimTime, Told)>,
    admitted: Vec<(SimTime, RequestId)>,
    passes: Vec<PassMetrics>,
    /// Who waited at the start of runs.
    queued: Vec<(SimTime, Tally)>,
    timeline: PassTimeline,
    counters: Counters,
}

/// Asks for everything. Each run keeps as many passes as the next of `kept` says, or all.
fn serve(engine: &mut dyn Engine, asked: &[Asked], kept: &[usize]) -> Heard {
    let (mut heard, mut signals) = (Heard::default(), Signals::default());
    let (mut now, mut next) = (SimTime::ZERO, 0);
    let mut kept = kept.iter().cycle();
    let arrives = |next: usize| asked.get(next).map(|&(arrival_ms, _, _)| ms(f64::from(arrival_ms)));
    while engine.has_work() || next < asked.len() {
        if !engine.has_work() {
            now = now.max(arrives(next).unwrap());
        }
        while arrives(next).is_some_and(|at| at <= now) {
            engine.enqueue(RequestId(next as u32));
            next += 1;
        }
        let mut end = engine.start_pass(now, Cadence::Free, &mut signals).unwrap().unwrap();
        heard.admitted.extend(signals.admitted.drain(..).map(|admission| (now, admission.request)));
        if let Some(&most) = kept.next() {
            let mut ends = engine.passes().in_progress().to_vec();
            ends.truncate(most);
            engine.passes_mut().set_ends(&ends);
            end = ends.last().copied().unwrap_or(end);
        }
        for pass in 0..engine.passes().in_progress().len() {
            // Who comes during a run is added to its later passes by the worker.
            let metrics = engine.pass_metrics(pass);
            heard.queued.extend((pass == 0).then_some((now, metrics.queued_prefill)));
            heard.passes.push(PassMetrics { queued_prefill: Tally::default(), ..metrics });
        }
        while arrives(next).is_some_and(|at| at < end) {
            if engine.enqueue(RequestId(next as u32)) {
                end = engine.passes_mut().cut(arrives(next).unwrap(), false).unwrap_or(end);
            }
            next += 1;
        }
        now = end;
        engine.complete_pass(&mut signals);
        heard.outputs.extend(signals.outputs.drain(..).map(|output| (now, output)));
    }
    assert_eq!((engine.blocks_held(), engine.waiting_for(), engine.is_empty()), (0, None, true));
    heard.counters = engine.counters();
    heard.timeline = std::mem::take(&mut engine.passes_mut().timeline);
    heard
}

/// Prompts take 10 ms, decode passes 2 ms.
fn fixed() -> Arc<dyn TimingModel> {
    Arc::new(Fixed { prefill_ms: 10.0, decode_ms: 2.0 })
}

/// When requests were returned.
fn ends(heard: &Heard) -> Vec<(u32, f64)> {
    let end = |&(at, output): &(SimTime, Told)| match output {
        Told::Completed(request, _) => Some((request.0, at.as_ms())),
        _ => None,
    };
    heard.outputs.iter().filter_map(end).collect()
}

#[test]
fn a_batch_of_two_by_hand() {
    // Prompts of 8 tokens until 10 ms; two more tokens for the first until 14 ms. The third comes at 1 ms and waits for the batch.
    let asked = [(0, 8, 3), (0, 8, 1), (1, 4, 2)];
    let serve_them = |return_early: bool| {
        let mut engine =
            rank(json!({"max_batch": 2, "return_early": return_early}), 100, inputs(&asked, fixed()));
        serve(&mut *engine, &asked, &[])
    };
    let together = serve_them(false);
    assert_eq!(ends(&together), [(0, 14.0), (1, 14.0), (2, 26.0)]);
    assert_eq!(
        together.admitted,
        [(ms(0.0), RequestId(0)), (ms(0.0), RequestId(1)), (ms(14.0), RequestId(2))]
    );
    let early = serve_them(true);
    assert_eq!(ends(&early), [(1, 10.0), (0, 14.0), (2, 26.0)]);
    let whole = TokenStamps { count: 3, first: Some(ms(14.0)), second: Some(ms(14.0)), last: Some(ms(14.0)) };
    assert!(early.outputs.contains(&(ms(14.0), Told::Completed(RequestId(0), whole))));
    assert_eq!(early.counters.committed_prefill_tokens, 20);
    assert_eq!((early.timeline.ends.len(), early.timeline.zero_gaps), (5, 3));
    // In the second pass one generates, with 9 known tokens, and one waits with 4.
    let second = &early.passes[1];
    assert_eq!((second.decode.requests, second.decode.tokens), (1, 9));
    assert_eq!((early.queued[1].0, early.queued[1].1.tokens), (ms(10.0), 4));
    assert_eq!((early.passes[0].prefill.requests, early.passes[0].prefill_tokens), (2, 16));
}

#[test]
fn a_taken_slot_is_paid_for_and_room_is_set_aside() {
    // Three slots in every decode pass, whoever has all its tokens; contexts of those grow no more.
    let asked = [(0, 8, 3), (0, 8, 1), (0, 4, 2)];
    let timing: Arc<dyn TimingModel> = Arc::new(Polynomial::new(400));
    let mut engine = rank(json!({"max_batch": 3}), 100, inputs(&asked, Arc::clone(&timing)));
    let heard = serve(&mut *engine, &asked, &[]);
    let batch = |context_tokens| spica::timing::DecodeBatch { requests: 3, context_tokens };
    let first = heard.timeline.ends[0];
    let second = first + SimDuration::from_ms(timing.decode_ms(batch(9 + 9 + 5))).unwrap();
    let third = second + SimDuration::from_ms(timing.decode_ms(batch(10 + 9 + 6))).unwrap();
    assert_eq!(heard.timeline.ends, [first, second, third]);
    // Three blocks for each of the first two and nine that nobody has: the second waits, the third is refused.
    let asked = [(0, 8, 3), (0, 8, 1), (0, 30, 6), (0, 4, 0)];
    let mut engine = rank(json!({"max_batch": 4}), 5, inputs(&asked, fixed()));
    let heard = serve(&mut *engine, &asked, &[]);
    assert_eq!(ends(&heard), [(0, 14.0), (1, 24.0), (3, 24.0)]);
    let rejected = Told::Rejected(RequestId(2), TokenStamps::default());
    assert!(heard.outputs.contains(&(ms(24.0), rejected)), "{:?}", heard.outputs);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn a_run_is_the_same_as_its_passes(
        mut asked in prop::collection::vec((0_u32..400, 1_u32..60, 0_u32..200), 1..14),
        (max_batch, return_early, blocks) in (1_usize..6, any::<bool>(), 4_u32..200),
        kept in prop::collection::vec(1_usize..40, 1..20),
    ) {
        asked.sort_by_key(|&(arrival_ms, _, _)| arrival_ms);
        let run = |kept: &[usize]| {
            let fields = json!({"max_batch": max_batch, "return_early": return_early});
            let timing = Arc::new(Polynomial::new(u64::from(blocks) * 4));
            let mut heard = serve(&mut *rank(fields, blocks, inputs(&asked, timing)), &asked, kept);
            heard.queued.clear();
            heard
        };
        let in_runs = run(&[]);
        prop_assert!(in_runs == run(&[1]), "pass by pass");
        prop_assert!(in_runs == run(&kept), "cut at random");
        let ended = in_runs.outputs.iter().filter(|(_, output)| !matches!(output, Told::FirstToken(_)));
        prop_assert_eq!(ended.count(), asked.len());
    }
}

#[test]
#[should_panic(expected = "there is an engine named static_batching already")]
fn a_name_is_given_once() {
    let registry = Registry::builtin().with_engine::<example::StaticBatching>("static_batching");
    let _ = registry.with_engine::<example::StaticBatching>("static_batching");
}
