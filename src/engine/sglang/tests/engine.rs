//! Rules of the scheduler, one by one.

use super::runs::replay;
use super::{Asked, own_prompt};
use crate::config::scenario::{Backend, EngineOptions, SglangSchedulePolicy};
use crate::engine::Output;
use crate::simulation::SimTime;
use crate::workload::RequestId;

fn ms(ms: f64) -> SimTime {
    SimTime::from_ms(ms).unwrap()
}

fn options(change: impl FnOnce(&mut EngineOptions)) -> EngineOptions {
    let mut options = EngineOptions::for_backend(Backend::Sglang);
    change(&mut options);
    options
}

/// Requests in the order of their first tokens, with the times.
fn first_tokens(options: &EngineOptions, asked: &[Asked]) -> Vec<(u32, SimTime)> {
    let heard = replay(options, asked, false, true);
    let first = |&(at, output): &(SimTime, Output)| match output {
        Output::FirstToken(request) => Some((request.0, at)),
        _ => None,
    };
    heard.outputs.iter().filter_map(first).collect()
}

#[test]
fn the_longest_cached_prefix_goes_first() {
    let shared: Vec<u32> = (0..40).collect();
    let mut long = shared.clone();
    long.extend(500..520);
    let asked = [(0, shared, 1), (5, own_prompt(1, 40), 1), (5, long, 1)];
    let order = |policy| {
        let options = options(|options| {
            options.max_num_seqs = Some(1);
            options.sglang.schedule_policy = policy;
        });
        first_tokens(&options, &asked).iter().map(|&(request, _)| request).collect::<Vec<_>>()
    };
    assert_eq!(order(SglangSchedulePolicy::Fifo), [0, 1, 2]);
    assert_eq!(order(SglangSchedulePolicy::Lpm), [0, 2, 1]);
}

#[test]
fn who_shares_a_prefix_with_another_in_the_queue_steps_back() {
    let mut second: Vec<u32> = (0..32).collect();
    second.push(900);
    let first: Vec<u32> = (0..40).collect();
    let asked = [(0, first, 1), (0, second.clone(), 1), (0, own_prompt(3, 8), 1)];
    let order = |asked: &[Asked]| {
        let options = options(|options| {
            options.max_num_seqs = Some(1);
            options.sglang.schedule_policy = SglangSchedulePolicy::Lpm;
        });
        first_tokens(&options, asked).iter().map(|&(request, _)| request).collect::<Vec<_>>()
    };
    // Once the first has run, the second has 32 tokens in the cache.
    assert_eq!(order(&asked), [0, 1, 2]);
    let heard = replay(
        &options(|options| options.sglang.schedule_policy = SglangSchedulePolicy::Lpm),
        &asked,
        false,
        true,
    );
    let admitted: Vec<u32> = heard.admitted.iter().map(|(_, admission)| admission.request.0).collect();
    assert_eq!(admitted, [0, 2, 1]);
}

#[test]
fn a_pass_stops_at_its_budgets() {
    let asked: Vec<Asked> = (0..3).map(|number| (0, own_prompt(number, 6), 1)).collect();
    let whole = options(|options| options.sglang.chunked_prefill_size = 12);
    assert_eq!(first_tokens(&whole, &asked), [(0, ms(10.0)), (1, ms(10.0)), (2, ms(20.0))]);
    // The second prompt is cut after two tokens, and goes on in front of the third.
    let cut = options(|options| options.sglang.chunked_prefill_size = 8);
    assert_eq!(first_tokens(&cut, &asked), [(0, ms(10.0)), (1, ms(20.0)), (2, ms(30.0))]);
    let few = options(|options| options.sglang.max_prefill_tokens = 12);
    assert_eq!(first_tokens(&few, &asked), [(0, ms(10.0)), (1, ms(20.0)), (2, ms(30.0))]);
    let unchunked = options(|options| {
        options.enable_chunked_prefill = false;
        options.sglang.chunked_prefill_size = 1;
    });
    assert_eq!(first_tokens(&unchunked, &asked).last(), Some(&(2, ms(10.0))));
}

#[test]
fn equal_prompts_of_one_pass_are_computed_twice_and_kept_once() {
    let asked = [(0, own_prompt(0, 8), 1), (0, own_prompt(0, 8), 1)];
    let heard = replay(&options(|_| {}), &asked, true, true);
    assert_eq!(heard.counters.committed_prefill_tokens, 16);
    assert!(heard.admitted.iter().all(|(_, admission)| admission.reused_tokens == 0));
}

#[test]
fn a_first_token_without_a_page_slips_to_the_next_decode_pass() {
    // Pages of 4: both prompts fill theirs, and the promise of one token each is less than a page.
    let options = options(|options| {
        options.block_size = 4;
        options.num_gpu_blocks = 3;
        options.sglang.clip_max_new_tokens = 1;
    });
    let asked = [(0, own_prompt(0, 4), 2), (0, own_prompt(1, 4), 2)];
    // One page is left. The second has generated least and makes room, so the first goes on alone.
    assert_eq!(first_tokens(&options, &asked), [(0, ms(10.0)), (1, ms(22.0))]);
    let heard = replay(&options, &asked, false, true);
    assert_eq!(heard.counters.preemptions, 1);
    let end = |request| Output::Completed(RequestId(request), heard_stamps(&heard.outputs, request));
    assert!(heard.outputs.contains(&(ms(12.0), end(0))) && heard.outputs.contains(&(ms(24.0), end(1))));
}

fn heard_stamps(outputs: &[(SimTime, Output)], request: u32) -> crate::engine::TokenStamps {
    let stamps = |&(_, output): &(SimTime, Output)| match output {
        Output::Completed(of, stamps) if of.0 == request => Some(stamps),
        _ => None,
    };
    outputs.iter().find_map(stamps).unwrap()
}

#[test]
fn promised_output_delays_an_admission_until_the_ratio_has_fallen() {
    // 100 tokens: the first takes 20 and is promised 60, of which 0.7 count: 38 are left, fewer with every token.
    let asked = [(0, own_prompt(0, 20), 60), (15, own_prompt(1, 30), 10)];
    let options = |conservativeness| {
        options(|options| {
            options.num_gpu_blocks = 100;
            options.sglang.schedule_conservativeness = conservativeness;
        })
    };
    assert_eq!(first_tokens(&options(1.0), &asked)[1], (1, ms(10.0 + 2.0 * 59.0 + 10.0)));
    assert_eq!(first_tokens(&options(0.1), &asked)[1], (1, ms(16.0 + 10.0)));
}
