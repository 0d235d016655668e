//! A report that people can open: one HTML file without a network, made from what a replay or a search has written.

mod bars;
mod chart;
mod draw;
mod page;
mod parallel;
mod plot;
mod replay_page;
mod scale;
mod search_page;
mod strips;
mod text;
mod tried;
mod workers;

pub use chart::{Bars, Chart, Figure, Plot, Point, Series, Shape};
pub use page::{Page, STYLE, Section};
pub use parallel::{Parallel, ParallelLine};
pub use replay_page::{ReplayFiles, replay_page};
pub use search_page::{SearchFiles, search_page};
pub use strips::{Strip, Strips};
