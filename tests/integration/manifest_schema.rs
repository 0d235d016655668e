//! A validator for the schema excerpts of `tests/data/deploy/schemas.json`.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use serde_json::Value;

/// What is wrong with a manifest, by path; its kind chooses the schema.
pub(crate) fn problems(manifest: &Value) -> Vec<String> {
    let schemas: Value = serde_json::from_str(include_str!("../data/deploy/schemas.json")).unwrap();
    let kind = manifest["kind"].as_str().unwrap_or_default();
    let mut problems = Vec::new();
    if schemas[kind]["schema"].is_null() {
        problems.push(format!("no schema of kind {kind:?}"));
    } else {
        let check = Check { definitions: &schemas["definitions"] };
        check.value(manifest, &schemas[kind]["schema"], kind, &mut problems);
    }
    problems
}

struct Check<'a> {
    definitions: &'a Value,
}

impl Check<'_> {
    fn value(&self, value: &Value, schema: &Value, path: &str, problems: &mut Vec<String>) {
        if let Some(name) = schema["$ref"].as_str() {
            return self.value(value, &self.definitions[name], path, problems);
        }
        if let Some(allowed) = schema["enum"].as_array() {
            if !allowed.contains(value) {
                problems.push(format!("{path}: {value} is none of {}", schema["enum"]));
            }
            return;
        }
        let kind = schema["type"].as_str().unwrap_or_else(|| panic!("{path}: the schema names no type"));
        if !is_of_kind(value, kind) {
            problems.push(format!("{path}: {value} is no {kind}"));
            return;
        }
        match kind {
            "object" => self.object(value, schema, path, problems),
            "array" => self.array(value, schema, path, problems),
            _ => bounds(value, schema, path, problems),
        }
    }

    fn object(&self, value: &Value, schema: &Value, path: &str, problems: &mut Vec<String>) {
        for name in schema["required"].as_array().into_iter().flatten() {
            if value.get(name.as_str().unwrap()).is_none() {
                problems.push(format!("{path}: {name} is required"));
            }
        }
        for (name, field) in value.as_object().unwrap() {
            let inner = format!("{path}.{name}");
            match (schema["properties"].get(name), schema.get("additionalProperties")) {
                (Some(known), _) | (None, Some(known)) => self.value(field, known, &inner, problems),
                (None, None) => problems.push(format!("{inner}: unknown field")),
            }
        }
    }

    fn array(&self, value: &Value, schema: &Value, path: &str, problems: &mut Vec<String>) {
        let items = value.as_array().unwrap();
        if schema["maxItems"].as_u64().is_some_and(|most| items.len() as u64 > most) {
            problems.push(format!("{path}: too many items"));
        }
        for (index, item) in items.iter().enumerate() {
            self.value(item, &schema["items"], &format!("{path}[{index}]"), problems);
        }
        if let Some(key) = schema["uniqueKey"].as_str() {
            let mut names: Vec<String> =
                items.iter().map(|item| item[key].to_string().to_lowercase()).collect();
            names.sort();
            names.dedup();
            if names.len() < items.len() {
                problems.push(format!("{path}: {key} must be unique"));
            }
        }
    }
}

fn is_of_kind(value: &Value, kind: &str) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "int-or-string" => value.is_u64() || value.is_string(),
        "quantity" => value.is_u64() || value.as_str().is_some_and(is_quantity),
        "dns-label" => value.as_str().is_some_and(is_dns_label),
        other => panic!("the schema names the unknown type {other}"),
    }
}

fn bounds(value: &Value, schema: &Value, path: &str, problems: &mut Vec<String>) {
    let number = value.as_i64().unwrap_or_default();
    if schema["minimum"].as_i64().is_some_and(|least| number < least)
        || schema["maximum"].as_i64().is_some_and(|most| number > most)
    {
        problems.push(format!("{path}: {value} is out of bounds"));
    }
    if schema["minLength"].as_u64().is_some_and(|least| (value.as_str().unwrap().len() as u64) < least) {
        problems.push(format!("{path}: too short"));
    }
}

/// An amount such as `2`, `0.5` or `16Gi`.
fn is_quantity(text: &str) -> bool {
    let digits = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let suffix = &text[digits.len()..];
    let known = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "n", "u", "m", "k", "M", "G", "T", "P", "E"];
    !digits.is_empty() && digits.parse::<f64>().is_ok() && known.contains(&suffix)
}

/// What resources and containers may be called.
fn is_dns_label(text: &str) -> bool {
    let inner =
        |character: char| character.is_ascii_lowercase() || character.is_ascii_digit() || character == '-';
    !text.is_empty()
        && text.len() <= 63
        && text.chars().all(inner)
        && text.starts_with(|first: char| first.is_ascii_lowercase())
        && !text.ends_with('-')
}

#[test]
fn the_validator_finds_what_is_wrong() {
    let service = serde_json::json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "-bad"},
        "spec": {"selector": {"app": 1}, "ports": [{"name": "http", "targetport": 1}, {"port": 70_000}]},
    });
    let found = problems(&service);
    for part in [
        "Service.metadata.name",
        "Service.spec.selector.app: 1 is no string",
        "ports[0]: \"port\" is required",
        "ports[0].targetport: unknown field",
        "ports[1].port: 70000 is out of bounds",
    ] {
        assert!(found.iter().any(|problem| problem.contains(part)), "no {part:?} in {found:#?}");
    }
    assert_eq!(found.len(), 5, "{found:#?}");
}
