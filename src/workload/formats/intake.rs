//! What all forms have in common: rows become requests, times become offsets, what is left out is counted.

use indexmap::IndexMap;

use super::Options;
use super::cell::{self, Nanoseconds};
use super::guess::other_form;
use crate::config::scenario::TraceTimeUnit;
use crate::config::scenario::{TraceFormat, ZeroOutput};
use crate::simulation::Shown;
use crate::workload::assembly::{Assembly, Chunks, Draft, Ending, Fields, InputKind};
use crate::workload::input::Line;
use crate::workload::interner::Interner;
use crate::workload::problem::{
    Ledger, NO_HASH_IDS, Place, Problems, Warning, WorkloadErrors, ZERO_INPUT, ZERO_OUTPUT, rows,
};
use crate::workload::{Loaded, Prompt, suspicion, synthetic};

/// Longest line in bytes.
pub(super) const LINE_LIMIT: usize = 16 << 20;

/// Unit of time stamps that are numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unit(TraceTimeUnit);

impl Unit {
    /// What the options say, or else the `usual` one of the form.
    pub(super) fn of(options: &Options, usual: TraceTimeUnit) -> Self {
        Self(options.time_unit.unwrap_or(usual))
    }

    /// The time in a table's cell.
    pub(super) fn time(self, text: &str) -> Result<Nanoseconds, String> {
        cell::time(text, self.power())
    }

    /// The time of a number.
    pub(super) fn time_of(self, value: f64) -> Result<Nanoseconds, String> {
        let time = value * 10_f64.powi(self.power() as i32);
        // Above 2^63 a number of nanoseconds is no time stamp of this millennium.
        if (0.0..9.2e18).contains(&time) {
            return Ok(time.round() as Nanoseconds);
        }
        Err(format!("{value} is not a time from 0 on"))
    }

    /// Nanoseconds in it, as a power of ten.
    fn power(self) -> u32 {
        match self.0 {
            TraceTimeUnit::S => 9,
            TraceTimeUnit::Ms => 6,
            TraceTimeUnit::Us => 3,
            TraceTimeUnit::Ns => 0,
        }
    }
}

/// A row whose values are good one by one.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) place: Place,
    pub(super) arrival: Option<Nanoseconds>,
    /// When it ended, if that is on record.
    pub(super) end: Option<Nanoseconds>,
    pub(super) input_length: u32,
    pub(super) output_length: u32,
    pub(super) session: Option<Box<str>>,
    pub(super) name: Option<Box<str>>,
    pub(super) prompt: Prompt,
}

impl Row {
    /// A row of nothing but a time and two lengths.
    pub(super) fn plain(
        place: Place,
        arrival: Option<Nanoseconds>,
        input_length: u32,
        output_length: u32,
    ) -> Self {
        let (end, session, name) = (None, None, None);
        Self { place, arrival, end, input_length, output_length, session, name, prompt: Prompt::UNKNOWN }
    }
}

impl Prompt {
    /// A prompt that shares nothing with any other.
    pub(super) const UNKNOWN: Self = Self { first_chunk: 0, chunks: 0, tokens_per_chunk: 1 };
}

/// Takes rows and problems while a trace is read.
#[derive(Debug)]
pub(super) struct Intake<'o> {
    format: TraceFormat,
    options: &'o Options,
    rows: Vec<Row>,
    pub(super) chunk_ids: Vec<u32>,
    pub(super) interner: Interner,
    problems: Problems,
    ledger: Ledger,
    warnings: Vec<Warning>,
    refusals: Vec<WorkloadErrors>,
    /// Where rows and other events that only count were seen.
    noticed: IndexMap<&'static str, (u64, Place)>,
    /// Tokens of a block, if the file says so, and where it said it first.
    pub(super) block_size: Option<(u32, Place)>,
}

impl<'o> Intake<'o> {
    pub(super) fn new(format: TraceFormat, options: &'o Options) -> Self {
        Self {
            format,
            options,
            rows: Vec::new(),
            chunk_ids: Vec::new(),
            interner: Interner::default(),
            problems: Problems::default(),
            ledger: Ledger::default(),
            warnings: Vec::new(),
            refusals: Vec::new(),
            noticed: IndexMap::new(),
            block_size: None,
        }
    }

