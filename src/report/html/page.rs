//! The page around the figures: one file that needs nothing else.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;

use super::chart::Figure;
use super::text::{escaped, shown};
use crate::report::ranking::joined;

/// Looks of the page and of figures alone.
pub const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// Everything that a report shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Page {
    /// Its heading.
    pub title: String,
    /// One line below it.
    pub lead: String,
    /// The figures that matter most: name, value, remark.
    pub tiles: Vec<(String, String, String)>,
    /// In the order of reading.
    pub sections: Vec<Section>,
}

/// A part of the page.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Section {
    /// Figures under a heading, side by side where there is room.
    Figures {
        /// The heading.
        heading: String,
        /// Those that have something to show are shown.
        figures: Vec<Figure>,
    },
    /// A table that can be sorted.
    Table {
        /// The heading.
        heading: String,
        /// Whether there is a field to filter its rows.
        filter: bool,
        /// Names of the columns.
        columns: Vec<String>,
        /// Cells, row by row.
        rows: Vec<Vec<Value>>,
    },
    /// What is to be said of the table before it.
    Remarks {
        /// One below the other.
        lines: Vec<String>,
    },
    /// Something to unfold.
    Details {
        /// The heading.
        heading: String,
        /// Shown as it is.
        text: String,
    },
}

impl Page {
    /// Every figure with something to show.
    pub fn figures(&self) -> impl Iterator<Item = &Figure> {
        let figures = self.sections.iter().filter_map(|section| match section {
            Section::Figures { figures, .. } => Some(figures),
            Section::Table { .. } | Section::Remarks { .. } | Section::Details { .. } => None,
        });
        figures.flatten().filter(|figure| !figure.is_empty())
    }

    /// The page as one HTML file.
    pub fn html(&self) -> String {
        let title = escaped(&self.title);
        let mut html = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <link rel=\"icon\" href=\"data:,\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
             <header><h1>{title}</h1><p>{}</p></header>\n<main>\n<section class=\"tiles\">\n",
            escaped(&self.lead)
        );
        for (name, value, remark) in &self.tiles {
            let _ = writeln!(
                html,
                "<div class=\"tile\"><span>{}</span><strong>{}</strong><small>{}</small></div>",
                escaped(name),
                escaped(value),
                escaped(remark)
            );
        }
        html.push_str("</section>\n");
        for section in &self.sections {
            section.write(&mut html);
        }
        let _ = write!(html, "</main>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n");
        html
    }
}

impl Section {
    fn write(&self, html: &mut String) {
        match self {
            Self::Figures { heading, figures } => write_figures(heading, figures, html),
            Self::Table { heading, filter, columns, rows } => {
                write_table(heading, *filter, columns, rows, html);
            }
            Self::Remarks { lines } => {
                for line in lines {
                    let _ = writeln!(html, "<p class=\"remark\">{}</p>", escaped(line));
                }
            }
            Self::Details { heading, text } => {
                let (heading, text) = (escaped(heading), escaped(text));
                let _ = writeln!(
                    html,
                    "<section><details><summary>{heading}</summary><pre>{text}</pre></details></section>"
                );
            }
        }
    }
}

fn write_figures(heading: &str, figures: &[Figure], html: &mut String) {
    if figures.iter().all(Figure::is_empty) {
        return;
    }
    let _ = writeln!(html, "<section><h2>{}</h2><div class=\"figures\">", escaped(heading));
    for figure in figures.iter().filter(|figure| !figure.is_empty()) {
        let _ = writeln!(
            html,
            "<figure id=\"{}\"{}><h3>{}</h3>{}<figcaption>{}</figcaption></figure>",
            escaped(&figure.id),
            if figure.is_wide() { " class=\"span\"" } else { "" },
            escaped(&figure.title),
            figure.svg(None),
            escaped(&figure.caption)
        );
    }
    html.push_str("</div></section>\n");
}

fn write_table(heading: &str, filter: bool, columns: &[String], rows: &[Vec<Value>], html: &mut String) {
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(html, "<section><h2>{}</h2>", escaped(heading));
    if filter {
        html.push_str("<input class=\"filter\" type=\"search\" placeholder=\"filter rows\" aria-label=\"filter rows\">\n");
    }
    // The columns by which a row is known stay in sight.
    let ranked = if columns.first().is_some_and(|name| name == "rank") { " ranked" } else { "" };
    let _ = write!(html, "<div class=\"wide\"><table class=\"sortable{ranked}\"><thead><tr>");
    // A column of numbers stands to the right, what is absent from it included.
    let is_numeric = |column: usize| {
        rows.iter().any(|row| row[column].is_number())
            && rows.iter().all(|row| row[column].is_number() || row[column].is_null())
    };
    let classes: Vec<&str> =
        (0..columns.len()).map(|column| if is_numeric(column) { " class=\"number\"" } else { "" }).collect();
    for (column, class) in columns.iter().zip(&classes) {
        // A long name may go on below.
        let name = escaped(column).replace('_', "_<wbr>");
        let _ = write!(html, "<th scope=\"col\"{class}><button type=\"button\">{name}</button></th>");
    }
    html.push_str("</tr></thead><tbody>\n");
    for row in rows {
        html.push_str("<tr>");
        for (value, class) in row.iter().zip(&classes) {
            write_cell(value, class, html);
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody></table></div></section>\n");
}

/// A cell; of several values the first decides where it is sorted, and all can be found by the filter.
fn write_cell(value: &Value, class: &str, html: &mut String) {
    let several: Vec<&str> = value.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let first = several.first().and_then(|first| first.parse().ok()).filter(|first: &f64| first.is_finite());
    let sort = value.as_f64().or(first).map(|value| format!(" data-sort=\"{value}\"")).unwrap_or_default();
    let (text, title) = if several.is_empty() {
        (shown(value), String::new())
    } else {
        (joined(&several), format!(" title=\"{}\"", escaped(&several.join("|"))))
    };
    let _ = write!(html, "<td{class}{sort}{title}>{}</td>", escaped(&text));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cell_of_many_values_holds_them_all() {
        let cell = |value: Value| {
            let mut html = String::new();
            write_cell(&value, "", &mut html);
            html
        };
        let many = "<td data-sort=\"1\" title=\"1|2|3|&lt;4\">1|..|&lt;4</td>";
        assert_eq!(cell(json!(["1", "2", "3", "<4"])), many);
        assert_eq!(cell(json!(["nan", "b"])), "<td title=\"nan|b\">nan|b</td>");
        assert_eq!(cell(json!([1, 2])), "<td>[1,2]</td>");
        assert_eq!(cell(json!(0.5)), "<td data-sort=\"0.5\">0.5</td>");
    }
}
