//! Runs of decode passes against the same engine pass by pass.

use proptest::option;
use proptest::prelude::*;

use super::super::SglangEngine;
use super::{Asked, inputs};
use crate::config::scenario::{Backend, EngineOptions, SglangOptions, SglangSchedulePolicy};
use crate::engine::{Admission, Cadence, Engine, Output, Signals};
use crate::report::record::{Counters, PassTimeline, Role};
use crate::simulation::SimTime;
use crate::workload::RequestId;
use crate::workload::prefix::SegmentId;

/// Everything that an engine says.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Heard {
    pub(super) admitted: Vec<(SimTime, Admission)>,
    pub(super) outputs: Vec<(SimTime, Output)>,
    changes: Vec<(SimTime, SegmentId, u32)>,
    pub(super) counters: Counters,
    pub(super) timeline: PassTimeline,
}

/// Asks an aggregated engine for everything, in runs or pass by pass.
pub(super) fn replay(options: &EngineOptions, asked: &[Asked], publish: bool, in_runs: bool) -> Heard {
    let inputs = inputs(asked, options.block_size);
    let arrivals: Vec<SimTime> = inputs.workload.requests.iter().map(|request| request.arrival).collect();
    let mut engine = SglangEngine::new(options, Role::Agg, 1, inputs, publish);
    let (mut heard, mut signals) = (Heard::default(), Signals::default());
    let (mut now, mut next) = (SimTime::ZERO, 0);
    while engine.has_work() || next < arrivals.len() {
        if !engine.has_work() {
            now = now.max(arrivals[next]);
        }
        while next < arrivals.len() && arrivals[next] <= now {
            engine.enqueue(RequestId(next as u32));
            next += 1;
        }
        let end = engine.start_pass(now, Cadence::Free, &mut signals).unwrap();
        let mut end = end.expect("nothing is outside an aggregated engine");
        if !in_runs {
            end = engine.passes_mut().cut(now, true).unwrap_or(end);
        }
        while next < arrivals.len() && arrivals[next] <= end {
            if engine.enqueue(RequestId(next as u32)) {
                end = engine.passes_mut().cut(arrivals[next], false).unwrap_or(end);
            }
            next += 1;
        }
        heard.admitted.extend(signals.admitted.drain(..).map(|admission| (now, admission)));
        now = end;
        engine.complete_pass(&mut signals);
        heard.outputs.extend(signals.outputs.drain(..).map(|output| (now, output)));
        heard.changes.extend(signals.kv_changes.drain(..).map(|(segment, pages)| (now, segment, pages)));
    }
    assert_eq!(engine.blocks_held(), 0);
    assert_eq!(engine.waiting_for(), None);
    heard.counters = engine.counters();
    heard.timeline = std::mem::take(&mut engine.passes_mut().timeline);
    heard.timeline.loose_gaps.sort_unstable();
    heard
}

fn options() -> impl Strategy<Value = EngineOptions> {
    let sizes = (1..5_u32, 4..120_u32, option::weighted(0.4, 1..6_u32), option::weighted(0.2, 1..90_u32));
    let flags = (prop::bool::weighted(0.85), prop::bool::weighted(0.8), any::<bool>(), 0..4_u32);
    let sglang = (1..60_u32, 1..30_u32, 1..20_u32, 0.1..2.0_f64);
    (sizes, flags, sglang).prop_map(|(sizes, flags, sglang)| EngineOptions {
        block_size: sizes.0,
        num_gpu_blocks: sizes.1,
        max_num_seqs: sizes.2,
        max_model_len: sizes.3,
        enable_prefix_caching: flags.0,
        enable_chunked_prefill: flags.1,
        prefill_decode_interval: flags.3,
        sglang: SglangOptions {
            schedule_policy: if flags.2 { SglangSchedulePolicy::Lpm } else { SglangSchedulePolicy::Fifo },
            max_prefill_tokens: sglang.0,
            chunked_prefill_size: sglang.1 * sizes.0,
            clip_max_new_tokens: sglang.2,
            schedule_conservativeness: sglang.3,
        },
        ..EngineOptions::for_backend(Backend::Sglang)
    })
}

fn requests() -> impl Strategy<Value = Vec<Asked>> {
    let prompt = (prop::collection::vec(0_u32..2, 0..6), 0..60_u32, 1..20_u32).prop_map(
        |(head, shared, own)| -> Vec<u32> {
            // A few early branches, a long part that is often shared, and an end of its own.
            head.into_iter().chain(10..10 + shared).chain((0..own).map(|at| 1000 + 100 * own + at)).collect()
        },
    );
    prop::collection::vec((0..200_u32, prompt, 0..40_u32), 1..14).prop_map(|mut asked| {
        asked.sort_by_key(|&(arrival_ms, _, _)| arrival_ms);
        asked
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn a_run_is_the_same_as_its_passes(options in options(), asked in requests(), publish in any::<bool>()) {
        let in_runs = replay(&options, &asked, publish, true);
        prop_assert_eq!(&in_runs, &replay(&options, &asked, publish, false));
        let ends = in_runs.outputs.iter().filter(|(_, output)| !matches!(output, Output::FirstToken(_)));
        prop_assert_eq!(ends.count(), asked.len());
    }
}
