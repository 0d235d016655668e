//! The words in which the built-in policies account for a tick, as `scaling.jsonl` holds them.

/// Defines words with their meanings; each is written in one way only.
macro_rules! terms {
    ($(#[$about:meta])* $name:ident { $($(#[$meaning:meta])* $term:ident => $text:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum $name {
            $($(#[$meaning])* $term,)+
        }

        impl $name {
            /// As it is written.
            pub(super) const fn text(self) -> &'static str {
                match self {
                    $(Self::$term => $text,)+
                }
            }

            #[cfg(test)]
            const ALL: &'static [Self] = &[$(Self::$term,)+];
        }
    };
}

terms! {
    /// What decided.
    Rule {
        /// Throughput scaling, ahead of forecast traffic.
        Throughput => "throughput",
        /// Load scaling, after measured load.
        Load => "load",
        /// Nothing wanted a change.
        None => "none",
        /// The fleet was outside its bounds and is brought back, although nothing wanted a change.
        Repair => "repair",
        /// Arrivals and backlog.
        Demand => "demand",
        /// The requests to come.
        Foresight => "foresight",
    }
}

terms! {
    /// Why a part of a policy wanted what it did.
    Reason {
        /// As many workers as the forecast traffic needs.
        Forecast => "forecast",
        /// There is no window of traffic.
        NoTrafficWindow => "no_traffic_window",
        /// The forecaster has no answer.
        PredictFailed => "predict_failed",
        /// The model of passes does not know yet what a worker can do.
        ModelNotReady => "model_not_ready",
        /// A pool shall grow.
        ScaleUp => "scale_up",
        /// A pool shall shrink.
        ScaleDown => "scale_down",
        /// The present number is right.
        NoChange => "no_change",
        /// Nothing was measured, or too little was learnt.
        InsufficientData => "insufficient_data",
        /// Workers are starting.
        ScalingInProgress => "scaling_in_progress",
        /// Passes of some workers are missing.
        WorkerCountMismatch => "worker_count_mismatch",
        /// What arrives.
        Arrivals => "arrivals",
        /// What arrives, and what has piled up.
        ArrivalsAndBacklog => "arrivals_and_backlog",
        /// What is going to arrive.
        WorkToCome => "work_to_come",
    }
}

terms! {
    /// What kept a decision from being what was proposed.
    Clamp {
        /// The largest step.
        MaxStep => "max_throughput_scaling_replicas",
        /// The greatest number of GPUs, on a target of throughput scaling.
        MaxGpuBudget => "max_gpu_budget",
        /// The fewest workers.
        MinEndpoint => "min_endpoint",
        /// What throughput scaling allows load scaling to go down to.
        ThroughputBound => "throughput_bound",
        /// The GPU budget, on what was wanted.
        GpuBudget => "gpu_budget",
        /// The GPU budget, which the present number is outside of.
        Reconcile => "reconcile",
        /// The budget or the fewest workers, on the decision at last.
        Bounds => "bounds",
    }
}

impl Clamp {
    /// As they are written.
    pub(super) fn texts(clamps: Vec<Self>) -> Vec<&'static str> {
        clamps.into_iter().map(Self::text).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first column of the table in the documentation whose first heading is this.
    fn documented(heading: &str) -> Vec<&'static str> {
        let text = include_str!("../../../docs/planner.md");
        let head = format!("| `{heading}` | ");
        let table = text.lines().skip_while(|line| !line.starts_with(&head)).skip(2);
        let rows = table.take_while(|line| line.starts_with('|'));
        rows.map(|row| row.split('`').nth(1).unwrap_or_else(|| panic!("{row}"))).collect()
    }

    #[test]
    fn every_word_is_documented_and_no_other() {
        let rules: Vec<_> = Rule::ALL.iter().map(|rule| rule.text()).collect();
        let reasons: Vec<_> = Reason::ALL.iter().map(|reason| reason.text()).collect();
        assert_eq!(documented("rule"), rules);
        assert_eq!(documented("reason"), reasons);
        assert_eq!(documented("clamped_by"), Clamp::texts(Clamp::ALL.to_vec()));
    }
}
