//! Keeps the latest pass of each rank for a planner that asks now and then.

use crate::engine::Engine;
use crate::engine::metrics::{Accepted, PassMetrics};
use crate::serving::message::WorkerId;
use crate::simulation::{SimDuration, SimTime};

/// A rank that has ended no pass for so long is reported as idle, even in the middle of one.
const SILENCE: SimDuration = SimDuration::from_ns(1_000_000_000);

/// The answer of a worker to a planner.
#[derive(Clone, Debug)]
pub struct WorkerPasses {
    /// Place of its pool in the fleet.
    pub pool: u8,
    /// Number of its first rank.
    pub worker: WorkerId,
    /// Of each rank, the latest pass that ended since the last answer; all zero if it has been silent, `None` if there was
    /// none but it is not long ago.
    pub ranks: Vec<Option<PassMetrics>>,
    /// What speculative decoding yielded since the last answer.
    pub accepted: Accepted,
}

/// What a watched worker keeps beside its engines.
pub(super) struct Watch {
    /// Start of the first pass in progress.
    started: SimTime,
    ranks: Vec<RankWatch>,
}

struct RankWatch {
    /// The latest pass that is over, with its end.
    latest: Option<(PassMetrics, SimTime)>,
    /// End of the latest pass that was reported, or when silence was.
    reported: SimTime,
    /// Requests that came while passes were in progress that they do not cut short.
    late: Vec<(SimTime, u32)>,
}

impl Watch {
    pub(super) fn new(ranks: usize, now: SimTime) -> Self {
        let rank = || RankWatch { latest: None, reported: now, late: Vec::new() };
        Self { started: now, ranks: std::iter::repeat_with(rank).take(ranks).collect() }
    }

    pub(super) fn pass_started(&mut self, now: SimTime) {
        self.started = now;
        self.ranks.iter_mut().for_each(|rank| rank.late.clear());
    }

    /// A request with so many prompt tokens joined a rank during a pass.
    pub(super) fn came_late(&mut self, rank: usize, now: SimTime, tokens: u32) {
        self.ranks[rank].late.push((now, tokens));
    }

    /// The passes in progress are over.
    pub(super) fn passes_end(&mut self, engines: &[Box<dyn Engine>]) {
        for (rank, engine) in self.ranks.iter_mut().zip(engines) {
            rank.note(engine.as_ref(), engine.passes().in_progress().len(), self.started);
        }
    }

    pub(super) fn sample(
        &mut self,
        pool: u8,
        worker: WorkerId,
        engines: &mut [Box<dyn Engine>],
        now: SimTime,
    ) -> WorkerPasses {
        let mut accepted = Accepted::default();
        let mut ranks = Vec::with_capacity(engines.len());
        for (rank, engine) in self.ranks.iter_mut().zip(engines) {
            let over = engine.passes().in_progress().partition_point(|&end| end <= now);
            rank.note(engine.as_ref(), over, self.started);
            ranks.push(rank.report(now));
            let of_rank = engine.take_accepted();
            accepted.tokens += of_rank.tokens;
            accepted.steps += of_rank.steps;
        }
        WorkerPasses { pool, worker, ranks, accepted }
    }
}

impl RankWatch {
    /// Keeps the last of the first `over` passes in progress.
    fn note(&mut self, engine: &dyn Engine, over: usize, started: SimTime) {
        let Some(pass) = over.checked_sub(1) else { return };
        let ends = engine.passes().in_progress();
        let start = if pass == 0 { started } else { ends[pass - 1] };
        let mut metrics = engine.pass_metrics(pass);
        metrics.wall = ends[pass] - start;
        for &(_, tokens) in self.late.iter().filter(|(came, _)| pass > 0 && *came <= start) {
            metrics.queued_prefill.add(tokens);
        }
        self.latest = Some((metrics, ends[pass]));
    }

    fn report(&mut self, now: SimTime) -> Option<PassMetrics> {
        let latest = self.latest.take().filter(|&(_, end)| end > self.reported);
        if let Some((_, end)) = latest {
            self.reported = end;
        }
        let silent_ns = (now - self.reported).as_ns();
        if silent_ns < SILENCE.as_ns() {
            return latest.map(|(metrics, _)| metrics);
        }
        self.reported += SimDuration::from_ns(silent_ns - silent_ns % SILENCE.as_ns());
        Some(PassMetrics::default())
    }
}
