//! A point, spelt out: the flat `config` of a candidate and the scenario that replays it.

use serde::Serialize;
use serde_json::{Map, Value};

use super::branch::{Branch, KV_ROUTER, router_value, value};
use super::layout;
use super::space::Point;
use crate::config::scenario::{
    CapacitySource, Deployment, DeploymentMode, EngineOptions, KvTransfer, PolicyConfig, Pool, Scenario,
};
use crate::config::search::{LoadShape, ParallelConfig, Shape};

/// A candidate before its evaluation.
#[derive(Clone, Debug, PartialEq)]
pub struct Unrolled {
    /// Every setting by name, in a fixed order; a setting that does not apply is absent.
    pub config: Map<String, Value>,
    /// GPUs that it occupies.
    pub used_gpus: u32,
    /// What replays it.
    pub scenario: Scenario,
}

impl Unrolled {
    /// Two candidates are the same evaluation exactly when their keys are equal: inert settings and the way a choice
    /// was written do not enter the scenario.
    pub fn key(&self) -> String {
        serde_json::to_string(&self.scenario).expect("a scenario is plain data")
    }
}

impl Branch {
    /// Spells a point out.
    ///
    /// # Errors
    /// Why no candidate can be built from it.
    pub fn unroll(&self, point: &Point) -> Result<Unrolled, String> {
        let layout = &self.layouts[point.layout as usize];
        let ParallelConfig::Agg(shape) = layout else {
            return Err("a layout of two roles in an aggregated branch".into());
        };
        let scenario = self.scenario(point, shape)?;
        Ok(Unrolled { config: self.flat(point, shape), used_gpus: layout::total_gpus(shape), scenario })
    }

    fn scenario(&self, point: &Point, shape: &Shape) -> Result<Scenario, String> {
        let config = &self.config;
        let workload =
            config.workload.of_trial(None).ok_or("the load has no number of requests in flight")?;
        let pool = Pool {
            workers: shape.replicas,
            dp_size: shape.attention_dp,
            tensor_parallel_size: shape.tp,
            startup_time_s: config.search_space.startup_time.unwrap_or(0.0),
            router: None,
            engine: self.engine(point),
            timing: config.search_space.timing.clone(),
        };
        Ok(Scenario {
            seed: config.sweep.random_seed,
            deployment: Deployment {
                mode: DeploymentMode::Agg,
                router: self.router(point),
                planner: None,
                agg: Some(pool),
                prefill: None,
                decode: None,
                kv_transfer: KvTransfer::default(),
                replica_changes: Vec::new(),
            },
            workload,
            sla: config.goal.sla,
            max_sim_time_ms: None,
            facts: config.facts.clone(),
        })
    }

    fn engine(&self, point: &Point) -> EngineOptions {
        let space = &self.config.search_space;
        let choices = &self.choices;
        let mut engine = EngineOptions::for_backend(choices.backend[self.choice(point, "backend")]);
        engine.block_size = space.agg_block_size;
        engine.gpu_memory_utilization = space.agg_gpu_memory_utilization;
        engine.enable_prefix_caching = space.agg_enable_prefix_caching;
        engine.max_num_batched_tokens =
            Some(choices.agg_max_num_batched_tokens[self.choice(point, "agg_max_num_batched_tokens")]);
        engine.max_num_seqs = Some(choices.agg_max_num_seqs[self.choice(point, "agg_max_num_seqs")]);
        engine.aic_nextn = space.aic_nextn;
        if let Some(blocks) = space.num_gpu_blocks {
            engine.num_gpu_blocks = blocks;
            engine.capacity_source = CapacitySource::Given;
        }
        engine
    }

    /// The chosen router with the weights that the search chooses for it.
    fn router(&self, point: &Point) -> PolicyConfig {
        let mut router = self.choices.router_mode[self.choice(point, "router_mode")].clone();
        for (name, weight) in self.weights(point) {
            router.fields.insert(name.into(), weight);
        }
        router
    }

