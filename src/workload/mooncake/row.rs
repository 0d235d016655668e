//! One row: a JSON object, read field by field straight into the arrays of the workload.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::number::{Scalar, shortened};
use super::plain;
use crate::config::scenario::TraceTimeUnit;
use crate::workload::interner::Interner;
use crate::workload::problem::{Ledger, Place, Problems};

/// Bad elements of one list that are reported.
const ELEMENTS_LISTED: usize = 3;

/// A field of a row under one of its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Timestamp,
    CreatedTime,
    ArrivalMs,
    Delay,
    DelayMs,
    InputLength,
    InputTokens,
    OutputLength,
    OutputTokens,
    HashIds,
    SessionId,
    RequestId,
    OutputTokenIds,
    Priority,
    StrictPriority,
    PolicyClass,
    TerminalMs,
    HashIdScope,
    Unknown,
}

/// Every name with its key.
const NAMES: [(&str, Key); 18] = [
    ("timestamp", Key::Timestamp),
    ("created_time", Key::CreatedTime),
    ("arrival_ms", Key::ArrivalMs),
    ("delay", Key::Delay),
    ("delay_ms", Key::DelayMs),
    ("input_length", Key::InputLength),
    ("input_tokens", Key::InputTokens),
    ("output_length", Key::OutputLength),
    ("output_tokens", Key::OutputTokens),
    ("hash_ids", Key::HashIds),
    ("session_id", Key::SessionId),
    ("request_id", Key::RequestId),
    ("output_token_ids", Key::OutputTokenIds),
    ("priority", Key::Priority),
    ("strict_priority", Key::StrictPriority),
    ("policy_class", Key::PolicyClass),
    ("terminal_ms", Key::TerminalMs),
    ("hash_id_scope", Key::HashIdScope),
];

/// Where the ids of a row mean the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum HashIdScope {
    /// In the whole trace.
    #[default]
    Global,
    /// Within the session of the row.
    Local,
}

impl Key {
    fn of(name: &str) -> Self {
        match name {
            "timestamp" => Self::Timestamp,
            "input_length" => Self::InputLength,
            "output_length" => Self::OutputLength,
            "hash_ids" => Self::HashIds,
            _ => NAMES.iter().find(|(known, _)| *known == name).map_or(Self::Unknown, |(_, key)| *key),
        }
    }

    pub(super) fn name(self) -> &'static str {
        NAMES.iter().find(|(_, key)| *key == self).map_or("", |(name, _)| name)
    }
}

/// The name that is nearest to `field`, if one is near.
pub(super) fn nearest_name(field: &str) -> Option<&'static str> {
    const NEAR: f64 = 0.88;
    NAMES
        .iter()
        .map(|(name, _)| (*name, strsim::jaro_winkler(name, field)))
        .filter(|(_, likeness)| *likeness >= NEAR)
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .map(|(name, _)| name)
}

/// A row as read, each value good by itself; `None` is absent or was reported.
#[derive(Debug, Default)]
pub(super) struct RawRow<'de> {
    pub(super) timestamp_ms: Aliased<f64>,
    pub(super) delay_ms: Aliased<f64>,
    pub(super) input_length: Aliased<u32>,
    pub(super) output_length: Aliased<u32>,
    pub(super) session_id: Option<Cow<'de, str>>,
    pub(super) request_id: Option<Cow<'de, str>>,
    pub(super) hash_id_scope: HashIdScope,
    /// When the request ended, in rows that a replay wrote.
    pub(super) terminal_ms: Option<f64>,
    /// Number of `output_token_ids`.
    pub(super) output_tokens_listed: Option<usize>,
    /// Some of the `hash_ids` could not be read: their number says nothing.
    pub(super) has_bad_ids: bool,
    seen: u32,
}

impl RawRow<'_> {
    /// Whether the row has this key, with whatever value.
    pub(super) fn has(&self, key: Key) -> bool {
        self.seen & (1 << key as u32) != 0
    }

    /// Marks a key as seen and says whether it was before.
    fn see(&mut self, key: Key) -> bool {
        let again = self.has(key) && key != Key::Unknown;
        self.seen |= 1 << key as u32;
        again
    }
}

/// The value of a field that goes by several names.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Aliased<T> {
    value: Option<(T, Key)>,
}

impl<T: Copy + PartialEq + fmt::Display> Aliased<T> {
    pub(super) fn get(self) -> Option<T> {
        self.value.map(|(value, _)| value)
    }

    /// Sets the value; a different one under another name is a contradiction.
    fn set(&mut self, value: T, key: Key) -> Result<(), String> {
        match self.value {
            Some((other, other_key)) if other != value => {
                Err(format!("{value} contradicts {} {other} in the same row", other_key.name()))
            }
            _ => {
                self.value = Some((value, key));
                Ok(())
            }
        }
    }
}

