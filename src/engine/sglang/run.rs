//! Decode passes, planned as many at once as are sure to be alike.
//!
//! A run ends with the first pass that ends a request, sends a first token, or evicts what somebody outside would miss; and before
//! the first that lacks memory or in which the first in line might enter. Within it, only counters move.

use std::ops::Range;

use super::{EngineError, PassKind, SglangEngine, Signals};
use crate::report::record::Role;
use crate::simulation::{SimDuration, SimTime};
use crate::timing::DecodeBatch;

const LOOKAHEAD: u32 = crate::engine::Passes::LOOKAHEAD;

/// What changes in each of the coming decode passes.
#[derive(Debug)]
struct Forecast {
    /// Sequences that take a page, as far as they do so for the first time.
    growing: [u32; LOOKAHEAD as usize],
    /// Sequences whose promise begins to fall.
    falling: [u32; LOOKAHEAD as usize],
}

impl Forecast {
    /// Counts a sequence that has room for `room` more tokens and whose promise falls after `unpromised` ones.
    fn add(&mut self, room: u32, unpromised: u32) {
        for (counts, pass) in [(&mut self.growing, room), (&mut self.falling, unpromised)] {
            if let Some(count) = counts.get_mut(pass as usize) {
                *count += 1;
            }
        }
    }
}

impl SglangEngine {
    /// Plans decode passes of everybody running, at least one.
    pub(super) fn start_run(&mut self, now: SimTime) -> Result<Option<SimTime>, EngineError> {
        let mut forecast = Forecast { growing: [0; LOOKAHEAD as usize], falling: [0; LOOKAHEAD as usize] };
        let mut batch = DecodeBatch { requests: 0, context_tokens: 0 };
        let mut most = if self.pass.rejected.is_empty() { LOOKAHEAD } else { 1 };
        for sequence in &self.running {
            let (known, remaining) = (sequence.known(), sequence.remaining(self.limits.max_model_len));
            most = if sequence.generated == 0 { 1 } else { most.min(remaining) };
            if remaining > 0 {
                batch.requests += 1;
                batch.context_tokens += u64::from(known);
                let room = sequence.hold.pages() * self.page_size - known;
                forecast.add(room, remaining.saturating_sub(self.limits.most_promised));
            }
        }
        self.peaks.see_batched(batch.requests);
        self.pass.kind = PassKind::Run;
        self.passes.begin();
        if batch.requests == 0 {
            self.passes.timeline.ends.push(now + SimDuration::ZERO);
        } else {
            let passes = self.passes_alike(most, &mut forecast);
            self.inputs.pricer.decode_run(now, batch, passes, &mut self.passes.timeline.ends)?;
        }
        Ok(self.passes.timeline.ends.last().copied())
    }

    /// How many decode passes, at most `most`, can be planned without looking at anybody in between.
    fn passes_alike(&self, most: u32, forecast: &mut Forecast) -> u32 {
        let available = u64::from(self.cache.available());
        // Nobody sees an eviction, unless a router listens or the waiting queue is ordered by what is cached.
        let unseen = if self.sorts_waiting() || self.cache.publishes() {
            u64::from(self.cache.free())
        } else {
            available
        };
        let kept = self.blocked().map_or(0, |blocked| u64::from(blocked.unheld_pages));
        let unseen = unseen.min(available - kept.min(available));
        let (mut growth, mut falling) = (0, 0);
        let (mut promised, mut ratio) = (self.promised(), self.ratio);
        for pass in 0..most {
            let left = (available - growth) * u64::from(self.page_size);
            if pass > 0 && self.may_enter(pass, left as f64 - ratio.share(promised)) {
                return pass;
            }
            let now = pass as usize;
            if let Some(last) = now.checked_sub(self.page_size as usize) {
                forecast.growing[now] += forecast.growing[last];
            }
            growth += u64::from(forecast.growing[now]);
            if growth > available {
                return pass;
            }
            if growth > unseen {
                return pass + 1;
            }
            falling += u64::from(forecast.falling[now]);
            promised -= falling;
            if pass > 0 || !self.pass.has_retracted {
                ratio.decay();
            }
        }
        most
    }

    /// Who is first in line, if it was found to lack room.
    fn blocked(&self) -> Option<super::Blocked> {
        if self.asking.is_empty() { self.pass.blocked } else { self.asking_blocked }
    }

    /// Whether the first in line might enter after `decodes` decode passes, with `left` tokens to be had then.
    fn may_enter(&self, decodes: u32, left: f64) -> bool {
        let somebody_waits = !self.asking.is_empty() || (!self.waiting.is_empty() && self.may_look(decodes));
        somebody_waits
            && self.running.len() < self.limits.max_num_seqs
            && self.blocked().is_none_or(|blocked| blocked.fits(left))
    }

    fn may_look(&self, decodes: u32) -> bool {
        self.role == Role::Decode || self.may_prefill_after(decodes)
    }

    /// Makes the decode passes with these numbers visible.
    pub(super) fn complete_run(&mut self, over: Range<u32>, signals: &mut Signals) {
        let passes = over.end - over.start;
        self.running_counters.passes += u64::from(passes);
        self.decodes_since_prefill = self.decodes_since_prefill.saturating_add(passes);
        for _ in u32::from(self.pass.has_retracted)..passes {
            self.ratio.decay();
        }
        // Pages are taken when a pass starts, so before any that its end gives back.
        for sequence in &mut self.running {
            if sequence.remaining(self.limits.max_model_len) > 0 {
                let pages = (sequence.known() + passes).div_ceil(self.page_size);
                let grown = self.cache.grow(&mut sequence.hold, pages);
                assert!(grown, "a run is planned within the pages at hand");
                sequence.emit(over.start, passes);
            }
        }
        let mut running = std::mem::take(&mut self.running);
        running.retain_mut(|sequence| !self.report(sequence, over.end - 1, signals));
        self.running = running;
    }
}
