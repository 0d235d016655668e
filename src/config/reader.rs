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
use super::numbers::{self, Limit};
use super::presets::Preset;
use super::scenario::PolicyConfig;
use super::schema::Composite;
use super::tree::{Content, Entry, Meaning, Node, Span};
use super::yaml::join;

/// What all sections of a document share.
pub(super) struct Reader<'a> {
    problems: RefCell<Vec<Problem>>,
    /// Every key that was asked for, with `[]` for any place in a list.
    asked: RefCell<BTreeSet<String>>,
    /// Folder that relative paths of the file start from.
    folder: &'a Path,
    /// The file as messages name it.
    file: String,
    /// All key paths that this kind of document knows, to tell where a stray key belongs.
    known_paths: LazyCell<Vec<String>, fn() -> Vec<String>>,
}

impl<'a> Reader<'a> {
    /// A reader of the file `origin`; `known_paths` is called when a key turns out to be unknown.
    pub(super) fn new(origin: &'a Path, known_paths: fn() -> Vec<String>) -> Self {
        Self {
            problems: RefCell::default(),
            asked: RefCell::default(),
            folder: origin.parent().unwrap_or(Path::new("")),
            file: origin.display().to_string(),
            known_paths: LazyCell::new(known_paths),
        }
    }

    pub(super) fn problem(&self, span: Span, path: &str, message: impl Into<String>) {
        self.problems.borrow_mut().push(Problem::new(span, path, message.into()));
    }

    pub(super) fn into_problems(self) -> Vec<Problem> {
        self.problems.into_inner()
    }

    #[cfg(test)]
    pub(super) fn asked(&self) -> BTreeSet<String> {
        self.asked.borrow().clone()
    }

    /// The document as a value.
    pub(super) fn root(&'a self, node: &'a Node) -> Value<'a> {
        Value { reader: self, node, path: String::new() }
    }
}

/// A value with the path that leads to it.
#[derive(Clone)]
pub(super) struct Value<'a> {
    reader: &'a Reader<'a>,
    node: &'a Node,
    path: String,
}

impl<'a> Value<'a> {
    /// The last key of the path, for examples.
    fn key(&self) -> &str {
        let key = self.path.rsplit('.').next().unwrap_or_default();
        key.split('[').next().unwrap_or_default()
    }

