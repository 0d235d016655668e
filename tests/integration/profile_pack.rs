//! The embedded profiles are those of the data they were made from.
//!
//! `SPICA_RENEW_PROFILES=1` makes `src/timing/profile/profiles.pack` anew from a folder `shared/aic`.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::{Map, Value, json};
use spica::timing::profile::Pack;

use super::shared_folder::shared_file;

/// Keys of a source record that are the same throughout a family.
const OF_FAMILY: &[&str] =
    &["same_shape_models", "note", "suspect", "quant", "quant_overrides", "model_family", "max_context"];
/// Keys of a source record that belong to the deployment.
const OF_PROFILE: &[&str] = &[
    "tp",
    "pp",
    "attention_dp",
    "moe_tp",
    "moe_ep",
    "caution",
    "spans_nodes",
    "ops_not_measured",
    "memory",
    "ctx_other",
    "ctx_attn",
    "gen_other",
    "gen_attn",
];
const OF_SKIP: &[&str] = &["tp", "attention_dp", "moe_tp", "moe_ep", "kind", "reason"];
/// What the program does with a model that the source calls this: see `suspect` there.
const FLAT_FP8: &str = "fp8_block GEMM times of vLLM 0.24.0 are nearly flat from 1 to 8192 rows and far slower than bf16 \
                        at small batch; probably launch-bound measurements";

fn packed_file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/timing/profile/profiles.pack")
}

fn read_json(path: &Path) -> Value {
    let bytes = std::fs::read(path).unwrap();
    if path.extension().is_some_and(|extension| extension == "gz") { inflate(&bytes) } else { parse(&bytes) }
}

fn parse(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

fn inflate(bytes: &[u8]) -> Value {
    let mut text = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut text).unwrap();
    parse(&text)
}

