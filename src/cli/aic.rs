//! Passes priced by AI Configurator's own database: the only module that knows its crate.

use std::path::Path;

use aisimulate_core::ENGINE_SPEC_SCHEMA_VERSION;
use aisimulate_core::perfmodel::engine::runtime::Engine;
use aisimulate_core::perfmodel::engine::spec::EngineSpec;
use serde_json::Value;

/// The release of the crate, which is pinned.
pub(super) const RELEASE: &str = "0.13.0";

/// A deployment over the database in a folder.
pub(super) struct Database(Engine);

impl Database {
    /// Opens the database in `systems` for a deployment in its compiled form, of whatever version of the form.
    ///
    /// # Errors
    /// A form that is not understood, or data that are not there.
    pub(super) fn open(spec: Value, systems: &Path) -> Result<Self, String> {
        let bytes = encoded(spec)?;
        Engine::from_spec_bytes(&bytes, systems).map(Self).map_err(|error| error.to_string())
    }

    /// Milliseconds of a pass over `batch` equal prompts of `new` tokens after `prefix` others.
    ///
    /// # Errors
    /// Kernels that were not measured.
    pub(super) fn prefill_ms(&self, batch: u32, new: u32, prefix: u32) -> Result<f64, String> {
        // Its length of a prompt counts what is there already.
        let ms = self.0.predict_prefill_latency(batch, new + prefix, prefix);
        ms.map_err(|error| error.to_string())
    }

    /// Milliseconds of a decode pass of `batch` requests of `context` tokens.
    ///
    /// # Errors
    /// Kernels that were not measured.
    pub(super) fn decode_ms(&self, batch: u32, context: u32) -> Result<f64, String> {
        // Two output tokens are one decode pass.
        self.0.predict_decode_latency(batch, context, 2).map_err(|error| error.to_string())
    }
}

/// The form that crosses into the crate.
fn encoded(mut spec: Value) -> Result<Vec<u8>, String> {
    let fields = spec.as_object_mut().ok_or("a compiled deployment is a JSON object")?;
    fields.insert("schema_version".into(), ENGINE_SPEC_SCHEMA_VERSION.into());
    let spec: EngineSpec = serde_json::from_value(spec).map_err(|error| error.to_string())?;
    spec.to_bincode().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::scenario::Backend;
    use crate::model::{Catalogue, Split, engine_spec};

    fn spec() -> Value {
        let model = Catalogue::bundled().model("MiniMaxAI/MiniMax-M2.5").unwrap();
        let split = Split { tp: 4, moe_ep: 4, ..Split::WHOLE };
        engine_spec(&model, split, "b200_sxm", Backend::Vllm, "0.24.0").unwrap()
    }

    #[test]
    fn our_lists_of_operators_are_understood() {
        assert!(encoded(spec()).unwrap().len() > 1000);
        let mut spec = spec();
        spec["context_ops"][0] = serde_json::json!({"Teleport": {}});
        assert!(encoded(spec).unwrap_err().contains("Teleport"));
        assert!(encoded(Value::Null).is_err());
    }

    #[test]
    fn a_folder_without_data_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Database::open(spec(), folder.path()).is_err());
    }
}
