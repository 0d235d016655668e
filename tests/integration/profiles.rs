//! `spica profiles`, and scenarios that a profile prices.

use std::fmt::Write;

use super::cli_command::Workplace;

const SCENARIO: &str = "
deployment:
  mode: agg
  agg:
    tensor_parallel_size: 4
    engine: {backend: vllm, num_gpu_blocks: 5000}
    timing: {model: profile, model_name: MiniMaxAI/MiniMax-M2.5, hardware_sku: b200_sxm, moe_ep: 4}
workload:
  requests:
    - {id: a, arrival_ms: 0, input_length: 8192, output_length: 3}
";

#[test]
fn a_profile_prices_the_passes_of_a_scenario() {
    let place = Workplace::with("scenario.yaml", SCENARIO);
    let answer = place.run(&["replay", "scenario.yaml", "--output-dir", "out"]).ending(0);
    assert!(!answer.stderr.contains("warning"), "{}", answer.stderr);
    let report = place.read_json("out/report.json");
    let timing = &report["timing"]["agg"];
    assert_eq!(timing["source"], "profile");
    assert_eq!(timing["id"], "m25_fp8_b200_vllm019_g4_tep");
    assert_eq!(timing["extrapolated_lookups"], 0);
    assert!(timing["digest"].as_str().is_some_and(|digest| digest.len() == 16));
    // One pass for the prompt and one for each further token, as `spica profiles query` prices them.
    let query = "deployment,phase,batch,new_or_context,prefix\n\
                 m25_fp8_b200_vllm019_tp4ep4,prefill,1,8192,0\n\
                 m25_fp8_b200_vllm019_tp4ep4,decode,1,8193,0\nm25_fp8_b200_vllm019_tp4ep4,decode,1,8194,\n";
    place.write("query.csv", query);
    let priced = place.run(&["profiles", "query", "query.csv"]).ending(0).stdout;
    let mut lines = priced.lines();
    let header = "deployment,phase,batch,new_or_context,prefix,latency_ms,source,extrapolated";
    assert_eq!(lines.next(), Some(header));
    let ms: Vec<f64> = lines
        .map(|line| {
            assert!(line.ends_with(",profile:m25_fp8_b200_vllm019_g4_tep,false"), "{line}");
            line.split(',').nth(5).and_then(|field| field.parse().ok()).expect("a number")
        })
        .collect();
    let mean = |name: &str| report["summary"][name].as_f64().expect("a number");
    assert!((mean("mean_ttft_ms") - ms[0]).abs() < 2e-6);
    assert!((mean("mean_tpot_ms") - f64::midpoint(ms[1], ms[2])).abs() < 2e-6);
}

#[test]
fn what_has_no_profile_is_refused_with_what_is_known() {
    let place = Workplace::with("scenario.yaml", SCENARIO);
    let refused = |set: &str, words: &[&str]| {
        place.run(&["replay", "scenario.yaml", "--set", set]).refusing(words);
    };
    refused(
        "deployment.agg.timing.model_name=MiniMax-M2.5",
        &["agg.timing.model_name", "MiniMaxAI/MiniMax-M2.5"],
    );
    refused(
        "deployment.agg.timing.hardware_sku=h100_sxm",
        &["agg.timing.hardware_sku", "known: h200_sxm, b200_sxm"],
    );
    refused("deployment.agg.timing.backend_version=0.20.0", &["agg.timing.backend_version", "0.19.0"]);
    refused("deployment.agg.tensor_parallel_size=3", &["deployment.agg.timing", "tp 3", "known: tp4"]);
    refused("deployment.agg.timing.moe_ep=null", &["agg.timing.moe_tp", "moe_ep4", "moe_tp4"]);
    refused(
        "deployment.agg.timing={model: profile, model_name: MiniMaxAI/MiniMax-M2.5, hardware_sku: b200_sxm, moe_tp: 8}",
        &["deployment.agg.timing", "moe_tp 8"],
    );
    refused("deployment.agg.timing.prefill_ms=1", &["belongs to `model: fixed`"]);
}

