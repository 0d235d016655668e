//! Which profile prices a deployment, and what to say when there is none.

use std::fmt::Write;

use super::pack::{Entry, Family, Pack};
use super::record::Shape;
use crate::config::hints::by_likeness;
use crate::config::scenario::Backend;

/// Names that an error about a profile's name suggests.
const SHOWN: usize = 5;

/// Why there is no profile for what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct ProfileError {
    /// The key whose value has no profile: `model_name`, `hardware_sku`, ...; `shape` for the layout of a worker.
    pub field: &'static str,
    /// The value, what is known, and the way out.
    pub message: String,
}

/// Model, GPU and engine for which a profile is wanted.
#[derive(Clone, Copy, Debug)]
pub struct WantedFamily<'a> {
    /// Hugging Face name of the model.
    pub model_name: &'a str,
    /// Name of the GPU.
    pub hardware_sku: &'a str,
    /// The engine.
    pub backend: Backend,
    /// Its version; `None` takes the newest that is not suspect.
    pub backend_version: Option<&'a str>,
    /// Number format of the weights; `None` takes the checkpoint's own.
    pub quantization: Option<&'a str>,
}

/// The layout of a worker, as far as it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedShape {
    /// Tensor parallelism of attention.
    pub tp: u32,
    /// Pipeline stages.
    pub pp: u32,
    /// Attention-data-parallel ranks.
    pub attention_dp: u32,
    /// Tensor parallelism of the experts; `None` takes what there is, if that is one thing.
    pub moe_tp: Option<u32>,
    /// Expert parallelism; likewise.
    pub moe_ep: Option<u32>,
}

impl From<Shape> for WantedShape {
    fn from(shape: Shape) -> Self {
        let Shape { tp, pp, attention_dp, moe_tp, moe_ep } = shape;
        Self { tp, pp, attention_dp, moe_tp: Some(moe_tp), moe_ep: Some(moe_ep) }
    }
}

impl WantedShape {
    fn admits(self, shape: Shape) -> bool {
        let same = |wanted: Option<u32>, is| wanted.is_none_or(|wanted| wanted == is);
        (self.tp, self.pp, self.attention_dp) == (shape.tp, shape.pp, shape.attention_dp)
            && same(self.moe_tp, shape.moe_tp)
            && same(self.moe_ep, shape.moe_ep)
    }

    fn describe(self) -> String {
        let mut text = format!("tp {}, attention_dp {}", self.tp, self.attention_dp);
        for (name, value) in
            [("pp", Some(self.pp).filter(|pp| *pp > 1)), ("moe_tp", self.moe_tp), ("moe_ep", self.moe_ep)]
        {
            if let Some(value) = value {
                let _ = write!(text, ", {name} {value}");
            }
        }
        text
    }
}

impl Pack {
    /// The family that prices what is wanted.
    pub fn family(&self, wanted: WantedFamily<'_>) -> Result<&Family, ProfileError> {
        let families: Vec<&Family> = self.families().iter().collect();
        let families = narrow(families, "model_name", wanted.model_name, "", |family| {
            family.models().map(str::to_owned).collect()
        })?;
        let model = wanted.model_name;
        let families =
            narrow(families, "hardware_sku", wanted.hardware_sku, &format!(" of {model}"), |family| {
                vec![family.system.clone()]
            })?;
        let whose = format!(" of {model} on {}", wanted.hardware_sku);
        let families = narrow(families, "backend", wanted.backend.name(), &whose, |family| {
            vec![family.backend.name().to_owned()]
        })?;
        let whose = format!("{whose} with {}", wanted.backend.name());
        let families = match wanted.quantization {
            Some(format) => narrow(families, "quantization", format, &whose, |family| {
                vec![family.quant.weights().to_owned()]
            })?,
            None => as_published(families),
        };
        let families = match wanted.backend_version {
            Some(version) => {
                narrow(families, "backend_version", version, &whose, |family| vec![family.version.clone()])?
            }
            None => newest(families),
        };
        Ok(families[0])
    }

