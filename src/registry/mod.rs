//! The names under which policies are known.
//!
//! Explicit, without link-time magic: a researcher's own binary starts from [`Registry::builtin`], adds its policies and
//! hands the registry to [`crate::cli::run`].

mod making;

use std::collections::BTreeMap;
use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

pub use self::making::PolicyError;
use self::making::{Factory, make, refuse};
use crate::config::presets::{SCALING_POLICIES, ScalingSettings};
use crate::config::scenario::{BACKEND_SCHEDULER, BUILTIN_PLANNER, DeploymentMode, PolicyConfig};
use crate::engine::{EnginePool, NewEngine};
use crate::sampling::{BUILTIN_SAMPLERS, NewSampler};
use crate::serving::planner::PlanningPolicy;
use crate::serving::planner::builtin::BuiltinPlanner;
use crate::serving::planner::clairvoyant::Clairvoyant;
use crate::serving::planner::queue_aware::QueueAware;
use crate::serving::predictor::LoadPredictor;
use crate::serving::predictor::arima::Arima;
use crate::serving::predictor::constant::Constant;
use crate::serving::predictor::kalman::Kalman;
use crate::serving::predictor::prophet::Prophet;
use crate::serving::router::RoutingPolicy;
use crate::serving::router::approximate_kv::ApproximateKv;
use crate::serving::router::cost_terms::CostTerms;
use crate::serving::router::kv_router::KvRouter;
use crate::serving::router::least_loaded::LeastLoaded;
use crate::serving::router::power_of_two::PowerOfTwo;
use crate::serving::router::random::Random;
use crate::serving::router::round_robin::RoundRobin;
use crate::serving::router::session_affinity::SessionAffinity;

/// Names of policies with what makes them from their configuration.
#[derive(Clone)]
pub struct Registry {
    routers: BTreeMap<&'static str, Factory<dyn RoutingPolicy>>,
    predictors: BTreeMap<&'static str, Factory<dyn LoadPredictor>>,
    planners: BTreeMap<&'static str, Factory<dyn PlanningPolicy>>,
    samplers: BTreeMap<&'static str, Factory<dyn NewSampler>>,
    engines: BTreeMap<&'static str, Factory<dyn NewEngine>>,
}

impl Registry {
    /// Everything that comes with the crate.
    pub fn builtin() -> Self {
        Self::empty()
            .with_router::<RoundRobin>("round_robin")
            .with_router::<KvRouter>("kv_router")
            .with_router::<ApproximateKv>("approximate_kv")
            .with_router::<CostTerms>("cost_terms")
            .with_router::<LeastLoaded>("least_loaded")
            .with_router::<PowerOfTwo>("power_of_two")
            .with_router::<Random>("random")
            .with_router::<SessionAffinity>("session_affinity")
            .with_predictor::<Constant>("constant")
            .with_predictor::<Kalman>("kalman")
            .with_predictor::<Arima>("arima")
            .with_predictor::<Prophet>("prophet")
            .with_planner::<BuiltinPlanner>(BUILTIN_PLANNER)
            .with_planner::<QueueAware>("queue_aware")
            .with_planner::<Clairvoyant>("clairvoyant")
    }

    /// Nothing.
    pub(crate) fn empty() -> Self {
        Self {
            routers: BTreeMap::new(),
            predictors: BTreeMap::new(),
            planners: BTreeMap::new(),
            samplers: BTreeMap::new(),
            engines: BTreeMap::new(),
        }
    }

