//! What is wrong with a planner's fields: those that are not built, those that cannot act, and impossible values.

use serde_json::Value;

use super::{Fields, PlannerConfig, TargetName};
use crate::config::scenario::DeploymentMode;
use crate::serving::planner::demand::MOST_WORKERS;
use crate::simulation::Shown;

impl Fields {
    /// What is wrong, one sentence each, for a deployment of this mode if it is known.
    pub fn problems(&self, mode: Option<DeploymentMode>) -> Vec<String> {
        let mut problems = Vec::new();
        self.find_unbuilt(&mut problems);
        self.find_inert(mode, &mut problems);
        self.find_impossible(mode, &mut problems);
        problems
    }

    fn find_unbuilt(&self, problems: &mut Vec<String>) {
        let no_effect = "has no effect in a replay";
        let own_gpus = "has no effect in a replay, which knows the GPUs of a worker";
        let scheduling = self.scheduling.as_ref();
        for (name, is_given, why) in [
            ("prefill_engine_num_gpu", self.prefill_engine_num_gpu.is_some(), own_gpus),
            ("decode_engine_num_gpu", self.decode_engine_num_gpu.is_some(), own_gpus),
            ("load_predictor_warmup_trace", self.load_predictor_warmup_trace.is_some(), "is not built"),
            (
                "ais_perf_model",
                self.ais_perf_model.is_some(),
                "is not built: passes are learnt by regression",
            ),
            ("pre_deployment_sweeping_mode", self.pre_deployment_sweeping_mode.is_some(), no_effect),
            ("advisory", self.advisory.is_some(), no_effect),
            (
                "speculative_nextn",
                self.speculative_nextn.is_some_and(|drafts| drafts > 0),
                "has no effect in a replay: accepted tokens are seen where engines speculate, and these say how far",
            ),
            ("enable_power_awareness", self.enable_power_awareness.is_some(), "is not built"),
            ("total_gpu_power_limit", self.total_gpu_power_limit.is_some(), "is not built"),
            (
                "scheduling.tick_max_duration_seconds",
                scheduling.is_some_and(|scheduling| scheduling.tick_max_duration_seconds.is_some()),
                no_effect,
            ),
        ] {
            if is_given {
                problems.push(format!("{name}: {why}"));
            }
        }
    }

    /// Fields that are given where they cannot act.
    fn find_inert(&self, mode: Option<DeploymentMode>, problems: &mut Vec<String>) {
        let target = self.target_name();
        let is_sla = target == TargetName::Sla;
        let mut inert = |name: &str, is_given: bool, acts: bool, needs: &str| {
            if is_given && !acts {
                problems.push(format!("{name}: has an effect with {needs} only"));
            }
        };
        let sla = "`optimization_target: sla`";
        inert("enable_throughput_scaling", self.enable_throughput_scaling == Some(true), is_sla, sla);
        inert("enable_load_scaling: false", self.enable_load_scaling == Some(false), is_sla, sla);
        inert("ttft_ms", self.ttft_ms.is_some(), is_sla, sla);
        inert("itl_ms", self.itl_ms.is_some(), is_sla, sla);
        inert("max_num_fpm_samples", self.max_num_fpm_samples.is_some(), is_sla, sla);
        inert("fpm_sample_bucket_size", self.fpm_sample_bucket_size.is_some(), is_sla, sla);
        inert("load_min_observations", self.load_min_observations.is_some(), is_sla, sla);
        inert("fpm_features", self.fpm_features.is_some(), is_sla, sla);
        inert("fpm_tie_seed", self.fpm_tie_seed.is_some(), is_sla, sla);
        inert("speculative_nextn", self.speculative_nextn.is_some_and(|drafts| drafts > 0), is_sla, sla);
        let scales_load = is_sla && self.scales_load();
        let load = "`optimization_target: sla` and `enable_load_scaling: true`";
        inert(
            "load_scaling_down_sensitivity",
            self.load_scaling_down_sensitivity.is_some(),
            scales_load,
            load,
        );
        let throughput = "throughput scaling";
        let scales = self.scales_throughput();
        let interval = self.throughput_adjustment_interval_seconds.is_some();
        inert("throughput_adjustment_interval_seconds", interval, scales, throughput);
        let step = self.max_throughput_scaling_replicas.is_some();
        inert("max_throughput_scaling_replicas", step, scales, throughput);
        inert("load_predictor", self.load_predictor.is_some(), scales, throughput);
        let name = match &self.load_predictor {
            None => "arima",
            Some(Value::String(name)) => name.as_str(),
            Some(_) => "",
        };
        let by_name = |names: &[&str]| scales && names.contains(&name);
        let log = self.load_predictor_log1p == Some(true);
        inert(
            "load_predictor_log1p",
            log,
            by_name(&["arima", "prophet", "kalman"]),
            "arima, prophet or kalman",
        );
        inert("prophet_window_size", self.prophet_window_size.is_some(), by_name(&["prophet"]), "prophet");
        for (field, is_given) in [
            ("kalman_q_level", self.kalman_q_level.is_some()),
            ("kalman_q_trend", self.kalman_q_trend.is_some()),
            ("kalman_r", self.kalman_r.is_some()),
            ("kalman_min_points", self.kalman_min_points.is_some()),
        ] {
            inert(field, is_given, by_name(&["kalman"]), "kalman");
        }
        let is_load = target == TargetName::Load;
        let by_load = "`optimization_target: load`";
        inert("decode_scale_up_kv_rate", self.decode_scale_up_kv_rate.is_some(), is_load, by_load);
        inert("decode_scale_down_kv_rate", self.decode_scale_down_kv_rate.is_some(), is_load, by_load);
        inert(
            "prefill_scale_up_queue_tokens",
            self.prefill_scale_up_queue_tokens.is_some(),
            is_load,
            by_load,
        );
        let down = self.prefill_scale_down_queue_tokens.is_some();
        inert("prefill_scale_down_queue_tokens", down, is_load, by_load);
        let two_pools = !self.is_agg(mode);
        let disagg = "`mode: disagg`";
        inert("prefill_min_endpoint", self.prefill_min_endpoint.is_some(), two_pools, disagg);
        inert("decode_min_endpoint", self.decode_min_endpoint.is_some(), two_pools, disagg);
    }

