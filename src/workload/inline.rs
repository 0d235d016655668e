//! Requests written out in a scenario.
//!
//! Unlike a trace, such a list is taken at its word: arrivals are used as they are, so a first arrival at 100 ms leaves
//! 100 ms idle; a request for no output is one; and anything odd is refused.

use rustc_hash::FxHashMap;

use super::assembly::{Assembly, Chunks, Draft, Ending, Fields, InputKind};
use super::interner::Interner;
use super::pacing::Pacing;
use super::problem::{Ledger, Place, Problems, WorkloadErrors};
use super::{Loaded, Prompt};
use crate::config::scenario::InlineRequest;
use crate::simulation::SimDuration;

/// Key of the list in a scenario.
const ORIGIN: &str = "workload.requests";
/// Longest prompt or output, so that the sum of two fits 32 bits.
const LONGEST: usize = i32::MAX as usize;

/// Turns a list of requests into a workload. `block_size` is the number of tokens that one hash id stands for.
///
/// Requests with the same `session_id` are turns in the order of the list. `input_token_ids` identify single tokens,
/// `hash_ids` blocks; the two share nothing with each other, and a prompt with neither shares nothing at all.
///
/// # Errors
/// Everything that is wrong with the list, by the index and the name of the request.
pub fn read(requests: &[InlineRequest], block_size: u32, pacing: Pacing) -> Result<Loaded, WorkloadErrors> {
    let mut list = List::new(block_size, pacing);
    for (index, request) in requests.iter().enumerate() {
        list.take(index as u32, request);
    }
    list.finish().map_err(|mut errors| {
        for problem in &mut errors.problems {
            if let Place::Request(index) = problem.place {
                problem.name.clone_from(&requests[index as usize].id);
            }
        }
        errors
    })
}

struct List {
    block_size: u32,
    assembly: Assembly,
    chunk_ids: Vec<u32>,
    interner: Interner,
    tokens: FxHashMap<u32, u32>,
    problems: Problems,
    ledger: Ledger,
}

impl List {
    fn new(block_size: u32, pacing: Pacing) -> Self {
        Self {
            block_size,
            assembly: Assembly::new(pacing, Fields { name: "id", arrival: "arrival_ms", delay: "delay_ms" }),
            chunk_ids: Vec::new(),
            interner: Interner::default(),
            tokens: FxHashMap::default(),
            problems: Problems::default(),
            ledger: Ledger::default(),
        }
    }

    fn take(&mut self, index: u32, request: &InlineRequest) {
        self.ledger.read += 1;
        let place = Place::Request(index);
        let problems_before = self.problems.total();
        self.check_time(place, "arrival_ms", request.arrival_ms);
        self.check_time(place, "delay_ms", request.delay_ms);
        if request.output_length as usize > LONGEST {
            self.problems.add(place, "output_length", too_long(request.output_length as usize));
        }
        let prompt = self.prompt(place, request);
        let session = request.session_id.as_deref();
        match prompt {
            Some((input_length, prompt)) if self.problems.total() == problems_before => {
                let draft = Draft {
                    place,
                    arrival_ms: request.arrival_ms,
                    delay_ms: request.delay_ms,
                    terminal_ms: None,
                    input_length,
                    output_length: request.output_length,
                    prompt,
                    dp_rank: request.dp_rank,
                    name: request.id.as_deref().map(Into::into),
                    keep: true,
                };
                self.assembly.push(session, draft, &mut self.problems);
            }
            _ => {
                if let Some(session) = session {
                    self.assembly.break_session(session);
                }
            }
        }
    }

    fn check_time(&mut self, place: Place, field: &str, time_ms: Option<f64>) {
        if let Some(Err(error)) = time_ms.map(SimDuration::from_ms) {
            self.problems.add(place, field, error.to_string());
        }
    }