    /// Adds an engine, for `scheduler` in a pool's `engine:`. Its fields are its configuration.
    ///
    /// # Panics
    /// If the name is taken, by another engine or by what the backends' own are called.
    #[must_use]
    pub fn with_engine<E: NewEngine + DeserializeOwned + 'static>(mut self, name: &'static str) -> Self {
        let factory: Factory<dyn NewEngine> =
            |fields| serde_json::from_value::<E>(Value::Object(fields)).map(|engine| Box::new(engine) as _);
        let is_new = name != BACKEND_SCHEDULER && self.engines.insert(name, factory).is_none();
        assert!(is_new, "there is an engine named {name} already");
        self
    }

    /// What makes the engines of a pool, if it names a scheduler; otherwise the backend's own is meant. The error lists every problem
    /// found, with where it was written.
    pub fn engine(&self, pool: &EnginePool<'_>) -> Result<Option<Box<dyn NewEngine>>, PolicyError> {
        let Some(config) = pool.options.scheduler.as_deref() else { return Ok(None) };
        let engine = make(&self.engines, "scheduler", config, [BACKEND_SCHEDULER])?;
        let problems = engine_problems(&*engine, config, pool);
        if problems.is_empty() { Ok(Some(engine)) } else { Err(refuse(config, problems)) }
    }

    /// Why the engine that a pool names cannot serve its role; nothing if there is no such engine either.
    pub fn unserved_role(&self, pool: &EnginePool<'_>) -> Option<String> {
        let config = pool.options.scheduler.as_deref()?;
        let engine = make(&self.engines, "scheduler", config, [BACKEND_SCHEDULER]).ok()?;
        role_problem(&*engine, config, pool)
    }

    /// Adds a sampler, for `sweep.sampler`. Its fields are its configuration.
    ///
    /// # Panics
    /// If the name is taken, by another sampler or by one that comes with the crate.
    #[must_use]
    pub fn with_sampler<S: NewSampler + DeserializeOwned + 'static>(mut self, name: &'static str) -> Self {
        let factory: Factory<dyn NewSampler> =
            |fields| serde_json::from_value::<S>(Value::Object(fields)).map(|sampler| Box::new(sampler) as _);
        let is_new = !BUILTIN_SAMPLERS.contains(&name) && self.samplers.insert(name, factory).is_none();
        assert!(is_new, "there is a sampler named {name} already");
        self
    }

    /// Names of the samplers beside those that come with the crate, in alphabetical order.
    pub fn sampler_names(&self) -> impl Iterator<Item = &'static str> {
        self.samplers.keys().copied()
    }

    /// Makes a sampler that was added. The error lists every problem found, with where it was written.
    pub fn sampler(&self, config: &PolicyConfig) -> Result<Box<dyn NewSampler>, PolicyError> {
        let sampler = make(&self.samplers, "sampler", config, BUILTIN_SAMPLERS)?;
        let problems = sampler.problems();
        if problems.is_empty() { Ok(sampler) } else { Err(refuse(config, problems)) }
    }

    /// Adds a router. Its fields are its configuration.
    ///
    /// # Panics
    /// If the name is taken.
    #[must_use]
    pub fn with_router<R: RoutingPolicy + DeserializeOwned + 'static>(mut self, name: &'static str) -> Self {
        let factory: Factory<dyn RoutingPolicy> =
            |fields| serde_json::from_value::<R>(Value::Object(fields)).map(|router| Box::new(router) as _);
        assert!(self.routers.insert(name, factory).is_none(), "there is a router named {name} already");
        self
    }

    /// Names of all routers, in alphabetical order.
    pub fn router_names(&self) -> impl Iterator<Item = &'static str> {
        self.routers.keys().copied()
    }

    /// Makes a router. The error lists every problem found, with where the policy was written.
    pub fn router(&self, config: &PolicyConfig) -> Result<Box<dyn RoutingPolicy>, PolicyError> {
        let router = make(&self.routers, "router", config, [])?;
        let problems = router.problems();
        if problems.is_empty() { Ok(router) } else { Err(refuse(config, problems)) }
    }

    /// Adds a planner. Its fields are its configuration.
    ///
    /// # Panics
    /// If the name is taken, by another planner or by a preset of the built-in one.
    #[must_use]
    pub fn with_planner<P: PlanningPolicy + DeserializeOwned + 'static>(
        mut self,
        name: &'static str,
    ) -> Self {
        let factory: Factory<dyn PlanningPolicy> =
            |fields| serde_json::from_value::<P>(Value::Object(fields)).map(|planner| Box::new(planner) as _);
        let is_preset = SCALING_POLICIES.iter().any(|preset| preset.name == Some(name));
        let is_new = !is_preset && self.planners.insert(name, factory).is_none();
        assert!(is_new, "there is a planner named {name} already");
        self
    }

    /// Makes a planner for a deployment of this mode, with the load predictor that it names, three times; `None` if the
    /// configuration is the preset that scales nothing. The error lists every problem found, with where it was written.
    pub fn planner(
        &self,
        config: &PolicyConfig,
        mode: DeploymentMode,
    ) -> Result<Option<NewPlanner>, PolicyError> {
        let preset = SCALING_POLICIES.iter().find(|preset| preset.name == Some(config.policy.as_str()));
        let mut config = config.clone();
        let mut problems = Vec::new();
        if let Some(preset) = preset {
            let settings = &preset.values;
            if !settings.enable_throughput_scaling && !settings.enable_load_scaling {
                let inert = |name: &String| format!("{name}: has no effect with `policy: {}`", config.policy);
                problems.extend(config.fields.keys().map(inert));
                return if problems.is_empty() { Ok(None) } else { Err(refuse(&config, problems)) };
            }
            let by_bounds = config.fields.get("optimization_target") == Some(&"sla".into());
            if settings.enable_throughput_scaling && !by_bounds {
                problems.push(format!(
                    "policy: `{}` scales ahead of traffic, which needs `optimization_target: sla` beside it",
                    config.policy
                ));
            }
            let mut fields = preset_fields(settings, by_bounds);
            fields.extend(std::mem::take(&mut config.fields));
            config.fields = fields;
            BUILTIN_PLANNER.clone_into(&mut config.policy);
        }
        let presets = SCALING_POLICIES.iter().filter_map(|preset| preset.name);
        let policy = match make(&self.planners, "planner", &config, presets) {
            Ok(policy) => {
                problems.extend(policy.problems(Some(mode)));
                policy
            }
            Err(error) => {
                problems.extend(error.problems);
                problems.extend(self.problems_of_sound_fields(&config, mode));
                return Err(refuse(&config, problems));
            }
        };
        let forecasters = policy.predictor().map(|predictor| self.forecasters(&predictor)).transpose();
        let forecasters = forecasters.unwrap_or_else(|error| {
            problems.extend(error.problems.iter().map(|problem| policy.predictor_problem(problem)));
            None
        });
        if problems.is_empty() {
            Ok(Some(NewPlanner { policy, forecasters }))
        } else {
            Err(refuse(&config, problems))
        }
    }

    /// A load predictor three times.
    fn forecasters(&self, config: &PolicyConfig) -> Result<[Box<dyn LoadPredictor>; 3], PolicyError> {
        Ok([self.predictor(config)?, self.predictor(config)?, self.predictor(config)?])
    }

    /// What is wrong with the values of a planner's fields where others of its fields cannot even be read. What would have an
    /// effect beside those is not known.
    fn problems_of_sound_fields(&self, config: &PolicyConfig, mode: DeploymentMode) -> Vec<String> {
        let Some(factory) = self.planners.get(config.policy.as_str()) else { return Vec::new() };
        let mut fields = config.fields.clone();
        fields.retain(|name, value| {
            let alone = Map::from_iter([(name.clone(), value.clone())]);
            !factory(alone).is_err_and(|error| !error.to_string().starts_with("missing field"))
        });
        let problems = factory(fields).map_or(Vec::new(), |policy| policy.problems(Some(mode)));
        problems.into_iter().filter(|problem| !problem.contains("effect")).collect()
    }

    /// Adds a load predictor. Its fields are its configuration.
    ///
    /// # Panics
    /// If the name is taken.
    #[must_use]
    pub fn with_predictor<P: LoadPredictor + DeserializeOwned + 'static>(
        mut self,
        name: &'static str,
    ) -> Self {
        let factory: Factory<dyn LoadPredictor> = |fields| {
            serde_json::from_value::<P>(Value::Object(fields)).map(|predictor| Box::new(predictor) as _)
        };
        assert!(self.predictors.insert(name, factory).is_none(), "there is a predictor named {name} already");
        self
    }

    /// Makes a load predictor. The error lists every problem found, with where it was written.
    pub fn predictor(&self, config: &PolicyConfig) -> Result<Box<dyn LoadPredictor>, PolicyError> {
        let predictor = make(&self.predictors, "load predictor", config, [])?;
        let problems = predictor.problems();
        if problems.is_empty() { Ok(predictor) } else { Err(refuse(config, problems)) }
    }
}

