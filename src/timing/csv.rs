//! Comma-separated rows of numbers and names, as people measure and ask for passes.

use std::fmt;
use std::io::{BufRead, Read};

/// Problems that are displayed; more would bury the first.
const MOST_SHOWN: usize = 20;

/// A file of rows under named columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Csv {
    /// Names of the columns, in their order.
    pub columns: Vec<String>,
    /// The rows; each has as many fields as there are columns.
    pub rows: Vec<Row>,
}

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its line in the file, from 1.
    pub line: usize,
    /// Its fields, without the space around them.
    pub fields: Vec<String>,
}

/// What is wrong with one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowProblem {
    /// The line, from 1; 0 for the file as a whole.
    pub line: usize,
    /// The value, the rule, the way out.
    pub message: String,
}

impl RowProblem {
    /// A problem of one line.
    pub fn new(line: usize, message: impl Into<String>) -> Self {
        Self { line, message: message.into() }
    }
}

/// Everything that is wrong with a file of rows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct RowProblems {
    /// The file as the user named it.
    pub file: String,
    /// What is wrong, in the order of the lines.
    pub problems: Vec<RowProblem>,
}

impl fmt::Display for RowProblems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.problems.iter().take(MOST_SHOWN).map(|problem| match problem.line {
            0 => format!("{}: {}", self.file, problem.message),
            line => format!("{}:{line}: {}", self.file, problem.message),
        });
        f.write_str(&shown.collect::<Vec<_>>().join("\n"))?;
        match self.problems.len().saturating_sub(MOST_SHOWN) {
            0 => Ok(()),
            hidden => write!(f, "\n{}: and {hidden} more problems", self.file),
        }
    }
}

impl Csv {
    /// Reads a file whose first line names its columns, in any order, or whose columns are `usual` where that line is a
    /// row already: where none of its fields is the name of a usual column, and one of them is a number.
    ///
    /// # Errors
    /// Lines that cannot be read or have another number of fields than there are columns, all of them.
    pub fn read(mut reader: impl BufRead, usual: &[&str]) -> Result<Self, Vec<RowProblem>> {
        let mut csv = Self { columns: Vec::new(), rows: Vec::new() };
        let mut problems = Vec::new();
        for number in 0.. {
            let line = match next_line(&mut reader) {
                Ok(Some(line)) => line,
                Ok(None) => break,
                Err(problem) => {
                    problems.push(RowProblem::new(number + 1, problem));
                    break;
                }
            };
            let line = line.trim_start_matches('\u{feff}').trim();
            if line.is_empty() {
                continue;
            }
            let fields: Vec<String> = line.split(',').map(|field| unquoted(field.trim())).collect();
            if csv.columns.is_empty() {
                let is_row = fields.iter().any(|field| field.parse::<f64>().is_ok());
                if !is_row || fields.iter().any(|field| usual.contains(&field.as_str())) {
                    csv.columns = fields;
                    continue;
                }
                csv.columns = usual.iter().map(|name| (*name).to_owned()).collect();
            }
            let (found, expected) = (fields.len(), csv.columns.len());
            if found == expected {
                csv.rows.push(Row { line: number + 1, fields });
            } else {
                let message =
                    format!("{found} fields where there are {expected} columns: {}", csv.columns.join(","));
                problems.push(RowProblem::new(number + 1, message));
            }
        }
        if problems.is_empty() { Ok(csv) } else { Err(problems) }
    }

    /// The place of a column.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column == name)
    }

    /// The columns that stand twice, of those that matter: nobody could say which of the two is meant.
    pub fn repeated(&self, matters: impl Fn(&str) -> bool) -> Vec<RowProblem> {
        let again = self.columns.iter().enumerate().filter_map(|(second, name)| {
            let first = self.column(name).filter(|&first| first < second && matters(name))?;
            let message = format!("{name}: stands in columns {} and {}", first + 1, second + 1);
            Some(RowProblem::new(1, message))
        });
        again.collect()
    }
}

/// The next line, if there is one.
fn next_line(reader: &mut impl BufRead) -> Result<Option<String>, String> {
    let mut bytes = Vec::new();
    let read = reader.take(LONGEST_LINE + 1).read_until(b'\n', &mut bytes);
    match read {
        Ok(0) => Ok(None),
        Ok(length) if length as u64 > LONGEST_LINE => {
            Err(format!("is longer than {LONGEST_LINE} bytes, as no row of numbers is"))
        }
        Ok(_) => String::from_utf8(bytes).map(Some).map_err(|_| "is not UTF-8 text".to_owned()),
        Err(error) => Err(format!("cannot be read: {error}")),
    }
}

/// Longest row in bytes.
const LONGEST_LINE: u64 = 1 << 20;

fn unquoted(field: &str) -> String {
    field.strip_prefix('"').and_then(|field| field.strip_suffix('"')).unwrap_or(field).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_named_or_usual() {
        let read = |text: &str| Csv::read(text.as_bytes(), &["a", "b"]);
        let named = read("\u{feff}b, c ,a\r\n\r\n1,\"2\",3\r\n").unwrap();
        assert_eq!((named.column("a"), named.column("x")), (Some(2), None));
        assert_eq!(named.rows, [Row { line: 3, fields: vec!["1".into(), "2".into(), "3".into()] }]);
        let usual = read("1,2\n3,4").unwrap();
        assert_eq!((usual.columns.join("+"), usual.rows.len()), ("a+b".into(), 2));
        assert_eq!(read("").unwrap().rows, []);
    }

    #[test]
    fn columns_that_stand_twice_are_named() {
        let csv = Csv::read("x,a,b,a,b,x,x\n".as_bytes(), &["a", "b"]).unwrap();
        let repeated = |matters: fn(&str) -> bool| -> Vec<String> {
            csv.repeated(matters).into_iter().map(|problem| problem.message).collect()
        };
        assert_eq!(
            repeated(|name| name != "x"),
            ["a: stands in columns 2 and 4", "b: stands in columns 3 and 5"]
        );
        assert_eq!(
            repeated(|name| name == "x"),
            ["x: stands in columns 1 and 6", "x: stands in columns 1 and 7"]
        );
    }

    #[test]
    fn every_crooked_line_is_named() {
        let problems = Csv::read("a,b\n1\n1,2\n1,2,3\n".as_bytes(), &["a"]).unwrap_err();
        let all = RowProblems { file: "x.csv".into(), problems };
        assert_eq!(
            all.to_string(),
            "x.csv:2: 1 fields where there are 2 columns: a,b\nx.csv:4: 3 fields where there are 2 columns: a,b"
        );
        let problems = vec![RowProblem::new(1, "bad"); 23];
        let all = RowProblems { file: "x.csv".into(), problems }.to_string();
        assert!(all.ends_with("and 3 more problems"), "{all}");
    }
}
