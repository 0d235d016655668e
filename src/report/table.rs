//! A replay on one screen.

use std::fmt::{self, Write};

use super::distribution::Distribution;
use super::figure::{needs_exponent, significant};
use super::record::Counters;
use super::scaling::ScalingSummary;
use super::summary::Summary;
use crate::workload::InputTally;

/// Width of the names at the left.
const NAME: usize = 14;
/// Width of a column of figures.
const COLUMN: usize = 14;

const BOLD: &str = "\x1b[1m";
const YELLOW: &str = "\x1b[33m";
const PLAIN: &str = "\x1b[0m";

/// Whether text carries terminal colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colours {
    /// Plain text.
    Off,
    /// ANSI escapes: names are bold, what went wrong is yellow.
    On,
}

/// The figures of a replay that a reader looks for first, one group to a line, with a line break at the end; `scaling` is how its
/// fleet changed.
pub fn replay_table(
    summary: &Summary,
    counters: &Counters,
    input: &InputTally,
    scaling: Option<&ScalingSummary>,
    colours: Colours,
) -> String {
    let mut table = Table { text: String::new(), colours };
    let all_completed = summary.completed_requests == summary.num_requests;
    table.line("requests", &requests(summary), !all_completed);
    if input.read > 0 {
        let as_written = input.dropped.is_empty() && input.repaired.is_empty() && input.ignored.is_empty();
        table.line("input", &rows(input), !as_written);
    }
    table.line("duration", &format!("{} s", decimal(summary.duration_ms / 1e3)), false);
    table.line("throughput", &throughput(summary), false);
    if let Some(text) = goodput(summary) {
        table.line("goodput", &text, false);
    }
    table.line("GPUs", &gpus(summary, scaling.is_some()), false);
    table.line("reuse", &reuse(summary), false);
    table.line("work", &work(counters), false);
    table.text.push('\n');
    table.columns("", ["mean", "p50", "p90", "p99"].map(str::to_owned));
    table.distribution("TTFT ms", &summary.ttft_ms);
    table.distribution("TPOT ms", &summary.tpot_ms);
    table.distribution("ITL ms", &summary.itl_ms);
    table.distribution("E2E ms", &summary.e2e_latency_ms);
    table.distribution("user tok/s", &summary.output_token_throughput_per_user);
    if let Some(scaling) = scaling {
        table.text.push('\n');
        table.scaling(scaling);
    }
    table.text
}

/// Text under construction.
struct Table {
    text: String,
    colours: Colours,
}

impl Table {
    /// How the fleet changed, a line for each pool.
    fn scaling(&mut self, scaling: &ScalingSummary) {
        for pool in &scaling.pools {
            let scripted = match pool.scripted {
                0 => String::new(),
                scripted => format!(", {} by somebody else", grouped(scripted)),
            };
            let text = format!(
                "{}: {} to {} workers, {} times up, {} times down{scripted} in {} ticks",
                pool.pool.name(),
                pool.fewest_workers,
                pool.most_workers,
                grouped(pool.scale_ups),
                grouped(pool.scale_downs),
                grouped(scaling.ticks),
            );
            self.line("scaling", &text, false);
        }
    }

    /// A name and what is to be said about it, which may ask for attention.
    fn line(&mut self, name: &str, text: &str, attention: bool) {
        self.name(name);
        match self.colours {
            Colours::On if attention => self.push(format_args!("{YELLOW}{text}{PLAIN}\n")),
            _ => self.push(format_args!("{text}\n")),
        }
    }

    /// A name and a row of figures under each other.
    fn columns<const N: usize>(&mut self, name: &str, cells: [String; N]) {
        self.name(name);
        for cell in cells {
            self.push(format_args!("{cell:>COLUMN$}"));
        }
        self.text.push('\n');
    }

    fn distribution(&mut self, name: &str, distribution: &Distribution) {
        let cells = match distribution.statistics {
            Some(statistics) => {
                [statistics.mean, statistics.median, statistics.p90, statistics.p99].map(decimal)
            }
            None => ["-"; 4].map(str::to_owned),
        };
        self.columns(name, cells);
    }