    /// The router weights that have an effect at this point.
    fn weights<'a>(&'a self, point: &'a Point) -> impl Iterator<Item = (&'static str, Value)> + 'a {
        self.space.dimensions().iter().enumerate().filter_map(|(place, dimension)| {
            let active = dimension.condition.is_some() && self.space.is_active(&point.choices, place);
            active.then(|| (dimension.name, dimension.choices[point.choices[place] as usize].clone()))
        })
    }

    fn flat(&self, point: &Point, shape: &Shape) -> Map<String, Value> {
        let mut flat = Flat::default();
        self.put_deployment(point, &mut flat);
        put_shape(shape, &mut flat);
        self.put_engine(point, &mut flat);
        self.put_router(point, &mut flat);
        self.put_planner(point, &mut flat);
        let space = &self.config.search_space;
        if let Some(version) = &space.backend_version {
            flat.put("backend_version", version);
        }
        if let LoadShape::Concurrency { concurrency, .. } = self.config.workload.load {
            flat.put("concurrency", &concurrency);
        }
        flat.0
    }

    fn put_deployment(&self, point: &Point, flat: &mut Flat) {
        let space = &self.config.search_space;
        flat.put("deployment_mode", &self.mode);
        flat.put("backend", &self.choices.backend[self.choice(point, "backend")]);
        flat.put("model_name", &space.model_name);
        flat.put("hardware_sku", &space.hardware_sku);
        flat.put("gpu_budget", &space.gpu_budget);
        flat.put("min_gpu_budget", &space.min_gpu_budget);
        flat.put("min_endpoint", &space.min_endpoint);
        flat.put("context_length", &space.context_length);
        flat.put("startup_time", &space.startup_time);
        flat.put("aic_nextn", &space.aic_nextn);
        flat.put("num_g2_blocks", &space.num_g2_blocks);
        flat.put("kv_bytes_per_token", &space.kv_bytes_per_token);
        flat.put("bandwidth_g1_to_g2_gbps", &space.bandwidth_g1_to_g2_gbps);
        flat.put("bandwidth_g2_to_g1_gbps", &space.bandwidth_g2_to_g1_gbps);
        flat.put("offload_batch_size", &space.offload_batch_size);
    }

    fn put_engine(&self, point: &Point, flat: &mut Flat) {
        let space = &self.config.search_space;
        for name in ["agg_max_num_batched_tokens", "agg_max_num_seqs"] {
            flat.put(name, self.chosen(point, name));
        }
        flat.put("agg_block_size", &space.agg_block_size);
        flat.put("agg_gpu_memory_utilization", &space.agg_gpu_memory_utilization);
        flat.put("agg_enable_prefix_caching", &space.agg_enable_prefix_caching);
    }

    fn put_router(&self, point: &Point, flat: &mut Flat) {
        let space = &self.config.search_space;
        let router = &self.choices.router_mode[self.choice(point, "router_mode")];
        flat.put("router_mode", &router_value(router));
        if router.policy != KV_ROUTER {
            return;
        }
        for (name, weight) in self.weights(point) {
            flat.put(name, &weight);
        }
        flat.put("active_decode_blocks_threshold", &space.active_decode_blocks_threshold);
        flat.put("active_prefill_tokens_threshold", &space.active_prefill_tokens_threshold);
        flat.put("active_prefill_tokens_threshold_frac", &space.active_prefill_tokens_threshold_frac);
        flat.put("no_admission_control", &space.no_admission_control);
    }

    fn put_planner(&self, point: &Point, flat: &mut Flat) {
        let policy = &self.choices.planner_scaling_policy[self.choice(point, "planner_scaling_policy")];
        flat.put("planner_scaling_policy", policy);
        if let Some(settings) = policy.settings() {
            flat.put("enable_throughput_scaling", &settings.enable_throughput_scaling);
            flat.put("enable_load_scaling", &settings.enable_load_scaling);
        }
    }

    fn chosen(&self, point: &Point, name: &str) -> &Value {
        let place = self.space.dimensions().iter().position(|dimension| dimension.name == name);
        let dimension = &self.space.dimensions()[place.expect("the caller names a knob of the branch")];
        &dimension.choices[self.choice(point, name)]
    }
}

#[derive(Default)]
struct Flat(Map<String, Value>);

impl Flat {
    fn put(&mut self, name: &str, setting: &impl Serialize) {
        self.0.insert(name.into(), value(setting));
    }
}

