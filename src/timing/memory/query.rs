//! Finds the best memory plan there is for a deployment.

use super::closed_form::closed_form;
use super::from_profile::from_profile;
use super::plan::MemoryPlan;
use crate::config::scenario::Backend;
use crate::model::{Catalogue, ModelError, NumberFormats, Split, WeightFormat};
use crate::timing::profile::{Pack, Shape, WantedFamily};

/// A worker whose memory is asked for.
#[derive(Clone, Copy, Debug)]
pub struct MemoryQuery<'a> {
    /// Hugging Face name of the model.
    pub model_name: &'a str,
    /// Name of the GPU.
    pub hardware_sku: &'a str,
    /// The engine.
    pub backend: Backend,
    /// Version of the profile; the newest that is not suspect when absent.
    pub backend_version: Option<&'a str>,
    /// Number format of the weights; the checkpoint's own when absent.
    pub quantization: Option<&'a str>,
    /// How the worker is laid out.
    pub split: Split,
    /// The most tokens that one pass computes.
    pub max_num_batched_tokens: u32,
    /// The engine's share of memory.
    pub fraction: f64,
}

/// Why there is no memory plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// Nothing is known of the model or of the GPU.
    #[error(transparent)]
    Unknown(#[from] ModelError),
    /// Weights cannot be stored in this format.
    #[error("quantization: `{0}` is not a number format whose sizes are known")]
    Format(String),
    /// The model cannot be laid out in this way.
    #[error("{0}")]
    Layout(String),
}

impl MemoryQuery<'_> {
    /// The plan of the facts of a profile of exactly this deployment, or else the closed form.
    ///
    /// # Errors
    /// When there is neither.
    pub fn plan(&self, catalogue: &Catalogue) -> Result<MemoryPlan, MemoryError> {
        if let Some(plan) = self.of_profile(Pack::embedded()) {
            return Ok(plan);
        }
        let mut model = catalogue.model(self.model_name)?;
        let hardware = catalogue.hardware(self.hardware_sku)?;
        if let Some(name) = self.quantization
            && name != model.formats.experts.name()
        {
            let format = WeightFormat::named(name).ok_or_else(|| MemoryError::Format(name.to_owned()))?;
            model.formats = NumberFormats::uniform(format);
        }
        closed_form(&model, &hardware, self.backend, self.split, self.max_num_batched_tokens, self.fraction)
            .map_err(MemoryError::Layout)
    }

    fn of_profile(&self, pack: &Pack) -> Option<MemoryPlan> {
        let wanted = WantedFamily {
            model_name: self.model_name,
            hardware_sku: self.hardware_sku,
            backend: self.backend,
            backend_version: self.backend_version,
            quantization: self.quantization,
        };
        let family = pack.family(wanted).ok()?;
        let Split { tp, pp, attention_dp, moe_tp, moe_ep } = self.split;
        let entry = pack.profile(family, Shape { tp, pp, attention_dp, moe_tp, moe_ep })?;
        from_profile(pack, &entry, self.max_num_batched_tokens, self.fraction)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::memory::MemorySource;

    fn query(model_name: &'static str, hardware_sku: &'static str, split: Split) -> MemoryQuery<'static> {
        MemoryQuery {
            model_name,
            hardware_sku,
            backend: Backend::Vllm,
            backend_version: None,
            quantization: None,
            split,
            max_num_batched_tokens: 8192,
            fraction: 0.9,
        }
    }

    #[test]
    fn facts_of_a_profile_go_before_the_closed_form() {
        let split = Split { tp: 4, moe_ep: 4, ..Split::WHOLE };
        let catalogue = Catalogue::bundled();
        let plan = query("MiniMaxAI/MiniMax-M2.5", "b200_sxm", split).plan(&catalogue).unwrap();
        assert_eq!((plan.source, plan.kv_tokens()), (MemorySource::Profile, Ok(3_512_879)));
        let plan =
            query("MiniMaxAI/MiniMax-M2.5", "h100_sxm", Split { tp: 8, moe_ep: 8, ..split }).plan(&catalogue);
        assert_eq!(plan.unwrap().source, MemorySource::ClosedForm);
    }

    #[test]
    fn what_is_not_known_is_said() {
        let catalogue = Catalogue::bundled();
        let error =
            |model, hardware| query(model, hardware, Split::WHOLE).plan(&catalogue).unwrap_err().to_string();
        assert!(error("a/model", "h200_sxm").starts_with("model `a/model` is not known"));
        assert!(error("Qwen/Qwen3-8B", "h300").starts_with("GPU `h300` is not known"));
        let dense = Split { tp: 2, attention_dp: 2, ..Split::WHOLE };
        let error = query("Qwen/Qwen3-32B", "h200_sxm", dense).plan(&catalogue).unwrap_err();
        assert!(error.to_string().contains("is a dense model"), "{error}");
    }

    #[test]
    fn formats_may_be_forced() {
        let forced = MemoryQuery {
            quantization: Some("nvfp4"),
            ..query("meta-llama/Llama-3.1-405B", "b200_sxm", Split { tp: 4, ..Split::WHOLE })
        };
        let catalogue = Catalogue::bundled();
        let own = MemoryQuery { quantization: None, ..forced }.plan(&catalogue).unwrap();
        assert!(own.kv_tokens().is_err());
        assert!(forced.plan(&catalogue).unwrap().kv_tokens().is_ok());
        let unknown = MemoryQuery { quantization: Some("fp3"), ..forced }.plan(&catalogue);
        assert_eq!(unknown, Err(MemoryError::Format("fp3".into())));
    }
}
