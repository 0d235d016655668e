//! Reads a model's `config.json`.

use serde_json::{Map, Value};

use super::error::ModelError;
use super::facts::{Attention, DenseFeedForward, Experts, FeedForward, ModelFacts, SlidingWindow};
use super::quantization::{NumberFormats, WeightFormat};

/// No size of a model is above this; products of a few of them fit their type.
const LARGEST: u64 = 1 << 24;

impl ModelFacts {
    /// The facts in a Hugging Face `config.json`. `name` is the model's, `place` is the file's, for messages.
    ///
    /// # Errors
    /// Every key that is missing, of the wrong type, or says something that is not modelled.
    pub fn from_config(name: &str, place: &str, text: &str) -> Result<Self, ModelError> {
        let syntax = |message: String| ModelError::Syntax { place: place.to_owned(), message };
        let json: Value = serde_json::from_str(text).map_err(|error| syntax(error.to_string()))?;
        let Value::Object(root) = &json else { return Err(syntax("is not a mapping of keys".into())) };
        // A model that also sees pictures keeps what concerns text one level down.
        let text = root.get("text_config").and_then(Value::as_object).unwrap_or(root);
        let mut config = Config { root, text, problems: Vec::new() };
        match config.facts(name) {
            Some(facts) if config.problems.is_empty() => Ok(facts),
            _ => Err(ModelError::Facts {
                problems: config.problems.iter().map(|problem| format!("{place}: {problem}")).collect(),
            }),
        }
    }
}

struct Config<'a> {
    root: &'a Map<String, Value>,
    text: &'a Map<String, Value>,
    problems: Vec<String>,
}

impl<'a> Config<'a> {
    fn facts(&mut self, name: &str) -> Option<ModelFacts> {
        let architecture = self.architecture();
        let hidden_size = self.size("hidden_size");
        let layers = self.size("num_hidden_layers");
        let vocabulary_size = self.size("vocab_size");
        let max_context = self.size("max_position_embeddings").map(|tokens| tokens as u32);
        let attention = self.attention(hidden_size, layers);
        let feed_forward = self.feed_forward();
        let formats = self.formats(matches!(feed_forward, Some(FeedForward::Experts(_))));
        Some(ModelFacts {
            name: name.to_owned(),
            architecture: architecture?,
            hidden_size: hidden_size?,
            layers: layers?,
            vocabulary_size: vocabulary_size?,
            max_context: max_context?,
            attention: attention?,
            feed_forward: feed_forward?,
            formats: formats?,
        })
    }

    fn problem<T>(&mut self, message: impl Into<String>) -> Option<T> {
        self.problems.push(message.into());
        None
    }

    fn architecture(&mut self) -> Option<String> {
        let first = self.root.get("architectures").and_then(|names| names.get(0)).and_then(Value::as_str);
        match first {
            Some(name) => Some(name.to_owned()),
            None => self.problem("architectures: needs the name of one"),
        }
    }

