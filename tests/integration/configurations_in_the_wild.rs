//! The malformed configurations that are met in the wild, kind by kind: each is refused with what helps.

use std::path::Path;

use spica::config::{self, Override};

use super::cli_command::Workplace;

const SCENARIO: &str = "\
deployment: {mode: agg, agg: {workers: 1}}
workload: {isl: 10, osl: 2, concurrency: 2, num_request_ratio: 2}
";

const SEARCH: &str = "\
search_space:
  model_name: Qwen/Qwen3-32B
  hardware_sku: h200_sxm
  deployment_mode: [agg]
  parallel_configs: [{tp: 1, replicas: 1}]
  planner_scaling_policy: [disabled]
goal: {target: throughput}
workload: {isl: 10, osl: 2, concurrency: 2, num_request_ratio: 2}
";

/// Every kind of configuration: what it is, the text, and what becomes of it.
fn configurations() -> Vec<(&'static str, String, &'static [&'static str])> {
    let scenario = |from: &str, to: &str| SCENARIO.replace(from, to);
    let search = |from: &str, to: &str| SEARCH.replace(from, to);
    vec![
        (
            "a misspelt key",
            scenario("workers: 1", "workers: 1, engine: {max_num_seq: 4}"),
            &["max_num_seq", "did you mean", "max_num_seqs"],
        ),
        (
            "a key at the wrong level",
            format!("workers: 2\n{SCENARIO}"),
            &["unknown key `workers`", "deployment.agg.workers"],
        ),
        ("a key given twice", format!("{SCENARIO}workload: {{}}\n"), &["workload", ":3:", "line 2"]),
        ("a tab for indentation", scenario("deployment: {", "deployment:\n\t{"), &[":2", "tab"]),
        ("bad indentation", "deployment:\n    mode: agg\n  agg: {workers: 1}\n".into(), &[":3"]),
        ("a number in quotes", scenario("workers: 1", "workers: \"8\""), &["workers: 8"]),
        ("8k", scenario("isl: 10", "isl: 8k"), &["`8k` is not a whole number", "write `isl: 8000`"]),
        ("80GB", scenario("isl: 10", "isl: 80GB"), &["`80GB` is not a whole number"]),
        ("1_000", scenario("isl: 10", "isl: 1_000"), &["write `isl: 1000`"]),
        (
            "yes",
            scenario("workers: 1", "workers: 1, engine: {enable_prefix_caching: yes}"),
            &["enable_prefix_caching", "true"],
        ),
        ("null where it means nothing", scenario("workers: 1", "workers: null"), &["workers"]),
        ("an empty value", scenario("workers: 1", "workers:"), &["workers"]),
        (
            "a scalar for a list",
            search("deployment_mode: [agg]", "deployment_mode: agg"),
            &["write `deployment_mode: [agg]`"],
        ),
        ("a list for a scalar", scenario("workers: 1", "workers: [1]"), &["write `workers: 1`"]),
        (
            "an empty list",
            search("deployment_mode: [agg]", "deployment_mode: []"),
            &["must list at least one"],
        ),
        ("zero", scenario("concurrency: 2", "request_rate: 0"), &["request_rate", "0"]),
        ("a negative number", scenario("concurrency: 2", "request_rate: -1"), &["request_rate", "-1"]),
        ("not a number", scenario("concurrency: 2", "request_rate: .nan"), &["request_rate"]),
        ("infinite", scenario("concurrency: 2", "request_rate: .inf"), &["request_rate"]),
        (
            "a range that ends before it starts",
            search("concurrency: 2", "kv_load_ratio: [0.9, 0.1]"),
            &["[0.9, 0.1] is no range"],
        ),
        (
            "a range of nothing",
            search("concurrency: 2", "kv_load_ratio: [0.5, 0.5]"),
            &["[0.5, 0.5] is no range"],
        ),
        ("two loads", scenario("concurrency: 2", "concurrency: 2, request_rate: 3"), &["exactly one of"]),
        (
            "two pools of which one is missing",
            scenario("mode: agg, agg:", "mode: disagg, prefill:"),
            &["deployment.decode"],
        ),
        (
            "a pool without workers",
            scenario(
                "mode: agg, agg: {workers: 1}",
                "mode: disagg, prefill: {workers: 1}, decode: {workers: 0}",
            ),
            &["deployment.decode.workers", "0"],
        ),
        (
            "an unknown backend",
            scenario("workers: 1", "workers: 1, engine: {backend: vlm}"),
            &["did you mean `vllm`"],
        ),
        ("merge keys", format!("base: &b {{workers: 1}}\n{}", scenario("{workers: 1}", "{<<: *b}")), &["<<"]),
        ("two documents", format!("{SCENARIO}---\n{SCENARIO}"), &["document"]),
        (
            "an alias bomb",
            format!(
                "a: &a [1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e]\ng: [*f,*f,*f,*f,*f,*f,*f,*f]\n{SCENARIO}"
            ),
            &["alias"],
        ),
        ("an empty file", String::new(), &["deployment", "workload"]),
        ("a negative seed", format!("seed: -1\n{SCENARIO}"), &["`-1` is out of range"]),
        ("half a seed", format!("seed: 1.5\n{SCENARIO}"), &["`1.5` is not a whole number"]),
        (
            "a seed beyond 2^64",
            format!("seed: 18446744073709551616\n{SCENARIO}"),
            &["at most 18446744073709551615"],
        ),
        ("letters that only look right", scenario("workers", "w\u{43e}rkers"), &["U+043E"]),
        ("spaces that are none", scenario("workers: 1", "workers:\u{a0}1"), &["U+00A0"]),
        (
            "a version of the schema",
            format!("schema_version: 0\n{SCENARIO}"),
            &["unknown key `schema_version`"],
        ),
    ]
}

#[test]
fn every_kind_of_configuration() {
    for good in [SCENARIO, SEARCH] {
        load(good).unwrap_or_else(|problems| panic!("{problems}"));
    }
    for (kind, text, parts) in configurations() {
        let Err(message) = load(&text) else { panic!("{kind}: should be refused") };
        for part in parts.iter().chain(&["c.yaml"]) {
            assert!(message.contains(part), "{kind}: no {part:?} in\n{message}");
        }
    }
}

fn load(text: &str) -> Result<(), String> {
    let no_overrides: [Override; 0] = [];
    config::load(text, Path::new("c.yaml"), &no_overrides).map(drop).map_err(|problems| problems.to_string())
}

#[test]
fn models_gpus_and_files_that_are_not_there() {
    let place = Workplace::with("folder/search.yaml", SEARCH);
    let refused = |set: &str, parts: &[&str]| {
        place.run(&["search", "folder/search.yaml", "--set", set]).refusing(parts);
    };
    refused(
        "search_space.model_name=Qwen/Qwen3-33B",
        &["`Qwen/Qwen3-33B` is not known", "similar first: Qwen/Qwen3-32B"],
    );
    refused(
        "search_space.hardware_sku=H100-SXM5-80GB",
        &["`H100-SXM5-80GB` is not known", "similar first: h100_sxm"],
    );
    refused(
        "search_space.parallel_configs=[{tp: 3, replicas: 1}]",
        &["parallel_configs[0]", "a worker of 3 GPUs", "it may have 1, 2, 4, 8 or 16"],
    );
    let trace = |path: &str| {
        SCENARIO.replace(
            "{isl: 10, osl: 2, concurrency: 2, num_request_ratio: 2}",
            &format!("{{trace_path: {path}}}"),
        )
    };
    for (path, parts) in
        [("none.jsonl", ["folder/none.jsonl", "No such file"]), (".", ["folder/", "is a folder"])]
    {
        place.write("folder/scenario.yaml", &trace(path));
        place.run(&["replay", "folder/scenario.yaml"]).refusing(&parts);
    }
}

#[test]
fn results_of_another_version_are_refused() {
    let place =
        Workplace::with("run/report.json", "{\"schema_version\": 99, \"scenario\": {}, \"summary\": {}}");
    place
        .run(&["report", "run"])
        .refusing(&["run/report.json", "has schema_version 99; this program reads 1"]);
}
