//! Whether replays give the right answers: written-out cases, the reference's answers, and a slow twin.

mod cases;
mod oracle;
mod router_cost;
mod slow;
mod support;
