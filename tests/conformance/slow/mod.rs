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
//!
//! Ranks in lock-step:
//! - A request bound to a rank takes its worker's turn and no rank's.
//! - A group counts the passes in which somebody was scheduled, and starts anew when it has nothing left to do.
//! - While prompts are deferred, so is all recomputation, however few tokens are left; prompts that have arrived are not.
//! - A rank was bound if the last pass in which prompts had their turn found no blocks for the head of its queue.
//!
//! Two pools:
//! - A prefill copy asks for one token, also for a request that asks for none.
//! - What happens to a worker during a pass takes effect at its end: releases first, then arrivals, then reservations.
//! - The decode worker's turn is taken when the prompt is computed; the source is released when the transfer ends.
//! - Reserved blocks can be found from the reservation on, the last token of a prompt and drafts notwithstanding.
//! - A preempted request that finds no blocks does not keep arrived prompts behind it from being admitted. While somebody asks for
//!   blocks nobody is admitted afresh, though who can never run is rejected.
//! - TensorRT-LLM also keeps what prompts on their way may come to need.
//! - No admission on a decode worker counts as reuse; recomputation there is neither priced nor counted as prefill.
//! - A transfer's end is a whole nanosecond.
//!
//! Drafts:
//! - They are drawn for every request that gets a token, however many tokens it has left, and not on prefill workers.
//! - A prefill worker sets blocks aside for the one token that it samples.
//! - Accepted drafts have their KV in the pass that checked them.
//! - Who would not fit into an empty pool with its first drafts is rejected; who would start beside nobody without room for them waits.
//! - A pass in which everybody gives way has no length and is not counted.
//!
//! SGLang; where the rules are silent, these are the readings that the crate's own engine documents:
//! - Promised tokens are summed first and scaled by the ratio then. A charge also counts cached pages that nobody holds yet.
//! - Cached pages are accessed when a request is examined, admitted or not, and when something is inserted behind them.
//! - A chunk that a prompt does not end in is the last of its pass. Whole pages of a chunk are findable from the next admission on.
//! - Who returns after a retraction computes prompt and output as one prompt; on a decode worker it joins the decode pass at once.
//! - Who would not be taken up by an empty engine is rejected when examined, also after a retraction.
//! - A pass that retracted somebody sets the ratio and does not lower it.
//! - If everybody is retracted, the next admission belongs to the same pass, unless somebody asks for pages and nobody enters.
//! - Pages for the tokens of a pass are taken before its end gives any back.
//! - Under `lpm` the order is made anew for every admission and kept. Who has more than 32 cached tokens neither steps back nor
//!   lets others step back.
//! - Decode passes count towards `prefill_decode_interval` while somebody runs; the first prompts need not wait.
//! - Reservations are granted by the rule of admission, with promises of all who hold pages there; they are tried again after every
//!   pass, release and arrival. Content on its way cannot be found yet, and its reuse is decided at the reservation.
//! - Requests ask for pages in the order of their arrival, before follow-ups of that moment.

mod client;
mod content;
mod engine;
mod fleet;
mod handoffs;
mod paged;
mod pool;
mod price;
mod replay;
pub(crate) mod router_cost;
mod sglang;

use spica::config::scenario::{Deployment, KvEvictionPolicy, LinkSharing, Scenario, TimingConfig};
use spica::report::record::{Role, RunRecord};
use spica::simulation::{SimDuration, SimTime};
use spica::workload::Workload;

use replay::Replay;

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
    let deployment = &scenario.deployment;
    covered(deployment)?;
    let pools = match (&deployment.agg, &deployment.prefill, &deployment.decode) {
        (Some(agg), ..) => vec![(Role::Agg, agg)],
        (None, Some(prefill), Some(decode)) => vec![(Role::Prefill, prefill), (Role::Decode, decode)],
        _ => unreachable!("a deployment has one pool or two"),
    };
    let mut replay = Replay::new(&pools, &deployment.kv_transfer, workload);
    let limit = scenario.max_sim_time_ms.map(|ms| SimTime::from_ms(ms).expect("a valid limit"));
    replay.run(limit);
    Ok(replay.finish(limit.is_some()))
}

/// Whether this replay does all that a deployment asks for.
fn covered(deployment: &Deployment) -> Result<(), NotCovered> {
    let pools = || [&deployment.agg, &deployment.prefill, &deployment.decode].into_iter().flatten();
    let refusals = [
        (deployment.routers().any(|router| router.policy != "round_robin"), "routers other than round_robin"),
        (deployment.planner.is_some(), "planners"),
        (
            pools().any(|pool| pool.engine.kv_eviction_policy != KvEvictionPolicy::Lru),
            "eviction policies other than lru",
        ),
        (deployment.kv_transfer.sharing == LinkSharing::Fair, "links whose bandwidth is divided"),
        (
            pools().any(|pool| {
                matches!(
                    pool.timing,
                    TimingConfig::Grid { .. } | TimingConfig::Profile { .. } | TimingConfig::Roofline { .. }
                )
            }),
            "timing other than polynomial and fixed",
        ),
    ];
    match refusals.iter().find(|(applies, _)| *applies) {
        Some((_, what)) => Err(NotCovered(what)),
        None => Ok(()),
    }
}