#[test]
fn suspect_numbers_are_pointed_out() {
    let place = Workplace::with("scenario.yaml", SCENARIO);
    let suspect = ["--set", "deployment.agg.timing.backend_version=0.24.0"];
    let run =
        |more: &[&str]| place.run(&[&["replay", "scenario.yaml"], &suspect[..], more].concat()).ending(0);
    let warned = run(&[]).stderr;
    assert!(
        warned
            .contains("warning: deployment.agg.timing: m25_fp8_b200_vllm024_g4_tep: its numbers are suspect")
    );
    assert!(!run(&["--quiet"]).stderr.contains("suspect"));
    let report = run(&["--format", "json"]).json();
    assert!(report["timing"]["agg"]["suspect"].as_str().is_some_and(|reason| reason.contains("fp8_block")));
}

#[test]
fn an_overhead_is_paid_by_every_pass() {
    let place = Workplace::with("scenario.yaml", SCENARIO);
    let e2e = |set: &str| {
        let arguments = ["replay", "scenario.yaml", "--format", "json", "--set", set];
        let report = place.run(&arguments).ending(0).json();
        report["summary"]["mean_e2e_latency_ms"].as_f64().expect("a number")
    };
    let with = e2e("deployment.agg.timing.pass_overhead_ms=2.5");
    assert!((with - e2e("deployment.agg.timing.pass_overhead_ms=0") - 3.0 * 2.5).abs() < 1e-5);
}

#[test]
fn profiles_are_listed_and_shown() {
    let place = Workplace::new();
    let families = place.run(&["profiles", "list"]).ending(0).stdout;
    assert!(families.contains("106 families, 909 profiles") && families.contains("m25_fp8_b200_vllm019 "));
    let found = place.run(&["profiles", "list", "minimax", "B200", "0.19", "dp4"]).ending(0).stdout;
    assert_eq!(found.lines().count(), 3, "{found}");
    let listed = place.run(&["profiles", "list", "llama-3.3", "--format", "json"]).ending(0).json();
    assert!(listed.as_array().is_some_and(|all| all.len() > 10));
    place.run(&["profiles", "list", "gpt-5"]).refusing(&["gpt-5"]);
    let shown = place.run(&["profiles", "show", "m25_fp8_b200_vllm019_tp4ep4"]).ending(0).stdout;
    assert!(shown.contains("kv_bytes_per_token         31744") && shown.contains("decode ms"), "{shown}");
    let shown =
        place.run(&["profiles", "show", "m25_fp8_b200_vllm019_g4_tep", "--format", "json"]).ending(0).json();
    assert_eq!(shown["memory"]["weights_bytes"], 57_257_558_016_u64);
    place.run(&["profiles", "show", "m25"]).refusing(&["`m25` is no profile", "m25_fp8"]);
}

#[test]
fn bad_rows_of_a_query_are_reported_together() {
    let place = Workplace::with(
        "q.csv",
        "deployment,phase,batch,new_or_context,prefix\nx,prefill,1,1,0\n\
                                          m25_fp8_b200_vllm019_tp4ep4,decode,0,7,0\n",
    );
    let refused = place.run(&["profiles", "query", "q.csv"]);
    refused.refusing(&["q.csv:2: deployment: `x`", "q.csv:3: batch: `0`"]);
    place.run(&["profiles", "query", "absent.csv"]).refusing(&["absent.csv"]);
    let row = "m25_fp8_b200_vllm019_tp4ep4,decode,1,1,9\n";
    place.write("twice.csv", &format!("deployment,phase,batch,batch,new_or_context\n{row}"));
    place
        .run(&["profiles", "query", "twice.csv"])
        .refusing(&["twice.csv:1: batch: stands in columns 3 and 4"]);
    place.write("priced.csv", &format!("deployment,phase,batch,new_or_context,latency_ms\n{row}"));
    place.run(&["profiles", "query", "priced.csv"]).refusing(&["priced.csv:1: latency_ms: an answer adds"]);
}

#[test]
fn measured_passes_with_a_column_twice_are_refused() {
    let twice = measured().replacen("prefix_tokens", "new_tokens", 1);
    let place = Workplace::with("twice.csv", &twice);
    let problem = "twice.csv:1: new_tokens: stands in columns 2 and 3";
    place.run(&["profiles", "check", "twice.csv"]).refusing(&[problem]);
}

