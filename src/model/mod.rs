//! What is known of models and GPUs: their sizes and number formats, never how fast or how full they run.
//!
//! A model's facts come from its Hugging Face `config.json`, a GPU's from a small file of data sheet figures. Those of
//! the usual ones are built in ([`Catalogue`]); a user can add others without a rebuild.

mod catalogue;
mod engine_spec;
mod error;
mod facts;
mod hardware;
mod hugging_face;
mod operators;
mod quantization;
mod split;

pub use catalogue::Catalogue;
pub use engine_spec::engine_spec;
pub use error::ModelError;
pub use facts::{Attention, DenseFeedForward, Experts, FeedForward, ModelFacts, SlidingWindow};
pub use hardware::HardwareFacts;
pub use operators::{Operator, Phase, operators};
pub use quantization::{NumberFormats, WeightFormat};
pub use split::Split;