    /// Whether two names stand for the same: spelled alike, or of models that share their profiles.
    pub fn prices_alike(&self, one: &str, other: &str) -> bool {
        let share = |family: &Family| {
            [one, other].iter().all(|name| family.models().any(|model| model.eq_ignore_ascii_case(name)))
        };
        one.eq_ignore_ascii_case(other) || self.families().iter().any(share)
    }

    /// The profile of a family under a shape.
    pub fn under<'a>(&'a self, family: &'a Family, wanted: WantedShape) -> Result<Entry<'a>, ProfileError> {
        let found: Vec<Entry<'_>> =
            self.profiles(family).filter(|entry| wanted.admits(entry.profile.shape)).collect();
        match found.as_slice() {
            [one] => Ok(*one),
            [] => Err(self.no_shape(family, wanted)),
            several => {
                let field = if wanted.moe_tp.is_none() { "moe_tp" } else { "moe_ep" };
                let shapes = several.iter().map(|entry| entry.profile.shape);
                Err(ProfileError {
                    field,
                    message: format!(
                        "is needed: {} has profiles under {}",
                        wanted.describe(),
                        list(shapes.map(describe))
                    ),
                })
            }
        }
    }

    fn no_shape(&self, family: &Family, wanted: WantedShape) -> ProfileError {
        let skip = self.skips(family).iter().find(|skip| wanted.admits(skip.shape));
        let reason = skip.map_or(String::new(), |skip| format!(" ({})", skip.reason.trim_end_matches('.')));
        let mut known: Vec<Shape> = self.profiles(family).map(|entry| entry.profile.shape).collect();
        let distance = |shape: &Shape| {
            // How many times as large the larger is, in sixteenths.
            let far = |is: u32, wanted: u32| is.max(wanted) * 16 / is.min(wanted).max(1) - 16;
            far(shape.tp, wanted.tp)
                + far(shape.attention_dp, wanted.attention_dp)
                + far(shape.moe_tp, wanted.moe_tp.unwrap_or(shape.moe_tp))
                + far(shape.moe_ep, wanted.moe_ep.unwrap_or(shape.moe_ep))
        };
        known.sort_by_key(|shape| (distance(shape), *shape));
        ProfileError {
            field: "shape",
            message: format!(
                "{} has no profile under {}{reason}; known: {}",
                family.name,
                wanted.describe(),
                list(known.into_iter().map(describe))
            ),
        }
    }

    /// The profile of this name, or the names most like it.
    pub fn named(&self, id: &str) -> Result<Entry<'_>, ProfileError> {
        if let Some(entry) = self.by_id(id) {
            return Ok(entry);
        }
        let entries = || self.families().iter().flat_map(|family| self.profiles(family));
        let ids: Vec<&str> = entries().map(|entry| entry.profile.id.as_str()).collect();
        let ids = by_likeness(id, ids.into_iter().chain(self.aliases().keys().map(String::as_str)));
        let nearest = list(ids.into_iter().take(SHOWN).map(str::to_owned));
        Err(ProfileError {
            field: "id",
            message: format!("`{id}` is no profile; the nearest names are {nearest}"),
        })
    }
}

/// Those of `families` that have `wanted` among their names; an error lists all names, the nearest first.
fn narrow<'a>(
    mut families: Vec<&'a Family>,
    field: &'static str,
    wanted: &str,
    whose: &str,
    names: impl Fn(&Family) -> Vec<String>,
) -> Result<Vec<&'a Family>, ProfileError> {
    let mut known: Vec<String> = Vec::new();
    families.retain(|family| {
        let names = names(family);
        let fits = names.iter().any(|name| name.eq_ignore_ascii_case(wanted));
        known.extend(names);
        fits
    });
    if !families.is_empty() {
        return Ok(families);
    }
    known.sort();
    known.dedup();
    let known = by_likeness(wanted, known.iter().map(String::as_str));
    let message =
        format!("no profile{whose} for `{wanted}`; known: {}", list(known.into_iter().map(str::to_owned)));
    Err(ProfileError { field, message })
}

