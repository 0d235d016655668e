//! Resolved configurations as text: loading the text again gives the same configuration.

use std::path::{Component, Path, PathBuf};

use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};
use serde_json::Value as Json;

use super::Document;
use super::facts::FactFiles;
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

/// The path that leads from `folder` to where `path` leads from the working directory: by names, or an absolute one where a
/// symbolic link on the way makes names lead elsewhere.
fn rebased(path: &Path, folder: &Path) -> PathBuf {
    let by_names = rebased_by_names(path, folder);
    let (Some(folder), Ok(wanted)) = (real(folder), path.canonicalize()) else { return by_names };
    let leads_there = tidy(&folder.join(&by_names)).canonicalize().is_ok_and(|found| found == wanted);
    if leads_there { by_names } else { wanted }
}

/// Where a folder really is, or will be once it is made.
fn real(folder: &Path) -> Option<PathBuf> {
    let absolute = std::path::absolute(Path::new(".").join(folder)).ok()?;
    absolute.ancestors().find_map(|above| {
        let below = absolute.strip_prefix(above).ok()?;
        Some(above.canonicalize().ok()?.join(below))
    })
}

/// The same without a look at the disk. An absolute path leads there from anywhere. Where the folder is absolute, or above the
/// working directory, the names of the latter decide; where they cannot be told, the path stays as it is.
fn rebased_by_names(path: &Path, folder: &Path) -> PathBuf {
    if path.is_absolute() {
        return path.to_owned();
    }
    let (by_names, from) = (tidy(path), tidy(folder));
    if folder.is_relative() && !beyond(&by_names, &from).1.contains(&Component::ParentDir) {
        return between(&by_names, &from);
    }
    match (std::path::absolute(path), std::path::absolute(folder)) {
        (Ok(path), Ok(folder)) => between(&tidy(&path), &tidy(&folder)),
        _ => path.to_owned(),
    }
}

/// How much a path has in common with a folder, and what the folder has beyond that.
fn beyond<'f>(path: &Path, folder: &'f Path) -> (usize, Vec<Component<'f>>) {
    let common = path.components().zip(folder.components()).take_while(|(a, b)| a == b).count();
    (common, folder.components().skip(common).collect())
}

/// The way from a folder to a path, both by names.
fn between(path: &Path, folder: &Path) -> PathBuf {
    let (common, above) = beyond(path, folder);
    let up = above.iter().map(|_| Component::ParentDir);
    up.chain(path.components().skip(common)).collect()
}

/// Without `.`, and without `name/..`.
fn tidy(path: &Path) -> PathBuf {
    let mut tidy = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if matches!(tidy.components().next_back(), Some(Component::Normal(_))) => {
                tidy.pop();
            }
            component => tidy.push(component),
        }
    }
    tidy
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_the_same_place_from_another_folder() {
        let rebased = |path, folder| rebased(Path::new(path), Path::new(folder)).display().to_string();
        assert_eq!(rebased("scenarios/traces/a.jsonl", "scenarios"), "traces/a.jsonl");
        assert_eq!(rebased("scenarios/a.jsonl", "out/best"), "../../scenarios/a.jsonl");
        assert_eq!(rebased("a.jsonl", ""), "a.jsonl");
        assert_eq!(rebased("./x/../a.jsonl", "."), "a.jsonl");
        assert_eq!(rebased("/data/a.jsonl", "/data/out"), "/data/a.jsonl");
        assert_eq!(rebased("../a.jsonl", "../out"), "../a.jsonl");
        assert_eq!(rebased("../a.jsonl", "out"), "../../a.jsonl");
        let folder = std::path::absolute("out").expect("there is a working directory");
        let folder = folder.display().to_string();
        assert_eq!(rebased("a.jsonl", &folder), "../a.jsonl");
        // Out of a folder above this one the way leads back by its name.
        let here = std::env::current_dir().expect("there is one");
        let name = here.file_name().expect("it is no root").display();
        assert_eq!(rebased("b/a.jsonl", "../out"), format!("../{name}/b/a.jsonl"));
    }

    #[cfg(unix)]
    #[test]
    fn a_link_on_the_way_is_followed() {
        let place = tempfile::tempdir().expect("a folder");
        let root = place.path().canonicalize().expect("it is there");
        for folder in ["here", "deep/er/est", "traces"] {
            std::fs::create_dir_all(root.join(folder)).expect("a folder");
        }
        std::fs::write(root.join("traces/a.jsonl"), "").expect("a file");
        std::os::unix::fs::symlink(root.join("deep/er/est"), root.join("here/out")).expect("a link");
        let trace = root.join("here/../traces/a.jsonl");
        // An absolute path stays one; by names it would lead from deep/er/est to deep/traces.
        assert_eq!(rebased(&trace, &root.join("here/out")), trace);
        let cwd = std::env::current_dir().expect("there is one").canonicalize().expect("it is there");
        let up: PathBuf = cwd.components().skip(1).map(|_| Component::ParentDir).collect();
        let relative = up.join(root.strip_prefix("/").expect("absolute")).join("traces/a.jsonl");
        assert_eq!(rebased(&relative, &root.join("here/out")), root.join("traces/a.jsonl"));
        assert_eq!(rebased(Path::new("Cargo.toml"), Path::new("")), Path::new("Cargo.toml"));
        assert_eq!(rebased(&relative, &root.join("here/new/er")), Path::new("../../../traces/a.jsonl"));
        assert_eq!(rebased(&relative, &root.join("here/out/new")), root.join("traces/a.jsonl"));
    }
}
