//! What a run can still reach, from the requests that have ended.

use crate::config::scenario::Sla;
use crate::report::record::{RequestRecord, Status};
use crate::simulation::{SimDuration, SimTime};
use crate::workload::Workload;

/// A figure of a run that has to reach some worth, in the figure's own unit, for the run to be worth its end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WorthBar {
    /// Output tokens per second of the requests that meet these bounds, or of all, at least.
    TokensPerSecond {
        /// The bounds.
        sla: Option<Sla>,
        /// Tokens per second.
        least: f64,
    },
    /// Milliseconds from arrival to the last token, on average, at most.
    MeanLatencyMs(f64),
}

/// Rounding must not end a run that is exactly as good.
const MARGIN: f64 = 1e-9;
/// The bound on tokens is looked at again when this share of all tokens more is lost.
const LOOKS: u64 = 200;

/// A bound on a figure that gets tighter as a run goes on.
#[derive(Debug)]
pub(super) struct Outlook {
    bar: WorthBar,
    /// Requests that may still complete or have completed.
    in_question: u64,
    latency_ms: f64,
    /// Output tokens of all requests that have arrived by a time, for all arrivals in order.
    by_arrival: Vec<(SimTime, u64)>,
    lost_tokens: u64,
    last_look: u64,
    latest_completion: SimTime,
}

impl Outlook {
    pub(super) fn new(bar: WorthBar, workload: &Workload) -> Self {
        // Later turns and the requests of a closed loop have no arrival of their own before they come: they count from 0 on.
        let is_open = workload.concurrency.is_none();
        let arrivals = workload.requests.iter().map(|request| {
            let arrival = if is_open && request.turn == 0 { request.arrival } else { SimTime::default() };
            (arrival, u64::from(request.output_length))
        });
        let mut by_arrival: Vec<(SimTime, u64)> = arrivals.collect();
        by_arrival.sort_by_key(|(arrival, _)| *arrival);
        let mut total = 0;
        for (_, tokens) in &mut by_arrival {
            total += *tokens;
            *tokens = total;
        }
        Self {
            bar,
            in_question: workload.requests.len() as u64,
            latency_ms: 0.0,
            by_arrival,
            lost_tokens: 0,
            last_look: 0,
            latest_completion: SimTime::default(),
        }
    }

    /// A request has ended; the bound, if the bar is out of reach now.
    pub(super) fn ended(&mut self, request: &RequestRecord) -> Option<f64> {
        if request.status == Status::Completed {
            self.latest_completion = self.latest_completion.max(request.last_token.unwrap_or_default());
        } else {
            self.in_question -= 1;
        }
        match self.bar {
            WorthBar::MeanLatencyMs(most) => {
                self.latency_ms += request.e2e().map_or(0.0, SimDuration::as_ms);
                // Those that have not ended can only add to the sum.
                let bound = self.latency_ms / self.in_question.max(1) as f64;
                (bound > most * (1.0 + MARGIN)).then_some(bound)
            }
            WorthBar::TokensPerSecond { sla, least } => {
                if sla.is_some_and(|sla| !request.meets(&sla)) {
                    self.lost_tokens += u64::from(request.output_tokens);
                }
                let total = self.by_arrival.last().map_or(0, |(_, tokens)| *tokens);
                let is_due = self.lost_tokens >= self.last_look + total / LOOKS || sla.is_none();
                if !is_due {
                    return None;
                }
                self.last_look = self.lost_tokens;
                let bound = self.most_tokens_per_second(sla.is_none());
                (bound < least * (1.0 - MARGIN)).then_some(bound)
            }
        }
    }

    /// The most that can come out: all tokens that are not lost and come from arrivals up to some time, over at least that
    /// time, and at least the time up to the latest completion.
    fn most_tokens_per_second(&self, of_all: bool) -> f64 {
        let over = |tokens: u64, time: SimTime| {
            let seconds = time.max(self.latest_completion).as_ms() / 1e3;
            tokens.saturating_sub(self.lost_tokens) as f64 / seconds
        };
        if of_all {
            // Looked at often: only the end counts, beyond which nothing arrives.
            return self.by_arrival.last().map_or(0.0, |(_, tokens)| over(*tokens, SimTime::default()));
        }
        self.by_arrival.iter().map(|(arrival, tokens)| over(*tokens, *arrival)).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Prompt, Request};

    /// Four requests of 100 tokens, one a second from 1 s on.
    fn workload(concurrency: Option<u32>) -> Workload {
        let mut workload = Workload { concurrency, ..Workload::default() };
        for second in 1..=4_u64 {
            workload.requests.push(Request {
                arrival: SimTime::from_ns(second * 1_000_000_000),
                delay: SimDuration::ZERO,
                input_length: 10,
                output_length: 100,
                prompt: Prompt { first_chunk: 0, chunks: 0, tokens_per_chunk: 512 },
                session: second as u32,
                turn: 0,
                next_turn: None,
                dp_rank: None,
                name: None,
            });
        }
        workload
    }

    /// A request that came and ended at these seconds.
    fn ended(arrival: u64, end: u64, status: Status) -> RequestRecord {
        let at = |second: u64| Some(SimTime::from_ns(second * 1_000_000_000));
        RequestRecord {
            status,
            output_tokens: if status == Status::Completed { 100 } else { 0 },
            arrival: at(arrival),
            first_token: at(end),
            last_token: at(end),
            terminal: at(end),
            ..RequestRecord::default()
        }
    }

    fn within_a_second(least: f64) -> WorthBar {
        let sla = Sla { e2e_ms: Some(1000.0), ..Sla::default() };
        WorthBar::TokensPerSecond { sla: Some(sla), least }
    }

    #[test]
    fn tokens_that_are_lost_lower_the_most_that_can_come() {
        let mut outlook = Outlook::new(within_a_second(80.0), &workload(None));
        assert_eq!(outlook.ended(&ended(1, 2, Status::Completed)), None);
        // 300 of 400 tokens by the last arrival at 4 s, after a completion at 3 s: at most 75 a second.
        assert_eq!(outlook.ended(&ended(2, 4, Status::Completed)), Some(75.0));
        let mut exactly = Outlook::new(within_a_second(75.0), &workload(None));
        assert_eq!(exactly.ended(&ended(2, 4, Status::Completed)), None);
    }

    #[test]
    fn a_closed_loop_is_bound_by_its_latest_completion() {
        let mut outlook = Outlook::new(within_a_second(80.0), &workload(Some(1)));
        assert_eq!(outlook.ended(&ended(0, 2, Status::Completed)), None, "300 tokens in 2 s");
        assert_eq!(outlook.ended(&ended(2, 5, Status::Completed)), Some(40.0));
        let all = WorthBar::TokensPerSecond { sla: None, least: 81.0 };
        let mut outlook = Outlook::new(all, &workload(Some(1)));
        assert_eq!(outlook.ended(&ended(0, 4, Status::Completed)), None);
        assert_eq!(outlook.ended(&ended(0, 5, Status::Completed)), Some(80.0));
    }

    #[test]
    fn latencies_add_up_and_rejected_requests_do_not_count() {
        let mut outlook = Outlook::new(WorthBar::MeanLatencyMs(1000.0), &workload(None));
        assert_eq!(outlook.ended(&ended(1, 4, Status::Completed)), None);
        assert_eq!(outlook.ended(&ended(2, 3, Status::Completed)), None, "4 s over 4 requests");
        assert_eq!(outlook.ended(&ended(3, 3, Status::Rejected)), Some(4000.0 / 3.0));
    }
}
