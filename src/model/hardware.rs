//! The data sheet of one GPU.

use serde::Deserialize;

use super::error::ModelError;

/// The data sheet of one GPU in its node. Rates are peaks: bytes and operations per second.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HardwareFacts {
    /// The name under which it is asked for.
    #[serde(skip)]
    pub name: String,
    /// Memory of one GPU, in bytes.
    pub memory_bytes: u64,
    /// Bandwidth of that memory, in bytes per second.
    pub memory_bandwidth: f64,
    /// Operations on numbers of two bytes, per second.
    pub bf16_flops: f64,
    /// Operations on numbers of one byte; absent where there are none.
    #[serde(default)]
    pub fp8_flops: Option<f64>,
    /// Operations on numbers of four bits; absent where there are none.
    #[serde(default)]
    pub fp4_flops: Option<f64>,
    /// GPUs that share the fast links.
    pub gpus_per_node: u32,
    /// Bandwidth of one GPU to the others of its node, one way, in bytes per second.
    pub intra_node_bandwidth: f64,
    /// Bandwidth of one GPU to other nodes, one way, in bytes per second.
    pub inter_node_bandwidth: f64,
}

impl HardwareFacts {
    /// The facts in a file. `name` is the GPU's, `place` the file's, for messages.
    ///
    /// # Errors
    /// A key that is missing, unknown, of the wrong type, or without meaning.
    pub fn from_json(name: &str, place: &str, text: &str) -> Result<Self, ModelError> {
        let mut facts: Self = serde_json::from_str(text)
            .map_err(|error| ModelError::Syntax { place: place.to_owned(), message: error.to_string() })?;
        name.clone_into(&mut facts.name);
        let rates = [
            ("memory_bandwidth", Some(facts.memory_bandwidth)),
            ("bf16_flops", Some(facts.bf16_flops)),
            ("fp8_flops", facts.fp8_flops),
            ("fp4_flops", facts.fp4_flops),
            ("intra_node_bandwidth", Some(facts.intra_node_bandwidth)),
            ("inter_node_bandwidth", Some(facts.inter_node_bandwidth)),
            ("memory_bytes", Some(facts.memory_bytes as f64)),
            ("gpus_per_node", Some(f64::from(facts.gpus_per_node))),
        ];
        let wrong = rates.into_iter().filter(|(_, rate)| rate.is_some_and(|rate| rate <= 0.0));
        let problems: Vec<String> =
            wrong.map(|(key, _)| format!("{place}: {key}: has to be above 0")).collect();
        if problems.is_empty() { Ok(facts) } else { Err(ModelError::Facts { problems }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"{"memory_bytes": 1000, "memory_bandwidth": 1e12, "bf16_flops": 1e14, "gpus_per_node": 8,
                           "intra_node_bandwidth": 1e11, "inter_node_bandwidth": 1e10}"#;

    #[test]
    fn a_file_of_ones_own_is_as_good_as_a_bundled_one() {
        let facts = HardwareFacts::from_json("mine", "mine.json", FILE).unwrap();
        assert_eq!((facts.name.as_str(), facts.memory_bytes, facts.fp8_flops), ("mine", 1000, None));
    }

    #[test]
    fn mistakes_are_named() {
        let error = |text: &str| HardwareFacts::from_json("mine", "mine.json", text).unwrap_err().to_string();
        assert!(error(&FILE.replace("gpus_per_node", "gpu_per_node")).contains("gpu_per_node"));
        assert!(error(&FILE.replace("1e14", "-1e14")).contains("mine.json: bf16_flops: has to be above 0"));
    }
}
