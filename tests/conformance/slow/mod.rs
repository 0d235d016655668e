//! A slow replay that is easy to check by eye: the reference for the fast one.
//!
//! Every token of every request is handled by itself, every request keeps its own list of blocks and of stamps, and
//! nothing is skipped, batched or remembered for speed. It was written from the rules alone, apart from the crate's engine and
//! serving modules, of which it uses nothing.
//!
//! Where the rules leave something open, this is how it is read here:
//! - FIFO preemption whose victim is the current request itself leaves the scan index where it is: nobody is skipped.
//! - With chunking off, a request that there is room for, and of whose prompt more than the whole token budget is uncached, is
//!   rejected.
//! - A preempted request whose known tokens no longer fit into the pool is rejected when it is examined.
//! - The token share of a request is fixed before room is made for it: what a victim gives back does not widen it.
//! - Blocks for a share are taken together: preemption comes first, the choice between free and evicted blocks after it.
//! - Without chunking, generated tokens that are recomputed may still be split by the budget.
//! - Without prefix caching a released block is free at once.
//! - Reuse is counted in prompt tokens: of a resumed request's hits, those beyond the prompt do not count.
//! - A zero-output request whose prompt is cached whole takes part in its pass with no tokens and no time.
//! - A speed-up of 0 is no speed-up, for each of the two ratios by itself.
//! - A session released in a closed loop is ready at the moment of its release, beside follow-ups of that moment.
//! - A pass of no length completes before the next worker starts one, and what comes of it arrives before that too.
//! - A pass counts, with its evictions, preemptions and prefill tokens, once it has ended; one that the run's end cuts off does
//!   not.
//! - Squares in the polynomial are taken first, which matters where a price lies half-way between two nanoseconds.

mod client;
mod content;
mod pool;
mod price;
pub(crate) mod router_cost;
mod vllm;

use spica::config::scenario::{Backend, DeploymentMode, KvEvictionPolicy, Pool, Scenario, TimingConfig};
use spica::report::record::{PassTimeline, PoolRecord, RequestRecord, Role, RunRecord, Status};
use spica::simulation::{SimDuration, SimTime};
use spica::workload::{RequestId, Workload};

use client::Client;
use content::Identities;
use vllm::{Engine, Pass, Shared};

pub(crate) use price::Batch;

/// Everything that the slow replay saw.
#[derive(Debug, Default)]
pub(crate) struct SlowRun {
    /// What the fast replay leaves behind too. Gaps are all loose.
    pub record: RunRecord,
    /// Stamps of all output tokens, by request number.
    pub tokens: Vec<Vec<SimTime>>,
    /// Admissions, by request number.
    pub admissions: Vec<Vec<Admission>>,
    /// All passes in which something was scheduled, in the order of their ends.
    pub passes: Vec<PassLog>,
}

/// One admission of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admission {
    pub at: SimTime,
    pub reused_tokens: u32,
}

/// One pass that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PassLog {
    pub worker: usize,
    pub end: SimTime,
    pub duration: SimDuration,
    pub batch: Batch,
    pub prefill_tokens: u64,
    /// Requests that decode without prompt tokens in the pass.
    pub pure_decode_requests: u64,
    /// Their tokens, the new one not counted.
    pub pure_decode_tokens: u64,
}

/// Something that the slow replay does not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotCovered(pub &'static str);

/// Replays `workload` on the deployment of `scenario`.
pub(crate) fn run(scenario: &Scenario, workload: &Workload) -> Result<SlowRun, NotCovered> {
    let pool = covered(scenario)?;
    let mut replay = Replay::new(pool, workload);
    let limit = scenario.max_sim_time_ms.map(|ms| SimTime::from_ms(ms).expect("a valid limit"));
    replay.run(limit);
    Ok(replay.finish(pool, limit.is_some()))
}

/// The only pool of a deployment that this replay covers.
fn covered(scenario: &Scenario) -> Result<&Pool, NotCovered> {
    let deployment = &scenario.deployment;
    let (DeploymentMode::Agg, Some(pool)) = (deployment.mode, &deployment.agg) else {
        return Err(NotCovered("disaggregated pools"));
    };
    let refusals = [
        (deployment.router.policy != "round_robin", "routers other than round_robin"),
        (deployment.planner.is_some(), "planners"),
        (pool.engine.backend != Backend::Vllm, "backends other than vllm"),
        (pool.dp_size != 1, "data-parallel ranks"),
        (pool.engine.aic_nextn.is_some(), "speculative decoding"),
        (pool.engine.kv_eviction_policy != KvEvictionPolicy::Lru, "eviction policies other than lru"),
        (
            matches!(pool.timing, TimingConfig::Grid { .. } | TimingConfig::Profile { .. }),
            "timing other than polynomial and fixed",
        ),
    ];
    match refusals.iter().find(|(applies, _)| *applies) {
        Some((_, what)) => Err(NotCovered(what)),
        None => Ok(pool),
    }
}

struct Replay<'a> {
    now: SimTime,
    client: Client<'a>,
    workers: Vec<Worker<'a>>,
    next_worker: usize,
    shared: Shared<'a>,
    run: SlowRun,
}

struct Worker<'a> {
    engine: Engine<'a>,
    /// The pass under way and its end.
    pass: Option<(SimTime, Pass)>,
}

