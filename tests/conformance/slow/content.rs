//! What the tokens of a sequence are, and when two KV blocks hold the same.

use rustc_hash::FxHashMap;
use spica::workload::{RequestId, Workload};

/// A token's value, as far as equality goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Token {
    /// Part of a prompt chunk: one value repeated over the whole chunk.
    Chunk(u32),
    /// Part of a prompt that shares nothing with any other.
    Private(RequestId),
    /// Generated for a request; never equal to what another request generates or is prompted with.
    Generated(RequestId),
}

/// Number of one (parent, content) pair: equal exactly when the whole prefix up to the block's end is equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity(u64);

/// Tokens as (value, times in a row).
type Runs = Vec<(Token, u32)>;

/// All identities seen so far. Nothing is hashed lossily: a pair gets a number of its own.
#[derive(Debug, Default)]
pub(crate) struct Identities {
    numbers: FxHashMap<(Option<Identity>, Runs), Identity>,
}

impl Identities {
    /// The identity of block `index` of `request`, whose previous block has identity `parent`.
    pub(crate) fn of_block(
        &mut self,
        workload: &Workload,
        request: RequestId,
        block_size: u32,
        index: u32,
        parent: Option<Identity>,
    ) -> Identity {
        let first = index * block_size;
        let tokens = (first..first + block_size).map(|position| token(workload, request, position));
        let next = Identity(self.numbers.len() as u64);
        *self.numbers.entry((parent, runs(tokens))).or_insert(next)
    }
}

/// The token at `position` of a request's sequence, prompt and generated tokens counted together.
fn token(workload: &Workload, request: RequestId, position: u32) -> Token {
    let asked = &workload.requests[request.0 as usize];
    if position >= asked.input_length {
        return Token::Generated(request);
    }
    if asked.prompt.chunks == 0 {
        return Token::Private(request);
    }
    let chunk = position / asked.prompt.tokens_per_chunk;
    assert!(chunk < asked.prompt.chunks, "request {} has no chunk for position {position}", request.0);
    Token::Chunk(workload.chunk_ids[(asked.prompt.first_chunk + chunk) as usize])
}

fn runs(tokens: impl Iterator<Item = Token>) -> Runs {
    let mut runs: Runs = Vec::with_capacity(1);
    for token in tokens {
        match runs.last_mut() {
            Some((value, count)) if *value == token => *count += 1,
            _ => runs.push((token, 1)),
        }
    }
    runs
}
