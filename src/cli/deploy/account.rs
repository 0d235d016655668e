//! Every field of a candidate, and where it went.

use serde_json::{Map, Value};

use super::engines::{self, Engine};

/// What starts something, and what could not be said with it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Account {
    /// Flags with their values, in order.
    pub(super) flags: Vec<(String, Option<String>)>,
    /// Fields without a flag: the field with its value, and why.
    pub(super) unsaid: Vec<(String, String)>,
}

/// What is simulated only: no flag exists, or the engine does it by itself.
const SIMULATED: [(&str, &str); 10] = [
    ("scheduler", "an engine of the simulation: the backend is started with its own scheduler"),
    ("speedup_ratio", "scales simulated time; 1 means as measured"),
    ("decode_speedup_ratio", "scales simulated time; 1 means as measured"),
    ("preemption_mode", "the engine decides by itself who gives way"),
    ("kv_eviction_policy", "the engine evicts by its own order"),
    ("prefill_schedule_interval", "a rule of the simulated scheduler"),
    ("prefill_decode_interval", "a rule of the simulated scheduler"),
    ("aic_nextn_accept_rates", "acceptance depends on model and text"),
    ("aic_mtp_seed", "a seed of the simulation"),
    ("first_token_decode", "how a pass is charged in the simulation"),
];

impl Account {
    /// Adds a flag with a value.
    pub(super) fn set(&mut self, flag: &str, value: &Value) {
        let value = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        self.flags.push((flag.to_owned(), Some(value)));
    }

    pub(super) fn switch(&mut self, flag: &str) {
        self.flags.push((flag.to_owned(), None));
    }

    pub(super) fn unsaid(&mut self, field: &str, value: &Value, why: &str) {
        self.unsaid.push((format!("{field}: {value}"), why.to_owned()));
    }

    /// The flags as arguments of a command.
    pub(super) fn arguments(&self) -> Vec<String> {
        self.flags
            .iter()
            .flat_map(|(flag, value)| std::iter::once(flag.clone()).chain(value.clone()))
            .collect()
    }
}

/// Who starts the workers of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Starter {
    /// The engine's own command.
    Engine,
    /// The engine behind Dynamo's runtime; with the KV router its workers report what they cache.
    Dynamo {
        /// Whether the router hears of the caches.
        kv_events: bool,
    },
}

/// What is known of a pool beside its block in the scenario.
#[derive(Clone, Copy, Debug)]
pub(super) struct PoolContext<'a> {
    /// `agg`, `prefill` or `decode`.
    pub(super) name: &'a str,
    /// The settings of the candidate.
    pub(super) config: &'a Map<String, Value>,
    /// The KV blocks of a rank that a memory model finds room for, where nobody gives them.
    pub(super) modelled_blocks: Option<u32>,
    /// Who starts it.
    pub(super) starter: Starter,
}

impl PoolContext<'_> {
    /// A setting of this pool, with or without its prefix.
    pub(super) fn setting(&self, name: &str) -> Option<&Value> {
        let prefixed = format!("{}_{name}", self.name);
        self.config.get(&prefixed).or_else(|| self.config.get(name)).filter(|value| !value.is_null())
    }

    /// Ranks over which experts are spread, as the candidate or else what prices or sizes the pool has it.
    pub(super) fn expert_parallel(&self, pool: &Value) -> Option<u64> {
        let of_pool = ["timing", "memory"].into_iter().map(|part| &pool[part]["moe_ep"]);
        let given = self.setting("moe_ep").into_iter().chain(of_pool).find_map(Value::as_u64);
        given.filter(|&ranks| ranks > 1)
    }

    /// Whether prompts and outputs are computed by different workers.
    pub(super) fn is_disaggregated(&self) -> bool {
        self.name != "agg"
    }
}