/// What is wrong with an engine in a pool, beside what can be seen of its fields alone.
fn engine_problems(engine: &dyn NewEngine, config: &PolicyConfig, pool: &EnginePool<'_>) -> Vec<String> {
    match role_problem(engine, config, pool) {
        Some(problem) => vec![format!("policy: {problem}")],
        None => engine.problems(pool),
    }
}

fn role_problem(engine: &dyn NewEngine, config: &PolicyConfig, pool: &EnginePool<'_>) -> Option<String> {
    let (name, pool, roles) = (&config.policy, pool.role, engine.roles());
    let names = || roles.iter().map(|role| role.name()).collect::<Vec<_>>().join(", ");
    (!roles.contains(&pool))
        .then(|| format!("`{name}` does not serve a pool `{}`, only: {}", pool.name(), names()))
}

/// A preset of the built-in planner as its fields, where it goes by the bounds of requests or not.
pub(crate) fn preset_fields(settings: &ScalingSettings, by_bounds: bool) -> Map<String, Value> {
    let mut fields = Map::new();
    if settings.enable_load_scaling {
        fields.insert("enable_load_scaling".into(), true.into());
    }
    // With scaling of one kind only, the other is off and not at its default.
    if by_bounds {
        fields.insert("enable_throughput_scaling".into(), settings.enable_throughput_scaling.into());
    }
    if settings.enable_throughput_scaling
        && by_bounds
        && let Some(seconds) = settings.throughput_adjustment_interval_seconds
    {
        fields.insert("throughput_adjustment_interval_seconds".into(), seconds.into());
    }
    if let Some(seconds) = settings.load_adjustment_interval_seconds {
        fields.insert("load_adjustment_interval_seconds".into(), seconds.into());
    }
    fields
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("routers", &self.routers.keys())
            .field("predictors", &self.predictors.keys())
            .field("planners", &self.planners.keys())
            .field("samplers", &self.samplers.keys())
            .field("engines", &self.engines.keys())
            .finish()
    }
}

