//! Cases as they are written in `cases/*.yaml`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use spica::report::record::Status;

use super::figure::Figure;

/// One deployment, its requests and what has to come of them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Variant {
    pub name: String,
    #[serde(default)]
    pub engine: Map<String, Value>,
    #[serde(default)]
    pub timing: Option<Value>,
    #[serde(default)]
    pub dp_size: Option<u32>,
    #[serde(default)]
    pub router: Option<Value>,
    /// Makes the deployment one of two pools: the engine of the decode pool, where it differs.
    #[serde(default)]
    pub decode: Option<Map<String, Value>>,
    #[serde(default)]
    pub kv_transfer: Option<Value>,
    #[serde(default)]
    pub workers: Option<u32>,
    #[serde(default)]
    pub workload: Map<String, Value>,
    #[serde(default)]
    pub sla: Option<Value>,
    #[serde(default)]
    pub max_sim_time_ms: Option<Value>,
    #[serde(default)]
    pub requests: Vec<Value>,
    #[serde(default)]
    pub rows: Vec<Value>,
    #[serde(default)]
    pub expect: BTreeMap<String, Expected>,
    #[serde(default)]
    pub summary: BTreeMap<String, Figure>,
    #[serde(default)]
    pub about: BTreeMap<String, Figure>,
    #[serde(default)]
    pub counters: BTreeMap<String, u64>,
}

/// What has to come of one request; what is absent is not looked at, except for the status.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expected {
    #[serde(default)]
    pub tokens_ms: Option<Vec<f64>>,
    #[serde(default)]
    pub arrival_ms: Option<f64>,
    #[serde(default)]
    pub first_admit_ms: Option<f64>,
    #[serde(default)]
    pub terminal_ms: Option<f64>,
    #[serde(default)]
    pub reused: Option<u32>,
    #[serde(default)]
    pub admissions: Option<u32>,
    #[serde(default)]
    pub worker: Option<u32>,
    #[serde(default)]
    pub status: Ending,
    #[serde(default)]
    pub handoff: HandoffMs,
}

/// When the steps of a hand-off are expected.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct HandoffMs {
    pub source_held: Option<f64>,
    pub destination_reserved: Option<f64>,
    pub destination_activated: Option<f64>,
    pub decode_admit: Option<f64>,
    pub source_released: Option<f64>,
}

/// How a request is expected to end.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Ending {
    #[default]
    Completed,
    Rejected,
    Unfinished,
}

impl Ending {
    pub(crate) fn status(self) -> Status {
        match self {
            Self::Completed => Status::Completed,
            Self::Rejected => Status::Rejected,
            Self::Unfinished => Status::Unfinished,
        }
    }
}

/// The folder of the case files.
pub(crate) fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/cases")
}

/// What a case file says, usually a list of variants.
pub(crate) fn read<T: DeserializeOwned>(name: &str) -> T {
    let path = folder().join(format!("{name}.yaml"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_yaml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
