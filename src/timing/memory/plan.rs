//! What one GPU holds, and what is left.

use std::fmt;

use serde::Serialize;

use crate::config::scenario::Backend;

/// Where the figures of a plan come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MemorySource {
    /// The facts that were recorded with a profile.
    Profile,
    /// The sizes of the model and the GPU.
    ClosedForm,
}

/// What an engine's share of memory is a share of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FractionOf {
    /// All memory: everything else has to fit in the same share.
    Total,
    /// What everything else leaves free.
    Free,
}

impl FractionOf {
    /// How an engine understands its share.
    pub fn of_backend(backend: Backend) -> Self {
        match backend {
            Backend::Vllm | Backend::Sglang => Self::Total,
            Backend::Trtllm => Self::Free,
        }
    }
}

/// How the KV entries of a sequence grow with its length, on one GPU.
///
/// A budget is taken for one sequence's: layers with a window stop growing at it, whoever the tokens belong to. That
/// is what the reference does; many short sequences with a window each need more than this says.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct KvGrowth {
    /// Bytes of each token in layers that see everything.
    pub bytes_per_token: f64,
    /// Bytes of each token in layers with a window, for the tokens inside it.
    pub windowed_bytes_per_token: f64,
    /// Tokens of that window.
    pub window_tokens: u64,
}

impl KvGrowth {
    /// The same for every token.
    pub fn linear(bytes_per_token: f64) -> Self {
        Self { bytes_per_token, windowed_bytes_per_token: 0.0, window_tokens: 0 }
    }

    /// Bytes of a short sequence's token: of all layers.
    pub fn first_bytes_per_token(&self) -> f64 {
        self.bytes_per_token + self.windowed_bytes_per_token
    }

    /// Bytes of a sequence of so many tokens.
    pub fn bytes_of(&self, tokens: u64) -> f64 {
        self.bytes_per_token * tokens as f64
            + self.windowed_bytes_per_token * tokens.min(self.window_tokens) as f64
    }

    /// Whole tokens that fit in so many bytes.
    pub fn tokens_in(&self, bytes: f64) -> u64 {
        let inside = self.first_bytes_per_token();
        let window = self.window_tokens as f64;
        let tokens = if self.windowed_bytes_per_token == 0.0 || bytes <= inside * window {
            bytes / inside
        } else {
            window + (bytes - inside * window) / self.bytes_per_token
        };
        // A cast cuts off the fraction, and what is below 0 or endless.
        tokens as u64
    }
}

/// What one GPU of a worker holds. All figures are bytes of that GPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemoryPlan {
    /// Where the figures come from.
    pub source: MemorySource,
    /// Its memory.
    pub capacity_bytes: u64,
    /// Weights.
    pub weights_bytes: f64,
    /// Activations of the largest pass.
    pub activation_bytes: f64,
    /// Engine and runtime.
    pub runtime_bytes: f64,
    /// Buffers for communication.
    pub comm_bytes: f64,
    /// The engine's share of memory, 0 to 1.
    pub fraction: f64,
    /// What it is a share of.
    pub fraction_of: FractionOf,
    /// How KV entries grow.
    pub kv: KvGrowth,
}

impl MemoryPlan {
    /// What has to be there before the first KV block.
    pub fn non_kv_bytes(&self) -> f64 {
        self.weights_bytes + self.activation_bytes + self.runtime_bytes + self.comm_bytes
    }

    /// What may be used for that and for KV blocks.
    pub fn available_bytes(&self) -> f64 {
        let capacity = self.capacity_bytes as f64;
        match self.fraction_of {
            FractionOf::Total => self.fraction * capacity,
            FractionOf::Free => capacity,
        }
    }

    /// What is left for KV blocks; not above 0 when there is no room.
    pub fn kv_bytes(&self) -> f64 {
        let free = self.available_bytes() - self.non_kv_bytes();
        match self.fraction_of {
            FractionOf::Total => free,
            FractionOf::Free => self.fraction * free,
        }
    }

    /// Tokens of KV cache that fit.
    ///
    /// # Errors
    /// When there is no room for a single one.
    pub fn kv_tokens(&self) -> Result<u64, NoRoom> {
        match self.kv.tokens_in(self.kv_bytes()) {
            0 => Err(NoRoom {
                needed_bytes: self.non_kv_bytes(),
                weights_bytes: self.weights_bytes,
                available_bytes: self.available_bytes(),
                capacity_bytes: self.capacity_bytes,
            }),
            tokens => Ok(tokens),
        }
    }

