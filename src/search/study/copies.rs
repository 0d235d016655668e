//! Which trials come out as an earlier one did, before they are evaluated: those that differ from it only in what made no difference
//! there.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::search::evaluator::Bar;
use crate::search::objective::Metrics;
use crate::search::trial::Evaluation;
use crate::search::unreached::EngineLimits;

/// The trials of a study that may say something of each other.
#[derive(Debug, Default)]
pub(super) struct Copies {
    /// Together what differs in limits alone, in order of their numbers.
    families: FxHashMap<u64, Vec<Member>>,
    /// The family of each trial that has one.
    family_of: FxHashMap<usize, u64>,
    /// Trials for which it is too early to say; in order.
    waiting: Vec<usize>,
}

/// What the earlier trials say of one.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Foreseen {
    /// It comes to these figures.
    As(Arc<Metrics>),
    /// One that is being evaluated may say.
    TooEarly,
    /// Nothing.
    Unknown,
}

#[derive(Debug)]
struct Member {
    trial: usize,
    limits: EngineLimits,
    bar: Bar,
    replay: Replay,
}

#[derive(Debug)]
enum Replay {
    Open,
    CameTo(Arc<Metrics>),
    /// It did not come to its end.
    SaysNothing,
}

impl Copies {
    /// Enters a trial that may have to be evaluated, after all earlier ones.
    pub(super) fn enter(&mut self, trial: usize, limits: EngineLimits, bar: Bar) {
        self.family_of.insert(trial, limits.family());
        let family = self.families.entry(limits.family()).or_default();
        family.push(Member { trial, limits, bar, replay: Replay::Open });
    }

    /// Takes in what became of a trial.
    pub(super) fn settle(&mut self, trial: usize, evaluation: &Evaluation) {
        let family = self.family_of.get(&trial).and_then(|family| self.families.get_mut(family));
        let member = family.and_then(|family| family.iter_mut().find(|member| member.trial == trial));
        if let Some(member) = member {
            member.replay = match evaluation {
                Evaluation::Measured(metrics) => Replay::CameTo(Arc::new(metrics.clone())),
                _ => Replay::SaysNothing,
            };
        }
    }

    /// What the earlier trials say of one that is to be evaluated. One that has to reach something else says nothing.
    pub(super) fn of(&self, trial: usize) -> Foreseen {
        let family = self.family_of.get(&trial).and_then(|family| self.families.get(family));
        let family = family.map_or(&[][..], Vec::as_slice);
        let Some(place) = family.iter().position(|member| member.trial == trial) else {
            return Foreseen::Unknown;
        };
        let own = &family[place];
        let mut is_early = false;
        for other in family[..place].iter().filter(|other| other.bar == own.bar) {
            match &other.replay {
                Replay::CameTo(metrics) if own.limits.make_no_difference(&other.limits, metrics) => {
                    return Foreseen::As(Arc::clone(metrics));
                }
                Replay::Open => is_early = true,
                Replay::CameTo(_) | Replay::SaysNothing => {}
            }
        }
        if is_early { Foreseen::TooEarly } else { Foreseen::Unknown }
    }

    /// Keeps a trial for later.
    pub(super) fn wait(&mut self, trial: usize) {
        self.waiting.push(trial);
    }

