//! Actors exchanging messages on a virtual clock.

mod time;

pub use time::{InvalidDuration, SimDuration, SimTime};
