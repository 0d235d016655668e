//! Our figures, made from the stamps of the reference's requests, against the figures that it gave itself.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;
use spica::report::Summary;
use spica::report::record::{Counters, PassTimeline, PoolRecord, RequestRecord, Role, RunRecord, Status};
use spica::simulation::SimTime;
use spica::workload::{Prompt, Request, Workload};

/// Requests had no token in some pass between their first and last, and which is not told.
const TOKENS_NOT_KNOWN: [&str; 3] = ["tiny_kv_full", "tiny_kv_full_nocache", "tiny_sglang"];

/// Stamps are not whole nanoseconds: random arrivals.
const FRACTIONS: [&str; 1] = ["tiny_syn_rate"];

/// Figures of the host, of what we do not model, or of what takes a simulation to know.
const NOT_COMPARED: [&str; 7] = [
    "wall_time_ms",
    "processed_tokens_per_s",
    "processed_output_tokens_per_s",
    "kv_eviction_policy",
    "power_w",
    "power_coverage",
    "committed_prefill_tokens",
];

/// Worker and data-parallel rank of a pass or a request.
type Place = (u64, u64);

/// One file of the reference.
struct Case {
    name: String,
    file: Value,
}

impl Case {
    fn rows(&self) -> &[Value] {
        self.file["report"]["per_request"].as_array().unwrap()
    }

    /// Data-parallel ranks of a worker.
    fn ranks(&self) -> u64 {
        self.file["inputs"]["launch"]["dp_size"].as_u64().unwrap_or(1)
    }

    fn workers(&self, key: &str) -> Option<u64> {
        self.file["inputs"]["kw"][key].as_u64()
    }

    /// Whether every stamp is a whole number of nanoseconds, as ours are.
    fn has_whole_stamps(&self) -> bool {
        let keys =
            ["arrival_time_ms", "first_admit_ms", "first_token_ms", "last_token_ms", "terminal_time_ms"];
        let times = self.rows().iter().flat_map(|row| keys.map(|key| row[key].as_f64())).flatten();
        times.map(|ms| ms * 1e6).all(|ns| (ns - ns.round()).abs() < 1e-3)
    }

    fn place(&self, row: &Value) -> Option<Place> {
        let scheduler = row["decode_worker_idx"].as_u64()?;
        Some((scheduler / self.ranks(), scheduler % self.ranks()))
    }

    fn record(&self) -> (RunRecord, Workload) {
        let rows = self.rows();
        let requests: Vec<RequestRecord> = rows.iter().map(request_record).collect();
        let end = requests.iter().filter_map(|request| request.terminal).max().unwrap();
        let workload = Workload { requests: rows.iter().map(asked).collect(), ..Workload::default() };
        let timelines = self.timelines().unwrap_or_default();
        let counters = Counters::default();
        (
            RunRecord { requests, timelines, pools: self.pools(end), counters, end, ..RunRecord::default() },
            workload,
        )
    }

    /// The fleets of these files never change.
    fn pools(&self, end: SimTime) -> Vec<PoolRecord> {
        let gpus_per_worker = self.ranks() as u32;
        let pool = |role, workers: u64| {
            let worker_ns = u128::from(end.as_ns()) * u128::from(workers);
            PoolRecord { role, gpus_per_worker, worker_ns }
        };
        match (self.workers("num_prefill_workers"), self.workers("num_decode_workers")) {
            (Some(prefill), Some(decode)) => vec![pool(Role::Prefill, prefill), pool(Role::Decode, decode)],
            _ => vec![pool(Role::Agg, self.workers("num_workers").unwrap_or(1))],
        }
    }

    /// The passes of each rank and the gaps at them; `None` if some request skipped a pass between its first and
    /// last token.
    fn timelines(&self) -> Option<Vec<PassTimeline>> {
        let mut ends = self.seen_passes();
        for row in self.rows() {
            // The pass that ends the run was not seen, but its tokens were.
            if let (Some(place), Some(last)) = (self.place(row), ns(&row["last_token_ms"])) {
                ends.entry(place).or_default().insert(last);
            }
        }
        let mut timelines: BTreeMap<Place, PassTimeline> = BTreeMap::new();
        for (place, ends) in &ends {
            let ends = ends.iter().copied().map(SimTime::from_ns).collect();
            timelines.insert(*place, PassTimeline { ends, ..PassTimeline::default() });
        }
        for row in self.rows() {
            let (Some(place), Some(first)) = (self.place(row), ns(&row["first_token_ms"])) else { continue };
            let timeline = timelines.get_mut(&place)?;
            let index = |ns: u64| timeline.ends.binary_search(&SimTime::from_ns(ns)).ok();
            let (first, last) = (index(first)?, index(ns(&row["last_token_ms"])?)?);
            if (last - first + 1) as u64 != row["output_length"].as_u64()? {
                return None;
            }
            timeline.add_gaps(first as u32, last as u32);
        }
        Some(timelines.into_values().collect())
    }

