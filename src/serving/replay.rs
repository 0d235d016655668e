//! A replay from beginning to end: its limits, and what must hold when the actors are done.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::assembly::{Traffic, assemble, pools, pricings, role_of, unsupported};
use super::capacity::sized;
use super::error::ReplayError;
use super::outlook::WorthBar;
use super::recorder::AttainmentBar;
use super::scheduler::scheduler_problems;
use crate::config::scenario::{Pool, ReplicaChange, Scenario};
use crate::registry::Registry;
use crate::report::activity::ActivityDetail;
use crate::report::gap_tally::PASSES_KEPT;
use crate::report::record::{PoolRecord, Role, RunRecord, Status};
use crate::report::requests::request_name;
use crate::report::scaling::{ScalingCause, ScalingEvent};
use crate::simulation::{Limits, SimTime};
use crate::workload::{RequestId, Workload};

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
        check_nothing_lost(&record, scenario, traffic.workload(), &waiting)?;
    }
    record.capacity = capacity;
    record.timing =
        pricings.into_iter().map(|(role, pricing)| (role.name(), pricing.into_record())).collect();
    if ledgers.is_empty() {
        record.pools = unchanged_pools(scenario, record.end);
        record.peak_gpus = scenario.deployment.gpus();
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

/// Every request was injected and came to an end; otherwise the run stalled, and the fleet and the actors say who waits for what.
fn check_nothing_lost(
    record: &RunRecord,
    scenario: &Scenario,
    workload: &Workload,
    waiting: &[(String, String)],
) -> Result<(), ReplayError> {
    let ended = |status| matches!(status, Status::Completed | Status::Rejected);
    let status = |id: usize| record.requests[id].status;
    let lost: Vec<usize> = (0..record.requests.len()).filter(|&id| !ended(status(id))).collect();
    let has_arrived = |id: &&usize| status(**id) != Status::Absent;
    let Some(&first) = lost.iter().find(has_arrived).or(lost.first()) else { return Ok(()) };
    let how = if status(first) == Status::Absent { "which never arrived" } else { "which is waiting" };
    let mut message = format!(
        "the replay came to a halt at {} with {} of {} requests not ended; the first is {}, {how}",
        record.end,
        lost.len(),
        record.requests.len(),
        request_name(workload, RequestId(first as u32)),
    );
    for line in pools(scenario).into_iter().filter_map(|(role, _)| without_workers(role, record, scenario)) {
        let _ = write!(message, "\n  {line}");
    }
    for (path, reason) in waiting {
        let _ = write!(message, "\n  {path}: {reason}");
    }
    Err(ReplayError::Failed(message))
}

/// Since when a pool has no workers, and by whom, if somebody took them away.
fn without_workers(role: Role, record: &RunRecord, scenario: &Scenario) -> Option<String> {
    let of_role = |event: &&ScalingEvent| event.role == role;
    let last = record.scaling.events.iter().rfind(of_role).filter(|event| event.to == 0)?;
    let by_script = |change: &ReplicaChange| {
        let is_then = SimTime::from_ms(change.at_ms).is_ok_and(|at| at == last.at);
        is_then && change.workers == 0 && role_of(change.pool) == role
    };
    let script = scenario.deployment.replica_changes.iter().rposition(by_script);
    let cause = match script.filter(|_| last.cause == ScalingCause::Script) {
        Some(place) => format!("deployment.replica_changes[{place}] asks for 0"),
        None => "the planner asked for 0".to_owned(),
    };
    Some(format!("{}: no worker takes requests since {}, when {cause}", role.name(), last.at))
}