/// What reading a row adds to.
pub(super) struct Sink<'s> {
    pub(super) place: Place,
    pub(super) time_unit: TraceTimeUnit,
    pub(super) chunk_ids: &'s mut Vec<u32>,
    pub(super) interner: &'s mut Interner,
    pub(super) problems: &'s mut Problems,
    pub(super) ledger: &'s mut Ledger,
    /// The known field whose value is being read.
    pub(super) current: Option<Key>,
}

impl Sink<'_> {
    /// Reads the row in `line`. An error is one of syntax: all others are reported and reading goes on.
    pub(super) fn read<'de>(&mut self, line: &'de [u8]) -> Result<RawRow<'de>, serde_json::Error> {
        if let Some(row) = self.read_plain(line) {
            return Ok(row);
        }
        let mut deserializer = serde_json::Deserializer::from_slice(line);
        let row = deserializer.deserialize_map(RowVisitor(self))?;
        deserializer.end()?;
        Ok(row)
    }

    /// Reads a row without a parser; `None` if it takes one.
    fn read_plain(&mut self, line: &[u8]) -> Option<RawRow<'static>> {
        let before = self.chunk_ids.len();
        let fields = plain::read(line, |id| self.chunk_ids.push(self.interner.intern(id)));
        let Some(fields) = fields else {
            // Ids keep the numbers that they were given: the parser meets them in the same order.
            self.chunk_ids.truncate(before);
            return None;
        };
        let mut row = RawRow::default();
        for (key, value) in fields.iter() {
            row.see(key);
            self.take(&mut row, key, Scalar::Unsigned(value));
        }
        Some(row)
    }

    /// The value, or a report of what is wrong with it.
    fn good<T>(&mut self, key: Key, value: Result<T, String>) -> Option<T> {
        value.map_err(|message| self.problems.add(self.place, key.name(), message)).ok()
    }

    fn set<T>(&mut self, slot: &mut Aliased<T>, key: Key, value: Result<T, String>)
    where
        T: Copy + PartialEq + fmt::Display,
    {
        let set = value.and_then(|value| slot.set(value, key));
        self.good(key, set);
    }

    /// A time under `key` in milliseconds: names ending in `_ms` say so, others are in the unit of the trace.
    fn milliseconds(&self, key: Key, value: &Scalar<'_>) -> Result<f64, String> {
        let in_ms = matches!(key, Key::ArrivalMs | Key::DelayMs | Key::TerminalMs)
            || self.time_unit == TraceTimeUnit::Ms;
        let time = value.time(in_ms)?;
        Ok(if in_ms { time } else { time * 1e3 })
    }

    fn text<'de>(&mut self, key: Key, value: Scalar<'de>) -> Option<Cow<'de, str>> {
        match value {
            Scalar::Text(text) => Some(text),
            // Exported rows write null for an absent identity.
            Scalar::Null => None,
            other => self.good(key, Err(format!("{other} is not a string"))),
        }
    }

    /// Checks a field that the simulation does not use, and counts it.
    fn unused(&mut self, key: Key, value: Result<(), String>) {
        if self.good(key, value).is_some() {
            self.ledger.ignore(key.name(), self.place);
        }
    }

    fn take<'de>(&mut self, row: &mut RawRow<'de>, key: Key, value: Scalar<'de>) {
        match key {
            Key::Timestamp | Key::CreatedTime | Key::ArrivalMs => {
                let time = self.milliseconds(key, &value);
                self.set(&mut row.timestamp_ms, key, time);
            }
            Key::Delay | Key::DelayMs => {
                let time = self.milliseconds(key, &value);
                self.set(&mut row.delay_ms, key, time);
            }
            Key::InputLength | Key::InputTokens => self.set(&mut row.input_length, key, value.length()),
            Key::OutputLength | Key::OutputTokens => self.set(&mut row.output_length, key, value.length()),
            Key::SessionId => row.session_id = self.text(key, value),
            Key::RequestId => row.request_id = self.text(key, value),
            // A request that did not end has none.
            Key::TerminalMs if value == Scalar::Null => {}
            Key::TerminalMs => {
                let time = self.milliseconds(key, &value);
                row.terminal_ms = self.good(key, time);
            }
            Key::Priority => {
                let checked = value.integer(i32::MIN.into(), i32::MAX.into());
                self.unused(key, checked.map(drop));
            }
            Key::StrictPriority => self.unused(key, value.integer(0, u32::MAX.into()).map(drop)),
            Key::PolicyClass => match value {
                Scalar::Text(_) => self.unused(key, Ok(())),
                other => self.unused(key, Err(format!("{other} is not a string"))),
            },
            Key::HashIdScope => {
                let scope = match &value {
                    Scalar::Text(text) if text == "global" => Ok(HashIdScope::Global),
                    Scalar::Text(text) if text == "local" => Ok(HashIdScope::Local),
                    other => Err(format!("{other} is neither \"global\" nor \"local\"")),
                };
                row.hash_id_scope = self.good(key, scope).unwrap_or_default();
            }
            Key::HashIds | Key::OutputTokenIds | Key::Unknown => {}
        }
    }
}

