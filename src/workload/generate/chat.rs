//! Chat sessions: each turn's prompt is the whole history and something new.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::quantiles::Quantiles;
use super::{BLOCK_SIZE, BlockIds, Row, blocks, tick};
use crate::simulation::{ActorRng, stream};
use crate::workload::random::Draws;

/// Chance of another turn after each turn.
const CONTINUES: f64 = 0.62;
/// Chance that a turn rewrites its history: only the system prompt stays what it was.
const REWRITES: f64 = 0.1;
/// First prompts: median in tokens, spread of the logarithm, least.
const FIRST_PROMPT: (f64, f64, f64) = (5400.0, 1.1, 900.0);
/// What a user adds per turn: median in tokens, spread of the logarithm.
const ADDED: (f64, f64) = (420.0, 1.25);
/// Mean time until the next turn.
const THINK_MS: f64 = 45_000.0;
/// Longest prompt in tokens; a session that would exceed it ends.
const LONGEST: f64 = 126_000.0;
const OUTPUT: Quantiles =
    Quantiles(&[(0.0, 1.0), (0.1, 95.0), (0.5, 355.0), (0.9, 600.0), (0.99, 1000.0), (1.0, 2000.0)]);

/// Sessions that start at random; yields their turns by time.
#[derive(Debug)]
pub(super) struct Chat {
    starts: Draws<ActorRng>,
    lengths: Draws<ActorRng>,
    outputs: Draws<ActorRng>,
    turns: Draws<ActorRng>,
    mean_gap_ms: f64,
    next_start_ms: f64,
    sessions: Vec<Session>,
    /// Next turns: time in milliseconds and session.
    due: BinaryHeap<Reverse<(u64, usize)>>,
    /// The block with which every prompt begins.
    system: Option<u64>,
}

#[derive(Debug, Default)]
struct Session {
    /// Prompt of the next turn, in tokens.
    input_length: f64,
    /// Prompt of the latest turn, in tokens, and its blocks.
    known_tokens: u32,
    hash_ids: Vec<u64>,
}

impl Chat {
    /// Sessions that in the long run ask for `requests_per_second` together, in the trace called `name`.
    pub(super) fn new(name: &str, seed: u64, requests_per_second: f64) -> Self {
        let draws = |purpose: &str| Draws(stream(seed, &format!("{name}/chat/{purpose}")));
        Self {
            starts: draws("starts"),
            lengths: draws("lengths"),
            outputs: draws("outputs"),
            turns: draws("turns"),
            mean_gap_ms: 1000.0 / (requests_per_second * (1.0 - CONTINUES)),
            next_start_ms: 0.0,
            sessions: Vec::new(),
            due: BinaryHeap::new(),
            system: None,
        }
    }

    /// When the next turn is due, in milliseconds.
    pub(super) fn next_ms(&self) -> u64 {
        let start_ms = self.next_start_ms as u64;
        self.due.peek().map_or(start_ms, |Reverse((due_ms, _))| start_ms.min(*due_ms))
    }

    /// The next turn.
    pub(super) fn next(&mut self, ids: &mut BlockIds) -> Row {
        let now_ms = self.next_ms();
        let session = match self.due.peek() {
            Some(Reverse((due_ms, session))) if *due_ms == now_ms => {
                let session = *session;
                self.due.pop();
                session
            }
            _ => self.start(),
        };
        self.extend_history(session, ids);
        let output_length = OUTPUT.draw(&mut self.outputs).max(1);
        let Session { known_tokens, hash_ids, .. } = &self.sessions[session];
        let row = Row {
            timestamp_ms: tick(now_ms),
            input_length: *known_tokens,
            output_length,
            hash_ids: Some(hash_ids.clone()),
        };
        self.plan_next_turn(session, now_ms, output_length);
        row
    }

    fn start(&mut self) -> usize {
        self.next_start_ms += self.starts.exponential(self.mean_gap_ms);
        let (median, sigma, least) = FIRST_PROMPT;
        let input_length = self.lengths.lognormal(median, sigma).clamp(least, LONGEST);
        self.sessions.push(Session { input_length, ..Session::default() });
        self.sessions.len() - 1
    }

    /// Makes the blocks of the turn at hand: whole blocks of the history, then new ones.
    fn extend_history(&mut self, session: usize, ids: &mut BlockIds) {
        let system = *self.system.get_or_insert_with(|| ids.fresh(1).start);
        let Session { input_length, known_tokens, hash_ids } = &mut self.sessions[session];
        let rewritten = *known_tokens > 0 && self.turns.chance(REWRITES);
        let kept = if rewritten { 1 } else { (*known_tokens / BLOCK_SIZE) as usize };
        hash_ids.truncate(kept);
        if hash_ids.is_empty() {
            hash_ids.push(system);
        }
        *known_tokens = *input_length as u32;
        hash_ids.extend(ids.fresh(blocks(*known_tokens) - hash_ids.len()));
    }

    /// Decides whether and when the session goes on.
    fn plan_next_turn(&mut self, session: usize, now_ms: u64, output_length: u32) {
        let (median, sigma) = ADDED;
        let goes_on = self.turns.chance(CONTINUES);
        let think_ms = self.turns.exponential(THINK_MS);
        let grown = self.sessions[session].input_length
            + f64::from(output_length)
            + self.lengths.lognormal(median, sigma);
        if goes_on && grown <= LONGEST {
            self.sessions[session].input_length = grown;
            self.due.push(Reverse((now_ms + think_ms as u64, session)));
        } else {
            self.sessions[session].hash_ids = Vec::new();
        }
    }
}