    fn name(&mut self, name: &str) {
        match self.colours {
            Colours::Off => self.push(format_args!("{name:<NAME$}")),
            Colours::On => self.push(format_args!("{BOLD}{name:<NAME$}{PLAIN}")),
        }
    }

    fn push(&mut self, text: fmt::Arguments<'_>) {
        self.text.write_fmt(text).expect("a string takes any text");
    }
}

fn requests(summary: &Summary) -> String {
    format!(
        "{} arrived: {} completed, {} rejected, {} unfinished",
        grouped(summary.num_requests),
        grouped(summary.completed_requests),
        grouped(summary.rejected_requests),
        grouped(summary.unfinished_requests),
    )
}

fn rows(input: &InputTally) -> String {
    let mut text = format!("{} rows read, {} requests made", grouped(input.read), grouped(input.used));
    for (what, kinds) in [("dropped", &input.dropped), ("repaired", &input.repaired)] {
        for (kind, &count) in kinds {
            let _ = write!(text, ", {} {what} ({kind})", grouped(count));
        }
    }
    for (field, &count) in &input.ignored {
        let _ = write!(text, ", {} with {field} ignored", grouped(count));
    }
    text
}

fn throughput(summary: &Summary) -> String {
    format!(
        "{} requests/s, {} output tok/s, {} tok/s with input",
        decimal(summary.request_throughput_rps),
        decimal(summary.output_throughput_tok_s),
        decimal(summary.total_throughput_tok_s),
    )
}

fn goodput(summary: &Summary) -> Option<String> {
    let goodput = summary.goodput.as_ref()?;
    Some(format!(
        "{} requests/s, {} output tok/s, {} of the requests that arrived ({})",
        decimal(goodput.request_throughput_rps),
        decimal(goodput.output_throughput_tok_s),
        percent(goodput.attainment),
        grouped(goodput.completed_requests),
    ))
}

fn gpus(summary: &Summary, can_change: bool) -> String {
    let average = summary.avg_gpu.map_or_else(|| "-".to_owned(), decimal);
    // A fleet that does not change has as many all the time.
    let peak =
        if can_change { format!(", {} at the peak", grouped(summary.peak_gpus)) } else { String::new() };
    format!("{average} on average{peak}, {} GPU hours", decimal(summary.gpu_hours))
}

fn reuse(summary: &Summary) -> String {
    format!(
        "{} of the prompt tokens, {} at first admission",
        percent(summary.prefix_cache_reused_ratio),
        percent(summary.first_admission_prefix_cache_reused_ratio),
    )
}

fn work(counters: &Counters) -> String {
    format!(
        "{} passes, {} prefill tokens, {} evictions, {} preemptions, {} router ties",
        grouped(counters.passes),
        grouped(counters.committed_prefill_tokens),
        grouped(counters.evictions),
        grouped(counters.preemptions),
        grouped(counters.router_ties),
    )
}

/// A share as a percentage, or a dash if it is a share of nothing.
fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

/// A measure with its thousands apart and three decimals, or more where they show three digits of a small one.
fn decimal(measure: f64) -> String {
    if needs_exponent(measure) {
        return significant(measure, 4);
    }
    let decimals = match measure.abs() {
        size if size >= 0.1 || size == 0.0 => 3,
        size => (2.0 - size.log10().floor()).min(9.0) as usize,
    };
    let text = format!("{measure:.decimals$}");
    match text.split_once('.') {
        Some((whole, decimals)) => format!("{}.{decimals}", apart(whole)),
        None => text,
    }
}

/// A whole number with its thousands apart.
fn grouped(count: u64) -> String {
    apart(&count.to_string())
}

