//! Settings on which the arms once differed.

use spica::report::Summary;
use spica::report::record::RunRecord;

use super::faults;
use super::setting::{Engine, Pool, Session, Setting, Sglang, Speculation, Transfer, Turn};
use crate::support::arms;

/// One worker with three blocks.
const PLAIN: Pool = Pool {
    workers: 1,
    dp_size: 1,
    prefill_schedule_interval: 1,
    num_gpu_blocks: 3,
    max_num_seqs: None,
    max_num_batched_tokens: None,
    max_model_len: None,
    no_chunking: false,
    no_prefix_caching: false,
    fifo: false,
    fixed_half_ms: None,
};

/// SGLang with one token to a page, of which there are no more than a pool's blocks.
const SGLANG: Sglang = Sglang {
    page_size: 1,
    more_pages: 0,
    lpm: false,
    max_prefill_tokens: 16384,
    chunk_pages: None,
    clip_max_new_tokens: 1,
    conservativeness_percent: 100,
    prefill_decode_interval: 0,
};

/// One worker with three blocks of two tokens, and sessions of (prompt, output) turns that all start at once.
fn plain(sessions: &[&[(u32, u32)]]) -> Setting {
    let turn = |&(input_length, output_length): &(u32, u32)| Turn {
        delay_ms: 0,
        input_length,
        output_length,
        chunks: None,
        dp_rank: None,
    };
    Setting {
        engine: Engine::Vllm,
        block_size: 1,
        speculation: None,
        first_token_decode: false,
        speedup: 1,
        decode_speedup: 1,
        pool: PLAIN,
        decode: None,
        concurrency: None,
        max_sim_time_ms: None,
        tokens_per_chunk: 1,
        sessions: sessions
            .iter()
            .map(|turns| Session { arrival_ms: 0, turns: turns.iter().map(turn).collect() })
            .collect(),
    }
}

