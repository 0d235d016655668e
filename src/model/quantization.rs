//! Number formats of weights and of the KV cache.

use serde_json::Value;

/// How a weight is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WeightFormat {
    /// Two bytes: bfloat16 or float16.
    Bfloat16,
    /// Four bytes.
    Float32,
    /// One byte, one scale per tensor or channel worked out as the model runs.
    Fp8,
    /// One byte, scales stored with the weights.
    Fp8Static,
    /// One byte, a scale for each block of so many rows and columns.
    Fp8Block(u32),
    /// One byte, integers.
    Int8,
    /// Four bits with a scale of eight bits for every 16.
    Nvfp4,
    /// Four bits, with activations of two bytes.
    Mxfp4,
    /// Four bits, integers, with activations of two bytes.
    Int4,
}

impl WeightFormat {
    /// Bytes of one weight, the scales of four-bit floats included.
    pub fn bytes(self) -> f64 {
        match self {
            Self::Float32 => 4.0,
            Self::Bfloat16 => 2.0,
            Self::Fp8 | Self::Fp8Static | Self::Fp8Block(_) | Self::Int8 => 1.0,
            Self::Nvfp4 => 9.0 / 16.0,
            Self::Mxfp4 | Self::Int4 => 0.5,
        }
    }

    /// The name that tables of kernel times use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Float32 => "float32",
            Self::Bfloat16 => "bfloat16",
            Self::Fp8 => "fp8",
            Self::Fp8Static => "fp8_static",
            Self::Fp8Block(_) => "fp8_block",
            Self::Int8 => "int8_wo",
            Self::Nvfp4 => "nvfp4",
            Self::Mxfp4 => "w4a16_mxfp4",
            Self::Int4 => "int4_wo",
        }
    }

    /// The format of this name; blocks are of 128, the usual size.
    pub fn named(name: &str) -> Option<Self> {
        const ALL: [WeightFormat; 9] = [
            WeightFormat::Bfloat16,
            WeightFormat::Float32,
            WeightFormat::Fp8,
            WeightFormat::Fp8Static,
            WeightFormat::Fp8Block(128),
            WeightFormat::Int8,
            WeightFormat::Nvfp4,
            WeightFormat::Mxfp4,
            WeightFormat::Int4,
        ];
        ALL.into_iter().find(|format| format.name() == name)
    }

    /// What KV entries are stored as where a checkpoint does not say: as the reference's tables assume, one byte beside
    /// weights of eight-bit or NVIDIA four-bit floats, and two bytes beside all others.
    fn usual_kv_cache(self) -> Self {
        match self {
            Self::Fp8 | Self::Fp8Static | Self::Fp8Block(_) | Self::Nvfp4 => Self::Fp8,
            Self::Float32 | Self::Bfloat16 | Self::Int8 | Self::Mxfp4 | Self::Int4 => Self::Bfloat16,
        }
    }
}

/// The format of each part of a model. Embeddings, the router of experts and the output head are never quantised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberFormats {
    /// Projections into attention: of queries, keys and values.
    pub attention: WeightFormat,
    /// The projection out of attention.
    pub attention_output: WeightFormat,
    /// Dense feed-forward layers and shared experts.
    pub feed_forward: WeightFormat,
    /// Routed experts.
    pub experts: WeightFormat,
    /// KV cache; apart from what passes compute in.
    pub kv_cache: WeightFormat,
}

/// One module of each part, under the name it has in checkpoints.
const ATTENTION: &str = "model.layers.10.self_attn.q_b_proj";
const ATTENTION_OUTPUT: &str = "model.layers.10.self_attn.o_proj";
const SHARED_EXPERTS: &str = "model.layers.10.mlp.shared_experts.up_proj";
const DENSE: &str = "model.layers.10.mlp.up_proj";
const EXPERTS: &str = "model.layers.10.mlp.experts.0.up_proj";

impl NumberFormats {
    /// Everything at one format, the KV cache at the usual one beside it.
    pub fn uniform(format: WeightFormat) -> Self {
        Self {
            attention: format,
            attention_output: format,
            feed_forward: format,
            experts: format,
            kv_cache: format.usual_kv_cache(),
        }
    }

