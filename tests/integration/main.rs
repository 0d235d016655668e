//! Behaviour of the whole, one file per theme.
mod cli;
mod cli_command;
mod layers;
mod report;
mod report_oracle;
mod rust_paths;
mod search;
mod shared_folder;
mod workload_bad_inputs;
mod workload_bundled_traces;
mod workload_real_traces;
mod workload_synthetic;
