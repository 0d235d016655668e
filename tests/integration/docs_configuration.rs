//! `docs/configuration.md` lists every key of the schemas, with its type, default and meaning.
//!
//! After a change of a schema, write it anew with
//!
//! ```text
//! SPICA_RENEW_DOCUMENTS=1 cargo test --test integration docs_configuration
//! ```

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::fmt::Write as _;

use serde_json::Value;

use super::bundled::repository;

const INTRODUCTION: &str = "\
# Configuration

Every key of the two kinds of file, as [scenario.schema.json](../schemas/scenario.schema.json) and
[search.schema.json](../schemas/search.schema.json) have it; this page is made from them. An editor that knows JSON schemas
completes and checks keys while you type.

- A key that is not listed is refused, with the nearest one that is.
- Paths are relative to the file that names them; those of `--set` are relative to the working directory.
  So are those in results: they start from the folder that the results are in, wherever the command was run, and what is printed as JSON
  without an `--output-dir` says where files are as its configuration does.
- A key that cannot act where it stands is refused, unless it says what would be so anyway. Where the reference takes such a
  key without a word, a note says that it has no effect.
- `spica check FILE` prints a file with every default filled in, and refuses whatever a run would refuse before it starts:
  traces and tables that are missing or wrong, policies that nobody knows, layouts that cannot be. Relative paths in what it
  prints start from the folder of FILE, so that is where it belongs.
- Policies (routers, planners, schedulers, samplers) take fields of their own beside `policy`: see [extending.md](extending.md).
";

