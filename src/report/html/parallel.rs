//! Parallel coordinates: one line across many axes for each of many things.

use std::fmt::Write as _;

use serde::Serialize;

use super::scale::{Scale, label};
use super::text::{cell, escaped, figure};

pub(super) const WIDTH: f64 = 1300.0;
pub(super) const HEIGHT: f64 = 400.0;
const SIDE: f64 = 90.0;
const TOP: f64 = 58.0;
const BOTTOM: f64 = 24.0;
/// Room that names keep from the edges of the picture.
const EDGE: f64 = 4.0;
/// Width of a letter of a name on a generous average.
const LETTER: f64 = 7.5;
/// Different numbers of an axis that still stand apart as values of their own.
const VALUES_APART: usize = 10;
/// Of the lines, the share that is made to stand out.
const OUTSTANDING: f64 = 0.1;

/// Lines across axes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Parallel {
    /// Names of the axes; the last is what the lines are judged by, and more of it is better.
    pub axes: Vec<String>,
    /// The lines.
    pub lines: Vec<ParallelLine>,
}

/// A line: a value on each axis.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ParallelLine {
    /// As texts, by axis; the last is a number.
    pub values: Vec<String>,
    /// What it is, for the pointer.
    pub note: String,
}

/// Where the values of an axis stand.
enum Axis {
    /// Each in a place of its own, in order.
    Apart(Vec<String>),
    /// By size.
    Continuous(Scale),
}

impl Axis {
    fn of<'v>(values: impl Iterator<Item = &'v str> + Clone) -> Self {
        let mut distinct: Vec<&str> = values.clone().collect();
        distinct.sort_unstable();
        distinct.dedup();
        let numbers: Option<Vec<f64>> = values.map(|value| value.parse().ok()).collect();
        if let Some(numbers) = numbers.filter(|_| distinct.len() > VALUES_APART) {
            return Self::Continuous(Scale::over(numbers.into_iter(), HEIGHT - BOTTOM, TOP, false));
        }
        let size = |value: &&str| value.parse::<f64>().unwrap_or(f64::INFINITY);
        distinct.sort_by(|a, b| size(a).total_cmp(&size(b)).then(a.cmp(b)));
        Self::Apart(distinct.into_iter().map(str::to_owned).collect())
    }

    fn place(&self, value: &str) -> f64 {
        match self {
            Self::Apart(values) => {
                let at = values.iter().position(|known| known == value).unwrap_or(0) as f64;
                let steps = (values.len().max(2) - 1) as f64;
                let share = if values.len() == 1 { 0.5 } else { at / steps };
                HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP)
            }
            Self::Continuous(scale) => scale.place(value.parse().unwrap_or(0.0)),
        }
    }

    fn ticks(&self) -> Vec<(f64, String)> {
        match self {
            Self::Apart(values) => values.iter().map(|value| (self.place(value), short(value))).collect(),
            Self::Continuous(scale) => {
                scale.ticks().into_iter().map(|tick| (scale.place(tick), label(tick))).collect()
            }
        }
    }
}

/// The anchor of an axis' name and where it stands: over the axis, or within the picture where it would be cut there.
fn name_place(axis: f64, name: &str) -> (&'static str, f64) {
    let half = name.chars().count() as f64 * LETTER / 2.0;
    if axis - half < EDGE {
        ("start", EDGE)
    } else if axis + half > WIDTH - EDGE {
        ("end", WIDTH - EDGE)
    } else {
        ("middle", axis)
    }
}

/// A value as there is room for it.
fn short(value: &str) -> String {
    match value.parse::<f64>() {
        Ok(number) if value.len() > 8 => figure(number),
        _ if value.chars().count() > 18 => value.chars().take(16).chain("..".chars()).collect(),
        _ => value.to_owned(),
    }
}