fn put_shape(shape: &Shape, flat: &mut Flat) {
    flat.put("tp", &shape.tp);
    flat.put("pp", &shape.pp);
    flat.put("attention_dp", &shape.attention_dp);
    flat.put("moe_tp", &shape.moe_tp);
    flat.put("moe_ep", &shape.moe_ep);
    flat.put("strategy", &layout::strategy(shape));
    flat.put("replicas", &shape.replicas);
    flat.put("used_gpus", &layout::total_gpus(shape));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::search::test_support::{config, plan};

    fn branch() -> Branch {
        plan(config()).branches.remove(0)
    }

    /// The first points of the canonical order use the first router with each of its weights, the last use the other.
    fn first_and_last(branch: &Branch) -> [Unrolled; 2] {
        [0, branch.space.size() - 1].map(|index| branch.unroll(&branch.space.point(index)).unwrap())
    }

    #[test]
    fn the_flat_settings_come_in_a_fixed_order_without_those_that_do_not_apply() {
        let [with_weights, without] = first_and_last(&branch());
        let expected = json!({
            "deployment_mode": "agg", "backend": "vllm",
            "model_name": "a/model", "hardware_sku": "h200_sxm", "gpu_budget": 32, "min_gpu_budget": null,
            "min_endpoint": null, "context_length": null, "startup_time": null, "aic_nextn": null,
            "num_g2_blocks": 0, "kv_bytes_per_token": null, "bandwidth_g1_to_g2_gbps": null,
            "bandwidth_g2_to_g1_gbps": null, "offload_batch_size": null,
            "tp": 4, "pp": 1, "attention_dp": 1, "moe_tp": 1, "moe_ep": 1, "strategy": "tp",
            "replicas": 2, "used_gpus": 8,
            "agg_max_num_batched_tokens": 8192, "agg_max_num_seqs": 256,
            "agg_block_size": 64, "agg_gpu_memory_utilization": 0.9, "agg_enable_prefix_caching": true,
            "router_mode": "kv_router",
            "overlap_score_credit": 0.0, "prefill_load_scale": 0.0, "router_temperature": 0.0,
            "active_decode_blocks_threshold": null, "active_prefill_tokens_threshold": null,
            "active_prefill_tokens_threshold_frac": null, "no_admission_control": false,
            "planner_scaling_policy": "disabled", "enable_throughput_scaling": false, "enable_load_scaling": false,
            "concurrency": 8,
        });
        let text = |map: &Map<String, Value>| serde_json::to_string(map).unwrap();
        assert_eq!(text(&with_weights.config), text(expected.as_object().unwrap()));

        let mut expected = expected.as_object().unwrap().clone();
        for name in [
            "overlap_score_credit",
            "prefill_load_scale",
            "router_temperature",
            "active_decode_blocks_threshold",
            "active_prefill_tokens_threshold",
            "active_prefill_tokens_threshold_frac",
            "no_admission_control",
        ] {
            expected.shift_remove(name);
        }
        expected.insert("router_mode".into(), "round_robin".into());
        expected.insert("agg_max_num_batched_tokens".into(), 32768.into());
        expected.insert("agg_max_num_seqs".into(), 1024.into());
        assert_eq!(text(&without.config), text(&expected));
    }

    #[test]
    fn the_scenario_says_what_the_settings_say() {
        let [with_weights, without] = first_and_last(&branch());
        let deployment = &without.scenario.deployment;
        assert_eq!(deployment.router, PolicyConfig::named("round_robin"));
        let pool = deployment.agg.as_ref().unwrap();
        assert_eq!((pool.workers, pool.dp_size, pool.tensor_parallel_size), (2, 1, 4));
        assert_eq!(pool.engine.max_num_seqs, Some(1024));
        assert_eq!(pool.engine.max_num_batched_tokens, Some(32768));
        assert_eq!(pool.engine.num_gpu_blocks, EngineOptions::DEFAULT_NUM_GPU_BLOCKS);
        assert_eq!(without.scenario.workload.concurrency, Some(8));
        let router = &with_weights.scenario.deployment.router;
        assert_eq!(
            Value::Object(router.fields.clone()),
            json!({
                "overlap_score_credit": 0.0, "prefill_load_scale": 0.0, "router_temperature": 0.0
            })
        );
    }

    #[test]
    fn a_router_with_a_weight_of_its_own_does_not_take_it_from_the_search() {
        let mut config = config();
        config.search_space.router_mode.truncate(1);
        config.search_space.router_mode[0].fields.insert("prefill_load_scale".into(), json!(3.0));
        let branch = plan(config).branches.remove(0);
        assert_eq!(branch.space.size(), 3 * 4 * 9);
        let unrolled = branch.unroll(&branch.space.point(0)).unwrap();
        assert_eq!(unrolled.scenario.deployment.router.fields["prefill_load_scale"], json!(3.0));
        assert_eq!(unrolled.config["router_mode"], json!({"policy": "kv_router", "prefill_load_scale": 3.0}));
        assert!(!unrolled.config.contains_key("prefill_load_scale"));
    }
}
