//! Drawing of bars.

use std::fmt::Write as _;

use super::chart::Bars;
use super::plot::{BOTTOM, WIDTH};
use super::scale::{Scale, label};
use super::text::escaped;

/// Height of one bar with the space around it.
const BAR: f64 = 26.0;
/// Space for the names of bars.
const BAR_LEFT: f64 = 250.0;

impl Bars {
    /// Height of the whole.
    pub(super) fn height(&self) -> f64 {
        self.bars.len() as f64 * BAR + BOTTOM
    }

    /// The inside of the SVG element.
    pub(super) fn draw(&self) -> String {
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
