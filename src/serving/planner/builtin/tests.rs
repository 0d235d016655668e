//! Cases that need the whole planner.
