//! Dynamo's frontend with its router, and Dynamo's planner.

use serde_json::{Map, Value, json};

use super::account::Account;
use crate::config::presets::SCALING_POLICIES;
use crate::config::scenario::BUILTIN_PLANNER;
use crate::registry::preset_fields;

/// The longest time that the frontend remembers a session for, in seconds.
const LONGEST_AFFINITY_S: u64 = 31_536_000;

/// Flags of the KV router.
const KV_FLAGS: [(&str, &str); 7] = [
    ("overlap_score_credit", "--router-kv-overlap-score-credit"),
    ("overlap_score_credit_decay", "--router-kv-overlap-score-credit-decay"),
    ("prefill_load_scale", "--router-prefill-load-scale"),
    ("decode_active_request_weight", "--router-decode-active-request-weight"),
    ("router_temperature", "--router-temperature"),
    ("queue_threshold", "--router-queue-threshold"),
    ("queue_policy", "--router-queue-policy"),
];

/// Switches of the KV router, on and off.
const KV_SWITCHES: [(&str, &str, &str); 3] = [
    ("track_active_blocks", "--router-track-active-blocks", "--no-router-track-active-blocks"),
    ("track_prefill_tokens", "--router-track-prefill-tokens", "--no-router-track-prefill-tokens"),
    ("assume_kv_reuse", "--router-assume-kv-reuse", "--no-router-assume-kv-reuse"),
];

/// The policy of a deployment's router.
fn policy(deployment: &Value) -> &str {
    deployment["router"]["policy"].as_str().unwrap_or("round_robin")
}

/// Whether the router hears of the workers' caches.
pub(super) fn takes_kv_events(deployment: &Value) -> bool {
    policy(deployment) == "kv_router"
}

/// Flags of Dynamo's frontend for the router of a deployment, and what they cannot say.
pub(super) fn frontend(deployment: &Value) -> Account {
    let mut account = Account::default();
    let mut fields = deployment["router"].as_object().cloned().unwrap_or_default();
    fields.retain(|name, value| name != "policy" && !value.is_null());
    match policy(deployment) {
        "round_robin" => account.set("--router-mode", &"round-robin".into()),
        "random" => account.set("--router-mode", &"random".into()),
        "power_of_two" => account.set("--router-mode", &"power-of-two".into()),
        "least_loaded" => account.set("--router-mode", &"least-loaded".into()),
        "session_affinity" => session_affinity(&mut fields, &mut account),
        "kv_router" => kv_router(&mut fields, &mut account),
        "approximate_kv" => {
            kv_router(&mut fields, &mut account);
            account.switch("--no-router-kv-events");
            if let Some(ttl_ms) = fields.shift_remove("ttl_ms").and_then(|value| value.as_f64()) {
                account.set("--router-ttl-secs", &json!(ttl_ms / 1e3));
            }
        }
        other => account.unsaid("router.policy", &other.into(), "Dynamo's frontend has no such router"),
    }
    for (name, value) in &fields {
        let why = match name.as_str() {
            "kv_event_lag_ms" => "a property of the network",
            "queue_policy" => "the frontend takes fcfs and wspt only",
            _ => "the frontend documents no flag for it",
        };
        account.unsaid(&format!("router.{name}"), value, why);
    }
    account
}

fn kv_router(fields: &mut Map<String, Value>, account: &mut Account) {
    account.set("--router-mode", &"kv".into());
    for (name, flag) in KV_FLAGS {
        let takes = |value: &Value| name != "queue_policy" || value == "fcfs" || value == "wspt";
        if fields.get(name).is_some_and(takes)
            && let Some(value) = fields.shift_remove(name)
        {
            account.set(flag, &value);
        }
    }
    for (name, on, off) in KV_SWITCHES {
        if let Some(is_on) = fields.shift_remove(name).and_then(|value| value.as_bool()) {
            account.switch(if is_on { on } else { off });
        }
    }
}

fn session_affinity(fields: &mut Map<String, Value>, account: &mut Account) {
    account.set("--router-mode", &"least-loaded".into());
    // Whole seconds, and a session that is remembered for ever is so for a year.
    let seconds = fields.shift_remove("ttl_ms").and_then(|value| value.as_f64());
    let seconds = seconds.map_or(LONGEST_AFFINITY_S, |ttl_ms| (ttl_ms / 1e3).ceil().max(1.0) as u64);
    account.set("--router-session-affinity-ttl-secs", &seconds.min(LONGEST_AFFINITY_S).into());
    let why = "clients name the session of a request in the header X-Dynamo-Session-ID";
    account.unsaid("router.policy", &"session_affinity".into(), why);
}

/// Fields of the configuration of Dynamo's planner; what the scenario has beside them is this program's own.
const PLANNER_FIELDS: [&str; 26] = [
    "optimization_target",
    "enable_throughput_scaling",
    "enable_load_scaling",
    "throughput_adjustment_interval_seconds",
    "load_adjustment_interval_seconds",
    "max_gpu_budget",
    "min_gpu_budget",
    "min_endpoint",
    "ttft_ms",
    "itl_ms",
    "load_predictor",
    "load_predictor_log1p",
    "prophet_window_size",
    "kalman_q_level",
    "kalman_q_trend",
    "kalman_r",
    "kalman_min_points",
    "max_num_fpm_samples",
    "fpm_sample_bucket_size",
    "load_min_observations",
    "load_scaling_down_sensitivity",
    "prefill_scale_up_queue_tokens",
    "prefill_scale_down_queue_tokens",
    "decode_scale_up_kv_rate",
    "decode_scale_down_kv_rate",
    "speculative_nextn",
];

