//! Resolved configurations as text: loading the text again gives the same configuration.

use std::path::Path;

use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};
use serde_json::Value as Json;

use super::Document;
use super::facts::FactFiles;
use super::paths::rebased;
use super::scenario::{CapacitySource, Deployment, MeasuredFile, Scenario, TimingConfig, WorkloadSource};
use super::search::{LoadShape, SmartSearchConfig};
use super::yaml;

impl Document {
    /// The configuration with every default, in the form of its file.
    pub fn to_json(&self) -> Json {
        match self {
            Self::Search(search) => search.to_json(),
            Self::Scenario(scenario) => scenario.to_json(),
        }
    }

    /// The configuration with every default, as YAML.
    pub fn to_yaml(&self) -> String {
        text(&self.to_json())
    }

    /// The files of measured passes that it names, each with the path of its key.
    pub fn measured_files_mut(&mut self) -> Vec<(String, &mut MeasuredFile)> {
        let timings = match self {
            Self::Search(search) => {
                vec![("search_space.timing".to_owned(), &mut search.search_space.timing)]
            }
            Self::Scenario(scenario) => {
                let Deployment { agg, prefill, decode, .. } = &mut scenario.deployment;
                [("agg", agg), ("prefill", prefill), ("decode", decode)]
                    .into_iter()
                    .filter_map(|(name, pool)| Some((name, pool.as_mut()?)))
                    .map(|(name, pool)| (format!("deployment.{name}.timing"), &mut pool.timing))
                    .collect()
            }
        };
        let files = timings.into_iter().flat_map(|(key, timing)| {
            let name = if matches!(timing, TimingConfig::Grid(_)) { "path" } else { "rescale" };
            timing.files_mut().map(move |file| (format!("{key}.{name}"), file))
        });
        files.collect()
    }

    /// The same with file paths that start from `folder`, where the text is going to be.
    #[must_use]
    pub fn with_paths_from(&self, folder: &Path) -> Self {
        match self {
            Self::Search(search) => Self::Search(search.with_paths_from(folder)),
            Self::Scenario(scenario) => Self::Scenario(scenario.with_paths_from(folder)),
        }
    }
}

impl Scenario {
    /// The scenario with every default, in the form of its file.
    pub fn to_json(&self) -> Json {
        let mut json =
            serde_json::to_value(self).expect("plain data with string keys always has a JSON form");
        for pool in ["agg", "prefill", "decode"] {
            let engine =
                json.pointer_mut(&format!("/deployment/{pool}/engine")).and_then(Json::as_object_mut);
            let Some(engine) = engine else { continue };
            if engine["backend"] != "sglang" {
                engine.shift_remove("sglang");
            }
            // A memory model finds the number again; written down, it would look as if it had been given.
            if sized_by_memory(&self.deployment, pool) {
                engine.shift_remove("num_gpu_blocks");
            }
        }
        json
    }

    /// The scenario with every default, as YAML.
    pub fn to_yaml(&self) -> String {
        text(&self.to_json())
    }

    /// The same with file paths that start from `folder`, where the text is going to be.
    #[must_use]
    pub fn with_paths_from(&self, folder: &Path) -> Self {
        let mut scenario = self.clone();
        for pool in scenario.deployment.pools_mut() {
            rebase_timing(&mut pool.timing, folder);
        }
        rebase_facts(&mut scenario.facts, folder);
        if let WorkloadSource::Trace(trace) = &mut scenario.workload.source {
            trace.path = rebased(&trace.path, folder);
        }
        scenario
    }
}

impl SmartSearchConfig {
    /// The configuration with every default, in the form of its file.
    pub fn to_json(&self) -> Json {
        serde_json::to_value(self).expect("plain data with string keys always has a JSON form")
    }

    /// The configuration with every default, as YAML.
    pub fn to_yaml(&self) -> String {
        text(&self.to_json())
    }

    /// The same with file paths that start from `folder`, where the text is going to be.
    #[must_use]
    pub fn with_paths_from(&self, folder: &Path) -> Self {
        let mut search = self.clone();
        rebase_timing(&mut search.search_space.timing, folder);
        rebase_facts(&mut search.facts, folder);
        if let LoadShape::Trace(trace) = &mut search.workload.load {
            trace.source.path = rebased(&trace.source.path, folder);
        }
        search
    }
}

fn sized_by_memory(deployment: &Deployment, pool: &str) -> bool {
    let pool = match pool {
        "agg" => &deployment.agg,
        "prefill" => &deployment.prefill,
        _ => &deployment.decode,
    };
    pool.as_ref().is_some_and(|pool| pool.engine.capacity_source == CapacitySource::MemoryModel)
}

fn rebase_facts(facts: &mut FactFiles, folder: &Path) {
    for file in facts.files_mut() {
        file.path = rebased(&file.path, folder);
    }
}

fn rebase_timing(timing: &mut TimingConfig, folder: &Path) {
    for file in timing.files_mut() {
        file.path = rebased(&file.path, folder);
    }
}

fn text(json: &Json) -> String {
    yaml::to_text(&Pretty(json))
}

/// Lists of plain values on one line.
struct Pretty<'a>(&'a Json);

impl Serialize for Pretty<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Json::Object(fields) => {
                serializer.collect_map(fields.iter().map(|(key, value)| (key, Pretty(value))))
            }
            Json::Array(items) if items.iter().any(|item| item.is_object() || item.is_array()) => {
                let mut list = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    list.serialize_element(&Pretty(item))?;
                }
                list.end()
            }
            Json::Array(items) => yaml::on_one_line(items).serialize(serializer),
            scalar => scalar.serialize(serializer),
        }
    }
}
