//! Workloads from written-out requests.

use rustc_hash::FxHashMap;
use serde_json::Value;
use spica::config::scenario::InlineRequest;
use spica::simulation::{SimDuration, SimTime};
use spica::workload::{InputTally, Prompt, Request, RequestId, Workload};

/// A trace row as a request; its name is `request_<line>` when it has none.
pub(crate) fn request_of_row(line: usize, row: &Value) -> InlineRequest {
    let number = |key: &str| row.get(key).map(|value| value.as_u64().expect("a whole number") as u32);
    let text = |key: &str| row.get(key).and_then(Value::as_str).map(str::to_owned);
    let ms = |key: &str| row.get(key).map(|value| value.as_f64().expect("milliseconds"));
    InlineRequest {
        id: text("request_id").or_else(|| Some(format!("request_{line}"))),
        arrival_ms: ms("timestamp"),
        input_length: number("input_length"),
        output_length: number("output_length").expect("an output length"),
        hash_ids: Some(serde_json::from_value(row["hash_ids"].clone()).expect("hash ids")),
        session_id: text("session_id"),
        delay_ms: ms("delay"),
        ..InlineRequest::default()
    }
}

/// A workload of `requests` whose hash ids stand for `block_size` tokens each. With `from_trace`, the first arrival
/// becomes 0 and a follow-up without a delay waits as long as the stamps are apart.
pub(crate) fn workload(
    requests: &[InlineRequest],
    block_size: u32,
    concurrency: Option<u32>,
    speedup: f64,
    from_trace: bool,
) -> Workload {
    let mut sessions: indexmap::IndexMap<String, Vec<&InlineRequest>> = indexmap::IndexMap::new();
    for (index, request) in requests.iter().enumerate() {
        let session = request.session_id.clone().unwrap_or_else(|| format!("request {index}"));
        sessions.entry(session).or_default().push(request);
    }
    let start = |turns: &[&InlineRequest]| turns[0].arrival_ms.unwrap_or(0.0);
    let origin = if from_trace {
        sessions.values().map(|turns| start(turns)).fold(f64::INFINITY, f64::min)
    } else {
        0.0
    };
    let single_turns = sessions.values().all(|turns| turns.len() == 1);
    let mut order: Vec<usize> = (0..sessions.len()).collect();
    if single_turns || concurrency.is_none() {
        order.sort_by(|&a, &b| start(&sessions[a]).total_cmp(&start(&sessions[b])));
    }
    let delay_speedup = if concurrency.is_none() { speedup } else { 1.0 };
    let mut interned = FxHashMap::default();
    let mut workload = Workload { concurrency, ..Workload::default() };
    for session in order {
        let (name, turns) = sessions.get_index(session).expect("the order holds sessions");
        workload.session_starts.push(RequestId(workload.requests.len() as u32));
        workload.session_names.push(turns[0].session_id.as_ref().map(|_| name.clone()));
        let number = workload.session_starts.len() as u32 - 1;
        let mut previous: Option<&InlineRequest> = None;
        for (turn, asked) in turns.iter().enumerate() {
            let inferred = match (previous.and_then(|previous| previous.arrival_ms), asked.arrival_ms) {
                (Some(before), Some(after)) if from_trace => after - before,
                _ => 0.0,
            };
            let delay = asked.delay_ms.unwrap_or(inferred) / delay_speedup;
            let id = workload.requests.len() as u32;
            let request = Request {
                arrival: SimTime::from_ms((start(turns) - origin) / speedup).expect("an arrival"),
                delay: SimDuration::from_ms(delay).expect("a delay"),
                input_length: input_length(asked, block_size),
                output_length: asked.output_length,
                prompt: prompt(&mut workload, &mut interned, asked, block_size),
                session: number,
                turn: turn as u32,
                next_turn: (turn + 1 < turns.len()).then_some(RequestId(id + 1)),
                dp_rank: asked.dp_rank,
                name: asked.id.as_deref().map(Into::into),
            };
            workload.requests.push(request);
            previous = Some(asked);
        }
    }
    workload.input =
        InputTally { read: requests.len() as u64, used: requests.len() as u64, ..InputTally::default() };
    workload
}

fn input_length(asked: &InlineRequest, block_size: u32) -> u32 {
    let tokens = asked.input_token_ids.as_ref().map(|tokens| tokens.len() as u32);
    let ids = asked.hash_ids.as_ref().map(|ids| ids.len() as u32 * block_size);
    asked.input_length.or(tokens).or(ids).expect("a prompt")
}

fn prompt(
    workload: &mut Workload,
    interned: &mut FxHashMap<u64, u32>,
    asked: &InlineRequest,
    block_size: u32,
) -> Prompt {
    let (ids, tokens_per_chunk) = match (&asked.hash_ids, &asked.input_token_ids) {
        (Some(ids), _) => (ids.clone(), block_size),
        (None, Some(tokens)) => (tokens.iter().copied().map(u64::from).collect(), 1),
        (None, None) => (Vec::new(), 1),
    };
    let first_chunk = workload.chunk_ids.len() as u32;
    for &id in &ids {
        let next = interned.len() as u32;
        let number = *interned.entry(id).or_insert_with(|| {
            workload.chunk_names.push(id);
            next
        });
        workload.chunk_ids.push(number);
    }
    Prompt { first_chunk, chunks: ids.len() as u32, tokens_per_chunk }
}
