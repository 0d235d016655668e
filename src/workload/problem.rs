//! What is wrong with an input, and what was done about what could be mended.

use std::fmt;

use indexmap::IndexMap;

use super::InputTally;
use super::input::Line;
use crate::simulation::Shown;

/// Problems that are listed; the others are counted.
const LISTED: usize = 20;

/// Fields without effect that a warning names.
const FIELDS_NAMED: usize = 10;

/// Kind of row: asks for no output.
pub(super) const ZERO_OUTPUT: &str = "zero output";
/// Kind of row: has no prompt.
pub(super) const ZERO_INPUT: &str = "zero input";
/// Kind of row: starts a session earlier than a row before it does.
pub const OUT_OF_ORDER: &str = "out of order";
/// Kind of row: nothing is known of its prompt's content.
pub(super) const NO_HASH_IDS: &str = "no hash_ids";

/// Why an input was refused: everything found in it, not only the first fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadErrors {
    /// The file, or the key of the scenario that holds the requests.
    pub origin: String,
    /// In the order of the input, up to about twenty.
    pub problems: Vec<Problem>,
    /// Problems beyond those listed.
    pub unlisted: u64,
    /// What may be at the root of them, and what would help.
    pub hints: Vec<String>,
}

/// One thing that is wrong with an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub place: Place,
    /// The name that the row was given, if that helps to find it.
    pub name: Option<String>,
    /// The field in question; empty when it is about the whole row or input.
    pub field: String,
    /// The value found and the rule it breaks.
    pub message: String,
    /// Its line with the place marked, where that is at hand.
    pub excerpt: Option<String>,
}

/// A place in an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The input as a whole.
    Whole,
    /// A line, from 1; blank lines count.
    Line(u64),
    /// A column of a line, both from 1; columns are bytes.
    Column(u64, usize),
    /// An entry of a list of requests, from 0.
    Request(u32),
}

/// Something about an accepted input that its owner should know; one per kind.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Warning {
    /// The kind, as in [`InputTally`] where that counts it.
    pub kind: String,
    /// Rows concerned.
    pub count: u64,
    /// The sentence to print.
    pub message: String,
}

impl fmt::Display for WorkloadErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = Vec::with_capacity(self.problems.len() + self.hints.len() + 1);
        let mut quoted = None;
        for problem in &self.problems {
            lines.push(format!("{}{problem}", self.origin));
            // Several problems at one place need one excerpt.
            if problem.excerpt != quoted {
                lines.extend(problem.excerpt.clone());
            }
            quoted.clone_from(&problem.excerpt);
        }
        if self.unlisted > 0 {
            lines.push(format!("{}: and {} more problems", self.origin, self.unlisted));
        }
        lines.extend(self.hints.iter().map(|hint| format!("{}: hint: {hint}", self.origin)));
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for WorkloadErrors {}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Place::Whole => {}
            Place::Line(line) => write!(f, ": line {line}")?,
            Place::Column(line, column) => write!(f, ": line {line}, column {column}")?,
            Place::Request(index) => write!(f, "[{index}]")?,
        }
        if let Some(name) = &self.name {
            write!(f, " ({name})")?;
        }
        if !self.field.is_empty() {
            write!(f, ": {}", self.field)?;
        }
        write!(f, ": {}", self.message)
    }
}

impl Place {
    /// The line that it is on.
    fn line(self) -> Option<u64> {
        match self {
            Self::Line(line) | Self::Column(line, _) => Some(line),
            Self::Whole | Self::Request(_) => None,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => f.write_str("the input"),
            Self::Line(line) | Self::Column(line, _) => write!(f, "line {line}"),
            Self::Request(index) => write!(f, "entry {index}"),
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Collects problems while reading goes on.
#[derive(Debug, Default)]
pub(super) struct Problems {
    listed: Vec<Problem>,
    total: u64,
    hints: Vec<String>,
}

impl Problems {
    /// Notes a problem; only the first of very many are kept.
    pub(super) fn add(&mut self, place: Place, field: &str, message: impl Into<String>) {
        self.add_quoting(place, field, message, None);
    }

    /// The same with an excerpt of the line.
    pub(super) fn add_quoting(
        &mut self,
        place: Place,
        field: &str,
        message: impl Into<String>,
        excerpt: Option<String>,
    ) {
        if self.listed.len() < LISTED {
            let (field, message) = (field.into(), message.into());
            self.listed.push(Problem { place, name: None, field, message, excerpt });
        }
        self.total += 1;
    }

    /// Adds excerpts of a line that has just been read to its problems. Numbers that were too large to be read exactly stand in
    /// their messages as they do in the line.
    pub(super) fn quote(&mut self, line: &Line<'_>) {
        for problem in &mut self.listed {
            if problem.excerpt.is_none() && problem.place.line() == Some(line.number) {
                problem.excerpt = line.excerpt(problem.place, &problem.field);
                if let Some(digits) = line.whole_number(&problem.field)
                    && let Ok(rounded) = digits.parse().map(Shown)
                    && let Some(rest) = problem.message.strip_prefix(&format!("{rounded} "))
                {
                    problem.message = format!("{digits} {rest}");
                }
            }
        }
    }

    /// Counts a problem without listing it.
    pub(super) fn count_only(&mut self) {
        self.total += 1;
    }

    /// Adds advice, once.
    pub(super) fn hint(&mut self, hint: impl Into<String>) {
        let hint = hint.into();
        if !self.hints.contains(&hint) {
            self.hints.push(hint);
        }
    }

    /// Problems so far, unlisted ones included.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// The advice alone.
    pub(super) fn into_hints(self) -> Vec<String> {
        self.hints
    }

    /// The refusal, if there is anything to refuse.
    pub(super) fn into_result(self, origin: &str) -> Result<(), WorkloadErrors> {
        if self.total == 0 {
            return Ok(());
        }
        let unlisted = self.total - self.listed.len() as u64;
        Err(WorkloadErrors { origin: origin.into(), problems: self.listed, unlisted, hints: self.hints })
    }
}

/// Counts what is left out, changed or ignored, by kind, and remembers where each kind was met first.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) read: u64,
    dropped: IndexMap<String, Entry>,
    repaired: IndexMap<String, Entry>,
    ignored: IndexMap<String, Entry>,
}

/// How often one kind was met.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) count: u64,
    pub(super) first: Place,
    pub(super) latest: Place,
}

impl Ledger {
    /// A row left out.
    pub(super) fn drop(&mut self, kind: &str, place: Place) {
        note(&mut self.dropped, kind, place);
    }

