//! Manifests for a cluster.

use serde_json::{Map, Value, json};

use super::{Plan, PoolPlan};
use crate::config::to_yaml;

/// The port that engines and the frontend listen on inside their containers.
const PORT: u32 = 8000;

/// A `DynamoGraphDeployment` (`nvidia.com/v1alpha1`): a frontend with its router, and a service for each pool.
pub(super) fn dynamo(plan: &Plan, image: Option<&str>) -> String {
    let image = image
        .map_or_else(|| format!("nvcr.io/nvidia/ai-dynamo/{}-runtime:latest", runtime(plan)), str::to_owned);
    let mut services = Map::new();
    let mut router = vec!["-m".to_owned(), "dynamo.frontend".to_owned()];
    router.extend(plan.frontend.arguments());
    services.insert(
        "Frontend".into(),
        json!({
            "componentType": "frontend",
            "replicas": 1,
            "extraPodSpec": {"mainContainer": {"image": image, "command": ["python3"], "args": router}},
        }),
    );
    for pool in &plan.pools {
        let mut service = json!({
            "componentType": "worker",
            "replicas": pool.workers,
            "resources": {"limits": {"gpu": pool.gpus.to_string()}},
            "extraPodSpec": {"mainContainer": {"image": image, "command": ["python3"], "args": dynamo_worker(plan, pool)}},
        });
        if pool.name != "agg" {
            service["subComponentType"] = json!(pool.name);
        }
        services.insert(service_name(pool), service);
    }
    to_yaml(&json!({
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": plan.name},
        "spec": {"services": services},
    }))
}

fn runtime(plan: &Plan) -> &str {
    match plan.backend.as_str() {
        "trtllm" => "tensorrtllm",
        other => other,
    }
}

fn service_name(pool: &PoolPlan) -> String {
    match pool.name {
        "prefill" => "PrefillWorker".into(),
        "decode" => "DecodeWorker".into(),
        _ => "Worker".into(),
    }
}

/// The arguments of a worker behind Dynamo's frontend: the engine's own, after those of the runtime.
fn dynamo_worker(plan: &Plan, pool: &PoolPlan) -> Vec<String> {
    let model = if plan.backend == "vllm" { "--model" } else { "--model-path" };
    let mut arguments =
        vec!["-m".to_owned(), format!("dynamo.{}", plan.backend), model.to_owned(), plan.model.clone()];
    arguments.extend(pool.account.arguments());
    if pool.name != "agg" && plan.backend != "sglang" {
        arguments.extend(["--disaggregation-mode".to_owned(), pool.name.to_owned()]);
    }
    arguments
}

/// A `Deployment` and a `Service` for each pool.
pub(super) fn kubernetes(plan: &Plan, image: Option<&str>) -> String {
    let image = image.unwrap_or(match plan.backend.as_str() {
        "sglang" => "lmsysorg/sglang:latest",
        "trtllm" => "nvcr.io/nvidia/tensorrt-llm/release:latest",
        _ => "vllm/vllm-openai:latest",
    });
    let documents: Vec<String> = plan
        .pools
        .iter()
        .flat_map(|pool| [deployment(plan, pool, image), service(plan, pool)])
        .map(|document| to_yaml(&document))
        .collect();
    documents.join("---\n")
}

fn deployment(plan: &Plan, pool: &PoolPlan, image: &str) -> Value {
    let (name, labels) = (format!("{}-{}", plan.name, pool.name), labels(plan, pool));
    let mut command = plan.command(pool);
    command.extend(["--port".to_owned(), PORT.to_string()]);
    if plan.backend != "vllm" {
        command.extend(["--host".to_owned(), "0.0.0.0".to_owned()]);
    }
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": pool.workers,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "containers": [{
                        "name": "engine",
                        "image": image,
                        "command": command,
                        "ports": [{"name": "http", "containerPort": PORT}],
                        "resources": {"limits": {"nvidia.com/gpu": pool.gpus.to_string()}},
                        "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 10},
                        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
                    }],
                    "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
                },
            },
        },
    })
}

fn service(plan: &Plan, pool: &PoolPlan) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": format!("{}-{}", plan.name, pool.name)},
        "spec": {"selector": labels(plan, pool), "ports": [{"name": "http", "port": PORT, "targetPort": "http"}]},
    })
}

fn labels(plan: &Plan, pool: &PoolPlan) -> Value {
    json!({"app": plan.name, "pool": pool.name})
}
