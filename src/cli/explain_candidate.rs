//! `spica explain candidate`: which bounds a candidate is near, what came out the same, and what sets it apart from the next.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::path::Path;

use indexmap::IndexMap;
use serde_json::{Value, json};

use super::explain::Explanation;
use super::failure::Failure;
use super::results::{apart, candidate, differing, figure, is_frontier, objectives, search_result, shown};
use crate::report::ranking::{came_out_alike, different, gpus_in_words, left_out_of};
use crate::report::shortfalls::{shortfall_lines, shortfalls};

/// Figures of two neighbours in a ranking that are set side by side.
const COMPARED: [&str; 8] = [
    "output_throughput_tok_s",
    "goodput_output_throughput_tok_s",
    "attainment",
    "mean_ttft_ms",
    "mean_tpot_ms",
    "mean_e2e_latency_ms",
    "prefix_cache_reused_ratio",
    "gpu_hours",
];

/// A figure of a candidate and what it has to keep to.
struct Bound {
    name: String,
    value: f64,
    limit: f64,
    sense: Sense,
}

/// What a limit means.
#[derive(Clone, Copy)]
enum Sense {
    AtLeast,
    /// A count that never passes it and is held back where it comes up to it.
    Reached,
    /// The most GPUs at a time, where the limit is on those that a planner asks for: so many are there at the start, and others
    /// than asked for drain.
    Asked {
        start: f64,
    },
    /// Each request by itself is held to it, the figure is their mean; the share of them that met it, if it is known.
    PerRequest(Option<f64>),
}

impl Sense {
    fn sign(self) -> &'static str {
        match self {
            Self::Reached | Self::Asked { .. } => "at most",
            Self::AtLeast => "at least",
            Self::PerRequest(_) => "each at most",
        }
    }

    fn verdict(self, value: f64, limit: f64) -> Cow<'static, str> {
        // Averages are off by rounding.
        const SLACK: f64 = 1e-9;
        let used = match self {
            Self::Reached => return if value >= limit { "binds" } else { "has room" }.into(),
            Self::PerRequest(None) => return "for each request".into(),
            Self::PerRequest(Some(share)) => {
                return format!("met by {} % of all requests", figure(share * 100.0)).into();
            }
            Self::Asked { start } if start > limit => return "passed at the start".into(),
            Self::Asked { .. } if value > limit => return "binds; passed while workers drained".into(),
            Self::Asked { .. } => value / limit,
            Self::AtLeast => limit / value.max(f64::MIN_POSITIVE),
        };
        match used {
            used if used > 1.0 + SLACK => "missed",
            used if used >= 0.95 => "binds",
            _ => "has room",
        }
        .into()
    }

    fn met_by(self) -> Option<f64> {
        match self {
            Self::PerRequest(share) => share,
            _ => None,
        }
    }
}

/// Which bounds a candidate is near, and what sets it apart from the one behind it.
pub(super) fn explain(folder: &Path, rank: usize) -> Result<Explanation, Failure> {
    let result = search_result(folder)?;
    let one = candidate(folder, &result, rank)?;
    let candidates = result["candidates"].as_array().map_or(&[][..], Vec::as_slice);
    let numbered = || (1..).zip(candidates);
    let next = numbered().skip(rank).find(|(_, other)| !came_out_alike(one, other));
    let is_frontier = is_frontier(&result);
    let gpus = gpus_in_words(one);
    let mut text = if is_frontier {
        let count = candidates.len();
        format!("rank {rank} of {count} along the frontier: {} on {gpus}\n", objectives(one))
    } else {
        format!("rank {rank}: score {} on {gpus}\n", shown(&one["score"]))
    };
    text.extend(shortfall_lines(shortfalls(&result)).map(|line| line + "\n"));
    let bounds = bounds(one, &result["goal"]);
    if !bounds.is_empty() {
        text += "bounds\n";
    }
    for Bound { name, value, limit, sense } in &bounds {
        let (sign, verdict) = (sense.sign(), sense.verdict(*value, *limit));
        let _ = writeln!(
            text,
            "  {name:<28} {:>12}   {sign:<12} {:>10}   {verdict}",
            figure(*value),
            figure(*limit)
        );
    }
    let rows = bounds.iter().map(|Bound { name, value, limit, sense }| {
        let verdict = sense.verdict(*value, *limit);
        let mut row = json!({"bound": name, "value": value, "limit": limit, "verdict": verdict});
        if let Some(share) = sense.met_by() {
            row["met_by"] = share.into();
        }
        row
    });
    let rows: Vec<Value> = rows.collect();
    let alike: Vec<(usize, &Value)> =
        numbered().filter(|&(place, other)| place != rank && came_out_alike(one, other)).collect();
    text += &alike_text(one, &alike);
    let changes = next.map_or_else(Vec::new, |(_, next)| differing(&one["config"], &next["config"]));
    text += &match next {
        Some(next) => next_text(one, next, is_frontier, &changes),
        None if alike.iter().any(|&(place, _)| place > rank) => "no other result comes behind it\n".into(),
        None if is_frontier => "it is the last along the frontier\n".into(),
        None => "it is the last of the ranking\n".into(),
    };
    if let (None, Some(left_out)) = (next, left_out_of(&result)) {
        text += &(left_out + "\n");
    }
    let changes =
        changes.iter().map(|(path, own, other)| json!({"setting": path, "here": own, "there": other}));
    let worth = if is_frontier { "objectives" } else { "score" };
    let alike: Vec<usize> = alike.iter().map(|(place, _)| *place).collect();
    let json = json!({
        "incomplete": shortfalls(&result), "rank": rank, worth: one[worth], "used_gpus": one["used_gpus"],
        "avg_gpu": one["metrics"]["avg_gpu"], "peak_gpus": one["metrics"]["peak_gpus"], "bounds": rows,
        "alike": alike,
        "next": next.map(|(place, next)| {
            json!({"rank": place, worth: next[worth], "settings": changes.collect::<Vec<_>>()})
        }),
    });
    Ok(Explanation { text, json })
}

