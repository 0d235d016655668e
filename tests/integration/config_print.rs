//! Resolved configurations load to themselves; overrides act like edits of the file.

use std::path::Path;

use proptest::prelude::*;
use serde_json::Value as Json;
use spica::config::{self, Document};

use crate::config::{SCENARIO, SEARCH, load, scenario, search};

/// Prints a document and loads it again as the same file.
fn assert_round_trip(document: &Document) {
    let document = document.with_paths_from(Path::new("folder"));
    let printed = document.to_yaml();
    match load(&printed, &[]) {
        Ok(again) => assert_eq!(again.with_paths_from(Path::new("folder")), document, "\n{printed}"),
        Err(problems) => panic!("{problems}\n{printed}"),
    }
}

#[test]
fn searches_load_to_themselves() {
    let trace = "search_space: {model_name: a, hardware_sku: b}\nworkload: {trace_path: ../t.jsonl, max_requests: 3}\n";
    for (text, overrides) in [
        (SEARCH, vec![]),
        (SEARCH, vec!["goal={target: pareto}", "workload.request_rate=null"]),
        (SEARCH, vec!["workload.request_rate=null", "workload.concurrency=3"]),
        (SEARCH, vec!["workload.arrival={process: gamma, smoothness: 0.5, seed: 18446744073709551615}"]),
        (SEARCH, vec!["goal={target: goodput, sla: {e2e_ms: 5}, min_attainment: 0.9}"]),
        (
            SEARCH,
            vec!["search_space.deployment_mode=[agg]", "search_space.parallel_configs=[{tp: 2}, {tp: 4}]"],
        ),
        (
            SEARCH,
            vec![
                "search_space.deployment_mode=[disagg]",
                "search_space.parallel_configs=[{prefill: {tp: 2}, decode: {tp: 4, attention_dp: 2}}]",
            ],
        ),
        (SEARCH, vec!["search_space.timing={model: fixed, prefill_ms: 1, decode_ms: 0.1}"]),
        (SEARCH, vec!["search_space.timing={model: grid, path: folder/g.csv}"]),
        (SEARCH, vec!["search_space.backend_version=1.10", "search_space.num_gpu_blocks=8"]),
        (SEARCH, vec!["search_space.num_g2_blocks=8", "search_space.kv_bytes_per_token=8"]),
        (
            SEARCH,
            vec![
                "search_space.router_mode=[{policy: kv_router, deep: {a: [1, 2.5, null, x, {b: true}]}}, 'true', '1']",
            ],
        ),
        (
            SEARCH,
            vec![
                "search_space.planner_scaling_policy=[load_180_5, {policy: mine, x: 1}, {enable_throughput_scaling: true, \
             enable_load_scaling: false, throughput_adjustment_interval_seconds: 9, \
             load_adjustment_interval_seconds: null}]",
            ],
        ),
        (SEARCH, vec!["search_space.load_predictor_candidates=[{load_predictor: kalman, kalman_r: 0.1}]"]),
        (
            SEARCH,
            vec![
                "sweep={sampler: {policy: mine, x: 1}, max_eval_seconds: null, fidelity: \
                       {fractions: [0.1, 0.3], keep: 0.5}}",
            ],
        ),
        (trace, vec![]),
        (
            trace,
            vec![
                "workload.replay_concurrency=4",
                "workload.strict=true",
                "workload.zero_output=prefill_only",
            ],
        ),
    ] {
        assert_round_trip(&load(text, &overrides).unwrap());
    }
}

