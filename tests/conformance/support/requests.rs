//! Workloads of test files.

use std::io::BufRead;

use rustc_hash::FxHashMap;
use serde_json::Value;
use spica::config::scenario::{InlineRequest, ZeroOutput};
use spica::simulation::{SimDuration, SimTime};
use spica::workload::mooncake::{self, Options};
use spica::workload::{Pacing, Prompt, Request, RequestId, Workload};

/// The workload of a trace's rows.
pub(crate) fn of_rows(rows: &[Value], block_size: u32, pacing: Pacing) -> Workload {
    let lines: Vec<String> = rows.iter().map(Value::to_string).collect();
    of_trace(lines.join("\n").as_bytes(), block_size, pacing)
}

/// The workload of a trace.
pub(crate) fn of_trace(reader: impl BufRead, block_size: u32, pacing: Pacing) -> Workload {
    let options = Options {
        block_size,
        pacing,
        zero_output: ZeroOutput::PrefillOnly,
        strict: true,
        ..Options::default()
    };
    mooncake::read(reader, &options).unwrap_or_else(|errors| panic!("{errors}")).workload
}

/// The workload of written-out requests whose hash ids stand for `block_size` tokens each.
pub(crate) fn of_list(requests: &[InlineRequest], block_size: u32, concurrency: Option<u32>) -> Workload {
    let mut sessions: indexmap::IndexMap<String, Vec<&InlineRequest>> = indexmap::IndexMap::new();
    for (index, request) in requests.iter().enumerate() {
        let session = request.session_id.clone().unwrap_or_else(|| format!("request {index}"));
        sessions.entry(session).or_default().push(request);
    }
    let start = |turns: &[&InlineRequest]| turns[0].arrival_ms.unwrap_or(0.0);
    let mut order: Vec<usize> = (0..sessions.len()).collect();
    if concurrency.is_none() || sessions.values().all(|turns| turns.len() == 1) {
        order.sort_by(|&a, &b| start(&sessions[a]).total_cmp(&start(&sessions[b])));
    }
    let mut interned = FxHashMap::default();
    let names = sessions.values().map(|turns| turns[0].session_id.clone());
    let mut workload = Workload { concurrency, session_names: names.collect(), ..Workload::default() };
    for session in order {
        let turns = &sessions[session];
        workload.session_starts.push(RequestId(workload.requests.len() as u32));
        for (turn, asked) in turns.iter().enumerate() {
            let id = workload.requests.len() as u32;
            let request = Request {
                arrival: SimTime::from_ms(start(turns)).expect("an arrival"),
                delay: SimDuration::from_ms(asked.delay_ms.unwrap_or(0.0)).expect("a delay"),
                input_length: input_length(asked, block_size),
                output_length: asked.output_length,
                prompt: prompt(&mut workload, &mut interned, asked, block_size),
                session: session as u32,
                turn: turn as u32,
                next_turn: (turn + 1 < turns.len()).then_some(RequestId(id + 1)),
                dp_rank: asked.dp_rank,
                name: asked.id.as_deref().map(Into::into),
            };
            workload.requests.push(request);
        }
    }
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
