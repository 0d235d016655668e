//! Where the keys of a configuration were written, for problems that are found after it was read.

use super::diagnostics::{Diagnostics, Problem, Source};
use super::overrides::{Step, steps_of};
use super::tree::{Content, Node, Span};

/// Where the keys of a configuration were written.
///
/// Whoever finds a problem later says `key.path: what is wrong`, without knowing of files and lines; this adds them.
#[derive(Clone, Debug)]
pub struct Places {
    sources: Vec<Source>,
    tree: Node,
}

impl Places {
    pub(super) fn new(sources: Vec<Source>, tree: Node) -> Self {
        Self { sources, tree }
    }

    /// The file as the user named it.
    fn file(&self) -> &str {
        &self.sources[0].name
    }

    /// Puts lines of the form `key.path: what is wrong` in their places, with excerpts and in the order of the file. Lines that
    /// do not start with a key of the configuration follow, with the name of the file in front.
    pub fn explain<S: AsRef<str>>(&self, lines: impl IntoIterator<Item = S>) -> String {
        let (mut placed, mut others) = (Vec::new(), Vec::new());
        for line in lines {
            match self.problem(line.as_ref()) {
                Some(problem) => placed.push(problem),
                None => others.push(format!("{}: {}", self.file(), line.as_ref())),
            }
        }
        let placed = Diagnostics::new(self.sources.clone(), placed);
        let placed = Some(placed.to_string()).filter(|text| !text.is_empty());
        placed.into_iter().chain(others).collect::<Vec<_>>().join("\n")
    }

    /// A remark of the form `key.path: what is odd`, with its place: one line, in which `kind` says how much it matters.
    pub fn remark(&self, kind: &str, line: &str) -> String {
        let place = match self.problem(line) {
            Some(problem) if problem.span.source == 0 => format!("{}:{}", self.file(), problem.span.line),
            Some(problem) => self.sources[problem.span.source as usize].name.clone(),
            None => self.file().to_owned(),
        };
        format!("{place}: {kind}: {line}")
    }

    fn problem(&self, line: &str) -> Option<Problem> {
        let (path, mut message) = line.split_once(": ")?;
        let (mut span, mut at) = self.tree.nearest(path.split(',').next()?)?;
        let mut path = path.to_owned();
        // `workload: isl: ...` means the key below.
        while let Some((key, rest)) = message.split_once(": ")
            && at.get(key).is_some()
            && let Some((inner_span, inner)) = at.nearest(key)
        {
            (span, at, message) = (inner_span, inner, rest);
            path = format!("{path}.{key}");
        }
        Some(Problem::new(span, &path, message.to_owned()))
    }
}

impl Node {
    /// The value at a key path, or the deepest that is there on the way, and where its key stands; `None` if not even the first
    /// key is there.
    pub(super) fn nearest(&self, path: &str) -> Option<(Span, &Node)> {
        let mut found = None;
        let mut node = self;
        for step in path.split('.').flat_map(steps_of) {
            let next = match (step, &node.content) {
                (Step::Key(key), Content::Mapping(entries)) => {
                    entries.iter().find(|entry| entry.key == key).map(|entry| (entry.key_span, &entry.value))
                }
                (Step::Index(index), Content::List(items)) => items.get(index).map(|item| (item.span, item)),
                _ => None,
            };
            let Some((span, value)) = next else { break };
            found = Some((span, value));
            node = value;
        }
        found
    }
}