impl<'a> Replay<'a> {
    fn new(pool: &'a Pool, workload: &'a Workload) -> Self {
        let requests = workload.requests.len();
        let worker = || Worker { engine: Engine::new(&pool.engine, &pool.timing, requests), pass: None };
        let workers: Vec<_> = (0..pool.workers).map(|_| worker()).collect();
        let mut run = SlowRun {
            tokens: vec![Vec::new(); requests],
            admissions: vec![Vec::new(); requests],
            ..SlowRun::default()
        };
        run.record.requests = vec![RequestRecord::default(); requests];
        run.record.timelines = vec![PassTimeline::default(); workers.len()];
        Self {
            now: SimTime::ZERO,
            client: Client::new(workload),
            workers,
            next_worker: 0,
            shared: Shared { workload, identities: Identities::default() },
            run,
        }
    }

    fn run(&mut self, limit: Option<SimTime>) {
        while let Some(next) = self.next_time() {
            if limit.is_some_and(|limit| next > limit) {
                return;
            }
            self.now = next;
            let mut rounds = 0;
            while self.instant() {
                rounds += 1;
                assert!(rounds < 1_000_000, "time stands still at {}", self.now);
            }
        }
    }

    fn next_time(&self) -> Option<SimTime> {
        let ends = self.workers.iter().filter_map(|worker| worker.pass.as_ref().map(|(end, _)| *end));
        ends.chain(self.client.next_time()).min()
    }

    /// One round over everything that happens now; false when nothing did.
    fn instant(&mut self) -> bool {
        let mut happened = false;
        for worker in 0..self.workers.len() {
            if self.ends_now(worker)
                && let Some((_, pass)) = self.workers[worker].pass.take()
            {
                self.complete(worker, &pass);
                happened = true;
            }
        }
        while let Some(request) = self.client.arrival(self.now) {
            self.arrive(request);
            happened = true;
        }
        for worker in 0..self.workers.len() {
            if self.workers[worker].pass.is_none() && self.workers[worker].engine.has_work() {
                self.start(worker);
                happened = true;
                if self.ends_now(worker) {
                    return true;
                }
            }
        }
        happened
    }

    fn ends_now(&self, worker: usize) -> bool {
        self.workers[worker].pass.as_ref().is_some_and(|(end, _)| *end == self.now)
    }

    fn arrive(&mut self, request: RequestId) {
        let worker = self.next_worker;
        self.next_worker = (worker + 1) % self.workers.len();
        let record = &mut self.run.record.requests[request.0 as usize];
        record.status = Status::Unfinished;
        record.arrival = Some(self.now);
        record.dispatched = Some(self.now);
        record.decode_worker = Some(worker as u32);
        let asked = &self.shared.workload.requests[request.0 as usize];
        self.workers[worker].engine.submit(request, asked);
    }

    fn start(&mut self, worker: usize) {
        let pass = self.workers[worker].engine.pass(&mut self.shared);
        for &(request, reused_tokens) in &pass.admitted {
            let record = &mut self.run.record.requests[request.0 as usize];
            if record.admissions == 0 {
                record.first_admit = Some(self.now);
                record.first_reused_tokens = reused_tokens;
            }
            record.admissions += 1;
            record.max_reused_tokens = record.max_reused_tokens.max(reused_tokens);
            self.run.admissions[request.0 as usize].push(Admission { at: self.now, reused_tokens });
        }
        self.workers[worker].pass = Some((self.now + pass.duration, pass));
    }

    fn complete(&mut self, worker: usize, pass: &Pass) {
        let now = self.now;
        let counters = &mut self.run.record.counters;
        counters.committed_prefill_tokens += pass.prefill_tokens;
        counters.preemptions += pass.preemptions;
        counters.evictions += pass.evictions;
        if pass.scheduled > 0 {
            self.run.record.counters.passes += 1;
            self.run.record.timelines[worker].ends.push(now);
            self.run.passes.push(PassLog {
                worker,
                end: now,
                duration: pass.duration,
                batch: pass.batch,
                prefill_tokens: pass.prefill_tokens,
                pure_decode_requests: pass.pure_decode_requests,
                pure_decode_tokens: pass.pure_decode_tokens,
            });
        }
        for &request in &pass.emitted {
            self.run.tokens[request.0 as usize].push(now);
        }
        for (requests, status) in [(&pass.finished, Status::Completed), (&pass.rejected, Status::Rejected)] {
            for &request in requests {
                let record = &mut self.run.record.requests[request.0 as usize];
                record.status = status;
                record.terminal = Some(now);
                self.client.ended(request, now);
            }
        }
    }

    fn finish(mut self, pool: &Pool, may_be_cut: bool) -> SlowRun {
        for (record, tokens) in self.run.record.requests.iter_mut().zip(&self.run.tokens) {
            assert!(may_be_cut || record.terminal.is_some(), "every request ends: {record:?}");
            record.output_tokens = tokens.len() as u32;
            record.first_token = tokens.first().copied();
            record.second_token = tokens.get(1).copied();
            record.last_token = tokens.last().copied();
            if record.status == Status::Completed {
                let worker = record.decode_worker.expect("a completed request had a worker") as usize;
                let gaps = tokens.windows(2).map(|pair| pair[1] - pair[0]);
                self.run.record.timelines[worker].loose_gaps.extend(gaps);
            }
        }
        let engines = || self.workers.iter().map(|worker| &worker.engine);
        assert!(may_be_cut || engines().all(|engine| engine.blocks_held() == 0), "no block stays held");
        self.run.record.end = self.now;
        self.run.record.pools.push(PoolRecord {
            role: Role::Agg,
            gpus_per_worker: pool.gpus_per_worker(),
            worker_ns: u128::from(self.now.as_ns()) * self.workers.len() as u128,
        });
        self.run
    }
}
