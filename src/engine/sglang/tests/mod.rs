//! Requests to try the engine with.

mod engine;
mod radix;
mod roles;
mod runs;

use std::sync::Arc;

use crate::engine::Inputs;
use crate::simulation::{SimDuration, SimTime};
use crate::timing::{Fixed, PassPricer};
use crate::workload::prefix::PrefixTree;
use crate::workload::{Prompt, Request, Workload};

/// Arrival in milliseconds, prompt token by token, output tokens.
type Asked = (u32, Vec<u32>, u32);

fn workload(asked: &[Asked]) -> Workload {
    let mut workload = Workload::default();
    for (number, (arrival_ms, tokens, output_length)) in asked.iter().enumerate() {
        let (first_chunk, chunks) = (workload.chunk_ids.len() as u32, tokens.len() as u32);
        workload.chunk_ids.extend(tokens);
        workload.requests.push(Request {
            arrival: SimTime::from_ms(f64::from(*arrival_ms)).unwrap(),
            delay: SimDuration::ZERO,
            input_length: chunks,
            output_length: *output_length,
            prompt: Prompt { first_chunk, chunks, tokens_per_chunk: 1 },
            session: number as u32,
            turn: 0,
            next_turn: None,
            dp_rank: None,
            name: None,
        });
    }
    workload
}

/// Prompts take 10 ms, decode passes 2 ms.
fn inputs(asked: &[Asked], page_size: u32) -> Inputs {
    let workload = Arc::new(workload(asked));
    let tree = Arc::new(PrefixTree::build(&workload, page_size));
    let timing = Arc::new(Fixed { prefill_ms: 10.0, decode_ms: 2.0 });
    Inputs { workload, tree, future: None, pricer: PassPricer::new(timing, 1.0, 1.0) }
}

/// A prompt that shares nothing with the prompts of other numbers.
fn own_prompt(number: u32, tokens: u32) -> Vec<u32> {
    (0..tokens).map(|at| 1000 * (number + 1) + at).collect()
}
