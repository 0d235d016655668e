//! A value with the path that leads to it, read as what is expected of it.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use super::hints::{nearest, odd_characters};
use super::numbers::{self, Limit};
use super::presets::Preset;
use super::reader::{Reader, Section};
use super::scenario::PolicyConfig;
use super::schema::Composite;
use super::tree::{Content, Entry, Meaning, Node};
use super::yaml::join;

/// A value with the path that leads to it.
#[derive(Clone)]
pub(super) struct Value<'a> {
    reader: &'a Reader,
    node: &'a Node,
    path: String,
}

impl<'a> Value<'a> {
    pub(super) fn new(reader: &'a Reader, node: &'a Node, path: String) -> Self {
        Self { reader, node, path }
    }

    /// The last key of the path, for examples; with its index for an entry of a list.
    fn key(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or_default()
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
        Some(self.reader.resolve(self.node.span, &self.text()?))
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

    /// The keys that the mapping at this place may have, where they are known by name.
    fn keys_inside(&self) -> String {
        let keys = self.reader.keys_below(&self.path);
        if keys.is_empty() { String::new() } else { format!(": {}", keys.join(", ")) }
    }

    /// A mapping: `read` takes what it knows, anything else in it is a problem.
    pub(super) fn section<T>(&self, read: impl FnOnce(&Section<'a>) -> T) -> Option<T> {
        let Content::Mapping(entries) = &self.node.content else {
            let found = if self.node.is_null() { "nothing".to_owned() } else { self.node.shown() };
            return self.wrong(format!("{found} where keys with values are expected{}", self.keys_inside()));
        };
        let section = Section::new(self.reader, entries, self.node.span, self.path.clone());
        let value = read(&section);
        section.report_unknown_keys();
        Some(value)
    }

    /// A policy: its name, or a mapping with `policy:` and the policy's own fields, which are not looked at here.
    ///
    /// `unnamed` is the policy of a mapping without a name, where that is allowed.
    pub(super) fn policy(&self, unnamed: Option<&str>) -> Option<PolicyConfig> {
        let location = self.path.clone();
        let Content::Mapping(entries) = &self.node.content else {
            let Some((Meaning::Text, name)) = self.meaning() else {
                return self.wrong(format!(
                    "{} is not a policy; write its name or `{{policy: name, ...}}`",
                    self.node.shown()
                ));
            };
            return Some(PolicyConfig { location, ..PolicyConfig::named(name) });
        };
        self.reader.note(&join(&self.path, "policy"));
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
