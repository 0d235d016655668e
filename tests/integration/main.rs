//! Behaviour of the whole, one file per theme.
mod report;
mod report_oracle;
mod shared_folder;
mod workload_bad_inputs;
mod workload_real_traces;
mod workload_synthetic;
