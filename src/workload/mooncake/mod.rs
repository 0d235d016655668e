//! Reader for Mooncake traces: JSONL, one request per line.
//!
//! | field | also | meaning |
//! |---|---|---|
//! | `timestamp` | `created_time`, `arrival_ms` | arrival; required of a row that starts a session in an open loop |
//! | `delay` | `delay_ms` | think time before a later turn of a session; else what `terminal_ms` says; else the difference of the time stamps |
//! | `input_length` | `input_tokens` | prompt tokens; without it, the blocks of `hash_ids` in full |
//! | `output_length` | `output_tokens` | output tokens; required |
//! | `hash_ids` | | content of consecutive blocks of the prompt, exact to 64 bits; without them the prompt shares nothing |
//! | `hash_id_scope` | | `local` where ids mean something within their session only; `global` otherwise, which needs not be said |
//! | `session_id` | | rows of one session are its turns, in file order; each prompt is given in full |
//! | `request_id` | | a name for the report |
//! | `terminal_ms` | | when the request ended, in the rows of a replay: the next turn's think time began then |
//! | `output_token_ids`, `priority`, `strict_priority`, `policy_class` | | checked, counted, without effect |
//!
//! Times are in the unit of the trace, except that names ending in `_ms` are milliseconds always.

mod blocks;
pub(super) mod number;
mod plain;
mod row;
mod scope;
mod syntax;
#[cfg(test)]
mod tests;
mod write;

use std::io::{self, BufRead};

use self::blocks::FittingSizes;
use self::number::Scalar;
use self::row::{Key, RawRow, Sink};
use self::scope::LocalIds;
pub use self::write::{Inexpressible, has_turns, write};
use super::assembly::{Assembly, Chunks, Draft, Ending, Fields, InputKind};
use super::input::{Line, Lines, unpacked};
use super::interner::Interner;
use super::pacing::Pacing;
use super::problem::{Ledger, NO_HASH_IDS, Place, Problems, WorkloadErrors, ZERO_INPUT, ZERO_OUTPUT};
use super::{Loaded, Prompt, formats, suspicion};
use crate::config::scenario::{TraceTimeUnit, ZeroOutput};

/// Longest line in bytes; a row of a million ids is shorter.
const LINE_LIMIT: usize = 16 << 20;
/// Rows listed whose ids do not fit the block size: one setting is behind all of them.
const MISFITS_LISTED: u64 = 5;

/// How to read a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// What the trace is called in messages.
    pub origin: String,
    /// Tokens that one hash id stands for.
    pub block_size: u32,
    /// Unit of the time stamps.
    pub time_unit: TraceTimeUnit,
    /// Only the first rows, when set.
    pub max_requests: Option<u32>,
    /// What becomes of rows that ask for no output.
    pub zero_output: ZeroOutput,
    /// Refuses whatever would be repaired or dropped.
    pub strict: bool,
    /// Open or closed loop, and how fast.
    pub pacing: Pacing,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            origin: "trace".into(),
            block_size: 512,
            time_unit: TraceTimeUnit::Ms,
            max_requests: None,
            zero_output: ZeroOutput::Drop,
            strict: false,
            pacing: Pacing::default(),
        }
    }
}

/// Reads a trace, plain or gzip; the earliest arrival becomes time 0.
///
/// # Errors
/// Everything that is wrong with the trace, with line numbers.
pub fn read(reader: impl BufRead, options: &Options) -> Result<Loaded, WorkloadErrors> {
    let mut trace = Reader::new(options);
    if let Err(error) = unpacked(reader).and_then(|text| trace.read_rows(Lines::new(text, LINE_LIMIT))) {
        trace.unreadable(&error);
    }
    trace.finish()
}

/// What is wrong with a row that ended before its object did.
struct CutOff {
    place: Place,
    message: String,
    excerpt: Option<String>,
}

struct Reader<'o> {
    options: &'o Options,
    assembly: Assembly,
    chunk_ids: Vec<u32>,
    interner: Interner,
    local_ids: LocalIds,
    problems: Problems,
    ledger: Ledger,
    fitting: FittingSizes,
    misfits: u64,
    latest_line: u64,
    latest_good_line: u64,
    /// The latest row, if it ended before its object did.
    cut_off: Option<CutOff>,
}

impl<'o> Reader<'o> {
    fn new(options: &'o Options) -> Self {
        let fields =
            Fields { name: Key::RequestId.name(), arrival: Key::Timestamp.name(), delay: Key::Delay.name() };
        Self {
            options,
            assembly: Assembly::new(options.pacing, fields),
            chunk_ids: Vec::new(),
            interner: Interner::default(),
            local_ids: LocalIds::default(),
            problems: Problems::default(),
            ledger: Ledger::default(),
            fitting: FittingSizes::all(),
            misfits: 0,
            latest_line: 0,
            latest_good_line: 0,
            cut_off: None,
        }
    }

