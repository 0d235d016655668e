//! Random small deployments under random small loads: both arms have to say the same about every one of them.
//!
//! `SPICA_PROPERTY_CASES` sets how many are tried (300 when unset) and `SPICA_PROPERTY_SEED` which (1 when unset). A failure prints the
//! smallest setting that still fails.

mod setting;
mod written;

use std::cell::Cell;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestError, TestRunner};
use spica::report::record::{RequestRecord, RunRecord, Status};
use spica::workload::Workload;

use crate::slow::{self, SlowRun};
use crate::support::{arms, scenario};
use setting::{Setting, settings};

impl Setting {
    /// The workload and what both arms make of it.
    fn replay(&self) -> (Arc<Workload>, SlowRun, RunRecord) {
        let scenario = self.scenario();
        let workload = Arc::new(scenario::workload(&scenario, None));
        let slow = slow::run(&scenario, &workload).expect("what is drawn is covered");
        let fast = arms::fast(&scenario, &workload);
        (workload, slow, fast)
    }
}

#[test]
fn both_arms_agree_on_whatever_is_asked() {
    let cases = number("SPICA_PROPERTY_CASES", 300);
    let seed = number("SPICA_PROPERTY_SEED", 1);
    println!("{cases} settings from seed {seed}");
    let config = Config {
        cases: u32::try_from(cases).expect("a modest number of cases"),
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..Config::default()
    };
    let seen = Cell::new(Seen::default());
    let outcome = TestRunner::new(config).run(&settings(), |setting| {
        let (workload, slow, fast) = setting.replay();
        let wrong = faults(&setting, &workload, &slow, &fast);
        prop_assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        let forgetful = arms::forgetful(&setting.scenario(), &workload);
        prop_assert_eq!(&forgetful.requests, &fast.requests, "passes that are forgotten change nothing");
        prop_assert_eq!(forgetful.counters, fast.counters);
        seen.set(seen.get().and(&slow));
        Ok(())
    });
    match outcome {
        Err(TestError::Fail(reason, setting)) => panic!("seed {seed}: {reason}\n{setting:?}"),
        Err(abort) => panic!("seed {seed}: {abort}"),
        Ok(()) => {}
    }
    let seen = seen.get();
    println!("{seen:?}");
    // What is drawn has to be worth trying.
    let least = [seen.preempted, seen.evicted, seen.reused, seen.rejected, seen.unfinished].into_iter().min();
    assert!(cases < 100 || least > Some(cases / 50), "too plain: {seen:?}");
}

/// How many of the settings tried showed what.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    preempted: u64,
    evicted: u64,
    reused: u64,
    rejected: u64,
    unfinished: u64,
}

impl Seen {
    fn and(self, run: &SlowRun) -> Self {
        let any = |with: &dyn Fn(&RequestRecord) -> bool| u64::from(run.record.requests.iter().any(with));
        Self {
            preempted: self.preempted + u64::from(run.record.counters.preemptions > 0),
            evicted: self.evicted + u64::from(run.record.counters.evictions > 0),
            reused: self.reused + any(&|request| request.max_reused_tokens > 0),
            rejected: self.rejected + any(&|request| request.status == Status::Rejected),
            unfinished: self.unfinished + any(&|request| request.status == Status::Unfinished),
        }
    }
}

fn faults(setting: &Setting, workload: &Workload, slow: &SlowRun, fast: &RunRecord) -> Vec<String> {
    let mut wrong = broken_laws(setting, workload, slow);
    wrong.extend(arms::differences(workload, &slow.record, fast));
    wrong
}

/// What holds for every run, whoever makes it.
fn broken_laws(setting: &Setting, workload: &Workload, run: &SlowRun) -> Vec<String> {
    let mut broken = Vec::new();
    for (index, record) in run.record.requests.iter().enumerate() {
        let asked = &workload.requests[index];
        let tokens = &run.tokens[index];
        let room = setting.longest().saturating_sub(asked.input_length);
        let whole = asked.output_length.min(room) as usize;
        let mut law = |holds: bool, what: &str| {
            if !holds {
                broken.push(format!("{what}: {record:?}"));
            }
        };
        law(tokens.is_sorted(), "tokens leave in order");
        law(tokens.len() <= whole, "nobody gets more than asked for");
        law(record.status != Status::Completed || tokens.len() == whole, "a completed request is whole");
        law(
            record.status != Status::Completed || record.terminal >= record.last_token,
            "the last token is not late",
        );
        law(record.first_admit.is_none() || record.first_admit >= record.arrival, "nobody is admitted early");
        let known = asked.input_length + record.output_tokens;
        law(record.max_reused_tokens <= known, "no more is reused than there is");
    }
    broken
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a whole number"))
}