    fn find_impossible(&self, mode: Option<DeploymentMode>, problems: &mut Vec<String>) {
        let mut refuse = |refused: bool, problem: String| {
            if refused {
                problems.push(problem);
            }
        };
        if let Some(given) = &self.mode {
            let known = matches!(given.as_str(), "agg" | "disagg");
            refuse(!known, format!("mode: `{given}` is not a mode of a replay; known are agg, disagg"));
            let same = mode.is_none_or(|mode| (mode == DeploymentMode::Agg) == (given == "agg"));
            refuse(
                known && !same,
                format!("mode: `{given}` is not the mode of the deployment; leave it out"),
            );
        }
        let scales = self.scales_throughput() || self.scales_load();
        refuse(!scales, "enable_load_scaling: at least one kind of scaling has to be on".into());
        for (name, value) in [
            ("throughput_adjustment_interval_seconds", self.throughput_adjustment_interval_seconds),
            ("load_adjustment_interval_seconds", self.load_adjustment_interval_seconds),
            ("max_throughput_scaling_replicas", self.max_throughput_scaling_replicas),
            ("prefill_min_endpoint", self.prefill_min_endpoint),
            ("decode_min_endpoint", self.decode_min_endpoint),
            ("max_num_fpm_samples", self.max_num_fpm_samples),
            ("fpm_sample_bucket_size", self.fpm_sample_bucket_size),
            ("load_min_observations", self.load_min_observations),
            ("assumed_gpu_blocks", self.assumed_gpu_blocks),
        ] {
            refuse(value == Some(0), format!("{name}: 0 must be at least 1"));
        }
        let resolved = self.resolve();
        let both = resolved.throughput_scaling && resolved.load_scaling;
        refuse(
            both && resolved.load_interval_s >= resolved.throughput_interval_s,
            format!(
                "load_adjustment_interval_seconds: {} s is not below the throughput interval of {} s",
                resolved.load_interval_s, resolved.throughput_interval_s
            ),
        );
        let cells = resolved.cells;
        refuse(
            cells.isqrt().pow(2) != cells,
            format!("fpm_sample_bucket_size: {cells} is not a perfect square"),
        );
        refuse(
            resolved.min_observations > resolved.max_samples,
            format!(
                "load_min_observations: {} are never reached with the {} samples that are kept (max_num_fpm_samples)",
                resolved.min_observations, resolved.max_samples
            ),
        );
        refuse(
            resolved.sensitivity > 100,
            format!("load_scaling_down_sensitivity: {} must lie between 0 and 100", resolved.sensitivity),
        );
        for (name, bound) in [("ttft_ms", resolved.ttft_ms), ("itl_ms", resolved.itl_ms)] {
            refuse(
                !(bound.is_finite() && bound > 0.0),
                format!("{name}: {} must be finite and above 0", Shown(bound)),
            );
        }
        for (name, workers) in [
            ("min_endpoint", self.min_endpoint),
            ("prefill_min_endpoint", self.prefill_min_endpoint),
            ("decode_min_endpoint", self.decode_min_endpoint),
        ] {
            let excess = workers.filter(|&workers| workers > MOST_WORKERS);
            refuse(
                excess.is_some(),
                format!(
                    "{name}: {} is more than {MOST_WORKERS}, the most workers of a pool",
                    excess.unwrap_or(0)
                ),
            );
        }
        for (name, gpus) in
            [("min_gpu_budget", resolved.min_gpu_budget), ("max_gpu_budget", resolved.max_gpu_budget)]
        {
            let most = i64::from(MOST_WORKERS);
            refuse(gpus > most, format!("{name}: {gpus} is more than {most}; leave the budget open with -1"));
        }
        let (min, max) = (resolved.min_gpu_budget, resolved.max_gpu_budget);
        refuse(max == 0, "max_gpu_budget: 0 leaves no GPU; leave the budget open with -1".into());
        refuse(
            min >= 0 && max >= 0 && min > max,
            format!("min_gpu_budget: {min} is above max_gpu_budget {max}"),
        );
        self.find_bad_tick(&resolved, &mut refuse);
        if self.target_name() == TargetName::Load {
            self.find_bad_thresholds(mode, &mut refuse);
        }
    }