    /// Reads rows to the end of the text, or as many as are wanted.
    fn read_rows(&mut self, mut lines: Lines<impl BufRead>) -> io::Result<()> {
        let wanted = self.options.max_requests.map_or(u64::MAX, u64::from);
        while self.ledger.read < wanted
            && let Some(line) = lines.next()?
        {
            self.latest_line = line.number;
            if let Some(CutOff { place, message, excerpt }) = self.cut_off.take() {
                self.problems.add_quoting(place, "", message, excerpt);
            }
            let known = self.problems.total();
            if self.ledger.read == 0
                && let Some(message) = line.text.and_then(syntax::other_format)
            {
                let place = Place::Line(line.number);
                self.problems.add_quoting(place, "", message, line.excerpt(place, ""));
                if let Some(format) = line.text.and_then(formats::guess) {
                    self.problems.hint(formats::other_form(format));
                }
                break;
            }
            self.ledger.read += 1;
            self.take_line(&line);
            if self.problems.total() > known {
                self.problems.quote(&line);
            }
        }
        Ok(())
    }

    fn unreadable(&mut self, error: &io::Error) {
        let line = self.latest_line;
        let message = match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                format!("the gzip data is truncated: it ends within or after line {}", line + 1)
            }
            _ => format!("cannot be read: {error}"),
        };
        self.problems.add(Place::Line(line + 1), "", message);
    }

    fn take_line(&mut self, line: &Line<'_>) {
        let place = Place::Line(line.number);
        let Some(text) = line.text else {
            self.problems.add(
                place,
                "",
                format!("longer than {LINE_LIMIT} bytes, the most that one row may have"),
            );
            return;
        };
        let problems_before = self.problems.total();
        let first_chunk = self.chunk_ids.len();
        let mut sink = Sink {
            place,
            time_unit: self.options.time_unit,
            chunk_ids: &mut self.chunk_ids,
            interner: &mut self.interner,
            problems: &mut self.problems,
            ledger: &mut self.ledger,
            current: None,
        };
        let row = match sink.read(text) {
            Ok(row) => row,
            Err(error) => {
                let field = sink.current.map_or("", Key::name);
                self.chunk_ids.truncate(first_chunk);
                self.bad_syntax(line, text, field, &error);
                return;
            }
        };
        self.local_ids.take(
            row.hash_id_scope,
            row.session_id.as_deref(),
            &mut self.chunk_ids[first_chunk..],
            &self.interner,
            place,
            &mut self.problems,
        );
        let draft = self.check(&row, first_chunk, text, place);
        match draft {
            Some(draft) if self.problems.total() == problems_before => {
                if !draft.keep {
                    self.chunk_ids.truncate(first_chunk);
                }
                self.latest_good_line = line.number;
                self.assembly.push(row.session_id.as_deref(), draft, &mut self.problems);
            }
            _ => {
                self.chunk_ids.truncate(first_chunk);
                if let Some(session) = row.session_id {
                    self.assembly.break_session(&session);
                }
            }
        }
    }

    fn bad_syntax(&mut self, line: &Line<'_>, text: &[u8], field: &str, error: &serde_json::Error) {
        let (column, message) = syntax::explain(text, error);
        let place = Place::Column(line.number, column + line.indent);
        if error.is_eof() {
            self.cut_off = Some(CutOff { place, message, excerpt: line.excerpt(place, "") });
        } else {
            self.problems.add(place, field, message);
        }
    }

    /// The checks of one row that need more than one of its fields.
    fn check(&mut self, row: &RawRow<'_>, first_chunk: usize, text: &[u8], place: Place) -> Option<Draft> {
        if self.chunk_ids.len() > u32::MAX as usize {
            self.problems.add(place, Key::HashIds.name(), "more than 2^32 ids in one trace");
            return None;
        }
        let chunks = (self.chunk_ids.len() - first_chunk) as u32;
        let input_length = self.input_length(row, chunks, text, place);
        let output_length = self.output_length(row, text, place);
        let (input_length, output_length) = (input_length?, output_length?);
        if let Some(listed) = row.output_tokens_listed
            && listed != output_length as usize
        {
            let message =
                format!("{listed} ids for an output_length of {output_length}: there must be as many");
            self.problems.add(place, Key::OutputTokenIds.name(), message);
        }
        let keep = self.keep(input_length, output_length, place);
        if keep && chunks == 0 && !row.has_bad_ids {
            self.ledger.repair(NO_HASH_IDS, place);
        }
        Some(Draft {
            place,
            arrival_ms: row.timestamp_ms.get(),
            delay_ms: row.delay_ms.get(),
            terminal_ms: row.terminal_ms,
            input_length,
            output_length,
            prompt: Prompt {
                first_chunk: first_chunk as u32,
                chunks,
                tokens_per_chunk: self.options.block_size,
            },
            dp_rank: None,
            name: row.request_id.as_deref().map(Into::into),
            keep,
        })
    }

    /// The length of the prompt, which has to agree with the number of its blocks.
    fn input_length(&mut self, row: &RawRow<'_>, chunks: u32, text: &[u8], place: Place) -> Option<u32> {
        let block_size = self.options.block_size;
        let Some(input_length) = row.input_length.get() else {
            if row.has(Key::InputLength) || row.has(Key::InputTokens) {
                return None;
            }
            if row.has_bad_ids {
                return None;
            }
            if chunks == 0 {
                self.missing(
                    Key::InputLength,
                    "without hash_ids nothing else tells the length of the prompt",
                    text,
                    place,
                );
                return None;
            }
            let length = Scalar::Unsigned(u64::from(chunks) * u64::from(block_size)).length();
            if let Err(message) = &length {
                self.problems.add(place, Key::HashIds.name(), format!("{chunks} blocks: {message}"));
            }
            return length.ok();
        };
        let expected = input_length.div_ceil(block_size);
        if !row.has_bad_ids && chunks > 0 && input_length > 0 {
            self.fitting.keep(input_length, chunks);
        }
        if !row.has_bad_ids && chunks > 0 && chunks != expected {
            self.misfit(input_length, chunks, expected, place);
            return None;
        }
        Some(input_length)
    }

    fn misfit(&mut self, input_length: u32, chunks: u32, expected: u32, place: Place) {
        self.misfits += 1;
        if self.misfits > MISFITS_LISTED {
            self.problems.count_only();
            return;
        }
        let block_size = self.options.block_size;
        let message = format!(
            "{chunks} ids for {input_length} tokens: with blocks of {block_size} tokens there must be {expected}"
        );
        self.problems.add(place, Key::HashIds.name(), message);
    }

    fn output_length(&mut self, row: &RawRow<'_>, text: &[u8], place: Place) -> Option<u32> {
        if row.output_length.get().is_none() && !row.has(Key::OutputLength) && !row.has(Key::OutputTokens) {
            self.missing(Key::OutputLength, "every row needs it", text, place);
        }
        row.output_length.get()
    }

    fn missing(&mut self, key: Key, why: &str, text: &[u8], place: Place) {
        self.problems.add(place, key.name(), format!("missing: {why}; {}", syntax::fields_found(text)));
        if let Some(hint) = syntax::likely_meaning(text, key.name()) {
            self.problems.hint(hint);
        }
    }

    /// Whether a row of these lengths is used; counts it if not.
    fn keep(&mut self, input_length: u32, output_length: u32, place: Place) -> bool {
        let kind = match (input_length, output_length, self.options.zero_output) {
            (0, _, _) => ZERO_INPUT,
            (_, 0, ZeroOutput::Drop) => ZERO_OUTPUT,
            _ => return true,
        };
        self.ledger.drop(kind, place);
        false
    }

    fn finish(mut self) -> Result<Loaded, WorkloadErrors> {
        if let Some(CutOff { place, excerpt, .. }) = self.cut_off {
            let message = match self.latest_good_line {
                0 => "the file is truncated: its only row ends in the middle".into(),
                line => format!(
                    "the file is truncated: its last row ends in the middle; the last good one is line {line}"
                ),
            };
            self.problems.add_quoting(place, "", message, excerpt);
        }
        if self.misfits > 0 {
            self.problems.hint(self.fitting.advice());
        }
        self.local_ids.check(&mut self.problems);
        let chunks = Chunks { ids: self.chunk_ids, names: self.local_ids.into_names(self.interner) };
        let ending = Ending {
            origin: &self.options.origin,
            strict: self.options.strict,
            ledger: self.ledger,
            problems: self.problems,
        };
        let mut loaded = self.assembly.finish(InputKind::Trace, chunks, ending)?;
        let unit = (self.options.time_unit == TraceTimeUnit::Ms).then_some(
            "if the time stamps are seconds, set `workload.trace_time_unit: s`, or --time-unit s of `spica trace`",
        );
        suspicion::note(&mut loaded, self.options.pacing, unit);
        Ok(loaded)
    }
}