#[test]
fn scenarios_load_to_themselves() {
    let disagg = "
deployment:
  mode: disagg
  planner: {policy: load_180_5, max_gpu_budget: 4}
  prefill: {timing: {model: profile, model_name: m, hardware_sku: h, moe_ep: 4}}
  decode: {timing: {model: grid, path: ../grid.csv}, engine: {max_num_seqs: null}}
  kv_transfer: {bandwidth_gbps: 50, bytes_per_token: 131072}
workload: {trace_path: /data/a.jsonl, arrival_speedup_ratio: 0.1}
sla: {ttft_ms: 100}
max_sim_time_ms: 1e6
";
    let requests = "
deployment: {mode: agg, agg: {}}
workload:
  requests:
    - {id: a, arrival_ms: 0, input_length: 8, output_length: 3, hash_ids: [18446744073709551615, 2]}
    - {id: '7', arrival_ms: 0.1, output_length: 3, input_token_ids: [1]}
";
    let generated = "deployment: {mode: agg, agg: {}}\nworkload: {isl: 8, osl: 3, request_rate: 0.3, num_request_ratio: 17}\n";
    for (text, overrides) in [
        (SCENARIO, vec![]),
        (SCENARIO, vec!["seed=18446744073709551615"]),
        (SCENARIO, vec!["deployment.agg.engine.backend=sglang"]),
        (SCENARIO, vec!["deployment.agg.engine={aic_nextn: 2, aic_nextn_accept_rates: [0.5, 0.25]}"]),
        (disagg, vec![]),
        (requests, vec![]),
        (generated, vec![]),
        (generated, vec!["workload.arrival={process: poisson}"]),
    ] {
        assert_round_trip(&load(text, &overrides).unwrap());
    }
}

#[test]
fn only_an_engine_that_has_them_prints_the_options_of_sglang() {
    assert!(!scenario(&[]).to_yaml().contains("sglang"));
    assert!(
        scenario(&["deployment.agg.engine.backend=sglang"]).to_yaml().contains("clip_max_new_tokens: 4096")
    );
}

#[test]
fn what_passes_pay_is_printed_where_prompts_are_computed() {
    let timing = "{timing: {model: profile, model_name: m, hardware_sku: h}}";
    let pools = [format!("deployment.prefill={timing}"), format!("deployment.decode={timing}")];
    let change = |name: &str, setting: &str| format!("deployment.{name}.{setting}");
    let pays = |name: &str, changes: &[String]| {
        let mut all = pools.to_vec();
        if name == "agg" {
            all = vec![format!("deployment.agg={timing}")];
        } else {
            all.extend(["deployment.mode=disagg".to_owned(), "deployment.agg=null".to_owned()]);
        }
        all.extend_from_slice(changes);
        let scenario = scenario(&all.iter().map(String::as_str).collect::<Vec<_>>()).to_json();
        let timing = &scenario["deployment"][name]["timing"];
        (timing["mixed_passes"].clone(), timing["uneven_prompts"].clone())
    };
    for name in ["agg", "prefill"] {
        assert_eq!(pays(name, &[]), ("shared".into(), "each".into()));
        let summed = change(name, "timing.mixed_passes=summed");
        assert_eq!(pays(name, std::slice::from_ref(&summed)), ("summed".into(), "mean".into()));
        let each = change(name, "timing.uneven_prompts=each");
        assert_eq!(pays(name, &[summed, each]), ("summed".into(), "each".into()));
        let null = change(name, "timing.mixed_passes=null");
        assert_eq!(pays(name, &[null]), ("shared".into(), "each".into()));
    }
    let first = change("agg", "engine={first_token_decode: true}");
    assert_eq!(pays("agg", std::slice::from_ref(&first)), ("summed".into(), "mean".into()));
    let shared = change("agg", "timing.mixed_passes=shared");
    assert_eq!(pays("agg", &[first, shared]), ("shared".into(), "each".into()));
    assert_eq!(pays("decode", &[]), (Json::Null, Json::Null));
    let timing = search(&[]).to_json()["search_space"]["timing"].clone();
    assert_eq!((&timing["mixed_passes"], &timing["uneven_prompts"]), (&"shared".into(), &"each".into()));
}

#[test]
fn the_memory_model_leaves_the_number_of_blocks_open() {
    let profile = scenario(&["deployment.agg.timing={model: profile, model_name: m, hardware_sku: h}"]);
    assert!(!profile.to_yaml().contains("num_gpu_blocks"));
}

