//! YAML text to a tree with places, and values back to YAML text. The only module that knows the YAML crate.
//!
//! What is accepted is a deliberate part of YAML: one document, mappings with plain names as keys, anchors and aliases as
//! long as they stay small. Duplicate keys, tabs in the indentation, merge keys, tags and several documents are refused
//! by name.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_yaml::FlowSeq;
use serde_yaml::granit_parser::{Event, Options, Parser, ScalarStyle, ScanError, Span as Stretch, StrInput};

use super::diagnostics::Problem;
use super::hints::{looks_like_syntax, odd_characters};
use super::tree::{Content, Entry, Node, Scalar, Span};

/// Values that aliases may stand for in all.
const MOST_ALIASED_VALUES: usize = 10_000;
/// Collections inside collections.
const DEEPEST_NESTING: usize = 64;

/// Parses one document, numbered `source` among the sources.
///
/// The tree is `None` when the text cannot be read on, or is empty; the problems found on the way come with it.
pub(super) fn parse(text: &str, source: u32) -> (Option<Node>, Vec<Problem>) {
    let tabs = tab_problems(text, source);
    if !tabs.is_empty() {
        return (None, tabs);
    }
    let mut options = Options::default();
    options.emit_comments = false;
    options.emit_unresolved_aliases = true;
    options.block_nesting_limit = DEEPEST_NESTING;
    options.flow_nesting_limit = DEEPEST_NESTING;
    let mut builder = Builder {
        text,
        source,
        parser: Parser::new_from_str_with_options(text, options),
        anchors: BTreeMap::new(),
        aliased: 0,
        problems: Vec::new(),
    };
    let tree = builder.document().unwrap_or_default();
    (tree, builder.problems)
}

/// Writes a value as YAML, the last line ended like all others.
pub(super) fn to_text(value: &impl Serialize) -> String {
    let text = serde_yaml::to_string(value).expect("plain data with string keys always has a YAML form");
    // The serialiser leaves a quoted scalar at the very end without one.
    if text.ends_with('\n') { text } else { text + "\n" }
}

/// A list that is written as `[a, b]`.
pub(super) fn on_one_line<T: Serialize>(items: &[T]) -> impl Serialize {
    FlowSeq(items)
}

/// Parsing cannot go on; the reason is among the problems.
struct Stop;

struct Builder<'a> {
    text: &'a str,
    source: u32,
    parser: Parser<'a, StrInput<'a>>,
    /// Finished anchored values and their sizes.
    anchors: BTreeMap<usize, (Node, usize)>,
    aliased: usize,
    problems: Vec<Problem>,
}

impl<'a> Builder<'a> {
    fn document(&mut self) -> Result<Option<Node>, Stop> {
        let mut tree = None;
        loop {
            let (event, stretch) = self.next()?;
            match event {
                Event::StreamEnd => return Ok(tree),
                Event::DocumentStart(..) if tree.is_some() => {
                    let message = "a second document starts here; a configuration is a single document";
                    self.problem(self.span(&stretch), "", message);
                    return Err(Stop);
                }
                Event::StreamStart | Event::DocumentStart(..) | Event::DocumentEnd => {}
                event => tree = Some(self.node(event, &stretch, "")?.0),
            }
        }
    }

    fn next(&mut self) -> Result<(Event<'a>, Stretch), Stop> {
        match self.parser.next_event() {
            Some(Ok(pair)) => Ok(pair),
            Some(Err(error)) => {
                self.scan_problem(&error);
                Err(Stop)
            }
            None => Err(Stop),
        }
    }

    /// The value that starts with `event`, and how many values it holds, itself included.
    fn node(&mut self, event: Event<'a>, stretch: &Stretch, path: &str) -> Result<(Node, usize), Stop> {
        let span = self.span(stretch);
        let (anchor, tagged) = match &event {
            Event::Scalar(_, _, anchor, tag) => (*anchor, tag.is_some()),
            Event::SequenceStart(_, anchor, tag) | Event::MappingStart(_, anchor, tag) => {
                (*anchor, tag.is_some())
            }
            _ => (0, false),
        };
        if tagged {
            self.problem(span, path, "tags (`!...`) are not supported; write the value without one");
        }
        let (content, size) = match event {
            Event::Scalar(text, style, ..) => {
                let plain = style == ScalarStyle::Plain;
                (Content::Scalar(Scalar { text: text.into_owned(), plain }), 1)
            }
            Event::SequenceStart(..) => self.list(path)?,
            Event::MappingStart(..) => self.mapping(path)?,
            Event::Alias(id) => return self.alias(id, span, path),
            Event::UnresolvedAlias(name) => {
                self.problem(span, path, &format!("`*{name}` names no anchor above it"));
                (Content::Scalar(Scalar { text: String::new(), plain: true }), 1)
            }
            _ => return Err(Stop),
        };
        let node = Node { span, content };
        if anchor != 0 {
            self.anchors.insert(anchor, (node.clone(), size));
        }
        Ok((node, size))
    }

