//! The journal of a search: one line per committed trial, from which an interrupted search goes on.
//!
//! Nothing else is kept. A search that is resumed makes the same suggestions again and takes what the journal knows of them
//! instead of a replay, so that it ends in the same answer as one that was never interrupted.

use std::fmt::Write;

use serde::Deserialize;
use serde::de::IgnoredAny;
use xxhash_rust::xxh3::Xxh3;

use super::objective::{Metrics, Verdict, judge};
use super::trial::{Evaluation, Outcome};
use crate::config::scenario::{DeploymentMode, Sla};
use crate::config::search::OptimizationGoal;

/// Trials that an earlier run of the same search has committed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Journal {
    /// The trials, from the first on without a gap.
    pub trials: Vec<PastTrial>,
    /// Bytes of the lines that hold them.
    pub length: u64,
    /// Whether a line follows that was not written to its end.
    pub is_torn: bool,
}

/// A committed trial as its line in the journal tells it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct PastTrial {
    trial: u32,
    deployment_mode: DeploymentMode,
    #[serde(default)]
    round: u32,
    evaluation: String,
    outcome: Outcome,
    reason: Option<String>,
    #[serde(default)]
    attainment_so_far: Option<f64>,
    #[serde(default)]
    reached_so_far: Option<Sla>,
    #[serde(default)]
    score: Option<f64>,
    metrics: Option<Metrics>,
}

/// A line that is no line of a journal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct JournalError {
    /// Its number, from 1.
    pub line: usize,
    /// What is wrong.
    pub problem: String,
}

impl Journal {
    /// Reads a journal. What follows the last whole line was cut off when the search was killed and is left out.
    ///
    /// # Errors
    /// The first line that is no trial, unless it is the last and not whole: cut off after whole ones, or the beginning of the
    /// first.
    pub fn read(bytes: &[u8]) -> Result<Self, JournalError> {
        let mut journal = Self::default();
        let mut lines = bytes.split_inclusive(|byte| *byte == b'\n').enumerate().peekable();
        while let Some((place, line)) = lines.next() {
            let parsed = serde_json::from_slice::<PastTrial>(line);
            let is_last = lines.peek().is_none();
            let is_json = parsed.is_ok() || serde_json::from_slice::<IgnoredAny>(line).is_ok();
            let is_torn = line.last() != Some(&b'\n') || (is_last && !is_json);
            if is_torn && (place > 0 || begins_a_trial(line)) {
                journal.is_torn = true;
                break;
            }
            let fail = |problem| JournalError { line: place + 1, problem };
            let trial = parsed.map_err(|error| fail(format!("is no trial of a search: {error}")))?;
            if trial.trial as usize != place + 1 {
                return Err(fail(format!("is trial {}, not trial {}", trial.trial, place + 1)));
            }
            journal.length += line.len() as u64;
            journal.trials.push(trial);
        }
        Ok(journal)
    }
}

/// Whether this is what is left of a first line that was being written.
fn begins_a_trial(line: &[u8]) -> bool {
    const BEGINNING: &[u8] = b"{\"trial\":";
    line.last() != Some(&b'\n') && (line.starts_with(BEGINNING) || BEGINNING.starts_with(line))
}

impl PastTrial {
    /// Whether its outcome and its score are what its figures come to under a goal.
    pub(super) fn agrees_with_itself(&self, goal: &OptimizationGoal) -> bool {
        let Some(metrics) = &self.metrics else { return true };
        let (outcome, worth) = match judge(goal, metrics) {
            Verdict::Feasible(worth) => (Outcome::Feasible, Some(worth)),
            Verdict::BelowBar(worth, _) => (Outcome::Infeasible, Some(worth)),
            Verdict::Unscored(_) => (Outcome::Failed, None),
        };
        // A first look at it on a portion of the requests keeps the score, whatever came of it.
        let is_screened = self.outcome == Outcome::Screened && worth.is_some();
        let score = worth.filter(|_| is_screened || outcome == Outcome::Feasible).map(|worth| worth.score);
        (is_screened || self.outcome == outcome) && self.score == score
    }

    /// Its number in the whole search.
    pub(super) fn trial(&self) -> u32 {
        self.trial
    }

    /// The round of its branch that it belongs to, from 1.
    pub(super) fn round(&self) -> u32 {
        self.round
    }

    /// Its branch.
    pub(super) fn mode(&self) -> DeploymentMode {
        self.deployment_mode
    }

    /// What became of the evaluation with this key; `None` if it was another one that this trial evaluated.
    pub(super) fn recall(&self, key: &str) -> Option<Evaluation> {
        if self.evaluation != key {
            return None;
        }
        let reason = || self.reason.clone().unwrap_or_default();
        match (&self.metrics, self.outcome) {
            (Some(metrics), _) => Some(Evaluation::Measured(metrics.clone())),
            (None, Outcome::Infeasible) if self.attainment_so_far.is_some() => {
                let attainment_so_far = self.attainment_so_far?;
                let reached_so_far = self.reached_so_far.unwrap_or_default();
                Some(Evaluation::BelowBar { reason: reason(), attainment_so_far, reached_so_far })
            }
            (None, Outcome::Infeasible) => Some(Evaluation::Infeasible(reason())),
            (None, Outcome::StoppedEarly) => Some(Evaluation::StoppedEarly(reason())),
            (None, Outcome::Failed) => Some(Evaluation::Failed(reason())),
            (None, Outcome::Feasible | Outcome::Unsupported | Outcome::CacheHit | Outcome::Screened) => None,
        }
    }

