//! One row per request: `requests.jsonl`.
//!
//! A row holds what replays the request beside what became of it. `arrival_ms`, `input_length`, `output_length`,
//! `hash_ids` and `session_id` mean what they mean in a workload, with two things to know:
//!
//! - `hash_ids` are the ids as they were read, one per chunk of the prompt. For a prompt given as `input_token_ids`
//!   the chunks are its tokens, so there is one id per token: it replays as `input_token_ids` again, or as
//!   `hash_ids` with a trace block size of 1. Generated prompts have one id per engine block. A prompt that shares
//!   nothing has no ids.
//! - A later turn arrived when the turn before it had ended and its think time was over, so that think time is
//!   `arrival_ms` less the earlier row's `terminal_ms`.

use std::borrow::Cow;
use std::io::{self, Write};

use serde::Serialize;
use serde::ser::Serializer;

use super::record::{HandoffRecord, RequestRecord, RunRecord, Status};
use crate::simulation::{SimDuration, SimTime};
use crate::workload::{Prompt, Request, RequestId, Workload, default_name};

/// Writes a line of JSON for each request that arrived, by arrival and then by number. Requests that never arrived
/// have no row. It makes many small writes: `out` should be buffered.
pub fn write_requests(record: &RunRecord, workload: &Workload, mut out: impl Write) -> io::Result<()> {
    let arrived = |number: &usize| record.requests[*number].status != Status::Absent;
    let mut numbers: Vec<usize> = (0..record.requests.len()).filter(arrived).collect();
    numbers.sort_by_key(|&number| record.requests[number].arrival);
    for number in numbers {
        let handoff = record.handoffs.get(number).map(HandoffRow::new);
        let row = Row { handoff, ..Row::new(number, &record.requests[number], workload) };
        serde_json::to_writer(&mut out, &row)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// What a request is called in results and messages: its name, or `request_` and its number counted from 1.
pub fn request_name(workload: &Workload, request: RequestId) -> Cow<'_, str> {
    match workload.requests.get(request.0 as usize).and_then(|request| request.name.as_deref()) {
        Some(name) => Cow::Borrowed(name),
        None => Cow::Owned(default_name(request.0 as usize)),
    }
}

/// A request's row; its fields are the keys, in order. A time that did not happen is null.
#[derive(Serialize)]
struct Row<'a> {
    request_id: Cow<'a, str>,
    session_id: Option<Cow<'a, str>>,
    turn_index: u32,
    status: Status,
    arrival_ms: Option<f64>,
    dispatched_ms: Option<f64>,
    first_admit_ms: Option<f64>,
    first_token_ms: Option<f64>,
    last_token_ms: Option<f64>,
    terminal_ms: Option<f64>,
    ttft_ms: Option<f64>,
    e2e_ms: Option<f64>,
    tpot_ms: Option<f64>,
    input_length: u32,
    /// Tokens sent to a completed request, which a model's length limit can make fewer than it asked for; tokens
    /// asked for by a request that did not complete. Either replays the request.
    output_length: u32,
    reused_input_tokens: u32,
    prefill_worker: Option<u32>,
    decode_worker: Option<u32>,
    admissions: u32,
    hash_ids: HashIds<'a>,
    /// In a disaggregated fleet only.
    #[serde(skip_serializing_if = "Option::is_none")]
    handoff: Option<HandoffRow>,
}

/// When the steps of a request's hand-off from its prefill to its decode worker were taken.
#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "the fields are keys, with their unit")]
struct HandoffRow {
    source_held_ms: Option<f64>,
    destination_reserved_ms: Option<f64>,
    destination_activated_ms: Option<f64>,
    decode_admit_ms: Option<f64>,
    source_released_ms: Option<f64>,
}

impl HandoffRow {
    fn new(handoff: &HandoffRecord) -> Self {
        Self {
            source_held_ms: handoff.source_held.map(SimTime::as_ms),
            destination_reserved_ms: handoff.destination_reserved.map(SimTime::as_ms),
            destination_activated_ms: handoff.destination_activated.map(SimTime::as_ms),
            decode_admit_ms: handoff.decode_admit.map(SimTime::as_ms),
            source_released_ms: handoff.source_released.map(SimTime::as_ms),
        }
    }
}

impl<'a> Row<'a> {
    fn new(number: usize, record: &RequestRecord, workload: &'a Workload) -> Self {
        let request = &workload.requests[number];
        let completed = record.status == Status::Completed;
        Self {
            request_id: request_name(workload, RequestId(number as u32)),
            session_id: session_name(workload, request),
            turn_index: request.turn,
            status: record.status,
            arrival_ms: record.arrival.map(SimTime::as_ms),
            dispatched_ms: record.dispatched.map(SimTime::as_ms),
            first_admit_ms: record.first_admit.map(SimTime::as_ms),
            first_token_ms: record.first_token.map(SimTime::as_ms),
            last_token_ms: record.last_token.map(SimTime::as_ms),
            terminal_ms: record.terminal.map(SimTime::as_ms),
            ttft_ms: record.ttft().map(SimDuration::as_ms),
            e2e_ms: record.e2e().map(SimDuration::as_ms),
            tpot_ms: record.tpot_ms(),
            input_length: request.input_length,
            output_length: if completed { record.output_tokens } else { request.output_length },
            reused_input_tokens: record.max_reused_tokens,
            prefill_worker: record.prefill_worker,
            decode_worker: record.decode_worker,
            admissions: record.admissions,
            hash_ids: HashIds { workload, prompt: request.prompt },
            handoff: None,
        }
    }
}

/// The session's name; one without a name has none unless it has several turns to hold together.
fn session_name<'a>(workload: &'a Workload, request: &Request) -> Option<Cow<'a, str>> {
    let name = workload.session_names.get(request.session as usize).and_then(Option::as_deref);
    let several_turns = request.turn > 0 || request.next_turn.is_some();
    name.map(Cow::Borrowed)
        .or_else(|| several_turns.then(|| Cow::Owned(format!("session_{}", u64::from(request.session) + 1))))
}

/// The ids of a prompt's chunks as they were read; generated chunks go by their number.
struct HashIds<'a> {
    workload: &'a Workload,
    prompt: Prompt,
}

impl Serialize for HashIds<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let first = self.prompt.first_chunk as usize;
        let chunks = &self.workload.chunk_ids[first..first + self.prompt.chunks as usize];
        let names = &self.workload.chunk_names;
        serializer.collect_seq(
            chunks.iter().map(|&chunk| names.get(chunk as usize).copied().unwrap_or(u64::from(chunk))),
        )
    }
}