    pub(super) fn options(&self) -> &'o Options {
        self.options
    }

    /// Whether no further row is wanted.
    pub(super) fn is_full(&self) -> bool {
        self.options.max_requests.is_some_and(|most| self.ledger.read >= u64::from(most))
    }

    /// A row begins.
    pub(super) fn count_row(&mut self) {
        self.ledger.read += 1;
    }

    pub(super) fn problem(&mut self, place: Place, field: &str, message: impl Into<String>) {
        self.problems.add(place, field, message);
    }

    /// The same with an excerpt of the line.
    pub(super) fn problem_quoting(
        &mut self,
        place: Place,
        message: impl Into<String>,
        excerpt: Option<String>,
    ) {
        self.problems.add_quoting(place, "", message, excerpt);
    }

    /// Adds excerpts of a line that has just been read to its problems, if there were `known` ones before.
    pub(super) fn quote_since(&mut self, known: u64, line: &Line<'_>) {
        if self.problems.total() > known {
            self.problems.quote(line);
        }
    }

    /// Problems of this file so far.
    pub(super) fn problem_count(&self) -> u64 {
        self.problems.total()
    }

    /// Says that the file looks like one of another form.
    pub(super) fn suggest(&mut self, guess: Option<TraceFormat>) {
        if let Some(format) = guess.filter(|format| *format != self.format) {
            self.problems.hint(other_form(format));
        }
    }

    /// The same of a table, which may also be in a form of its own.
    pub(super) fn suggest_among(&mut self, guess: Option<TraceFormat>) {
        if guess.is_none() && self.format != TraceFormat::Columns {
            self.problems.hint(OWN_FORM);
        }
        self.suggest(guess);
    }

    pub(super) fn hint(&mut self, hint: impl Into<String>) {
        self.problems.hint(hint);
    }

    /// The value, or a note of what is wrong with it.
    pub(super) fn good<T>(&mut self, place: Place, field: &str, value: Result<T, String>) -> Option<T> {
        value.map_err(|message| self.problems.add(place, field, message)).ok()
    }

    /// Leaves a row out.
    pub(super) fn drop(&mut self, kind: &str, place: Place) {
        self.ledger.drop(kind, place);
    }

    /// Something in the row has no effect.
    pub(super) fn ignore(&mut self, field: &str, place: Place) {
        self.ledger.ignore(field, place);
    }

    /// Something of this kind looks wrong or is of no use; said once, with a count.
    pub(super) fn notice(&mut self, kind: &'static str, place: Place) {
        self.noticed.entry(kind).or_insert((0, place)).0 += 1;
    }

    /// Takes a row, unless it has nothing to compute.
    pub(super) fn take(&mut self, row: Row) {
        let kind = match (row.input_length, row.output_length, self.options.zero_output) {
            (0, _, _) => Some(ZERO_INPUT),
            (_, 0, ZeroOutput::Drop) => Some(ZERO_OUTPUT),
            _ => None,
        };
        if let Some(kind) = kind {
            self.ledger.drop(kind, row.place);
            return;
        }
        if row.prompt.chunks == 0 {
            self.notice(NO_HASH_IDS, row.place);
        }
        self.rows.push(row);
    }

    /// A file ends; its problems get its name.
    pub(super) fn end_of_file(&mut self, origin: &str) {
        let problems = std::mem::take(&mut self.problems);
        match self.refusals.last_mut() {
            // What a sound file looks like may be why it was read as it should not be.
            Some(refusal) if problems.total() == 0 => refusal.hints.extend(problems.into_hints()),
            _ => self.refusals.extend(problems.into_result(origin).err()),
        }
    }

    /// What is wrong with the files that have ended.
    pub(super) fn into_refusals(self) -> Result<(), Vec<WorkloadErrors>> {
        if self.refusals.is_empty() { Ok(()) } else { Err(self.refusals) }
    }

    pub(super) fn finish(mut self, origin: &str) -> Result<Loaded, Vec<WorkloadErrors>> {
        if !self.refusals.is_empty() {
            return Err(self.refusals);
        }
        let sessions = self.options.sessions;
        if sessions {
            // Logs are in the order of ends; turns follow each other by their beginnings.
            self.rows.sort_by_key(|row| row.arrival);
        }
        self.spread(origin).map_err(|errors| vec![errors])?;
        let suspicious = self.suspicions();
        let origin_ns = self.rows.iter().filter_map(|row| row.arrival).min().unwrap_or(0);
        let to_ms = |time: Nanoseconds| (time - origin_ns) as f64 / 1e6;
        let fields = Fields {
            name: name_field(self.format),
            arrival: arrival_field(self.format),
            delay: "end of the turn before",
        };
        let mut assembly = Assembly::new(self.options.pacing, fields);
        for row in self.rows {
            let draft = Draft {
                place: row.place,
                arrival_ms: row.arrival.map(to_ms),
                delay_ms: None,
                terminal_ms: row.end.filter(|_| sessions).map(to_ms),
                input_length: row.input_length,
                output_length: row.output_length,
                prompt: row.prompt,
                dp_rank: None,
                name: row.name,
                keep: true,
            };
            assembly.push(row.session.as_deref().filter(|_| sessions), draft, &mut self.problems);
        }
        if sessions && self.problems.total() > 0 {
            self.problems
                .hint("turns of one session overlap: read it without sessions, every row at its time");
        }
        let chunks = Chunks { ids: self.chunk_ids, names: self.interner.into_names() };
        let strict = self.options.strict;
        let ending = Ending { origin, strict, ledger: self.ledger, problems: self.problems };
        let mut loaded = assembly.finish(InputKind::Trace, chunks, ending).map_err(|errors| vec![errors])?;
        loaded.workload.input.suspicious = suspicious;
        loaded.warnings.extend(self.warnings);
        let unit = self.options.time_unit.is_none()
            && self.format.usual_time_unit().is_some()
            && self.options.rate.is_none();
        suspicion::note(
            &mut loaded,
            self.options.pacing,
            unit.then_some("if they are not in seconds, give --time-unit"),
        );
        Ok(loaded)
    }

    /// Gives arrivals to rows that have none.
    fn spread(&mut self, origin: &str) -> Result<(), WorkloadErrors> {
        let Some((rate, arrival)) = self.options.rate else { return Ok(()) };
        match synthetic::spread(self.rows.len(), rate, arrival, 1.0) {
            Ok(times) => {
                for (row, time) in self.rows.iter_mut().zip(times) {
                    row.arrival = Some(time.as_ns());
                }
                Ok(())
            }
            Err(error) => {
                let mut problems = Problems::default();
                problems.add(
                    Place::Whole,
                    "request rate",
                    format!("{} requests per second: {error}", Shown(rate)),
                );
                problems.into_result(origin)
            }
        }
    }

    /// Turns what was noticed into warnings; the counts for the report.
    fn suspicions(&mut self) -> IndexMap<String, u64> {
        for (kind, (count, first)) in &self.noticed {
            let message = format!("{kind}: {} (first at {first}){}", rows(*count), explanation(kind));
            self.warnings.push(Warning { kind: (*kind).into(), count: *count, message });
        }
        self.noticed.iter().map(|(kind, (count, _))| ((*kind).to_owned(), *count)).collect()
    }
}

