//! Behaviour of the whole, one file per theme.
mod workload_bad_inputs;
mod workload_real_traces;