    fn list(&mut self, path: &str) -> Result<(Content, usize), Stop> {
        let mut items = Vec::new();
        let mut size = 1;
        loop {
            let (event, stretch) = self.next()?;
            if event == Event::SequenceEnd {
                return Ok((Content::List(items), size));
            }
            let (item, item_size) = self.node(event, &stretch, &format!("{path}[{}]", items.len()))?;
            size += item_size;
            items.push(item);
        }
    }

    fn mapping(&mut self, path: &str) -> Result<(Content, usize), Stop> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut lines = BTreeMap::new();
        let mut size = 1;
        loop {
            let (event, stretch) = self.next()?;
            if event == Event::MappingEnd {
                return Ok((Content::Mapping(entries), size));
            }
            let key_span = self.span(&stretch);
            let key = self.key(event, &stretch, path)?;
            let key_path = join(path, key.as_deref().unwrap_or("?"));
            let (event, stretch) = self.next()?;
            let (value, value_size) = self.node(event, &stretch, &key_path)?;
            size += value_size;
            let Some(key) = key else { continue };
            if let Some(line) = lines.get(&key) {
                let again = key_span.line;
                let message = format!("duplicate key: given on line {line} and again on line {again}");
                self.problem(key_span, &key_path, &message);
                continue;
            }
            lines.insert(key.clone(), key_span.line);
            entries.push(Entry { key, key_span, value });
        }
    }

    /// The name that a key gives, or `None` when it gives none that could be used.
    fn key(&mut self, event: Event<'a>, stretch: &Stretch, path: &str) -> Result<Option<String>, Stop> {
        let span = self.span(stretch);
        if let Event::Scalar(text, style, _, None) = &event {
            if *style == ScalarStyle::Plain && text == "<<" {
                let message = "merge keys (`<<`) are not supported; write the keys out";
                self.problem(span, &join(path, text), message);
                return Ok(None);
            }
            if !text.is_empty() {
                return Ok(Some(text.clone().into_owned()));
            }
        }
        self.node(event, stretch, path)?;
        self.problem(span, path, "a key has to be a plain name");
        Ok(None)
    }

    fn alias(&mut self, id: usize, span: Span, path: &str) -> Result<(Node, usize), Stop> {
        let Some((node, size)) = self.anchors.get(&id) else {
            self.problem(span, path, "an alias cannot stand for something that it is part of");
            return Err(Stop);
        };
        let (node, size) = (node.clone(), *size);
        self.aliased += size;
        if self.aliased > MOST_ALIASED_VALUES {
            let message = format!("the aliases up to here stand for more than {MOST_ALIASED_VALUES} values");
            self.problem(span, path, &message);
            return Err(Stop);
        }
        Ok((node, size))
    }

    fn span(&self, stretch: &Stretch) -> Span {
        let bytes = stretch.byte_range().unwrap_or(0..0);
        Span {
            source: self.source,
            line: stretch.start.line() as u32,
            column: stretch.start.col() as u32 + 1,
            start: bytes.start,
            end: bytes.end,
        }
    }

    fn problem(&mut self, span: Span, path: &str, message: &str) {
        self.problems.push(Problem::new(span, path, message.to_owned()));
    }

    fn scan_problem(&mut self, error: &ScanError) {
        let marker = error.marker();
        let start = marker.byte_offset().unwrap_or(self.text.len());
        let span = Span {
            source: self.source,
            line: marker.line() as u32,
            column: marker.col() as u32 + 1,
            start,
            end: start,
        };
        let message = format!("not valid YAML: {}{}", error.info(), self.look_alikes(marker.line()));
        self.problem(span, "", &message);
    }

    /// Names what looks like YAML's own characters on the last line with such, up to `line`.
    fn look_alikes(&self, line: usize) -> String {
        let lines: Vec<&str> = self.text.lines().take(line).collect();
        let Some(index) = lines.iter().rposition(|line| line.contains(looks_like_syntax)) else {
            return String::new();
        };
        let odd = odd_characters(lines[index]).unwrap_or_default();
        format!("; line {} has {odd}", index + 1)
    }
}

/// Extends a key path by a key.
pub(super) fn join(path: &str, key: &str) -> String {
    match (path, key) {
        ("", only) | (only, "") => only.to_owned(),
        _ => format!("{path}.{key}"),
    }
}

/// YAML forbids tabs in the indentation of blocks; what follows one would be misread in ways that are hard to explain.
fn tab_problems(text: &str, source: u32) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut start = 0;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let indentation = line.len() - line.trim_start_matches([' ', '\t']).len();
        let rest = line[indentation..].trim_end();
        let tab = line[..indentation].find('\t');
        if let Some(tab) = tab.filter(|_| !rest.is_empty() && !rest.starts_with('#')) {
            let number = index as u32 + 1;
            let span = Span {
                source,
                line: number,
                column: tab as u32 + 1,
                start: start + tab,
                end: start + tab + 1,
            };
            let message = format!("line {number} is indented with a tab; use spaces");
            problems.push(Problem::new(span, "", message));
        }
        start += line.len();
    }
    problems
}
