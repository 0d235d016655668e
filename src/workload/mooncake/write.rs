//! A workload as a Mooncake trace.

use std::borrow::Cow;
use std::io::{self, Write};

use serde::Serialize;

use crate::workload::{Request, RequestId, Workload};

/// Why a workload cannot be written as a trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Inexpressible {
    /// A trace has one block size.
    #[error(
        "prompts with {0} and with {1} tokens per id in one workload: a trace has one block size; give every prompt its \
         hash_ids in blocks of one size"
    )]
    MixedBlockSizes(u32, u32),
    /// A trace has no field for it.
    #[error("request {0} asks for a data-parallel rank: a trace cannot say so")]
    Rank(u32),
}

/// Writes a line for each request, session by session in the order in which they arrive. Read again they are served the same, but
/// that turns of different sessions which are due at one instant come in the order of the lines. The error within says that it
/// cannot be written, before anything was.
///
/// Arrivals are in milliseconds. In a closed loop they have no meaning and are left out.
pub fn write(workload: &Workload, mut out: impl Write) -> io::Result<Result<(), Inexpressible>> {
    if let Err(reason) = expressible(workload) {
        return Ok(Err(reason));
    }
    for start in &workload.session_starts {
        let mut turn = Some(*start);
        while let Some(RequestId(index)) = turn {
            let request = &workload.requests[index as usize];
            serde_json::to_writer(&mut out, &Row::new(request, workload))?;
            out.write_all(b"\n")?;
            turn = request.next_turn;
        }
    }
    Ok(Ok(()))
}

/// Whether any session has several turns.
pub fn has_turns(workload: &Workload) -> bool {
    workload.requests.iter().any(|request| request.next_turn.is_some())
}

fn expressible(workload: &Workload) -> Result<(), Inexpressible> {
    let mut block_size = None;
    for (index, request) in workload.requests.iter().enumerate() {
        if request.dp_rank.is_some() {
            return Err(Inexpressible::Rank(index as u32 + 1));
        }
        if request.prompt.chunks > 0 {
            let size = request.prompt.tokens_per_chunk;
            let first = *block_size.get_or_insert(size);
            if first != size {
                return Err(Inexpressible::MixedBlockSizes(first, size));
            }
        }
    }
    Ok(())
}

/// The fields of a row in the order in which they are written.
#[derive(Serialize)]
struct Row<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ms: Option<f64>,
    input_length: u32,
    output_length: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hash_ids: Vec<u64>,
}

impl<'a> Row<'a> {
    fn new(request: &'a Request, workload: &'a Workload) -> Self {
        let name = workload.session_names.get(request.session as usize).and_then(Option::as_deref);
        let several_turns = request.turn > 0 || request.next_turn.is_some();
        let open = workload.concurrency.is_none();
        let first = request.prompt.first_chunk as usize;
        let chunks = &workload.chunk_ids[first..first + request.prompt.chunks as usize];
        let id = |&chunk: &u32| workload.chunk_names.get(chunk as usize).copied().unwrap_or(u64::from(chunk));
        Self {
            request_id: request.name.as_deref(),
            session_id: name
                .map(Cow::Borrowed)
                .or_else(|| several_turns.then(|| format!("session_{}", request.session + 1).into())),
            timestamp: (request.turn == 0 && open).then(|| request.arrival.as_ms()),
            delay_ms: (request.turn > 0).then(|| request.delay.as_ms()),
            input_length: request.input_length,
            output_length: request.output_length,
            hash_ids: chunks.iter().map(id).collect(),
        }
    }
}
