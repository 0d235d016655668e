//! Typed reading of a tree that goes on after a problem, so that all problems are found at once.
//!
//! A [`Section`] is a mapping that is being read: every key that is asked for counts as known, and what is left over at
//! the end is reported. Asking gives a [`Read`], which still has to be told what an absent key means.

use std::cell::{LazyCell, RefCell};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use super::diagnostics::Problem;
use super::hints::{nearest, odd_characters};
use super::numbers::Limit;
use super::paths::from_here;
use super::tree::{Content, Entry, Node, Span};
use super::value::{Named, Value, listed};
use super::yaml::join;

/// What all sections of a document share.
pub(super) struct Reader {
    problems: RefCell<Vec<Problem>>,
    /// What is legal and has no effect.
    notes: RefCell<Vec<Problem>>,
    /// Every key that was asked for, with `[]` for any place in a list; kept for tests only.
    asked: RefCell<BTreeSet<String>>,
    /// Folder that relative paths of the file start from.
    folder: PathBuf,
    /// All key paths that this kind of document knows, to tell where a stray key belongs.
    known_paths: LazyCell<Vec<String>, fn() -> Vec<String>>,
}

impl Reader {
    /// A reader of the file `origin`; `known_paths` is called when a key turns out to be unknown.
    pub(super) fn new(origin: &Path, known_paths: fn() -> Vec<String>) -> Self {
        Self {
            problems: RefCell::default(),
            notes: RefCell::default(),
            asked: RefCell::default(),
            folder: from_here(origin.parent().unwrap_or(Path::new(""))),
            known_paths: LazyCell::new(known_paths),
        }
    }

    pub(super) fn problem(&self, span: Span, path: &str, message: impl Into<String>) {
        self.problems.borrow_mut().push(Problem::new(span, path, message.into()));
    }

    /// Something to tell that is no problem.
    pub(super) fn remark(&self, span: Span, path: &str, message: impl Into<String>) {
        self.notes.borrow_mut().push(Problem::new(span, path, message.into()));
    }

    /// The problems, and what is to be told beside them.
    pub(super) fn into_findings(self) -> (Vec<Problem>, Vec<Problem>) {
        (self.problems.into_inner(), self.notes.into_inner())
    }

    #[cfg(test)]
    pub(super) fn asked(&self) -> BTreeSet<String> {
        self.asked.borrow().clone()
    }

    /// Names of the keys right below `path`.
    pub(super) fn keys_below(&self, path: &str) -> Vec<&str> {
        let start = format!("{}.", general(path));
        let mut keys: Vec<&str> = Vec::new();
        for key in self.known_paths.iter().filter_map(|known| known.strip_prefix(&start)) {
            let key = key.split(['.', '[']).next().unwrap_or_default();
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys
    }

    /// The document as a value.
    pub(super) fn root<'a>(&'a self, node: &'a Node) -> Value<'a> {
        Value::new(self, node, String::new())
    }

    /// Notes that a key was asked for.
    pub(super) fn note(&self, path: &str) {
        if cfg!(test) {
            self.asked.borrow_mut().insert(general(path));
        }
    }

    /// A path that starts from where it was written: the file's folder, or for an override the working directory.
    pub(super) fn resolve(&self, span: Span, path: &str) -> PathBuf {
        if span.source == 0 { self.folder.join(path) } else { PathBuf::from(path) }
    }
}

/// Unknown keys of one section for which the one that was meant is looked for.
const MOST_HINTS: usize = 20;

/// A mapping that is being read.
pub(super) struct Section<'a> {
    reader: &'a Reader,
    entries: &'a [Entry],
    span: Span,
    path: String,
    known: RefCell<Vec<&'static str>>,
}

impl<'a> Section<'a> {
    pub(super) fn new(reader: &'a Reader, entries: &'a [Entry], span: Span, path: String) -> Self {
        Self { reader, entries, span, path, known: RefCell::default() }
    }

    /// Asks for a key.
    pub(super) fn read<T>(
        &self,
        key: &'static str,
        read: impl FnOnce(Value<'a>) -> Option<T>,
    ) -> Read<'_, T> {
        let state = match self.value(key) {
            None => State::Absent,
            Some(value) if value.node().is_null() => State::Null,
            Some(value) => read(value).map_or(State::Bad, State::Good),
        };
        Read { section: self, key, state }
    }

