//! From YAML to a validated plan.
//!
//! [`scenario`] holds the plan of one replay. Everything in it has been checked: whoever reads it need not ask again
//! whether a number is positive.

pub mod scenario;
