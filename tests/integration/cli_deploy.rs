//! Everything that `spica deploy` can write, against public schemas and documented flags.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

#[path = "../../src/cli/deploy/flags.rs"]
mod flags;

use serde_json::{Value, json};

use self::flags::documented;
use super::cli_command::Workplace;
use super::manifest_schema::problems;

/// Every built-in router with fields that it takes.
const ROUTERS: [&str; 8] = [
    "{policy: round_robin}",
    "{policy: random}",
    "{policy: power_of_two}",
    "{policy: least_loaded}",
    "{policy: kv_router, overlap_score_credit: 0.5, queue_threshold: 2.0, queue_policy: wspt, assume_kv_reuse: false}",
    "{policy: approximate_kv, ttl_ms: 30000, prefill_load_scale: 0.5}",
    "{policy: session_affinity}",
    "{policy: cost_terms, terms: [{term: active_requests, weight: 1.0}]}",
];

const PLANNERS: [&str; 3] = [
    "null",
    "{policy: load_180_5, max_gpu_budget: 16}",
    "{optimization_target: sla, ttft_ms: 300, itl_ms: 20}",
];

fn scenario(mode: &str, backend: &str, router: &str, planner: &str) -> String {
    let pool = format!(
        "{{workers: 2, tensor_parallel_size: 2, dp_size: 2, engine: {{backend: {backend}, num_gpu_blocks: 600, \
         block_size: 32, max_model_len: 4096}}, timing: {{model: fixed, prefill_ms: 10, decode_ms: 2}}}}"
    );
    let pools = match mode {
        "agg" => format!("  agg: {pool}\n"),
        _ => format!("  prefill: {pool}\n  decode: {pool}\n"),
    };
    format!(
        "deployment:\n  mode: {mode}\n  router: {router}\n  planner: {planner}\n{pools}\
         workload:\n  requests: [{{id: a, arrival_ms: 0, input_length: 40, output_length: 3}}]\n"
    )
}

fn yaml(text: &str) -> Value {
    serde_yaml::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// A configuration of Dynamo's planner against its documented fields.
fn check_planner(config: &Value) {
    let known = Value::Object(documented("PlannerConfig"));
    for (name, value) in config.as_object().unwrap() {
        let fits = match &known[name] {
            Value::String(kind) if kind == "integer" => value.is_i64(),
            Value::String(kind) if kind == "number" => value.is_number(),
            Value::String(kind) if kind == "boolean" => value.is_boolean(),
            Value::Array(values) => values.contains(value),
            other => panic!("{name}: {other}"),
        };
        assert!(fits, "{name}: {value}");
    }
}

fn check(command: &str, arguments: &[String]) {
    flags::check(command, arguments).unwrap();
}

fn words(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
}

/// The commands of a script, word by word as a shell has them.
fn shell_words(script: &str) -> Vec<Vec<String>> {
    let joined = script.replace("\\\n", " ");
    let lines = joined.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let printed =
                std::process::Command::new("bash").args(["-c", &format!("printf '%s\\n' {line}")]).output();
            String::from_utf8(printed.unwrap().stdout).unwrap().lines().map(str::to_owned).collect()
        })
        .collect()
}

/// What a command line starts, and its arguments.
fn started<'a>(words: &'a [String], backend: &'a str) -> (&'a str, &'a [String]) {
    let own = match backend {
        "sglang" => &["python3", "-m", "sglang.launch_server"][..],
        "trtllm" => &["trtllm-serve", "a/Model-7"],
        _ => &["vllm", "serve", "a/Model-7"],
    };
    let (start, arguments) = words.split_at(own.len());
    assert_eq!(start, own);
    (backend, arguments)
}

