//! Generated workloads against what the reference replay made of the same arguments.

use std::fs;

use serde_json::Value;
use spica::config::scenario::{
    Arrival, ArrivalProcess, Synthetic, WorkloadConfig, WorkloadSource, ZeroOutput,
};
use spica::workload::{Workload, load};

use crate::shared_folder::shared_file;

/// The reference's block size.
const BLOCK_SIZE: u32 = 64;

fn oracle(case: &str) -> Option<Value> {
    let path = shared_file(&format!("oracle/{case}.json"))?;
    let text = fs::read_to_string(path).expect("the file was just found");
    Some(serde_json::from_str(&text).expect("oracle files are JSON"))
}

/// The workload that an oracle case describes.
fn workload(case: &Value) -> Workload {
    let inputs = &case["inputs"];
    let arguments = &inputs["kw"];
    let [isl, osl, count] =
        [0, 1, 2].map(|index| inputs["synthetic"][index].as_u64().expect("three sizes") as u32);
    let whole = |key: &str, default: u32| arguments[key].as_u64().map_or(default, |value| value as u32);
    let number = |key: &str| arguments[key].as_f64();
    let interval_rate = number("arrival_interval_ms").map(|interval| 1000.0 / interval);
    let process = if interval_rate.is_some() { ArrivalProcess::Fixed } else { ArrivalProcess::Poisson };
    let synthetic = Synthetic {
        isl,
        osl,
        count,
        request_rate: number("request_rate").or(interval_rate),
        arrival: Arrival { process, seed: 42 },
        shared_prefix_ratio: number("shared_prefix_ratio").unwrap_or(0.0),
        num_prefix_groups: whole("num_prefix_groups", 0),
        turns_per_session: whole("turns_per_session", 1),
        inter_turn_delay_ms: number("inter_turn_delay_ms").unwrap_or(0.0),
    };
    let config = WorkloadConfig {
        source: WorkloadSource::Synthetic(synthetic),
        concurrency: arguments["replay_concurrency"].as_u64().map(|cap| cap as u32),
        arrival_speedup_ratio: 1.0,
        zero_output: ZeroOutput::Drop,
        strict: false,
    };
    load(&config, None, BLOCK_SIZE).unwrap_or_else(|errors| panic!("{errors}")).workload
}

fn numbers(column: &Value) -> Vec<f64> {
    let values = column.as_array().expect("columns are lists");
    values.iter().map(|value| value.as_f64().expect("columns hold numbers")).collect()
}

/// First block of each session's first prompt, which tells its group.
fn groups(workload: &Workload) -> Vec<u32> {
    workload
        .session_starts
        .iter()
        .map(|start| workload.chunk_ids[workload.requests[start.0 as usize].prompt.first_chunk as usize])
        .collect()
}

fn assert_arrivals(workload: &Workload, expected_ms: &[f64]) {
    for (request, expected_ms) in workload.requests.iter().zip(expected_ms) {
        let difference_ms = (request.arrival.as_ms() - expected_ms).abs();
        assert!(difference_ms <= 1e-6, "{} is not {expected_ms}", request.arrival.as_ms());
    }
}

#[test]
fn stamps_of_arrivals_are_those_of_the_reference() {
    for case in ["tiny_syn_rate", "tiny_syn_interval"] {
        let Some(oracle) = oracle(case) else { continue };
        let rows = oracle["report"]["per_request"].as_array().unwrap();
        let expected_ms: Vec<f64> = rows.iter().map(|row| row["arrival_time_ms"].as_f64().unwrap()).collect();
        let workload = workload(&oracle);
        assert_eq!(workload.requests.len(), expected_ms.len());
        assert_arrivals(&workload, &expected_ms);
    }
    let Some(oracle) = oracle("syn_rate10") else { return };
    let expected_ms = numbers(&oracle["per_request_first"]["arrival_time_ms"]);
    assert_eq!(expected_ms.len(), 200);
    assert_arrivals(&workload(&oracle), &expected_ms);
}

#[test]
fn one_at_a_time_a_prompt_finds_its_group_when_the_group_was_there_before() {
    let Some(oracle) = oracle("tiny_syn_prefix") else { return };
    let rows = oracle["report"]["per_request"].as_array().unwrap();
    let reused: Vec<u64> = rows.iter().map(|row| row["reused_input_tokens"].as_u64().unwrap()).collect();
    let groups = groups(&workload(&oracle));
    let expected: Vec<u64> = (0..groups.len())
        .map(|index| if groups[..index].contains(&groups[index]) { 256 } else { 0 })
        .collect();
    assert_eq!(reused, expected);
}

#[test]
fn groups_of_sessions_are_those_of_the_reference() {
    let Some(oracle) = oracle("syn_multiturn_rr") else { return };
    let workload = workload(&oracle);
    assert_eq!((workload.requests.len(), workload.session_starts.len()), (5000, 1250));
    let groups = groups(&workload);
    let rows = &oracle["per_request_first"];
    let admitted_ms = numbers(&rows["first_admit_ms"]);
    let reused = numbers(&rows["reused_input_tokens"]);
    let workers = numbers(&rows["decode_worker_idx"]);
    // The first 64 requests start at once and go round the four workers; each worker admits its 16 in order.
    for worker in 0..4_usize {
        let mut first_admissions: Vec<(u64, bool)> = (0..64)
            .filter(|row| workers[*row] == worker as f64)
            .map(|row| (admitted_ms[row].to_bits(), reused[row] > 0.0))
            .collect();
        first_admissions.sort_unstable();
        let mine: Vec<u32> = groups[..64].iter().skip(worker).step_by(4).copied().collect();
        let mut expected: Vec<(u64, bool)> = (0..mine.len())
            .map(|place| (first_admissions[place].0, mine[..place].contains(&mine[place])))
            .collect();
        expected.sort_unstable();
        assert_eq!(first_admissions, expected, "worker {worker}");
    }
}
