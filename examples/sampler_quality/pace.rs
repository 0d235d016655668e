//! How long a search waits for its sampler.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use spica::config::scenario::Scenario;
use spica::search::{Bar, Evaluation, Evaluator, Options, Plan, ReplayEvaluator, run};

use crate::Failure;
use crate::tables::{Definition, evaluator};

/// What a replay takes at least.
const REPLAY: Duration = Duration::from_millis(100);
const ROUNDS: u32 = 25;
const PER_ROUND: u32 = 4;

/// Replays that take their time.
struct Unhurried {
    replays: ReplayEvaluator,
    /// Nanoseconds that all of them have taken together.
    spent: AtomicU64,
}

impl Evaluator for Unhurried {
    fn evaluate(&self, scenario: &Scenario, bar: &Bar) -> Evaluation {
        let start = Instant::now();
        let evaluation = self.replays.evaluate(scenario, bar);
        std::thread::sleep(REPLAY.saturating_sub(start.elapsed()));
        self.spent.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        evaluation
    }
}

/// Searches a hundred points by replays of 0.1 s, and prints for how much of its time a thread had nothing to replay.
pub(crate) fn measure(definition: &Definition) -> Result<(), Failure> {
    for threads in [1, 2, 4] {
        let plan = definition.plan()?;
        let mut config = (*plan.config).clone();
        (config.sweep.max_rounds, config.sweep.candidates_per_round) = (ROUNDS, PER_ROUND);
        let plan = Plan::new(config, &Arc::new(spica::model::Catalogue::bundled()))
            .map_err(|refusals| format!("{refusals:?}"))?;
        let replays = Arc::new(Unhurried { replays: evaluator(&plan)?, spent: AtomicU64::new(0) });
        let shared: Arc<dyn Evaluator> = Arc::<Unhurried>::clone(&replays);
        let start = Instant::now();
        let threads = NonZeroUsize::new(threads).ok_or("no threads")?;
        let options = Options {
            threads,
            interrupt: Arc::default(),
            journal: None,
            past: Vec::new(),
            journalled: 0,
            shard: None,
            watcher: None,
        };
        let result = run(&plan, &shared, options)?;
        let wall = start.elapsed().as_secs_f64();
        let spent = replays.spent.load(Ordering::Relaxed) as f64 * 1e-9;
        println!(
            "{}, {threads} threads: {} trials in {wall:.2} s, {:.1} % of the threads' time without a replay",
            definition.name,
            result.tally.total(),
            100.0 * (1.0 - spent / (wall * threads.get() as f64))
        );
    }
    Ok(())
}