    pub(super) fn node(&self) -> &'a Node {
        self.node
    }

    pub(super) fn problem(&self, message: impl Into<String>) {
        self.reader.problem(self.node.span, &self.path, message);
    }

    fn wrong<T>(&self, message: impl Into<String>) -> Option<T> {
        self.problem(message);
        None
    }

    fn meaning(&self) -> Option<(Meaning, &'a str)> {
        match &self.node.content {
            Content::Scalar(scalar) => Some((scalar.meaning(), &scalar.text)),
            Content::List(_) | Content::Mapping(_) => None,
        }
    }

    /// A whole number within `range`.
    pub(super) fn integer<T>(&self, range: RangeInclusive<T>) -> Option<T>
    where
        T: Copy + Into<i128> + TryFrom<i128>,
    {
        let (least, most) = ((*range.start()).into(), (*range.end()).into());
        match numbers::integer(self.node, self.key(), least, most) {
            Ok(integer) => T::try_from(integer).ok(),
            Err(message) => self.wrong(message),
        }
    }

    /// A finite number within `limit`.
    pub(super) fn float(&self, limit: Limit) -> Option<f64> {
        match numbers::float(self.node, self.key(), limit) {
            Ok(real) => Some(real),
            Err(message) => self.wrong(message),
        }
    }

    pub(super) fn boolean(&self) -> Option<bool> {
        if let Some((Meaning::Boolean(boolean), _)) = self.meaning() {
            return Some(boolean);
        }
        self.wrong(format!("{} is neither true nor false, the only spellings there are", self.node.shown()))
    }

    /// Text; a number stands for its own spelling, so that a version need not be quoted.
    pub(super) fn text(&self) -> Option<String> {
        match self.meaning() {
            Some((Meaning::Text | Meaning::Number(_), text)) if !text.is_empty() => Some(text.to_owned()),
            _ => self.wrong(format!("{} is not a name", self.node.shown())),
        }
    }

    /// One of the names of a type.
    pub(super) fn choice<T: Named>(&self) -> Option<T> {
        let Some((Meaning::Text, text)) = self.meaning() else {
            return self.wrong(format!("{} is not one of {}", self.node.shown(), listed(names::<T>())));
        };
        match T::NAMES.iter().find(|(name, _)| *name == text) {
            Some((_, value)) => Some(*value),
            None => self.wrong(unknown_choice(self.node, text, names::<T>())),
        }
    }

    /// A preset by its name.
    pub(super) fn preset<T: Composite>(&self) -> Option<Preset<T>> {
        let names = T::PRESETS.iter().filter_map(|preset| preset.name);
        let Some((Meaning::Text, text)) = self.meaning() else {
            let (shown, names) = (self.node.shown(), listed(names));
            return self.wrong(format!("{shown} is neither a preset nor a mapping; presets: {names}"));
        };
        match T::PRESETS.iter().find(|preset| preset.name == Some(text)) {
            Some(preset) => Some(preset.clone()),
            None => self.wrong(unknown_choice(self.node, text, names)),
        }
    }

    /// `value` if it is allowed.
    pub(super) fn one_of<T: Copy + PartialEq + ToString>(&self, value: T, allowed: &[T]) -> Option<T> {
        if allowed.contains(&value) {
            return Some(value);
        }
        let names: Vec<String> = allowed.iter().map(ToString::to_string).collect();
        self.wrong(format!("invalid choice {}; one of: {}", self.node.shown(), names.join(", ")))
    }

    pub(super) fn is_list(&self) -> bool {
        matches!(self.node.content, Content::List(_))
    }

    pub(super) fn is_mapping(&self) -> bool {
        matches!(self.node.content, Content::Mapping(_))
    }

    /// A path; relative ones start from the file's folder, those of an override from the working directory.
    pub(super) fn path(&self) -> Option<PathBuf> {
        let text = self.text()?;
        let from_file = self.node.span.source == 0;
        Some(if from_file { self.reader.folder.join(text) } else { PathBuf::from(text) })
    }

    /// A list with at least one entry; entries that cannot be read are left out.
    pub(super) fn list<T>(&self, mut entry: impl FnMut(Value<'a>) -> Option<T>) -> Option<Vec<T>> {
        let Content::List(nodes) = &self.node.content else {
            let example = match &self.node.content {
                Content::Scalar(scalar) if !self.node.is_null() => {
                    format!("; write `{}: [{}]`", self.key(), scalar.text)
                }
                _ => String::new(),
            };
            return self.wrong(format!("{} is not a list{example}", self.node.shown()));
        };
        if nodes.is_empty() {
            return self.wrong("an empty list: it must list at least one choice");
        }
        Some(self.items(nodes).filter_map(&mut entry).collect())
    }

    /// A list that may be empty.
    pub(super) fn list_or_empty<T>(&self, entry: impl FnMut(Value<'a>) -> Option<T>) -> Option<Vec<T>> {
        match &self.node.content {
            Content::List(nodes) if nodes.is_empty() => Some(Vec::new()),
            _ => self.list(entry),
        }
    }

    fn items(&self, nodes: &'a [Node]) -> impl Iterator<Item = Value<'a>> {
        let (reader, path) = (self.reader, self.path.clone());
        nodes.iter().enumerate().map(move |(index, node)| Value {
            reader,
            node,
            path: format!("{path}[{index}]"),
        })
    }

    /// A mapping: `read` takes what it knows, anything else in it is a problem.
    pub(super) fn section<T>(&self, read: impl FnOnce(&Section<'a>) -> T) -> Option<T> {
        let Content::Mapping(entries) = &self.node.content else {
            let found = if self.node.is_null() { "nothing".to_owned() } else { self.node.shown() };
            return self.wrong(format!("{found} where keys with values are expected"));
        };
        let section = Section {
            reader: self.reader,
            entries,
            span: self.node.span,
            path: self.path.clone(),
            known: RefCell::default(),
        };
        let value = read(&section);
        section.report_unknown_keys();
        Some(value)
    }

    /// A policy: its name, or a mapping with `policy:` and the policy's own fields, which are not looked at here.
    ///
    /// `unnamed` is the policy of a mapping without a name, where that is allowed.
    pub(super) fn policy(&self, unnamed: Option<&str>) -> Option<PolicyConfig> {
        let location = self.location();
        let Content::Mapping(entries) = &self.node.content else {
            let Some((Meaning::Text, name)) = self.meaning() else {
                return self.wrong(format!(
                    "{} is not a policy; write its name or `{{policy: name, ...}}`",
                    self.node.shown()
                ));
            };
            return Some(PolicyConfig { location, ..PolicyConfig::named(name) });
        };
        self.reader.asked.borrow_mut().insert(general(&join(&self.path, "policy")));
        let mut policy = unnamed.map(str::to_owned);
        let mut fields = serde_json::Map::new();
        let mut sound = true;
        for entry in entries {
            let value = self.child(entry);
            if entry.key == "policy" {
                policy = value.text();
                sound &= policy.is_some();
                continue;
            }
            match entry.value.to_json() {
                Ok(json) => drop(fields.insert(entry.key.clone(), json)),
                Err((span, message)) => {
                    self.reader.problem(span, &value.path, message);
                    sound = false;
                }
            }
        }
        match policy {
            Some(policy) if sound => Some(PolicyConfig { policy, fields, location }),
            None if sound => self.wrong("`policy`, the name of the policy, is missing"),
            _ => None,
        }
    }

    fn child(&self, entry: &'a Entry) -> Value<'a> {
        Value { reader: self.reader, node: &entry.value, path: join(&self.path, &entry.key) }
    }

    /// Where the value is, for whoever finds a problem in it later.
    fn location(&self) -> String {
        match self.node.span.source {
            0 => format!("{}:{}: {}", self.reader.file, self.node.span.line, self.path),
            _ => format!("--set: {}", self.path),
        }
    }
}

/// A type whose values have names.
pub(super) trait Named: Copy + 'static {
    const NAMES: &'static [(&'static str, Self)];
}

/// The name of a value.
pub(super) fn name_of<T: Named + PartialEq>(value: T) -> &'static str {
    T::NAMES.iter().find(|(_, named)| *named == value).map(|(name, _)| *name).expect("every value has a name")
}

