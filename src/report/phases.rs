//! Where the time of a request went.

use super::record::{HandoffRecord, RequestRecord};
use crate::simulation::SimTime;

/// A stretch of a request's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// What it waited for or did.
    pub name: &'static str,
    /// From when.
    pub start: SimTime,
    /// To when.
    pub end: SimTime,
}

/// Waiting in front of the router.
pub const ROUTER: &str = "router";
/// Waiting on the worker.
pub const QUEUE: &str = "queue";
/// Computing the prompt; in an aggregated fleet up to the first token.
pub const PREFILL: &str = "prefill";
/// Computing the prompt and generating, of which only the end was seen, since all tokens came at one instant.
pub const WHOLE: &str = "prefill and decode";
/// Waiting until the decode worker has set blocks aside.
pub const DECODE_BLOCKS: &str = "wait for decode blocks";
/// Moving KV blocks, and waiting for the pass under way at their destination.
pub const TRANSFER: &str = "transfer";
/// Waiting on the decode worker.
pub const DECODE_QUEUE: &str = "decode queue";
/// Generating. Whoever had to give way and come back waits and recomputes within it.
pub const DECODE: &str = "decode";

/// The phases of a request that arrived, one after the other and without gaps, from its arrival to its end, or to `end`
/// if it had none. Phases of no length are left out.
pub fn phases(request: &RequestRecord, handoff: Option<&HandoffRecord>, end: SimTime) -> Vec<Phase> {
    let Some(arrival) = request.arrival else { return Vec::new() };
    let last = request.terminal.unwrap_or(end);
    // Each step with the phase that it ends.
    let mut steps = vec![(request.dispatched, ROUTER), (request.first_admit, QUEUE)];
    match handoff {
        None if comes_whole(request) => steps.push((request.first_token, WHOLE)),
        None => steps.push((request.first_token, PREFILL)),
        Some(handoff) => steps.extend([
            (handoff.source_held, PREFILL),
            (handoff.destination_reserved, DECODE_BLOCKS),
            (handoff.destination_activated, TRANSFER),
            (handoff.decode_admit, DECODE_QUEUE),
        ]),
    }
    let mut steps: Vec<(SimTime, &str)> =
        steps.into_iter().filter_map(|(time, name)| Some((time?, name))).collect();
    steps.sort_by_key(|&(time, _)| time);
    let ending = match steps.last() {
        Some((_, PREFILL | DECODE_QUEUE)) => DECODE,
        Some((_, QUEUE)) => PREFILL,
        Some((_, ROUTER | DECODE_BLOCKS)) => QUEUE,
        Some((_, TRANSFER)) => DECODE_QUEUE,
        _ => ROUTER,
    };
    steps.push((last, ending));
    let mut phases = Vec::with_capacity(steps.len());
    let mut start = arrival;
    for (time, name) in steps {
        let end = time.min(last);
        if end > start {
            phases.push(Phase { name, start, end });
            start = end;
        }
    }
    phases
}

/// Whether a request was given several tokens, and all at one instant.
fn comes_whole(request: &RequestRecord) -> bool {
    request.output_tokens > 1 && request.first_token.is_some() && request.first_token == request.last_token
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::record::Status;

    #[expect(clippy::unnecessary_wraps, reason = "stamps are optional")]
    fn at(ms: u64) -> Option<SimTime> {
        Some(SimTime::from_ns(ms * 1_000_000))
    }

    fn named(phases: &[Phase]) -> Vec<(&str, u64)> {
        phases.iter().map(|phase| (phase.name, phase.end.since(phase.start).as_ns() / 1_000_000)).collect()
    }

    #[test]
    fn phases_fill_the_life_of_a_request() {
        let request = RequestRecord {
            status: Status::Completed,
            arrival: at(10),
            dispatched: at(10),
            first_admit: at(15),
            first_token: at(40),
            last_token: at(100),
            terminal: at(100),
            ..RequestRecord::default()
        };
        let end = SimTime::from_ns(200_000_000);
        assert_eq!(named(&phases(&request, None, end)), [(QUEUE, 5), (PREFILL, 25), (DECODE, 60)]);

        let cut_off = RequestRecord { terminal: None, first_token: None, ..request };
        assert_eq!(named(&phases(&cut_off, None, end)), [(QUEUE, 5), (PREFILL, 185)]);
        let waiting = RequestRecord { first_admit: None, ..cut_off };
        assert_eq!(named(&phases(&waiting, None, end)), [(QUEUE, 190)]);
        assert_eq!(phases(&RequestRecord::default(), None, end), []);
    }

    #[test]
    fn a_result_that_comes_whole_does_not_tell_prefill_from_decode() {
        let whole = RequestRecord {
            status: Status::Completed,
            arrival: at(0),
            dispatched: at(0),
            first_admit: at(10),
            first_token: at(100),
            last_token: at(100),
            terminal: at(100),
            output_tokens: 7,
            ..RequestRecord::default()
        };
        let end = SimTime::from_ns(0);
        assert_eq!(named(&phases(&whole, None, end)), [(QUEUE, 10), (WHOLE, 90)]);
        let one_token = RequestRecord { output_tokens: 1, ..whole };
        assert_eq!(named(&phases(&one_token, None, end)), [(QUEUE, 10), (PREFILL, 90)]);
    }

    #[test]
    fn hand_offs_add_their_steps_in_either_order() {
        let request = RequestRecord {
            arrival: at(0),
            dispatched: at(1),
            first_admit: at(3),
            first_token: at(90),
            terminal: at(100),
            ..RequestRecord::default()
        };
        let source_first = HandoffRecord {
            source_held: at(20),
            destination_reserved: at(25),
            destination_activated: at(60),
            decode_admit: at(70),
            source_released: at(61),
        };
        let end = SimTime::from_ns(0);
        let found = phases(&request, Some(&source_first), end);
        let expected = [
            (ROUTER, 1),
            (QUEUE, 2),
            (PREFILL, 17),
            (DECODE_BLOCKS, 5),
            (TRANSFER, 35),
            (DECODE_QUEUE, 10),
            (DECODE, 30),
        ];
        assert_eq!(named(&found), expected);
        let destination_first = HandoffRecord { destination_reserved: at(2), ..source_first };
        let found = phases(&request, Some(&destination_first), end);
        let expected = [
            (ROUTER, 1),
            (DECODE_BLOCKS, 1),
            (QUEUE, 1),
            (PREFILL, 17),
            (TRANSFER, 40),
            (DECODE_QUEUE, 10),
            (DECODE, 30),
        ];
        assert_eq!(named(&found), expected);
    }
}
