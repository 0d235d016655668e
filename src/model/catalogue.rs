//! Models and GPUs by name.

use indexmap::IndexMap;

use super::error::ModelError;
use super::facts::ModelFacts;
use super::hardware::HardwareFacts;
use crate::config::facts::{FactFile, FactFiles};
use crate::config::hints::by_likeness;

macro_rules! bundled_models {
    ($($name:literal: $file:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("configs/", $file, ".json")))),*]
    };
}

/// The bundled models: their names and their configurations, reduced to the keys that are read.
const MODELS: &[(&str, &str)] = bundled_models! {
    "MiniMaxAI/MiniMax-M2.5": "MiniMaxAI--MiniMax-M2.5",
    "nvidia/MiniMax-M2.5-NVFP4": "nvidia--MiniMax-M2.5-NVFP4",
    "Qwen/Qwen3-0.6B": "Qwen--Qwen3-0.6B",
    "Qwen/Qwen3-8B": "Qwen--Qwen3-8B",
    "Qwen/Qwen3-32B": "Qwen--Qwen3-32B",
    "Qwen/Qwen3-32B-FP8": "Qwen--Qwen3-32B-FP8",
    "Qwen/Qwen3-30B-A3B": "Qwen--Qwen3-30B-A3B",
    "Qwen/Qwen3-235B-A22B": "Qwen--Qwen3-235B-A22B",
    "Qwen/Qwen3-235B-A22B-FP8": "Qwen--Qwen3-235B-A22B-FP8",
    "nvidia/Qwen3-235B-A22B-NVFP4": "nvidia--Qwen3-235B-A22B-NVFP4",
    "meta-llama/Meta-Llama-3.1-8B": "meta-llama--Meta-Llama-3.1-8B",
    "meta-llama/Llama-3.1-8B": "meta-llama--Meta-Llama-3.1-8B",
    "meta-llama/Llama-3.1-8B-Instruct": "meta-llama--Meta-Llama-3.1-8B",
    "meta-llama/Meta-Llama-3.1-70B": "meta-llama--Meta-Llama-3.1-70B",
    "meta-llama/Llama-3.1-70B": "meta-llama--Meta-Llama-3.1-70B",
    "meta-llama/Llama-3.1-70B-Instruct": "meta-llama--Meta-Llama-3.1-70B",
    "meta-llama/Llama-3.3-70B-Instruct": "meta-llama--Meta-Llama-3.1-70B",
    "nvidia/Llama-3.1-8B-Instruct-FP8": "nvidia--Llama-3.1-8B-Instruct-FP8",
    "nvidia/Llama-3.1-70B-Instruct-FP8": "nvidia--Llama-3.1-70B-Instruct-FP8",
    "nvidia/Llama-3.3-70B-Instruct-FP8": "nvidia--Llama-3.1-70B-Instruct-FP8",
    "nvidia/Llama-3.3-70B-Instruct-NVFP4": "nvidia--Llama-3.3-70B-Instruct-NVFP4",
    "meta-llama/Llama-3.1-405B": "meta-llama--Llama-3.1-405B",
    "meta-llama/Llama-3.1-405B-Instruct": "meta-llama--Llama-3.1-405B",
    "deepseek-ai/DeepSeek-V3": "deepseek-ai--DeepSeek-V3",
    "deepseek-ai/DeepSeek-R1": "deepseek-ai--DeepSeek-V3",
    "nvidia/DeepSeek-V3.1-NVFP4": "nvidia--DeepSeek-V3.1-NVFP4",
    "nvidia/Kimi-K2.5-NVFP4": "nvidia--Kimi-K2.5-NVFP4",
    "zai-org/GLM-5-FP8": "zai-org--GLM-5-FP8",
    "nvidia/GLM-5-NVFP4": "nvidia--GLM-5-NVFP4",
    "openai/gpt-oss-20b": "openai--gpt-oss-20b",
    "openai/gpt-oss-120b": "openai--gpt-oss-120b",
};

/// The bundled GPUs.
const HARDWARE: &[(&str, &str)] = &[
    ("h100_sxm", include_str!("hardware/h100_sxm.json")),
    ("h200_sxm", include_str!("hardware/h200_sxm.json")),
    ("b200_sxm", include_str!("hardware/b200_sxm.json")),
    ("a100_sxm", include_str!("hardware/a100_sxm.json")),
    ("l40s", include_str!("hardware/l40s.json")),
];

/// Models and GPUs by name: the bundled ones and those that were added.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    models: IndexMap<String, ModelFacts>,
    hardware: IndexMap<String, HardwareFacts>,
}

impl Catalogue {
    /// The bundled models and GPUs.
    pub fn bundled() -> Self {
        Self::default()
    }

    /// The bundled models and GPUs with those of files that have been read.
    ///
    /// # Errors
    /// What is wrong with the files.
    pub fn with(files: &FactFiles) -> Result<Self, ModelError> {
        let mut catalogue = Self::bundled();
        let mut problems = Vec::new();
        for (file, text) in read(&files.models) {
            match ModelFacts::from_config(&file.name, &file.path.display().to_string(), text) {
                Ok(facts) => catalogue.add_model(facts),
                Err(error) => problems.push(error.to_string()),
            }
        }
        for (file, text) in read(&files.hardware) {
            match HardwareFacts::from_json(&file.name, &file.path.display().to_string(), text) {
                Ok(facts) => catalogue.add_hardware(facts),
                Err(error) => problems.push(error.to_string()),
            }
        }
        if problems.is_empty() { Ok(catalogue) } else { Err(ModelError::Facts { problems }) }
    }

