//! Whole searches with made-up evaluations.

use std::collections::BTreeSet;
use std::io::Write;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::rounds::{Job, Rounds};
use super::schedule::Schedule;
use super::{Options, StudyEnd, run};
use crate::config::scenario::{PolicyConfig, Scenario};
use crate::config::search::{OptimizationTarget, SmartSearchConfig};
use crate::search::evaluator::Evaluator;
use crate::search::journal::Journal;
use crate::search::result::SearchResult;
use crate::search::sampler::{Observation, Sampler};
use crate::search::space::Point;
use crate::search::test_support::{config, measured, nine_points, plan, pretend_replay, throughput};
use crate::search::trial::{Evaluation, Outcome, TrialRecord};

/// Suggests points by their index, as told, and remembers what it hears.
struct Scripted {
    space: Arc<crate::search::Space>,
    script: Box<dyn FnMut() -> u64 + Send>,
    heard: Arc<Mutex<Vec<Option<f64>>>>,
}

impl Sampler for Scripted {
    fn suggest(&mut self, count: usize) -> Vec<Point> {
        (0..count).map(|_| self.space.point((self.script)())).collect()
    }

    fn observe(&mut self, _point: &Point, observation: &Observation<'_>) {
        let score = match observation {
            Observation::Measured { figures, .. } => Some(figures[0]),
            Observation::Infeasible { .. } => None,
        };
        self.heard.lock().unwrap().push(score);
    }
}

/// What a study with a scripted sampler did: trials, what the sampler heard, replays, and why it ended.
struct Course {
    records: Vec<TrialRecord>,
    heard: Vec<Option<f64>>,
    replays: usize,
    end: StudyEnd,
}

fn course(
    config: SmartSearchConfig,
    schedule: Schedule,
    script: impl FnMut() -> u64 + Send + 'static,
    mut evaluate: impl FnMut(&Scenario) -> Evaluation,
) -> Course {
    let branch = plan(config).branches.remove(0);
    let heard = Arc::new(Mutex::new(Vec::new()));
    let sampler =
        Scripted { space: Arc::clone(&branch.space), script: Box::new(script), heard: Arc::clone(&heard) };
    let mut rounds = Rounds::new(branch, Box::new(sampler), schedule);
    let (mut records, mut waiting, mut replays) = (Vec::new(), Vec::<Job>::new(), 0);
    loop {
        let step = rounds.proceed();
        records.extend(step.records);
        waiting.extend(step.jobs);
        if let Some(end) = rounds.end() {
            let heard = heard.lock().unwrap().clone();
            return Course { records, heard, replays, end };
        }
        // Answers come in backwards: the order must not matter.
        let job = waiting.pop().expect("a study that waits has something under way");
        replays += 1;
        rounds.finish(job.trial, evaluate(&job.scenario));
    }
}

fn counting() -> impl FnMut() -> u64 + Send {
    let mut next = 0;
    move || {
        next += 1;
        next - 1
    }
}

const ONE_ROUND_OF_THREE: Schedule = Schedule::Rounds { max_rounds: 1, per_round: 3 };

#[test]
fn scores_rank_from_high_to_low() {
    let evaluator = |scenario: &Scenario| {
        let pool = scenario.deployment.agg.as_ref().unwrap();
        throughput(f64::from(pool.engine.max_num_seqs.unwrap()) * 0.75)
    };
    let mut config = nine_points();
    config.search_space.agg_max_num_batched_tokens = vec![8192];
    let result = search(config, 1, evaluator);
    let scores: Vec<f64> = result.candidates.iter().map(|candidate| candidate.score).collect();
    assert_eq!(scores, [768.0, 384.0, 192.0]);
    let ranks: Vec<usize> = result.candidates.iter().map(|candidate| candidate.rank).collect();
    assert_eq!(ranks, [1, 2, 3]);
}

#[test]
fn a_round_that_only_fails_stops_after_eleven_attempts_per_candidate() {
    let course = course(config(), ONE_ROUND_OF_THREE, counting(), |_| Evaluation::Failed("no".into()));
    assert_eq!(course.records.len(), 33);
    assert_eq!(course.heard, vec![None; 33]);
    assert_eq!(course.end, StudyEnd::Stalled { found: 0, wanted: 3 });
    assert!(course.records.iter().all(|record| record.outcome == Outcome::Failed && record.round == 1));
}