    /// The length and the content of a prompt.
    fn prompt(&mut self, place: Place, request: &InlineRequest) -> Option<(u32, Prompt)> {
        let first_chunk = self.chunk_ids.len();
        let (field, tokens_per_chunk) = match (&request.hash_ids, &request.input_token_ids) {
            (Some(_), Some(_)) => {
                self.problems.add(place, "input_token_ids", "given beside hash_ids: give one of them");
                return None;
            }
            (Some(ids), None) => {
                let interner = &mut self.interner;
                self.chunk_ids.extend(ids.iter().map(|id| interner.intern(*id)));
                ("hash_ids", self.block_size)
            }
            (None, Some(tokens)) => {
                let Self { interner, tokens: known, chunk_ids, .. } = self;
                let number = |token| *known.entry(token).or_insert_with(|| interner.fresh(token.into()));
                chunk_ids.extend(tokens.iter().copied().map(number));
                ("input_token_ids", 1)
            }
            (None, None) => ("", 1),
        };
        let chunks = self.chunk_ids.len() - first_chunk;
        if !field.is_empty() && chunks == 0 {
            self.problems.add(place, field, "empty: leave it out for a prompt that shares nothing");
            return None;
        }
        let input_length = self.input_length(place, request, field, chunks, tokens_per_chunk)?;
        let prompt = Prompt { first_chunk: first_chunk as u32, chunks: chunks as u32, tokens_per_chunk };
        Some((input_length, prompt))
    }

    fn input_length(
        &mut self,
        place: Place,
        request: &InlineRequest,
        field: &str,
        chunks: usize,
        tokens_per_chunk: u32,
    ) -> Option<u32> {
        let capacity = chunks.saturating_mul(tokens_per_chunk as usize);
        let message = match request.input_length {
            None if chunks == 0 => "missing: give it, or hash_ids, or input_token_ids".into(),
            None if capacity <= LONGEST => return Some(capacity as u32),
            None => too_long(capacity),
            Some(0) => "0: a prompt has at least one token".into(),
            Some(length) if length as usize > LONGEST => too_long(length as usize),
            Some(length) if chunks > 0 && length.div_ceil(tokens_per_chunk) as usize != chunks => {
                let expected = length.div_ceil(tokens_per_chunk);
                let message = match tokens_per_chunk {
                    1 => format!("{chunks} tokens for an input_length of {length}: there must be as many"),
                    size => format!(
                        "{chunks} ids for {length} tokens: with blocks of {size} tokens there must be {expected}"
                    ),
                };
                self.problems.add(place, field, message);
                return None;
            }
            Some(length) => return Some(length),
        };
        self.problems.add(place, "input_length", message);
        None
    }

    fn finish(self) -> Result<Loaded, WorkloadErrors> {
        let chunks = Chunks { ids: self.chunk_ids, names: self.interner.into_names() };
        let ending = Ending { origin: ORIGIN, strict: false, ledger: self.ledger, problems: self.problems };
        self.assembly.finish(InputKind::List, chunks, ending)
    }
}