    /// Reads a checkpoint's `quantization_config` beside the format of what it leaves alone.
    ///
    /// # Errors
    /// What is not known about it, one line for each key.
    pub(super) fn read(
        plain: WeightFormat,
        quantization: &Value,
        experts: bool,
    ) -> Result<Self, Vec<String>> {
        if quantization.is_null() {
            return Ok(Self { kv_cache: WeightFormat::Bfloat16, ..Self::uniform(plain) });
        }
        let mut problems = Vec::new();
        let format = weight_format(quantization).map_err(|problem| problems.push(problem)).ok();
        let excluded = excluded_modules(quantization, &mut problems);
        let kv_cache = kv_cache_format(quantization, &mut problems);
        let (Some(format), true) = (format, problems.is_empty()) else { return Err(problems) };
        let of = |module: &str| {
            let excluded = excluded.iter().any(|pattern| covers(pattern, module));
            if excluded { plain } else { format }
        };
        Ok(Self {
            attention: of(ATTENTION),
            attention_output: of(ATTENTION_OUTPUT),
            feed_forward: of(if experts { SHARED_EXPERTS } else { DENSE }),
            experts: of(EXPERTS),
            kv_cache: kv_cache.unwrap_or_else(|| format.usual_kv_cache()),
        })
    }
}

const METHODS: &str = "fp8, fbgemm_fp8, modelopt, mxfp4, compressed-tensors, gptq, awq";

/// The format of the weights that are quantised.
fn weight_format(quantization: &Value) -> Result<WeightFormat, String> {
    let method = quantization["quant_method"].as_str().unwrap_or_default();
    match method {
        "fp8" => match &quantization["weight_block_size"] {
            Value::Null => Ok(WeightFormat::Fp8),
            Value::Array(sizes) => {
                let sizes: Vec<u64> = sizes.iter().filter_map(Value::as_u64).collect();
                match sizes.as_slice() {
                    [rows, columns] if rows == columns && (1..=1 << 16).contains(rows) => {
                        Ok(WeightFormat::Fp8Block(*rows as u32))
                    }
                    _ => Err("weight_block_size: needs two equal sizes above 0".into()),
                }
            }
            other => Err(format!("weight_block_size: `{other}` is not a list of two sizes")),
        },
        "fbgemm_fp8" => Ok(WeightFormat::Fp8),
        "modelopt" | "modelopt_fp4" => {
            // The algorithm stands at the top, or one level down in files that were written beside the configuration.
            let algorithm = [&quantization["quant_algo"], &quantization["quantization"]["quant_algo"]];
            match algorithm.into_iter().find_map(Value::as_str) {
                Some("FP8") => Ok(WeightFormat::Fp8Static),
                Some("NVFP4") => Ok(WeightFormat::Nvfp4),
                Some(other) => Err(format!("quant_algo: `{other}` is not modelled; FP8 and NVFP4 are")),
                None => Err("quant_algo: required beside `quant_method: modelopt`".into()),
            }
        }
        "mxfp4" => Ok(WeightFormat::Mxfp4),
        "gptq" | "awq" => match quantization["bits"].as_u64().or(quantization["w_bit"].as_u64()) {
            Some(4) => Ok(WeightFormat::Int4),
            Some(8) => Ok(WeightFormat::Int8),
            _ => Err(format!("bits: `{method}` needs 4 or 8")),
        },
        "compressed-tensors" => compressed_format(quantization),
        other => Err(format!("quant_method: `{other}` is not modelled; modelled are {METHODS}")),
    }
}

fn compressed_format(quantization: &Value) -> Result<WeightFormat, String> {
    let groups = quantization["config_groups"].as_object();
    let weights = groups.and_then(|groups| groups.values().next()).map(|group| &group["weights"]);
    let Some(weights) = weights.filter(|weights| weights.is_object()) else {
        return Err("config_groups: the first group needs `weights`".into());
    };
    match (weights["num_bits"].as_u64(), weights["type"].as_str()) {
        (Some(8), Some("float")) if weights["dynamic"] == true => Ok(WeightFormat::Fp8),
        (Some(8), Some("float")) => Ok(WeightFormat::Fp8Static),
        (Some(4), Some("float")) => Ok(WeightFormat::Nvfp4),
        (Some(8), Some("int")) => Ok(WeightFormat::Int8),
        (Some(4), Some("int")) => Ok(WeightFormat::Int4),
        (bits, kind) => Err(format!(
            "config_groups: weights of {} bits of type {} are not modelled",
            bits.map_or("?".to_owned(), |bits| bits.to_string()),
            kind.unwrap_or("?")
        )),
    }
}

/// The patterns of modules that stay as they were.
fn excluded_modules(quantization: &Value, problems: &mut Vec<String>) -> Vec<String> {
    let mut patterns = Vec::new();
    for key in ["ignore", "modules_to_not_convert", "ignored_layers", "exclude_modules"] {
        match &quantization[key] {
            Value::Null => {}
            Value::Array(names) if names.iter().all(Value::is_string) => {
                patterns.extend(names.iter().filter_map(Value::as_str).map(str::to_owned));
            }
            _ => problems.push(format!("{key}: is not a list of module names")),
        }
    }
    patterns
}

