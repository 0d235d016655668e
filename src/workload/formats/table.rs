//! CSV: a header, then a row a line, columns found by their names.

use std::io::{self, BufRead};

use super::guess::{guess, guess_from_names};
use super::intake::{Intake, LINE_LIMIT};
use crate::workload::input::Lines;
use crate::workload::problem::Place;

/// A column that a form knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column<'n> {
    /// Its names, the usual one first. Upper and lower case are the same. One without a name is never there.
    pub(super) names: &'n [&'n str],
    pub(super) need: Need,
}

/// What a form does with a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Not without it.
    Required,
    /// Used if it is there.
    Optional,
    /// Known, and of no effect on a replay.
    Unused,
}

pub(super) const fn required(names: &'static [&'static str]) -> Column<'static> {
    Column { names, need: Need::Required }
}

pub(super) const fn optional(names: &'static [&'static str]) -> Column<'static> {
    Column { names, need: Need::Optional }
}

pub(super) const fn unused(names: &'static [&'static str]) -> Column<'static> {
    Column { names, need: Need::Unused }
}

/// A row of a table.
pub(super) struct Cells<'t> {
    pub(super) place: Place,
    line: u64,
    columns: &'t [Column<'t>],
    /// Where each known column is, by its number among the known ones.
    at: &'t [Option<usize>],
    values: &'t [Cell],
}

/// One value, and the byte at which it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cell {
    text: String,
    column: usize,
}

impl Cells<'_> {
    /// The text under a known column; empty if the table does not have it.
    pub(super) fn text(&self, column: usize) -> &str {
        self.at[column].map_or("", |at| self.values[at].text.as_str())
    }

    /// The value under a known column, read by `read`; `None` after noting what is wrong with it.
    pub(super) fn get<T>(
        &self,
        column: usize,
        read: impl FnOnce(&str) -> Result<T, String>,
        intake: &mut Intake<'_>,
    ) -> Option<T> {
        let at = self.at[column]?;
        let place = Place::Column(self.line, self.values[at].column);
        intake.good(place, self.columns[column].names[0], read(&self.values[at].text))
    }
}

/// Reads a table; `take` gets every row that has as many values as the header has names.
pub(super) fn read(
    text: impl BufRead,
    columns: &[Column<'_>],
    intake: &mut Intake<'_>,
    mut take: impl FnMut(&Cells<'_>, &mut Intake<'_>),
) -> io::Result<()> {
    let mut lines = Lines::new(text, LINE_LIMIT);
    let mut header: Option<Header> = None;
    let mut cells = Vec::new();
    while let Some(line) = lines.next()? {
        let place = Place::Line(line.number);
        let known = intake.problem_count();
        let Some(text) = line.text else {
            intake.problem(
                place,
                "",
                format!("longer than {LINE_LIMIT} bytes, the most that one row may have"),
            );
            continue;
        };
        if header.is_none() && text.starts_with(b"{") {
            let message = "a JSON object: this form is CSV, whose first line names the columns";
            intake.problem_quoting(place, message, line.excerpt(place, ""));
            intake.suggest(guess(text));
            return Ok(());
        }
        let split = std::str::from_utf8(text)
            .map_err(|_| "not UTF-8 text".to_owned())
            .and_then(|text| split(text, line.indent, &mut cells));
        if let Err(message) = split {
            intake.problem_quoting(place, message, line.excerpt(place, ""));
            if header.is_none() {
                return Ok(());
            }
            continue;
        }
        let Some(header) = &header else {
            let found = Header::new(&cells, columns, place, intake);
            intake.quote_since(known, &line);
            let Some(found) = found else { return Ok(()) };
            header = Some(found);
            continue;
        };
        if intake.is_full() {
            break;
        }
        intake.count_row();
        if cells.len() != header.names.len() {
            let message = format!("{} values under {} column names", cells.len(), header.names.len());
            intake.problem_quoting(place, message, line.excerpt(place, ""));
            continue;
        }
        for &extra in &header.extra {
            intake.ignore(&header.names[extra], place);
        }
        take(&Cells { place, line: line.number, columns, at: &header.at, values: &cells }, intake);
        intake.quote_since(known, &line);
    }
    Ok(())
}

struct Header {
    names: Vec<String>,
    at: Vec<Option<usize>>,
    /// Columns of which the form knows nothing.
    extra: Vec<usize>,
}

impl Header {
    /// Finds the known columns; `None` after noting why the table cannot be read.
    fn new(cells: &[Cell], columns: &[Column<'_>], place: Place, intake: &mut Intake<'_>) -> Option<Self> {
        let names: Vec<String> = cells.iter().map(|cell| cell.text.clone()).collect();
        if names.iter().all(|name| name.parse::<f64>().is_ok()) {
            let wanted: Vec<&str> = wanted(columns).collect();
            intake.problem(
                place,
                "",
                format!("no header: the first line has to name the columns, {}", wanted.join(", ")),
            );
            return None;
        }
        let mut good = true;
        let mut known = vec![false; names.len()];
        let mut at = Vec::with_capacity(columns.len());
        for column in columns {
            let is_name = |name: &String| column.names.iter().any(|known| known.eq_ignore_ascii_case(name));
            let found: Vec<usize> = (0..names.len()).filter(|&index| is_name(&names[index])).collect();
            for &index in &found {
                known[index] = true;
            }
            if let [first, second, ..] = found[..] {
                let message = format!("stands in columns {} and {}", first + 1, second + 1);
                intake.problem(place, &names[first], message);
                good = false;
            }
            if found.is_empty()
                && column.need == Need::Required
                && let Some(name) = column.names.first()
            {
                intake.problem(place, name, format!("missing; found {}", names.join(", ")));
                good = false;
            }
            at.push(found.first().copied());
        }
        if !good {
            if names.len() == 1 && names[0].contains([';', '\t']) {
                intake.hint("the columns are not separated by commas: save the file as CSV with commas");
            } else {
                intake.suggest_among(guess_from_names(&names));
            }
            return None;
        }
        let extra = (0..names.len()).filter(|&index| !known[index]).collect();
        Some(Self { names, at, extra })
    }
}

fn wanted<'n>(columns: &[Column<'n>]) -> impl Iterator<Item = &'n str> {
    columns
        .iter()
        .filter(|column| column.need == Need::Required)
        .filter_map(|column| column.names.first().copied())
}

