//! From YAML to a validated plan.
//!
//! [`scenario`] holds the plan of one replay and [`search`] that of a search. Everything in them has been checked: whoever
//! reads one need not ask again whether a number is positive.

pub mod presets;
pub mod scenario;
pub mod search;
mod workload;