fn assert_agreement(setting: &Setting) {
    let (workload, slow, fast) = setting.replay();
    let wrong = faults(setting, &workload, &slow, &fast);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A resumed request finds 20 tokens of its own again, 15 of them of its prompt: all 20 are reused, as in the reference.
#[test]
fn a_resumed_request_reuses_what_it_generated_too() {
    assert_agreement(&Setting {
        block_size: 3,
        pool: Pool { num_gpu_blocks: 8, fifo: true, ..PLAIN },
        ..plain(&[&[(15, 7)], &[(3, 7)]])
    });
}

/// The time limit finds the second request preempted and waiting, with nine tokens sent.
#[test]
fn a_preempted_request_keeps_its_tokens_when_the_run_is_cut() {
    assert_agreement(&Setting {
        block_size: 2,
        speedup: 3,
        decode_speedup: 3,
        max_sim_time_ms: Some(39),
        ..plain(&[&[(3, 2)], &[(1, 10)], &[(1, 2)], &[(1, 4)]])
    });
}

/// At 1.0 ms worker 0 starts a pass, then worker 1 one of no length, which rejects its request; the follow-up of that
/// arrives at worker 0 after the start of its pass and has to wait for the next.
#[test]
fn a_pass_that_has_started_is_not_joined() {
    assert_agreement(&Setting {
        pool: Pool { workers: 2, num_gpu_blocks: 8, fixed_half_ms: Some((1, 1)), ..PLAIN },
        concurrency: Some(2),
        ..plain(&[&[(17, 0), (1, 4)], &[(1, 2)], &[(17, 0), (1, 0)]])
    });
}

/// A pass that the time limit cuts off counts nothing: neither itself nor its evictions.
#[test]
fn counters_do_not_depend_on_how_passes_were_computed() {
    let turns: &[&[(u32, u32)]] = &[&[(8, 1)], &[(12, 1)]];
    assert_agreement(&Setting {
        pool: Pool { num_gpu_blocks: 6, max_num_seqs: Some(1), fixed_half_ms: Some((20, 2)), ..PLAIN },
        max_sim_time_ms: Some(15),
        ..plain(turns)
    });
}

/// Rank 1 of worker 0 rejects a request while rank 0 has several decode passes before it: the group passes together, one at a time.
#[test]
fn a_pass_that_only_rejects_is_one_pass_of_the_group() {
    assert_agreement(&Setting {
        pool: Pool { workers: 2, dp_size: 2, num_gpu_blocks: 10, fixed_half_ms: Some((1, 1)), ..PLAIN },
        ..plain(&[&[(1, 3)], &[(21, 0), (21, 0)]])
    });
}

/// The first request has outgrown the decode pool and gives way; the blocks go to who asked for them before the next pass.
#[test]
fn blocks_given_up_go_to_who_asks_before_the_next_pass() {
    let pool = Pool { num_gpu_blocks: 5, ..PLAIN };
    assert_agreement(&Setting {
        pool: pool.clone(),
        decode: Some((pool, Transfer::LatencyHalfMs(0))),
        ..plain(&[&[(3, 9)], &[(7, 1)]])
    });
}

/// The first prompt is still on its way when the second asks: what the first may come to need is not given away.
#[test]
fn what_was_promised_to_a_prompt_on_its_way_is_kept_for_it() {
    let pool = Pool { num_gpu_blocks: 4, ..PLAIN };
    assert_agreement(&Setting {
        engine: Engine::Trtllm,
        pool: Pool { num_gpu_blocks: 10, ..PLAIN },
        decode: Some((pool, Transfer::LatencyHalfMs(10))),
        ..plain(&[&[(2, 5)], &[(4, 1)]])
    });
}

/// The third request arrives on a decode rank whose group leaves prompts for later passes; it has none to compute.
#[test]
fn a_prompt_that_has_arrived_is_not_deferred() {
    let decode = Pool {
        dp_size: 2,
        prefill_schedule_interval: 4,
        num_gpu_blocks: 20,
        fixed_half_ms: Some((2, 2)),
        ..PLAIN
    };
    let mut setting = Setting {
        pool: Pool { dp_size: 1, prefill_schedule_interval: 1, ..decode.clone() },
        decode: Some((decode, Transfer::LatencyHalfMs(0))),
        ..plain(&[&[(2, 12)], &[(2, 1)], &[(2, 2)]])
    };
    setting.sessions[2].arrival_ms = 5;
    assert_agreement(&setting);
}

/// Whether a rank lacked blocks is found out anew in every pass in which prompts have their turn, also in one that was planned
/// together with others.
#[test]
fn a_turn_without_prompts_ends_the_want_of_blocks() {
    let mut setting = Setting {
        speedup: 2,
        decode_speedup: 2,
        pool: Pool { dp_size: 2, prefill_schedule_interval: 3, num_gpu_blocks: 28, ..PLAIN },
        block_size: 2,
        ..plain(&[
            &[(1, 11)],
            &[(1, 9), (1, 0)],
            &[(6, 4), (1, 6), (1, 0)],
            &[(1, 0), (38, 3)],
            &[(17, 10), (1, 4)],
            &[(2, 7)],
        ])
    };
    setting.sessions[2].turns[2].delay_ms = 1;
    setting.sessions[3].turns[1].delay_ms = 26;
    setting.sessions[4].turns[1].dp_rank = Some(0);
    setting.sessions[5].turns[0].dp_rank = Some(0);
    setting.sessions[5].arrival_ms = 1;
    assert_agreement(&setting);
}

/// Under FIFO those in front give way, and everybody behind moves up: all of them get blocks for their drafts.
#[test]
fn nobody_is_passed_over_when_drafts_get_their_blocks() {
    let mut setting = Setting {
        block_size: 3,
        speedup: 2,
        speculation: Some(Speculation { drafts: 2, rates: None }),
        pool: Pool { workers: 2, num_gpu_blocks: 17, fifo: true, ..PLAIN },
        ..plain(&[&[(9, 1)], &[(23, 6)], &[(1, 0)], &[(1, 12)], &[(21, 5)], &[(1, 0)], &[(1, 0)]])
    };
    for (session, arrival_ms) in [(1, 40), (4, 24), (5, 24)] {
        setting.sessions[session].arrival_ms = arrival_ms;
    }
    assert_agreement(&setting);
}

/// A prompt that has arrived finds no room for drafts beside another on its way: it gives its blocks up once, and waits.
#[test]
fn who_lacks_room_for_drafts_gives_way_once() {
    let decode = Pool { dp_size: 2, num_gpu_blocks: 13, ..PLAIN };
    assert_agreement(&Setting {
        speedup: 3,
        speculation: Some(Speculation { drafts: 1, rates: None }),
        pool: Pool { workers: 2, dp_size: 2, num_gpu_blocks: 14, ..PLAIN },
        decode: Some((decode, Transfer::Link { bytes_per_token: 350, missing_only: false, fifo: false })),
        ..plain(&[&[(1, 2)], &[(1, 0)], &[(23, 0)]])
    });
}

/// The second prompt begins like the first, and fits beside it once that has arrived at the idle decode worker.
#[test]
fn what_has_arrived_makes_room_at_once() {
    let mut setting = Setting {
        engine: Engine::Sglang(SGLANG),
        pool: Pool { num_gpu_blocks: 40, ..PLAIN },
        decode: Some((Pool { num_gpu_blocks: 18, ..PLAIN }, Transfer::LatencyHalfMs(2))),
        tokens_per_chunk: 7,
        ..plain(&[&[(3, 1)], &[(14, 1)]])
    };
    for session in &mut setting.sessions {
        session.turns[0].chunks = Some(vec![0; 2]);
    }
    assert_agreement(&setting);
}

/// The only request on the decode worker outgrows the cache; the one that asks for pages is given them, and the run goes on.
#[test]
fn who_asks_is_given_the_pages_when_everybody_had_to_go() {
    let pool = Pool { num_gpu_blocks: 25, ..PLAIN };
    assert_agreement(&Setting {
        engine: Engine::Sglang(SGLANG),
        pool: pool.clone(),
        decode: Some((pool, Transfer::LatencyHalfMs(0))),
        ..plain(&[&[(14, 12)], &[(10, 1)]])
    });
}

/// Two follow-ups arrive at one instant at decode workers that both end a pass then, one of them in the middle of a run: pages are
/// set aside, and prompts placed, in the order of arrival.
#[test]
fn pages_are_set_aside_in_the_order_of_arrival() {
    let decode = Pool { workers: 2, num_gpu_blocks: 5, fixed_half_ms: Some((1, 7)), ..PLAIN };
    let mut setting = Setting {
        engine: Engine::Sglang(Sglang {
            page_size: 4,
            more_pages: 19,
            max_prefill_tokens: 1,
            chunk_pages: Some(12),
            conservativeness_percent: 1,
            ..SGLANG
        }),
        pool: Pool { workers: 2, dp_size: 3, num_gpu_blocks: 1, ..PLAIN },
        decode: Some((decode, Transfer::LatencyHalfMs(0))),
        ..plain(&[
            &[(17, 4), (1, 0)],
            &[(1, 0)],
            &[(1, 12), (1, 0)],
            &[(1, 1), (1, 0)],
            &[(1, 5), (1, 0)],
            &[(1, 0), (1, 0)],
            &[(1, 0)],
        ])
    };
    for (session, arrival_ms) in [(1, 17), (2, 1), (5, 17), (6, 1)] {
        setting.sessions[session].arrival_ms = arrival_ms;
    }
    setting.sessions[5].turns[1].delay_ms = 7;
    assert_agreement(&setting);
}

/// The only request on the decode worker does not fit beside prompts on their way, however low the ratio falls: it is tried again
/// when one of these arrives, not before.
#[test]
fn who_does_not_fit_is_tried_again_when_something_happens() {
    let decode = Pool { num_gpu_blocks: 23, no_prefix_caching: true, ..PLAIN };
    let mut setting = Setting {
        engine: Engine::Sglang(Sglang {
            more_pages: 54,
            max_prefill_tokens: 1,
            clip_max_new_tokens: 4096,
            conservativeness_percent: 37,
            ..SGLANG
        }),
        speedup: 3,
        decode_speedup: 2,
        pool: Pool { dp_size: 3, num_gpu_blocks: 1, ..PLAIN },
        decode: Some((decode, Transfer::Link { bytes_per_token: 131, missing_only: false, fifo: false })),
        ..plain(&[
            &[(4, 0)],
            &[(14, 12), (11, 12)],
            &[(1, 2), (1, 14)],
            &[(39, 8)],
            &[(7, 7)],
            &[(10, 1), (1, 2)],
            &[(1, 0), (1, 0)],
        ])
    };
    for session in [0, 2] {
        setting.sessions[session].arrival_ms = 1;
    }
    assert_agreement(&setting);
}

/// A prompt that no prefill worker can compute gives its pages back in the middle of a run: who waits for them is given them at
/// the end of the pass under way.
#[test]
fn pages_given_back_cut_a_run() {
    let decode = Pool { num_gpu_blocks: 40, fixed_half_ms: Some((5, 2)), ..PLAIN };
    let mut setting = Setting {
        engine: Engine::Sglang(SGLANG),
        pool: Pool { max_model_len: Some(20), num_gpu_blocks: 60, fixed_half_ms: Some((5, 2)), ..PLAIN },
        decode: Some((decode, Transfer::LatencyHalfMs(10))),
        ..plain(&[&[(6, 20)], &[(2, 1)], &[(25, 1)], &[(10, 2)]])
    };
    for session in &mut setting.sessions[1..] {
        session.arrival_ms = 9;
    }
    assert_agreement(&setting);
}

/// The run is cut in the decode pass during which a prefill worker refuses a prompt: it is refused, although its pages are still set
/// aside.
#[test]
fn who_was_refused_before_the_run_is_cut_stays_refused() {
    let decode = Pool { num_gpu_blocks: 19, ..PLAIN };
    let mut setting = Setting {
        engine: Engine::Sglang(Sglang {
            more_pages: 44,
            max_prefill_tokens: 13,
            clip_max_new_tokens: 4096,
            conservativeness_percent: 1,
            ..SGLANG
        }),
        decode_speedup: 3,
        pool: Pool { max_model_len: Some(13), num_gpu_blocks: 1, fixed_half_ms: Some((27, 1)), ..PLAIN },
        decode: Some((decode, Transfer::LatencyHalfMs(6))),
        max_sim_time_ms: Some(61),
        ..plain(&[&[(13, 0)], &[(5, 9)], &[(2, 1)], &[(13, 0)], &[(12, 2)], &[(1, 0)], &[(32, 13)]])
    };
    setting.sessions[5].arrival_ms = 1;
    assert_agreement(&setting);
}

/// Passes that are not kept leave every figure as it is, but for percentiles of the gaps: those are off by one part in 65,536 at
/// most.
#[test]
fn forgotten_passes_leave_the_figures() {
    let turns: Vec<(u32, u32)> = (1..40).map(|length| (length, 20 * length)).collect();
    let sessions: Vec<&[(u32, u32)]> = turns.chunks(3).collect();
    let setting = Setting {
        block_size: 15,
        pool: Pool { workers: 2, num_gpu_blocks: 90, ..PLAIN },
        ..plain(&sessions)
    };
    let (workload, _, fast) = setting.replay();
    let forgetful = arms::forgetful(&setting.scenario(), &workload);
    let kept = |run: &RunRecord| run.timelines.iter().map(|timeline| timeline.ends.len()).sum::<usize>();
    assert!(fast.counters.preemptions > 0 && kept(&forgetful) < kept(&fast) / 4, "{}", kept(&forgetful));
    let figures = |run| Summary::new(run, &workload, None).figures();
    for ((name, exact), (_, figure)) in figures(&fast).into_iter().zip(figures(&forgetful)) {
        let (exact, figure) = (exact.value().unwrap_or(-1.0), figure.value().unwrap_or(-1.0));
        assert!((exact - figure).abs() <= exact.abs() / 65_536.0, "{name}: {figure} for {exact}");
    }
}
