//! Comparing each pass of the slow replay with those that the reference's observer saw.

use serde_json::Value;

use crate::slow::{PassLog, SlowRun};

/// Faults of the passes; none where the case has no list of them. The pass that ends the run is not in it.
pub(super) fn faults(seen: &Value, run: &SlowRun) -> Vec<String> {
    let Some(rows) = seen["rows"].as_array() else { return Vec::new() };
    let columns: Vec<&str> =
        seen["columns"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    let column = |name: &str| columns.iter().position(|column| *column == name).unwrap();
    let names = [
        "worker",
        "num_prefill_requests",
        "sum_prefill_tokens",
        "num_decode_requests",
        "sum_decode_kv_tokens",
    ];
    let mut expected: Vec<(u64, Vec<u64>)> = rows
        .iter()
        .map(|row| {
            let seconds = row[column("wall_time")].as_f64().unwrap();
            (
                (seconds * 1e9).round() as u64,
                names.iter().map(|name| row[column(name)].as_u64().unwrap()).collect(),
            )
        })
        .collect();
    let mut found: Vec<(u64, Vec<u64>)> = run.passes.iter().map(as_seen).collect();
    // Workers report within one poll in no fixed order, and which pass ended the run depends on the worker.
    expected.sort_unstable();
    found.sort_unstable();
    for pass in &expected {
        if let Some(place) = found.iter().position(|other| other == pass) {
            found.remove(place);
        } else {
            return vec![format!("no pass (ns, {names:?}) is like {pass:?}; left over are {found:?}")];
        }
    }
    let workers = run.record.timelines.len();
    if found.len() > workers {
        return vec![format!("{} passes too many: {found:?}", found.len())];
    }
    Vec::new()
}

fn as_seen(pass: &PassLog) -> (u64, Vec<u64>) {
    let counts = vec![
        pass.worker as u64,
        pass.batch.prefill_requests,
        pass.prefill_tokens,
        pass.pure_decode_requests,
        pass.pure_decode_tokens,
    ];
    (pass.duration.as_ns(), counts)
}