    /// Why so many blocks of KV cache do not fit, if they do not.
    pub fn too_many_blocks(&self, blocks: u32, block_size: u32) -> Option<String> {
        let room = self.kv_blocks(block_size).unwrap_or(0);
        if blocks <= room {
            return None;
        }
        let gib = |bytes: f64| bytes / f64::from(1 << 30);
        let kv_bytes = self.kv.bytes_of(u64::from(blocks) * u64::from(block_size));
        Some(format!(
            "{blocks} blocks of {block_size} tokens are more than fit: {:.1} GiB per GPU are needed for them and {:.1} GiB for \
             everything else, {:.1} GiB are available of {:.1} GiB; there is room for {room}",
            gib(kv_bytes),
            gib(self.non_kv_bytes()),
            gib(self.available_bytes()),
            gib(self.capacity_bytes as f64)
        ))
    }

    /// Whole blocks of KV cache that fit, at least one.
    ///
    /// # Errors
    /// When there is no room for a single one.
    pub fn kv_blocks(&self, block_size: u32) -> Result<u32, NoRoom> {
        let tokens = self.kv_tokens()?;
        match tokens / u64::from(block_size) {
            0 => Err(NoRoom {
                needed_bytes: self.non_kv_bytes() + f64::from(block_size) * self.kv.first_bytes_per_token(),
                weights_bytes: self.weights_bytes,
                available_bytes: self.available_bytes(),
                capacity_bytes: self.capacity_bytes,
            }),
            blocks => Ok(u32::try_from(blocks).unwrap_or(u32::MAX)),
        }
    }
}

/// There is no room for KV blocks beside everything else.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub struct NoRoom {
    /// What has to be there: weights, activations, runtime, and the first block.
    pub needed_bytes: f64,
    /// The weights among it.
    pub weights_bytes: f64,
    /// What may be used.
    pub available_bytes: f64,
    /// Memory of the GPU.
    pub capacity_bytes: u64,
}

impl fmt::Display for NoRoom {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gib = |bytes: f64| bytes / f64::from(1 << 30);
        let (weights, available) = (gib(self.weights_bytes), gib(self.available_bytes));
        write!(
            formatter,
            "no room for the KV cache: {:.1} GiB per GPU are needed without it ({weights:.1} GiB of weights), \
             {available:.1} GiB are available of {:.1} GiB{}",
            gib(self.needed_bytes),
            gib(self.capacity_bytes as f64),
            if weights > available { ": the weights alone exceed the memory" } else { "" }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(weights_bytes: f64, fraction_of: FractionOf) -> MemoryPlan {
        MemoryPlan {
            source: MemorySource::ClosedForm,
            capacity_bytes: 1000,
            weights_bytes,
            activation_bytes: 50.0,
            runtime_bytes: 30.0,
            comm_bytes: 20.0,
            fraction: 0.5,
            fraction_of,
            kv: KvGrowth::linear(3.0),
        }
    }

    #[test]
    fn the_share_is_of_all_or_of_what_is_free() {
        assert_eq!(plan(200.0, FractionOf::Total).kv_tokens(), Ok(66));
        assert_eq!(plan(200.0, FractionOf::Free).kv_tokens(), Ok(116));
        assert_eq!(plan(200.0, FractionOf::Total).kv_blocks(16), Ok(4));
    }

    #[test]
    fn no_room_says_what_is_needed_and_what_there_is() {
        let none = plan(600.0, FractionOf::Total).kv_tokens().unwrap_err();
        assert_eq!((none.needed_bytes, none.available_bytes), (700.0, 500.0));
        assert!(none.to_string().ends_with("the weights alone exceed the memory"), "{none}");
        assert!(plan(350.0, FractionOf::Total).kv_blocks(64).is_err());
        assert!(plan(397.0, FractionOf::Total).kv_tokens().is_ok());
        assert!(plan(398.0, FractionOf::Total).kv_tokens().is_err());
    }

    #[test]
    fn more_blocks_than_fit_say_so() {
        let plan = plan(200.0, FractionOf::Total);
        assert_eq!(plan.too_many_blocks(4, 16), None);
        let reason = plan.too_many_blocks(5, 16).unwrap();
        assert!(reason.starts_with("5 blocks of 16 tokens are more than fit: "), "{reason}");
        assert!(reason.ends_with("there is room for 4"), "{reason}");
    }

    #[test]
    fn windows_stop_growing() {
        let growth = KvGrowth { bytes_per_token: 2.0, windowed_bytes_per_token: 2.0, window_tokens: 10 };
        assert_eq!(growth.tokens_in(39.0), 9);
        assert_eq!(growth.tokens_in(40.0), 10);
        assert_eq!(growth.tokens_in(60.0), 20);
        assert_eq!(growth.tokens_in(-5.0), 0);
        assert_eq!((growth.bytes_of(9), growth.bytes_of(20)), (36.0, 60.0));
    }
}