/// A planner with what forecasts for it: requests, prompt lengths and output lengths.
pub struct NewPlanner {
    /// Decides.
    pub policy: Box<dyn PlanningPolicy>,
    /// Forecast, if it wants that.
    pub forecasters: Option<[Box<dyn LoadPredictor>; 3]>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(policy: &str, fields: &Value) -> String {
        let fields = fields.as_object().cloned().unwrap_or_default();
        let config = PolicyConfig { policy: policy.into(), fields, location: "deployment.router".into() };
        Registry::builtin().router(&config).err().map_or_else(String::new, |error| error.to_string())
    }

    #[test]
    fn errors_name_the_place_the_value_and_the_nearest_name() {
        assert_eq!(problems("round_robin", &Value::Null), "");
        let unknown = problems("round_robbin", &Value::Null);
        assert_eq!(
            unknown,
            "deployment.router.policy: unknown router `round_robbin`; known are approximate_kv, cost_terms, kv_router, \
             least_loaded, power_of_two, random, round_robin, session_affinity; did you mean `round_robin`?"
        );
        let misspelt = problems("kv_router", &serde_json::json!({"router_temprature": 1}));
        assert!(
            misspelt.starts_with("deployment.router.router_temprature: unknown field `router_temprature`"),
            "{misspelt}"
        );
        assert!(misspelt.ends_with("did you mean `router_temperature`?"), "{misspelt}");
        let several =
            problems("kv_router", &serde_json::json!({"overlap_score_credit": 2, "prefill_load_scale": -1}));
        assert_eq!(several.lines().count(), 2, "{several}");
        let wrong =
            problems("kv_router", &serde_json::json!({"overlap_score_credit": "x", "temperature": 1}));
        let lines: Vec<_> = wrong.lines().collect();
        assert_eq!(lines.len(), 2, "{wrong}");
        assert!(
            lines[0].starts_with("deployment.router.overlap_score_credit: invalid type: the text"),
            "{wrong}"
        );
        assert!(lines[1].starts_with("deployment.router.temperature: unknown field"), "{wrong}");
    }

