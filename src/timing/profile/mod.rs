//! Timing profiles: what one pass of a known model on a known GPU under a known engine takes, and what memory holds.
//!
//! The numbers are those of a performance model, AI Configurator, sampled once; see the NOTICE file for their origin.

mod model;
mod pack;
mod query;
mod record;
mod selection;

pub use model::{PassOptions, PassTables, Priced, Scale, TableTiming};
pub use pack::{Entry, Family, Pack};
pub use query::{ANSWER_COLUMNS, Answer, QUERY_COLUMNS, answer};
pub use record::{Axes, FractionKind, KvRule, MemoryFacts, Profile, Quantization, Shape, Skip, Tables};
pub use selection::{ProfileError, WantedFamily, WantedShape};