    /// Whether it was the evaluation with this key, or repeated it.
    pub(super) fn is(&self, key: &str) -> bool {
        self.evaluation == key
    }
}

/// The key of an evaluation: equal for equal scenarios, requests and circumstances (what prices passes, and what ends replays
/// before their time) in the same version of the program.
pub(super) fn evaluation_key(scenario: &str, circumstances: &str, requests: u64) -> String {
    let mut hash = Hash::default();
    for part in [env!("CARGO_PKG_VERSION"), scenario, circumstances, &requests.to_string()] {
        hash.write_str(part).expect("hashing cannot fail");
        hash.write_str("\0").expect("hashing cannot fail");
    }
    format!("{:016x}", hash.digest())
}

/// A hash of everything that is written to it, the same on every platform.
#[derive(Default)]
pub(super) struct Hash(Xxh3);

impl Hash {
    pub(super) fn digest(&self) -> u64 {
        self.0.digest()
    }
}

impl Write for Hash {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.update(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(trial: u32, rest: &str) -> String {
        format!(
            "{{\"trial\": {trial}, \"deployment_mode\": \"agg\", \"evaluation\": \"k{trial}\", {rest}}}\n"
        )
    }

    fn feasible(trial: u32) -> String {
        line(trial, "\"outcome\": \"feasible\", \"reason\": null, \"metrics\": {\"x\": 0.1}")
    }

    #[test]
    fn whole_lines_are_read_wherever_the_end_is_cut_off() {
        let text = feasible(1) + &feasible(2) + &feasible(3);
        let lengths: Vec<usize> = text.split_inclusive('\n').map(str::len).collect();
        for cut in 0..=text.len() {
            let journal = Journal::read(&text.as_bytes()[..cut]).unwrap();
            let whole = (0..=3).rev().find(|&lines| lengths[..lines].iter().sum::<usize>() <= cut).unwrap();
            let length: usize = lengths[..whole].iter().sum();
            assert_eq!((journal.trials.len(), journal.length), (whole, length as u64), "cut at {cut}");
            assert_eq!(journal.is_torn, cut > length, "cut at {cut}");
        }
    }

    #[test]
    fn broken_lines_in_the_middle_and_gaps_are_refused() {
        let problem = |text: String| Journal::read(text.as_bytes()).unwrap_err().to_string();
        assert!(problem(feasible(1) + "{\"trial\"\n" + &feasible(3)).starts_with("line 2: is no trial"));
        assert_eq!(problem(feasible(1) + &feasible(3)), "line 2: is trial 3, not trial 2");
        assert!(Journal::read((feasible(1) + "\0\0\n").as_bytes()).unwrap().is_torn);
        for garbage in ["garbage\n", "garbage", "{\"trial\"\n", "{\"a\": 1"] {
            assert!(problem(garbage.into()).starts_with("line 1: is no trial of a search"), "{garbage}");
        }
    }

    #[test]
    fn evaluations_are_recalled_by_their_key() {
        let rejected = line(2, "\"outcome\": \"infeasible\", \"reason\": \"no\", \"metrics\": null");
        let repeated = line(3, "\"outcome\": \"cache_hit\", \"reason\": null, \"metrics\": null");
        let below = "\"outcome\": \"infeasible\", \"reason\": \"no\", \"attainment_so_far\": 0.25, \"reached_so_far\": {\"ttft_ms\": 812.5}, \"metrics\": null";
        let lines = feasible(1) + &rejected + &repeated + &line(4, below);
        let journal = Journal::read(lines.as_bytes()).unwrap();
        let [first, second, third, fourth] = &journal.trials[..] else { panic!() };
        let reached_so_far = Sla { ttft_ms: Some(812.5), ..Sla::default() };
        let below = Evaluation::BelowBar { reason: "no".into(), attainment_so_far: 0.25, reached_so_far };
        assert_eq!(fourth.recall("k4"), Some(below));
        assert!(matches!(first.recall("k1"), Some(Evaluation::Measured(metrics)) if metrics["x"] == 0.1));
        assert_eq!(first.recall("k2"), None);
        assert_eq!(second.recall("k2"), Some(Evaluation::Infeasible("no".into())));
        assert!(third.is("k3") && !third.is("k1") && third.recall("k3").is_none());
    }

    #[test]
    fn keys_tell_scenarios_and_requests_apart() {
        assert_eq!(evaluation_key("a", "t", 1), evaluation_key("a", "t", 1));
        assert_ne!(evaluation_key("a", "t", 1), evaluation_key("a", "t", 2));
        assert_ne!(evaluation_key("a", "t", 1), evaluation_key("a", "u", 1));
        assert_ne!(evaluation_key("a", "t", 1), evaluation_key("b", "t", 1));
        assert_eq!(evaluation_key("a", "t", 1).len(), 16);
    }
}
