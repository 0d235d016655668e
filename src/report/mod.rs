//! What a replay recorded and the figures made from it.

pub mod record;