/// Splits a line into values without the blanks and quotes around them. `indent` is the number of bytes before the line.
fn split(line: &str, indent: usize, cells: &mut Vec<Cell>) -> Result<(), String> {
    cells.clear();
    let mut rest = line;
    loop {
        let column = indent + line.len() - rest.len() + 1;
        let value = rest.trim_start();
        let end = if let Some(quoted) = value.strip_prefix('"') {
            let (text, after) = unquoted(quoted).ok_or_else(|| {
                format!("column {column}: a quote is opened and not closed on the same line")
            })?;
            cells.push(Cell { text, column });
            after.trim_start()
        } else {
            let (text, _) = value.split_once(',').unwrap_or((value, ""));
            cells.push(Cell { text: text.trim_end().to_owned(), column });
            &value[text.len()..]
        };
        match end.strip_prefix(',') {
            Some(next) => rest = next,
            None if end.is_empty() => return Ok(()),
            None => return Err(format!("column {column}: text after a closing quote")),
        }
    }
}

/// The text up to the closing quote, in which two quotes stand for one, and what follows.
fn unquoted(quoted: &str) -> Option<(String, &str)> {
    let mut text = String::new();
    let mut rest = quoted;
    loop {
        let (before, after) = rest.split_once('"')?;
        text.push_str(before);
        match after.strip_prefix('"') {
            Some(next) => {
                text.push('"');
                rest = next;
            }
            None => return Some((text.trim().to_owned(), after)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(line: &str) -> Result<Vec<(String, usize)>, String> {
        let mut cells = Vec::new();
        split(line, 0, &mut cells)?;
        Ok(cells.into_iter().map(|cell| (cell.text, cell.column)).collect())
    }

    #[test]
    fn lines_are_split_at_commas_outside_quotes() {
        let cell = |text: &str, column| (text.to_owned(), column);
        assert_eq!(texts("a, b ,,c"), Ok(vec![cell("a", 1), cell("b", 3), cell("", 7), cell("c", 8)]));
        assert_eq!(
            texts(r#""a,b","say ""x""",1"#),
            Ok(vec![cell("a,b", 1), cell("say \"x\"", 7), cell("1", 19)])
        );
        assert_eq!(texts("1,"), Ok(vec![cell("1", 1), cell("", 3)]));
        assert!(texts(r#"1,"open"#).unwrap_err().contains("column 3"));
        assert!(texts(r#""a"b,1"#).unwrap_err().contains("after a closing quote"));
    }
}
