//! Real requests with stamps of their own: a grid of pass times fitted to the first, errors on the others.
//!
//! The file tells when requests came, started and ended, not how long passes took. So a grid is looked for under which the
//! first requests of a replay end when they did: pass times that grow in straight lines with tokens, requests and
//! contexts, six numbers in all. Of the other requests nothing but arrivals and lengths enters.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;

use indexmap::IndexMap;
use serde_json::{Value, json};
use spica::config::scenario::{InlineRequest, Scenario, WorkloadConfig, WorkloadSource, ZeroOutput};
use spica::config::{self, Document};
use spica::registry::Registry;
use spica::serving::{self, ReplayLimits, Traffic};
use spica::timing::csv::{Csv, RowProblem, RowProblems};

use crate::Failure;
use crate::minimise::minimise;

/// The file of stamps in the folder of measurements, and that of the prompts' prefixes beside the folder.
const STAMPS: &str = "vllm_sharegpt_requests.csv";
const PREFIXES: &str = "traces/sharegpt300_llama3_hash16.jsonl";
/// Requests of a case that the grid is fitted to.
const FITTED: usize = 100;
const BLOCK_SIZE: u32 = 16;
/// How the engines were started.
const MAX_NUM_SEQS: u32 = 128;
const MAX_NUM_BATCHED_TOKENS: u32 = 2048;
/// More than all requests together need: these GPUs had room to spare.
const KV_BLOCKS: u32 = 65_536;

/// Times of one request.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_field_names, reason = "units come last in a name")]
struct Times {
    ttft_ms: f64,
    tpot_ms: f64,
    e2e_ms: f64,
}

impl Times {
    const NAMES: [&'static str; 3] = ["TTFT", "TPOT", "E2E"];

    fn all(self) -> [f64; 3] {
        [self.ttft_ms, self.tpot_ms, self.e2e_ms]
    }
}

/// One measured deployment.
struct Case {
    name: String,
    /// Attention-data-parallel ranks.
    ranks: u32,
    requests: Vec<InlineRequest>,
    measured: Vec<Times>,
}

/// Milliseconds of passes in straight lines.
#[derive(Clone, Copy, Debug)]
struct PassTimes {
    prefill_ms: f64,
    prefill_ms_per_token: f64,
    /// Per new token and token before it.
    prefill_ms_per_pair: f64,
    decode_ms: f64,
    decode_ms_per_request: f64,
    decode_ms_per_context_token: f64,
}

impl PassTimes {
    /// Where the search for the best begins: the logarithms of a large GPU's.
    fn start() -> Vec<f64> {
        [2.0_f64, 0.05, 1e-6, 10.0, 0.05, 2e-5].map(f64::ln).to_vec()
    }

    fn of_logarithms(logarithms: &[f64]) -> Self {
        let [
            prefill_ms,
            prefill_ms_per_token,
            prefill_ms_per_pair,
            decode_ms,
            decode_ms_per_request,
            decode_ms_per_context_token,
        ] = std::array::from_fn(|place| logarithms[place].exp());
        Self {
            prefill_ms,
            prefill_ms_per_token,
            prefill_ms_per_pair,
            decode_ms,
            decode_ms_per_request,
            decode_ms_per_context_token,
        }
    }

