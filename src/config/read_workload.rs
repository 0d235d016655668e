//! Reads the `workload:` block, of a scenario or of a search.

use std::path::PathBuf;

use super::inert::Rule;
use super::numbers::Limit;
use super::read_engine::MOST_TOKENS;
use super::read_workload_parts::{arrival, columns, inline_request, kv_load_ratio, time_unit};
use super::reader::Section;
use super::scenario::{
    Arrival, ArrivalProcess, InlineRequest, TraceColumns, TraceFormat, TraceRate, TraceSource, TraceTimeUnit,
    WorkloadConfig, WorkloadSource, ZeroOutput,
};
use super::search::{KvLoadRatio, LoadShape, SearchTrace, SearchWorkload, SyntheticRequests};

/// Keys of generated requests only, beside the loads.
const OF_SYNTHETIC: [&str; 3] = ["isl", "osl", "num_request_ratio"];

/// Reads the workload of a scenario: a trace, generated requests or a list of requests.
pub(super) fn scenario_workload(section: &Section<'_>) -> Option<WorkloadConfig> {
    let block = Block::read(section);
    let requests =
        section.read("requests", |value| value.list(|request| inline_request(&request))).optional();
    let reason = "needs a search, which knows each candidate's cache; a scenario gives `concurrency`";
    section.refuse("kv_load_ratio", reason);
    if section.has("requests") {
        block.refuse("beside `requests`, which stands for the whole workload", |origin| {
            origin != Origin::TraceOrList
        });
        let has_ids = |request: &InlineRequest| request.hash_ids.is_some();
        section.check_inert([Rule::telling(
            "trace_block_size",
            block.trace_block_size != block.format.usual_block_size(),
            requests.as_ref().is_none_or(|requests| requests.iter().any(has_ids)),
            "without `hash_ids` in `requests`",
        )]);
        for key in Kind::Scenario
            .loads()
            .iter()
            .chain(&OF_SYNTHETIC)
            .chain(&["trace_path"])
            .filter(|key| section.has(key))
        {
            section.problem(key, "is given beside `requests`, which stands for the whole workload");
        }
        block.check_pace();
        return Some(WorkloadConfig {
            source: WorkloadSource::Requests { requests: requests?, block_size: block.trace_block_size },
            concurrency: block.replay_concurrency,
            arrival_speedup_ratio: block.arrival_speedup_ratio,
            zero_output: ZeroOutput::Drop,
            strict: block.strict,
        });
    }
    block.search_workload(Kind::Scenario)?.of_trial(None)
}

/// Reads the workload of a search; `pareto` tells whether the goal is a frontier.
pub(super) fn search_workload(section: &Section<'_>, pareto: bool) -> Option<SearchWorkload> {
    section.refuse("requests", "is for scenarios; a search takes `trace_path` or generated requests");
    Block::read(section).search_workload(Kind::Search { pareto })
}

/// Whose workload is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Scenario,
    Search { pareto: bool },
}

impl Kind {
    /// The keys that say how much load generated requests make; exactly one is given.
    fn loads(self) -> &'static [&'static str] {
        match self {
            Self::Scenario => &["request_rate", "concurrency"],
            Self::Search { .. } => &["request_rate", "concurrency", "kv_load_ratio"],
        }
    }

    fn one_of_loads(self) -> String {
        let names: Vec<String> = self.loads().iter().map(|key| format!("`{key}`")).collect();
        let (last, others) = names.split_last().expect("there is more than one kind of load");
        format!("exactly one of {} and {last}", others.join(", "))
    }
}

/// The keys that every shape of load reads alike, with their defaults.
struct Block<'s, 'a> {
    section: &'s Section<'a>,
    format: TraceFormat,
    trace_columns: Option<TraceColumns>,
    trace_block_size: u32,
    trace_time_unit: TraceTimeUnit,
    trace_sessions: bool,
    max_requests: Option<u32>,
    zero_output: ZeroOutput,
    arrival_speedup_ratio: f64,
    replay_concurrency: Option<u32>,
    arrival: Arrival,
    shared_prefix_ratio: f64,
    num_prefix_groups: u32,
    turns_per_session: u32,
    inter_turn_delay_ms: f64,
    strict: bool,
}

/// Which kinds of source a key acts on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Trace,
    TraceOrList,
    Synthetic,
}