/// Advice for a table that is in no known form.
const OWN_FORM: &str = "a table of another form is read with `workload.trace_format: columns`, or --from columns of `spica trace`, which \
     take the names of its columns";

/// Events of a log that are no requests.
pub(super) const OTHER_EVENTS: &str = "other events";
/// A total that is not the sum of its parts.
pub(super) const TOTAL_DIFFERS: &str = "total does not add up";

fn explanation(kind: &str) -> &'static str {
    match kind {
        NO_HASH_IDS => ": nothing is known of these prompts, so they share nothing with any other",
        OTHER_EVENTS => ": not requests, left alone",
        TOTAL_DIFFERS => ": the two lengths are used, the total is not",
        _ => "",
    }
}

fn name_field(format: TraceFormat) -> &'static str {
    match format {
        TraceFormat::Aiperf => "x_request_id",
        _ => "request_id",
    }
}

fn arrival_field(format: TraceFormat) -> &'static str {
    match format {
        TraceFormat::Mooncake => "timestamp",
        TraceFormat::Dynamo => "request_received_ms",
        TraceFormat::Azure => "TIMESTAMP",
        TraceFormat::Splitwise | TraceFormat::Columns => "arrival",
        TraceFormat::BurstGpt => "Timestamp",
        TraceFormat::LlmServingSim => "arrival_time_ns",
        TraceFormat::Lengths => "request rate",
        TraceFormat::Vllm => "start_times",
        TraceFormat::Aiperf => "request_start_ns",
    }
}
