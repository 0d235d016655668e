//! Tells the recorder what a worker's passes were made of, if it wants to know.

use super::Worker;
use crate::report::activity::{ChunkSpan, PassSpan};
use crate::serving::message::Serving;
use crate::simulation::Context;

impl Worker {
    /// Reports the passes that are about to be completed.
    pub(super) fn report_activity(&mut self, ctx: &mut Context<'_, Serving>) {
        let (role, start) = (self.role, self.started);
        let mut chunks = Vec::new();
        for (index, engine) in self.ranks.iter().enumerate() {
            let Some(&end) = engine.passes().in_progress().last() else { continue };
            let rank = self.id(index).0;
            let metrics = engine.pass_metrics(0);
            ctx.record().passes_of(PassSpan {
                role,
                rank,
                start,
                end,
                passes: engine.passes().in_progress().len() as u32,
                prefill_requests: metrics.prefill.requests,
                prefill_tokens: metrics.prefill_tokens,
                decode_requests: metrics.decode.requests,
                context_tokens: metrics.decode.tokens,
                waiting: metrics.queued_prefill.requests + metrics.queued_decode.requests,
                blocks_held: engine.blocks_held(),
            });
            engine.pass_chunks(&mut chunks);
            for (request, chunk) in chunks.drain(..) {
                let (new_tokens, prefix_tokens) = (chunk.new_tokens, chunk.prefix_tokens);
                ctx.record().computed(ChunkSpan {
                    role,
                    rank,
                    request,
                    start,
                    end,
                    new_tokens,
                    prefix_tokens,
                });
            }
        }
    }
}
