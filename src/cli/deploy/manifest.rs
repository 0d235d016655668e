//! Manifests for a cluster.

use serde_json::{Value, json};

use super::{Plan, PoolPlan};
use crate::config::to_yaml;

/// The port that engines and the frontend listen on inside their containers.
const PORT: u32 = 8000;

/// The release of Dynamo whose images are named where no other is asked for. The operator wants to read a version from the tag.
const RELEASE: &str = "1.3.1";

/// A `DynamoGraphDeployment` (`nvidia.com/v1beta1`): a frontend with its router, a component for each pool, and the planner.
pub(super) fn dynamo(plan: &Plan, image: Option<&str>) -> String {
    let runtime = match plan.backend.as_str() {
        "trtllm" => "tensorrtllm",
        other => other,
    };
    let image = image.map_or_else(|| dynamo_image(&format!("{runtime}-runtime")), str::to_owned);
    let mut components = vec![frontend(plan, &image)];
    components.extend(plan.pools.iter().map(|pool| worker(plan, pool, &image)));
    components.extend(plan.planner.as_ref().map(planner));
    to_yaml(&json!({
        "apiVersion": "nvidia.com/v1beta1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": plan.name},
        "spec": {"backendFramework": plan.backend, "components": components},
    }))
}

fn dynamo_image(name: &str) -> String {
    format!("nvcr.io/nvidia/ai-dynamo/{name}:{RELEASE}")
}

/// Whether a version can be read from the tag of an image, as Dynamo's operator does.
pub(super) fn has_version(image: &str) -> bool {
    let tag = image.rsplit('/').next().and_then(|name| name.split_once(':')).map(|(_, tag)| tag);
    let version = tag.map(|tag| tag.strip_prefix('v').unwrap_or(tag)).unwrap_or_default();
    let parts: Vec<&str> = version.split(['-', '+']).next().unwrap_or_default().split('.').collect();
    parts.len() == 3 && parts.iter().all(|part| part.parse::<u16>().is_ok())
}

fn frontend(plan: &Plan, image: &str) -> Value {
    component(
        "Frontend",
        "frontend",
        1,
        &json!({"image": image, "args": python("dynamo.frontend", plan.frontend.arguments())}),
    )
}

fn worker(plan: &Plan, pool: &PoolPlan, image: &str) -> Value {
    let (name, kind) = match pool.name {
        "prefill" => ("PrefillWorker", "prefill"),
        "decode" => ("DecodeWorker", "decode"),
        _ => ("Worker", "worker"),
    };
    let model = if plan.backend == "sglang" { "--model-path" } else { "--model" };
    let mut arguments = vec![model.to_owned(), plan.model.clone()];
    arguments.extend(pool.dynamo.arguments());
    let container = json!({
        "image": image,
        "args": python(&format!("dynamo.{}", plan.backend), arguments),
        "resources": {"limits": {"nvidia.com/gpu": pool.gpus.to_string()}},
    });
    component(name, kind, pool.workers, &container)
}

fn planner(config: &Value) -> Value {
    let arguments = vec!["--config".to_owned(), config.to_string()];
    let container =
        json!({"image": dynamo_image("dynamo-planner"), "args": python("dynamo.planner", arguments)});
    component("Planner", "planner", 1, &container)
}

/// The arguments of `python3` that start a module.
fn python(module: &str, arguments: Vec<String>) -> Vec<String> {
    ["-m".to_owned(), module.to_owned()].into_iter().chain(arguments).collect()
}

/// A component whose container the operator completes; it goes by the name `main`.
fn component(name: &str, kind: &str, replicas: u64, container: &Value) -> Value {
    let mut main = json!({"name": "main", "image": container["image"], "command": ["python3"], "args": container["args"]});
    if !container["resources"].is_null() {
        main["resources"] = container["resources"].clone();
    }
    json!({
        "name": name,
        "type": kind,
        "replicas": replicas,
        "podTemplate": {"spec": {"containers": [main]}},
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_tags() {
        for (image, expected) in [
            ("nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.3.1", true),
            ("registry:5000/engine:v0.9.0-rc1", true),
            ("registry:5000/engine", false),
            ("engine:latest", false),
            ("engine:1.2", false),
        ] {
            assert_eq!(has_version(image), expected, "{image}");
        }
        assert!(has_version(&dynamo_image("any")));
    }
}