/// Measured passes of both phases, on straight lines.
pub(super) fn measured() -> String {
    let mut text = String::from("batch,new_tokens,prefix_tokens,context_tokens,latency_ms\n");
    for (batch, new, prefix) in [1, 2].into_iter().flat_map(|batch| {
        [64, 512, 4096, 8192].into_iter().flat_map(move |new| [0, 4096].map(|prefix| (batch, new, prefix)))
    }) {
        let ms = 5.0 + 0.02 * f64::from(batch * new) + 1e-3 * f64::from(prefix);
        writeln!(text, "{batch},{new},{prefix},,{ms}").expect("a text grows");
    }
    for (batch, context) in
        [1, 8, 32, 128].into_iter().flat_map(|batch| [512, 4096, 16_384].map(|context| (batch, context)))
    {
        let ms = 4.0 + 0.05 * f64::from(batch) + 1e-6 * f64::from(batch * context);
        writeln!(text, "{batch},,,{context},{ms}").expect("a text grows");
    }
    text
}

#[test]
fn measured_passes_price_a_scenario() {
    let place = Workplace::with("scenario.yaml", SCENARIO);
    place.write("grid.csv", &measured());
    let grid = "deployment.agg.timing={model: grid, path: grid.csv}";
    place.run(&["replay", "scenario.yaml", "--set", grid, "--output-dir", "out"]).ending(0);
    let report = place.read_json("out/report.json");
    let timing = &report["timing"]["agg"];
    assert_eq!((&timing["source"], &timing["id"]), (&"grid".into(), &"grid.csv".into()));
    assert_eq!(timing["extrapolated_lookups"], 0);
    let mean = |name: &str| report["summary"][name].as_f64().expect("a number");
    assert!((mean("mean_ttft_ms") - (5.0 + 0.02 * 8192.0)).abs() < 1e-2);
    assert!((mean("mean_tpot_ms") - (4.05 + 8193.5e-6)).abs() < 1e-2);
    let checked = place.run(&["profiles", "check", "grid.csv", "--format", "json"]).ending(0).json();
    assert_eq!((&checked["prefill"]["points"], &checked["decode"]["points"]), (&16.into(), &12.into()));
    assert!(
        checked["decode"]["p90_left_out_percent"].as_f64().is_some_and(|percent| percent < 5.0),
        "{checked}"
    );
    assert!(place.run(&["profiles", "check", "grid.csv"]).ending(0).stdout.contains("digest"));

    let rows: Vec<String> = measured().lines().take(6).map(str::to_owned).collect();
    place.write("few.csv", &rows.join("\n"));
    let few = "deployment.agg.timing={model: grid, path: few.csv}";
    let words = ["few.csv: 5 prefill passes are too few", "0 decode passes are too few"];
    place.run(&["replay", "scenario.yaml", "--set", few]).refusing(&words);
    place.run(&["profiles", "check", "few.csv"]).refusing(&words);
    place
        .run(&["replay", "scenario.yaml", "--set", "deployment.agg.timing={model: grid, path: no.csv}"])
        .refusing(&["--set deployment.agg.timing=", ": deployment.agg.timing.path: no.csv: cannot be read"]);
    place.write("bad.csv", "batch,context_tokens,latency_ms\n1,x,1\n1,1,-1\n");
    place
        .run(&["profiles", "check", "bad.csv"])
        .refusing(&["bad.csv:2: context_tokens: `x`", "bad.csv:3: latency_ms"]);
}