fn schema(name: &str) -> Value {
    let path = repository().join("schemas").join(name);
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The name of a definition that a schema refers to.
fn reference(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str().map(|path| path.rsplit('/').next().unwrap())
}

fn link(name: &str) -> String {
    format!("[{name}](#{})", name.to_lowercase())
}

/// What a value has to be, in a few words.
fn kind(schema: &Value) -> String {
    if let Some(name) = reference(schema) {
        return link(name);
    }
    for key in ["anyOf", "oneOf"] {
        if let Some(variants) = schema[key].as_array() {
            let kinds: Vec<String> = variants.iter().map(kind).collect();
            return kinds.join(" or ");
        }
    }
    if let Some(value) = schema.get("const") {
        return format!("`{}`", plain(value));
    }
    if let Some(values) = schema["enum"].as_array() {
        return values.iter().map(|value| format!("`{}`", plain(value))).collect::<Vec<_>>().join(" or ");
    }
    let one = |name: &str| match name {
        "array" => match schema.get("items") {
            Some(items) => format!("list of {}", kind(items)),
            None => "list".into(),
        },
        other => other.to_owned(),
    };
    let kinds = match &schema["type"] {
        Value::String(name) => one(name),
        Value::Array(names) => {
            names.iter().map(|name| one(name.as_str().unwrap())).collect::<Vec<_>>().join(" or ")
        }
        _ => "any".into(),
    };
    kinds + &range(schema)
}

fn range(schema: &Value) -> String {
    let bounds = [
        ("minimum", "from"),
        ("exclusiveMinimum", "above"),
        ("maximum", "to"),
        ("exclusiveMaximum", "below"),
    ];
    let words: Vec<String> = bounds
        .iter()
        .filter_map(|(key, word)| Some(format!("{word} {}", plain(schema.get(*key)?))))
        .collect();
    if words.is_empty() { String::new() } else { format!(", {}", words.join(" ")) }
}

/// A value without the quotes of JSON; whole numbers without a point.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => match number.as_f64() {
            Some(float) if float.fract() == 0.0 && float.abs() < 1e15 => format!("{float:.0}"),
            _ => number.to_string(),
        },
        other => other.to_string(),
    }
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// Rows for the keys of an object.
fn rows(object: &Value, text: &mut String) {
    let Some(properties) = object["properties"].as_object() else { return };
    let required: Vec<&str> =
        object["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    text.push_str("\n| key | value | default | meaning |\n|---|---|---|---|\n");
    for (name, property) in properties {
        let default = match property.get("default") {
            _ if required.contains(&name.as_str()) => "required".into(),
            Some(default) if default.is_object() => "see there".into(),
            Some(default) => format!("`{}`", plain(default)),
            None => "-".into(),
        };
        let meaning = property["description"].as_str().unwrap_or_default();
        let _ = writeln!(
            text,
            "| `{name}` | {} | {} | {} |",
            cell(&kind(property)),
            cell(&default),
            cell(meaning)
        );
    }
}

/// A definition: its keys, or the values that it may have.
fn definition(name: &str, schema: &Value, text: &mut String) {
    let description = schema["description"].as_str().unwrap_or_default();
    let _ = writeln!(text, "\n### {name}\n\n{description}");
    rows(schema, text);
    let variants = ["oneOf", "anyOf"].into_iter().find_map(|key| schema[key].as_array());
    let Some(variants) = variants else { return };
    // What only says which keys go together is in the description.
    let has_values = |variant: &&Value| variant.as_object().unwrap().keys().any(|key| key != "required");
    let variants: Vec<&Value> = variants.iter().filter(has_values).collect();
    if !variants.is_empty() {
        text.push('\n');
    }
    for variant in variants {
        let description = variant["description"].as_str().map(|text| format!(": {text}")).unwrap_or_default();
        if variant["properties"].is_object() {
            let fixed = variant["properties"]
                .as_object()
                .unwrap()
                .iter()
                .find(|(_, value)| value.get("const").is_some());
            let title = fixed
                .map_or("with fields".into(), |(key, value)| format!("`{key}: {}`", plain(&value["const"])));
            let fields =
                reference(variant).map(|name| format!(" Its fields: {}.", link(name))).unwrap_or_default();
            let _ = writeln!(text, "- {title}{description}{fields}");
            for (key, value) in variant["properties"].as_object().unwrap() {
                if value.get("const").is_none() {
                    let meaning = value["description"].as_str().unwrap_or_default();
                    let _ = writeln!(text, "  - `{key}`: {}; {meaning}", kind(value));
                }
            }
        } else {
            let _ = writeln!(text, "- {}{description}", kind(variant));
        }
    }
}

fn document() -> String {
    let mut text = INTRODUCTION.to_owned();
    let mut known: Vec<String> = Vec::new();
    for (title, name, command) in [
        ("Scenario", "scenario.schema.json", "spica replay"),
        ("Search configuration", "search.schema.json", "spica search"),
    ] {
        let schema = schema(name);
        let _ = writeln!(
            text,
            "\n## {title}\n\n{} For `{command}`.",
            schema["description"].as_str().unwrap_or_default()
        );
        rows(&schema, &mut text);
        for (name, body) in schema["$defs"].as_object().unwrap() {
            if !known.contains(name) {
                known.push(name.clone());
                definition(name, body, &mut text);
            }
        }
    }
    text
}

#[test]
fn the_list_of_keys_is_that_of_the_schemas() {
    let path = repository().join("docs/configuration.md");
    let today = document();
    if std::env::var_os("SPICA_RENEW_DOCUMENTS").is_some() {
        std::fs::write(&path, &today).unwrap();
        return;
    }
    let text = std::fs::read_to_string(&path).unwrap();
    for (number, (says, is)) in (1..).zip(text.lines().zip(today.lines())) {
        assert_eq!(says, is, "docs/configuration.md:{number}: renew it with SPICA_RENEW_DOCUMENTS=1");
    }
    assert_eq!(text, today);
}

#[test]
fn every_key_is_listed() {
    let today = document();
    for name in ["scenario.schema.json", "search.schema.json"] {
        let schema = schema(name);
        let definitions = schema["$defs"].as_object().unwrap().values();
        for object in definitions.chain([&schema]) {
            for key in object["properties"].as_object().into_iter().flat_map(|keys| keys.keys()) {
                assert!(today.contains(&format!("| `{key}` |")), "{key}");
            }
        }
    }
}

#[test]
fn variants_lead_to_their_fields_and_rules_are_no_values() {
    let schema = serde_json::json!({
        "description": "Prices.",
        "oneOf": [
            {"description": "A grid.", "properties": {"model": {"const": "grid"}}, "$ref": "#/$defs/GridConfig"},
            {"required": ["rows"]},
        ],
    });
    let mut text = String::new();
    definition("Timing", &schema, &mut text);
    assert_eq!(
        text,
        "\n### Timing\n\nPrices.\n\n- `model: grid`: A grid. Its fields: [GridConfig](#gridconfig).\n"
    );
}
