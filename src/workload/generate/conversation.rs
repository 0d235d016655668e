//! Chat: sessions of growing prompts behind one system prompt, as flat rows.

use std::io::{self, Write};

use super::chat::Chat;
use super::{BlockIds, rate, refuse};

/// A conversation trace: multi-turn sessions whose turns share their history. Like recorded ones it says nothing of
/// sessions: they show in the block ids only.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conversation {
    /// Rows to write.
    pub rows: u32,
    /// Seed of all draws.
    pub seed: u64,
    /// Requests per second in the long run; a trace starts with few follow-ups and takes minutes to get there.
    pub requests_per_second: f64,
}

impl Default for Conversation {
    fn default() -> Self {
        Self { rows: 12_000, seed: 1, requests_per_second: 3.4 }
    }
}

impl Conversation {
    /// Writes the trace.
    ///
    /// # Errors
    /// Options out of their range, and whatever `out` fails with.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        rate("requests_per_second", self.requests_per_second)?;
        if self.rows == 0 {
            return Err(refuse("rows", 0.0, "is no trace"));
        }
        let mut chat = Chat::new("conversation", self.seed, self.requests_per_second);
        let mut ids = BlockIds::default();
        for _ in 0..self.rows {
            chat.next(&mut ids).write(out)?;
        }
        Ok(())
    }
}
