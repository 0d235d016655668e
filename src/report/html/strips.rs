//! Strips: for each name, the values of all that goes by it, as dots on one scale.

use std::fmt::Write as _;

use serde::Serialize;

use super::plot::WIDTH;
use super::scale::{Scale, label};
use super::text::{cell, escaped};

/// Height of a strip.
const STRIP: f64 = 24.0;
/// Space for names.
const LEFT: f64 = 200.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 6.0;
const BOTTOM: f64 = 42.0;

/// Values by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Strips {
    /// What the values are; more is better.
    pub x_label: String,
    /// The strips, from top to bottom.
    pub rows: Vec<Strip>,
}

/// The values that go by one name.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Strip {
    /// The name.
    pub name: String,
    /// Each value, with what it is of.
    pub dots: Vec<(f64, String)>,
}

impl Strip {
    /// The greatest value.
    fn best(&self) -> Option<&(f64, String)> {
        self.dots.iter().max_by(|a, b| a.0.total_cmp(&b.0))
    }
}

impl Strips {
    /// Height of the whole.
    pub(super) fn height(&self) -> f64 {
        TOP + self.rows.len() as f64 * STRIP + BOTTOM
    }

    /// The inside of the SVG element.
    pub(super) fn draw(&self) -> String {
        let values = self.rows.iter().flat_map(|row| row.dots.iter().map(|dot| dot.0));
        let x = Scale::over(values, LEFT, WIDTH - RIGHT, false);
        let bottom = self.height() - BOTTOM;
        let mut svg = String::new();
        for tick in x.ticks() {
            let at = x.place(tick);
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{bottom:.1}\"/>\
                 <text class=\"tick\" text-anchor=\"middle\" x=\"{at:.1}\" y=\"{:.1}\">{}</text>",
                bottom + 14.0,
                label(tick)
            );
        }
        for (number, row) in self.rows.iter().enumerate() {
            let y = TOP + (number as f64 + 0.5) * STRIP;
            let _ = write!(
                svg,
                "<text class=\"tick\" text-anchor=\"end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                LEFT - 8.0,
                y + 4.0,
                escaped(&row.name)
            );
            for (value, note) in &row.dots {
                svg.push_str(&dot("faint c0", x.place(*value), y, 4.0, note));
            }
            if let Some((value, note)) = row.best() {
                svg.push_str(&dot("dot c1", x.place(*value), y, 5.5, note));
            }
        }
        let _ = write!(
            svg,
            "<text class=\"label\" text-anchor=\"middle\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            f64::midpoint(LEFT, WIDTH - RIGHT),
            self.height() - 8.0,
            escaped(&self.x_label)
        );
        svg
    }

    /// The numbers, a row for each dot.
    pub(super) fn csv(&self, text: &mut String) {
        let _ = writeln!(text, "name,{},note", cell(&self.x_label));
        for row in &self.rows {
            for (value, note) in &row.dots {
                let _ = writeln!(text, "{},{value},{}", cell(&row.name), cell(&note.replace('\n', "; ")));
            }
        }
    }
}

fn dot(class: &str, x: f64, y: f64, radius: f64, note: &str) -> String {
    format!(
        "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\"><title>{}</title></circle>",
        escaped(note)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_of_a_strip_stands_out() {
        let dots = vec![(-3.0, "a".to_owned()), (-1.0, "b".to_owned())];
        let strips = Strips {
            x_label: "score".into(),
            rows: vec![
                Strip { name: "two".into(), dots },
                Strip { name: "one".into(), dots: vec![(-2.0, "c".into())] },
            ],
        };
        let svg = strips.draw();
        assert_eq!(svg.matches("<circle").count(), 5);
        let best = |title: &str| svg.contains(&format!("r=\"5.5\"><title>{title}</title>"));
        assert!(best("b") && best("c") && !best("a"));
        let mut csv = String::new();
        strips.csv(&mut csv);
        assert_eq!(csv, "name,score,note\ntwo,-3,a\ntwo,-1,b\none,-2,c\n");
    }
}