impl<'s, 'a> Block<'s, 'a> {
    fn read(section: &'s Section<'a>) -> Self {
        let format = section.choice("trace_format").or(TraceFormat::Mooncake);
        let usual = TraceSource::new(PathBuf::new(), format);
        Self {
            section,
            format,
            trace_columns: section.section("trace_columns", columns).optional().flatten(),
            trace_block_size: section.integer("trace_block_size", 1..=MOST_TOKENS).or(usual.block_size),
            trace_time_unit: section
                .read("trace_time_unit", |value| time_unit(&value, format))
                .or(usual.time_unit),
            trace_sessions: section.boolean("trace_sessions").or(false),
            max_requests: section.integer("max_requests", 1..=u32::MAX).optional(),
            zero_output: section.choice("zero_output").or(ZeroOutput::Drop),
            arrival_speedup_ratio: section.float("arrival_speedup_ratio", Limit::Scale).or(1.0),
            replay_concurrency: section.integer("replay_concurrency", 1..=u32::MAX).optional(),
            arrival: section.section("arrival", arrival).optional().flatten().unwrap_or_default(),
            shared_prefix_ratio: section.float("shared_prefix_ratio", Limit::Share).or(0.0),
            num_prefix_groups: section.integer("num_prefix_groups", 0..=u32::MAX).or(0),
            turns_per_session: section.integer("turns_per_session", 1..=u32::MAX).or(1),
            inter_turn_delay_ms: section.float("inter_turn_delay_ms", Limit::Time).or(0.0),
            strict: section.boolean("strict").or(false),
        }
    }

    /// Looks for keys that would have no effect, those of `inert` origins.
    fn refuse(&self, missing: &str, inert: impl Fn(Origin) -> bool) {
        // Arrivals are made up for a trace that has none, too.
        let arrival_of = if self.makes_arrivals() { Origin::Trace } else { Origin::Synthetic };
        let keys = [
            (
                "trace_block_size",
                Origin::TraceOrList,
                self.trace_block_size != self.format.usual_block_size(),
            ),
            ("arrival_speedup_ratio", Origin::TraceOrList, self.arrival_speedup_ratio != 1.0),
            ("trace_time_unit", Origin::Trace, self.trace_time_unit != TraceTimeUnit::Ms),
            ("trace_columns", Origin::Trace, self.section.has("trace_columns")),
            ("trace_sessions", Origin::Trace, self.trace_sessions),
            ("max_requests", Origin::Trace, self.max_requests.is_some()),
            ("zero_output", Origin::Trace, self.zero_output != ZeroOutput::Drop),
            ("strict", Origin::Trace, self.strict),
            ("arrival", arrival_of, self.arrival != Arrival::default()),
            ("shared_prefix_ratio", Origin::Synthetic, self.shared_prefix_ratio != 0.0),
            ("num_prefix_groups", Origin::Synthetic, self.num_prefix_groups != 0),
            ("turns_per_session", Origin::Synthetic, self.turns_per_session != 1),
            ("inter_turn_delay_ms", Origin::Synthetic, self.inter_turn_delay_ms != 0.0),
        ];
        let rules = keys.map(|(key, origin, says_something)| {
            Rule::refusing(key, says_something, !inert(origin), missing)
        });
        self.section.check_inert(rules);
        // The reference takes it beside any workload, and ignores it.
        let format = self.section.has("trace_format");
        self.section.check_inert([Rule::telling("trace_format", format, !inert(Origin::Trace), missing)]);
    }

    /// Whether a trace is given for which arrivals are made up.
    fn makes_arrivals(&self) -> bool {
        self.section.has("trace_path") && self.format.takes_rate() && self.section.has("request_rate")
    }

    fn search_workload(&self, kind: Kind) -> Option<SearchWorkload> {
        let load = if self.section.has("trace_path") { self.trace(kind) } else { self.synthetic(kind) };
        Some(SearchWorkload { load: load?, strict: self.strict })
    }

    fn check_pace(&self) {
        self.section.check_inert([Rule::refusing(
            "arrival_speedup_ratio",
            self.arrival_speedup_ratio != 1.0,
            self.replay_concurrency.is_none(),
            "with `replay_concurrency`, which ignores arrival times",
        )]);
    }

