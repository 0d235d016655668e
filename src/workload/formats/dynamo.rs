//! Request traces of Dynamo, schema `dynamo.request.trace.v1`.
//!
//! A line wraps an event; those of type `request_end` are requests, in the order in which they ended. Hashes name the
//! content of a block together with all before it, so equal hashes at equal places mean equal beginnings.

use std::io::{self, BufRead};

use serde::Deserialize;

use super::intake::{Intake, OTHER_EVENTS, Row};
use super::jsonl::{self, Field};
use crate::workload::Prompt;
use crate::workload::problem::Place;

const SCHEMA: &str = "dynamo.request.trace.v1";
const NS_PER_MS: u64 = 1_000_000;

#[derive(Deserialize)]
struct Line {
    event: Option<Event>,
}

#[derive(Deserialize)]
struct Event {
    schema: Option<Box<str>>,
    #[serde(rename = "event_type")]
    kind: Option<Box<str>>,
    agent_context: Option<AgentContext>,
    request: Option<Request>,
}

#[derive(Deserialize)]
struct AgentContext {
    session_id: Option<Box<str>>,
}

#[derive(Deserialize)]
struct Request {
    #[serde(rename = "request_id")]
    id: Option<Box<str>>,
    #[serde(default)]
    input_tokens: Field,
    #[serde(default)]
    output_tokens: Field,
    #[serde(default, rename = "request_received_ms")]
    received_ms: Field,
    total_time_ms: Option<f64>,
    replay: Option<Replay>,
}

#[derive(Deserialize)]
struct Replay {
    trace_block_size: Option<u32>,
    input_length: Option<u32>,
    input_sequence_hashes: Option<Vec<u64>>,
}

pub(super) fn read(text: impl BufRead, intake: &mut Intake<'_>) -> io::Result<()> {
    jsonl::read(text, intake, |place, line: Line, intake| {
        let missing = |field: &str, intake: &mut Intake<'_>| {
            intake.problem(
                place,
                field,
                "missing: a line of this form wraps an event of a known schema and type",
            );
        };
        let Some(event) = line.event else { return missing("event", intake) };
        let Some(schema) = event.schema else { return missing("event.schema", intake) };
        if &*schema != SCHEMA {
            return intake.problem(place, "event.schema", format!("\"{schema}\": only {SCHEMA} is known"));
        }
        let Some(kind) = event.kind else { return missing("event.event_type", intake) };
        if &*kind != "request_end" {
            return intake.notice(OTHER_EVENTS, place);
        }
        intake.count_row();
        let session = event.agent_context.and_then(|context| context.session_id);
        match event.request {
            Some(request) => take(place, request, session, intake),
            None => intake.problem(place, "event.request", "missing from a request_end"),
        }
    })
}

fn take(place: Place, request: Request, session: Option<Box<str>>, intake: &mut Intake<'_>) {
    let received_ms = request.received_ms.whole(place, "request_received_ms", intake);
    let input = request.input_tokens.length(place, "input_tokens", intake);
    let output = request.output_tokens.length(place, "output_tokens", intake);
    let (Some(received_ms), Some(input), Some(output)) = (received_ms, input, output) else { return };
    let Some(arrival) = received_ms.checked_mul(NS_PER_MS) else {
        let message =
            format!("{received_ms} is beyond what 64 bits of nanoseconds hold; is it in milliseconds?");
        return intake.problem(place, "request_received_ms", message);
    };
    let prompt = match request.replay {
        None => Some(Prompt::UNKNOWN),
        Some(replay) => prompt(place, input, &replay, intake),
    };
    let Some(prompt) = prompt else { return };
    let total = request.total_time_ms.filter(|total| *total >= 0.0 && total.is_finite());
    let end = total.map(|total| arrival + (total * NS_PER_MS as f64).round() as u64);
    intake.take(Row {
        end,
        session,
        name: request.id,
        prompt,
        ..Row::plain(place, Some(arrival), input, output)
    });
}

/// The blocks of a prompt, which have to agree with its length and with those of all other rows in size.
fn prompt(place: Place, input: u32, replay: &Replay, intake: &mut Intake<'_>) -> Option<Prompt> {
    let Replay { trace_block_size: size, input_length, ref input_sequence_hashes } = *replay;
    let before = intake.problem_count();
    let (Some(size), Some(input_sequence_hashes)) = (size, input_sequence_hashes) else {
        let field = if size.is_none() { "trace_block_size" } else { "input_sequence_hashes" };
        let message = "missing: without it nothing is known of the prompt, so leave `replay` out";
        intake.problem(place, &format!("request.replay.{field}"), message);
        return None;
    };
    if size == 0 {
        intake.problem(place, "trace_block_size", "0: a block has at least one token");
        return None;
    }
    let (first_size, first_place) = *intake.block_size.get_or_insert((size, place));
    if size != first_size {
        let message = format!("{size}, but {first_size} at {first_place}: one trace has one block size");
        intake.problem(place, "trace_block_size", message);
    }
    if let Some(length) = input_length.filter(|&length| length != input) {
        let message = format!("{length} contradicts input_tokens {input} in the same row");
        intake.problem(place, "replay.input_length", message);
    }
    let (hashes, expected) = (input_sequence_hashes.len(), input.div_ceil(size) as usize);
    if hashes != expected && hashes > 0 {
        let message = format!(
            "{hashes} hashes for {input} tokens: with blocks of {size} tokens there must be {expected}"
        );
        intake.problem(place, "input_sequence_hashes", message);
    }
    if intake.problem_count() > before {
        return None;
    }
    let first_chunk = intake.chunk_ids.len() as u32;
    for hash in input_sequence_hashes {
        let chunk = intake.interner.intern(*hash);
        intake.chunk_ids.push(chunk);
    }
    Some(Prompt { first_chunk, chunks: hashes as u32, tokens_per_chunk: size })
}