fn kv_cache_format(quantization: &Value, problems: &mut Vec<String>) -> Option<WeightFormat> {
    let scheme = &quantization["kv_cache_scheme"];
    if let Some(bits) = scheme["num_bits"].as_u64() {
        if bits == 8 {
            return Some(WeightFormat::Fp8);
        }
        problems.push(format!("kv_cache_scheme: {bits} bits are not modelled; 8 are"));
    }
    match quantization["kv_cache_quant_algo"].as_str() {
        Some("FP8") => Some(WeightFormat::Fp8),
        Some(other) => {
            problems.push(format!("kv_cache_quant_algo: `{other}` is not modelled; FP8 is"));
            None
        }
        None => None,
    }
}

/// Whether a pattern of a list of exclusions covers a module: `*` stands for anything, `re:` begins a simple regular
/// expression, and a name covers what lies below it. Layer numbers are not told apart: a list of the first layers of a
/// model must not be taken for one of all.
fn covers(pattern: &str, module: &str) -> bool {
    let pattern = pattern.trim_start_matches("re:").replace(".*", "*").replace('\\', "");
    let pattern = pattern.trim_start_matches('^').trim_end_matches('$');
    matches(pattern, module)
        || module.match_indices('.').any(|(end, _)| matches(pattern, &module[..end]))
        || module.strip_prefix("model.").is_some_and(|rest| matches(pattern, rest))
}

/// Whether `text` is what `pattern` describes, where `*` stands for anything.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => text.strip_prefix(start).is_some_and(|text| {
            (0..=text.len()).any(|skipped| text.get(skipped..).is_some_and(|text| matches(rest, text)))
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(config: &Value) -> Result<NumberFormats, Vec<String>> {
        NumberFormats::read(WeightFormat::Bfloat16, config, true)
    }

    #[test]
    fn an_unquantised_model_is_the_same_all_over() {
        assert_eq!(read(&Value::Null), Ok(NumberFormats::uniform(WeightFormat::Bfloat16)));
    }

    #[test]
    fn methods_give_their_format_and_the_kv_cache_follows() {
        let cases = [
            (json!({"quant_method": "fp8"}), WeightFormat::Fp8, WeightFormat::Fp8),
            (
                json!({"quant_method": "fp8", "weight_block_size": [128, 128]}),
                WeightFormat::Fp8Block(128),
                WeightFormat::Fp8,
            ),
            (
                json!({"quant_method": "modelopt", "quant_algo": "NVFP4"}),
                WeightFormat::Nvfp4,
                WeightFormat::Fp8,
            ),
            (json!({"quant_method": "awq", "bits": 4}), WeightFormat::Int4, WeightFormat::Bfloat16),
            (
                json!({"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8},
                       "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int"}}}}),
                WeightFormat::Int4,
                WeightFormat::Fp8,
            ),
        ];
        for (config, weights, kv_cache) in cases {
            let formats = read(&config).unwrap();
            assert_eq!((formats.experts, formats.kv_cache), (weights, kv_cache), "{config}");
        }
    }

    #[test]
    fn what_a_list_excludes_stays_as_it_was() {
        let formats = |patterns: &[&str]| {
            read(&json!({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": patterns})).unwrap()
        };
        let attention = formats(&["lm_head", "*self_attn*"]);
        assert_eq!(attention.attention, WeightFormat::Bfloat16);
        assert_eq!(attention.attention_output, WeightFormat::Bfloat16);
        assert_eq!(attention.experts, WeightFormat::Nvfp4);
        let inputs = formats(&["*self_attn.q_b_proj*"]);
        assert_eq!(inputs.attention, WeightFormat::Bfloat16);
        assert_eq!(inputs.attention_output, WeightFormat::Nvfp4);
        assert_eq!(formats(&["model.layers.*.self_attn"]), attention);
        assert_eq!(formats(&["re:.*self_attn.*"]), attention);
        assert_eq!(formats(&["model.layers.0.self_attn"]).attention, WeightFormat::Nvfp4);
    }

    #[test]
    fn what_is_not_known_is_said() {
        let problem = |config| read(&config).unwrap_err().join("; ");
        assert!(
            problem(json!({"quant_method": "bitnet"})).contains("`bitnet` is not modelled; modelled are fp8")
        );
        assert!(
            problem(json!({"quant_method": "modelopt", "quant_algo": "W4A8"})).contains("quant_algo: `W4A8`")
        );
        let two = json!({"quant_method": "gptq", "bits": 3, "ignore": "lm_head"});
        assert_eq!(read(&two).unwrap_err().len(), 2);
    }
}
