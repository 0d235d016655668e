//! KV caches that are sized by a memory model.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use serde_json::Value;

use super::cli_command::Workplace;

/// MiniMax-M2.5 on four B200 by its profile; the reference finds room for 3,512,879 tokens.
const PROFILED: &str = "\
deployment:
  mode: agg
  agg:
    tensor_parallel_size: 4
    engine: {backend: vllm, block_size: 64}
    timing: {model: profile, model_name: MiniMaxAI/MiniMax-M2.5, hardware_sku: b200_sxm, moe_tp: 1, moe_ep: 4}
workload: {requests: [{arrival_ms: 0, input_length: 100, output_length: 3}]}
";

fn report(place: &Workplace, sets: &[&str]) -> Value {
    let sets = sets.iter().flat_map(|set| ["--set", set]);
    let arguments: Vec<&str> = ["replay", "scenario.yaml", "--format=json"].into_iter().chain(sets).collect();
    place.run(&arguments).ending(0).json()
}

#[test]
fn a_profile_sizes_the_cache_and_the_report_says_so() {
    let place = Workplace::with("scenario.yaml", PROFILED);
    let report = |sets: &[&str]| report(&place, sets);
    let answer = report(&[]);
    let capacity = &answer["capacity"]["agg"];
    assert_eq!(
        (&capacity["source"], &capacity["num_gpu_blocks"]),
        (&"profile".into(), &(3_512_879 / 64).into())
    );
    assert_eq!(capacity["capacity_bytes"], 193_273_528_320_u64);
    assert_eq!(capacity["kv_bytes_per_token"], 31_744);
    let figure = |key: &str| capacity[key].as_u64().unwrap();
    assert_eq!(figure("available_bytes") - figure("needed_bytes"), figure("kv_bytes"));
    assert_eq!(answer["scenario"]["deployment"]["agg"]["engine"]["num_gpu_blocks"], Value::Null);

    let half = report(&["deployment.agg.engine.gpu_memory_utilization=0.5"]);
    assert!(half["capacity"]["agg"]["num_gpu_blocks"].as_u64() < capacity["num_gpu_blocks"].as_u64());
    let given = report(&["deployment.agg.engine.num_gpu_blocks=100"]);
    assert_eq!(given["capacity"], Value::Null);
    assert_eq!(given["scenario"]["deployment"]["agg"]["engine"]["num_gpu_blocks"], 100);
}

#[test]
fn no_room_is_refused_with_what_is_needed_and_what_there_is() {
    let place = Workplace::with("scenario.yaml", PROFILED);
    let refused = |set: &str, words: &[&str]| {
        place.run(&["replay", "scenario.yaml", "--set", set]).refusing(words);
    };
    refused(
        "deployment.agg.engine.gpu_memory_utilization=0.3",
        &[
            "deployment.agg.engine.num_gpu_blocks: no room",
            "GiB per GPU are needed",
            "54.0 GiB are available of 180.0",
        ],
    );
    refused("deployment.agg.engine.max_num_batched_tokens=null", &["max_num_batched_tokens", "memory model"]);
    refused("deployment.agg.engine.max_model_len=4000000", &["max_model_len", "does not fit"]);
}

#[test]
fn sizes_of_model_and_gpu_do_without_a_profile() {
    let memory = "memory: {model_name: Qwen/Qwen3-32B, hardware_sku: h200_sxm}";
    let scenario = format!(
        "deployment:\n  mode: agg\n  agg:\n    {memory}\n{}",
        "workload: {requests: [{arrival_ms: 0, input_length: 100, output_length: 3}]}\n"
    );
    let place = Workplace::with("scenario.yaml", &scenario);
    let answer = report(&place, &[]);
    let capacity = &answer["capacity"]["agg"];
    assert_eq!(
        (&capacity["source"], &capacity["num_gpu_blocks"]),
        (&"profile".into(), &(249_864 / 64).into())
    );
    let doubled = report(&place, &["deployment.agg.memory.model_name=Qwen/Qwen3-32B-FP8"]);
    assert_eq!(doubled["capacity"]["agg"]["source"], "closed_form");

    let refused = |set: &str, words: &[&str]| {
        place.run(&["replay", "scenario.yaml", "--set", set]).refusing(words);
    };
    refused(
        "deployment.agg.memory.hardware_sku=h20_sxm",
        &["memory", "`h20_sxm` is not known", "first: h200_sxm"],
    );
    refused(
        "deployment.agg.memory.model_name=meta-llama/Llama-3.1-405B",
        &["the weights alone exceed the memory"],
    );
    refused("deployment.agg.engine={num_gpu_blocks: 5}", &["deployment.agg.memory", "no effect"]);
    refused("deployment.agg.dp_size=2", &["is a dense model"]);
}

#[test]
fn a_gpu_of_ones_own_is_a_file_away() {
    let scenario = "\
facts: {hardware: [{name: my_gpu, path: my_gpu.json}]}
deployment:
  mode: agg
  agg: {memory: {model_name: Qwen/Qwen3-8B, hardware_sku: my_gpu}}
workload: {requests: [{arrival_ms: 0, input_length: 100, output_length: 3}]}
";
    let place = Workplace::with("scenario.yaml", scenario);
    let gpu = include_str!("../../src/model/hardware/l40s.json").replace("48305799168", "30000000000");
    place.write("my_gpu.json", &gpu);
    let answer = report(&place, &[]);
    assert_eq!(answer["capacity"]["agg"]["capacity_bytes"], 30_000_000_000_u64);
    assert_eq!(answer["scenario"]["facts"]["hardware"][0]["path"], "my_gpu.json");
}

#[test]
fn more_than_fits_is_served_with_a_warning() {
    let place = Workplace::with("scenario.yaml", PROFILED);
    let said = |sets: &[&str]| {
        let sets = sets.iter().flat_map(|set| ["--set", set]);
        let arguments: Vec<&str> = ["replay", "scenario.yaml"].into_iter().chain(sets).collect();
        place.run(&arguments).ending(0).stderr
    };
    let fits = said(&["deployment.agg.engine.num_gpu_blocks=54888"]);
    assert!(!fits.contains("warning"), "{fits}");
    let crowded = said(&["deployment.agg.engine.num_gpu_blocks=54889"]);
    for part in [
        "--set deployment.agg.engine.num_gpu_blocks=54889: warning: deployment.agg.engine.num_gpu_blocks: 54889 blocks of 64 tokens are more than fit",
        "GiB are available of 180.0 GiB; there is room for 54888",
    ] {
        assert!(crowded.contains(part), "{crowded}");
    }
    let sglang = said(&["deployment.agg.engine={backend: sglang}"]);
    assert!(sglang.contains("gpu_memory_utilization: 0.9 is more than the 0.8"), "{sglang}");
    let less = said(&["deployment.agg.engine={backend: sglang, gpu_memory_utilization: 0.8}"]);
    assert!(!less.contains("gpu_memory_utilization"), "{less}");

    let long = "workload={requests: [{arrival_ms: 0, input_length: 196600, output_length: 9}]}";
    let warned = said(&[long]);
    assert!(
        warned.contains("max_model_len: is not given, and 1 of 1 requests are longer than the 196608"),
        "{warned}"
    );
    let told = said(&[long, "deployment.agg.engine.max_model_len=196608"]);
    assert!(!told.contains("max_model_len: is not given"), "{told}");
}