#[test]
fn one_bad_suggestion_over_and_over_stops_too_and_is_replayed_once() {
    let course = course(config(), ONE_ROUND_OF_THREE, || 5, |_| Evaluation::Infeasible("no".into()));
    assert_eq!((course.records.len(), course.heard.len(), course.replays), (33, 33, 1));
    assert_eq!(course.records[0].outcome, Outcome::Infeasible);
    for record in &course.records[1..] {
        assert_eq!((record.outcome, record.repeats), (Outcome::CacheHit, Some(1)));
        assert_eq!(record.reason.as_deref(), Some("no"));
    }
}

#[test]
fn layouts_over_the_budget_are_never_replayed() {
    let branch = plan(config()).branches.remove(0);
    let mut tight = (*branch.config).clone();
    tight.search_space.gpu_budget = 4;
    let branch = crate::search::Branch { config: Arc::new(tight), ..branch };
    let sampler = crate::search::Random::new(Arc::clone(&branch.space), 1);
    let mut rounds = Rounds::new(branch, Box::new(sampler), ONE_ROUND_OF_THREE);
    let step = rounds.proceed();
    assert!(step.jobs.is_empty() && rounds.end().is_some());
    let records = step.records;
    assert_eq!(records.len(), 33);
    assert_eq!(records[0].reason.as_deref(), Some("uses 8 GPUs, over search_space.gpu_budget 4"));
    assert_eq!(records[0].outcome, Outcome::Infeasible);
}

#[test]
fn duplicates_are_replayed_once_and_told_each_time() {
    use Outcome::{CacheHit, Feasible};
    // The first three suggestions are the same point, two others follow.
    let mut indices = [7, 7, 7, 8, 9].into_iter();
    let course = course(config(), ONE_ROUND_OF_THREE, move || indices.next().unwrap_or(10), pretend_replay);
    assert_eq!((course.replays, course.heard.len()), (3, 5));
    assert_eq!(course.end, StudyEnd::RoundsDone);
    let outcomes: Vec<Outcome> = course.records.iter().map(|record| record.outcome).collect();
    assert_eq!(outcomes, [Feasible, CacheHit, CacheHit, Feasible, Feasible]);
    assert_eq!(course.records[1].repeats, Some(1));
    assert_eq!(course.heard[0], course.heard[2]);
    assert!(course.heard[0].is_some());
}

#[test]
fn trials_are_committed_in_the_order_of_suggestion() {
    let course = course(config(), ONE_ROUND_OF_THREE, counting(), pretend_replay);
    let numbers: Vec<u32> = course.records.iter().map(|record| record.trial).collect();
    assert_eq!(numbers, [1, 2, 3]);
    let told: Vec<Option<f64>> = course.records.iter().map(|record| record.score).collect();
    assert_eq!(told, course.heard);
}

#[test]
fn what_the_goal_reads_must_be_there() {
    let evaluator = |_: &Scenario| measured(serde_json::json!({"completed_requests": 0}));
    let result = search(nine_points(), 2, evaluator);
    assert_eq!((result.tally.failed, result.candidates.len()), (9, 0));
    assert!(result.rejected[0].reason.contains("lacks output_throughput_tok_s: no request completed"));
    assert!(!result.certified_optimum);
}

#[derive(Clone, Default)]
struct SharedJournal(Arc<Mutex<Vec<u8>>>);

