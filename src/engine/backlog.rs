//! What an engine has to do, in words for somebody who asks why nothing moves.

use crate::workload::RequestId;

/// Requests and blocks of one engine rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backlog {
    pub(super) running: usize,
    pub(super) waiting: usize,
    /// Asking for blocks.
    pub(super) asking: usize,
    /// Holding blocks while prompts are handed from one worker to another.
    pub(super) detached: usize,
    /// First in the waiting queue, with its known tokens.
    pub(super) head: Option<(RequestId, u32)>,
    pub(super) available_blocks: u32,
    pub(super) blocks: u32,
}

impl Backlog {
    /// One line; `None` when nobody is here.
    pub(super) fn describe(&self) -> Option<String> {
        let Self { running, waiting, asking, detached, head, available_blocks, blocks } = self;
        if running + waiting + asking + detached == 0 {
            return None;
        }
        let head = head.map_or_else(String::new, |(request, tokens)| {
            format!("; first in line is request {} with {tokens} tokens", request.0)
        });
        Some(format!(
            "{running} running, {waiting} waiting, {asking} asking for blocks, {detached} between two workers, \
             {available_blocks} of {blocks} KV blocks available{head}"
        ))
    }
}
