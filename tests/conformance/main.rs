//! Whether replays give the right answers: written-out cases, the reference's answers, and a slow twin.

mod cases;
mod router_cost;
mod slow;
#[expect(dead_code, reason = "figures are compared once the report makes them")]
mod support;