#[test]
fn a_few_measurements_rescale_a_profile() {
    let place = Workplace::with("scenario.yaml", SCENARIO);
    let run = |sets: &[&str]| {
        let mut arguments = vec!["replay", "scenario.yaml", "--format", "json"];
        for set in sets {
            arguments.extend(["--set", set]);
        }
        place.run(&arguments).ending(0).json()
    };
    let mean = |report: &serde_json::Value, name: &str| report["summary"][name].as_f64().expect("a number");
    let plain = run(&[]);
    let ttft = mean(&plain, "mean_ttft_ms");
    place.write("one.csv", &format!("batch,new_tokens,prefix_tokens,latency_ms\n1,8192,0,{}\n", 1.5 * ttft));
    let scaled = run(&["deployment.agg.timing.rescale=one.csv"]);
    assert!((mean(&scaled, "mean_ttft_ms") / ttft - 1.5).abs() < 1e-6);
    assert!((mean(&scaled, "mean_tpot_ms") / mean(&plain, "mean_tpot_ms") - 1.0).abs() < 1e-6);
    let timing = &scaled["timing"]["agg"];
    assert!((timing["prefill_scale"].as_f64().expect("a number") - 1.5).abs() < 1e-6);
    assert_eq!(timing["decode_scale"], 1.0);
    let polynomial = "deployment.agg.timing={model: polynomial, rescale: one.csv}";
    place.run(&["replay", "scenario.yaml", "--set", polynomial]).refusing(&["rescale", "`model: profile`"]);
}

#[test]
fn what_has_no_profile_is_estimated() {
    let place = Workplace::with("scenario.yaml", SCENARIO);
    let run = |timing: &str, more: &[&str]| {
        let timing = format!("deployment.agg.timing={{model: roofline, {timing}}}");
        place
            .run(&[&["replay", "scenario.yaml", "--format", "json", "--set", timing.as_str()], more].concat())
    };
    let large = "model_name: meta-llama/Llama-3.1-405B, hardware_sku: b200_sxm, quantization: nvfp4";
    let answer = run(large, &[]).ending(0);
    assert!(
        answer.stderr.contains("a rough estimate") && answer.stderr.contains("15 to 50 %"),
        "{}",
        answer.stderr
    );
    let report = answer.json();
    let timing = &report["timing"]["agg"];
    assert_eq!(
        (&timing["source"], &timing["id"]),
        (&"roofline".into(), &"meta-llama/Llama-3.1-405B on b200_sxm".into())
    );
    assert!(timing["caution"].as_str().is_some_and(|caution| caution.contains("b200_sxm/vllm/0.24.0/nvfp4")));
    assert_eq!(timing["extrapolated_lookups"], 0);
    // An estimate of a model and a GPU sizes the cache too, where no number of blocks is given.
    let sized = run(large, &["--set", "deployment.agg.engine={}"]).ending(0).json();
    assert!(
        sized["scenario"]["deployment"]["agg"]["engine"]["num_gpu_blocks"]
            .as_u64()
            .is_none_or(|blocks| blocks > 1000)
    );
    let known = "model_name: MiniMaxAI/MiniMax-M2.5, hardware_sku: b200_sxm";
    let answer = run(&format!("{known}, moe_ep: 4"), &[]).ending(0);
    assert!(answer.stderr.contains("about 5 to 10 %"), "{}", answer.stderr);
    let ttft = |report: &serde_json::Value| report["summary"]["mean_ttft_ms"].as_f64().expect("a number");
    let profile = place.run(&["replay", "scenario.yaml", "--format", "json"]).ending(0).json();
    let ratio = ttft(&answer.json()) / ttft(&profile);
    assert!((0.7..1.4).contains(&ratio), "{ratio}");
    run(known, &[]).refusing(&["deployment.agg.timing.moe_ep", "is needed"]);
    run("model_name: MiniMax, hardware_sku: b200_sxm", &[])
        .refusing(&["timing.model_name", "MiniMaxAI/MiniMax-M2.5"]);
    run("model_name: Qwen/Qwen3-32B, hardware_sku: b200", &[]).refusing(&["timing.hardware_sku", "b200_sxm"]);
    run("model_name: deepseek-ai/DeepSeek-V3, hardware_sku: h200_sxm, moe_ep: 4", &[])
        .refusing(&["latent attention"]);
    run("model_name: Qwen/Qwen3-32B, hardware_sku: b200_sxm, quantization: int3", &[]).refusing(&["`int3`"]);
    run("model_name: Qwen/Qwen3-32B, hardware_sku: b200_sxm, backend_version: 1", &[])
        .refusing(&["`model: profile`"]);
}