    /// What a key says, looked for among the facts of the text model; null is as good as absent.
    fn given(&self, key: &str) -> Option<&'a Value> {
        self.text.get(key).filter(|value| !value.is_null())
    }

    /// A size above 0 that has to be there.
    fn size(&mut self, key: &str) -> Option<u64> {
        match self.optional_size(key) {
            Some(None) => self.problem(format!("{key}: required key is missing")),
            size => size.flatten(),
        }
    }

    /// A size above 0 that may be absent; the outer `None` is a problem.
    #[expect(clippy::option_option, reason = "a bad value is not an absent one")]
    fn optional_size(&mut self, key: &str) -> Option<Option<u64>> {
        let Some(value) = self.given(key) else { return Some(None) };
        let size = value.as_u64().filter(|size| (1..=LARGEST).contains(size));
        if size.is_none() {
            return self.problem(format!("{key}: `{value}` is not a whole number from 1 to {LARGEST}"));
        }
        Some(size)
    }

    /// The first of several keys that is there: models do not agree on the names.
    fn first_size(&mut self, keys: &[&str]) -> Option<u64> {
        let key = keys.iter().find(|key| self.given(key).is_some()).unwrap_or(&keys[0]);
        self.size(key)
    }

    fn attention(&mut self, hidden_size: Option<u64>, layers: Option<u64>) -> Option<Attention> {
        let heads = self.size("num_attention_heads");
        let head_size = self.optional_size("head_dim")?;
        let head_size = head_size.or_else(|| Some(hidden_size? / heads?));
        if self.given("kv_lora_rank").is_some() {
            return self.latent(heads, head_size);
        }
        let kv_heads = self.optional_size("num_key_value_heads")?.or(heads);
        let (heads, kv_heads) = (heads?, kv_heads?);
        if kv_heads > heads || !heads.is_multiple_of(kv_heads) {
            return self
                .problem(format!("num_key_value_heads: {kv_heads} do not divide {heads} attention heads"));
        }
        let sliding = self.sliding_window(layers?)?;
        let qk_norm = match self.given("use_qk_norm") {
            Some(value) => value == true,
            // Every model of this line has it and none says so.
            None => {
                self.given("model_type").and_then(Value::as_str).is_some_and(|kind| kind.starts_with("qwen3"))
            }
        };
        Some(Attention::Grouped { heads, kv_heads, head_size: head_size?, qk_norm, sliding })
    }

    fn latent(&mut self, heads: Option<u64>, head_size: Option<u64>) -> Option<Attention> {
        let kv_lora_rank = self.size("kv_lora_rank");
        let q_lora_rank = self.optional_size("q_lora_rank").map(Option::unwrap_or_default);
        let (nope, rope) = (self.size("qk_nope_head_dim"), self.size("qk_rope_head_dim"));
        let v_head_size = self.size("v_head_dim");
        let indexer = match self.given("index_n_heads") {
            Some(_) => Some((self.size("index_n_heads")?, self.size("index_head_dim")?)),
            None => None,
        };
        Some(Attention::Latent {
            heads: heads?,
            nominal_head_size: head_size?,
            q_lora_rank: q_lora_rank?,
            kv_lora_rank: kv_lora_rank?,
            qk_nope_head_size: nope?,
            qk_rope_head_size: rope?,
            v_head_size: v_head_size?,
            indexer,
        })
    }

    /// Layers that see a window only: those that `layer_types` says, all if it is silent, none without a window.
    #[expect(clippy::option_option, reason = "a bad value is not an absent one")]
    fn sliding_window(&mut self, layers: u64) -> Option<Option<SlidingWindow>> {
        let Some(tokens) = self.optional_size("sliding_window")? else { return Some(None) };
        if self.given("use_sliding_window").is_some_and(|used| used == false) {
            return Some(None);
        }
        let Some(types) = self.given("layer_types") else {
            return Some(Some(SlidingWindow { layers, tokens }));
        };
        let types: Vec<&str> = types.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if types.len() as u64 != layers {
            let named = types.len();
            return self.problem(format!("layer_types: names {named} layers of {layers}"));
        }
        let unknown = types.iter().find(|kind| !["sliding_attention", "full_attention"].contains(kind));
        if let Some(kind) = unknown {
            let message =
                format!("layer_types: `{kind}` is not modelled; sliding_attention and full_attention are");
            return self.problem(message);
        }
        let layers = types.iter().filter(|kind| **kind == "sliding_attention").count() as u64;
        Some((layers > 0).then_some(SlidingWindow { layers, tokens }))
    }

    fn feed_forward(&mut self) -> Option<FeedForward> {
        const EXPERTS: [&str; 3] = ["num_experts", "num_local_experts", "n_routed_experts"];
        let has_experts = EXPERTS.iter().any(|key| self.given(key).is_some_and(|count| count != 0));
        if !has_experts {
            let intermediate_size = self.size("intermediate_size")?;
            return Some(FeedForward::Dense(DenseFeedForward { intermediate_size }));
        }
        let experts = self.first_size(&EXPERTS);
        let shared_experts = match self.given("n_shared_experts").and_then(Value::as_u64) {
            Some(0) | None => Some(0),
            Some(_) => self.size("n_shared_experts"),
        };
        let experts_per_token = self.first_size(&["num_experts_per_tok", "experts_per_token"]);
        let intermediate_size = self.first_size(&["moe_intermediate_size", "intermediate_size"]);
        Some(FeedForward::Experts(Experts {
            experts: experts?,
            shared_experts: shared_experts?,
            experts_per_token: experts_per_token?,
            intermediate_size: intermediate_size?,
        }))
    }

    fn formats(&mut self, experts: bool) -> Option<NumberFormats> {
        let named = ["torch_dtype", "dtype"].map(|key| self.given(key).or_else(|| self.root.get(key)));
        let plain = match named.into_iter().flatten().find_map(Value::as_str) {
            Some("bfloat16" | "float16") | None => WeightFormat::Bfloat16,
            Some("float32") => WeightFormat::Float32,
            Some(other) => {
                let message =
                    format!("torch_dtype: `{other}` is not modelled; bfloat16, float16 and float32 are");
                return self.problem(message);
            }
        };
        let quantization = self.root.get("quantization_config").or_else(|| self.given("quantization_config"));
        match NumberFormats::read(plain, quantization.unwrap_or(&Value::Null), experts) {
            Ok(formats) => Some(formats),
            Err(problems) => {
                self.problems.extend(problems.iter().map(|problem| format!("quantization_config.{problem}")));
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(config: &Value) -> Result<ModelFacts, ModelError> {
        ModelFacts::from_config("a/model", "config.json", &config.to_string())
    }

    fn small() -> Value {
        json!({
            "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
            "num_hidden_layers": 4, "num_attention_heads": 8, "vocab_size": 1000, "max_position_embeddings": 2048
        })
    }

    #[test]
    fn heads_follow_from_what_is_there() {
        let facts = read(&small()).unwrap();
        let Attention::Grouped { heads: 8, kv_heads: 8, head_size: 8, qk_norm: false, sliding: None } =
            facts.attention
        else {
            panic!("{:?}", facts.attention)
        };
        assert!(!facts.is_moe());
    }

    #[test]
    fn windows_are_counted_by_layer() {
        let mut config = small();
        config["sliding_window"] = 128.into();
        let window = |config: &Value| match read(config).unwrap().attention {
            Attention::Grouped { sliding, .. } => sliding,
            Attention::Latent { .. } => unreachable!(),
        };
        assert_eq!(window(&config), Some(SlidingWindow { layers: 4, tokens: 128 }));
        config["layer_types"] =
            json!(["sliding_attention", "full_attention", "full_attention", "sliding_attention"]);
        assert_eq!(window(&config), Some(SlidingWindow { layers: 2, tokens: 128 }));
        config["use_sliding_window"] = false.into();
        assert_eq!(window(&config), None);
    }

    #[test]
    fn all_problems_come_at_once_with_their_keys() {
        let mut config = small();
        config.as_object_mut().unwrap().remove("vocab_size");
        config["hidden_size"] = "64".into();
        config["num_key_value_heads"] = 3.into();
        config["quantization_config"] = json!({"quant_method": "magic"});
        let error = read(&config).unwrap_err().to_string();
        for part in [
            "config.json: hidden_size: `\"64\"` is not a whole number",
            "config.json: vocab_size: required key is missing",
            "num_key_value_heads: 3 do not divide 8",
            "quantization_config.quant_method: `magic`",
        ] {
            assert!(error.contains(part), "{error}");
        }
        let syntax = ModelFacts::from_config("a", "b.json", "[1]").unwrap_err().to_string();
        assert!(syntax.starts_with("b.json: "), "{syntax}");
    }
}