    /// Ends of the passes that were seen: each starts where the one before ended or where something was stamped, and
    /// ends within half a millisecond before it was seen.
    fn seen_passes(&self) -> BTreeMap<Place, BTreeSet<u64>> {
        let stamps: BTreeSet<u64> = self
            .rows()
            .iter()
            .flat_map(|row| ["arrival_time_ms", "first_admit_ms", "decode_admit_ms"].map(|key| ns(&row[key])))
            .flatten()
            .collect();
        let mut ends: BTreeMap<Place, BTreeSet<u64>> = BTreeMap::new();
        for pass in self.file["forward_passes"]["rows"].as_array().unwrap() {
            if pass[1] != "decode" {
                continue;
            }
            let place = (pass[2].as_u64().unwrap(), pass[3].as_u64().unwrap());
            let (seen, duration) = (ns(&pass[0]).unwrap(), (pass[4].as_f64().unwrap() * 1e9).round() as u64);
            let ends = ends.entry(place).or_default();
            let before = ends.last().copied().unwrap_or(0);
            let end = std::iter::once(before)
                .chain(stamps.iter().copied())
                .map(|start| start + duration)
                .find(|end| (seen.saturating_sub(500_000)..=seen).contains(end))
                .unwrap_or_else(|| panic!("{}: no start for the pass seen at {seen} ns", self.name));
            ends.insert(end);
        }
        ends
    }
}

fn ns(ms: &Value) -> Option<u64> {
    Some((ms.as_f64()? * 1e6).round() as u64)
}

fn time(ms: &Value) -> Option<SimTime> {
    ns(ms).map(SimTime::from_ns)
}

fn number(value: &Value) -> u32 {
    value.as_u64().unwrap().try_into().unwrap()
}

fn request_record(row: &Value) -> RequestRecord {
    assert_eq!(row["terminal_status"], "completed");
    let first_token = time(&row["first_token_ms"]);
    let second = row["ttst_ms"].as_f64().map(|ttst| row["first_token_ms"].as_f64().unwrap() + ttst);
    RequestRecord {
        status: Status::Completed,
        output_tokens: number(&row["output_length"]),
        first_reused_tokens: number(&row["admission_history"][0]["reused_input_tokens"]),
        max_reused_tokens: number(&row["reused_input_tokens"]),
        admissions: number(&row["admission_count"]),
        arrival: time(&row["arrival_time_ms"]),
        first_admit: time(&row["first_admit_ms"]),
        first_token,
        second_token: time(&second.into()),
        last_token: time(&row["last_token_ms"]),
        terminal: time(&row["terminal_time_ms"]),
        ..RequestRecord::default()
    }
}

fn asked(row: &Value) -> Request {
    Request {
        arrival: SimTime::ZERO,
        delay: spica::simulation::SimDuration::ZERO,
        input_length: number(&row["input_length"]),
        output_length: number(&row["requested_output_length"]),
        prompt: Prompt { first_chunk: 0, chunks: 0, tokens_per_chunk: 512 },
        session: 0,
        turn: 0,
        next_turn: None,
        dp_rank: None,
        name: None,
    }
}

fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/oracle");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("tiny_"))
        .collect();
    files.sort();
    let case = |path: &std::path::PathBuf| Case {
        name: path.file_stem().unwrap().to_str().unwrap().to_owned(),
        file: serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap(),
    };
    files.iter().map(case).collect()
}

/// Whether the figure is taken from pooled gaps, whose percentiles the reference only estimates to 0.1 %.
fn is_pooled(key: &str) -> bool {
    key.ends_with("_itl_ms") || key.ends_with("_per_user")
}

fn tolerance(case: &Case, key: &str) -> f64 {
    let is_percentile = key.starts_with('p') || key.starts_with("median_");
    match (is_pooled(key) && is_percentile, case.has_whole_stamps()) {
        (true, _) => 1.001e-3,
        (false, true) => 1e-9,
        // Half a nanosecond of a few milliseconds.
        (false, false) => 1e-7,
    }
}

#[test]
fn figures_equal_the_reference() {
    let cases = cases();
    assert_eq!(cases.len(), 25);
    let mut differences = Vec::new();
    for case in &cases {
        let (record, workload) = case.record();
        let summary = Summary::new(&record, &workload, None);
        let ours = serde_json::to_value(&summary).unwrap();
        let all_tokens_known = !TOKENS_NOT_KNOWN.contains(&case.name.as_str());
        assert_eq!(!record.timelines.is_empty(), all_tokens_known, "{}", case.name);
        assert_eq!(case.has_whole_stamps(), !FRACTIONS.contains(&case.name.as_str()), "{}", case.name);
        for (key, theirs) in case.file["report"]["summary"].as_object().unwrap() {
            if NOT_COMPARED.contains(&key.as_str()) || is_pooled(key) && !all_tokens_known {
                continue;
            }
            let theirs = theirs.as_f64().unwrap();
            match ours.get(key).map(Value::as_f64) {
                None => differences.push(format!("{}: {key} is missing", case.name)),
                // An empty population: theirs is an invented zero.
                Some(None) => {
                    let family = key.split_once('_').unwrap().1.trim_end_matches("_ms");
                    if theirs != 0.0 || summary.metric(&format!("num_{family}_samples")) != Some(0.0) {
                        differences.push(format!("{}: {key} is null, not {theirs}", case.name));
                    }
                }
                Some(Some(ours)) => {
                    let allowed = tolerance(case, key) * theirs.abs() + 1e-12;
                    // Their running deviations leave a residue in the last bits where the samples are equal.
                    let allowed = if key.starts_with("std_") { allowed.max(1e-9) } else { allowed };
                    if (ours - theirs).abs() > allowed {
                        differences.push(format!("{}: {key} is {ours}, not {theirs}", case.name));
                    }
                }
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