/// Those of the checkpoint as it was published; all where none is.
fn as_published(families: Vec<&Family>) -> Vec<&Family> {
    let (published, changed): (Vec<_>, Vec<_>) =
        families.into_iter().partition(|family| family.is_as_published());
    if published.is_empty() { changed } else { published }
}

/// Those of the newest version that is not suspect, or of the newest of all if every one is.
fn newest(mut families: Vec<&Family>) -> Vec<&Family> {
    let best = families
        .iter()
        .max_by_key(|family| (family.suspect.is_none(), version_order(&family.version)))
        .map(|family| family.version.clone());
    families.retain(|family| Some(&family.version) == best.as_ref());
    families
}

/// Orders versions by their numbers; a release comes after its candidates: `1.3.0rc20` before `1.3.0`.
fn version_order(version: &str) -> (Vec<u64>, bool, u64) {
    let (release, candidate) = version.split_once("rc").unwrap_or((version, ""));
    let numbers = release.split('.').map(|part| part.parse().unwrap_or(0)).collect();
    (numbers, candidate.is_empty(), candidate.parse().unwrap_or(0))
}

fn describe(shape: Shape) -> String {
    let Shape { tp, pp, attention_dp, moe_tp, moe_ep } = shape;
    let stages = if pp > 1 { format!("/pp{pp}") } else { String::new() };
    format!("tp{tp}{stages}/dp{attention_dp}/moe_tp{moe_tp}/moe_ep{moe_ep}")
}

