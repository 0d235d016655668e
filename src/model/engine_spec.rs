//! A deployment in the form that AI Configurator's engine reads: who it is, and its lists of operators.

use serde_json::{Value, json};

use super::facts::ModelFacts;
use super::operators::{Operator, Phase, operators};
use super::split::Split;
use crate::config::scenario::Backend;

/// An operator with what is the same in all the deployments that are derived. Which kernels of attention are preferred is
/// left to the reader.
fn completed(operator: &Operator) -> Value {
    let constants = match operator {
        Operator::Embedding { .. } | Operator::CustomAllReduce { .. } | Operator::P2P { .. } => {
            json!({"seq_split": 1})
        }
        Operator::Elementwise { .. } => json!({"scale_num_tokens": 1, "seq_split": 1}),
        Operator::Gemm { .. } => json!({"scale_num_tokens": 1, "seq_split": 1, "below_grid_sol": false}),
        Operator::ContextAttention { .. } => json!({"cp_size": 1}),
        Operator::GenerationAttention { .. } => json!({}),
        Operator::MoeDispatch { .. } => json!({
            "scale_num_tokens": 1,
            "attn_ar_modeled": false,
            "flavor": "CustomAllReduce",
            "comm_quant": "half",
            "attn_cp_size": 1,
            "is_context": true,
            "sms": 12,
        }),
        Operator::Moe { .. } => json!({"is_context": true, "moe_backend": null, "enable_eplb": false}),
    };
    let mut value = serde_json::to_value(operator).expect("an operator is plain data");
    let fields = value.as_object_mut().and_then(|named| named.values_mut().next());
    if let (Some(Value::Object(fields)), Value::Object(constants)) = (fields, constants) {
        fields.extend(constants);
    }
    value
}

/// The compiled form of a deployment, without the version of the form; `None` for models whose operators are not derived.
///
/// `system` is the name of the GPU, `backend_version` that of the engine, both as the database has them.
pub fn engine_spec(
    model: &ModelFacts,
    split: Split,
    system: &str,
    backend: Backend,
    backend_version: &str,
) -> Option<Value> {
    let list =
        |phase| Some(Value::Array(operators(model, split, backend, phase)?.iter().map(completed).collect()));
    let Split { tp, pp, attention_dp, moe_tp, moe_ep } = split;
    Some(json!({
        "engine": {
            "schema_version": 1,
            "model_name": model.name,
            "system_name": system,
            "systems_path": null,
            "backend": backend.name(),
            "backend_version": backend_version,
            "kv_block_size": null,
            "tp_size": tp,
            "pp_size": pp,
            "attention_dp_size": attention_dp,
            "moe_tp_size": moe_tp,
            "moe_ep_size": moe_ep,
            "cp_size": 1,
            "weight_dtype": model.formats.attention.name(),
            "moe_dtype": model.formats.experts.name(),
            "activation_dtype": "bfloat16",
            "kv_cache_dtype": model.formats.kv_cache.name(),
            "enable_shared_layer": true,
            "strict_provenance": false,
            "database_mode": "SILICON",
            "transfer_policy": null,
            "tolerate_dirless_version": false,
            "extra": {},
        },
        "context_ops": list(Phase::Context)?,
        "generation_ops": list(Phase::Generation)?,
    }))
}
