//! The names that files use for the values of closed types.

use super::presets::PredictorFamily;
use super::scenario::{
    Backend, DeploymentMode, KvEvictionPolicy, KvTransferTiming, LinkSharing, MixedPasses, PoolName,
    PreemptionMode, SglangSchedulePolicy, TraceFormat, TraceTimeUnit, UnevenPrompts, ZeroOutput,
};
use super::search::OptimizationTarget;
use super::value::{Named, name_of};
use super::workload_form::ArrivalKind;

impl Named for DeploymentMode {
    const NAMES: &'static [(&'static str, Self)] = &[("disagg", Self::Disagg), ("agg", Self::Agg)];
}

impl DeploymentMode {
    /// The name that files use.
    pub fn name(self) -> &'static str {
        name_of(self)
    }
}

impl Named for Backend {
    const NAMES: &'static [(&'static str, Self)] =
        &[("vllm", Self::Vllm), ("sglang", Self::Sglang), ("trtllm", Self::Trtllm)];
}

impl Backend {
    /// The name that files use.
    pub fn name(self) -> &'static str {
        name_of(self)
    }
}

impl Named for PoolName {
    const NAMES: &'static [(&'static str, Self)] =
        &[("agg", Self::Agg), ("prefill", Self::Prefill), ("decode", Self::Decode)];
}

impl Named for MixedPasses {
    const NAMES: &'static [(&'static str, Self)] = &[("shared", Self::Shared), ("summed", Self::Summed)];
}

impl Named for UnevenPrompts {
    const NAMES: &'static [(&'static str, Self)] = &[("each", Self::Each), ("mean", Self::Mean)];
}

impl Named for PreemptionMode {
    const NAMES: &'static [(&'static str, Self)] = &[("lifo", Self::Lifo), ("fifo", Self::Fifo)];
}

impl Named for KvEvictionPolicy {
    const NAMES: &'static [(&'static str, Self)] = &[("lru", Self::Lru), ("belady", Self::Belady)];
}

impl Named for SglangSchedulePolicy {
    const NAMES: &'static [(&'static str, Self)] = &[("fifo", Self::Fifo), ("lpm", Self::Lpm)];
}

impl Named for LinkSharing {
    const NAMES: &'static [(&'static str, Self)] =
        &[("none", Self::None), ("fair", Self::Fair), ("fifo", Self::Fifo)];
}

impl Named for KvTransferTiming {
    const NAMES: &'static [(&'static str, Self)] =
        &[("full_prompt", Self::FullPrompt), ("destination_missing", Self::DestinationMissing)];
}

impl Named for TraceTimeUnit {
    const NAMES: &'static [(&'static str, Self)] =
        &[("ms", Self::Ms), ("s", Self::S), ("us", Self::Us), ("ns", Self::Ns)];
}

impl Named for ZeroOutput {
    const NAMES: &'static [(&'static str, Self)] =
        &[("drop", Self::Drop), ("prefill_only", Self::PrefillOnly)];
}

impl Named for TraceFormat {
    const NAMES: &'static [(&'static str, Self)] = &[
        ("mooncake", Self::Mooncake),
        ("dynamo", Self::Dynamo),
        ("azure", Self::Azure),
        ("splitwise", Self::Splitwise),
        ("burstgpt", Self::BurstGpt),
        ("llmservingsim", Self::LlmServingSim),
        ("lengths", Self::Lengths),
        ("vllm", Self::Vllm),
        ("aiperf", Self::Aiperf),
        ("columns", Self::Columns),
    ];
}

impl TraceTimeUnit {
    /// The name that files and the command line use.
    pub fn name(self) -> &'static str {
        name_of(self)
    }
}

impl TraceFormat {
    /// The name that files and the command line use.
    pub fn name(self) -> &'static str {
        name_of(self)
    }
}

impl Named for ArrivalKind {
    const NAMES: &'static [(&'static str, Self)] =
        &[("fixed", Self::Fixed), ("poisson", Self::Poisson), ("gamma", Self::Gamma), ("burst", Self::Burst)];
}

impl Named for PredictorFamily {
    const NAMES: &'static [(&'static str, Self)] = &[
        ("constant", Self::Constant),
        ("arima", Self::Arima),
        ("prophet", Self::Prophet),
        ("kalman", Self::Kalman),
    ];
}

impl Named for OptimizationTarget {
    const NAMES: &'static [(&'static str, Self)] = &[
        ("throughput", Self::Throughput),
        ("throughput_per_gpu", Self::ThroughputPerGpu),
        ("throughput_per_user", Self::ThroughputPerUser),
        ("e2e_latency", Self::E2eLatency),
        ("goodput", Self::Goodput),
        ("goodput_per_gpu", Self::GoodputPerGpu),
        ("pareto", Self::Pareto),
    ];
}

#[cfg(test)]
mod tests {
    use serde::Serialize;

    use super::*;

    fn assert_agree<T: Named + Serialize>() {
        for (name, value) in T::NAMES {
            assert_eq!(serde_json::to_value(value).expect("is a name"), *name);
        }
    }

    #[test]
    fn values_are_written_under_the_names_that_are_read() {
        assert_agree::<DeploymentMode>();
        assert_agree::<Backend>();
        assert_agree::<PreemptionMode>();
        assert_agree::<KvEvictionPolicy>();
        assert_agree::<SglangSchedulePolicy>();
        assert_agree::<KvTransferTiming>();
        assert_agree::<LinkSharing>();
        assert_agree::<TraceTimeUnit>();
        assert_agree::<ZeroOutput>();
        assert_agree::<TraceFormat>();
        assert_agree::<PredictorFamily>();
        assert_agree::<OptimizationTarget>();
    }
}