impl Write for SharedJournal {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn options(threads: usize) -> Options {
    Options {
        threads: NonZeroUsize::new(threads).unwrap(),
        interrupt: Arc::new(AtomicBool::new(false)),
        journal: None,
        past: Vec::new(),
        journalled: 0,
        shard: None,
        watcher: None,
    }
}

fn search(config: SmartSearchConfig, threads: usize, evaluator: impl Evaluator + 'static) -> SearchResult {
    let evaluator: Arc<dyn Evaluator> = Arc::new(evaluator);
    run(&plan(config), &evaluator, options(threads)).unwrap()
}

#[test]
fn any_number_of_threads_gives_the_same_bytes() {
    let mut config = config();
    config.sweep.max_rounds = 5;
    config.sweep.candidates_per_round = 8;
    let bytes = |threads| {
        let delay = AtomicUsize::new(0);
        let evaluator: Arc<dyn Evaluator> = Arc::new(move |scenario: &Scenario| {
            // Later candidates are often done first.
            let turn = delay.fetch_add(1, Ordering::Relaxed) as u64;
            std::thread::sleep(Duration::from_micros((turn * 7919) % 3000));
            pretend_replay(scenario)
        });
        let journal = SharedJournal::default();
        let options = Options { journal: Some(Box::new(journal.clone())), ..options(threads) };
        let result = run(&plan(config.clone()), &evaluator, options).unwrap();
        assert_eq!(result.tally.feasible, 40);
        let journal = journal.0.lock().unwrap().clone();
        (serde_json::to_string(&result).unwrap(), String::from_utf8(journal).unwrap())
    };
    let alone = bytes(1);
    assert_eq!(alone.1.lines().count(), 40);
    for threads in [2, 8] {
        assert!(alone == bytes(threads), "{threads} threads gave another answer");
    }
}

#[test]
fn a_space_within_the_budget_is_walked_to_its_end_and_certified() {
    let mut config = nine_points();
    config.sweep.max_rounds = 3;
    let result = search(config.clone(), 2, pretend_replay);
    assert_eq!((result.tally.feasible, result.tally.total()), (9, 9));
    assert!(result.certified_optimum);
    assert_eq!(result.studies[0].end, StudyEnd::Exhausted);
    let configs: BTreeSet<String> = result.candidates.iter().map(|one| format!("{:?}", one.config)).collect();
    assert_eq!(configs.len(), 9);

    config.sweep.max_rounds = 2;
    let partial = search(config.clone(), 2, pretend_replay);
    assert_eq!((partial.tally.feasible, partial.certified_optimum), (6, false));

    config.sweep.exhaustive = true;
    assert_eq!(search(config, 2, pretend_replay), SearchResult { studies: result.studies.clone(), ..result });
}

#[test]
fn a_failure_leaves_the_optimum_uncertified_but_does_not_end_an_exhaustive_search() {
    let mut config = nine_points();
    config.sweep.exhaustive = true;
    let evaluator = |scenario: &Scenario| match scenario.deployment.agg.as_ref().unwrap().engine.max_num_seqs
    {
        Some(256) => Evaluation::Failed("too few".into()),
        _ => pretend_replay(scenario),
    };
    let result = search(config, 2, evaluator);
    assert_eq!((result.tally.feasible, result.tally.failed), (6, 3));
    assert!(!result.certified_optimum);
}

#[test]
fn a_panic_is_one_failed_trial() {
    let evaluator = |scenario: &Scenario| {
        let engine = &scenario.deployment.agg.as_ref().unwrap().engine;
        assert!(engine.max_num_seqs != Some(512), "bad luck with {:?}", engine.max_num_seqs);
        pretend_replay(scenario)
    };
    let mut config = nine_points();
    config.sweep.exhaustive = true;
    let result = search(config, 2, evaluator);
    assert_eq!((result.tally.feasible, result.tally.failed), (6, 3));
    assert_eq!(result.rejected[0].reason, "replay failed: internal error: bad luck with Some(512)");
}

#[test]
fn an_interrupt_keeps_what_is_committed() {
    let interrupt = Arc::new(AtomicBool::new(false));
    let seen = Arc::new(AtomicUsize::new(0));
    let evaluator: Arc<dyn Evaluator> = Arc::new({
        let (interrupt, seen) = (Arc::clone(&interrupt), Arc::clone(&seen));
        move |scenario: &Scenario| {
            if seen.fetch_add(1, Ordering::SeqCst) == 7 {
                interrupt.store(true, Ordering::SeqCst);
                std::thread::sleep(Duration::from_secs(100));
            }
            pretend_replay(scenario)
        }
    });
    let mut config = config();
    config.sweep.max_rounds = 100;
    let started = std::time::Instant::now();
    let result = run(&plan(config), &evaluator, Options { interrupt, ..options(1) }).unwrap();
    assert!(started.elapsed() < Duration::from_secs(50), "it waited for the replay");
    assert!(result.was_interrupted());
    assert_eq!(result.candidates.len(), 7);
    assert!(!result.certified_optimum);
}

#[test]
fn a_journal_that_cannot_be_written_ends_the_search() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _bytes: &[u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("disk full"))
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let evaluator: Arc<dyn Evaluator> = Arc::new(pretend_replay);
    let error = run(&plan(config()), &evaluator, Options { journal: Some(Box::new(Full)), ..options(2) })
        .unwrap_err();
    assert_eq!(error.to_string(), "cannot write the journal: disk full");
}