    /// The same as a table of passes, as somebody would have measured them.
    fn as_csv(self) -> String {
        let mut text = String::from("batch,new_tokens,prefix_tokens,context_tokens,latency_ms\n");
        for new in [1.0, 8.0, 64.0, 512.0, 2048.0] {
            for prefix in [0.0, 2048.0, 8192.0] {
                let ms = self.prefill_ms
                    + self.prefill_ms_per_token * new
                    + self.prefill_ms_per_pair * new * (prefix + new / 2.0);
                let _ = writeln!(text, "1,{new},{prefix},,{ms}");
            }
        }
        for batch in [1.0, 4.0, 16.0, 64.0, 128.0] {
            for context in [64.0, 512.0, 4096.0, 8192.0] {
                let ms = self.decode_ms
                    + self.decode_ms_per_request * batch
                    + self.decode_ms_per_context_token * batch * context;
                let _ = writeln!(text, "{batch},,,{context},{ms}");
            }
        }
        text
    }
}

/// A table of errors, as Markdown; nothing if the folder has no such file.
///
/// # Errors
/// Files that cannot be read and rows that are not understood.
pub(crate) fn report(folder: &Path) -> Result<String, Failure> {
    let path = folder.join(STAMPS);
    if !path.exists() {
        return Ok(String::new());
    }
    let mut out = format!(
        "\nRequests of ShareGPT, a grid fitted to the first {FITTED} of each case; errors in percent on the others: of the \
         mean, and mean of the absolute ones.\n\n| case | n |"
    );
    for name in Times::NAMES {
        let _ = write!(out, " {name} of mean | {name} absolute |");
    }
    out.push_str("\n|---|---:|---:|---:|---:|---:|---:|---:|\n");
    let prefixes = folder.parent().map(|beside| read_prefixes(&beside.join(PREFIXES))).transpose()?;
    for case in read(&path, &prefixes.unwrap_or_default())? {
        let replayed = Replayed::new(&case)?;
        let distance = |logarithms: &[f64]| {
            let times = replayed.times(PassTimes::of_logarithms(logarithms));
            times.map_or(f64::INFINITY, |times| {
                let errors = errors(&times[..FITTED], &case.measured[..FITTED]);
                errors.iter().map(|error| error.of_mean.abs() + error.absolute).sum()
            })
        };
        let best = minimise(distance, &PassTimes::start());
        let times = replayed.times(PassTimes::of_logarithms(&best))?;
        let _ = write!(out, "| {} | {} |", case.name, times.len() - FITTED);
        for Error { of_mean, absolute } in errors(&times[FITTED..], &case.measured[FITTED..]) {
            let _ = write!(out, " {:+.1} | {:.1} |", of_mean * 100.0, absolute * 100.0);
        }
        out.push('\n');
    }
    Ok(out)
}

/// How far times are from those that were measured, as shares of them.
#[derive(Clone, Copy, Debug)]
struct Error {
    of_mean: f64,
    absolute: f64,
}

/// The errors of each of the [`Times`].
fn errors(found: &[Times], measured: &[Times]) -> [Error; 3] {
    std::array::from_fn(|which| {
        let pairs = || found.iter().zip(measured).map(|(one, other)| (one.all()[which], other.all()[which]));
        let (found, wanted) = pairs().fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
        let absolute: f64 = pairs().map(|(one, other)| (one / other - 1.0).abs()).sum();
        Error { of_mean: found / wanted - 1.0, absolute: absolute / measured.len() as f64 }
    })
}

/// A case that can be replayed under one grid after another.
struct Replayed {
    scenario: Scenario,
    traffic: Traffic,
    registry: Registry,
}

impl Replayed {
    fn new(case: &Case) -> Result<Self, Failure> {
        let text = json!({
            "deployment": {
                "mode": "agg",
                "router": {"policy": "least_loaded"},
                "agg": {
                    "dp_size": case.ranks,
                    "engine": {
                        "backend": "vllm",
                        "block_size": BLOCK_SIZE,
                        "num_gpu_blocks": KV_BLOCKS,
                        "max_num_seqs": MAX_NUM_SEQS,
                        "max_num_batched_tokens": MAX_NUM_BATCHED_TOKENS,
                    },
                    "timing": {"model": "grid", "path": "fitted"},
                },
            },
            "workload": {"isl": 1, "osl": 1, "concurrency": 1, "num_request_ratio": 1},
        });
        let scenario = match config::load(&text.to_string(), Path::new("case"), &[]) {
            Ok(Document::Scenario(scenario)) => scenario,
            Ok(_) => return Err("a scenario was expected".into()),
            Err(error) => return Err(error.to_string().into()),
        };
        let workload = WorkloadConfig {
            source: WorkloadSource::Requests { requests: case.requests.clone(), block_size: BLOCK_SIZE },
            concurrency: None,
            arrival_speedup_ratio: 1.0,
            zero_output: ZeroOutput::Drop,
            strict: true,
        };
        let loaded = spica::workload::load(&workload, None, BLOCK_SIZE).map_err(|error| error.to_string())?;
        let traffic = Traffic::new(Arc::new(loaded.workload), BLOCK_SIZE);
        Ok(Self { scenario, traffic, registry: Registry::builtin() })
    }

