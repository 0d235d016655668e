//! The profiles that come with the program.
//!
//! They are kept in one file: an index and, for every family, its profiles; each part compressed for itself, so that a
//! run inflates the index and the one family it needs. The first eight bytes say how long the index is (little-endian);
//! the offsets in the index count from its end.

use std::io::Read;
use std::sync::{Arc, OnceLock};

use flate2::read::GzDecoder;
use indexmap::IndexMap;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::model::PassTables;
use super::record::{Axes, Profile, Quantization, Shape, Skip};
use crate::config::scenario::Backend;

static EMBEDDED: &[u8] = include_bytes!("profiles.pack");

/// A model in one quantisation on one GPU under one version of an engine, in all the shapes that are known.
#[derive(Debug, Deserialize)]
pub struct Family {
    /// Its name, with which the ids of its profiles begin.
    pub name: String,
    /// Hugging Face name of the model.
    pub model: String,
    /// Other models of the same architecture and quantisation.
    pub same_shape_models: Vec<String>,
    /// Name of the GPU.
    pub system: String,
    /// The engine.
    pub backend: Backend,
    /// Its version.
    pub version: String,
    /// Which data the numbers were taken from.
    pub data: String,
    /// What its makers had to say.
    pub note: String,
    /// Why the numbers are doubted, if they are.
    pub suspect: Option<String>,
    /// Number formats.
    pub quant: Quantization,
    /// Number formats that differ from the checkpoint's own.
    pub quant_overrides: IndexMap<String, String>,
    /// Whether the model has experts.
    pub is_moe: bool,
    /// Kind of architecture, which memory depends on: GPT, LLAMA, MOE, DEEPSEEK, ...
    pub model_family: String,
    /// Longest sequence that the model takes, in tokens.
    pub max_context: u32,
    /// How many profiles it has.
    pub profiles: u32,
    axes: usize,
    offset: usize,
    length: usize,
    #[serde(skip)]
    content: OnceLock<Content>,
}

impl Family {
    /// Whether it prices `model`.
    pub fn prices(&self, model: &str) -> bool {
        self.models().any(|name| name.eq_ignore_ascii_case(model))
    }

    /// The models that it prices.
    pub fn models(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.model.as_str()).chain(self.same_shape_models.iter().map(String::as_str))
    }

    /// Whether its numbers are of the checkpoint as it was published.
    pub fn is_as_published(&self) -> bool {
        !self.quant_overrides.contains_key("gemm_quant_mode")
    }
}

/// What a family holds.
#[derive(Debug, Deserialize)]
struct Content {
    profiles: Vec<Profile>,
    skips: Vec<Skip>,
}

#[derive(Debug, Deserialize)]
struct Index {
    activation_tokens: Vec<u32>,
    axes: Vec<Axes>,
    aliases: IndexMap<String, String>,
    families: Vec<Family>,
}

/// A collection of profiles.
#[derive(Debug)]
pub struct Pack {
    index: Index,
    content: &'static [u8],
}

/// One profile of a pack, with the family it belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// What all profiles of the family have in common.
    pub family: &'a Family,
    /// The points at which its tables were sampled.
    pub axes: &'a Axes,
    /// The profile.
    pub profile: &'a Profile,
}

impl Entry<'_> {
    /// A digest of the numbers that price a pass: 16 hexadecimal digits, the same on every machine.
    pub fn digest(&self) -> String {
        self.profile.tables.digest(self.axes)
    }

    /// Its tables, prepared for look-ups once per process.
    pub fn pass_tables(&self) -> Arc<PassTables> {
        let prepare = || Arc::new(PassTables::new(self.axes, &self.profile.tables));
        Arc::clone(self.profile.prepared.get_or_init(prepare))
    }
}

impl Pack {
    /// The profiles that come with the program; the index is read once per process.
    pub fn embedded() -> &'static Self {
        static PACK: OnceLock<Pack> = OnceLock::new();
        PACK.get_or_init(|| Self::open(EMBEDDED))
    }

    fn open(bytes: &'static [u8]) -> Self {
        let (length, rest) = bytes.split_first_chunk().expect("a pack begins with the length of its index");
        let (index, content) = rest.split_at(u64::from_le_bytes(*length) as usize);
        Self { index: inflate(index), content }
    }

    /// All families, in the order of the pack.
    pub fn families(&self) -> &[Family] {
        &self.index.families
    }

    /// The closest points that tables of the pack were sampled at.
    pub fn finest_axes(&self) -> &Axes {
        &self.index.axes[0]
    }

    /// Numbers of batched tokens that [`super::MemoryFacts::activation_bytes`] belongs to.
    pub fn activation_tokens(&self) -> &[u32] {
        &self.index.activation_tokens
    }

    /// Other names of profiles: deployments that were sampled twice, coarsely and finely, have both.
    pub fn aliases(&self) -> &IndexMap<String, String> {
        &self.index.aliases
    }

    /// The profiles of a family of this pack, which is inflated the first time.
    pub fn profiles<'a>(&'a self, family: &'a Family) -> impl Iterator<Item = Entry<'a>> {
        let axes = &self.index.axes[family.axes];
        self.content(family).profiles.iter().map(move |profile| Entry { family, axes, profile })
    }

    /// The profile of a family under a shape.
    pub fn profile<'a>(&'a self, family: &'a Family, shape: Shape) -> Option<Entry<'a>> {
        self.profiles(family).find(|entry| entry.profile.shape == shape)
    }

    /// Shapes of a family that have no profile.
    pub fn skips<'a>(&'a self, family: &'a Family) -> &'a [Skip] {
        &self.content(family).skips
    }

    /// The profile of this name.
    pub fn by_id(&self, id: &str) -> Option<Entry<'_>> {
        let id = self.index.aliases.get(id).map_or(id, String::as_str);
        let families = self.families().iter().filter(|family| id.starts_with(family.name.as_str()));
        families.flat_map(|family| self.profiles(family)).find(|entry| entry.profile.id == id)
    }

    fn content<'a>(&self, family: &'a Family) -> &'a Content {
        family.content.get_or_init(|| inflate(&self.content[family.offset..family.offset + family.length]))
    }
}

/// Reads one part of the embedded file, which a test compares with where it came from.
fn inflate<T: DeserializeOwned>(bytes: &[u8]) -> T {
    let mut text = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut text).expect("the embedded profiles are intact");
    serde_json::from_slice(&text).expect("the embedded profiles are in their own format")
}