impl Parallel {
    /// The inside of the SVG element.
    pub(super) fn draw(&self) -> String {
        let axes: Vec<Axis> = (0..self.axes.len())
            .map(|axis| Axis::of(self.lines.iter().map(move |line| line.values[axis].as_str())))
            .collect();
        let across = Scale::between(0.0, (axes.len().max(2) - 1) as f64, SIDE, WIDTH - SIDE);
        let mut svg = String::new();
        // The best are drawn last, over the others.
        let mut order: Vec<&ParallelLine> = self.lines.iter().collect();
        let worth = |line: &ParallelLine| -> f64 {
            line.values.last().and_then(|value| value.parse().ok()).unwrap_or(f64::NEG_INFINITY)
        };
        order.sort_by(|a, b| worth(a).total_cmp(&worth(b)));
        let outstanding = ((order.len() as f64 * OUTSTANDING).ceil() as usize).clamp(1, 10);
        let first_outstanding = order.len().saturating_sub(outstanding);
        for (number, line) in order.iter().enumerate() {
            let class = if number < first_outstanding { "thin c0" } else { "line c1" };
            let mut path = String::new();
            for (number, (axis, value)) in axes.iter().zip(&line.values).enumerate() {
                let start = if number == 0 { 'M' } else { 'L' };
                let _ = write!(path, "{start}{:.1} {:.1}", across.place(number as f64), axis.place(value));
            }
            let note = escaped(&line.note);
            let _ = write!(svg, "<path class=\"{class}\" d=\"{path}\"><title>{note}</title></path>");
        }
        for (number, (name, axis)) in self.axes.iter().zip(&axes).enumerate() {
            let at = across.place(number as f64);
            // Long names of neighbours stand at two heights.
            let height = if number % 2 == 0 { 20.0 } else { 38.0 };
            let (anchor, name_at) = name_place(at, name);
            let _ = write!(
                svg,
                "<line class=\"axis\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{:.1}\"/>\
                 <text class=\"label over\" text-anchor=\"{anchor}\" x=\"{name_at:.1}\" y=\"{height}\">{}</text>",
                HEIGHT - BOTTOM,
                escaped(name)
            );
            for (y, text) in axis.ticks() {
                let _ = write!(
                    svg,
                    "<text class=\"tick over\" text-anchor=\"end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                    at - 5.0,
                    y + 4.0,
                    escaped(&text)
                );
            }
        }
        svg
    }

    /// The numbers, a row for each line.
    pub(super) fn csv(&self, text: &mut String) {
        let row = |cells: &[String]| cells.iter().map(|text| cell(text)).collect::<Vec<_>>().join(",");
        let _ = writeln!(text, "{}", row(&self.axes));
        for line in &self.lines {
            let _ = writeln!(text, "{}", row(&line.values));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_stay_within_the_picture() {
        let name = "agg_max_num_batched_tokens";
        assert_eq!(name_place(SIDE, name), ("start", EDGE));
        assert_eq!(name_place(WIDTH - SIDE, name), ("end", WIDTH - EDGE));
        assert_eq!(name_place(WIDTH / 2.0, name), ("middle", WIDTH / 2.0));
        assert_eq!(name_place(SIDE, "score"), ("middle", SIDE));
        let line = ParallelLine { values: vec!["1".into(), "2".into()], note: String::new() };
        let svg = Parallel { axes: vec![name.into(), "score".into()], lines: vec![line] }.draw();
        assert!(svg.contains(&format!("text-anchor=\"start\" x=\"4.0\" y=\"20\">{name}</text>")), "{svg}");
    }

    #[test]
    fn values_stand_in_their_order_and_the_best_stand_out() {
        let line = |values: [&str; 2]| ParallelLine {
            values: values.map(str::to_owned).to_vec(),
            note: values[0].into(),
        };
        let lines = Parallel {
            axes: vec!["workers".into(), "score".into()],
            lines: vec![line(["10", "1"]), line(["2", "3"]), line(["-", "2"])],
        };
        let axis = Axis::of(["10", "2", "-"].into_iter());
        assert!(axis.place("2") > axis.place("10") && axis.place("10") > axis.place("-"), "upwards");
        let svg = lines.draw();
        assert_eq!(svg.matches("class=\"line c1\"").count(), 1);
        assert!(svg.contains("<title>2</title>"));
        let best = svg.split("class=\"line c1\"").nth(1).unwrap();
        assert!(best.contains("<title>2</title>") && !best.contains("<title>10</title>"));
        let mut csv = String::new();
        lines.csv(&mut csv);
        assert_eq!(csv, "workers,score\n10,1\n2,3\n-,2\n");
    }
}