fn deflate(value: &Value) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(value.to_string().as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn take(record: &Value, keys: &[&str]) -> Map<String, Value> {
    keys.iter().map(|key| ((*key).to_owned(), record[key].clone())).collect()
}

/// A family as the index describes it and what it holds.
struct SourceFamily {
    described: Map<String, Value>,
    profiles: Vec<Value>,
    skips: Vec<Value>,
}

impl SourceFamily {
    fn new(name: &str, record: &Value, axes: usize) -> Self {
        let mut described = Map::new();
        described.insert("name".into(), name.into());
        described.extend(take(record, &["model", "system", "backend", "version", "data", "is_moe"]));
        described.extend(take(record, OF_FAMILY));
        described.insert("axes".into(), axes.into());
        Self { described, profiles: Vec::new(), skips: Vec::new() }
    }

    fn push(&mut self, id: &str, record: &Value) {
        for key in OF_FAMILY {
            assert_eq!(self.described[*key], record[key], "{id}: {key} differs within the family");
        }
        let mut profile = Map::new();
        profile.insert("id".into(), id.into());
        profile.extend(take(record, OF_PROFILE));
        self.profiles.push(profile.into());
    }

    fn content(&self) -> Value {
        json!({"profiles": self.profiles, "skips": self.skips})
    }
}

/// The fine pack, whole.
fn fine_families(pack: &Value) -> Vec<SourceFamily> {
    let mut families: Vec<SourceFamily> = Vec::new();
    for (id, record) in pack["deployments"].as_object().unwrap() {
        let name = record["family"].as_str().unwrap();
        if families.last().is_none_or(|family| family.described["name"] != name) {
            families.push(SourceFamily::new(name, record, 0));
        }
        families.last_mut().unwrap().push(id, record);
    }
    for skip in pack["skips"].as_array().unwrap() {
        let family = families.iter_mut().find(|family| family.described["name"] == skip["family"]).unwrap();
        let mut kept = take(skip, OF_SKIP);
        kept.insert("pp".into(), 1.into());
        family.skips.push(kept.into());
    }
    families
}

/// Deployments of the coarse tables that the fine pack has too, under their name there.
fn fine_name(pack: &Value, deployment: &Value) -> Option<String> {
    let same = |record: &Value| {
        let named = ["model", "system", "backend", "version", "tp", "pp", "attention_dp", "data"]
            .iter()
            .all(|key| record[key] == deployment[key]);
        let experts = |key| deployment[key].is_null() || record[key] == deployment[key];
        let formats = record["quant"].as_object().unwrap();
        let quant = formats.iter().all(|(key, format)| deployment["resolved_quant"][key] == *format);
        named && experts("moe_tp") && experts("moe_ep") && quant
    };
    let mut found = pack["deployments"].as_object().unwrap().iter().filter(|(_, record)| same(record));
    let name = found.next()?.0.clone();
    assert!(found.next().is_none(), "{name} is not the only one");
    Some(name)
}

/// A deployment of the coarse tables in the words of the fine pack.
fn coarse_record(deployment: &Value, tables: &Value) -> Value {
    let mut record = deployment.as_object().unwrap().clone();
    let is_moe = !deployment["moe_tp"].is_null();
    for key in ["moe_tp", "moe_ep"] {
        if record[key].is_null() {
            record.insert(key.into(), 1.into());
        }
    }
    let mut quant = deployment["resolved_quant"].clone();
    if !is_moe {
        quant.as_object_mut().unwrap().remove("moe_quant_mode");
    }
    let flat = quant["gemm_quant_mode"] == "fp8_block" && deployment["version"] == "0.24.0";
    record.extend(tables.as_object().unwrap().clone());
    record.extend(
        json!({
            "quant": quant, "is_moe": is_moe, "same_shape_models": [], "suspect": flat.then_some(FLAT_FP8),
            "note": "sampled on the coarser axes; no memory facts", "model_family": deployment["family"],
            "max_context": max_context(deployment["model"].as_str().unwrap()),
            "caution": null, "spans_nodes": false, "ops_not_measured": {}, "memory": null,
        })
        .as_object()
        .unwrap()
        .clone(),
    );
    record.into()
}

/// From the `config.json` of the models that only the coarse tables have.
fn max_context(model: &str) -> u32 {
    match model {
        "Qwen/Qwen3-32B-FP8" => 40_960,
        "meta-llama/Meta-Llama-3.1-70B" => 131_072,
        other => panic!("{other} is new: look its position limit up"),
    }
}

/// Everything that the packed file should hold: the index but for places and lengths, and the families.
fn expected() -> Option<(Map<String, Value>, Vec<SourceFamily>)> {
    let pack = read_json(&shared_file("aic/profile_pack.json.gz")?);
    let coarse = read_json(&shared_file("aic/compact_tables.json")?);
    let deployments = read_json(&shared_file("aic/deployments.json")?);
    let mut families = fine_families(&pack);
    let mut aliases = Map::new();
    for deployment in deployments.as_array().unwrap() {
        let id = deployment["id"].as_str().unwrap();
        if let Some(name) = fine_name(&pack, deployment) {
            aliases.insert(id.into(), name.into());
            continue;
        }
        let record = coarse_record(deployment, &coarse["deployments"][id]);
        let mut family = SourceFamily::new(id, &record, 1);
        family.push(id, &record);
        families.push(family);
    }
    let index = json!({
        "format": "profiles/1",
        "provenance": pack["provenance"],
        "activation_tokens": pack["activation_tokens"],
        "axes": [pack["axes"], coarse["axes"]],
        "aliases": aliases,
    });
    Some((index.as_object().unwrap().clone(), families))
}

fn write_pack(mut index: Map<String, Value>, families: &[SourceFamily]) {
    let (mut described, mut content) = (Vec::new(), Vec::new());
    for family in families {
        let bytes = deflate(&family.content());
        let mut entry = family.described.clone();
        entry.insert("profiles".into(), family.profiles.len().into());
        entry.insert("offset".into(), content.len().into());
        entry.insert("length".into(), bytes.len().into());
        described.push(Value::from(entry));
        content.extend(bytes);
    }
    index.insert("families".into(), described.into());
    let index = deflate(&index.into());
    let mut file = (index.len() as u64).to_le_bytes().to_vec();
    file.extend(index);
    file.extend(content);
    std::fs::write(packed_file(), file).unwrap();
}

#[test]
fn the_embedded_profiles_are_those_of_their_source() {
    let Some((mut index, families)) = expected() else { return };
    if std::env::var_os("SPICA_RENEW_PROFILES").is_some() {
        write_pack(index.clone(), &families);
    }
    let bytes = std::fs::read(packed_file()).unwrap();
    let (length, rest) = bytes.split_first_chunk().unwrap();
    let (packed_index, content) = rest.split_at(u64::from_le_bytes(*length) as usize);
    let mut packed = inflate(packed_index).as_object().unwrap().clone();
    let described = packed.remove("families").unwrap();
    index.remove("families");
    assert_eq!(packed, index);
    let described = described.as_array().unwrap();
    assert_eq!(described.len(), families.len());
    for (entry, family) in described.iter().zip(&families) {
        for (key, value) in &family.described {
            assert_eq!(entry[key], *value, "{}: {key}", family.described["name"]);
        }
        let start = entry["offset"].as_u64().unwrap() as usize;
        let bytes = &content[start..start + entry["length"].as_u64().unwrap() as usize];
        assert!(inflate(bytes) == family.content(), "{}", family.described["name"]);
    }
}

#[test]
fn every_embedded_profile_can_be_read() {
    let pack = Pack::embedded();
    let mut profiles = 0;
    for family in pack.families() {
        assert_eq!(pack.profiles(family).count(), family.profiles as usize);
        for entry in pack.profiles(family) {
            profiles += 1;
            assert_eq!(pack.by_id(&entry.profile.id).unwrap().profile.id, entry.profile.id);
            let memory = entry.profile.memory.as_ref();
            assert!(
                memory.is_none_or(|memory| memory.activation_bytes.len() == pack.activation_tokens().len())
            );
            let (axes, tables) = (entry.axes, &entry.profile.tables);
            assert_eq!(tables.ctx_other.len(), axes.context_tokens.len());
            assert_eq!(tables.gen_other.len(), axes.decode_batch.len());
            assert_eq!(tables.ctx_attn.len(), axes.attn_batch.len());
            assert_eq!(tables.gen_attn.len(), axes.decode_batch.len());
        }
    }
    assert_eq!((pack.families().len(), profiles), (106, 909));
    for (alias, id) in pack.aliases() {
        assert_eq!(pack.by_id(alias).unwrap().profile.id, *id);
    }
    assert_eq!(pack.aliases().len(), 22);
}
