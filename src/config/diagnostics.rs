//! What is wrong with a configuration: everything at once, each problem with its place.

use std::fmt;

use super::excerpt::excerpt;
use super::tree::Span;

/// Problems that are displayed; more would bury the first.
const MOST_SHOWN: usize = 50;

/// Columns that are shown of the line of a problem.
const WIDTH: usize = 120;

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where it is.
    pub span: Span,
    /// The key that it concerns, from the top: `search_space.gpu_budget`; empty for the whole document.
    pub path: String,
    /// The offending value, the rule, and the way out.
    pub message: String,
}

impl Problem {
    pub(super) fn new(span: Span, path: &str, message: String) -> Self {
        Self { span, path: path.to_owned(), message }
    }
}

/// A text that problems point into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The file as the user named it, or the override as it was given.
    pub name: String,
    /// What it says.
    pub text: String,
}

/// All problems of a configuration, in the order of their places.
///
/// Displayed, each takes one line, `file:line: key.path: message`, followed by the line that it is about. Overrides of
/// the command line have no line number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostics {
    sources: Vec<Source>,
    problems: Vec<Problem>,
}

impl Diagnostics {
    /// Orders the problems by place; `sources[0]` is the file.
    pub(super) fn new(sources: Vec<Source>, mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|problem| problem.span);
        problems.dedup();
        Self { sources, problems }
    }

    /// The problems, in the order of their places.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// The place and what is wrong there, in one line.
    pub fn line(&self, problem: &Problem) -> String {
        let source = &self.sources[problem.span.source as usize];
        let place = match problem.span.source {
            0 => format!("{}:{}", source.name, problem.span.line.max(1)),
            _ => source.name.clone(),
        };
        match problem.path.as_str() {
            "" => format!("{place}: {}", problem.message),
            path => format!("{place}: {path}: {}", problem.message),
        }
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            if index == MOST_SHOWN {
                return write!(f, "and {} more problems", self.problems.len() - index);
            }
            write!(f, "{}", self.line(problem))?;
            let source = &self.sources[problem.span.source as usize];
            if problem.span.source == 0
                && let Some(excerpt) = shown(&source.text, problem.span)
            {
                write!(f, "\n{excerpt}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}

/// The line that a problem is about, with the place marked.
fn shown(text: &str, span: Span) -> Option<String> {
    let line = text.lines().nth(span.line.saturating_sub(1) as usize)?;
    let column = span.column.saturating_sub(1) as usize;
    let start = line.char_indices().nth(column).map_or(line.len(), |(start, _)| start);
    let marked = text.get(span.start..span.end).and_then(|part| part.lines().next()).unwrap_or_default();
    excerpt(u64::from(span.line.max(1)), line.as_bytes(), Some(start..start + marked.trim_end().len()), WIDTH)
}
