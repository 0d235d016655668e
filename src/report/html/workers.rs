//! What each worker of a replay did.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::page::Section;

/// What a worker did, counted by requests.
#[derive(Clone, Debug, Default)]
struct Share {
    requests: u64,
    input_tokens: u64,
    reused_tokens: u64,
    output_tokens: u64,
    /// Sum and number of the times to first token.
    ttft_ms: (f64, u64),
}

/// A row for each worker, from the rows of `requests.jsonl`.
pub(super) fn workers(requests: &[Value]) -> Section {
    let mut shares: BTreeMap<(u8, u64), Share> = BTreeMap::new();
    let disaggregated = requests.iter().any(|row| row["prefill_worker"].is_u64());
    let tokens = |row: &Value, key: &str| row[key].as_u64().unwrap_or(0);
    for row in requests.iter().filter(|row| row["status"] == "completed") {
        // Prompts are the work of prefill workers where there are any.
        let prompt = if disaggregated { (0, &row["prefill_worker"]) } else { (1, &row["decode_worker"]) };
        if let Some(worker) = prompt.1.as_u64() {
            let share = shares.entry((prompt.0, worker)).or_default();
            share.requests += 1;
            share.input_tokens += tokens(row, "input_length");
            share.reused_tokens += tokens(row, "reused_input_tokens");
            if let Some(ttft) = row["ttft_ms"].as_f64() {
                share.ttft_ms = (share.ttft_ms.0 + ttft, share.ttft_ms.1 + 1);
            }
        }
        if let Some(worker) = row["decode_worker"].as_u64() {
            let share = shares.entry((1, worker)).or_default();
            share.requests += u64::from(disaggregated);
            share.output_tokens += tokens(row, "output_length");
        }
    }
    let rows = shares.iter().map(|((kind, worker), share)| {
        let role = match (disaggregated, kind) {
            (false, _) => "agg",
            (true, 0) => "prefill",
            (true, _) => "decode",
        };
        let mean_ttft = (share.ttft_ms.1 > 0)
            .then(|| share.ttft_ms.0 / share.ttft_ms.1 as f64)
            .map_or(Value::Null, Value::from);
        vec![
            json!(role),
            json!(worker),
            json!(share.requests),
            json!(share.input_tokens),
            json!(share.reused_tokens),
            json!(share.output_tokens),
            mean_ttft,
        ]
    });
    let columns = [
        "pool",
        "worker",
        "completed",
        "prompt tokens",
        "of them reused",
        "output tokens",
        "mean TTFT in ms",
    ];
    Section::Table {
        heading: "Workers".into(),
        filter: false,
        columns: columns.map(str::to_owned).to_vec(),
        rows: rows.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(requests: &[Value]) -> Vec<Vec<Value>> {
        match workers(requests) {
            Section::Table { rows, .. } => rows,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_worker_has_its_own_share() {
        let request = |prefill: Value, decode: u64| {
            json!({"status": "completed", "prefill_worker": prefill, "decode_worker": decode, "input_length": 10,
                "reused_input_tokens": 4, "output_length": 3, "ttft_ms": 5.0})
        };
        let lost =
            json!({"status": "rejected", "prefill_worker": null, "decode_worker": null, "input_length": 9});
        let agg = rows(&[request(Value::Null, 2), request(Value::Null, 0), request(Value::Null, 2), lost]);
        assert_eq!(
            agg,
            [
                vec![json!("agg"), json!(0), json!(1), json!(10), json!(4), json!(3), json!(5.0)],
                vec![json!("agg"), json!(2), json!(2), json!(20), json!(8), json!(6), json!(5.0)],
            ]
        );
        let disagg = rows(&[request(json!(7), 1), request(json!(7), 1)]);
        assert_eq!(
            disagg,
            [
                vec![json!("prefill"), json!(7), json!(2), json!(20), json!(8), json!(0), json!(5.0)],
                vec![json!("decode"), json!(1), json!(2), json!(0), json!(0), json!(6), Value::Null],
            ]
        );
    }
}
