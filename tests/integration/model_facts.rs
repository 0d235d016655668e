//! Operator lists and memory in closed form, against what AI Configurator says of the same deployments.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use serde_json::Value;
use spica::config::scenario::Backend;
use spica::model::{
    Catalogue, ModelFacts, NumberFormats, Phase, Split, WeightFormat, engine_spec, operators,
};
use spica::timing::memory::{MemoryPlan, closed_form};

use super::shared_folder::shared_file;

/// A deployment of `aic/deployments.json`.
struct Deployment {
    id: String,
    model: ModelFacts,
    system: String,
    backend: Backend,
    split: Split,
}

fn backend(name: &str) -> Backend {
    serde_json::from_value(name.into()).unwrap()
}

fn size(record: &Value, key: &str) -> u32 {
    record[key].as_u64().map_or(1, |size| u32::try_from(size).unwrap())
}

fn split(record: &Value) -> Split {
    Split {
        tp: size(record, "tp"),
        pp: size(record, "pp"),
        attention_dp: size(record, "attention_dp"),
        moe_tp: size(record, "moe_tp"),
        moe_ep: size(record, "moe_ep"),
    }
}

/// The facts of a model, with the number formats that were forced for this deployment.
fn model(record: &Value, quant: &Value, overrides: &Value) -> ModelFacts {
    let name = record["model"].as_str().unwrap();
    let mut facts = Catalogue::bundled().model(name).unwrap_or_else(|error| panic!("{error}"));
    if overrides["gemm_quant_mode"].is_string() {
        facts.formats = NumberFormats::uniform(format(quant["gemm_quant_mode"].as_str().unwrap()));
    }
    facts.formats.kv_cache = format(quant["kvcache_quant_mode"].as_str().unwrap());
    facts
}

fn format(name: &str) -> WeightFormat {
    match name {
        "bfloat16" => WeightFormat::Bfloat16,
        "fp8" => WeightFormat::Fp8,
        "nvfp4" => WeightFormat::Nvfp4,
        other => panic!("{other}"),
    }
}

fn deployments() -> Option<Vec<Deployment>> {
    let text = std::fs::read_to_string(shared_file("aic/deployments.json")?).unwrap();
    let records: Vec<Value> = serde_json::from_str(&text).unwrap();
    let read = |record: &Value| Deployment {
        id: record["id"].as_str().unwrap().into(),
        model: model(record, &record["resolved_quant"], &record["quant_overrides"]),
        system: record["system"].as_str().unwrap().into(),
        backend: backend(record["backend"].as_str().unwrap()),
        split: split(record),
    };
    Some(records.iter().map(read).collect())
}

/// The KV formats follow from the checkpoints alone, except where they were forced.
#[test]
fn kv_caches_are_stored_as_the_tables_assume() {
    let Some(path) = shared_file("aic/deployments.json") else { return };
    let records: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    for record in records.iter().filter(|record| record["quant_overrides"]["kvcache_quant_mode"].is_null()) {
        let facts = Catalogue::bundled().model(record["model"].as_str().unwrap()).unwrap();
        assert_eq!(facts.formats.kv_cache.name(), record["resolved_quant"]["kvcache_quant_mode"], "{record}");
        assert_eq!(
            facts.formats.experts.name().trim_end_matches("_static"),
            record["resolved_quant"]["moe_quant_mode"].as_str().unwrap(),
            "{record}"
        );
    }
}

/// What the exported lists hold beside our fields: constants, and the kernels that were preferred.
const CONSTANTS: &str = r#"{"seq_split": 1, "scale_num_tokens": 1, "below_grid_sol": false, "cp_size": 1,
    "attn_ar_modeled": false, "flavor": "CustomAllReduce", "comm_quant": "half", "attn_cp_size": 1, "is_context": true,
    "sms": 12, "moe_backend": null, "enable_eplb": false}"#;

#[test]
fn operator_lists_are_those_of_the_reference() {
    let (Some(deployments), Some(path)) = (deployments(), shared_file("aic/engine_specs.json")) else {
        return;
    };
    let specs: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let constants: Value = serde_json::from_str(CONSTANTS).unwrap();
    let mut compared = 0;
    for Deployment { id, model, backend, split, .. } in deployments {
        for (phase, key) in [(Phase::Context, "context_ops"), (Phase::Generation, "generation_ops")] {
            let Some(ours) = operators(&model, split, backend, phase) else { continue };
            let mut theirs = specs[&id][key].clone();
            for (name, fields) in
                theirs.as_array_mut().unwrap().iter_mut().flat_map(|one| one.as_object_mut().unwrap())
            {
                let fields = fields.as_object_mut().unwrap();
                fields.retain(|key, value| {
                    let constant = constants.get(key);
                    assert!(constant.is_none_or(|constant| constant == value), "{id}: {name}.{key}: {value}");
                    constant.is_none() && key != "lane_order"
                });
            }
            assert_eq!(serde_json::to_value(&ours).unwrap(), theirs, "{id}: {key}");
            compared += 1;
        }
    }
    assert_eq!(compared, 2 * 20, "19 of the two families, and gpt-oss");
}