    /// The times of all requests where passes take so long.
    fn times(&self, passes: PassTimes) -> Result<Vec<Times>, Failure> {
        let mut scenario = self.scenario.clone();
        let content: Arc<[u8]> = passes.as_csv().into_bytes().into();
        for file in scenario.deployment.pools_mut().flat_map(|pool| pool.timing.files_mut()) {
            file.content = Some(Arc::clone(&content));
        }
        let record = serving::replay(&scenario, &self.traffic, &self.registry, &ReplayLimits::default())
            .map_err(|error| error.to_string())?;
        let times = record.requests.iter().map(|request| {
            let (ttft, e2e) = request.ttft().zip(request.e2e()).ok_or("a request did not end")?;
            let tpot_ms = request.tpot_ms().unwrap_or_default();
            Ok(Times { ttft_ms: ttft.as_ms(), tpot_ms, e2e_ms: e2e.as_ms() })
        });
        times.collect()
    }
}

/// The prefix blocks of each request, by its place.
fn read_prefixes(path: &Path) -> Result<Vec<Value>, Failure> {
    let Ok(file) = File::open(path) else { return Ok(Vec::new()) };
    let rows = BufReader::new(file).lines().map(|line| Ok(serde_json::from_str(&line?)?));
    rows.collect()
}

/// The cases of a file of stamps. Requests whose lengths are those of the prefixes' file have its blocks.
fn read(path: &Path, prefixes: &[Value]) -> Result<Vec<Case>, Failure> {
    let name = path.display().to_string();
    let refuse = |problems| RowProblems { file: name.clone(), problems };
    let csv = Csv::read(BufReader::new(File::open(path)?), &["case"]).map_err(refuse)?;
    let mut cases: IndexMap<String, Case> = IndexMap::new();
    for row in &csv.rows {
        let text = |name: &str| csv.column(name).map_or("", |place| row.fields[place].as_str());
        let number = |name: &str| -> Result<f64, Failure> {
            let bad = format!("{name}: `{}` is not a number", text(name));
            text(name).parse().map_err(|_| refuse(vec![RowProblem::new(row.line, bad)]).into())
        };
        let case = cases.entry(text("case").to_owned()).or_insert_with(|| Case {
            name: format!("{}, {}, {}", text("model"), text("hardware"), text("parallelism")),
            ranks: ranks(text("parallelism")),
            requests: Vec::new(),
            measured: Vec::new(),
        });
        let input_length = number("input_tokens")? as u32;
        let prefix = prefixes.get(case.requests.len()).filter(|row| row["input_length"] == input_length);
        case.requests.push(InlineRequest {
            arrival_ms: Some(number("arrival_ms")?),
            input_length: Some(input_length),
            output_length: number("output_tokens")? as u32,
            hash_ids: prefix.and_then(|row| row["hash_ids"].as_array()?.iter().map(Value::as_u64).collect()),
            ..InlineRequest::default()
        });
        case.measured.push(Times {
            ttft_ms: number("ttft_ms")?,
            tpot_ms: number("tpot_ms")?,
            e2e_ms: number("e2e_ms")?,
        });
    }
    if let Some(short) = cases.values().find(|case| case.requests.len() <= FITTED) {
        return Err(format!("{name}: {}: more than {FITTED} requests are needed", short.name).into());
    }
    Ok(cases.into_values().collect())
}

/// Data-parallel ranks in a description such as `TP1` or `DP2_EP2`.
fn ranks(parallelism: &str) -> u32 {
    let digits = parallelism.split_once("DP").map_or("", |(_, rest)| rest);
    let end = digits.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_read_from_descriptions() {
        for (text, number) in [("TP1", 1), ("DP2_EP2", 2), ("TP4 x DP16", 16), ("DP", 1)] {
            assert_eq!(ranks(text), number, "{text}");
        }
    }

    #[test]
    fn a_grid_is_found_again_from_the_times_of_its_requests() {
        let requests: Vec<InlineRequest> = (0..200)
            .map(|place| InlineRequest {
                arrival_ms: Some(f64::from(place) * 90.0),
                input_length: Some(200 + place * 37 % 1500),
                output_length: 20 + place * 13 % 200,
                ..InlineRequest::default()
            })
            .collect();
        let case = Case { name: "made up".into(), ranks: 1, requests, measured: Vec::new() };
        let replayed = Replayed::new(&case).unwrap();
        let truth = [3.0_f64, 0.04, 2e-6, 14.0, 0.08, 1e-5].map(f64::ln);
        let wanted = replayed.times(PassTimes::of_logarithms(&truth)).unwrap();
        let distance = |logarithms: &[f64]| {
            let times = replayed.times(PassTimes::of_logarithms(logarithms)).unwrap();
            errors(&times[..FITTED], &wanted[..FITTED]).iter().map(|error| error.absolute).sum()
        };
        let best = minimise(distance, &PassTimes::start());
        let found = replayed.times(PassTimes::of_logarithms(&best)).unwrap();
        for (error, name) in errors(&found[FITTED..], &wanted[FITTED..]).iter().zip(Times::NAMES) {
            assert!(error.of_mean.abs() < 0.05, "{name}: {error:?}");
            // When a single request meets its first pass hangs on the ends of all passes before.
            assert!(name == "TTFT" || error.absolute < 0.05, "{name}: {error:?}");
        }
    }
}