    /// A row changed to be usable.
    pub(super) fn repair(&mut self, kind: &str, place: Place) {
        note(&mut self.repaired, kind, place);
    }

    /// `count` rows changed to be usable, the first of them at `first`.
    pub(super) fn repair_many(&mut self, kind: &str, count: u64, first: Place) {
        self.repaired.insert(kind.into(), Entry { count, first, latest: first });
    }

    /// A field that has no effect. Returns false when the same row has been noted for it already.
    pub(super) fn ignore(&mut self, field: &str, place: Place) -> bool {
        note(&mut self.ignored, field, place)
    }

    /// Drops and repairs are problems: what `strict` means.
    pub(super) fn refuse(&self, problems: &mut Problems) {
        for (kind, entry) in self.dropped.iter().chain(&self.repaired) {
            let rows = rows(entry.count);
            problems.add(
                entry.first,
                "",
                format!("{kind}: {rows} in all, and `strict` refuses every repair"),
            );
        }
    }

    /// One warning for each kind of drop and repair, and one for all fields without effect.
    pub(super) fn warnings(&self) -> Vec<Warning> {
        let dropped = self.dropped.iter().map(|(kind, entry)| warning(kind, *entry, "dropped"));
        let repaired = self.repaired.iter().map(|(kind, entry)| warning(kind, *entry, "repaired"));
        dropped.chain(repaired).chain(self.ignored_fields()).collect()
    }

    /// Why rows were left out, to go on from a statement that none remain.
    pub(super) fn drops(&self) -> String {
        let dropped = self.dropped.iter().map(|(kind, entry)| warning(kind, *entry, "dropped").message);
        dropped.fold(String::new(), |drops, message| drops + "; " + &message)
    }

    fn ignored_fields(&self) -> Option<Warning> {
        let mut fields: Vec<String> = self
            .ignored
            .iter()
            .take(FIELDS_NAMED)
            .map(|(field, entry)| format!("{field} ({}, first at {})", rows(entry.count), entry.first))
            .collect();
        if self.ignored.len() > FIELDS_NAMED {
            fields.push(format!("and {} more", self.ignored.len() - FIELDS_NAMED));
        }
        let count = self.ignored.values().map(|entry| entry.count).max()?;
        let message = format!("fields without effect on a replay: {}", fields.join(", "));
        Some(Warning { kind: "ignored fields".into(), count, message })
    }

    /// The tally for the report.
    pub(super) fn tally(&self, used: u64) -> InputTally {
        let counts = |entries: &IndexMap<String, Entry>| {
            entries.iter().map(|(kind, entry)| (kind.clone(), entry.count)).collect()
        };
        InputTally {
            read: self.read,
            used,
            dropped: counts(&self.dropped),
            repaired: counts(&self.repaired),
            ignored: counts(&self.ignored),
            suspicious: IndexMap::new(),
        }
    }
}

fn warning(kind: &str, entry: Entry, done: &str) -> Warning {
    let message =
        format!("{kind}: {} {done} (first at {}){}", rows(entry.count), entry.first, explanation(kind));
    Warning { kind: kind.into(), count: entry.count, message }
}

/// What was done about rows of a kind, and how to have it otherwise.
fn explanation(kind: &str) -> &'static str {
    match kind {
        ZERO_OUTPUT => "; `zero_output: prefill_only` keeps such rows and computes their prompts only",
        OUT_OF_ORDER => {
            ": these rows are out of place and were sorted by arrival, equal arrivals in the order of the file"
        }
        NO_HASH_IDS => ": their prompts share nothing with any other prompt",
        _ => "",
    }
}

/// Counts `kind`; false when its latest entry is at the same place.
fn note(entries: &mut IndexMap<String, Entry>, kind: &str, place: Place) -> bool {
    match entries.get_mut(kind) {
        Some(entry) if entry.latest == place => false,
        Some(entry) => {
            entry.count += 1;
            entry.latest = place;
            true
        }
        None => {
            entries.insert(kind.into(), Entry { count: 1, first: place, latest: place });
            true
        }
    }
}

/// "1 row" or "7 rows".
pub(super) fn rows(count: u64) -> String {
    if count == 1 { "1 row".into() } else { format!("{count} rows") }
}
