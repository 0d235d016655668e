//! `profile_export.jsonl` of AIPerf: a record for each request.

use std::io::{self, BufRead};

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::intake::{Intake, Row};
use super::jsonl::{self, Field};

#[derive(Deserialize)]
struct Record {
    metadata: Metadata,
    metrics: Option<Metrics>,
    error: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(default)]
    request_start_ns: Field,
    request_end_ns: Option<u64>,
    x_request_id: Option<Box<str>>,
    x_correlation_id: Option<Box<str>>,
    benchmark_phase: Option<Box<str>>,
    #[serde(default)]
    was_cancelled: bool,
}

#[derive(Default, Deserialize)]
struct Metrics {
    input_sequence_length: Option<Metric>,
    output_sequence_length: Option<Metric>,
}

#[derive(Deserialize)]
struct Metric {
    #[serde(default)]
    value: Field,
}

pub(super) fn read(text: impl BufRead, intake: &mut Intake<'_>) -> io::Result<()> {
    jsonl::read(text, intake, |place, record: Record, intake| {
        intake.count_row();
        let Record { metadata, metrics, error } = record;
        if error.is_some() || metadata.was_cancelled {
            intake.drop("failed request", place);
            return;
        }
        if metadata.benchmark_phase.as_deref().is_some_and(|phase| phase != "profiling") {
            intake.drop("not of the profiling phase", place);
            return;
        }
        let metrics = metrics.unwrap_or_default();
        let length = |metric: Option<Metric>, name: &str, intake: &mut Intake<'_>| {
            metric.map_or_else(Field::default, |metric| metric.value).length(place, name, intake)
        };
        let arrival = metadata.request_start_ns.whole(place, "request_start_ns", intake);
        let input = length(metrics.input_sequence_length, "input_sequence_length", intake);
        let output = length(metrics.output_sequence_length, "output_sequence_length", intake);
        let (Some(arrival), Some(input), Some(output)) = (arrival, input, output) else { return };
        intake.take(Row {
            end: metadata.request_end_ns,
            session: metadata.x_correlation_id,
            name: metadata.x_request_id,
            ..Row::plain(place, Some(arrival), input, output)
        });
    })
}
