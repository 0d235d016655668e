//! Charts as data, drawn as SVG or written as CSV.

use std::fmt::Write as _;

use super::scale::{Scale, label};
use super::text::escaped;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 66.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 46.0;
/// Height of one bar with the space around it.
const BAR: f64 = 26.0;
/// Space for the names of bars.
const BAR_LEFT: f64 = 250.0;
/// Colours before they repeat.
const COLOURS: usize = 8;

/// A figure with its caption.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Name for `--figure`, and anchor in the page.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// How to read it.
    pub caption: String,
    /// What is drawn.
    pub chart: Chart,
}

/// What is drawn.
#[derive(Clone, Debug, PartialEq)]
pub enum Chart {
    /// Points and lines over two axes.
    Plot(Plot),
    /// One horizontal bar for each name.
    Bars(Bars),
}

/// Points and lines over two axes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plot {
    /// What the horizontal axis counts.
    pub x_label: String,
    /// What the vertical axis counts.
    pub y_label: String,
    /// Whether the horizontal axis is logarithmic.
    pub x_log: bool,
    /// Upper end of the vertical axis, if it should not follow the data.
    pub y_max: Option<f64>,
    /// What is drawn, in order.
    pub series: Vec<Series>,
    /// Vertical lines with a name: bounds and the like.
    pub rules: Vec<(f64, String)>,
}

/// Points that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// How it is drawn.
    pub shape: Shape,
    /// In the order of drawing.
    pub points: Vec<Point>,
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// From point to point.
    Line,
    /// Each value holds until the next point.
    Steps,
    /// Dots.
    Dots,
    /// Dots joined by a line.
    Frontier,
}

/// A point, with what is shown when the pointer rests on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Horizontal place.
    pub x: f64,
    /// Vertical place.
    pub y: f64,
    /// What it is; empty for points of a line.
    pub note: String,
}

/// One horizontal bar for each name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bars {
    /// What the bars count.
    pub x_label: String,
    /// Name and length of each.
    pub bars: Vec<(String, f64)>,
}

impl Point {
    /// A point without a note.
    pub fn new(x: f64, y: f64) -> Self {
        Self { x, y, note: String::new() }
    }
}

impl Series {
    /// A series of points.
    pub fn new(name: impl Into<String>, shape: Shape, points: Vec<Point>) -> Self {
        Self { name: name.into(), shape, points }
    }
}

impl Figure {
    /// Whether there is anything to draw.
    pub fn is_empty(&self) -> bool {
        match &self.chart {
            Chart::Plot(plot) => plot.series.iter().all(|series| series.points.is_empty()),
            Chart::Bars(bars) => bars.bars.is_empty(),
        }
    }

    /// The figure as an SVG element; `style` goes into it, for a file of its own.
    pub fn svg(&self, style: Option<&str>) -> String {
        let (height, body) = match &self.chart {
            Chart::Plot(plot) => (HEIGHT, plot.draw()),
            Chart::Bars(bars) => (bars.height(), bars.draw()),
        };
        let title = escaped(&self.title);
        let style = style.map(|style| format!("<style>{style}</style>")).unwrap_or_default();
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"figure\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
             aria-label=\"{title}\">{style}{body}</svg>"
        )
    }

    /// The numbers behind the figure.
    pub fn csv(&self) -> String {
        let mut text = String::new();
        match &self.chart {
            Chart::Plot(plot) => {
                let _ = writeln!(text, "series,{},{},note", cell(&plot.x_label), cell(&plot.y_label));
                for series in &plot.series {
                    for point in &series.points {
                        let (name, note) = (cell(&series.name), cell(&point.note.replace('\n', "; ")));
                        let _ = writeln!(text, "{name},{},{},{note}", point.x, point.y);
                    }
                }
            }
            Chart::Bars(bars) => {
                let _ = writeln!(text, "name,{}", cell(&bars.x_label));
                for (name, value) in &bars.bars {
                    let _ = writeln!(text, "{},{value}", cell(name));
                }
            }
        }
        text
    }
}