fn names<T: Named>() -> impl Iterator<Item = &'static str> + Clone {
    T::NAMES.iter().map(|(name, _)| *name)
}

/// `a, b, c`.
pub(super) fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().collect::<Vec<_>>().join(", ")
}

/// Says that `text` is none of `names`, and which it may have meant.
pub(super) fn unknown_choice<'a>(
    node: &Node,
    text: &str,
    names: impl Iterator<Item = &'a str> + Clone,
) -> String {
    let odd = odd_characters(text).map_or(String::new(), |odd| format!(" (it has {odd})"));
    let meant = nearest(text, names.clone())
        .map_or("; one of".to_owned(), |name| format!("; did you mean `{name}`? One of"));
    format!("invalid choice {}{odd}{meant}: {}", node.shown(), listed(names))
}

/// A mapping that is being read.
pub(super) struct Section<'a> {
    reader: &'a Reader<'a>,
    entries: &'a [Entry],
    span: Span,
    path: String,
    known: RefCell<Vec<&'static str>>,
}

impl<'a> Section<'a> {
    /// Asks for a key.
    pub(super) fn read<T>(
        &self,
        key: &'static str,
        read: impl FnOnce(Value<'a>) -> Option<T>,
    ) -> Read<'_, T> {
        let state = match self.value(key) {
            None => State::Absent,
            Some(value) if value.node.is_null() => State::Null,
            Some(value) => read(value).map_or(State::Bad, State::Good),
        };
        Read { section: self, key, state }
    }

    /// The value of a key as it is, null included.
    pub(super) fn value(&self, key: &'static str) -> Option<Value<'a>> {
        self.reader.asked.borrow_mut().insert(general(&join(&self.path, key)));
        self.known.borrow_mut().push(key);
        let entry = self.entries.iter().find(|entry| entry.key == key)?;
        Some(Value { reader: self.reader, node: &entry.value, path: join(&self.path, key) })
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
        self.value(key).is_some_and(|value| !value.node.is_null())
    }

    /// How many entries the list of a key has, if it has a list.
    pub(super) fn list_length(&self, key: &'static str) -> Option<usize> {
        match &self.value(key)?.node.content {
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

    /// A problem with the value of a key, or with its absence.
    pub(super) fn problem(&self, key: &str, message: impl Into<String>) {
        let span =
            self.entries.iter().find(|entry| entry.key == key).map_or(self.span, |entry| entry.key_span);
        self.reader.problem(span, &join(&self.path, key), message);
    }

    /// A problem with the section as a whole.
    pub(super) fn own_problem(&self, message: impl Into<String>) {
        self.reader.problem(self.span, &self.path, message);
    }

    fn report_unknown_keys(&self) {
        let known = self.known.borrow();
        for entry in self.entries.iter().filter(|entry| !known.contains(&entry.key.as_str())) {
            let message = self.unknown_key(&entry.key, &known);
            self.reader.problem(entry.key_span, &join(&self.path, &entry.key), message);
        }
    }

    fn unknown_key(&self, key: &str, known: &[&'static str]) -> String {
        let odd = odd_characters(key).map_or(String::new(), |odd| format!(": it has {odd}"));
        let start = format!("unknown key `{key}`{odd}");
        if let Some(reason) = retired(key) {
            return format!("{start}; {reason}");
        }
        let elsewhere: Vec<&str> = self
            .reader
            .known_paths
            .iter()
            .filter(|path| path.rsplit('.').next() == Some(key))
            .map(String::as_str)
            .take(3)
            .collect();
        if !elsewhere.is_empty() {
            let places = elsewhere.iter().map(|path| format!("`{path}`")).collect::<Vec<_>>().join(" or ");
            return format!("{start} here; it belongs at {places}");
        }
        if let Some(name) = nearest(key, known.iter().copied()) {
            return format!("{start}; did you mean `{name}`?");
        }
        let paths = self.reader.known_paths.iter().map(String::as_str);
        let last = |path: &'a str| path.rsplit('.').next().unwrap_or_default();
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
