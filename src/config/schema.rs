//! JSON Schemas of both kinds of configuration, for editors; and with them the paths of all keys.
//!
//! The types of the plans describe themselves; what they cannot know is added here.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value as Json};

use super::presets::{
    FPM_SAMPLINGS, FpmSampling, LOAD_PREDICTORS, LOAD_SENSITIVITIES, LoadPredictor, LoadSensitivity, Preset,
    SCALING_POLICIES, ScalingPolicy, ScalingSettings,
};
use super::scenario::{PolicyConfig, Scenario};
use super::search::SmartSearchConfig;

/// The schema of scenarios, in pretty JSON with a final newline.
pub fn of_scenarios() -> String {
    text(&schemars::schema_for!(Scenario))
}

/// The schema of search configurations, in pretty JSON with a final newline.
pub fn of_searches() -> String {
    text(&schemars::schema_for!(SmartSearchConfig))
}

fn text(schema: &Schema) -> String {
    let mut text = serde_json::to_string_pretty(schema).expect("a schema is plain data");
    text.push('\n');
    text
}

/// The paths of all keys of a scenario, as `deployment.agg.workers`; `[]` stands for any place in a list.
pub(super) fn paths_of_scenarios() -> Vec<String> {
    paths(&schemars::schema_for!(Scenario))
}

/// The paths of all keys of a search configuration.
pub(super) fn paths_of_searches() -> Vec<String> {
    paths(&schemars::schema_for!(SmartSearchConfig))
}

fn paths(schema: &Schema) -> Vec<String> {
    let root = schema.as_value();
    let mut paths = Vec::new();
    collect_paths(root, root, "", &mut paths);
    paths
}

fn collect_paths(root: &Json, schema: &Json, path: &str, paths: &mut Vec<String>) {
    if let Some(target) = schema["$ref"].as_str().and_then(|target| target.strip_prefix('#')) {
        collect_paths(root, root.pointer(target).unwrap_or(&Json::Null), path, paths);
    }
    for combination in ["anyOf", "oneOf", "allOf"] {
        for part in schema[combination].as_array().into_iter().flatten() {
            collect_paths(root, part, path, paths);
        }
    }
    if schema["items"].is_object() {
        collect_paths(root, &schema["items"], &format!("{path}[]"), paths);
    }
    for (key, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = super::yaml::join(path, key);
        if !paths.contains(&path) {
            paths.push(path.clone());
        }
        collect_paths(root, property, &path, paths);
    }
}

impl JsonSchema for PolicyConfig {
    fn schema_name() -> Cow<'static, str> {
        "Policy".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A policy: its name, or its name with its own fields.",
            "anyOf": [
                {"type": "string"},
                {
                    "type": "object",
                    "properties": {"policy": {"type": "string", "description": "The name it is registered under."}},
                    "required": ["policy"]
                }
            ]
        })
    }
}

/// A planner, which may go without a name.
pub(super) struct PlannerForm;

impl JsonSchema for PlannerForm {
    fn schema_name() -> Cow<'static, str> {
        "Planner".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A planner: a preset, a registered planner, or fields of the built-in one.",
            "anyOf": [
                {"type": "string"},
                {
                    "type": "object",
                    "properties": {
                        "policy": {"type": "string", "description": "A preset, or the name it is registered under."}
                    }
                }
            ]
        })
    }
}

/// Settings that have presets.
pub(super) trait Composite: JsonSchema + Copy + 'static {
    const PRESETS: &'static [Preset<Self>];
}

impl Composite for FpmSampling {
    const PRESETS: &'static [Preset<Self>] = &FPM_SAMPLINGS;
}

impl Composite for LoadSensitivity {
    const PRESETS: &'static [Preset<Self>] = &LOAD_SENSITIVITIES;
}

impl Composite for LoadPredictor {
    const PRESETS: &'static [Preset<Self>] = &LOAD_PREDICTORS;
}

impl<T: Composite> JsonSchema for Preset<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("{}Choice", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let names: Vec<_> = T::PRESETS.iter().filter_map(|preset| preset.name).collect();
        json_schema!({"anyOf": [{"type": "string", "enum": names}, generator.subschema_for::<T>()]})
    }
}

impl JsonSchema for ScalingPolicy {
    fn schema_name() -> Cow<'static, str> {
        "ScalingPolicy".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let names: Vec<_> = SCALING_POLICIES.iter().filter_map(|preset| preset.name).collect();
        json_schema!({
            "description": "A preset, all settings of the built-in planner, or a registered planner.",
            "anyOf": [
                {"type": "string", "examples": names},
                generator.subschema_for::<ScalingSettings>(),
                generator.subschema_for::<PolicyConfig>()
            ]
        })
    }
}

fn properties(schema: &mut Schema) -> Option<&mut Map<String, Json>> {
    schema.get_mut("properties")?.as_object_mut()
}

fn drop_defaults(schema: &mut Schema, keys: &[&str]) {
    let Some(properties) = properties(schema) else { return };
    for key in keys {
        if let Some(property) = properties.get_mut(*key).and_then(Json::as_object_mut) {
            property.shift_remove("default");
        }
    }
}

/// The block size follows the backend, the number of blocks may come from a memory model.
pub(super) fn engine(schema: &mut Schema) {
    drop_defaults(schema, &["block_size", "num_gpu_blocks"]);
}

/// A round is as large as the number of parallel evaluations unless given.
pub(super) fn sweep(schema: &mut Schema) {
    drop_defaults(schema, &["candidates_per_round"]);
}

/// Exactly one kind of portions.
pub(super) fn fidelity(schema: &mut Schema) {
    let one_of = [json_schema!({"required": ["rows"]}), json_schema!({"required": ["fractions"]})];
    schema.insert("required".to_owned(), Vec::<String>::new().into());
    schema.insert("oneOf".to_owned(), one_of.into_iter().map(Json::from).collect());
    for key in ["rows", "fractions"] {
        let Some(property) = properties(schema).and_then(|all| all.get_mut(key)?.as_object_mut()) else {
            continue;
        };
        property.insert("minItems".to_owned(), 1.into());
        if let Some(items) = property.get_mut("items").and_then(Json::as_object_mut)
            && key == "fractions"
        {
            items.insert("exclusiveMinimum".to_owned(), 0.into());
            items.insert("exclusiveMaximum".to_owned(), 1.into());
        }
    }
}

/// Names are required, lists are not empty, and plain lists take the entries of their default only.
pub(super) fn search_space(schema: &mut Schema) {
    let names = ["model_name", "hardware_sku"];
    drop_defaults(schema, &names);
    drop_defaults(schema, &["timing"]);
    schema.insert("required".to_owned(), names.as_slice().into());
    for (key, property) in properties(schema).into_iter().flatten() {
        let Some(property) = property.as_object_mut() else { continue };
        if property.get("type").is_none_or(|kind| kind != "array") || key == "parallel_configs" {
            continue;
        }
        property.insert("minItems".to_owned(), 1.into());
        let choices = property.get("default").cloned();
        let items = property.get_mut("items").and_then(Json::as_object_mut);
        if let (Some(choices), Some(items)) = (choices, items)
            && items.get("type").is_some_and(|kind| kind == "integer" || kind == "number")
        {
            *items = Map::from_iter([("enum".to_owned(), choices)]);
        }
    }
}