    #[test]
    fn the_documentation_knows_from_when_on_each_forecaster_forecasts() {
        let text = include_str!("../../docs/planner.md");
        let table = text.lines().skip_while(|line| !line.starts_with("| `load_predictor` | values ")).skip(2);
        let rows = table.take_while(|line| line.starts_with('|')).map(|row| {
            let name = row.split('`').nth(1).expect("a name in quotes");
            let cell = row.split('|').nth(2).expect("a second cell");
            let digits: String = cell.trim().chars().take_while(char::is_ascii_digit).collect();
            (name, digits.parse().expect("a number"))
        });
        let registry = Registry::builtin();
        let min_points =
            |name| registry.predictor(&PolicyConfig::named(name)).expect("it has defaults").min_points();
        let known = registry.predictors.keys().map(|&name| (name, min_points(name)));
        assert_eq!(rows.collect::<BTreeMap<_, usize>>(), known.collect());
    }

    fn planner_problems(policy: &str, fields: Value) -> String {
        let Value::Object(fields) = fields else { panic!("a mapping") };
        let config = PolicyConfig { policy: policy.into(), fields, location: "deployment.planner".into() };
        let planner = Registry::builtin().planner(&config, DeploymentMode::Agg);
        planner.err().map_or_else(String::new, |error| error.to_string())
    }

    #[test]
    fn presets_are_known_and_complain_of_what_was_written_only() {
        let unknown = planner_problems("load_180_6", serde_json::json!({}));
        assert!(
            unknown.starts_with("deployment.planner.policy: unknown planner `load_180_6`; known are"),
            "{unknown}"
        );
        assert!(unknown.contains("queue_aware, disabled, throughput_180_5"), "{unknown}");
        assert!(unknown.ends_with("did you mean `load_180_5`?"), "{unknown}");
        for preset in ["throughput_600_5", "hybrid_180_5"] {
            let found = planner_problems(preset, serde_json::json!({"max_gpu_budget": 0}));
            let lines: Vec<_> = found.lines().collect();
            assert_eq!(lines.len(), 2, "{found}");
            let expected =
                format!("deployment.planner.policy: `{preset}` scales ahead of traffic, which needs");
            assert!(lines[0].starts_with(&expected), "{found}");
            assert!(lines[1].starts_with("deployment.planner.max_gpu_budget: 0 "), "{found}");
            assert_eq!(planner_problems(preset, serde_json::json!({"optimization_target": "sla"})), "");
        }
        assert_eq!(planner_problems("load_180_5", serde_json::json!({})), "");
        let misspelt =
            planner_problems("planner", serde_json::json!({"max_gpu_budgt": 4, "min_endpoint": "2"}));
        assert!(misspelt.contains("deployment.planner.max_gpu_budgt: unknown field"), "{misspelt}");
        assert!(misspelt.contains("did you mean `max_gpu_budget`?"), "{misspelt}");
        assert!(misspelt.contains("deployment.planner.min_endpoint: invalid type"), "{misspelt}");
        let whole = serde_json::json!({"max_gpu_budget": 4.0, "scheduling": {"scale_interval_seconds": 5}});
        assert_eq!(planner_problems("planner", whole), "");
        let broken =
            planner_problems("planner", serde_json::json!({"max_gpu_budget": 4.5, "scheduling": [5]}));
        assert!(broken.contains("deployment.planner.max_gpu_budget: invalid type: `4.5`"), "{broken}");
        let listed = "deployment.planner.scheduling: invalid type: a list, expected keys with values";
        assert!(broken.contains(listed), "{broken}");
    }
}
