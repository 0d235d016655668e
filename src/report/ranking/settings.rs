//! The settings of a candidate as columns of a ranking.

use indexmap::IndexMap;
use serde_json::{Map, Value};

/// What stands where a candidate has no such setting.
pub const ABSENT: &str = "-";

/// Settings that another column tells already: the first that of GPUs, the others that of layouts.
const TOLD: [&str; 9] =
    ["used_gpus", "deployment_mode", "tp", "pp", "attention_dp", "moe_tp", "moe_ep", "strategy", "replicas"];

/// A candidate's settings by their headings, in their order: its layout in short, and what is set for both pools under
/// one heading, `prefill/decode`.
pub fn settings(config: &Map<String, Value>) -> IndexMap<String, String> {
    let mut settings = IndexMap::new();
    let layout = layout(config);
    let told: &[&str] = if layout.is_some() { &TOLD } else { &TOLD[..1] };
    settings.extend(layout.map(|layout| ("layout".to_owned(), layout)));
    let of_role = |role: &str, stem: &str| config.get(&format!("{role}_{stem}")).map(setting);
    for (name, value) in config {
        let stem = ["agg_", "prefill_", "decode_"].iter().find_map(|role| name.strip_prefix(role));
        let pools = stem.map(|stem| (stem, of_role("prefill", stem), of_role("decode", stem)));
        let (heading, text) = match pools {
            Some((stem, Some(prefill), Some(decode))) if prefill == decode => (stem, prefill),
            Some((stem, Some(prefill), Some(decode))) => (stem, format!("{prefill}/{decode}")),
            Some((stem, None, None)) => (stem, setting(value)),
            _ => (name.as_str(), setting(value)),
        };
        if !told.contains(&heading) {
            settings.insert(heading.to_owned(), text);
        }
    }
    settings
}

/// Workers and their shapes: `4 x tp2`, or with two pools `1 x tp2 + 3 x dep4`.
fn layout(config: &Map<String, Value>) -> Option<String> {
    let pool = |role: &str| {
        let number = |name: &str| config.get(&format!("{role}{name}")).and_then(Value::as_u64);
        let strategy = config.get(&format!("{role}strategy")).and_then(Value::as_str).unwrap_or("tp");
        let gpus = number("tp")? * number("attention_dp").unwrap_or(1);
        let stages = number("pp").filter(|&pp| pp > 1).map_or(String::new(), |pp| format!("pp{pp}"));
        Some(format!("{} x {strategy}{gpus}{stages}", number("replicas")?))
    };
    pool("").or_else(|| Some(format!("{} + {}", pool("prefill_")?, pool("decode_")?)))
}

/// Headings of the settings in which the candidates that have them differ, in their order: what one mode or one router
/// has and another has not says no more than the mode or the router.
pub fn varying(candidates: &[IndexMap<String, String>]) -> Vec<&str> {
    let mut first: IndexMap<&str, &str> = IndexMap::new();
    let mut varying: Vec<&str> = Vec::new();
    for (name, text) in candidates.iter().flatten() {
        let differs = *first.entry(name).or_insert(text) != text;
        if differs && !varying.contains(&name.as_str()) {
            varying.push(name);
        }
    }
    first.keys().copied().filter(|name| varying.contains(name)).collect()
}

fn setting(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => ABSENT.into(),
        other => other.to_string(),
    }
}

/// The settings that were searched and are the same in all of the candidates that have them, by their headings.
pub(super) fn same<'s>(
    candidates: &'s [IndexMap<String, String>],
    searched: &[&str],
) -> Vec<(&'s str, &'s str)> {
    let varying = varying(candidates);
    let is_searched = |heading: &str| {
        let of_role = |name: &&str| {
            ["agg_", "prefill_", "decode_"].iter().any(|role| name.strip_prefix(role) == Some(heading))
        };
        searched.iter().any(|name| *name == heading || of_role(name))
    };
    let mut same: IndexMap<&str, &str> = IndexMap::new();
    for (heading, text) in candidates.iter().flatten() {
        if text != ABSENT && !varying.contains(&heading.as_str()) && is_searched(heading) {
            same.entry(heading).or_insert(text);
        }
    }
    same.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(value: Value) -> Map<String, Value> {
        let Value::Object(config) = value else { panic!("an object") };
        config
    }

    #[test]
    fn settings_of_two_pools_share_a_heading() {
        let disaggregated = config(json!({
            "deployment_mode": "disagg", "prefill_tp": 2, "prefill_pp": 1, "prefill_attention_dp": 1,
            "prefill_strategy": "tep", "prefill_replicas": 1, "decode_tp": 1, "decode_pp": 2,
            "decode_attention_dp": 4, "decode_strategy": "dep", "decode_replicas": 3, "used_gpus": 14,
            "prefill_max_num_seqs": 256, "decode_max_num_seqs": 512, "prefill_block_size": 64,
            "decode_block_size": 64, "prefill_load_scale": 4.0,
        }));
        let texts: Vec<_> = settings(&disaggregated).into_iter().collect();
        let expected = [
            ("layout", "1 x tep2 + 3 x dep4pp2"),
            ("max_num_seqs", "256/512"),
            ("block_size", "64"),
            ("prefill_load_scale", "4.0"),
        ];
        assert_eq!(texts, expected.map(|(name, text)| (name.to_owned(), text.to_owned())));
        let aggregated = config(json!({"tp": 4, "replicas": 2, "agg_max_num_seqs": 64}));
        let texts: Vec<_> = settings(&aggregated).into_values().collect();
        assert_eq!(texts, ["2 x tp4", "64"]);
    }

    #[test]
    fn what_was_searched_and_does_not_differ_is_known() {
        let candidates = [
            json!({"tp": 4, "replicas": 2, "agg_max_num_seqs": 64, "agg_block_size": 64, "router_mode": "kv_router", "router_temperature": 0.5}),
            json!({"tp": 4, "replicas": 2, "agg_max_num_seqs": 64, "agg_block_size": 64, "router_mode": "round_robin"}),
        ];
        let candidates = candidates.map(|candidate| settings(&config(candidate)));
        let searched =
            ["layout", "agg_max_num_seqs", "router_mode", "router_temperature", "prefill_load_scale"];
        let expected = [("layout", "2 x tp4"), ("max_num_seqs", "64"), ("router_temperature", "0.5")];
        assert_eq!(same(&candidates, &searched), expected);
        assert_eq!(same(&candidates, &[]), []);
    }
}