    fn trace(&self, kind: Kind) -> Option<LoadShape> {
        let section = self.section;
        let path = section.read("trace_path", |value| value.path()).required();
        let takes_rate = self.format.takes_rate();
        let of_others = |key: &&&'static str| section.has(key) && !(takes_rate && **key == "request_rate");
        for key in OF_SYNTHETIC.iter().chain(kind.loads()).filter(of_others) {
            section.problem(key, "is for generated requests and is given beside `trace_path`");
        }
        self.refuse("on a trace: it is for generated requests", |origin| origin == Origin::Synthetic);
        self.check_form();
        self.check_pace();
        let rate = if takes_rate { self.rate() } else { None };
        Some(LoadShape::Trace(SearchTrace {
            source: TraceSource {
                path: path?,
                format: self.format,
                block_size: self.trace_block_size,
                time_unit: self.trace_time_unit,
                sessions: self.trace_sessions,
                columns: self.trace_columns.clone(),
                rate,
                max_requests: self.max_requests,
            },
            arrival_speedup_ratio: self.arrival_speedup_ratio,
            replay_concurrency: self.replay_concurrency,
            zero_output: self.zero_output,
        }))
    }

    /// Looks for keys that mean nothing in the form of the trace.
    fn check_form(&self) {
        let usual = TraceSource::new(PathBuf::new(), self.format);
        let without = |what: &str| format!("with this `trace_format`, which {what}");
        let format = self.format;
        let has_columns = self.section.has("trace_columns");
        if format == TraceFormat::Columns && !has_columns {
            let message = "`trace_format: columns` needs `trace_columns`: which column is `input_length`, which `output_length`, and \
                           which `arrival` if there is one";
            self.section.own_problem(message);
        }
        self.section.check_inert([
            Rule::refusing(
                "trace_columns",
                has_columns,
                format == TraceFormat::Columns,
                without("has names of its own for its columns; `columns` takes yours"),
            ),
            Rule::refusing(
                "trace_block_size",
                self.trace_block_size != usual.block_size,
                format.has_block_size(),
                without("has no blocks or says itself how long they are"),
            ),
            Rule::refusing(
                "trace_time_unit",
                self.trace_time_unit != usual.time_unit,
                format.usual_time_unit().is_some() && !self.lacks_times(),
                without("has no time stamps or says itself what they count"),
            ),
            Rule::refusing(
                "trace_sessions",
                self.trace_sessions,
                format.has_optional_sessions(),
                without("has no sessions or always keeps them"),
            ),
        ]);
    }

    /// Whether the trace has no time stamps, as far as can be told without looking into it.
    fn lacks_times(&self) -> bool {
        let no_arrivals = |columns: &TraceColumns| columns.arrival.is_none();
        self.format == TraceFormat::Lengths || self.trace_columns.as_ref().is_some_and(no_arrivals)
    }

