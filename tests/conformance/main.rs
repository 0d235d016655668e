//! Whether replays give the right answers: written-out cases, the reference's answers, and a slow twin.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod cases;
mod oracle;
mod property;
mod router_cost;
mod slow;
mod support;
mod topologies;
mod trace_errors;
