//! What a share of the requests is within.

use super::record::{RequestRecord, Status};
use crate::config::scenario::Sla;
use crate::simulation::SimDuration;

/// For each bound that `sla` sets, the least value in milliseconds that at least `share` of the requests are within, each bound
/// taken by itself; `None` where fewer have such a figure. A request that has not completed is within nothing.
pub fn within_share<'a>(
    requests: &(impl Iterator<Item = &'a RequestRecord> + Clone),
    sla: &Sla,
    share: f64,
) -> Sla {
    let within = |bound: Option<f64>, figure: fn(&RequestRecord) -> Option<f64>| {
        bound?;
        let value = |request: &RequestRecord| {
            let completed = request.status == Status::Completed;
            completed.then(|| figure(request)).flatten().unwrap_or(f64::INFINITY)
        };
        let mut values: Vec<f64> = requests.clone().map(value).collect();
        values.sort_unstable_by(f64::total_cmp);
        // A share is compared as attainment is: as the quotient of two counts.
        let place = (1..=values.len()).find(|&count| count as f64 / values.len() as f64 >= share)? - 1;
        values.get(place).copied().filter(|value| value.is_finite())
    };
    Sla {
        ttft_ms: within(sla.ttft_ms, |request| request.ttft().map(SimDuration::as_ms)),
        itl_ms: within(sla.itl_ms, mean_gap_ms),
        e2e_ms: within(sla.e2e_ms, end_to_end_ms),
    }
}

/// The figure that the bound on the mean gap is about, which says nothing about a request with one token.
fn mean_gap_ms(request: &RequestRecord) -> Option<f64> {
    if request.output_tokens == 1 { Some(0.0) } else { request.tpot_ms() }
}

/// The figure that the bound on the end is about; of a request without tokens, that of its completion.
fn end_to_end_ms(request: &RequestRecord) -> Option<f64> {
    match request.output_tokens {
        0 => request.terminal.zip(request.arrival).map(|(end, arrival)| end.since(arrival).as_ms()),
        _ => request.e2e().map(SimDuration::as_ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::SimTime;

    fn completed(first_ms: u64, last_ms: u64, output_tokens: u32) -> RequestRecord {
        let ms = |ms: u64| Some(SimTime::from_ns(ms * 1_000_000));
        RequestRecord {
            status: Status::Completed,
            arrival: ms(0),
            first_token: ms(first_ms).filter(|_| output_tokens > 0),
            last_token: ms(last_ms).filter(|_| output_tokens > 0),
            terminal: ms(last_ms),
            output_tokens,
            ..RequestRecord::default()
        }
    }

    const EVERY: Sla = Sla { ttft_ms: Some(1.0), itl_ms: Some(1.0), e2e_ms: Some(1.0) };

    #[test]
    fn each_bound_is_taken_by_itself() {
        let requests = [completed(9, 11, 3), completed(7, 37, 4), completed(8, 8, 1), completed(0, 5, 0)];
        let half = within_share(&requests.iter(), &EVERY, 0.5);
        assert_eq!(half, Sla { ttft_ms: Some(8.0), itl_ms: Some(1.0), e2e_ms: Some(8.0) });
        // One has no first token, so that nothing is within any bound on it for all.
        let all = within_share(&requests.iter(), &EVERY, 1.0);
        assert_eq!(all, Sla { ttft_ms: None, itl_ms: None, e2e_ms: Some(37.0) });
        let only = Sla { itl_ms: Some(1.0), ..Sla::default() };
        let gaps = within_share(&requests.iter(), &only, 0.75);
        assert_eq!(gaps, Sla { itl_ms: Some(10.0), ..Sla::default() });
        assert_eq!(within_share(&[].iter(), &EVERY, 0.5), Sla::default());
    }

    #[test]
    fn a_request_that_has_not_completed_is_within_nothing() {
        let unfinished = RequestRecord { status: Status::Unfinished, ..completed(1, 2, 2) };
        let requests = [completed(9, 11, 3), unfinished];
        let reached = within_share(&requests.iter(), &EVERY, 0.5);
        assert_eq!(reached.ttft_ms, Some(9.0));
        assert_eq!(within_share(&requests.iter(), &EVERY, 0.51), Sla::default());
    }

    #[test]
    fn the_share_is_met_as_attainment_is() {
        // 0.07 times 100 is a little more than 7 in floating point, and 7 / 100 is 0.07 all the same.
        let requests: Vec<RequestRecord> = (1..=100).map(|first| completed(first, 200, 2)).collect();
        let only = Sla { ttft_ms: Some(1.0), ..Sla::default() };
        assert_eq!(within_share(&requests.iter(), &only, 0.07).ttft_ms, Some(7.0));
    }
}
