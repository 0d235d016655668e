//! Drawing of points and lines over two axes.

use std::fmt::Write as _;

use super::chart::{Plot, Series, Shape};
use super::scale::{Scale, label};
use super::text::escaped;

/// Width of a figure that stands beside another.
pub(super) const WIDTH: f64 = 640.0;
pub(super) const HEIGHT: f64 = 300.0;
const LEFT: f64 = 66.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 14.0;
pub(super) const BOTTOM: f64 = 46.0;
/// Colours before they repeat.
const COLOURS: usize = 8;
/// Height of a row of the legend.
const LEGEND_ROW: f64 = 16.0;

impl Plot {
    /// The inside of the SVG element.
    pub(super) fn draw(&self) -> String {
        let (legend, rows) = self.legend();
        let top = TOP + f64::from(rows) * LEGEND_ROW;
        let points = || self.series.iter().flat_map(|series| &series.points);
        let xs = points().map(|point| point.x).chain(self.rules.iter().map(|rule| rule.0));
        // Dots need room around them; what happens over time fills the width, and its height counts from 0.
        let is_scatter = self.series.iter().any(|series| series.shape == Shape::Dots);
        let x = if is_scatter {
            Scale::over(xs, LEFT, WIDTH - RIGHT, self.x_log)
        } else {
            Scale::exact(xs, LEFT, WIDTH - RIGHT, self.x_log)
        };
        let ground = (!is_scatter).then_some(0.0);
        let levels = self.levels.iter().map(|level| level.0);
        let ys = points().map(|point| point.y).chain(ground).chain(self.y_max).chain(levels);
        let mut y = Scale::over(ys, HEIGHT - BOTTOM, top, false);
        if let Some(most) = self.y_max {
            y = Scale::between(0.0, most, HEIGHT - BOTTOM, top);
        }
        let mut svg = self.axes(&x, &y, top);
        let mut names = String::new();
        for (at, name) in &self.rules {
            let (at, name) = (x.place(*at), escaped(name));
            let (anchor, beside) = if at > WIDTH * 0.75 { ("end", at - 4.0) } else { ("start", at + 4.0) };
            let bottom = HEIGHT - BOTTOM;
            let _ = write!(
                svg,
                "<line class=\"rule\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{top}\" y2=\"{bottom:.1}\"/>"
            );
            let _ = write!(
                names,
                "<text class=\"tick over\" text-anchor=\"{anchor}\" x=\"{beside:.1}\" y=\"{:.1}\">{name}</text>",
                top + 12.0
            );
        }
        for (at, name) in &self.levels {
            let (at, name, right) = (y.place(*at), escaped(name), WIDTH - RIGHT);
            let _ = write!(
                svg,
                "<line class=\"rule\" x1=\"{LEFT}\" x2=\"{right:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>"
            );
            let _ = write!(
                names,
                "<text class=\"tick over\" text-anchor=\"end\" x=\"{:.1}\" y=\"{:.1}\">{name}</text>",
                right - 4.0,
                at - 4.0
            );
        }
        for (number, series) in self.series.iter().enumerate() {
            svg.push_str(&series.draw(number % COLOURS, &x, &y));
        }
        svg + &names + &legend
    }

    fn axes(&self, x: &Scale, y: &Scale, top: f64) -> String {
        let mut svg = String::new();
        let bottom = HEIGHT - BOTTOM;
        for tick in y.ticks() {
            let at = y.place(tick);
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
                 <text class=\"tick\" text-anchor=\"end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 6.0,
                at + 4.0,
                label(tick)
            );
        }
        for tick in x.ticks() {
            let at = x.place(tick);
            let _ = write!(
                svg,
                "<text class=\"tick\" text-anchor=\"middle\" x=\"{at:.1}\" y=\"{:.1}\">{}</text>",
                bottom + 16.0,
                label(tick)
            );
        }
        let _ = write!(
            svg,
            "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{bottom}\" y2=\"{bottom}\"/>\
             <text class=\"label\" text-anchor=\"middle\" x=\"{:.1}\" y=\"{:.1}\">{}</text>\
             <text class=\"label\" text-anchor=\"middle\" transform=\"translate(12 {:.1}) rotate(-90)\">{}</text>",
            WIDTH - RIGHT,
            f64::midpoint(LEFT, WIDTH - RIGHT),
            HEIGHT - 12.0,
            escaped(&self.x_label),
            f64::midpoint(top, bottom),
            escaped(&self.y_label)
        );
        svg
    }

    /// The legend above the plot, and how many rows it takes.
    fn legend(&self) -> (String, u8) {
        if self.series.len() < 2 {
            return (String::new(), 0);
        }
        let mut rows = 1;
        let mut svg = String::new();
        let mut at = LEFT + 4.0;
        let mut row = TOP + 2.0;
        for (number, series) in self.series.iter().enumerate() {
            let width = 24.0 + series.name.chars().count() as f64 * 6.2;
            if at + width > WIDTH - RIGHT && at > LEFT + 4.0 {
                at = LEFT + 4.0;
                row += LEGEND_ROW;
                rows += 1;
            }
            let _ = write!(
                svg,
                "<rect class=\"fill c{}\" x=\"{at:.1}\" y=\"{:.1}\" width=\"10\" height=\"10\" rx=\"2\"/>\
                 <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                number % COLOURS,
                row - 8.0,
                at + 14.0,
                row + 1.0,
                escaped(&series.name)
            );
            at += width;
        }
        (svg, rows)
    }
}

impl Series {
    fn draw(&self, colour: usize, x: &Scale, y: &Scale) -> String {
        let mut svg = String::new();
        if matches!(self.shape, Shape::Line | Shape::Steps | Shape::Frontier) && !self.points.is_empty() {
            let path = self.path(x, y);
            let _ = write!(svg, "<path class=\"line c{colour}\" d=\"{path}\"/>");
        }
        if matches!(self.shape, Shape::Dots | Shape::Frontier) {
            for point in &self.points {
                let note = escaped(&point.note);
                let _ = write!(
                    svg,
                    "<circle class=\"dot c{colour}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"4.5\"><title>{note}</title></circle>",
                    x.place(point.x),
                    y.place(point.y)
                );
            }
        }
        svg
    }

    fn path(&self, x: &Scale, y: &Scale) -> String {
        let mut path = String::new();
        let mut before: Option<f64> = None;
        for point in &self.points {
            let (at, height) = (x.place(point.x), y.place(point.y));
            match before {
                None => {
                    let _ = write!(path, "M{at:.1} {height:.1}");
                }
                Some(before) if self.shape == Shape::Steps => {
                    let _ = write!(path, "L{at:.1} {before:.1}L{at:.1} {height:.1}");
                }
                Some(_) => {
                    let _ = write!(path, "L{at:.1} {height:.1}");
                }
            }
            before = Some(height);
        }
        path
    }
}
