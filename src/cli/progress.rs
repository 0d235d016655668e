//! How far a search is, on a terminal.

use indicatif::{ProgressBar, ProgressStyle};

use super::results::figure;
use crate::search::{Outcome, StudyEvent, Tally, Watcher};

/// A bar on standard error: candidates found of those aimed for, and the best score so far.
pub(super) struct ProgressOnTerminal {
    bar: ProgressBar,
    tally: Tally,
    best: Option<f64>,
}

impl ProgressOnTerminal {
    pub(super) fn new() -> Self {
        let template = "{elapsed_precise} {wide_bar} {pos}/{len} {msg}";
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::new(0).with_style(style);
        Self { bar, tally: Tally::default(), best: None }
    }

    fn count(&mut self, outcome: Outcome, score: Option<f64>) {
        self.tally.count(outcome);
        self.bar.inc(u64::from(matches!(outcome, Outcome::Feasible | Outcome::Screened)));
        if outcome == Outcome::Feasible {
            self.best = self.best.into_iter().chain(score).reduce(f64::max);
        }
        let rejected = self.tally.infeasible + self.tally.failed + self.tally.unsupported;
        let best = self.best.map(|best| format!(", best score {}", figure(best))).unwrap_or_default();
        self.bar.set_message(format!("{} feasible, {rejected} not{best}", self.tally.feasible));
    }
}

impl Watcher for ProgressOnTerminal {
    fn notice(&mut self, event: &StudyEvent) {
        match event {
            StudyEvent::Started { aim, .. } => self.bar.inc_length(*aim),
            StudyEvent::Committed(record) => self.count(record.outcome, record.score),
            StudyEvent::Ended { .. } => {}
        }
    }
}

impl Drop for ProgressOnTerminal {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
