//! Workloads of LLMServingSim: lengths, arrivals in nanoseconds, and the token ids of prompts if they are there.

use std::io::{self, BufRead};

use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::intake::{Intake, Row};
use super::jsonl::{self, Field};
use crate::config::scenario::TraceFormat;
use crate::workload::Prompt;
use crate::workload::problem::Place;

#[derive(Deserialize)]
struct Line {
    #[serde(default)]
    input_toks: Field,
    #[serde(default)]
    output_toks: Field,
    #[serde(default)]
    arrival_time_ns: Field,
    input_tok_ids: Option<Vec<u64>>,
    output_tok_ids: Option<Vec<IgnoredAny>>,
    sub_requests: Option<IgnoredAny>,
}

/// Numbers blocks by their content and that of all blocks before them.
#[derive(Default)]
struct Blocks {
    numbers: FxHashMap<(u64, Box<[u64]>), u64>,
}

pub(super) fn read(text: impl BufRead, intake: &mut Intake<'_>) -> io::Result<()> {
    let mut blocks = Blocks::default();
    jsonl::read(text, intake, |place, line: Line, intake| {
        intake.count_row();
        if line.sub_requests.is_some() {
            intake.problem(place, "sub_requests", "requests within a request cannot be expressed");
            return;
        }
        let arrival = line.arrival_time_ns.whole(place, "arrival_time_ns", intake);
        let input = line.input_toks.length(place, "input_toks", intake);
        let output = line.output_toks.length(place, "output_toks", intake);
        let (Some(arrival), Some(input), Some(output)) = (arrival, input, output) else { return };
        let listed = |ids: usize, tokens: u32| ids == tokens as usize;
        if let Some(ids) = &line.output_tok_ids
            && !listed(ids.len(), output)
        {
            let message = format!("{} ids for output_toks {output}: there must be as many", ids.len());
            intake.problem(place, "output_tok_ids", message);
            return;
        }
        let prompt = match &line.input_tok_ids {
            None => Prompt::UNKNOWN,
            Some(ids) if listed(ids.len(), input) => blocks.prompt(ids, intake),
            Some(ids) => {
                let message = format!("{} ids for input_toks {input}: there must be as many", ids.len());
                intake.problem(place, "input_tok_ids", message);
                return;
            }
        };
        note_ids(&line, place, intake);
        intake.take(Row { prompt, ..Row::plain(place, Some(arrival), input, output) });
    })
}

fn note_ids(line: &Line, place: Place, intake: &mut Intake<'_>) {
    if line.output_tok_ids.is_some() {
        intake.ignore("output_tok_ids", place);
    }
}

impl Blocks {
    fn prompt(&mut self, tokens: &[u64], intake: &mut Intake<'_>) -> Prompt {
        let size = intake.options().block_size.unwrap_or(TraceFormat::LlmServingSim.usual_block_size());
        let first_chunk = intake.chunk_ids.len() as u32;
        let mut before = 0;
        for block in tokens.chunks(size as usize) {
            let next = self.numbers.len() as u64 + 1;
            before = *self.numbers.entry((before, block.into())).or_insert(next);
            let chunk = intake.interner.intern(before);
            intake.chunk_ids.push(chunk);
        }
        let chunks = intake.chunk_ids.len() as u32 - first_chunk;
        Prompt { first_chunk, chunks, tokens_per_chunk: size }
    }
}