struct RowVisitor<'v, 's>(&'v mut Sink<'s>);

impl<'de> Visitor<'de> for RowVisitor<'_, '_> {
    type Value = RawRow<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("one JSON object per line")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let sink = self.0;
        let mut row = RawRow::default();
        while let Some(key) = entries.next_key_seed(KeySeed(sink))? {
            sink.current = Some(key);
            if row.see(key) {
                let value: Scalar<'de> = entries.next_value()?;
                sink.problems.add(
                    sink.place,
                    key.name(),
                    format!("given twice in this row; the second value is {value}"),
                );
            } else {
                match key {
                    Key::HashIds => {
                        let problems = sink.problems.total();
                        entries.next_value_seed(HashIds(sink))?;
                        row.has_bad_ids = sink.problems.total() > problems;
                    }
                    Key::OutputTokenIds => {
                        row.output_tokens_listed = entries.next_value_seed(OutputTokenIds(sink))?;
                    }
                    Key::Unknown => drop(entries.next_value::<IgnoredAny>()?),
                    _ => {
                        let value = entries.next_value()?;
                        sink.take(&mut row, key, value);
                    }
                }
            }
            sink.current = None;
        }
        Ok(row)
    }
}

/// Reads a name; notes those without a meaning.
struct KeySeed<'v, 's>(&'v mut Sink<'s>);

impl<'de> DeserializeSeed<'de> for KeySeed<'_, '_> {
    type Value = Key;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Key, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeed<'_, '_> {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E>(self, name: &str) -> Result<Key, E> {
        let key = Key::of(name);
        if key == Key::Unknown && !self.0.ledger.ignore(name, self.0.place) {
            self.0.problems.add(self.0.place, &shortened(name), "given twice in this row");
        }
        Ok(key)
    }
}

/// Reads `hash_ids` to the end of the chunk ids.
struct HashIds<'v, 's>(&'v mut Sink<'s>);

impl<'de> DeserializeSeed<'de> for HashIds<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(ListVisitor {
            sink: self.0,
            key: Key::HashIds,
            element: |sink: &mut Sink<'_>, value: &Scalar<'_>| {
                let number = sink.interner.intern(value.id()?);
                sink.chunk_ids.push(number);
                Ok(())
            },
        })?;
        Ok(())
    }
}

/// Reads `output_token_ids` to their number.
struct OutputTokenIds<'v, 's>(&'v mut Sink<'s>);

impl<'de> DeserializeSeed<'de> for OutputTokenIds<'_, '_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<usize>, D::Error> {
        let sink = self.0;
        let listed = deserializer.deserialize_any(ListVisitor {
            sink: &mut *sink,
            key: Key::OutputTokenIds,
            element: |_: &mut Sink<'_>, value: &Scalar<'_>| value.integer(0, u32::MAX.into()).map(drop),
        })?;
        if listed.is_some() {
            sink.ledger.ignore(Key::OutputTokenIds.name(), sink.place);
        }
        Ok(listed)
    }
}

/// Reads a list element by element; gives its length, or `None` after reporting that it is no such list.
struct ListVisitor<'v, 's, F> {
    sink: &'v mut Sink<'s>,
    key: Key,
    element: F,
}

impl<F> ListVisitor<'_, '_, F> {
    fn refuse(self, value: &Scalar<'_>) -> Option<usize> {
        self.sink.problems.add(
            self.sink.place,
            self.key.name(),
            format!("{value} is not a list of whole numbers"),
        );
        None
    }
}

impl<'de, F> Visitor<'de> for ListVisitor<'_, '_, F>
where
    F: Fn(&mut Sink<'_>, &Scalar<'_>) -> Result<(), String>,
{
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of whole numbers")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let (mut count, mut bad) = (0, 0);
        while let Some(value) = items.next_element::<Scalar<'de>>()? {
            if let Err(message) = (self.element)(self.sink, &value) {
                bad += 1;
                if bad <= ELEMENTS_LISTED {
                    self.sink.problems.add(
                        self.sink.place,
                        &format!("{}[{count}]", self.key.name()),
                        message,
                    );
                } else {
                    self.sink.problems.count_only();
                }
            }
            count += 1;
        }
        Ok(Some(count))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(self.refuse(&Scalar::Unsigned(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(self.refuse(&Scalar::Negative(value)))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
        Ok(self.refuse(&Scalar::Float(value)))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(self.refuse(&Scalar::Bool(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Self::Value, E> {
        Ok(self.refuse(&Scalar::Text(value.into())))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(self.refuse(&Scalar::Null))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(self.refuse(&Scalar::Object))
    }
}