fn too_long(tokens: usize) -> String {
    format!("{tokens} tokens is more than {LONGEST}, the longest that is accepted")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::SimTime;
    use crate::workload::RequestId;

    fn request(id: &str, arrival_ms: f64, input_length: u32) -> InlineRequest {
        InlineRequest {
            id: Some(id.into()),
            arrival_ms: Some(arrival_ms),
            input_length: Some(input_length),
            output_length: 3,
            ..InlineRequest::default()
        }
    }

    fn turn(session: &str, arrival_ms: Option<f64>, delay_ms: Option<f64>) -> InlineRequest {
        InlineRequest {
            arrival_ms,
            delay_ms,
            input_length: Some(8),
            output_length: 2,
            session_id: Some(session.into()),
            ..InlineRequest::default()
        }
    }

    fn accept(requests: &[InlineRequest]) -> Loaded {
        read(requests, 4, Pacing::default()).unwrap_or_else(|errors| panic!("{errors}"))
    }

    #[test]
    fn arrivals_are_used_as_they_are() {
        let loaded = accept(&[request("b", 200.0, 8), request("a", 100.0, 8)]);
        let requests = &loaded.workload.requests;
        assert_eq!(requests.iter().map(|r| r.arrival.as_ms()).collect::<Vec<_>>(), [100.0, 200.0]);
        assert_eq!(requests[0].name.as_deref(), Some("a"));
        assert_eq!(loaded.warnings, []);
        assert!(loaded.workload.input.repaired.is_empty());
        assert_eq!((loaded.workload.input.read, loaded.workload.input.used), (2, 2));
    }

    #[test]
    fn prompts_are_blocks_tokens_or_nothing() {
        let blocks = InlineRequest { hash_ids: Some(vec![7, 5, 7]), ..request("blocks", 0.0, 9) };
        let tokens = InlineRequest {
            input_token_ids: Some(vec![5, 5, 7]),
            input_length: None,
            ..request("tokens", 0.0, 0)
        };
        let loaded = accept(&[blocks, tokens, request("own", 0.0, 9)]);
        let workload = &loaded.workload;
        let prompts: Vec<Prompt> = workload.requests.iter().map(|r| r.prompt).collect();
        assert_eq!(prompts[0], Prompt { first_chunk: 0, chunks: 3, tokens_per_chunk: 4 });
        assert_eq!(prompts[1], Prompt { first_chunk: 3, chunks: 3, tokens_per_chunk: 1 });
        assert_eq!(prompts[2].chunks, 0);
        // Token 5 is not block 5.
        assert_eq!(workload.chunk_ids, [0, 1, 0, 2, 2, 3]);
        assert_eq!(workload.chunk_names, [7, 5, 5, 7]);
        assert_eq!(workload.requests[1].input_length, 3);
    }

    #[test]
    fn outputs_of_no_length_are_requests() {
        let loaded = accept(&[InlineRequest { output_length: 0, ..request("a", 0.0, 8) }]);
        assert_eq!(loaded.workload.requests[0].output_length, 0);
    }

    #[test]
    fn sessions_follow_the_rules_of_traces() {
        let requests = [turn("s", Some(10.0), None), turn("s", Some(60.0), None), turn("s", None, Some(7.0))];
        let loaded = accept(&requests);
        let delays: Vec<f64> = loaded.workload.requests.iter().map(|r| r.delay.as_ms()).collect();
        assert_eq!(delays, [0.0, 50.0, 7.0]);
        assert_eq!(loaded.workload.requests[0].arrival, SimTime::from_ms(10.0).unwrap());
        assert_eq!(loaded.workload.session_starts, [RequestId(0)]);
    }

    #[test]
    fn a_closed_loop_needs_no_arrivals() {
        let pacing = Pacing { concurrency: Some(1), ..Pacing::default() };
        let requests = [turn("x", None, None), turn("y", None, None), turn("x", None, Some(50.0))];
        let loaded = read(&requests, 4, pacing).unwrap();
        assert_eq!(loaded.workload.requests.iter().map(|r| r.session).collect::<Vec<_>>(), [0, 0, 1]);
        assert_eq!(loaded.workload.concurrency, Some(1));
    }

    #[test]
    fn what_is_wrong_is_said_by_index_and_name() {
        let ids = |ids: &[u64]| Some(ids.to_vec());
        let cases = [
            (
                InlineRequest { hash_ids: ids(&[1, 2, 3]), ..request("a", 0.0, 13) },
                "hash_ids: 3 ids for 13 tokens",
            ),
            (InlineRequest { hash_ids: ids(&[]), ..request("a", 0.0, 13) }, "hash_ids: empty"),
            (
                InlineRequest { input_token_ids: Some(vec![1]), ..request("a", 0.0, 2) },
                "input_token_ids: 1 tokens for",
            ),
            (
                InlineRequest { input_token_ids: Some(vec![1]), hash_ids: ids(&[1]), ..request("a", 0.0, 1) },
                "input_token_ids: given beside hash_ids",
            ),
            (InlineRequest { input_length: None, ..request("a", 0.0, 1) }, "input_length: missing"),
            (request("a", 0.0, 0), "input_length: 0: a prompt"),
            (request("a", 0.0, u32::MAX), "input_length: 4294967295 tokens is more"),
            (
                InlineRequest { output_length: u32::MAX, ..request("a", 0.0, 1) },
                "output_length: 4294967295 tokens",
            ),
            (request("a", f64::NAN, 1), "arrival_ms: NaN ms"),
            (InlineRequest { delay_ms: Some(-1.0), ..request("a", 0.0, 1) }, "delay_ms: -1 ms"),
            (InlineRequest { delay_ms: Some(5.0), ..request("a", 0.0, 1) }, "delay_ms: 5 ms: the first turn"),
            (InlineRequest { arrival_ms: None, ..request("a", 0.0, 1) }, "arrival_ms: missing"),
            (request("first", 0.0, 1), "id: \"first\" is the name of entry 0 already"),
        ];
        for (bad, part) in cases {
            let name = bad.id.clone().unwrap();
            let errors = read(&[request("first", 0.0, 1), bad], 4, Pacing::default()).unwrap_err();
            assert_eq!(errors.problems.len(), 1, "{errors}");
            let expected = format!("workload.requests[1] ({name}): {part}");
            assert!(errors.to_string().starts_with(&expected), "{expected}\n---\n{errors}");
        }
        assert!(read(&[], 4, Pacing::default()).unwrap_err().to_string().contains("no requests"));
    }
}
