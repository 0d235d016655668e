//! How much of a GPU's memory is left for KV blocks.
//!
//! A [`MemoryPlan`] says what one rank's GPU holds and how many tokens of KV cache fit beside it. It comes from the facts
//! of a measured profile where there is one, and else from a model's sizes in closed form.

mod closed_form;
mod from_profile;
mod plan;
mod query;

pub use closed_form::{closed_form, kv_growth};
pub use from_profile::from_profile;
pub use plan::{FractionOf, KvGrowth, MemoryPlan, MemorySource, NoRoom};
pub use query::{MemoryError, MemoryQuery};