fn deployed(mode: &str, backend: &str, router: &str, planner: &str) {
    let place = Workplace::with("scenario.yaml", &scenario(mode, backend, router, planner));
    place.run(&["replay", "scenario.yaml", "--output-dir", "run"]).ending(0);
    place.run(&["deploy", "run", "--model", "a/Model-7", "--output-dir", "out"]).ending(0);
    let pools = if mode == "agg" { 1 } else { 2 };

    let dynamo = place.read("out/dynamo.yaml");
    assert!(dynamo.ends_with('\n'));
    let dynamo = yaml(&dynamo);
    assert_eq!(problems(&dynamo), Vec::<String>::new(), "{router} {planner}");
    let components = dynamo["spec"]["components"].as_array().unwrap();
    assert_eq!(components.len(), 1 + pools + usize::from(planner != "null"));
    for component in components {
        let main = &component["podTemplate"]["spec"]["containers"][0];
        assert_eq!(main["name"], "main");
        let arguments = words(&main["args"]);
        let module = arguments[1].as_str();
        check(module, &arguments[2..]);
        match component["type"].as_str().unwrap() {
            "frontend" => assert_eq!(module, "dynamo.frontend"),
            "planner" => check_planner(&serde_json::from_str(&arguments[3]).unwrap()),
            role => {
                assert_eq!(module, format!("dynamo.{backend}"));
                let expected: &[&str] = if mode == "agg" { &["worker"] } else { &["prefill", "decode"] };
                assert!(expected.contains(&role));
                assert_eq!(arguments.iter().any(|word| word == role), mode != "agg", "{arguments:?}");
                assert_eq!(
                    (&component["replicas"], &main["resources"]["limits"]["nvidia.com/gpu"]),
                    (&json!(2), &json!("4"))
                );
                let reports = arguments.iter().any(|word| word.contains("kv-events"));
                let expected = router.contains("kv_router") && (backend, role) != ("vllm", "decode");
                assert_eq!(reports, expected, "{router}: {arguments:?}");
            }
        }
    }

    let kubernetes = place.read("out/kubernetes.yaml");
    let documents: Vec<Value> = kubernetes.split("---\n").map(yaml).collect();
    assert_eq!(documents.len(), 2 * pools);
    for document in &documents {
        assert_eq!(problems(document), Vec::<String>::new());
        if document["kind"] == "Deployment" {
            let template = &document["spec"]["template"];
            assert_eq!(document["spec"]["selector"]["matchLabels"], template["metadata"]["labels"]);
            let command = words(&template["spec"]["containers"][0]["command"]);
            let (command, arguments) = started(&command, backend);
            check(command, arguments);
        }
    }

    let script = place.read("out/commands.sh");
    let commands = shell_words(&script);
    assert_eq!(commands.len(), pools);
    for command in &commands {
        let (command, arguments) = started(command, backend);
        check(command, arguments);
    }
    if planner != "null" {
        assert!(script.contains("engines have no planner"), "{script}");
    }
}

#[test]
fn aggregated_deployments_fit_the_public_schemas_and_the_documented_flags() {
    every_deployment("agg");
}

#[test]
fn disaggregated_deployments_fit_the_public_schemas_and_the_documented_flags() {
    every_deployment("disagg");
}

/// Every backend with every router, and with every planner.
fn every_deployment(mode: &str) {
    for backend in ["vllm", "sglang", "trtllm"] {
        for router in ROUTERS {
            deployed(mode, backend, router, PLANNERS[0]);
        }
        for planner in &PLANNERS[1..] {
            deployed(mode, backend, ROUTERS[4], planner);
        }
    }
}

#[test]
fn an_image_without_a_version_is_pointed_out() {
    let place = Workplace::with("scenario.yaml", &scenario("agg", "vllm", ROUTERS[0], PLANNERS[0]));
    place.run(&["replay", "scenario.yaml", "--output-dir", "run"]).ending(0);
    let deploy = |image: &str| {
        place.run(&["deploy", "run", "--model", "m", "--to", "dynamo", "--image", image]).ending(0).stdout
    };
    assert!(deploy("registry/engine:latest").contains("runtimeVersionOverride"));
    assert!(!deploy("registry/engine:1.2.3").contains("runtimeVersionOverride"));
}

#[test]
fn the_sources_of_schemas_and_flags_are_named() {
    for text in [include_str!("../data/deploy/flags.json"), include_str!("../data/deploy/schemas.json")] {
        let data: Value = serde_json::from_str(text).unwrap();
        for (name, entry) in data.as_object().unwrap() {
            if entry.get("schema").is_some() || entry.get("flags").is_some() {
                assert!(entry["source"].as_str().is_some_and(|source| source.len() > 20), "{name}");
            }
            if entry.get("schema").is_some() {
                assert!(entry["licence"].as_str().unwrap().contains("Apache-2.0"), "{name}");
            }
        }
    }
}

