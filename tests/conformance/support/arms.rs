//! The two arms: the slow replay and the crate's own.

use std::sync::Arc;

use spica::config::scenario::Scenario;
use spica::registry::Registry;
use spica::report::record::{PassTimeline, RunRecord};
use spica::serving::{ReplayLimits, Traffic, replay};
use spica::simulation::SimDuration;
use spica::workload::Workload;

use super::scenario::block_size;

/// What the crate's replay leaves behind.
pub(crate) fn fast(scenario: &Scenario, workload: &Arc<Workload>) -> RunRecord {
    limited(scenario, workload, &ReplayLimits::default())
}

/// The same with as few passes in memory as can be.
pub(crate) fn forgetful(scenario: &Scenario, workload: &Arc<Workload>) -> RunRecord {
    limited(scenario, workload, &ReplayLimits { passes_kept: Some(0), ..ReplayLimits::default() })
}

fn limited(scenario: &Scenario, workload: &Arc<Workload>, limits: &ReplayLimits) -> RunRecord {
    let traffic = Traffic::new(workload.clone(), block_size(scenario));
    replay(scenario, &traffic, &Registry::builtin(), limits)
        .unwrap_or_else(|error| panic!("the replay failed: {error}"))
}

/// Every difference between the records of the two arms that a user could see, in words; at most a handful.
pub(crate) fn differences(workload: &Workload, slow: &RunRecord, fast: &RunRecord) -> Vec<String> {
    let mut found = Vec::new();
    if slow.requests.len() != fast.requests.len() {
        found.push(format!("{} requests, the fast arm has {}", slow.requests.len(), fast.requests.len()));
    }
    for (index, (expected, actual)) in slow.requests.iter().zip(&fast.requests).enumerate() {
        if expected != actual {
            let name = workload.requests[index].name.as_deref().unwrap_or("without a name");
            found.push(format!("request {index} ({name}):\n  slow {expected:?}\n  fast {actual:?}"));
        }
    }
    for index in 0..slow.requests.len() {
        // The list is empty where nobody was handed off.
        let of = |run: &RunRecord| run.handoffs.get(index).copied().unwrap_or_default();
        let (expected, actual) = (of(slow), of(fast));
        if expected != actual {
            found.push(format!("hand-off {index}:\n  slow {expected:?}\n  fast {actual:?}"));
        }
    }
    if slow.counters != fast.counters {
        found.push(format!("counters:\n  slow {:?}\n  fast {:?}", slow.counters, fast.counters));
    }
    if slow.end != fast.end {
        found.push(format!("end: slow {}, fast {}", slow.end, fast.end));
    }
    if slow.pools != fast.pools {
        found.push(format!("pools:\n  slow {:?}\n  fast {:?}", slow.pools, fast.pools));
    }
    if gaps(&slow.timelines) != gaps(&fast.timelines) {
        found.push("the gaps between tokens differ".to_owned());
    }
    found.truncate(8);
    found
}

/// All gaps of all timelines, sorted.
fn gaps(timelines: &[PassTimeline]) -> Vec<SimDuration> {
    let mut gaps = Vec::new();
    for timeline in timelines {
        for pass in 1..timeline.ends.len() {
            let changes = |passes: &[u32]| passes.iter().filter(|other| **other as usize <= pass).count();
            let at_pass = changes(&timeline.gap_starts) - changes(&timeline.gap_stops);
            let gap = timeline.ends[pass] - timeline.ends[pass - 1];
            gaps.extend(std::iter::repeat_n(gap, at_pass));
        }
        gaps.extend(&timeline.loose_gaps);
        gaps.extend(std::iter::repeat_n(SimDuration::ZERO, timeline.zero_gaps as usize));
    }
    gaps.sort_unstable();
    gaps
}