/// Digits, after a sign if there is one, with a comma before every third from the end.
fn apart(digits: &str) -> String {
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.char_indices() {
        let left = digits.len() - index;
        if left.is_multiple_of(3) && text.ends_with(|before: char| before.is_ascii_digit()) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::summary::Goodput;

    fn summary() -> Summary {
        Summary {
            num_requests: 12_031,
            completed_requests: 12_028,
            rejected_requests: 1,
            unfinished_requests: 2,
            duration_ms: 3_601_234.5,
            request_throughput_rps: 3.34,
            output_throughput_tok_s: 1_140.25,
            total_throughput_tok_s: 41_402.0,
            goodput: Some(Goodput {
                completed_requests: 11_000,
                request_throughput_rps: 3.054,
                output_throughput_tok_s: 1_000.0,
                attainment: Some(0.914_3),
                by_bound: Vec::new(),
            }),
            gpu_hours: 4.001,
            avg_gpu: Some(4.0),
            prefix_cache_reused_ratio: Some(0.361_8),
            ttft_ms: Distribution::of_times(&mut [1_500_000, 2_000_000_000, 12_345_678_901]),
            ..Summary::default()
        }
    }

    #[test]
    fn the_whole_table() {
        let mut input = InputTally { read: 12_033, used: 12_031, ..InputTally::default() };
        input.dropped.insert("zero output".to_owned(), 2);
        input.repaired.insert("out of order".to_owned(), 1_007);
        input.ignored.insert("priority".to_owned(), 3);
        let counters = Counters { passes: 1_378_454, evictions: 2_069_351, ..Counters::default() };
        let table = replay_table(&summary(), &counters, &input, None, Colours::Off);
        insta::assert_snapshot!(table, @r"
        requests      12,031 arrived: 12,028 completed, 1 rejected, 2 unfinished
        input         12,033 rows read, 12,031 requests made, 2 dropped (zero output), 1,007 repaired (out of order), 3 with priority ignored
        duration      3,601.235 s
        throughput    3.340 requests/s, 1,140.250 output tok/s, 41,402.000 tok/s with input
        goodput       3.054 requests/s, 1,000.000 output tok/s, 91.4 % of the requests that arrived (11,000)
        GPUs          4.000 on average, 4.001 GPU hours
        reuse         36.2 % of the prompt tokens, - at first admission
        work          1,378,454 passes, 0 prefill tokens, 2,069,351 evictions, 0 preemptions, 0 router ties

                                mean           p50           p90           p99
        TTFT ms            4,782.393     2,000.000    12,345.679    12,345.679
        TPOT ms                    -             -             -             -
        ITL ms                     -             -             -             -
        E2E ms                     -             -             -             -
        user tok/s                 -             -             -             -
        ");
    }

    #[test]
    fn nothing_measured_is_a_dash() {
        let table = replay_table(
            &Summary::default(),
            &Counters::default(),
            &InputTally::default(),
            None,
            Colours::Off,
        );
        assert!(table.contains("reuse         - of the prompt tokens"), "{table}");
        assert!(table.lines().any(|line| line.split_whitespace().eq(["ITL", "ms", "-", "-", "-", "-"])));
        assert!(
            !table.contains("goodput") && !table.contains("rows read") && !table.contains("NaN"),
            "{table}"
        );
    }

    #[test]
    fn colours_change_nothing_but_colours() {
        let tables = [Colours::Off, Colours::On].map(|colours| {
            replay_table(&summary(), &Counters::default(), &InputTally::default(), None, colours)
        });
        assert!(!tables[0].contains('\x1b'));
        assert!(tables[1].contains(YELLOW), "requests that did not complete ask for attention");
        let stripped =
            [BOLD, YELLOW, PLAIN].iter().fold(tables[1].clone(), |text, code| text.replace(code, ""));
        assert_eq!(stripped, tables[0]);
    }

    #[test]
    fn thousands_stand_apart() {
        let cases = [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")];
        for (count, text) in cases {
            assert_eq!(grouped(count), text);
        }
        assert_eq!(decimal(-1_234.5), "-1,234.500");
        assert_eq!(decimal(-123.0), "-123.000");
        assert_eq!(decimal(999.999_9), "1,000.000");
        assert_eq!(decimal(0.0), "0.000");
        assert_eq!(decimal(0.000_003_888_9), "0.00000389");
        assert_eq!(decimal(999_999_999_999_999.0), "999,999,999,999,999.000");
        assert_eq!(decimal(1.234_56e15), "1.235e15");
        assert_eq!(decimal(-1e308), "-1e308");
    }
}
