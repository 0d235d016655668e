//! With which load predictors the planners of a search forecast: those that would have forecast its traffic best.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::branch::Plan;
use super::evaluator::Requests;
use super::predictor_sweep::{self, Comparison};
use super::refusal::Refusal;
use crate::config::presets::{LoadPredictor, PredictorFamily, ScalingPolicy};
use crate::config::search::LoadShape;
use crate::registry::Registry;
use crate::workload::Workload;

/// The load predictor of every planner that scales ahead of traffic.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Forecasts {
    /// How they were chosen: `swept`, or why there was nothing to compare.
    pub reason: String,
    /// The choice, by the seconds between two throughput decisions.
    pub by_interval_s: BTreeMap<u32, Comparison>,
}

impl Forecasts {
    /// Whether no planner of the search needs any.
    pub fn is_empty(&self) -> bool {
        self.by_interval_s.is_empty()
    }

    /// What a planner is told that scales every so many seconds: the predictor and the fields that it has.
    pub(super) fn settings(&self, interval_s: Option<u32>) -> Map<String, Value> {
        let chosen = interval_s.and_then(|interval_s| self.by_interval_s.get(&interval_s));
        chosen.map_or_else(Map::new, |comparison| planner_fields(&comparison.settings))
    }
}

impl Plan {
    /// The same plan, its planners forecasting with the best of `search_space.load_predictor_candidates` for this traffic.
    ///
    /// Arrivals count as the planners see them, sped up; windows are cut by the time stamps of the trace, whatever the first of
    /// them is. Generated traffic has the same rate throughout and a closed loop
    /// none of its own: there the last value is taken.
    ///
    /// # Errors
    /// When a candidate cannot be made.
    pub fn with_forecasts(self, requests: &Requests, registry: &Registry) -> Result<Self, Refusal> {
        let intervals = self.intervals_s();
        if intervals.is_empty() {
            return Ok(self);
        }
        let open_trace = match &self.config.workload.load {
            LoadShape::Trace(trace) if trace.replay_concurrency.is_none() => requests.shared(),
            _ => None,
        };
        let forecasts = if let Some(workload) = open_trace {
            self.swept(&intervals, workload, registry)?
        } else {
            let is_trace = matches!(self.config.workload.load, LoadShape::Trace(_));
            let reason = if is_trace { "closed_loop_constant" } else { "static_workload_constant" };
            let constant = |&interval_s: &u32| (interval_s, Comparison::fallback());
            Forecasts { reason: reason.into(), by_interval_s: intervals.iter().map(constant).collect() }
        };
        Ok(self.forecasting(forecasts))
    }

    /// The same plan with these load predictors.
    #[must_use]
    pub fn forecasting(mut self, forecasts: Forecasts) -> Self {
        let forecasts = Arc::new(forecasts);
        for branch in &mut self.branches {
            branch.forecasts = Arc::clone(&forecasts);
        }
        self.forecasts = forecasts;
        self
    }

    /// The distinct times between two throughput decisions, ascending.
    fn intervals_s(&self) -> Vec<u32> {
        let policies = self.branches.iter().flat_map(|branch| &branch.choices.planner_scaling_policy);
        let settings = policies.filter_map(ScalingPolicy::settings);
        let mut intervals: Vec<u32> = settings
            .filter(|settings| settings.enable_throughput_scaling)
            .filter_map(|settings| settings.throughput_adjustment_interval_seconds)
            .collect();
        intervals.sort_unstable();
        intervals.dedup();
        intervals
    }

    fn swept(
        &self,
        intervals: &[u32],
        workload: &Workload,
        registry: &Registry,
    ) -> Result<Forecasts, Refusal> {
        let candidates = &self.config.search_space.load_predictor_candidates;
        let mut forecasts = Forecasts { reason: "swept".into(), ..Forecasts::default() };
        let mut without_winner = Vec::new();
        let end_ms = workload.latest_arrival().as_ms();
        for &interval_s in intervals {
            let count = end_ms / 1e3 / f64::from(interval_s);
            if count > MOST_WINDOWS {
                let message = format!(
                    "the trace has {count:.0} intervals of {interval_s} s, more than {MOST_WINDOWS} that forecasters are compared on; \
                     is the unit of its time stamps right (workload.trace_time_unit)?"
                );
                return Err(Refusal::new("search_space.planner_scaling_policy", message));
            }
            let windows = predictor_sweep::windows(arrivals(workload), interval_s);
            let comparison = predictor_sweep::sweep(&windows, candidates, registry)
                .map_err(|error| Refusal::new("search_space.load_predictor_candidates", error.to_string()))?;
            if comparison.loss.is_none() {
                without_winner.push(interval_s);
            }
            forecasts.by_interval_s.insert(interval_s, comparison);
        }
        if !without_winner.is_empty() {
            forecasts.reason = format!("swept; no_winner_fallback_constant_last@{without_winner:?}");
        }
        Ok(forecasts)
    }
}

