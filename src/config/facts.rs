//! Files of facts about models and GPUs that are not built in.

use std::path::PathBuf;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

/// Files of facts about models and GPUs that are not built in, or that go before those that are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields, default)]
pub struct FactFiles {
    /// Models: each a Hugging Face `config.json`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<FactFile>,
    /// GPUs: each a small JSON file of data sheet figures of one GPU: `memory_bytes`, `memory_bandwidth` (bytes per second),
    /// `bf16_flops`, `fp8_flops` and `fp4_flops` (operations per second; the last two only where there are any), `gpus_per_node`,
    /// `intra_node_bandwidth` and `inter_node_bandwidth` (bytes per second, one way).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hardware: Vec<FactFile>,
}

/// A file of facts and the name under which they are used.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct FactFile {
    /// The name: a `model_name` or a `hardware_sku`.
    pub name: String,
    /// Where the file is.
    pub path: PathBuf,
    /// What it holds; `None` until whoever opens files has read it.
    #[serde(skip)]
    pub content: Option<Arc<str>>,
}

impl FactFiles {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.models.is_empty() && self.hardware.is_empty()
    }

    /// All of them, each with the path of its key.
    pub(crate) fn files_by_key(&mut self) -> impl Iterator<Item = (String, &mut FactFile)> {
        let models = self.models.iter_mut().enumerate();
        let models = models.map(|(place, file)| (format!("facts.models[{place}]"), file));
        let hardware = self.hardware.iter_mut().enumerate();
        models.chain(hardware.map(|(place, file)| (format!("facts.hardware[{place}]"), file)))
    }

    /// Only the file at one of these paths.
    pub(crate) fn of(key: &str, file: &FactFile) -> Self {
        let files = vec![file.clone()];
        if key.starts_with("facts.models") {
            Self { models: files, hardware: Vec::new() }
        } else {
            Self { models: Vec::new(), hardware: files }
        }
    }

    /// All of them.
    pub fn files_mut(&mut self) -> impl Iterator<Item = &mut FactFile> {
        self.models.iter_mut().chain(&mut self.hardware)
    }
}