#[test]
fn compiled_deployments_are_those_of_the_reference() {
    let (Some(deployments), Some(path)) = (deployments(), shared_file("aic/engine_specs.json")) else {
        return;
    };
    let specs: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut compared = 0;
    for Deployment { id, model, system, backend, split } in deployments {
        let mut theirs = specs[&id]["engine"].clone();
        let version = theirs["backend_version"].as_str().unwrap().to_owned();
        let Some(mut ours) = engine_spec(&model, split, &system, backend, &version) else { continue };
        if !model.is_moe() {
            // There are no experts, whatever their format.
            theirs["moe_dtype"] = Value::Null;
            ours["engine"]["moe_dtype"] = Value::Null;
        }
        assert_eq!(ours["engine"], theirs, "{id}");
        for key in ["context_ops", "generation_ops"] {
            let mut theirs = specs[&id][key].clone();
            let fields =
                theirs.as_array_mut().unwrap().iter_mut().flat_map(|one| one.as_object_mut().unwrap());
            for (_, fields) in fields {
                fields.as_object_mut().unwrap().remove("lane_order");
            }
            assert_eq!(ours[key], theirs, "{id}: {key}");
        }
        compared += 1;
    }
    assert_eq!(compared, 20);
}

fn plan(deployment: &Deployment, tokens: u32, fraction: f64) -> MemoryPlan {
    let hardware = Catalogue::bundled().hardware(&deployment.system).unwrap();
    closed_form(&deployment.model, &hardware, deployment.backend, deployment.split, tokens, fraction).unwrap()
}

#[test]
fn memory_in_closed_form_meets_the_reference_within_one_token() {
    let (Some(deployments), Some(path)) = (deployments(), shared_file("aic/memory.csv")) else { return };
    let table = std::fs::read_to_string(path).unwrap();
    let mut lines = table.lines();
    let header: Vec<&str> = lines.next().unwrap().split(',').collect();
    let mut rows = 0;
    for line in lines {
        let row: Vec<&str> = line.split(',').collect();
        let field = |name: &str| row[header.iter().position(|column| *column == name).unwrap()];
        let figure = |name: &str| field(name).parse::<f64>().unwrap();
        let deployment = deployments.iter().find(|one| one.id == field("deployment")).unwrap();
        let plan = plan(deployment, figure("max_num_tokens") as u32, figure("fraction"));
        assert!((plan.weights_bytes - figure("weights_bytes")).abs() <= 1.0, "{line}");
        assert!((plan.activation_bytes - figure("activation_bytes")).abs() <= 1.0, "{line}");
        assert!((plan.runtime_bytes - figure("runtime_bytes")).abs() <= 1.0, "{line}");
        assert_eq!(plan.comm_bytes, figure("comm_bytes"), "{line}");
        // The reference charges each stage for the layers of all, we for its own.
        let stages = f64::from(deployment.split.pp);
        let mut kv = plan.kv;
        kv.bytes_per_token *= stages;
        let tokens = kv.tokens_in(plan.kv_bytes()) as f64;
        assert!((tokens - figure("kv_tokens")).abs() <= 1.0, "{line}: {tokens}");
        rows += 1;
    }
    assert_eq!(rows, 192);
}

/// The rule that every token of a short sequence takes bytes in all layers, as the packed facts have it.
#[test]
fn memory_in_closed_form_meets_the_facts_of_every_packed_profile() {
    let Some(path) = shared_file("aic/profile_pack.json.gz") else { return };
    let file = std::io::BufReader::new(std::fs::File::open(path).unwrap());
    let pack: Value = serde_json::from_reader(flate2::read::GzDecoder::new(file)).unwrap();
    let tokens: Vec<u32> = serde_json::from_value(pack["activation_tokens"].clone()).unwrap();
    let mut compared = 0;
    for (id, record) in pack["deployments"].as_object().unwrap() {
        let deployment = Deployment {
            id: id.clone(),
            model: model(record, &record["quant"], &record["quant_overrides"]),
            system: record["system"].as_str().unwrap().into(),
            backend: backend(record["backend"].as_str().unwrap()),
            split: split(record),
        };
        let memory = &record["memory"];
        let figure = |key: &str| memory[key].as_f64().unwrap();
        for (place, tokens) in tokens.iter().enumerate() {
            let plan = plan(&deployment, *tokens, 0.9);
            let theirs = memory["activation_bytes"][place].as_f64().unwrap();
            assert!(
                (plan.activation_bytes - theirs).abs() <= 1.0,
                "{id} at {tokens}: {}",
                plan.activation_bytes
            );
        }
        let plan = plan(&deployment, 8192, 0.9);
        assert_eq!(plan.capacity_bytes as f64, figure("capacity_bytes"), "{id}");
        assert!((plan.weights_bytes - figure("weights_bytes")).abs() <= 1.0, "{id}: {}", plan.weights_bytes);
        assert!((plan.runtime_bytes - figure("runtime_bytes")).abs() <= 1.0, "{id}");
        assert_eq!(plan.comm_bytes, figure("comm_bytes"), "{id}");
        assert_eq!(plan.kv.first_bytes_per_token(), figure("kv_bytes_per_token"), "{id}");
        match memory["sdk_kv_tokens_T8192_b256_f09"].as_u64() {
            Some(theirs) => assert!(plan.kv_tokens().unwrap().abs_diff(theirs) <= 1, "{id}"),
            None => assert!(plan.kv_tokens().is_err(), "{id}: {plan:?}"),
        }
        compared += 1;
    }
    assert_eq!(compared, 907);
}