    /// Adds a model under its name, in front of a bundled one of the same name.
    pub fn add_model(&mut self, facts: ModelFacts) {
        self.models.insert(facts.name.clone(), facts);
    }

    /// Adds a GPU under its name, in front of a bundled one of the same name.
    pub fn add_hardware(&mut self, facts: HardwareFacts) {
        self.hardware.insert(facts.name.clone(), facts);
    }

    /// The facts of a model; case does not matter.
    ///
    /// # Errors
    /// [`ModelError::Unknown`] with the names that are known, the most similar first.
    pub fn model(&self, name: &str) -> Result<ModelFacts, ModelError> {
        if let Some((_, facts)) = self.models.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
            return Ok(facts.clone());
        }
        match MODELS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
            Some((known, text)) => ModelFacts::from_config(known, known, text),
            None => Err(unknown("model", name, self.model_names())),
        }
    }

    /// The facts of a GPU.
    ///
    /// # Errors
    /// [`ModelError::Unknown`] with the names that are known, the most similar first.
    pub fn hardware(&self, name: &str) -> Result<HardwareFacts, ModelError> {
        if let Some(facts) = self.hardware.get(name) {
            return Ok(facts.clone());
        }
        match HARDWARE.iter().find(|(known, _)| *known == name) {
            Some((known, text)) => HardwareFacts::from_json(known, known, text),
            None => Err(unknown("GPU", name, self.hardware_names())),
        }
    }

    /// Names of all models.
    pub fn model_names(&self) -> impl Iterator<Item = &str> {
        self.models.keys().map(String::as_str).chain(MODELS.iter().map(|(name, _)| *name))
    }

    /// Names of all GPUs.
    pub fn hardware_names(&self) -> impl Iterator<Item = &str> {
        self.hardware.keys().map(String::as_str).chain(HARDWARE.iter().map(|(name, _)| *name))
    }
}

/// The files that have been read, with what they hold.
fn read(files: &[FactFile]) -> impl Iterator<Item = (&FactFile, &str)> {
    files.iter().filter_map(|file| Some((file, file.content.as_deref()?)))
}

fn unknown<'a>(kind: &'static str, name: &str, known: impl Iterator<Item = &'a str>) -> ModelError {
    ModelError::Unknown { kind, name: name.to_owned(), known: by_likeness(name, known).join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Attention, FeedForward};

    #[test]
    fn every_bundled_file_is_sound() {
        let catalogue = Catalogue::bundled();
        for name in catalogue.model_names() {
            let facts = catalogue.model(name).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(facts.name, name);
        }
        for name in catalogue.hardware_names() {
            assert_eq!(catalogue.hardware(name).unwrap().name, name);
        }
    }

    #[test]
    fn facts_are_those_of_the_published_checkpoints() {
        let catalogue = Catalogue::bundled();
        let deepseek = catalogue.model("deepseek-ai/deepseek-v3").unwrap();
        assert!(deepseek.is_moe() && matches!(deepseek.attention, Attention::Latent { heads: 128, .. }));
        assert_eq!(deepseek.max_context, 163_840);
        let qwen = catalogue.model("Qwen/Qwen3-32B").unwrap();
        assert!(!qwen.is_moe());
        assert_eq!(qwen.max_context, 40_960);
        let llama = catalogue.model("meta-llama/Llama-3.1-405B").unwrap();
        assert_eq!((llama.layers, llama.hidden_size), (126, 16_384));
        let oss = catalogue.model("openai/gpt-oss-120b").unwrap();
        assert!(matches!(oss.feed_forward, FeedForward::Experts(experts) if experts.experts_per_token == 4));
        assert_eq!(catalogue.hardware("b200_sxm").unwrap().memory_bytes, 193_273_528_320);
    }

    #[test]
    fn unknown_names_list_the_known_ones_nearest_first() {
        let catalogue = Catalogue::bundled();
        let error = catalogue.model("Qwen/Qwen3-33B").unwrap_err().to_string();
        assert!(
            error.starts_with(
                "model `Qwen/Qwen3-33B` is not known; known are, the most similar first: Qwen/Qwen3-32B"
            ),
            "{error}"
        );
        let error = catalogue.hardware("h200").unwrap_err().to_string();
        assert!(error.contains(": h200_sxm, "), "{error}");
    }

    #[test]
    fn what_was_added_goes_first() {
        let mut catalogue = Catalogue::bundled();
        let mut own = catalogue.model("Qwen/Qwen3-8B").unwrap();
        own.layers = 2;
        catalogue.add_model(own);
        assert_eq!(catalogue.model("Qwen/Qwen3-8B").unwrap().layers, 2);
        let mut gpu = catalogue.hardware("l40s").unwrap();
        gpu.name = "l40s_doubled".into();
        gpu.memory_bytes *= 2;
        catalogue.add_hardware(gpu);
        assert!(catalogue.hardware("l40s_doubled").is_ok());
    }
}