/// What sets a candidate apart from the next one that came out otherwise.
fn next_text(
    one: &Value,
    (place, next): (usize, &Value),
    is_frontier: bool,
    changes: &[(String, Value, Value)],
) -> String {
    let mut text = if is_frontier {
        format!("next along it is rank {place}: {}; settings that differ\n", objectives(next))
    } else {
        let gap = one["score"].as_f64().unwrap_or(0.0) - next["score"].as_f64().unwrap_or(0.0);
        format!("before rank {place} by {} in score; settings that differ\n", figure(gap))
    };
    for (path, own, other) in changes {
        let (own, other) = apart(own, other);
        let _ = writeln!(text, "  {path}: {own} here, {other} there");
    }
    text += "figures\n";
    for name in COMPARED {
        if let (Some(own), Some(other)) = (one["metrics"][name].as_f64(), next["metrics"][name].as_f64()) {
            let _ = writeln!(text, "  {name:<34} {:>12} here {:>12} there", figure(own), figure(other));
        }
    }
    text
}

/// What else came out as this candidate did, and the settings in which it differs.
fn alike_text(one: &Value, alike: &[(usize, &Value)]) -> String {
    let Some((first, _)) = alike.first() else { return String::new() };
    let others = match alike.len() {
        1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    let mut settings: IndexMap<String, (String, Vec<String>)> = IndexMap::new();
    for (_, other) in alike {
        for (path, own, there) in differing(&one["config"], &other["config"]) {
            let (own, there) = apart(&own, &there);
            settings.entry(path).or_insert_with(|| (own, Vec::new())).1.push(there);
        }
    }
    let mut text = format!("the same in every figure as rank {first}{others}; where these differ\n");
    for (path, (own, there)) in settings {
        let there = different(there.iter().map(String::as_str)).join(" or ");
        let _ = writeln!(text, "  {path}: {own} here, {there} there");
    }
    text
}

/// The bounds of a candidate.
fn bounds(candidate: &Value, goal: &Value) -> Vec<Bound> {
    let metric = |name: &str| candidate["metrics"][name].as_f64();
    let mut bounds = Vec::new();
    let used = candidate["used_gpus"].as_f64();
    let asked = Sense::Asked { start: used.unwrap_or(0.0) };
    for (key, name, gpus, sense) in [
        ("gpu_budget", "peak GPUs of the budget", metric("peak_gpus").or(used), asked),
        ("min_gpu_budget", "GPUs at least at the start", used, Sense::AtLeast),
    ] {
        if let (Some(bound), Some(gpus)) = (candidate["config"][key].as_f64(), gpus) {
            bounds.push(Bound { name: name.into(), value: gpus, limit: bound, sense });
        }
    }
    bounds.extend(bounds_of_planner(candidate));
    bounds.extend(bounds_of_engines(candidate));
    for (key, name, figure, share) in [
        ("ttft_ms", "mean TTFT (SLA)", "mean_ttft_ms", "ttft_attainment"),
        ("itl_ms", "mean TPOT (SLA)", "mean_tpot_ms", "itl_attainment"),
        ("e2e_ms", "mean E2E (SLA)", "mean_e2e_latency_ms", "e2e_attainment"),
    ] {
        if let (Some(bound), Some(value)) = (goal["sla"][key].as_f64(), metric(figure)) {
            let sense = Sense::PerRequest(metric(share));
            bounds.push(Bound { name: name.into(), value, limit: bound, sense });
        }
    }
    if let (Some(bound), Some(value)) = (goal["min_attainment"].as_f64(), metric("attainment")) {
        bounds.push(Bound { name: "attainment".into(), value, limit: bound, sense: Sense::AtLeast });
    }
    bounds
}

/// The limits of each pool's engines, beside the most that any of its ranks did.
fn bounds_of_engines(candidate: &Value) -> Vec<Bound> {
    let mut bounds = Vec::new();
    // Aggregated workers count as decode.
    for (pool, role) in [("agg", "decode"), ("prefill", "prefill"), ("decode", "decode")] {
        let engine = &candidate["scenario"]["deployment"][pool]["engine"];
        for (limit, peak, name) in [
            ("max_num_seqs", "peak_running_requests", "requests of a rank"),
            ("max_num_batched_tokens", "peak_batched_tokens", "tokens of a pass"),
        ] {
            let most = candidate["metrics"][format!("{role}_{peak}")].as_f64();
            // SGLang's chunks are an option of its own.
            let is_followed = limit == "max_num_seqs" || engine["backend"] != "sglang";
            if let (Some(limit), Some(most), true) = (engine[limit].as_f64(), most, is_followed) {
                bounds.push(Bound {
                    name: format!("{name} ({pool})"),
                    value: most,
                    limit,
                    sense: Sense::Reached,
                });
            }
        }
    }
    bounds
}

/// The bounds that a planner was given, beside what its fleet came to; a negative number bounds nothing.
fn bounds_of_planner(candidate: &Value) -> Vec<Bound> {
    let deployment = &candidate["scenario"]["deployment"];
    let metric = |name: &str| candidate["metrics"][name].as_f64();
    let bound = |key: &str| deployment["planner"][key].as_f64().filter(|bound| *bound >= 0.0);
    let start = candidate["used_gpus"].as_f64().unwrap_or(0.0);
    let mut bounds = Vec::new();
    for (key, name, gpus, sense) in [
        ("max_gpu_budget", "peak GPUs of the planner", metric("peak_gpus"), Sense::Asked { start }),
        ("min_gpu_budget", "average GPUs of the planner", metric("avg_gpu"), Sense::AtLeast),
    ] {
        if let (Some(bound), Some(gpus)) = (bound(key), gpus) {
            bounds.push(Bound { name: name.into(), value: gpus, limit: bound, sense });
        }
    }
    let duration_s = metric("duration_ms").map(|duration_ms| duration_ms / 1000.0);
    // Aggregated workers count as decode.
    for (pool, seconds) in [
        ("agg", "decode_worker_seconds"),
        ("prefill", "prefill_worker_seconds"),
        ("decode", "decode_worker_seconds"),
    ] {
        let least = bound(&format!("{pool}_min_endpoint")).or_else(|| bound("min_endpoint"));
        if let (true, Some(least), Some(worker_s), Some(duration_s)) =
            (deployment[pool].is_object(), least, metric(seconds), duration_s.filter(|s| *s > 0.0))
        {
            bounds.push(Bound {
                name: format!("average workers ({pool})"),
                value: worker_s / duration_s,
                limit: least,
                sense: Sense::AtLeast,
            });
        }
    }
    bounds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_allow_for_rounding_and_counts_have_none() {
        let verdicts = [
            (Sense::AtLeast, 0.849_999_999_999_999_9, 0.85, "binds"),
            (Sense::AtLeast, 0.9, 0.85, "has room"),
            (Sense::AtLeast, 0.86, 0.85, "binds"),
            (Sense::AtLeast, 0.84, 0.85, "missed"),
            (Sense::Reached, 255.0, 256.0, "has room"),
            (Sense::Reached, 256.0, 256.0, "binds"),
            (Sense::Asked { start: 8.0 }, 16.0, 32.0, "has room"),
            (Sense::Asked { start: 8.0 }, 32.0, 32.0, "binds"),
            (Sense::Asked { start: 8.0 }, 33.0, 32.0, "binds; passed while workers drained"),
            (Sense::Asked { start: 40.0 }, 40.0, 32.0, "passed at the start"),
            (Sense::PerRequest(None), 33.0, 32.0, "for each request"),
            (Sense::PerRequest(Some(0.625)), 33.0, 32.0, "met by 62.5 % of all requests"),
        ];
        for (sense, value, limit, verdict) in verdicts {
            assert_eq!(sense.verdict(value, limit), verdict, "{value} {} {limit}", sense.sign());
        }
    }
}