#[test]
fn seeds_choose_the_points() {
    let configs = |seed| {
        let mut config = config();
        config.sweep.random_seed = seed;
        let result = search(config, 2, pretend_replay);
        result.candidates.iter().map(|one| one.config.clone()).collect::<Vec<_>>()
    };
    assert_eq!(configs(1), configs(1));
    assert_ne!(configs(1), configs(2));
}

#[test]
fn two_ways_to_write_a_choice_are_one_evaluation() {
    let mut config = nine_points();
    let mut spelt_out = PolicyConfig::named("kv_router");
    for (name, value) in
        [("overlap_score_credit", 1.0), ("prefill_load_scale", 1.0), ("router_temperature", 0.0)]
    {
        spelt_out.fields.insert(name.into(), value.into());
    }
    config.search_space.router_mode = vec![spelt_out, PolicyConfig::named("kv_router")];
    config.search_space.overlap_score_credit = vec![1.0];
    config.search_space.prefill_load_scale = vec![1.0];
    config.search_space.router_temperature = vec![0.0];
    config.sweep.exhaustive = true;
    let result = search(config, 2, pretend_replay);
    assert_eq!((result.tally.feasible, result.tally.cache_hit), (9, 9));
    assert!(result.certified_optimum);
}

/// A search with a sampler that learns, on so many threads, from a journal on: its result and the journal.
fn resumed(config: &SmartSearchConfig, threads: usize, journal: &[u8]) -> (String, Vec<u8>, usize) {
    let replays = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&replays);
    let evaluator: Arc<dyn Evaluator> = Arc::new(move |scenario: &Scenario| {
        counted.fetch_add(1, Ordering::Relaxed);
        let pool = scenario.deployment.agg.as_ref().unwrap();
        match pool.engine.max_num_batched_tokens {
            Some(32768) => Evaluation::Infeasible("too many".into()),
            _ => pretend_replay(scenario),
        }
    });
    let past = Journal::read(journal).unwrap();
    let file = SharedJournal(Arc::new(Mutex::new(journal[..past.length as usize].to_vec())));
    let options = Options {
        journal: Some(Box::new(file.clone())),
        journalled: past.trials.len() as u32,
        past: past.trials,
        ..options(threads)
    };
    let result = run(&plan(config.clone()), &evaluator, options).unwrap();
    let journal = file.0.lock().unwrap().clone();
    (serde_json::to_string(&result).unwrap(), journal, replays.load(Ordering::Relaxed))
}

#[test]
fn a_search_that_was_killed_anywhere_ends_in_the_same_bytes() {
    let mut config = config();
    config.sweep.sampler = PolicyConfig::named("gp_ucb_pe");
    config.sweep.max_rounds = 5;
    config.sweep.candidates_per_round = 4;
    let (result, journal, replays) = resumed(&config, 1, &[]);
    for threads in [2, 8] {
        assert!(resumed(&config, threads, &[]) == (result.clone(), journal.clone(), replays));
    }
    let lines = |bytes: &[u8]| bytes.split(|byte| *byte == b'\n').count() - 1;
    // Anywhere: at the start, in the middle of lines, between two, and after the last.
    for (threads, cut) in
        [(1, 10), (2, journal.len() / 3), (8, journal.len() * 2 / 3 + 7), (2, journal.len())]
    {
        let (again, whole, further) = resumed(&config, threads, &journal[..cut]);
        assert!(again == result, "cut at {cut}: another answer");
        assert!(whole == journal, "cut at {cut}: another journal");
        assert_eq!(
            further,
            lines(&journal) - lines(&journal[..cut]),
            "cut at {cut}: trials were replayed again"
        );
    }
}

