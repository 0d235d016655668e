//! What turns a candidate into figures.

use super::trial::Evaluation;
use crate::config::scenario::Scenario;

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