/// Other names that fields of the planner go by.
const PLANNER_ALIASES: [(&str, &str); 4] = [
    ("ttft", "ttft_ms"),
    ("itl", "itl_ms"),
    ("throughput_adjustment_interval", "throughput_adjustment_interval_seconds"),
    ("load_adjustment_interval", "load_adjustment_interval_seconds"),
];

/// The configuration of Dynamo's planner for a deployment, and what it cannot say; absent without a planner that Dynamo has.
pub(super) fn planner(deployment: &Value, backend: &str) -> (Option<Value>, Account) {
    let mut account = Account::default();
    let Some(given) = deployment["planner"].as_object() else {
        return (None, account);
    };
    let mut fields = given.clone();
    let policy = fields.shift_remove("policy");
    let policy = policy.as_ref().and_then(Value::as_str).unwrap_or(BUILTIN_PLANNER);
    let preset = SCALING_POLICIES.iter().find(|preset| preset.name == Some(policy));
    if policy == "disabled" || (preset.is_none() && policy != BUILTIN_PLANNER) {
        if policy != "disabled" {
            account.unsaid("planner", &deployment["planner"], "Dynamo has no such planner");
        }
        return (None, account);
    }
    let by_bounds = fields.get("optimization_target") == Some(&"sla".into());
    let mut settings = preset.map_or_else(Map::new, |preset| preset_fields(&preset.values, by_bounds));
    settings.extend(fields);
    let mut config = Map::new();
    config.insert("environment".into(), "kubernetes".into());
    config.insert("mode".into(), deployment["mode"].clone());
    config.insert("backend".into(), backend.into());
    for (name, value) in settings.into_iter().filter(|(_, value)| !value.is_null()) {
        let alias = PLANNER_ALIASES.iter().find(|(alias, _)| *alias == name);
        let name = alias.map_or(name, |(_, name)| (*name).to_owned());
        let is_own_predictor = name == "load_predictor" && value.is_object();
        if PLANNER_FIELDS.contains(&name.as_str()) && !is_own_predictor {
            config.insert(name, value);
        } else {
            account.unsaid(
                &format!("planner.{name}"),
                &value,
                "the configuration of Dynamo's planner has no such field",
            );
        }
    }
    (Some(Value::Object(config)), account)
}

#[cfg(test)]
mod tests {
    use super::super::flags::{check, documented};
    use super::*;

    #[test]
    fn routers_become_flags_of_the_frontend() {
        let said = |router: Value| {
            let account = frontend(&json!({"router": router}));
            check("dynamo.frontend", &account.arguments()).unwrap();
            let unsaid: Vec<String> = account.unsaid.into_iter().map(|(field, _)| field).collect();
            (
                account.flags.iter().map(|(flag, value)| (flag.clone(), value.clone())).collect::<Vec<_>>(),
                unsaid,
            )
        };
        let flags = |flags: &[(&str, &str)]| -> Vec<(String, Option<String>)> {
            let value = |value: &str| Some(value.to_owned()).filter(|value| !value.is_empty());
            flags.iter().map(|(flag, given)| ((*flag).to_owned(), value(given))).collect()
        };
        let kv =
            said(json!({"policy": "kv_router", "overlap_score_credit": 0.5, "track_active_blocks": false,
            "queue_policy": "lcfs", "kv_event_lag_ms": 5}));
        let expected = flags(&[
            ("--router-mode", "kv"),
            ("--router-kv-overlap-score-credit", "0.5"),
            ("--no-router-track-active-blocks", ""),
        ]);
        let left = vec!["router.queue_policy: \"lcfs\"".to_owned(), "router.kv_event_lag_ms: 5".to_owned()];
        assert_eq!(kv, (expected, left));
        let approximate = said(json!({"policy": "approximate_kv", "ttl_ms": 30000, "capacity_blocks": 4096}));
        let expected =
            flags(&[("--router-mode", "kv"), ("--no-router-kv-events", ""), ("--router-ttl-secs", "30.0")]);
        assert_eq!(approximate, (expected, vec!["router.capacity_blocks: 4096".to_owned()]));
        let sessions = said(json!({"policy": "session_affinity", "ttl_ms": 1500.0})).0;
        assert_eq!(sessions[1], ("--router-session-affinity-ttl-secs".into(), Some("2".into())));
        let own = said(json!({"policy": "my_router", "depth": 3}));
        assert_eq!((own.0.len(), own.1.len()), (0, 2));
    }

    #[test]
    fn planners_become_the_configuration_of_dynamos_planner() {
        let deployment = json!({"mode": "disagg", "planner": {"policy": "hybrid_180_5", "optimization_target": "sla",
            "ttft": 300.0, "max_gpu_budget": 12, "fpm_tie_seed": 3}});
        let (config, account) = planner(&deployment, "vllm");
        let expected = json!({"environment": "kubernetes", "mode": "disagg", "backend": "vllm", "enable_load_scaling": true,
            "enable_throughput_scaling": true, "throughput_adjustment_interval_seconds": 180,
            "load_adjustment_interval_seconds": 5, "optimization_target": "sla", "ttft_ms": 300.0, "max_gpu_budget": 12});
        assert_eq!(config, Some(expected));
        assert_eq!(account.unsaid.len(), 1, "{account:?}");
        for (policy, unsaid) in [("disabled", 0), ("my_planner", 1)] {
            let (config, account) = planner(&json!({"mode": "agg", "planner": {"policy": policy}}), "vllm");
            assert_eq!((config, account.unsaid.len()), (None, unsaid), "{policy}");
        }
    }

    #[test]
    fn the_planners_fields_are_those_that_are_documented() {
        let known = documented("PlannerConfig");
        for name in PLANNER_FIELDS.iter().chain(PLANNER_ALIASES.iter().map(|(_, name)| name)) {
            assert!(known.contains_key(*name), "{name}");
        }
    }
}