#[test]
fn a_search_goes_on_with_more_rounds_as_if_it_had_had_them_from_the_start() {
    for sampler in ["gp_ucb_pe", "tpe", "random", "halton"] {
        // Of whole and of broken halves, and with trials that do not count in the last round of each.
        for per_round in [1, 4, 5] {
            let with = |max_rounds| {
                let mut config = config();
                config.sweep.sampler = PolicyConfig::named(sampler);
                config.sweep.max_rounds = max_rounds;
                config.sweep.candidates_per_round = per_round;
                config
            };
            let (result, journal, replays) = resumed(&with(7), 2, &[]);
            let mut before = 0;
            for rounds in 1..7 {
                let (_, shorter, own) = resumed(&with(rounds), 2, &[]);
                assert!(journal.starts_with(&shorter), "{sampler}: {rounds} rounds of {per_round}");
                assert!(own > before, "{sampler}: no more replays in {rounds} rounds of {per_round}");
                let longer = resumed(&with(7), 8, &shorter);
                assert!(longer == (result.clone(), journal.clone(), replays - own), "{sampler} {rounds}");
                before = own;
            }
        }
    }
}

#[test]
fn a_journal_of_more_rounds_or_of_another_order_is_refused() {
    let with = |max_rounds| {
        let mut config = config();
        config.sweep.max_rounds = max_rounds;
        config
    };
    let refusal = |config: SmartSearchConfig, journal: &[u8]| {
        let past = Journal::read(journal).unwrap().trials;
        let evaluator: Arc<dyn Evaluator> = Arc::new(pretend_replay);
        run(&plan(config), &evaluator, Options { past, ..options(1) }).unwrap_err().to_string()
    };
    let all = search_journal(&with(3));
    assert!(
        refusal(with(2), &all).starts_with("trial 7 of the journal is not"),
        "{}",
        refusal(with(2), &all)
    );
    let exhaustive = refusal(with(1000), &all);
    assert!(exhaustive.contains("which are then tried in their own order"), "{exhaustive}");
}

/// The journal of a search.
fn search_journal(config: &SmartSearchConfig) -> Vec<u8> {
    let journal = SharedJournal::default();
    let evaluator: Arc<dyn Evaluator> = Arc::new(pretend_replay);
    let options = Options { journal: Some(Box::new(journal.clone())), ..options(2) };
    run(&plan(config.clone()), &evaluator, options).unwrap();
    journal.0.lock().unwrap().clone()
}

#[test]
fn the_journal_of_another_search_is_refused() {
    let (_, journal, _) = resumed(&config(), 1, &[]);
    let mut other = config();
    other.search_space.agg_block_size = 128;
    let past = Journal::read(&journal).unwrap().trials;
    let evaluator: Arc<dyn Evaluator> = Arc::new(pretend_replay);
    let error = run(&plan(other), &evaluator, Options { past, ..options(1) }).unwrap_err();
    assert!(error.to_string().starts_with("trial 1 of the journal is not"), "{error}");
}

#[test]
fn a_frontier_search_tells_the_sampler_all_objectives_and_returns_the_front() {
    let mut config = nine_points();
    config.goal.target = OptimizationTarget::Pareto;
    config.goal.pareto_objectives = vec![OptimizationTarget::E2eLatency, OptimizationTarget::Throughput];
    config.sweep.exhaustive = true;
    let evaluator = |scenario: &Scenario| {
        let engine = &scenario.deployment.agg.as_ref().unwrap().engine;
        let (tokens, sequences) = (engine.max_num_batched_tokens.unwrap(), engine.max_num_seqs.unwrap());
        measured(
            serde_json::json!({"mean_e2e_latency_ms": tokens, "output_throughput_tok_s": tokens - sequences}),
        )
    };
    let result = search(config, 2, evaluator);
    assert_eq!((result.tally.feasible, result.candidates.len()), (9, 3));
    assert!(result.certified_optimum && result.best().is_none());
    let throughput: Vec<f64> = result
        .candidates
        .iter()
        .map(|one| one.objectives.as_ref().unwrap()["throughput"].as_f64().unwrap())
        .collect();
    assert_eq!(throughput, [8192.0 - 256.0, 16384.0 - 256.0, 32768.0 - 256.0]);
    assert_eq!(result.candidates[0].score, 8192.0);
}