#[test]
fn names_that_would_break_out_of_a_comment_are_refused() {
    let place = Workplace::with("scenario.yaml", &scenario("agg", "vllm", ROUTERS[0], "null"));
    place.run(&["replay", "scenario.yaml", "--output-dir", "run"]).ending(0);
    for (arguments, problem) in [
        (["--model=a\ntouch PWNED", "--image=i:1"], "--model: \"a\\ntouch PWNED\" has control characters"),
        (["--model=", "--image=i:1"], "--model: \"\" is empty"),
        (["--model=a", "--image=i:1\n"], "--image: \"i:1\\n\" has control characters"),
        (["--model=a", "--image=i 1"], "--image: \"i 1\" has a space"),
        (["--model=a", "--image="], "--image: \"\" is empty"),
    ] {
        place.run(&["deploy", "run", arguments[0], arguments[1]]).refusing(&[problem]);
    }
    let script = place.run(&["deploy", "run", "--model", "my --own model"]).ending(0).stdout;
    assert!(script.contains("\nvllm serve 'my --own model' \\\n    --tensor-parallel-size 2"), "{script}");

    // A model that the file of a run names, and hardware that reaches the comment only.
    let report = place.read("run/report.json");
    let mut report: Value = serde_json::from_str(&report).unwrap();
    let timing = &mut report["scenario"]["deployment"]["agg"]["timing"];
    *timing =
        json!({"model": "profile", "model_name": "a\ntouch PWNED", "hardware_sku": "h200\ntouch PWNED"});
    place.write("run/report.json", &report.to_string());
    place.run(&["deploy", "run"]).refusing(&["run: model_name: \"a\\ntouch PWNED\" has control characters"]);
    let script = place.run(&["deploy", "run", "--model", "a"]).ending(0).stdout;
    assert!(script.starts_with("# a on h200 touch PWNED\n"), "{script}");
}

/// Layouts and limits of engines whose caches are sized by a memory model.
const KNOBS: &str = "\
search_space:
  model_name: Qwen/Qwen3-32B
  hardware_sku: h200_sxm
  deployment_mode: [agg]
  parallel_configs: [{tp: 1, replicas: 2}, {tp: 2, replicas: 1}]
  gpu_budget: 2
  context_length: 30000
  planner_scaling_policy: [disabled]
  router_mode: [round_robin]
  agg_max_num_batched_tokens: [8192, 16384, 32768]
  agg_max_num_seqs: [256, 512]
workload: {isl: 400, osl: 10, concurrency: 4, num_request_ratio: 3}
sweep: {exhaustive: true}
";

#[test]
fn candidates_that_differ_in_what_engines_have_are_started_by_different_commands() {
    for (backend, longest) in
        [("vllm", "--max-model-len"), ("sglang", "--context-length"), ("trtllm", "--max_seq_len")]
    {
        let place = Workplace::with("search.yaml", KNOBS);
        let backend = format!("search_space.backend=[{backend}]");
        place.run(&["search", "search.yaml", "--output-dir", "out", "--set", &backend]).ending(0);
        let mut commands = Vec::new();
        for rank in 1..=12 {
            let deploy = ["deploy", "out", "--rank", &rank.to_string(), "--format=json"];
            let pool = place.run(&deploy).ending(0).json()["pools"][0].clone();
            let command = words(&pool["command"]);
            assert!(command.windows(2).any(|pair| pair == [longest, "30000"]), "{command:?}");
            assert!(!commands.contains(&(pool["workers"].clone(), command.clone())), "{command:?}");
            commands.push((pool["workers"].clone(), command));
        }
    }
}

#[test]
fn the_cache_of_sglang_is_capped_at_what_was_simulated() {
    let place = Workplace::with("search.yaml", KNOBS);
    let sets = ["--set", "search_space.backend=[sglang]", "--set", "search_space.agg_max_num_seqs=[256]"];
    place.run(&[&["search", "search.yaml", "--output-dir", "out"], &sets[..]].concat()).ending(0);
    let mut caps = std::collections::BTreeSet::new();
    for (rank, candidate) in
        (1..).zip(place.read_json("out/candidates.json")["candidates"].as_array().unwrap())
    {
        place.write("one.yaml", &candidate["scenario"].to_string());
        place.run(&["replay", "one.yaml", "--output-dir", "run"]).ending(0);
        let capacity = place.read_json("run/report.json")["capacity"]["agg"].clone();
        let tokens = capacity["num_gpu_blocks"].as_u64().unwrap() * capacity["block_size"].as_u64().unwrap();
        let deploy = ["deploy", "out", "--rank", &rank.to_string(), "--format=json"];
        let command = words(&place.run(&deploy).ending(0).json()["pools"][0]["command"]);
        let cap = ["--max-total-tokens".to_owned(), tokens.to_string()];
        assert!(command.windows(2).any(|pair| pair == cap), "{cap:?}: {command:?}");
        caps.insert(tokens);
    }
    assert_eq!(caps.len(), 6, "each layout and each size of the largest pass leaves room of its own");
}
