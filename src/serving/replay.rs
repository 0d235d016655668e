//! A replay from beginning to end: its limits, and what must hold when the actors are done.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::assembly::{Traffic, assemble, pools, pricings, unsupported};
use super::capacity::sized;
use super::error::ReplayError;
use super::outlook::WorthBar;
use super::recorder::AttainmentBar;
use super::scheduler::scheduler_problems;
use crate::config::scenario::{Pool, Scenario};
use crate::registry::Registry;
use crate::report::activity::ActivityDetail;
use crate::report::gap_tally::PASSES_KEPT;
use crate::report::record::{PoolRecord, Role, RunRecord, Status};
use crate::simulation::{Limits, SimTime};

/// What whoever asks for a replay wants of it beside its figures.
#[derive(Clone, Debug, Default)]
pub struct ReplayLimits {
    /// Set to stop the replay, which then fails with [`ReplayError::Interrupted`].
    pub interrupt: Option<Arc<AtomicBool>>,
    /// Passes of all workers together after which the replay fails with [`ReplayError::EndedEarly`]: a limit that does not
    /// depend on the machine.
    pub max_passes: Option<u64>,
    /// The replay fails in the same way as soon as it cannot clear this bar any more.
    pub bar: Option<AttainmentBar>,
    /// And as soon as a figure cannot reach this worth any more.
    pub worth: Option<WorthBar>,
    /// How much is kept of what goes on; without influence on the run.
    pub detail: ActivityDetail,
    /// Passes that all ranks together may keep; [`PASSES_KEPT`] unless given. Beyond them percentiles of the gaps between tokens come
    /// from a fine histogram.
    pub passes_kept: Option<usize>,
}

/// Replays `traffic` on the deployment of `scenario`.
pub fn replay(
    scenario: &Scenario,
    traffic: &Traffic,
    registry: &Registry,
    limits: &ReplayLimits,
) -> Result<RunRecord, ReplayError> {
    let refuse = |problems: Vec<String>| ReplayError::Refused(problems.join("\n"));
    let mut problems = unsupported(scenario);
    problems.extend(scheduler_problems(scenario, registry));
    if !problems.is_empty() {
        return Err(refuse(problems));
    }
    let (scenario, capacity) = sized(scenario).map_err(refuse)?;
    let scenario = &*scenario;
    let pricings = pricings(scenario)?;
    let mut simulation = assemble(scenario, traffic, registry, &pricings)?;
    simulation.record_mut().keep(limits.detail);
    simulation.record_mut().keep_passes(limits.passes_kept.unwrap_or(PASSES_KEPT) / ranks(scenario));
    if let Some(passes) = limits.max_passes {
        simulation.record_mut().limit_passes(passes);
    }
    if let Some(bar) = limits.bar {
        simulation.record_mut().set_bar(bar);
    }
    if let Some(bar) = limits.worth {
        simulation.record_mut().set_worth(bar, traffic.workload());
    }
    let until = match scenario.max_sim_time_ms {
        None => SimTime::MAX,
        Some(ms) => {
            SimTime::from_ms(ms).map_err(|error| ReplayError::Refused(format!("max_sim_time_ms: {error}")))?
        }
    };
    let run_limits = Limits { until, interrupt: limits.interrupt.clone(), ..Limits::default() };
    let last_event = match simulation.run(&run_limits) {
        Ok(last_event) => last_event,
        Err(error) => {
            return Err(simulation
                .record_mut()
                .early_end()
                .map_or_else(|| error.into(), ReplayError::EndedEarly));
        }
    };
    let waiting = simulation.waiting();
    let mut recorder = simulation.into_record();
    recorder.happened(last_event);
    let (mut record, ledgers) = recorder.into_record();
    if until == SimTime::MAX {
        check_nothing_lost(&record, &waiting)?;
    }
    record.capacity = capacity;
    record.timing =
        pricings.into_iter().map(|(role, pricing)| (role.name(), pricing.into_record())).collect();
    if ledgers.is_empty() {
        record.pools = unchanged_pools(scenario, record.end);
    } else {
        let settled: Result<_, _> = ledgers.into_iter().map(|ledger| ledger.settle(record.end)).collect();
        record.pools = settled.map_err(ReplayError::Failed)?;
    }
    Ok(record)
}

/// Worker ranks at the start, at least one.
fn ranks(scenario: &Scenario) -> usize {
    let ranks = |(_, pool): (Role, &Pool)| pool.workers as usize * pool.dp_size as usize;
    pools(scenario).into_iter().map(ranks).sum::<usize>().max(1)
}

/// The cost of a fleet that nobody changes.
fn unchanged_pools(scenario: &Scenario, end: SimTime) -> Vec<PoolRecord> {
    let cost = |(role, pool): (Role, &Pool)| PoolRecord {
        role,
        gpus_per_worker: pool.gpus_per_worker(),
        worker_ns: u128::from(pool.workers) * u128::from(end.as_ns()),
    };
    pools(scenario).into_iter().map(cost).collect()
}

/// Every request was injected and came to an end; otherwise the run stalled, and the actors say who waits for what.
fn check_nothing_lost(record: &RunRecord, waiting: &[(String, String)]) -> Result<(), ReplayError> {
    let ended = |status| matches!(status, Status::Completed | Status::Rejected);
    let lost: Vec<_> = (0..record.requests.len()).filter(|&id| !ended(record.requests[id].status)).collect();
    let Some(&first) = lost.first() else { return Ok(()) };
    let status = record.requests[first].status;
    let mut message = format!(
        "the replay came to a halt at {} with {} of {} requests not ended; the first is request {first} ({status:?})",
        record.end,
        lost.len(),
        record.requests.len(),
    );
    for (path, reason) in waiting {
        let _ = write!(message, "\n  {path}: {reason}");
    }
    Err(ReplayError::Failed(message))
}