    /// The value of a key as it is, null included.
    pub(super) fn value(&self, key: &'static str) -> Option<Value<'a>> {
        self.reader.note(&join(&self.path, key));
        let mut known = self.known.borrow_mut();
        if !known.contains(&key) {
            known.push(key);
        }
        let entry = self.entries.iter().find(|entry| entry.key == key)?;
        Some(Value::new(self.reader, &entry.value, join(&self.path, key)))
    }

    /// Refuses a key that belongs to another kind of document.
    pub(super) fn refuse(&self, key: &'static str, reason: &str) {
        self.known.borrow_mut().push(key);
        if self.entries.iter().any(|entry| entry.key == key) {
            self.problem(key, reason);
        }
    }

    /// Whether a key has a value other than null.
    pub(super) fn has(&self, key: &'static str) -> bool {
        self.value(key).is_some_and(|value| !value.node().is_null())
    }

    /// How many entries the list of a key has, if it has a list.
    pub(super) fn list_length(&self, key: &'static str) -> Option<usize> {
        match &self.value(key)?.node().content {
            Content::List(nodes) => Some(nodes.len()),
            _ => None,
        }
    }

    pub(super) fn integer<T>(&self, key: &'static str, range: RangeInclusive<T>) -> Read<'_, T>
    where
        T: Copy + Into<i128> + TryFrom<i128>,
    {
        self.read(key, |value| value.integer(range))
    }

    pub(super) fn float(&self, key: &'static str, limit: Limit) -> Read<'_, f64> {
        self.read(key, |value| value.float(limit))
    }

    pub(super) fn boolean(&self, key: &'static str) -> Read<'_, bool> {
        self.read(key, |value| value.boolean())
    }

    pub(super) fn text(&self, key: &'static str) -> Read<'_, String> {
        self.read(key, |value| value.text())
    }

    pub(super) fn choice<T: Named>(&self, key: &'static str) -> Read<'_, T> {
        self.read(key, |value| value.choice())
    }

    pub(super) fn section<T>(&self, key: &'static str, read: impl FnOnce(&Section<'a>) -> T) -> Read<'_, T> {
        self.read(key, |value| value.section(read))
    }

    /// A problem with the value of a key, or with its absence. The key may lie deeper: `engine.block_size`, `models[1].name`.
    pub(super) fn problem(&self, key: &str, message: impl Into<String>) {
        self.reader.problem(self.place(key).unwrap_or(self.span), &join(&self.path, key), message);
    }

    /// A problem with several keys that do not go together. It stands at the last of them, or at that of the command line,
    /// which came on top of a file without the problem.
    pub(super) fn problem_between(&self, keys: &[&str], message: impl Into<String>) {
        let is_override = |key: &&&str| self.place(key).is_some_and(|span| span.source > 0);
        let key = keys.iter().rev().find(is_override).or(keys.last()).expect("names the keys");
        self.problem(key, message);
    }

    /// Something to tell about a key that is no problem.
    pub(super) fn remark(&self, key: &str, message: impl Into<String>) {
        self.reader.remark(self.place(key).unwrap_or(self.span), &join(&self.path, key), message);
    }

    /// Where a key stands, or the deepest on the way to it.
    fn place(&self, key: &str) -> Option<Span> {
        let (first, rest) = key.split_at(key.find(['.', '[']).unwrap_or(key.len()));
        let entry = self.entries.iter().find(|entry| entry.key == first)?;
        let deeper = entry.value.nearest(rest.trim_start_matches('.'));
        Some(deeper.map_or(entry.key_span, |(span, _)| span))
    }

    /// A problem with the section as a whole.
    pub(super) fn own_problem(&self, message: impl Into<String>) {
        self.reader.problem(self.span, &self.path, message);
    }

    /// Ends the reading: what was not asked for is unknown.
    pub(super) fn report_unknown_keys(&self) {
        let known = self.known.borrow();
        let unknown = self.entries.iter().filter(|entry| !known.contains(&entry.key.as_str()));
        for (index, entry) in unknown.enumerate() {
            let message = if index < MOST_HINTS {
                self.unknown_key(&entry.key, &known)
            } else {
                format!("unknown key `{}`", entry.key)
            };
            self.reader.problem(entry.key_span, &join(&self.path, &entry.key), message);
        }
    }

    /// Where a stray key may belong, the likeliest first: below the section that it stands in before elsewhere, and near the top
    /// before deep below. That is at keys of its name, and before any of these at keys that have it as a word, as `random_seed`
    /// has `seed`.
    fn elsewhere(&self, key: &str) -> Vec<&'a str> {
        const MOST: usize = 3;
        let below = if self.path.is_empty() { String::new() } else { general(&self.path) + "." };
        let distance = |path: &str| (!path.starts_with(&below), path.matches('.').count());
        let has_word = |path: &str| {
            last(path).strip_prefix(key).is_some_and(|rest| rest.starts_with('_'))
                || last(path).strip_suffix(key).is_some_and(|start| start.ends_with('_'))
        };
        let paths = || self.reader.known_paths.iter().map(String::as_str);
        let nearest_exact = paths().filter(|path| last(path) == key).map(distance).min();
        let is_likely = |path: &&str| {
            last(path) == key || (has_word(path) && nearest_exact.is_none_or(|exact| distance(path) < exact))
        };
        let mut likely: Vec<&str> = paths().filter(is_likely).collect();
        likely.sort_by_key(|path| distance(path));
        likely.truncate(MOST);
        likely
    }

    fn unknown_key(&self, key: &str, known: &[&'static str]) -> String {
        let odd = odd_characters(key).map_or(String::new(), |odd| format!(": it has {odd}"));
        let start = format!("unknown key `{key}`{odd}");
        if let Some(reason) = retired(key) {
            return format!("{start}; {reason}");
        }
        let elsewhere = self.elsewhere(key);
        let is_exact = |path: &&str| last(path) == key;
        if !elsewhere.is_empty() && elsewhere.iter().all(is_exact) {
            return format!("{start} here; it belongs at {}", one_of(&elsewhere));
        }
        let by_word = || format!("{start}; did you mean {}?", one_of(&elsewhere));
        if elsewhere.iter().any(is_exact) {
            return by_word();
        }
        if let Some(name) = nearest(key, known.iter().copied()) {
            return format!("{start}; did you mean `{name}`?");
        }
        if !elsewhere.is_empty() {
            return by_word();
        }
        let paths = self.reader.known_paths.iter().map(String::as_str);
        let far = nearest(key, paths.clone().map(last))
            .and_then(|name| paths.clone().find(|path| last(path) == name));
        match far.filter(|_| key.len() > 3) {
            Some(path) => {
                format!("{start}; did you mean `{path}`? Keys here: {}", listed(known.iter().copied()))
            }
            None => format!("{start}; keys here: {}", listed(known.iter().copied())),
        }
    }
}

/// The key at the end of a path.
fn last(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or_default()
}

fn one_of(paths: &[&str]) -> String {
    paths.iter().map(|path| format!("`{path}`")).collect::<Vec<_>>().join(" or ")
}

/// Keys of other releases or tools, and what became of them.
fn retired(key: &str) -> Option<&'static str> {
    Some(match key {
        "dp" => "did you mean `attention_dp`?",
        "adapters" => "router and planner knobs are written directly in `search_space`",
        _ => return None,
    })
}

/// The path with `[]` in place of every list index.
fn general(path: &str) -> String {
    let mut general = String::with_capacity(path.len());
    let mut inside = false;
    for c in path.chars() {
        match c {
            '[' => {
                inside = true;
                general.push_str("[]");
            }
            ']' => inside = false,
            _ if inside => {}
            _ => general.push(c),
        }
    }
    general
}

/// What asking for a key found.
#[must_use = "say what an absent key means"]
pub(super) struct Read<'s, T> {
    section: &'s Section<'s>,
    key: &'static str,
    state: State<T>,
}

const NO_VALUE: &str = "no value; give one or leave the key out";

enum State<T> {
    Absent,
    /// The key without a value.
    Null,
    /// A value that was a problem, already reported.
    Bad,
    Good(T),
}

impl<T> Read<'_, T> {
    /// The value, or `default` for an absent key.
    pub(super) fn or(self, default: T) -> T {
        self.or_else(|| default)
    }

    /// The value, or a default for an absent key.
    pub(super) fn or_else(self, default: impl FnOnce() -> T) -> T {
        match self.state {
            State::Good(value) => return value,
            State::Null => self.section.problem(self.key, NO_VALUE),
            State::Absent | State::Bad => {}
        }
        default()
    }

    /// Puts the value, if there is one, in place of a default.
    pub(super) fn set(self, place: &mut T) {
        match self.state {
            State::Good(value) => *place = value,
            State::Null => self.section.problem(self.key, NO_VALUE),
            State::Absent | State::Bad => {}
        }
    }

    /// The value, or `default` for an absent key; `None` after a problem.
    pub(super) fn or_bad(self, default: T) -> Option<T> {
        match self.state {
            State::Good(value) => return Some(value),
            State::Absent => return Some(default),
            State::Null => self.section.problem(self.key, NO_VALUE),
            State::Bad => {}
        }
        None
    }

    /// The value, if there is one: null is the same as leaving the key out.
    pub(super) fn optional(self) -> Option<T> {
        match self.state {
            State::Good(value) => Some(value),
            State::Absent | State::Null | State::Bad => None,
        }
    }

    /// The value, or what null stands for, or `default` for an absent key.
    pub(super) fn or_null(self, default: Option<T>) -> Option<T> {
        match self.state {
            State::Good(value) => Some(value),
            State::Null => None,
            State::Absent | State::Bad => default,
        }
    }

    /// The value; its absence is a problem. `None` after a problem.
    pub(super) fn required(self) -> Option<T> {
        match self.state {
            State::Good(value) => return Some(value),
            State::Absent | State::Null => self.section.problem(self.key, "required key is missing"),
            State::Bad => {}
        }
        None
    }
}