/// Windows that a machine can be expected to hold and forecasters to get through.
const MOST_WINDOWS: f64 = 1e6;

/// The requests of an open loop at `(milliseconds of the trace, prompt tokens, output tokens)`; later turns come after the think times
/// of those before them, as if these had taken no time.
fn arrivals(workload: &Workload) -> impl Iterator<Item = (f64, u32, u32)> + '_ {
    // In whole nanoseconds, so that a time stamp on the edge of a window stays there.
    let origin_ns = (workload.origin_ms * 1e6).round();
    workload.session_starts.iter().flat_map(move |&start| {
        let first = &workload.requests[start.0 as usize];
        let turns = std::iter::successors(Some((first, first.arrival)), move |&(turn, at)| {
            let next = &workload.requests[turn.next_turn?.0 as usize];
            Some((next, at + next.delay))
        });
        turns.map(move |(turn, at)| {
            ((origin_ns + at.as_ns() as f64) / 1e6, turn.input_length, turn.output_length)
        })
    })
}

/// A planner's fields for a predictor: its family, and of the others those that the family has.
fn planner_fields(predictor: &LoadPredictor) -> Map<String, Value> {
    let family = predictor.load_predictor;
    // The last value is the same in every form.
    let log1p = predictor.load_predictor_log1p && family != PredictorFamily::Constant;
    let mut fields = json!({"load_predictor": family, "load_predictor_log1p": log1p});
    match family {
        PredictorFamily::Constant | PredictorFamily::Arima => {}
        PredictorFamily::Prophet => fields["prophet_window_size"] = json!(predictor.prophet_window_size),
        PredictorFamily::Kalman => {
            fields["kalman_q_level"] = json!(predictor.kalman_q_level);
            fields["kalman_q_trend"] = json!(predictor.kalman_q_trend);
            fields["kalman_r"] = json!(predictor.kalman_r);
            fields["kalman_min_points"] = json!(predictor.kalman_min_points);
        }
    }
    match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::config::presets::{Preset, ScalingSettings};
    use crate::config::scenario::Sla;
    use crate::config::scenario::{TraceFormat, TraceSource, ZeroOutput};
    use crate::config::search::{OptimizationTarget, SearchTrace, SmartSearchConfig};
    use crate::search::Prepared;
    use crate::search::test_support::{config, plan};
    use crate::serving::Traffic;
    use crate::simulation::{SimDuration, SimTime};
    use crate::workload::{Prompt, Request, RequestId};

    fn scaling(interval_s: u32) -> ScalingPolicy {
        let values = ScalingSettings {
            enable_throughput_scaling: true,
            enable_load_scaling: false,
            throughput_adjustment_interval_seconds: Some(interval_s),
            load_adjustment_interval_seconds: Some(5),
        };
        ScalingPolicy::Builtin(Preset { name: None, values })
    }

    /// Planners of two paces for traffic that is given otherwise.
    fn two_paces() -> SmartSearchConfig {
        let mut config = config();
        config.search_space.planner_scaling_policy = vec![scaling(60), scaling(10), scaling(60)];
        config.goal.target = OptimizationTarget::Goodput;
        config.goal.sla = Some(Sla { ttft_ms: Some(500.0), itl_ms: Some(50.0), e2e_ms: None });
        config
    }

    fn traced(concurrency: Option<u32>) -> SmartSearchConfig {
        let mut config = two_paces();
        config.workload.load = LoadShape::Trace(SearchTrace {
            source: TraceSource::new(PathBuf::from("trace.jsonl"), TraceFormat::Mooncake),
            arrival_speedup_ratio: 1.0,
            replay_concurrency: concurrency,
            zero_output: ZeroOutput::Drop,
        });
        config
    }

    /// In every second of `seconds` as many requests as it has passed tens of seconds.
    fn rising(seconds: u32) -> Requests {
        let mut workload = Workload::default();
        for second in 0..seconds {
            for _ in 0..=second / 10 {
                workload.session_starts.push(RequestId(workload.requests.len() as u32));
                workload.requests.push(Request {
                    arrival: SimTime::from_ns(u64::from(second) * 1_000_000_000),
                    delay: SimDuration::ZERO,
                    input_length: 100,
                    output_length: 10,
                    prompt: Prompt { first_chunk: 0, chunks: 0, tokens_per_chunk: 512 },
                    session: 0,
                    turn: 0,
                    next_turn: None,
                    dp_rank: None,
                    name: None,
                });
            }
        }
        let traffic = Traffic::new(Arc::new(workload), 64);
        let workload = config().workload.of_trial(None).unwrap();
        Requests::Shared(vec![Prepared { workload, traffic }])
    }

    fn forecasts(config: SmartSearchConfig, requests: &Requests) -> Forecasts {
        let plan = plan(config).with_forecasts(requests, &Registry::builtin()).unwrap();
        Forecasts::clone(&plan.forecasts)
    }

    #[test]
    fn the_best_forecaster_of_each_pace_is_given_to_its_planners() {
        let plan = plan(traced(None)).with_forecasts(&rising(150), &Registry::builtin()).unwrap();
        assert_eq!(plan.forecasts.reason, "swept; no_winner_fallback_constant_last@[60]");
        let paces: Vec<u32> = plan.forecasts.by_interval_s.keys().copied().collect();
        assert_eq!(paces, [10, 60]);
        let fast = &plan.forecasts.by_interval_s[&10];
        assert_eq!((fast.scored_windows, fast.losses.len()), (10, 11));
        let least = fast.losses.values().flatten().copied().fold(f64::INFINITY, f64::min);
        assert_eq!(fast.loss, Some(least));
        assert!(least < fast.losses["constant_last"].unwrap(), "{fast:?}");
        let branch = &plan.branches[0];
        for index in [0, branch.space.size() - 1] {
            let candidate = branch.unroll(&branch.space.point(index)).unwrap();
            let planner = candidate.scenario.deployment.planner.unwrap().fields;
            let pace = planner["throughput_adjustment_interval_seconds"].as_u64().unwrap();
            let expected = planner_fields(&plan.forecasts.by_interval_s[&(pace as u32)].settings);
            for (name, value) in expected {
                assert_eq!((&planner[&name], &candidate.config[&name]), (&value, &value), "{name}");
            }
        }
    }

    #[test]
    fn without_arrivals_of_its_own_the_last_value_is_taken() {
        let generated = forecasts(two_paces(), &rising(150));
        assert_eq!(generated.reason, "static_workload_constant");
        let closed = forecasts(traced(Some(4)), &rising(150));
        assert_eq!(closed.reason, "closed_loop_constant");
        for chosen in [generated, closed].iter().flat_map(|forecasts| forecasts.by_interval_s.values()) {
            assert_eq!((chosen.winner.as_str(), chosen.loss), ("constant_last", None));
        }
        assert!(forecasts(config(), &rising(20)).is_empty(), "nobody scales ahead of traffic");
    }

    #[test]
    fn windows_begin_at_multiples_of_the_interval_in_the_trace() {
        let options = crate::workload::mooncake::Options::default();
        let row = |at_ms: f64| format!("{{\"timestamp\":{at_ms},\"input_length\":8,\"output_length\":1}}\n");
        // The first and the second row lie in different windows of 10 s, the second and the third in one.
        let trace: String = [19_999.5, 20_000.0, 29_999.0].map(row).concat();
        let loaded = crate::workload::mooncake::read(trace.as_bytes(), &options).unwrap();
        let cut = predictor_sweep::windows(arrivals(&loaded.workload), 10);
        assert_eq!(cut.iter().map(|window| window.num_req).collect::<Vec<_>>(), [1.0, 2.0]);
    }

    #[test]
    fn a_planner_is_told_the_fields_of_its_predictor_only() {
        let fields = |family, log1p| {
            let predictor = LoadPredictor { load_predictor_log1p: log1p, ..LoadPredictor::of_family(family) };
            Value::Object(planner_fields(&predictor))
        };
        assert_eq!(
            fields(PredictorFamily::Constant, true),
            json!({"load_predictor": "constant", "load_predictor_log1p": false})
        );
        assert_eq!(
            fields(PredictorFamily::Prophet, true),
            json!({"load_predictor": "prophet", "load_predictor_log1p": true, "prophet_window_size": 50})
        );
        let kalman = fields(PredictorFamily::Kalman, false);
        assert_eq!((kalman.as_object().unwrap().len(), &kalman["kalman_r"]), (6, &json!(10.0)));
    }
}
