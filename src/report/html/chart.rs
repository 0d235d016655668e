//! Charts as data, drawn as SVG or written as CSV.

use std::fmt::Write as _;

use serde::Serialize;

use super::parallel::Parallel;
use super::strips::Strips;
use super::text::cell;

/// A figure with its caption.
#[derive(Clone, Debug, PartialEq, Serialize)]
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
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Chart {
    /// Points and lines over two axes.
    Plot(Plot),
    /// One horizontal bar for each name.
    Bars(Bars),
    /// A line across many axes for each of many things.
    Parallel(Parallel),
    /// For each name, the values of all that goes by it.
    Strips(Strips),
}

/// Points and lines over two axes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
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
    /// Horizontal lines with a name.
    pub levels: Vec<(f64, String)>,
}

/// Points that belong together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// How it is drawn.
    pub shape: Shape,
    /// In the order of drawing.
    pub points: Vec<Point>,
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
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
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Horizontal place.
    pub x: f64,
    /// Vertical place.
    pub y: f64,
    /// What it is; empty for points of a line.
    pub note: String,
}

/// One horizontal bar for each name.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
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
            Chart::Parallel(parallel) => parallel.lines.is_empty(),
            Chart::Strips(strips) => strips.rows.is_empty(),
        }
    }

    /// Whether it wants the whole width of a page.
    pub fn is_wide(&self) -> bool {
        matches!(self.chart, Chart::Parallel(_))
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
            Chart::Parallel(lines) => lines.csv(&mut text),
            Chart::Strips(strips) => strips.csv(&mut text),
        }
        text
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
