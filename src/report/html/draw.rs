//! Figures as SVG.

use super::chart::{Chart, Figure};
use super::text::escaped;
use super::{parallel, plot};

impl Figure {
    /// The figure as an SVG element; `style` goes into it, for a file of its own.
    pub fn svg(&self, style: Option<&str>) -> String {
        let (width, height, body) = match &self.chart {
            Chart::Plot(plot) => (plot::WIDTH, plot::HEIGHT, plot.draw()),
            Chart::Bars(bars) => (plot::WIDTH, bars.height(), bars.draw()),
            Chart::Strips(strips) => (plot::WIDTH, strips.height(), strips.draw()),
            Chart::Parallel(lines) => (parallel::WIDTH, parallel::HEIGHT, lines.draw()),
        };
        let title = escaped(&self.title);
        let style = style.map(|style| format!("<style>{style}</style>")).unwrap_or_default();
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"figure\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
             aria-label=\"{title}\">{style}{body}</svg>"
        )
    }
}
