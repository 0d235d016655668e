//! One inference engine: its scheduler and its KV cache.