/// Accounts for a pool: engine flags first, then what has none.
pub(super) fn account(pool: &Value, context: PoolContext<'_>) -> Account {
    let options = pool["engine"].as_object().cloned().unwrap_or_default();
    let mut account = Account::default();
    let engine = Engine { pool, options: &options, context };
    match options.get("backend").and_then(Value::as_str) {
        Some("sglang") => engines::sglang(engine, &mut account),
        Some("trtllm") => engines::trtllm(engine, &mut account),
        _ => engines::vllm(engine, &mut account),
    }
    for (field, why) in SIMULATED {
        if let Some(value) = options.get(field).filter(|value| !value.is_null()) {
            account.unsaid(field, value, why);
        }
    }
    for (field, why) in [
        ("timing", "how passes are priced in the simulation"),
        ("startup_time_s", "how long a worker takes to start is a property of the cluster"),
        ("router", "a router of its own for this pool: set it where the pool's router runs"),
    ] {
        if let Some(value) = pool.get(field).filter(|value| !value.is_null()) {
            account.unsaid(field, value, why);
        }
    }
    account
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::flags::check;
    use super::*;
    use crate::config::scenario::{Backend, EngineOptions, PolicyConfig, Pool};

    const BACKENDS: [(Backend, &str); 3] =
        [(Backend::Vllm, "vllm"), (Backend::Sglang, "sglang"), (Backend::Trtllm, "trtllm")];
    const STARTERS: [Starter; 2] = [Starter::Engine, Starter::Dynamo { kv_events: true }];

    fn pool(backend: Backend) -> Value {
        let engine = EngineOptions {
            scheduler: Some(Box::new(PolicyConfig::named("mine"))),
            max_model_len: Some(4096),
            aic_nextn: Some(2),
            aic_nextn_accept_rates: Some(vec![0.8, 0.6]),
            ..EngineOptions::for_backend(backend)
        };
        let pool = Pool {
            dp_size: 2,
            tensor_parallel_size: 4,
            pipeline_parallel_size: 2,
            engine,
            ..Pool::default()
        };
        serde_json::to_value(&pool).unwrap()
    }

    #[test]
    fn every_field_of_an_engine_is_said_or_listed_and_every_flag_is_documented() {
        let config = json!({"moe_ep": 8});
        for ((backend, name), starter) in
            BACKENDS.into_iter().flat_map(|one| STARTERS.map(|starter| (one, starter)))
        {
            let pool = pool(backend);
            let context = PoolContext {
                name: "prefill",
                config: config.as_object().unwrap(),
                modelled_blocks: None,
                starter,
            };
            let whole = account(&pool, context);
            let command = match starter {
                Starter::Engine => name.to_owned(),
                Starter::Dynamo { .. } => format!("dynamo.{name}"),
            };
            check(&command, &whole.arguments()).unwrap();
            // A field is accounted for if leaving it out or changing it changes the account.
            let engine = pool["engine"].as_object().unwrap();
            // The backend chooses the command itself.
            let own = |field: &str| field != "backend" && (field != "sglang" || name == "sglang");
            for (field, value) in engine.iter().filter(|(field, _)| own(field)) {
                let leaves: Vec<(Option<&str>, &Value)> = match value.as_object() {
                    // The fields of a policy are its own.
                    Some(fields) if field != "scheduler" => {
                        fields.iter().map(|(inner, value)| (Some(inner.as_str()), value)).collect()
                    }
                    _ => vec![(None, value)],
                };
                for (inner, value) in leaves.into_iter().filter(|(_, value)| !value.is_null()) {
                    let changed = match value {
                        Value::Bool(value) => json!(!value),
                        Value::Number(_) => json!(77),
                        Value::Array(_) => json!([0.5]),
                        _ => json!("another"),
                    };
                    let mut other = pool.clone();
                    match inner {
                        Some(inner) => other["engine"][field][inner] = changed,
                        None => other["engine"][field] = changed,
                    }
                    assert_ne!(
                        account(&other, context),
                        whole,
                        "{command}: {field} {inner:?} leaves no trace"
                    );
                }
            }
        }
    }

    #[test]
    fn blocks_of_a_memory_model_are_said_or_listed() {
        let nothing = Map::new();
        for ((backend, name), starter) in
            BACKENDS.into_iter().flat_map(|one| STARTERS.map(|starter| (one, starter)))
        {
            let mut pool = pool(backend);
            pool["engine"].as_object_mut().unwrap().shift_remove("num_gpu_blocks");
            let context = PoolContext { name: "agg", config: &nothing, modelled_blocks: Some(1234), starter };
            let account = account(&pool, context);
            let is_said = account.flags.iter().any(|(flag, _)| flag == "--max-total-tokens");
            let listed = account.unsaid.iter().filter(|(field, _)| field == "num_gpu_blocks: 1234").count();
            assert_eq!((is_said, listed), if name == "sglang" { (true, 0) } else { (false, 1) }, "{name}");
        }
    }

    #[test]
    fn experts_are_spread_as_they_were_priced() {
        for (name, starter, flag) in [
            ("vllm", Starter::Engine, "--enable-expert-parallel"),
            ("sglang", Starter::Engine, "--ep-size"),
            ("trtllm", Starter::Engine, "--ep_size"),
            ("trtllm", STARTERS[1], "--expert-parallel-size"),
        ] {
            let pool = json!({
                "dp_size": 1, "tensor_parallel_size": 4, "pipeline_parallel_size": 1,
                "engine": {"backend": name, "sglang": {"schedule_policy": "fifo"}},
                "timing": {"model": "profile", "moe_ep": 4},
            });
            let nothing = Map::new();
            let account =
                account(&pool, PoolContext { name: "agg", config: &nothing, modelled_blocks: None, starter });
            let value = |wanted: &str| account.flags.iter().find(|(flag, _)| flag == wanted);
            assert!(value(flag).is_some(), "{name}");
            if name == "sglang" {
                assert!(format!("{:?}", value("--schedule-policy")).contains("fcfs"));
            }
        }
    }

    #[test]
    fn workers_report_their_caches_to_the_kv_router_only() {
        let nothing = Map::new();
        for (backend, name) in BACKENDS {
            let pool = pool(backend);
            let arguments = |role: &'static str, kv_events: bool| {
                let starter = Starter::Dynamo { kv_events };
                account(&pool, PoolContext { name: role, config: &nothing, modelled_blocks: None, starter })
                    .arguments()
            };
            let reports = |arguments: &[String]| arguments.iter().any(|word| word.contains("kv-events"));
            for role in ["agg", "prefill", "decode"] {
                assert!(!reports(&arguments(role, false)), "{name} {role}");
                // Decode workers of vLLM hold what prefill workers have reported.
                assert_eq!(
                    reports(&arguments(role, true)),
                    (name, role) != ("vllm", "decode"),
                    "{name} {role}"
                );
            }
        }
    }
}
