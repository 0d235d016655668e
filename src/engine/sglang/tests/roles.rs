//! Prefill and decode engines, destination first.

use super::super::SglangEngine;
use super::{Asked, inputs, own_prompt};
use crate::config::scenario::{Backend, EngineOptions};
use crate::engine::{Cadence, Engine, HandOff, Output, Reservation, Signals};
use crate::report::record::Role;
use crate::simulation::SimTime;
use crate::workload::RequestId;

fn engine(role: Role, asked: &[Asked], pages: u32) -> SglangEngine {
    let mut options = EngineOptions::for_backend(Backend::Sglang);
    options.num_gpu_blocks = pages;
    options.sglang.clip_max_new_tokens = 2;
    SglangEngine::new(&options, role, 1, inputs(asked, 1), false)
}

fn ms(ms: f64) -> SimTime {
    SimTime::from_ms(ms).unwrap()
}

/// Passes until nothing can go on; the ends of requests with their numbers of tokens.
fn run(engine: &mut SglangEngine, mut now: SimTime) -> Vec<(SimTime, u32, u32)> {
    let (mut signals, mut ends) = (Signals::default(), Vec::new());
    while let Some(end) = engine.start_pass(now, Cadence::Free, &mut signals).unwrap() {
        now = end;
        engine.complete_pass(&mut signals);
        for output in signals.outputs.drain(..) {
            match output {
                Output::PromptComputed(request) => ends.push((now, request.0, 0)),
                Output::Completed(request, stamps) | Output::Rejected(request, stamps) => {
                    ends.push((now, request.0, stamps.count));
                }
                Output::FirstToken(_) => {}
            }
        }
    }
    ends
}

fn granted(engine: &mut SglangEngine) -> Vec<Reservation> {
    let mut granted = Vec::new();
    engine.grant_reservations(&mut granted);
    granted
}

#[test]
fn a_prefill_engine_keeps_pages_until_they_are_fetched() {
    let asked: Vec<Asked> = (0..3).map(|number| (0, own_prompt(number, 6), 9)).collect();
    let mut engine = engine(Role::Prefill, &asked, 13);
    for request in 0..3 {
        engine.enqueue(RequestId(request));
    }
    // The third has to wait for the pages of another, and that is nobody's mistake.
    assert_eq!(run(&mut engine, ms(0.0)), [(ms(10.0), 0, 0)]);
    assert_eq!(engine.blocks_held(), 6);
    assert!(engine.waiting_for().unwrap().contains("2 waiting"));
    engine.release_source(RequestId(0));
    assert_eq!(run(&mut engine, ms(30.0)), [(ms(40.0), 1, 0)]);
    engine.release_source(RequestId(1));
    assert_eq!(run(&mut engine, ms(50.0)), [(ms(60.0), 2, 0)]);
    engine.release_source(RequestId(2));
    assert_eq!((engine.blocks_held(), engine.waiting_for()), (0, None));
    assert_eq!(engine.counters().committed_prefill_tokens, 18);
}

#[test]
fn a_decode_engine_generates_into_what_it_set_aside() {
    let asked = [(0, own_prompt(0, 4), 3), (0, own_prompt(0, 4), 3), (0, own_prompt(2, 30), 1)];
    let mut engine = engine(Role::Decode, &asked, 20);
    for request in 0..3 {
        engine.ask_for_reservation(RequestId(request));
    }
    let first = Reservation::Granted { request: RequestId(0), new_blocks: 4 };
    // What is on its way is not in the cache yet, so the second needs pages of its own.
    let second = Reservation::Granted { request: RequestId(1), new_blocks: 4 };
    let third = Reservation::Refused { request: RequestId(2) };
    assert_eq!(granted(&mut engine), [first, second, third]);
    assert_eq!(engine.blocks_held(), 8);
    assert_eq!(run(&mut engine, ms(0.0)), []);
    engine.activate(RequestId(0));
    engine.activate(RequestId(1));
    assert_eq!(engine.blocks_held(), 4);
    assert_eq!(run(&mut engine, ms(10.0)), [(ms(16.0), 0, 3), (ms(16.0), 1, 3)]);
    assert_eq!((engine.blocks_held(), engine.waiting_for()), (0, None));
    assert_eq!(engine.counters().committed_prefill_tokens, 0);
}

#[test]
fn a_reservation_waits_for_room_and_can_be_given_up() {
    let asked: Vec<Asked> = (0..2).map(|number| (0, own_prompt(number, 8), 2)).collect();
    let mut engine = engine(Role::Decode, &asked, 14);
    engine.ask_for_reservation(RequestId(0));
    engine.ask_for_reservation(RequestId(1));
    assert_eq!(granted(&mut engine).len(), 1);
    assert_eq!(granted(&mut engine), []);
    // Its prompt turned out to be rejected elsewhere.
    engine.release_source(RequestId(0));
    assert_eq!(engine.blocks_held(), 0);
    assert_eq!(granted(&mut engine), [Reservation::Granted { request: RequestId(1), new_blocks: 8 }]);
    engine.activate(RequestId(1));
    assert_eq!(run(&mut engine, ms(0.0)), [(ms(4.0), 1, 2)]);
}

#[test]
fn a_decode_engine_takes_retracted_requests_back_without_a_prompt_pass() {
    let asked: Vec<Asked> = (0..2).map(|number| (0, own_prompt(number, 4), 10)).collect();
    let mut engine = engine(Role::Decode, &asked, 16);
    for request in 0..2 {
        engine.ask_for_reservation(RequestId(request));
    }
    assert_eq!(granted(&mut engine).len(), 2);
    for request in 0..2 {
        engine.activate(RequestId(request));
    }
    // Four tokens each fill the cache. The first goes back to the queue, and from the end of the other at 20 ms on needs
    // six more passes.
    assert_eq!(run(&mut engine, ms(0.0)), [(ms(20.0), 1, 10), (ms(32.0), 0, 10)]);
    assert_eq!(engine.counters().preemptions, 1);
    assert_eq!(engine.counters().passes, 16);
}