#[test]
fn paths_start_from_the_file_and_those_of_overrides_do_not() {
    let path = |text: &str, origin: &str, overrides: &[&str]| {
        let overrides: Vec<_> = overrides.iter().map(|change| change.parse().unwrap()).collect();
        let document = config::load(text, Path::new(origin), &overrides).unwrap();
        document.to_json()["workload"]["trace_path"].as_str().unwrap().to_owned()
    };
    assert_eq!(path(SCENARIO, "a/b.yaml", &[]), "a/traces/a.jsonl");
    assert_eq!(path(SCENARIO, "b.yaml", &[]), "traces/a.jsonl");
    assert_eq!(path(SCENARIO, "a/b.yaml", &["workload.trace_path=c.jsonl"]), "c.jsonl");
    assert_eq!(path(SCENARIO, "a/b.yaml", &["workload={trace_path: /c.jsonl}"]), "/c.jsonl");
    let elsewhere = scenario(&[]).with_paths_from(Path::new("out")).to_json();
    assert_eq!(elsewhere["workload"]["trace_path"], "../folder/traces/a.jsonl");
    let from_anywhere =
        scenario(&["workload.trace_path=/c.jsonl"]).with_paths_from(Path::new("out")).to_json();
    assert_eq!(from_anywhere["workload"]["trace_path"], "/c.jsonl");
}

#[test]
fn an_override_wins_over_the_file_and_the_last_over_the_first() {
    let text = format!("seed: 5\n{SCENARIO}");
    let seed = |overrides: &[&str]| match load(&text, overrides) {
        Ok(Document::Scenario(scenario)) => scenario.seed,
        other => panic!("{other:?}"),
    };
    assert_eq!(seed(&[]), 5);
    assert_eq!(seed(&["seed=6"]), 6);
    assert_eq!(seed(&["seed=6", "seed=7"]), 7);
    assert_eq!(
        search(&["search_space={model_name: a, hardware_sku: b, gpu_budget: 3}"]).search_space.gpu_budget,
        3
    );
}

/// Texts that look a little like YAML.
const TEXTS: &str = r##"([a-z_]{1,12}|[:\-\[\]{}&*!|>'"#%@`,?]|[0-9.eE+-]{1,6}| |\n|\n  |\t|é|: ){0,40}"##;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever count a trial of a search comes to, its scenario is written with a ratio that gives it back.
    #[test]
    fn counts_survive_printing(count in 1_u32.., load in 1_u32..2_000_000) {
        let ratio = f64::from(count) / f64::from(load);
        prop_assert_eq!((ratio * f64::from(load)).round_ties_even(), f64::from(count));
    }

    /// Nothing that is thrown at the loader makes it panic.
    #[test]
    fn no_text_makes_it_panic(text in TEXTS) {
        for text in [text.clone(), format!("{SEARCH}{text}"), SCENARIO.replace("{}", &text)] {
            if let Err(problems) = load(&text, &[]) {
                prop_assert!(!problems.to_string().is_empty());
            }
        }
    }

    /// Nor does any value of any key.
    #[test]
    fn no_value_makes_it_panic(
        key in prop::sample::select(keys()),
        value in prop::sample::select(vec![
            "", "0", "1", "-1", "1.5", "1e300", "1e-300", "18446744073709551615", "4294967295", "x", "true", "[]", "{}",
            "[1]", "[x, x]", "{a: 1}", "[[1]]", "[{}]", "null", "'1'",
        ]),
    ) {
        for text in [SEARCH, SCENARIO] {
            if let Ok(document) = load(text, &[&format!("{key}={value}")]) {
                assert_round_trip(&document);
            }
        }
    }
}

/// The paths of all keys, as the schemas give them, with the first place of every list.
fn keys() -> Vec<String> {
    let documents = [search(&[]).to_json(), scenario(&[]).to_json()];
    let mut keys = Vec::new();
    for document in &documents {
        collect("", document, &mut keys);
    }
    keys
}

fn collect(path: &str, value: &serde_json::Value, keys: &mut Vec<String>) {
    for (key, value) in value.as_object().into_iter().flatten() {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        collect(&path, value, keys);
        keys.push(path);
    }
}