    /// Arrivals are drawn in some processes only.
    fn seed_rule(&self) -> Rule<'static> {
        Rule::refusing(
            "arrival.seed",
            self.section.has("request_rate") && self.arrival.seed != Arrival::default().seed,
            matches!(self.arrival.process, ArrivalProcess::Poisson | ArrivalProcess::Gamma { .. }),
            "without `process: poisson` or `gamma`: nothing else is drawn",
        )
    }

    /// The made-up arrivals of a trace that may be without time stamps.
    fn rate(&self) -> Option<TraceRate> {
        let section = self.section;
        section.check_inert([self.seed_rule()]);
        let request_rate = section.float("request_rate", Limit::Scale).optional();
        if request_rate.is_some() && self.replay_concurrency.is_some() {
            section
                .problem("request_rate", "is given beside `replay_concurrency`, which ignores arrival times");
        }
        if self.trace_columns.as_ref().is_some_and(|columns| columns.arrival.is_some())
            && section.has("request_rate")
        {
            section.problem(
                "request_rate",
                "is given beside `trace_columns.arrival`, which says when requests arrive",
            );
        }
        if self.lacks_times() && !section.has("request_rate") && self.replay_concurrency.is_none() {
            let trace = match self.format {
                TraceFormat::Lengths => "`trace_format: lengths`",
                _ => "a trace without `trace_columns.arrival`",
            };
            section.own_problem(format!(
                "{trace} has no time stamps: give a `request_rate`, or a `replay_concurrency`"
            ));
        }
        Some(TraceRate { request_rate: request_rate?, arrival: self.arrival })
    }

    fn synthetic(&self, kind: Kind) -> Option<LoadShape> {
        let section = self.section;
        let isl = section.integer("isl", 1..=MOST_TOKENS).required();
        let osl = section.integer("osl", 1..=MOST_TOKENS).required();
        let ratio = section.float("num_request_ratio", Limit::Scale).required();
        let request_rate = section.float("request_rate", Limit::Scale).optional();
        let concurrency = section.integer("concurrency", 1..=u32::MAX).optional();
        let kv_load_ratio = match kind {
            Kind::Scenario => None,
            Kind::Search { .. } => section.read("kv_load_ratio", |value| kv_load_ratio(&value)).optional(),
        };
        self.check_synthetic();
        let load = self.only_load(kind);
        if matches!(kv_load_ratio, Some(KvLoadRatio::Range(_))) && kind == (Kind::Search { pareto: false }) {
            let message = "a range is only allowed when `goal.target` is `pareto`; give one number";
            section.problem("kv_load_ratio", message);
        }
        let requests = SyntheticRequests {
            isl: isl?,
            osl: osl?,
            num_request_ratio: ratio?,
            shared_prefix_ratio: self.shared_prefix_ratio,
            num_prefix_groups: self.num_prefix_groups,
            turns_per_session: self.turns_per_session,
            inter_turn_delay_ms: self.inter_turn_delay_ms,
        };
        Some(match load? {
            "request_rate" => {
                let request_rate = request_rate?;
                self.check_count(&requests, "request_rate", request_rate);
                LoadShape::Rate { request_rate, arrival: self.arrival, requests }
            }
            "concurrency" => {
                let concurrency = concurrency?;
                self.check_count(&requests, "concurrency", f64::from(concurrency));
                LoadShape::Concurrency { concurrency, requests }
            }
            _ => {
                let whole_range = KvLoadRatio::Range([0.0, 1.0]);
                let given = section.has("kv_load_ratio");
                // How many are in flight depends on the candidate; one is the least.
                self.check_count(&requests, "kv_load_ratio", 1.0);
                LoadShape::KvLoad {
                    kv_load_ratio: if given { kv_load_ratio? } else { whole_range },
                    requests,
                }
            }
        })
    }

    /// The one load that is given; a frontier may leave it out and then searches KV loads.
    fn only_load(&self, kind: Kind) -> Option<&'static str> {
        let section = self.section;
        let given: Vec<&'static str> = kind.loads().iter().copied().filter(|key| section.has(key)).collect();
        match given.as_slice() {
            [only] => Some(*only),
            [] if kind == (Kind::Search { pareto: true }) => Some("kv_load_ratio"),
            [] => {
                let one = kind.one_of_loads();
                section.own_problem(format!("{one} is needed, or a `trace_path`, but none is given"));
                None
            }
            [first, rest @ ..] => {
                for key in rest {
                    let message =
                        format!("`{key}` is given beside `{first}`, but {} may be set", kind.one_of_loads());
                    section.problem_between(&[first, key], message);
                }
                None
            }
        }
    }

    fn check_synthetic(&self) {
        let section = self.section;
        if self.replay_concurrency.is_some() {
            section.problem("replay_concurrency", "is for traces; generated requests take `concurrency`");
        }
        self.refuse("on generated requests: it is for traces", |origin| {
            matches!(origin, Origin::Trace | Origin::TraceOrList)
        });
        section.check_inert([
            Rule::refusing(
                "arrival",
                self.arrival != Arrival::default(),
                section.has("request_rate"),
                "without `request_rate`: a closed loop makes its own arrivals",
            ),
            self.seed_rule(),
            Rule::refusing(
                "shared_prefix_ratio",
                self.shared_prefix_ratio > 0.0,
                self.num_prefix_groups > 0,
                "while `num_prefix_groups` is 0",
            ),
            Rule::refusing(
                "num_prefix_groups",
                self.num_prefix_groups > 0,
                self.shared_prefix_ratio > 0.0,
                "while `shared_prefix_ratio` is 0",
            ),
            Rule::refusing(
                "inter_turn_delay_ms",
                self.inter_turn_delay_ms > 0.0,
                self.turns_per_session > 1,
                "while `turns_per_session` is 1",
            ),
        ]);
    }

    /// What a machine can be expected to hold, at the least that the load comes to.
    fn check_count(&self, requests: &SyntheticRequests, load_key: &'static str, load: f64) {
        if let Some(excess) = requests.excess(load) {
            let keys = ["turns_per_session", load_key, "num_request_ratio"];
            let given: Vec<&str> = keys.into_iter().filter(|key| self.section.has(key)).collect();
            self.section.problem_between(&given, excess);
        }
    }
}
