//! Values of the command line that take the place of those in the file.

use std::str::FromStr;

use super::diagnostics::Problem;
use super::tree::{Content, Entry, Node, Span, shortened};
use super::yaml::{self, join};

/// One `key.path=value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// The key, from the top of the document: `deployment.agg.workers`, `search_space.parallel_configs[0].tp`.
    pub path: String,
    /// The value, in YAML.
    pub value: String,
}

impl FromStr for Override {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (path, value) = text.split_once('=').ok_or_else(|| {
            format!("`{text}` has no `=`; write `key.path=value`, as in `deployment.agg.workers=4`")
        })?;
        let path = path.trim();
        if path.split('.').any(|key| key.is_empty() || key.starts_with('[')) {
            return Err(format!(
                "`{path}` is not a key path; write `key.path=value`, as in `deployment.agg.workers=4`"
            ));
        }
        Ok(Self { path: path.to_owned(), value: value.trim().to_owned() })
    }
}

impl Override {
    /// How messages name it.
    pub(super) fn name(&self) -> String {
        format!("--set {}={}", self.path, shortened(&self.value))
    }

    /// Puts the value into the tree, making the sections on the way that are not there yet.
    ///
    /// Whether the keys are known is found out when the tree is read.
    pub(super) fn apply(&self, tree: &mut Option<Node>, source: u32) -> Vec<Problem> {
        let (value, mut problems) = yaml::parse(&self.value, source);
        for problem in &mut problems {
            problem.path = join(&self.path, &problem.path);
        }
        if !problems.is_empty() {
            return problems;
        }
        let span = Span { source, ..Span::default() };
        let value = value.unwrap_or_else(|| Node::null(span));
        let root = tree.get_or_insert_with(|| Node::mapping(span));
        let steps: Vec<Step<'_>> = self.path.split('.').flat_map(steps_of).collect();
        match place(root, &steps, span) {
            Ok(place) => *place = value,
            Err(message) => problems.push(Problem::new(span, &self.path, message)),
        }
        problems
    }
}

/// A step of a key path.
#[derive(Clone, Copy)]
pub(super) enum Step<'a> {
    /// To the value of a key.
    Key(&'a str),
    /// To an entry of a list, from 0.
    Index(usize),
}

/// The steps of `parallel_configs[0]`: a key, then places in lists.
pub(super) fn steps_of(part: &str) -> Vec<Step<'_>> {
    let (key, mut rest) = match part.find('[') {
        Some(bracket) if part.ends_with(']') => part.split_at(bracket),
        _ => return vec![Step::Key(part)],
    };
    let mut steps = if key.is_empty() { Vec::new() } else { vec![Step::Key(key)] };
    while let Some((index, after)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let Ok(index) = index.parse() else { return vec![Step::Key(part)] };
        steps.push(Step::Index(index));
        rest = after;
    }
    steps
}

fn place<'t>(node: &'t mut Node, steps: &[Step<'_>], span: Span) -> Result<&'t mut Node, String> {
    let Some((step, rest)) = steps.split_first() else { return Ok(node) };
    if node.is_null() && matches!(step, Step::Key(_)) {
        *node = Node::mapping(span);
    }
    let shown = node.shown();
    match (step, &mut node.content) {
        (Step::Key(key), Content::Mapping(entries)) => {
            let index = entries.iter().position(|entry| entry.key == *key).unwrap_or_else(|| {
                let value = Node::null(span);
                entries.push(Entry { key: (*key).to_owned(), key_span: span, value });
                entries.len() - 1
            });
            // Sections on the way that are there already stay where they were written.
            if rest.is_empty() {
                entries[index].key_span = span;
            }
            place(&mut entries[index].value, rest, span)
        }
        (Step::Index(index), Content::List(items)) => {
            let length = items.len();
            let item = items
                .get_mut(*index)
                .ok_or_else(|| format!("the list has {length} entries, counted from 0"))?;
            place(item, rest, span)
        }
        (Step::Key(key), _) => Err(format!("there is no `{key}` inside {shown}")),
        (Step::Index(index), _) => Err(format!("there is no entry {index} in {shown}, which is not a list")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str, change: &str) -> Result<String, String> {
        let (mut tree, _) = yaml::parse(text, 0);
        let change: Override = change.parse()?;
        let problems = change.apply(&mut tree, 1);
        match problems.first() {
            Some(problem) => Err(format!("{}: {}", problem.path, problem.message)),
            None => Ok(tree.expect("was set").to_json().expect("is finite").to_string()),
        }
    }

    #[test]
    fn values_are_yaml_and_sections_are_made() {
        assert_eq!(set("a: {b: 1}", "a.b=[2, 3]").as_deref(), Ok(r#"{"a":{"b":[2,3]}}"#));
        assert_eq!(set("a: {b: 1}", "c.d = x").as_deref(), Ok(r#"{"a":{"b":1},"c":{"d":"x"}}"#));
        assert_eq!(set("a: null", "a.b={c: true}").as_deref(), Ok(r#"{"a":{"b":{"c":true}}}"#));
        assert_eq!(set("", "a=").as_deref(), Ok(r#"{"a":null}"#));
        assert_eq!(set("a: [{b: 1}, {b: 2}]", "a[1].b=5").as_deref(), Ok(r#"{"a":[{"b":1},{"b":5}]}"#));
    }

    #[test]
    fn impossible_places_are_refused() {
        assert_eq!(set("a: 1", "a.b=2"), Err("a.b: there is no `b` inside `1`".to_owned()));
        assert_eq!(set("a: [1]", "a[3]=2"), Err("a[3]: the list has 1 entries, counted from 0".to_owned()));
        assert!(set("a: 1", "a").is_err_and(|message| message.contains("has no `=`")));
        assert!(set("a: 1", "a..b=1").is_err_and(|message| message.contains("not a key path")));
        assert!(
            set("a: 1", "a={b: 1, b: 2}").is_err_and(|message| message.starts_with("a.b: duplicate key"))
        );
    }
}
