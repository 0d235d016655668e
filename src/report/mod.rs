//! What a replay recorded and the figures made from it.
//!
//! [`record`] is the raw material. [`summary`] defines every figure, [`requests`] the row of each request,
//! [`files`] how results reach the disk and [`table`] what a terminal shows, [`ranking`] what it shows of a search. [`attainment`] says what a share of the requests is within. Spreads and percentiles come from
//! [`distribution`]; `gaps` pools the token gaps of all requests without ever listing them.

pub mod activity;
pub mod attainment;
pub mod distribution;
pub mod figure;
pub mod files;
mod gap_buckets;
pub mod gap_tally;
mod gaps;
pub mod html;
pub mod peaks;
pub mod phases;
pub mod ranking;
pub mod reasons;
pub mod record;
pub mod requests;
pub mod scaling;
pub mod series;
pub mod shortfalls;
pub mod summary;
pub mod table;
pub mod timeline;

pub use summary::Summary;