    fn find_bad_tick(&self, resolved: &PlannerConfig, refuse: &mut impl FnMut(bool, String)) {
        let Some(seconds) = self.scheduling.as_ref().and_then(|scheduling| scheduling.scale_interval_seconds)
        else {
            return;
        };
        let divides = |interval_s: u32| {
            let ratio = f64::from(interval_s) / seconds;
            ratio >= 0.5 && (ratio - ratio.round()).abs() <= 1e-9 * ratio.max(1.0)
        };
        let intervals_fit = divides(resolved.load_interval_s)
            && (!resolved.throughput_scaling || divides(resolved.throughput_interval_s));
        let usable = seconds.is_finite() && seconds >= 0.001 && intervals_fit;
        refuse(
            !usable,
            format!(
                "scheduling.scale_interval_seconds: {} does not divide every interval in use",
                Shown(seconds)
            ),
        );
    }

    fn find_bad_thresholds(&self, mode: Option<DeploymentMode>, refuse: &mut impl FnMut(bool, String)) {
        let rates = (self.decode_scale_up_kv_rate, self.decode_scale_down_kv_rate);
        let good = matches!(rates, (Some(up), Some(down)) if up > down && (0.0..=100.0).contains(&down) && up <= 100.0);
        refuse(
            !good,
            "decode_scale_up_kv_rate, decode_scale_down_kv_rate: the target `load` needs both, in percent, up above down"
                .into(),
        );
        let tokens = (self.prefill_scale_up_queue_tokens, self.prefill_scale_down_queue_tokens);
        let given = tokens != (None, None);
        let good = matches!(tokens, (Some(up), Some(down)) if up > down);
        refuse(
            !good && (given || mode == Some(DeploymentMode::Disagg)),
            "prefill_scale_up_queue_tokens, prefill_scale_down_queue_tokens: the target `load` needs both for a prefill \
             pool, up above down"
                .into(),
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(value: Value) -> Fields {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn every_field_acts_or_is_refused_by_name() {
        let cases = [
            (json!({"ttft_ms": 100}), "ttft_ms: has an effect with"),
            (json!({"enable_throughput_scaling": true}), "enable_throughput_scaling: has an effect"),
            (json!({"optimization_target": "sla", "kalman_r": 1}), "kalman_r: has an effect with kalman"),
            (
                json!({"optimization_target": "sla", "fpm_sample_bucket_size": 15}),
                "15 is not a perfect square",
            ),
            (
                json!({"optimization_target": "sla", "load_min_observations": 65}),
                "load_min_observations: 65 are never reached with the 64 samples",
            ),
            (json!({"optimization_target": "sla", "enable_throughput_scaling": false}), "at least one kind"),
            (json!({"optimization_target": "load"}), "decode_scale_up_kv_rate, decode_scale_down_kv_rate"),
            (json!({"mode": "disagg"}), "is not the mode of the deployment"),
            (json!({"advisory": true}), "advisory: has no effect"),
            (json!({"prefill_min_endpoint": 2}), "prefill_min_endpoint: has an effect with `mode: disagg`"),
            (json!({"scheduling": {"scale_interval_seconds": 3}}), "3 does not divide"),
            (json!({"scheduling": {"scale_interval_seconds": 1e15}}), "1e15 does not divide"),
            (
                json!({"optimization_target": "sla", "enable_load_scaling": true,
                "load_adjustment_interval_seconds": 180}),
                "180 s is not below",
            ),
            (json!({"max_gpu_budget": 0}), "max_gpu_budget: 0 leaves no GPU"),
            (json!({"min_gpu_budget": 9}), "min_gpu_budget: 9 is above max_gpu_budget 8"),
        ];
        for (given, expected) in cases {
            let problems = fields(given.clone()).problems(Some(DeploymentMode::Agg));
            assert!(
                problems.len() == 1 && problems[0].contains(expected),
                "{given}: {problems:#?} lacks {expected}"
            );
        }
        assert!(serde_json::from_value::<Fields>(json!({"no_such_field": 1})).is_err());
    }
}