fn list(names: impl Iterator<Item = String>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINIMAX: WantedFamily<'_> = WantedFamily {
        model_name: "MiniMaxAI/MiniMax-M2.5",
        hardware_sku: "b200_sxm",
        backend: Backend::Vllm,
        backend_version: None,
        quantization: None,
    };

    fn shape(tp: u32, attention_dp: u32, moe_tp: Option<u32>, moe_ep: Option<u32>) -> WantedShape {
        WantedShape { tp, pp: 1, attention_dp, moe_tp, moe_ep }
    }

    fn family(wanted: WantedFamily<'_>) -> Result<&'static Family, String> {
        Pack::embedded().family(wanted).map_err(|error| error.to_string())
    }

    #[test]
    fn without_a_version_the_newest_that_is_not_suspect_counts() {
        let chosen = |wanted| family(wanted).unwrap().name.as_str();
        assert_eq!(chosen(MINIMAX), "m25_fp8_b200_vllm019");
        assert_eq!(
            chosen(WantedFamily { backend_version: Some("0.24.0"), ..MINIMAX }),
            "m25_fp8_b200_vllm024"
        );
        // On this GPU there is none that is not suspect.
        let only = family(WantedFamily { hardware_sku: "h200_sxm", ..MINIMAX }).unwrap();
        assert!(only.suspect.is_some());
        assert!(version_order("0.9.2") < version_order("0.19.0"));
        assert!(version_order("1.3.0rc20") < version_order("1.3.0"));
        assert!(version_order("1.3.0rc3") < version_order("1.3.0rc20"));
    }

    #[test]
    fn the_published_checkpoint_comes_before_a_changed_one() {
        let wanted = WantedFamily { model_name: "Qwen/Qwen3-32B", ..MINIMAX };
        assert_eq!(family(wanted).unwrap().name, "qwen32b_bf16_b200_vllm024");
        let wanted = WantedFamily { quantization: Some("nvfp4"), ..wanted };
        assert_eq!(family(wanted).unwrap().name, "qwen32b_nvfp4_b200_vllm024");
        // Models of one architecture share their tables.
        let wanted = WantedFamily {
            model_name: "meta-llama/Llama-3.3-70B-Instruct",
            hardware_sku: "h100_sxm",
            ..MINIMAX
        };
        assert_eq!(family(wanted).unwrap().name, "llama70b_bf16_h100_vllm024");
    }

    #[test]
    fn unknown_names_list_the_known_ones_nearest_first() {
        let error = family(WantedFamily { model_name: "MiniMaxAI/MiniMax-M2", ..MINIMAX }).unwrap_err();
        assert!(
            error.starts_with(
                "model_name: no profile for `MiniMaxAI/MiniMax-M2`; known: MiniMaxAI/MiniMax-M2.5, "
            ),
            "{error}"
        );
        let error = family(WantedFamily { hardware_sku: "b200", ..MINIMAX }).unwrap_err();
        assert_eq!(
            error,
            "hardware_sku: no profile of MiniMaxAI/MiniMax-M2.5 for `b200`; known: b200_sxm, h200_sxm"
        );
        let error = family(WantedFamily { backend_version: Some("0.24"), ..MINIMAX }).unwrap_err();
        assert_eq!(
            error,
            "backend_version: no profile of MiniMaxAI/MiniMax-M2.5 on b200_sxm with vllm for `0.24`; known: 0.24.0, 0.19.0"
        );
        let error = family(WantedFamily { quantization: Some("nvfp4"), ..MINIMAX }).unwrap_err();
        assert!(error.ends_with("for `nvfp4`; known: fp8_block"), "{error}");
    }

    #[test]
    fn a_shape_that_is_absent_says_why() {
        let pack = Pack::embedded();
        let family = family(MINIMAX).unwrap();
        let under = |wanted| {
            let found = pack.under(family, wanted);
            found.map(|entry| entry.profile.id.as_str()).map_err(|error| error.to_string())
        };
        assert_eq!(under(shape(4, 1, None, Some(4))), Ok("m25_fp8_b200_vllm019_g4_tep"));
        assert_eq!(under(shape(8, 1, None, None)), Ok("m25_fp8_b200_vllm019_g8_tep"));
        let error = under(shape(4, 1, None, None)).unwrap_err();
        assert_eq!(
            error,
            "moe_tp: is needed: tp 4, attention_dp 1 has profiles under tp4/dp1/moe_tp1/moe_ep4, tp4/dp1/moe_tp4/moe_ep1"
        );
        let error = under(shape(8, 1, Some(8), Some(1))).unwrap_err();
        assert!(error.contains("weight_block_size=128"), "{error}");
        let error = under(shape(3, 1, None, None)).unwrap_err();
        assert!(error.contains("has no profile under tp 3, attention_dp 1; known: tp4/dp1/"), "{error}");
    }

    #[test]
    fn names_of_profiles_are_found_under_both_names() {
        let pack = Pack::embedded();
        let id = |name: &str| pack.named(name).map(|entry| entry.profile.id.clone());
        assert_eq!(id("m25_fp8_b200_vllm019_tp4ep4").as_deref(), Ok("m25_fp8_b200_vllm019_g4_tep"));
        assert_eq!(
            id("llama70b_bf16_h100_vllm024_tp4pp2").as_deref(),
            Ok("llama70b_bf16_h100_vllm024_tp4pp2")
        );
        let error = id("qwen32b_bf16_h200_vllm024_g3_tp").unwrap_err().to_string();
        assert!(error.contains("nearest names are qwen32b_bf16_h200_vllm024_g"), "{error}");
    }

    #[test]
    fn a_digest_follows_the_numbers() {
        let pack = Pack::embedded();
        let digest = |id: &str| pack.named(id).unwrap().digest();
        let one = digest("m25_fp8_b200_vllm019_g4_tep");
        assert_eq!(one.len(), 16);
        assert_eq!(one, digest("m25_fp8_b200_vllm019_tp4ep4"));
        assert_ne!(one, digest("m25_fp8_b200_vllm019_g4_dep"));
    }
}