/// A text as a cell of a CSV file.
fn cell(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

impl Plot {
    fn draw(&self) -> String {
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
        let ys = points().map(|point| point.y).chain(ground).chain(self.y_max);
        let mut y = Scale::over(ys, HEIGHT - BOTTOM, TOP, false);
        if let Some(most) = self.y_max {
            y = Scale::between(0.0, most, HEIGHT - BOTTOM, TOP);
        }
        let mut svg = self.axes(&x, &y);
        for (at, name) in &self.rules {
            let (at, name) = (x.place(*at), escaped(name));
            let (anchor, beside) = if at > WIDTH * 0.75 { ("end", at - 4.0) } else { ("start", at + 4.0) };
            let _ = write!(
                svg,
                "<line class=\"rule\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{:.1}\"/>\
                 <text class=\"tick\" text-anchor=\"{anchor}\" x=\"{beside:.1}\" y=\"{:.1}\">{name}</text>",
                HEIGHT - BOTTOM,
                HEIGHT - BOTTOM - 8.0
            );
        }
        for (number, series) in self.series.iter().enumerate() {
            svg.push_str(&series.draw(number % COLOURS, &x, &y));
        }
        svg + &self.legend()
    }

    fn axes(&self, x: &Scale, y: &Scale) -> String {
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
            f64::midpoint(TOP, bottom),
            escaped(&self.y_label)
        );
        svg
    }

    fn legend(&self) -> String {
        if self.series.len() < 2 {
            return String::new();
        }
        let mut svg = String::new();
        let mut at = LEFT + 4.0;
        let mut row = TOP + 2.0;
        for (number, series) in self.series.iter().enumerate() {
            let width = 24.0 + series.name.chars().count() as f64 * 6.2;
            if at + width > WIDTH - RIGHT && at > LEFT + 4.0 {
                at = LEFT + 4.0;
                row += 15.0;
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
        svg
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

impl Bars {
    fn height(&self) -> f64 {
        self.bars.len() as f64 * BAR + BOTTOM
    }

    fn draw(&self) -> String {
        let x = Scale::over(self.bars.iter().map(|bar| bar.1).chain([0.0]), BAR_LEFT, WIDTH - 70.0, false);
        let mut svg = String::new();
        for (number, (name, value)) in self.bars.iter().enumerate() {
            let top = number as f64 * BAR + 6.0;
            let (start, end) = (x.place(0.0), x.place(*value));
            let shown: String = if name.chars().count() > 40 {
                name.chars().take(38).chain("...".chars()).collect()
            } else {
                name.clone()
            };
            let _ = write!(
                svg,
                "<text class=\"tick\" text-anchor=\"end\" x=\"{:.1}\" y=\"{:.1}\">{}<title>{}</title></text>\
                 <rect class=\"fill c0\" x=\"{start:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"16\" rx=\"2\"/>\
                 <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                BAR_LEFT - 8.0,
                top + 12.0,
                escaped(&shown),
                escaped(name),
                (end - start).max(0.5),
                end + 6.0,
                top + 12.0,
                label(*value)
            );
        }
        let _ = write!(
            svg,
            "<text class=\"label\" text-anchor=\"middle\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            f64::midpoint(BAR_LEFT, WIDTH - 70.0),
            self.height() - 14.0,
            escaped(&self.x_label)
        );
        svg
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure() -> Figure {
        let points = vec![Point::new(0.0, 1.0), Point { x: 10.0, y: 2.0, note: "a \"b\" <c>".into() }];
        Figure {
            id: "f".into(),
            title: "A & B".into(),
            caption: String::new(),
            chart: Chart::Plot(Plot {
                x_label: "time, s".into(),
                y_label: "y".into(),
                series: vec![Series::new("one", Shape::Frontier, points)],
                ..Plot::default()
            }),
        }
    }

    #[test]
    fn csv_holds_the_numbers() {
        assert_eq!(figure().csv(), "series,\"time, s\",y,note\none,0,1,\none,10,2,\"a \"\"b\"\" <c>\"\n");
    }

    #[test]
    fn points_stand_where_their_numbers_say() {
        let svg = figure().svg(None);
        assert!(svg.contains("aria-label=\"A &amp; B\""), "{svg}");
        assert!(svg.contains("<title>a &quot;b&quot; &lt;c&gt;</title>"), "{svg}");
        // The axes run from 0 to 10 and from 0 to 2.
        assert!(svg.contains("cx=\"66.0\" cy=\"134.0\""), "{svg}");
        assert!(svg.contains("cx=\"624.0\" cy=\"14.0\""), "{svg}");
        assert!(svg.contains("d=\"M66.0 134.0L624.0 14.0\""), "{svg}");
    }
}
