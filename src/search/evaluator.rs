//! What turns a candidate into figures.

use std::sync::Arc;

use serde_json::Value;

use super::trial::Evaluation;
use crate::config::scenario::Scenario;
use crate::registry::Registry;
use crate::report::Summary;
use crate::serving::{self, ReplayError, ReplayLimits, Traffic};

/// Scores the scenarios of a search, from many threads at a time.
///
/// An answer may depend on nothing but the scenario. Any function from a scenario to an [`Evaluation`] is an evaluator.
pub trait Evaluator: Send + Sync {
    /// Evaluates one candidate.
    fn evaluate(&self, scenario: &Scenario) -> Evaluation;
}

impl<F: Fn(&Scenario) -> Evaluation + Send + Sync> Evaluator for F {
    fn evaluate(&self, scenario: &Scenario) -> Evaluation {
        self(scenario)
    }
}

/// Evaluates candidates by replaying one workload on each.
#[derive(Debug)]
pub struct ReplayEvaluator {
    traffic: Traffic,
    registry: Arc<Registry>,
    limits: ReplayLimits,
}

impl ReplayEvaluator {
    /// Replays `traffic` with the policies of `registry`, until `limits` say stop.
    pub fn new(traffic: Traffic, registry: Arc<Registry>, limits: ReplayLimits) -> Self {
        Self { traffic, registry, limits }
    }
}

impl Evaluator for ReplayEvaluator {
    fn evaluate(&self, scenario: &Scenario) -> Evaluation {
        match serving::replay(scenario, &self.traffic, &self.registry, &self.limits) {
            Ok(record) => measured(&Summary::new(&record, self.traffic.workload(), scenario.sla.as_ref())),
            Err(ReplayError::Refused(reason)) => {
                Evaluation::Failed(format!("candidate build failed: {reason}"))
            }
            Err(error) => Evaluation::Failed(format!("replay failed: {error}")),
        }
    }
}

fn measured(summary: &Summary) -> Evaluation {
    match serde_json::to_value(summary) {
        Ok(Value::Object(metrics)) => Evaluation::Measured(metrics),
        Ok(_) => Evaluation::Failed("replay failed: its summary has no named figures".into()),
        Err(error) => Evaluation::Failed(format!("replay failed: its summary cannot be written: {error}")),
    }
}