    /// Those that were kept for later.
    pub(super) fn take_waiting(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.waiting)
    }

    /// Forgets the trials from this one on.
    pub(super) fn forget_from(&mut self, first: usize) {
        self.family_of.retain(|trial, _| *trial < first);
        for family in self.families.values_mut() {
            family.retain(|member| member.trial < first);
        }
        self.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::config::scenario::PolicyConfig;
    use crate::config::search::{ParallelConfig, Shape, SmartSearchConfig};
    use crate::search::sampler::create_grid;
    use crate::search::study::rounds::Rounds;
    use crate::search::study::schedule::Schedule;
    use crate::search::test_support::{measured, nine_points, plan};
    use crate::search::trial::{Outcome, TrialRecord};

    const ALL: Schedule = Schedule::Exhaustive { points: u64::MAX, per_round: 16 };

    /// Replays and committed trials of a search, point by point. Answers come in backwards.
    fn replays_of(
        config: SmartSearchConfig,
        schedule: Schedule,
        evaluate: impl Fn() -> Evaluation,
    ) -> (usize, Vec<TrialRecord>) {
        let branch = plan(config).branches.remove(0);
        let sampler = create_grid(&branch.space);
        let mut rounds = Rounds::new(branch, sampler, schedule);
        let (mut records, mut jobs, mut replays) = (Vec::new(), Vec::new(), 0);
        loop {
            let step = rounds.proceed();
            records.extend(step.records);
            jobs.extend(step.jobs);
            let Some(job) = jobs.pop() else { break };
            replays += 1;
            rounds.finish(job.trial, evaluate());
        }
        assert!(rounds.end().is_some() && rounds.covers_all_points());
        (replays, records)
    }

    /// Replays and trials of a search in which every rank comes to these peaks.
    fn replays(config: SmartSearchConfig, peaks: Value) -> (usize, usize) {
        let mut figures = json!({"output_throughput_tok_s": 5.0});
        let Value::Object(peaks) = peaks else { panic!("peaks have names") };
        figures.as_object_mut().unwrap().extend(peaks);
        let (replays, records) = replays_of(config, ALL, || measured(figures.clone()));
        for record in &records {
            assert_eq!((record.outcome, record.score), (Outcome::Feasible, Some(5.0)));
            assert!(record.metrics.is_some() && record.repeats.is_none());
        }
        (replays, records.len())
    }

    #[test]
    fn limits_that_are_not_reached_need_no_replay() {
        // Of 256, 512 and 1024 requests the first is reached, and so is the first of 8192, 16384 and 32768 tokens.
        let peaks = json!({"decode_peak_running_requests": 300, "decode_peak_batched_tokens": 9000});
        assert_eq!(replays(nine_points(), peaks), (4, 9));
        let low = json!({"decode_peak_running_requests": 255, "decode_peak_batched_tokens": 8191});
        assert_eq!(replays(nine_points(), low), (1, 9));
        // A limit that was come up to may have kept somebody waiting.
        let level = json!({"decode_peak_running_requests": 256, "decode_peak_batched_tokens": 8191});
        assert_eq!(replays(nine_points(), level), (2, 9));
    }

    #[test]
    fn engines_that_keep_no_account_are_replayed() {
        assert_eq!(replays(nine_points(), json!({})), (9, 9));
        assert_eq!(replays(nine_points(), json!({"decode_peak_running_requests": 1})), (3, 9));
    }

    #[test]
    fn others_who_go_by_a_limit_are_replayed() {
        let peaks = || json!({"decode_peak_running_requests": 1, "decode_peak_batched_tokens": 1});
        let routed = |router: PolicyConfig| {
            let mut config = nine_points();
            config.search_space.router_mode = vec![router];
            replays(config, peaks())
        };
        let mut queueing = PolicyConfig::named("kv_router");
        queueing.fields.insert("queue_threshold".into(), json!(2.0));
        // Of three limits of requests one is replayed; limits of tokens and credits are others' business as well.
        assert_eq!(routed(queueing), (324, 972));
        assert_eq!(routed(PolicyConfig::named("least_loaded")), (1, 9));
    }

    #[test]
    fn samplers_wait_for_nobody() {
        let low = json!({"output_throughput_tok_s": 5.0, "decode_peak_running_requests": 9, "decode_peak_batched_tokens": 9});
        let rounds = Schedule::Rounds { max_rounds: 3, per_round: 3 };
        let (replays, records) = replays_of(nine_points(), rounds, || measured(low.clone()));
        // The first three are under way together.
        assert_eq!((replays, records.len()), (3, 9));
    }

    /// Three credits under two scales, and a router without weights.
    fn seven_routers() -> SmartSearchConfig {
        let mut config = nine_points();
        config.search_space.agg_max_num_seqs = vec![256];
        config.search_space.agg_max_num_batched_tokens = vec![8192];
        config.search_space.router_mode = ["kv_router", "round_robin"].map(PolicyConfig::named).to_vec();
        config.search_space.overlap_score_credit = vec![0.0, 0.5, 1.0];
        config.search_space.prefill_load_scale = vec![0.0, 2.0];
        config.search_space.router_temperature = vec![0.0];
        config
    }

    #[test]
    fn credits_under_a_scale_of_0_need_one_replay() {
        assert_eq!(replays(seven_routers(), json!({})), (1 + 3 + 1, 7));
    }

    #[test]
    fn routers_of_a_single_rank_need_one_replay_each() {
        let alone = |attention_dp| {
            let mut config = seven_routers();
            let [ParallelConfig::Agg(shape)] = &mut config.search_space.parallel_configs[..] else {
                panic!()
            };
            *shape = Shape { tp: 4 / attention_dp, attention_dp, moe_ep: 4, replicas: 1, ..*shape };
            replays(config, json!({}))
        };
        // One that hears of caches, one that does not.
        assert_eq!(alone(1), (2, 7));
        assert_eq!(alone(4), (5, 7));
    }

    #[test]
    fn others_who_have_to_reach_something_else_and_forgotten_ones_say_nothing() {
        let branch = plan(nine_points()).branches.remove(0);
        let limits = |index| {
            EngineLimits::of(&branch.unroll(&branch.space.point(index)).unwrap(), &branch.registry).unwrap()
        };
        let low = json!({"decode_peak_running_requests": 9, "decode_peak_batched_tokens": 9});
        let mut copies = Copies::default();
        copies.enter(0, limits(0), Bar::default());
        copies.enter(1, limits(1), Bar { min_attainment: Some(0.5), ..Bar::default() });
        copies.enter(2, limits(2), Bar::default());
        assert_eq!((copies.of(1), copies.of(2)), (Foreseen::Unknown, Foreseen::TooEarly));
        copies.settle(0, &measured(low.clone()));
        let Value::Object(low) = low else { panic!() };
        assert_eq!((copies.of(1), copies.of(2)), (Foreseen::Unknown, Foreseen::As(Arc::new(low))));
        copies.forget_from(2);
        assert_eq!(copies.of(2), Foreseen::Unknown);
    }

    #[test]
    fn what_was_stopped_says_nothing_of_others() {
        let (replays, records) = replays_of(nine_points(), ALL, || Evaluation::Infeasible("no".into()));
        assert_eq!((replays, records.len()), (9, 9));
    }
}
